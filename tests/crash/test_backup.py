"""Backup, restore and repair beside other processes, killed at each of their steps, on a full disk.

Whatever happens, the store that is read stays as it was and usable, and at the target there is a
whole store or none.
"""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from deltastore import (
    CorruptionError,
    DeltaStoreSaver,
    EngineError,
    Store,
    StoreFullError,
    StorePathError,
    repair,
    restore,
    verify_path,
)
from deltastore.engine.lmdb_transaction import LmdbTransaction
from deltastore.engine.lmdb_unfinished import UnfinishedGeneration
from deltastore.testing import make_checkpoint, make_config
from tests.conformance.cli_stores import BEGIN_MS, RUN, contents_at, damage_record, put_line
from tests.crash.test_lmdb_engine import CHILDREN, Child, run_child, soft_limit

STEPS: dict[Any, list[str]] = {
    os: "open fsync mkdir rename replace close unlink rmdir write truncate pread".split(),
    fcntl: ["flock"],
    UnfinishedGeneration: ["append", "apply", "sync"],
    LmdbTransaction: ["_commit"],
}


@pytest.fixture(autouse=True)
def no_child_outlives_its_test() -> Iterator[None]:
    yield
    for pid in CHILDREN:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    CHILDREN.clear()


@pytest.fixture
def where(tmp_path: Path) -> Path:
    """A closed store of two threads."""
    path = tmp_path / "store"
    with DeltaStoreSaver(path) as saver:
        for number in (1, 2):
            put_line(saver, f"t{number}", BEGIN_MS, [f"{RUN}{number}"] * 8, more="x" * 300)
    return path


def do_backup(source: Path, target: Path) -> None:
    with Store.open(source) as store:
        store.backup(target)


Work = Callable[[Path, Path], Any]
WORKS = pytest.mark.parametrize("work", [do_backup, restore, repair], ids=lambda one: one.__name__)


@WORKS
def test_the_copy_holds_what_the_store_does(where: Path, tmp_path: Path, work: Work) -> None:
    """And opens to be written, with files that nobody else may read."""
    target = tmp_path / "parents" / "copy"
    work(where, target)
    assert contents_at(where) == contents_at(target)
    report = verify_path(target)
    assert ([], True) == (report.damage, report.is_walked)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (target, *target.rglob("*"))}
    assert {0o700 if path.is_dir() else 0o600 for path in modes} == set(modes.values())
    with DeltaStoreSaver(target) as saver:
        put_line(saver, "new", BEGIN_MS, [f"{RUN}3"])


def identity(path: Path) -> bytes | None:
    from deltastore import directory

    with Store.open(path) as store, store._session.view() as txn:
        return directory.store_identity(txn)


def test_a_backup_is_the_same_store_and_what_is_made_of_it_another(
    where: Path, tmp_path: Path
) -> None:
    """From the restoring on the two go different ways, under numbers of their own."""
    do_backup(where, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    repair(tmp_path / "backup", tmp_path / "repaired")
    names = [where, *(tmp_path / name for name in ("backup", "restored", "repaired"))]
    found = [identity(path) for path in names]
    assert found[0] == found[1] is not None
    assert 3 == len(set(found))


def test_a_backup_beside_a_writer_is_a_moment_of_it(where: Path, tmp_path: Path) -> None:
    """Each of its threads has a prefix of what was written, the one written first no shorter."""

    def write(pipe: Connection) -> None:
        with DeltaStoreSaver(where) as saver:
            parents: dict[str, str | None] = {"a": None, "b": None}
            count = 0
            while not pipe.poll():
                for thread, parent in parents.items():
                    one = f"{count:06}"
                    config: Any = make_config(thread, "", parent)
                    new: Any = {"x": count + 1}
                    saver.put(config, make_checkpoint(one, new, {"x": count}), {}, new)
                    parents[thread] = one
                count += 1
                pipe.send(count)

    child = Child(write)
    child.receive()
    with Store.open(where) as store:
        for number in range(5):
            child.receive()
            store.backup(tmp_path / f"copy{number}")
    child.pipe.send("end")
    for number in range(5):
        path = tmp_path / f"copy{number}"
        found = contents_at(path)
        first, second = (len(found.get(name, ())) for name in "ab")
        assert first - second in (0, 1)
        assert verify_path(path).is_sound


@WORKS
def test_killed_at_any_step_it_leaves_no_half_store(
    where: Path, tmp_path: Path, work: Work
) -> None:
    """And the next call goes through, whatever the killed one left beside."""
    before = contents_at(where)
    target = tmp_path / "copy"
    killed = whole = 0
    for step in range(1, 2_000, 7):

        def run(step: int = step) -> None:
            kill_at(step)
            work(where, target)

        status = run_child(run)
        if target.exists():
            assert before == contents_at(target)
            assert verify_path(target).is_sound
            shutil.rmtree(target)
            whole += status != 0
        if status == 0:
            break
        assert -signal.SIGKILL == status
        killed += 1
    assert 0 == status, "it was killed at every step that was tried"
    assert killed > 5
    assert verify_path(where).is_sound
    work(where, target)
    assert before == contents_at(target)
    assert {"store", "copy"} == {path.name for path in tmp_path.iterdir()}


def kill_at(step: int) -> None:
    """Have this process killed before the step of that number."""
    calls = 0

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **named)

        return called

    for owner, names in STEPS.items():
        for name in names:
            setattr(owner, name, wrap(getattr(owner, name)))


@WORKS
def test_without_room_nothing_is_left_and_the_store_goes_on(
    where: Path, tmp_path: Path, work: Work
) -> None:
    """A full disk is when people copy their data elsewhere."""
    before = contents_at(where)

    def run() -> None:
        size = (where / "000001" / "data.mdb").stat().st_size
        for most in (0, 4_096, size // 3):
            with soft_limit(resource.RLIMIT_FSIZE, most), pytest.raises(StoreFullError):
                work(where, tmp_path / "copy")
            assert ["store"] == [path.name for path in tmp_path.iterdir()]
        work(where, tmp_path / "copy")

    assert 0 == run_child(run)
    assert before == contents_at(tmp_path / "copy") == contents_at(where)


def test_a_full_disk_in_mid_vacuum_leaves_a_sound_store_in_use(where: Path, tmp_path: Path) -> None:
    """What was stored reads, what comes is stored, and a vacuum with room goes through."""
    before = contents_at(where)

    def run() -> None:
        with DeltaStoreSaver(where) as saver:
            size = saver.store.stat().file_bytes
            for most in (4_096, size // 3, size // 2):
                with soft_limit(resource.RLIMIT_FSIZE, most), pytest.raises(StoreFullError):
                    saver.vacuum()
                assert saver.store.verify().is_sound
                put_line(saver, f"new {most}", BEGIN_MS, [f"{RUN}3"])
            saver.vacuum()

    assert 0 == run_child(run)
    assert before.items() <= contents_at(where).items()
    assert verify_path(where).is_sound


def test_two_backups_to_one_place_do_not_mix(where: Path, tmp_path: Path) -> None:
    """The second is refused while the first runs, and finds the place taken afterwards."""
    with Store.open(where) as store:

        def progress(_done: int, _total: int) -> None:
            with pytest.raises(EngineError, match="another backup"):
                run_here(lambda: store.backup(tmp_path / "copy"))

        store.backup(tmp_path / "copy", progress=progress)
        with pytest.raises(StorePathError, match="not empty"):
            store.backup(tmp_path / "copy")


def run_here(work: Callable[[], Any]) -> Any:
    from deltastore.testing.engine_calls import in_thread

    return in_thread(work)


@pytest.mark.damaged
def test_a_damaged_backup_is_not_restored(where: Path, tmp_path: Path) -> None:
    """It would be found out when the original is long gone."""
    do_backup(where, tmp_path / "backup")
    damage_record(tmp_path / "backup", 3)
    with pytest.raises(CorruptionError, match="nothing was restored") as caught:
        restore(tmp_path / "backup", tmp_path / "restored")
    assert caught.value.record is not None
    assert not (tmp_path / "restored").exists()


@pytest.mark.damaged
def test_a_backup_whose_file_is_cut_off_is_not_mapped(where: Path, tmp_path: Path) -> None:
    """A page that is not there ends the process that maps it."""
    do_backup(where, tmp_path / "backup")
    data = tmp_path / "backup" / "000001" / "data.mdb"
    os.truncate(data, data.stat().st_size // 2)
    report = verify_path(tmp_path / "backup")
    assert {"structure"} == {one.level for one in report.damage}
    with pytest.raises(CorruptionError):
        restore(tmp_path / "backup", tmp_path / "restored")


def test_a_store_in_use_is_not_repaired(where: Path, tmp_path: Path) -> None:
    """Pages that are being written look damaged."""
    with Store.open(where) as store:
        store.threads()
        with pytest.raises(EngineError, match="in use"):
            repair(where, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
