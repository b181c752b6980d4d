"""What the command line makes of mistakes, and of how it is run: one line and an exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deltastore import DeltaStoreSaver, Store
from deltastore.engine.api import Engine
from deltastore.options import StoreOptions
from tests.conformance.cli_stores import (
    BEGIN_MS,
    DAY_MS,
    RUN,
    contents_at,
    make_stores,
    put_line,
    run,
)

ROOT = Path(__file__).parents[2]
PROCESS = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}

MISTAKES = [
    (2, [], "VERB"),
    (2, ["inform", "state"], "invalid choice: 'inform'"),
    (2, ["info"], "STORE"),
    (2, ["info", "state", "--limit", "1"], "--limit"),
    (2, ["threads", "state", "--limit", "0"], "at least 1 (got '0')"),
    (2, ["threads", "state", "--limit", "many"], "at least 1 (got 'many')"),
    (2, ["history", "state", "\udcff"], "lone surrogate"),
    (2, ["prune", "state"], "--all-threads"),
    (2, ["prune", "state", "anna", "--all-threads"], "--all-threads"),
    (2, ["prune", "state", "anna", "--older-than", "soon"], "30d or 12h (got 'soon')"),
    (2, ["prune", "state", "anna", "--older-than", "1.5d"], "got '1.5d'"),
    (2, ["prune", "state", "anna", "--keep-last", "-1"], "--keep-last"),
    (2, ["compact", "state", "--updates", "0"], "at least 1 (got '0')"),
    (2, ["compact", "state", "--ratio", "0"], "ratio must be above 0"),
    (2, ["compact", "state", "--ratio", "nan"], "ratio must be above 0"),
    (2, ["delete", "state"], "--thread --run is required"),
    (2, ["delete", "state", "--thread", "anna", "--refuse"], "--run R"),
    (2, ["copy", "state", "anna"], "TARGET"),
    (3, ["info", "notes.txt"], "notes.txt is not a directory"),
    (3, ["info", "."], "something else than a store"),
    (3, ["history", "state", "nobody"], "no thread 'nobody'"),
    (3, ["history", "state", "anna", "--namespace", "x"], "no checkpoint in namespace 'x'"),
    (3, ["compact", "state", "nobody"], "no thread 'nobody'"),
    (3, ["prune", "state", "anna", "nobody"], "no thread 'nobody'"),
    (3, ["copy", "state", "nobody", "new"], "no thread 'nobody'"),
    (3, ["delete", "state", "--thread", "anna", "--thread", "nobody"], "no thread 'nobody'"),
    (2, ["delete", "state", "--thread", "anna", "--run", f"{RUN}1"], "not allowed with"),
    (2, ["delete", "state", "--run", f"{RUN}1", "--refuse"], "need what a run put"),
    (2, ["copy", "state", "anna", "bert"], "thread 'bert' exists"),
    (2, ["copy", "state", "anna", "anna"], "onto itself"),
    (3, ["delete", "state", "--run", "x", "--run", "y"], "anything of run 'x', 'y'"),
    (2, ["verify", "state", "--level", "all"], "invalid choice: 'all'"),
    (2, ["backup", "state"], "TARGET"),
    (3, ["verify", "nowhere"], "no store there"),
    (3, ["backup", "nowhere", "copy"], "no store there"),
    (3, ["backup", "state", "long"], "long is not empty"),
    (3, ["backup", "state", "state/copy"], "lie within each other"),
    (3, ["restore", "nowhere", "copy"], "no store there"),
    (3, ["restore", "state", "long"], "long is not empty"),
    (3, ["repair", "nowhere", "copy"], "no store there"),
    (3, ["repair", "state", "long"], "long is not empty"),
    (3, ["doctor", "nowhere"], "no store there"),
    (4, ["repair", "secret", "copy"], "the command line has no key"),
    (4, ["history", "secret", "anna"], "the command line has no key"),
    (4, ["prune", "secret", "anna"], "the command line has no key"),
    (4, ["delete", "secret", "--run", f"{RUN}1"], "the command line has no key"),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with what the page speaks of."""
    make_stores(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("code", "argv", "says"), MISTAKES)
def test_a_mistake_is_one_line_and_changes_nothing(
    here: Path, capsys: pytest.CaptureFixture[str], code: int, argv: list[str], says: str
) -> None:
    """No traceback for what a user can put right; a script goes by the code."""
    before = contents_at(here / "state")
    found, out, err = run(capsys, *argv)
    assert (code, "") == (found, out)
    assert re.fullmatch(r"deltastore: error: [^\n]+\n", err)
    assert says in err
    assert before == contents_at(here / "state")


@pytest.mark.parametrize(
    "argv",
    [
        ["info", "typo"],
        ["threads", "typo"],
        ["history", "typo", "anna"],
        ["compact", "typo"],
        ["compact", "typo", "--dry-run"],
        ["vacuum", "typo"],
        ["prune", "typo", "--all-threads"],
        ["copy", "typo", "anna", "new"],
        ["delete", "typo", "--thread", "anna"],
    ],
    ids=" ".join,
)
def test_no_verb_makes_a_store_in_a_mistyped_path(
    here: Path, capsys: pytest.CaptureFixture[str], argv: list[str]
) -> None:
    """An empty store that answers `nothing here` hides the mistake, and is left behind."""
    code, out, err = run(capsys, *argv)
    assert (3, "") == (code, out)
    assert re.fullmatch(r"deltastore: error: [^\n]*typo: no store there[^\n]*\n", err)
    assert not (here / "typo").exists()


@pytest.mark.parametrize(
    "argv",
    [
        ["info", "state"],
        ["threads", "state"],
        ["history", "state", "anna"],
        ["compact", "state", "--dry-run"],
        ["prune", "state", "anna", "--dry-run"],
        ["delete", "state", "--thread", "anna", "--dry-run"],
        ["delete", "state", "--run", f"{RUN}1", "--dry-run"],
    ],
    ids=" ".join,
)
def test_what_only_reads_opens_the_store_read_only(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
) -> None:
    """An opening that writes finishes deletions; a command that looks must not even do that."""
    opened: list[bool] = []
    make = Store.__init__

    def noted(store: Store, engine: Engine, options: StoreOptions | None = None) -> None:
        make(store, engine, options)
        opened.append(store.options.read_only)

    monkeypatch.setattr(Store, "__init__", noted)
    assert 0 == run(capsys, *argv)[0]
    assert {True} == set(opened)


@pytest.mark.damaged
def test_a_damaged_store_is_told_apart_from_a_missing_one(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One is restored from a backup, the other was mistyped."""
    file = here / "state" / "000001" / "data.mdb"
    file.write_bytes(file.read_bytes()[:6_000])
    code, out, err = run(capsys, "info", "state")
    assert (5, "") == (code, out)
    assert re.fullmatch(r"deltastore: error: [^\n]*damaged[^\n]*\n", err)


# --- as a process ---


def start(*argv: str, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "deltastore", *argv]
    return subprocess.Popen(
        command, env=PROCESS, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


def test_the_module_runs_beside_a_live_writer(here: Path) -> None:
    """That is when one looks into a store."""
    with DeltaStoreSaver(here / "state") as writer:
        ids = put_line(writer, "carl", BEGIN_MS + 2 * DAY_MS, [f"{RUN}6"])
        ran = start("history", "state", "carl", "--json")
        out, err = ran.communicate(timeout=60)
        assert (0, b"") == (ran.returncode, err)
        assert ids[::-1] == [one["checkpoint_id"] for one in json.loads(out)["checkpoints"]]
        put_line(writer, "dora", BEGIN_MS + 3 * DAY_MS, [f"{RUN}7"])


def test_text_that_the_output_cannot_hold_is_escaped(here: Path) -> None:
    """Ids are any text; the encoding of a terminal or a pipe need not be able to show it."""
    with DeltaStoreSaver(here / "state") as saver:
        put_line(saver, "z\u00fcrich \U0001f409", BEGIN_MS, [f"{RUN}6"])
    for command in (["threads", "state"], ["threads", "state", "--json"]):
        ran = subprocess.run(
            [sys.executable, "-m", "deltastore", *command],
            env={**PROCESS, "PYTHONIOENCODING": "ascii"},
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert (0, b"") == (ran.returncode, ran.stderr)
        assert rb"z\xfcrich" in ran.stdout or rb"z\u00fcrich" in ran.stdout


def test_a_reader_that_goes_away_is_no_traceback(here: Path) -> None:
    """`deltastore threads | head` has what it wanted."""
    read, write = os.pipe()
    os.close(read)
    ran = subprocess.run(
        [sys.executable, "-m", "deltastore", "threads", "state"],
        env=PROCESS,
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(write)
    assert (141, b"") == (ran.returncode, ran.stderr)
