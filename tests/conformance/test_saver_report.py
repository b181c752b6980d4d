"""The report on a saver: broken ones are caught by the law meant for it, hangs end, and what the
guide publishes is what a fresh run says.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from deltastore import DeltaStoreSaver
from deltastore.testing import Saver
from deltastore.testing.retention_calls import REDUCERS
from deltastore.testing.saver_report import MAINTENANCE, main, report_on
from deltastore.testing.saver_suite import SaverSuite, StrictSaverSuite
from deltastore.testing.saver_verdicts import (
    FAILED,
    HELD,
    NOT_APPLICABLE,
    NOT_OFFERED,
    Verdict,
    reason_of,
)
from deltastore.testing.suite_calls import FACES
from tests.conformance.broken_savers import CAUGHT_BY, HANGS, Shelved, suite_on

ROOT = Path(__file__).parents[2]
HERE = "tests.conformance.test_saver_report"
SOON_S = 0.5  # the deadline where a hang is expected


class Memory(StrictSaverSuite):
    """A target of the command line."""

    persistent = False

    def open(self, where: Path) -> Saver:
        return InMemorySaver()


def memory(where: Path) -> Saver:
    """Another one: a function."""
    return InMemorySaver()


def outcomes_of(target: Any, law: str) -> dict[str, str]:
    """Return, by face, the outcome of the one law of that name."""
    (row,) = report_on(target, only=law).laws
    return {face: row.verdicts[face].outcome for face in FACES}


# Broken savers.


@pytest.mark.damaged  # a saver broken on purpose may store what does not verify
@pytest.mark.parametrize(
    ("saver", "law", "faces"), CAUGHT_BY, ids=lambda item: getattr(item, "__name__", "")
)
def test_every_broken_saver_is_caught(
    saver: Callable[..., Saver], law: str, faces: tuple[str, ...]
) -> None:
    """By the law meant for it, on the faces it is broken on and on no other."""
    found = outcomes_of(suite_on(saver), law)
    assert {face: FAILED if face in faces else HELD for face in FACES} == found


@pytest.mark.parametrize(
    ("saver", "law", "faces"), HANGS, ids=lambda item: getattr(item, "__name__", "")
)
def test_every_hang_ends_and_is_told(
    saver: Callable[..., Saver], law: str, faces: tuple[str, ...]
) -> None:
    """A report that hangs with the saver is none; in a listing, in `open` or in `close`."""
    (row,) = report_on(suite_on(saver), only=law, deadline_s=SOON_S).laws
    hangs = Verdict(FAILED, f"hangs: no end after {SOON_S} s")
    assert {face: hangs if face in faces else Verdict(HELD) for face in FACES} == row.verdicts


def test_what_broken_savers_stand_on_is_sound() -> None:
    """Else they would be caught for any reason."""
    for base in (DeltaStoreSaver, Shelved):
        of_this = base is DeltaStoreSaver
        savers = [
            one for one in CAUGHT_BY + HANGS if issubclass(one[0], DeltaStoreSaver) == of_this
        ]
        for law in {law for _, law, _ in savers}:
            assert {law: dict.fromkeys(FACES, HELD)} == {law: outcomes_of(suite_on(base), law)}


def test_there_are_enough_broken_savers() -> None:
    """A table that shrinks by mistake would still be green."""
    assert len({saver for saver, _, _ in CAUGHT_BY + HANGS}) >= 40


# Outcomes.


def test_laws_of_missing_methods_are_not_offered() -> None:
    """One row for each, so that two savers' tables have the same rows."""
    for law, method in (("keep last counts", "prune"), ("a copy replaces", "copy_thread")):
        (row,) = report_on(Memory, only=law).laws
        assert {face: Verdict(NOT_OFFERED, f"no {method}") for face in FACES} == row.verdicts


def test_a_method_that_refuses_what_it_should_do_fails() -> None:
    """A saver may have `prune` and raise NotImplementedError for some threads only."""

    class Picky(InMemorySaver):
        def prune(self, thread_ids: Any, *, strategy: str = "keep_latest") -> None:
            if thread_ids:
                raise NotImplementedError("not for these")

        async def aprune(self, thread_ids: Any, *, strategy: str = "keep_latest") -> None:
            self.prune(thread_ids)

    (row,) = report_on(lambda where: Picky(), only="values are rebuilt from what went").laws
    assert {NOT_APPLICABLE} == {verdict.outcome for verdict in row.verdicts.values()}
    (row,) = report_on(lambda where: Picky(), only="a snapshot on the survivor").laws
    assert (FAILED, True) == (row.outcome, "not for these" in row.reason)


def test_a_face_without_methods_is_not_offered() -> None:
    """Whether the suite says so or the saver does."""

    class SyncOnly(Memory):
        faces = ("sync",)

    class Sync(InMemorySaver):
        aget_tuple = BaseCheckpointSaver.aget_tuple

    expected = {"sync": HELD, "async": NOT_OFFERED}
    assert expected == outcomes_of(SyncOnly, "absent checkpoint is none")
    assert expected == outcomes_of(suite_on(Sync), "absent checkpoint is none")


def test_restarts_are_not_applicable_to_what_keeps_nothing() -> None:
    """It does not claim to; a function's saver does."""
    law = "restart undoes no deletion"
    assert dict.fromkeys(FACES, NOT_APPLICABLE) == outcomes_of(Memory, law)
    assert dict.fromkeys(FACES, FAILED) == outcomes_of(memory, law)
    assert dict.fromkeys(FACES, HELD) == outcomes_of(suite_on(Shelved), law)


def test_laws_of_an_adopter_are_reported_and_known_faults_tried() -> None:
    """A listing of known faults is for pytest: the report says what is so."""

    class Own(Memory):
        known_faults = {"test_walks_of_a_loop_end": "no guard"}  # noqa: RUF012 (as adopters write it)

        def test_mine(self, caller: Any) -> None:
            """A law of its own."""
            assert caller.saver.config_specs == [1]

    assert dict.fromkeys(FACES, FAILED) == outcomes_of(Own, "walks of a loop end")
    (row,) = report_on(Own, only="mine").laws
    assert ("Of its own", FAILED) == (row.subject, row.outcome)
    assert "not so: caller.saver.config_specs == [1]" in row.reason


def test_tests_that_are_no_laws_are_left_to_pytest(tmp_path: Path) -> None:
    """An adopter's class may hold other tests, and laws that need more than a caller."""

    class Own(Memory):
        def test_other(self) -> None:
            """Asks for no caller."""

        def test_of_files(self, caller: Any, tmp_path: Path) -> None:
            """Asks for a file as well."""
            assert tmp_path.exists()

    (row,) = report_on(Own, only="of files").laws
    assert {face: Verdict(NOT_APPLICABLE, "needs pytest for tmp_path") for face in FACES} == (
        row.verdicts
    )
    assert () == report_on(Own, only="test other").laws
    Own().test_other()
    with Own().calling(tmp_path) as caller:
        Own().test_of_files(caller, tmp_path=tmp_path)


def test_a_plain_suite_is_reported_with_the_laws_of_the_strict_one() -> None:
    """Tables of two savers must have the same rows."""

    class Plain(SaverSuite):
        def open(self, where: Path) -> Saver:
            return InMemorySaver()

    laws = [[row.law for row in report_on(t, only="un").laws] for t in (Plain, Memory)]
    assert laws[0] == laws[1]
    assert "batch with an unstorable value leaves nothing" in laws[0]


def test_a_reason_is_one_line_and_says_what_was_expected() -> None:
    """It stands in a table."""
    with pytest.raises(KeyError) as raised:
        {}["a\nb"]
    assert reason_of(raised.value).startswith("KeyError in test_a_reason_is_one_line_and")
    assert "\n" not in reason_of(ValueError("a\nb" * 200))
    assert len(reason_of(ValueError("a\nb" * 200))) == 160


@pytest.mark.parametrize("ci", ["", "1"])
def test_a_reason_is_the_same_wherever_it_is_made(ci: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest's account of an assertion is longer where CI is set; a published reason may not be."""
    monkeypatch.setenv("CI", ci)
    found = ["a", "b"]
    with pytest.raises(AssertionError) as raised:
        assert found == ["a", "c"], "of two"
    told = "not so: found == ['a', 'c']: of two assert ['a', 'b'] == ['a', 'c']"
    assert told == reason_of(raised.value)


# Known faults in pytest.


def test_a_fault_may_be_known_on_one_face(tmp_path: Path) -> None:
    """An async class need not break what its sync twin breaks."""

    class Known(SaverSuite):
        known_faults = {"test_nothing_holds[sync]": "so"}  # noqa: RUF012 (as adopters write it)

        def open(self, where: Path) -> Saver:
            return InMemorySaver()

        def test_nothing_holds(self, caller: Any) -> None:
            raise ValueError

    with Known().calling(tmp_path) as caller:
        Known().test_nothing_holds(caller)
    with Known().calling(tmp_path, asynchronous=True) as caller, pytest.raises(ValueError):
        Known().test_nothing_holds(caller)


def test_a_known_fault_must_be_the_name_of_a_law() -> None:
    """A typing error would hide that nothing is listed."""
    with pytest.raises(AttributeError):
        type("Wrong", (SaverSuite,), {"known_faults": {"test_no_such_law": ""}})


# The command.


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([f"{HERE}:Memory", "--only", "put returns"], 0),
        ([f"{HERE}:memory", "--only", "put returns"], 0),
        ([f"{HERE}:Memory", "--only", "walks of a loop"], 1),
    ],
)
def test_exit_code_says_whether_a_law_failed(
    arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """For CI."""
    assert code == main(arguments)
    printed = capsys.readouterr().out
    name = arguments[0].partition(":")[2]
    assert (
        f"{name}, sync: {1 - code} held, 0 not applicable, 0 not offered, {code} failed" in printed
    )


@pytest.mark.parametrize("target", ["no.such.module:x", f"{HERE}:nothing", f"{HERE}:HERE", HERE])
def test_a_target_that_is_none_is_an_error(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and the target is named."""
    with pytest.raises(SystemExit) as left:
        main([target])
    assert (2, True) == (left.value.code, target in capsys.readouterr().err)


def test_json_says_what_the_table_says(capsys: pytest.CaptureFixture[str]) -> None:
    """For who publishes it."""
    main([f"{HERE}:Memory", "--only", "walks of a loop", "--json"])
    (row,) = json.loads(capsys.readouterr().out)["laws"]
    reason = "TimeoutError in count: no end after 200000 calls"
    verdict = {"outcome": FAILED, "reason": reason}
    expected = {
        "law": "walks of a loop end",
        "subject": "History, names, deletion, restart",
        "verdicts": dict.fromkeys(FACES, verdict),
        **verdict,
    }
    assert expected == row


def test_the_module_runs_and_leaves_although_the_saver_hangs() -> None:
    """Threads that never end must not keep the process."""
    target = "tests.conformance.broken_savers:hanging"
    asked = ["--only", "blocks no write", "--deadline", str(SOON_S)]
    ran = subprocess.run(
        [sys.executable, "-m", "deltastore.testing.saver_report", target, *asked],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (1, "") == (ran.returncode, ran.stderr)
    assert f"hangs: no end after {SOON_S} s" in ran.stdout


# What is published.


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """The tool that writes the table."""
    path = ROOT / "tools" / "make_saver_table.py"
    spec = importlib.util.spec_from_file_location("make_saver_table", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_published_table_is_what_a_fresh_run_says(maker: ModuleType) -> None:
    """Outcomes only. If it differs, run `tools/make_saver_table.py` and look why."""
    found = maker.published(maker.GUIDE.read_text("utf-8"))
    fresh: dict[tuple[str, str], str] = {}
    reasons: dict[str, str] = {}
    for name, suite in maker.SAVERS.items():
        report = report_on(suite, deadline_s=4, maintenance=suite is not maker.DeltaStore)
        for row, told in maker.cells(report):
            fresh[row, name] = told
        reasons |= {f"{row.law}, {name}": row.reason for row in report.laws if row.reason}
    expected = {key: one for key, one in found.items() if key in fresh}
    assert expected == fresh, reasons


class OnMemory(StrictSaverSuite):
    """This package's saver without a file."""

    faces = ("sync",)

    def open(self, where: Path) -> Saver:
        return DeltaStoreSaver.ephemeral()

    def open_folding(self, where: Path) -> Saver:
        return DeltaStoreSaver.ephemeral(reducers=REDUCERS)

    def reopen(self, saver: Saver, where: Path) -> Saver:
        return saver


def test_the_published_table_is_right_about_maintenance(maker: ModuleType) -> None:
    """One face on the engine in memory, for time: the others are in `test_retention_suite`."""
    found = maker.published(maker.GUIDE.read_text("utf-8"))
    fresh: dict[str, set[str]] = {}
    for row in report_on(OnMemory).laws:
        if row.subject.startswith(MAINTENANCE):
            fresh.setdefault(row.subject, set()).add(row.verdicts["sync"].outcome)
    said = {row: f"**{FAILED}**" if FAILED in outcomes else HELD for row, outcomes in fresh.items()}
    assert said == {row: found[row, "DeltaStoreSaver"] for row in fresh}
    assert {HELD, FAILED} >= set().union(*fresh.values())


def test_the_published_table_has_every_law_and_no_other(maker: ModuleType) -> None:
    """A law that was renamed or removed must not live on in the guide."""
    rows = {law for law, _ in maker.published(maker.GUIDE.read_text("utf-8"))}
    assert {row for row, _ in maker.cells(report_on(Nothing))} == rows


class Nothing(StrictSaverSuite):
    """A saver without methods: every law is there, and none takes time."""

    faces = ()

    def open(self, where: Path) -> Saver:
        raise NotImplementedError


def test_every_fault_published_is_explained(maker: ModuleType) -> None:
    """A bare "failed" about another's saver is an accusation without a word of evidence."""
    text = maker.GUIDE.read_text("utf-8")
    cells = maker.published(text)
    for name in maker.SAVERS:
        heading = re.escape(name.replace(",", " and"))
        faults = re.search(rf"^{heading}\n\n((?:[- ].*\n)+)", text, re.MULTILINE)
        told = " ".join(faults[1].split()) if faults else ""
        failed = {law for law, saver in cells if saver == name and "failed" in cells[law, saver]}
        if name != "DeltaStoreSaver":
            assert failed == {*re.findall(r"\*([^*]+)\*[,:]", told)}


def test_the_adopters_example_is_short() -> None:
    """What the guide promises: about thirty lines."""
    text = (ROOT / "docs" / "guides" / "saver-suite.md").read_text("utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len([line for line in example.split("\n") if line.strip()]) <= 30


def test_a_table_written_twice_is_the_same(maker: ModuleType) -> None:
    """Nothing around the markers is touched."""
    text = f"before\n{maker.BEGIN}\nold\n{maker.END}\nafter\n"
    once = maker.written(text, "| a |\n| --- |\n| \\1 |")
    assert once == maker.written(once, "| a |\n| --- |\n| \\1 |")
    assert once.startswith("before\n")
    assert once.endswith("\nafter\n")
