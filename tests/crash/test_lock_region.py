"""An LMDB lock region that a killed process left half made: nobody may count commits from it.

LMDB's first opener makes the region anew, with 0 as the number of the last commit, and puts the
number in when it has mapped the file. Here a process stands still in between, or is killed there,
while another opens the store.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lmdb
import pytest

from deltastore.engine import lmdb_files as files
from deltastore.engine import lmdb_mapped, lmdb_shared
from deltastore.engine.lmdb import LmdbEngine
from deltastore.engine.lmdb_structure import walk_structure
from deltastore.errors import EngineError
from deltastore.testing.engine_calls import fill, read_all
from tests.crash.test_lmdb_engine import Child, no_child_outlives_its_test

__all__ = ["no_child_outlives_its_test"]


def filled(path: Path, commits: int) -> dict[bytes, bytes]:
    """Store a key a commit, each over the one before as well, so that pages are used again."""
    engine = LmdbEngine(path)
    for number in range(commits):
        fill(engine, {b"%03d" % number: b"v" * 500, b"last": b"%d" % number})
    pairs = dict(read_all(engine))
    engine.close()
    return pairs


@pytest.fixture
def offset(tmp_path: Path) -> int:
    """Where in a lock region the number of the last commit is: after a mutex of the system's."""
    commits = 7_777
    env = lmdb.Environment(str(tmp_path / "measured"), sync=False, lib_version=0)
    for number in range(commits):
        with env.begin(write=True) as txn:
            txn.put(b"key", b"%d" % number)
    region = (tmp_path / "measured" / "lock.mdb").read_bytes()[:256]
    env.close()
    found = [at for at in range(0, 256, 8) if region[at : at + 8] == commits.to_bytes(8, "little")]
    assert 1 == len(found)
    return found[0]


def half_open(path: Path, offset: int, number: int = 0) -> Child:
    """Return a process in which the number of the last commit is not put in yet, or another is."""

    def work(pipe: Any) -> None:
        directory = str(path / "000001")
        env = lmdb.Environment(directory, create=False, max_readers=1_024, lib_version=0)
        # Stays open: closing it would let go of LMDB's own lock on the file.
        region = os.open(path / "000001" / files.READERS, os.O_RDWR)
        os.pwrite(region, number.to_bytes(8, "little"), offset)
        pipe.send("half open")
        pipe.recv()
        env.close()

    child = Child(work)
    assert "half open" == child.receive()
    return child


@pytest.mark.parametrize("commits", [1, 2, 25, 26])
def test_the_region_of_a_killed_opener_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int, commits: int
) -> None:
    """Nothing is lost, and later commits are numbered on, whichever meta page is the newer one."""
    path = tmp_path / "store"
    pairs = filled(path, commits)
    opener = half_open(path, offset)
    pauses: list[int] = []

    def pause(attempt: int, **_: float) -> None:
        if not pauses:
            opener.kill()
        pauses.append(attempt)

    monkeypatch.setattr(lmdb_mapped, "back_off", pause)
    reader = LmdbEngine(path, read_only=True)
    assert pairs == read_all(reader)  # LMDB itself knows of the 0 where nothing is written
    reader.close()
    engine = LmdbEngine(path)
    assert pairs == read_all(engine)
    assert [0] == pauses
    for number in range(3):
        fill(engine, {b"after": b"%d" % number})
    assert {**pairs, b"after": b"2"} == read_all(engine)
    engine.close()
    assert [] == walk_structure(path)


def test_a_region_that_others_keep_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    """Another program holds it open, which nobody can help from here; it is told what to do."""
    path = tmp_path / "store"
    pairs = filled(path, 5)
    opener = half_open(path, offset)
    monkeypatch.setattr(lmdb_mapped, "back_off", lambda attempt, **_: None)
    engine = LmdbEngine(path)
    with pytest.raises(EngineError, match=r"lock\.mdb was left half made"):
        read_all(engine)
    opener.kill()
    assert pairs == read_all(engine)
    engine.close()


def test_a_commit_under_way_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    """Its number is in the meta page before it is in the region; until then nobody sees it."""
    path = tmp_path / "store"
    pairs = filled(path, 5)
    opener = half_open(path, offset, 4)
    monkeypatch.setattr(lmdb_mapped, "back_off", lambda attempt, **_: pytest.fail("it waits"))
    engine = LmdbEngine(path)
    assert pairs[b"last"] == b"4"
    assert read_all(engine)[b"last"] == b"3"
    engine.close()
    opener.kill()


@pytest.mark.parametrize("error", [lmdb.ReadersFullError, lmdb.MapResizedError])
def test_what_others_do_meanwhile_is_for_the_first_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[lmdb.Error]
) -> None:
    """It mends both; an opening that raised them would fail for what is no fault."""
    path = tmp_path / "store"
    pairs = filled(path, 2)
    real, raised = lmdb_mapped.attach, []

    class Busy:
        """An environment whose first transaction cannot begin."""

        def __init__(self, env: lmdb.Environment) -> None:
            self.env = env

        def __getattr__(self, name: str) -> Any:
            return getattr(self.env, name)

        def begin(self, **how: Any) -> Any:
            raised.append(how)
            raise error("for once")

    def attach(directory: Path, open_environment: Any) -> Any:
        def opened() -> Any:
            return Busy(open_environment())

        return real(directory, opened).env  # type: ignore[attr-defined]  # what stands in has it

    monkeypatch.setattr(lmdb_shared, "attach", attach)
    engine = LmdbEngine(path)
    assert pairs == read_all(engine)
    assert [{}] == raised
    engine.close()
