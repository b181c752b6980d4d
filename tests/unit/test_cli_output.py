"""What the command line prints, apart from any store: tables, bars, arguments and errors."""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from deltastore.cli import arguments, exits, info
from deltastore.cli.output import fields, iso_time, printable, show, table
from deltastore.cli.program import main
from deltastore.cli.progress import progress_bar
from deltastore.cli.removal import shown_plans
from deltastore.errors import (
    BrokenChainError,
    CorruptionError,
    DecryptionError,
    EngineError,
    FormatVersionError,
    InvalidArgumentError,
    InvalidTypeError,
    NeededRunError,
    StorePathError,
)
from deltastore.plans import PrunePlan, StreamPlan, part_of

RECORDS: list[dict[str, Any]] = [
    {"thread_id": "anna", "bytes": 7, "run_id": None},
    {"thread_id": "[red]x[/red] :cat: bertram", "bytes": 4_096, "run_id": "r\x1b[31m\n"},
]
PLAN = PrunePlan("anna", False, (StreamPlan("", 1, ("b", "a"), ("b",), 3, 9, 1_000),))


class Terminal(io.StringIO):
    """Claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def look(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal, 60 columns wide, without colours, at standard output and error.

    No fixture, since pytest puts its own in their place when the test itself begins.
    """
    made = Terminal()
    monkeypatch.setattr(sys, "stdout", made)
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    return made


@pytest.fixture
def no_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the extra `cli` is not installed."""
    monkeypatch.setitem(sys.modules, "rich", None)


# --- answers ---


def test_a_pipe_gets_aligned_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers to the right, None as a dash, nothing behind the last column, no escape."""
    show({}, table(RECORDS, "bytes", "thread_id", "run_id"), "the end", as_json=False)
    assert [
        "bytes  thread id                   run id",
        "    7  anna                        -",
        " 4096  [red]x[/red] :cat: bertram  r\\x1b[31m\\n",
        "the end",
    ] == capsys.readouterr().out.splitlines()


def test_names_and_values_are_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """One record is read from top to bottom."""
    show({}, fields(RECORDS[0], "thread_id", "bytes", "run_id"), as_json=False)
    assert ["thread id  anna", "bytes      7", "run id     -"] == (
        capsys.readouterr().out.splitlines()
    )


def test_a_table_without_rows_is_its_titles(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty list is an answer."""
    show({}, table([], "thread_id", "bytes"), as_json=False)
    assert "thread id  bytes\n" == capsys.readouterr().out


def test_json_is_one_document_with_the_exact_texts(capsys: pytest.CaptureFixture[str]) -> None:
    """A program must get ids as they are; ASCII alone, whatever the encoding of the pipe."""
    odd = "z\u00fcrich \U0001f409 \x1b\n"
    show({"ids": [odd]}, "text", as_json=True)
    out = capsys.readouterr().out
    assert {"ids": [odd]} == json.loads(out)
    assert out.isascii()


def test_a_terminal_gets_whole_cells_and_no_control_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """rich must neither read ids as its markup nor cut them off, in however narrow a window."""
    terminal = look(monkeypatch)
    long = "i" * 100
    show({}, table([*RECORDS, {**RECORDS[0], "thread_id": long}], *RECORDS[0]), as_json=False)
    show({}, fields(RECORDS[1], *RECORDS[1]), "the [end] :dog: " + long, as_json=False)
    out = terminal.getvalue()
    assert 2 == out.count("[red]x[/red] :cat:") == out.count("r\\x1b[31m\\n")
    assert 200 == len(re.findall("i", out)) - len(re.findall("(thread|run) id", out))
    assert f"the [end] :dog: {long}\n" in out
    assert re.search("\u2500{20}", out)
    assert "\x1b[31m" not in out


def test_a_terminal_without_rich_gets_aligned_text(
    monkeypatch: pytest.MonkeyPatch, no_rich: None
) -> None:
    """rich is an extra; without it nothing but looks may be lost."""
    terminal = look(monkeypatch)
    show({}, table(RECORDS, "bytes", "thread_id"), as_json=False)
    assert "bytes  thread id\n    7  anna\n" in terminal.getvalue()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("anna", "anna"),
        ("z\u00fcrich \U0001f409", "z\u00fcrich \U0001f409"),
        ("a\x00\x1b[2J\r\n\x9b", "a\\x00\\x1b[2J\\r\\n\\x9b"),
        ("\u202eevil\ud800", "\\u202eevil\\ud800"),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, expected: str) -> None:
    """An id that moves the cursor or turns the direction of text shows what is not there."""
    assert expected == printable(text)


def test_times_are_utc_to_the_millisecond() -> None:
    """Two hosts must show the same text."""
    assert "1970-01-01T00:00:00.001Z" == iso_time(1)
    assert "2025-01-10T08:00:00.000Z" == iso_time(1_736_496_000_000)
    assert "5236-03-31T21:21:00.684Z" == iso_time(103_072_857_660_684)  # the last uuid6
    assert iso_time(None) is None


def test_plans_are_shown_although_the_next_thread_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is gone is gone: whoever interrupts a long pruning must be told of it."""
    with (
        pytest.raises(KeyboardInterrupt),
        shown_plans(dry_run=False, as_json=False) as plans,
    ):
        plans.append(PLAN)
        raise KeyboardInterrupt
    assert [
        "dropped  kept  anchors  writes  records  bytes  thread id  namespace",
        "      2     1        1       3        9   1000  anna",
        "2 checkpoints gone, 1000 bytes in 9 records",
    ] == capsys.readouterr().out.splitlines()
    with pytest.raises(EngineError), shown_plans(dry_run=False, as_json=True):
        raise EngineError
    assert "" == capsys.readouterr().out


# --- progress ---


def test_no_bar_is_drawn_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    """A log file full of bars helps nobody."""
    with progress_bar("work") as progress:
        progress(1, 2)
    assert ("", "") == capsys.readouterr()


def test_a_plain_bar_is_drawn_once_a_per_cent_and_taken_away(
    monkeypatch: pytest.MonkeyPatch, no_rich: None
) -> None:
    """A call for each record must not cost a line each; the answer must not stand behind a bar."""
    terminal = look(monkeypatch)
    with progress_bar("work") as progress:
        for done in range(1_001):
            progress(done, 1_000)
        progress(0, 0)
    lines = terminal.getvalue().split("\r")
    assert 101 + 1 + 3 == len(lines)
    assert f"work [{'#' * 15}{'.' * 15}]  50%" == lines[51]
    assert ["work [" + "." * 30 + "]   0%", " " * len(lines[51]), ""] == lines[-3:]


def test_the_bar_of_rich_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work whose size is not known yet has a bar, too."""
    terminal = look(monkeypatch)
    with progress_bar("work") as progress:
        progress(0, 0)
        progress(1, 4)
        progress(4, 4)
    assert "work" in terminal.getvalue()


def test_parts_of_work_make_one_progress() -> None:
    """A bar that starts again for each of a thousand threads says nothing of when it ends."""
    seen: list[tuple[int, int]] = []

    def whole(done: int, total: int) -> None:
        seen.append((done, total))

    for index in range(2):
        part = part_of(whole, index, 2)
        for done, total in ((0, 0), (0, 3), (3, 3), (5, 3)):
            part(done, total)
    expected = [0, 0, 1_000, 1_000, 1_000, 1_000, 2_000, 2_000]
    assert [(done, 2_000) for done in expected] == seen


# --- arguments and errors ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30d", timedelta(days=30)),
        ("12h", timedelta(hours=12)),
        ("90m", timedelta(minutes=90)),
        ("45s", timedelta(seconds=45)),
        ("0s", timedelta()),
        ("999999999d", timedelta(days=999_999_999)),
    ],
)
def test_durations_are_read(text: str, expected: timedelta) -> None:
    """To the limits of what a timedelta holds."""
    assert expected == arguments.duration(text)


@pytest.mark.parametrize(
    "text", ["", "30", "d", "-1d", "1.5h", "1 d", "1D", "1w", "1d12h", "1000000000d", "\u0661d"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    """A duration taken for another one deletes what should have stayed."""
    with pytest.raises(argparse.ArgumentTypeError, match="30d or 12h"):
        arguments.duration(text)


@pytest.mark.parametrize("text", ["0", "-1", "1.0", "", "x", "\u0661", "1_0", "9" * 19])
def test_what_is_no_positive_number_is_refused(text: str) -> None:
    """`int` takes more than a shell's user means."""
    for read in (arguments.positive, arguments.bound):
        with pytest.raises(argparse.ArgumentTypeError, match="at least 1"):
            read(text)


def test_a_bound_may_be_none() -> None:
    """Bounds can be switched off in Python, so they can be here."""
    assert (None, 5) == (arguments.bound("none"), arguments.bound("5"))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CorruptionError("x"), 5),
        (BrokenChainError("x"), 5),
        (EngineError("x"), 1),
        (FormatVersionError("x"), 1),
        (OSError("x"), 1),
        (InvalidArgumentError("x"), 2),
        (InvalidTypeError("x"), 2),
        (NeededRunError("x"), 2),
        (StorePathError("x"), 3),
        (exits.MissingError("x"), 3),
        (DecryptionError("x"), 4),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_each_error_has_its_exit_code(
    error: BaseException,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Scripts go by them; docs/cli.md lists them."""
    monkeypatch.setattr(info, "run", raising(error))
    assert code == main(["info", "state"])
    printed = capsys.readouterr()
    assert "" == printed.out
    assert 1 == printed.err.count("\n")
    assert printed.err.startswith("deltastore: ")


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no user's mistake must be reportable."""
    monkeypatch.setattr(info, "run", raising(AssertionError("a bug")))
    with pytest.raises(AssertionError, match="a bug"):
        main(["info", "state"])


def test_an_error_is_one_line_without_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Messages quote paths and ids, which are any text."""
    monkeypatch.setattr(info, "run", raising(EngineError("two\nlines of \x1b[31m")))
    assert 1 == main(["info", "state"])
    assert "deltastore: error: two lines of \\x1b[31m\n" == capsys.readouterr().err


def test_a_warning_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As for a path on a network share; the place in the code is nothing to a user of a shell."""

    def warn(_: argparse.Namespace) -> None:
        warnings.warn("a network file system", UserWarning, stacklevel=1)

    monkeypatch.setattr(info, "run", warn)
    shown = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert 0 == main(["info", "state"])
    assert "deltastore: warning: a network file system\n" == capsys.readouterr().err
    assert shown is warnings.showwarning


def raising(error: BaseException) -> Callable[[argparse.Namespace], None]:
    def run(_: argparse.Namespace) -> None:
        raise error

    return run
