"""Pruning, copying and deleting runs with whatever can go wrong at every place it can.

After each failure, kill or interruption the store is sound, every checkpoint that is listed reads
as it did, calling again completes, and the next opening leaves nothing behind: no watch, nothing
that waits to be reclaimed, no records under a number without a name.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from deltastore import DeltaStoreSaver, copying, reclaim, retention, session
from deltastore.engine.api import Engine
from deltastore.engine.lmdb import LmdbEngine
from deltastore.engine.memory import MemoryEngine
from deltastore.errors import EngineError, InvalidArgumentError
from deltastore.format import keys, layout
from deltastore.options import SnapshotBounds, StoreOptions
from deltastore.store import Store
from deltastore.testing import history_shape, shape, tuple_shape
from deltastore.testing.faults import FailingEngine
from deltastore.testing.retention_calls import Keeper, Thread, read_all

CALLS_MAX = 5_000
OPTIONS = StoreOptions(bounds=SnapshotBounds(updates=3))
Progress = Callable[[int, int], None]
Operation = Callable[[Store, Progress], object]
Seen = dict[tuple[str, str, str], Any]


def nothing(done: int, total: int) -> None:
    """Take no notice."""


OPERATIONS: dict[str, Operation] = {
    "prune": lambda store, progress: store.prune("t", progress=progress),
    "prune to two": lambda store, progress: store.prune("t", keep_last=2, progress=progress),
    "delete": lambda store, progress: store.prune("t", "delete", progress=progress),
    "delete runs": lambda store, progress: store.delete_for_runs(["b"], progress=progress),
    "delete all runs": lambda store, progress: store.delete_for_runs(["a", "b"], progress=progress),
    "copy": lambda store, progress: store.copy_thread("t", "copy", progress=progress),
    "copy heads": lambda store, progress: store.copy_thread(
        "t", "copy", heads_only=True, progress=progress
    ),
}
each_operation = pytest.mark.parametrize("name", OPERATIONS)


@pytest.fixture(autouse=True)
def small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of a few checkpoints must take several of each kind."""
    monkeypatch.setattr(retention, "RECORDS_MAX", 13)
    monkeypatch.setattr(reclaim, "RECORDS_MAX", 9)
    monkeypatch.setattr(copying, "RECORDS_MAX", 9)


def keeper_on(engine: Engine) -> Keeper:
    saver = DeltaStoreSaver.on_store(Store(engine, OPTIONS))
    return Keeper(lambda: saver)


def filled() -> MemoryEngine:
    """Return an engine with a line of two runs, a fork, a subgraph, an old anchor; a neighbour."""
    engine = MemoryEngine()
    keeper = keeper_on(engine)
    thread = Thread(keeper)
    text = ["set once " * 40]
    thread.superstep(1, doc=text, run="a")
    thread.superstep(2, 1, log=["two"], run="a")
    thread.superstep(3, 2, log=["three"], run="b")
    keeper.delete_for_runs(["a"])  # 2 is an anchor, and the value of 1 remains
    thread.superstep(4, 3, log=["four"], doc=[*text, "four " * 60], run="b")
    thread.superstep(5, 4, log=["five"], snapshot=["all of it"], run="a")
    thread.superstep(6, 4, log=["six"], doc=[*text, "four " * 60, "six " * 70], run="b")
    thread.superstep(7, 6, log=["seven"], run="a")
    thread.task(7, ["pending"], "task", run="b")
    Thread(keeper, "t", "sub").steps([1.5, 4.5, 6.5], run="b")
    Thread(keeper, "other").steps([1, 2, 3], run="b")
    return engine


def pairs(engine: Engine) -> dict[bytes, bytes]:
    with engine.begin(write=False) as txn:
        return dict(txn.scan(b"\x00", b"\xff"))


def copied(stored: Mapping[bytes, bytes], where: Path | None = None) -> Engine:
    """Return an engine that holds the same; on disk if a place is given."""
    twin: Engine = MemoryEngine() if where is None else LmdbEngine(where, durability="normal")
    with twin.begin(write=True) as txn:
        for key, value in stored.items():
            txn.put(key, value)
    return twin


def seen(engine: Engine) -> Seen:
    """Return what is told of every checkpoint, through a store that has cached nothing."""
    keeper = keeper_on(engine)
    found: Seen = {}
    for one in keeper.list(None):
        place = one.config["configurable"]
        key = place["thread_id"], place["checkpoint_ns"], place["checkpoint_id"]
        channels = sorted({"log"} - one.checkpoint["channel_values"].keys())
        found[key] = tuple_shape(one), history_shape(keeper.history(one.config, channels))
    return found


def leftovers(engine: Engine) -> list[str]:
    """Return what maintenance leaves while it is under way."""
    found = []
    with engine.begin(write=False) as txn:
        for tag in (layout.TAG_WATCH, layout.TAG_RECLAIM):
            found += [key.hex() for key in txn.scan_keys(bytes([tag]), bytes([tag + 1]))]
        names = txn.scan_keys(bytes([layout.TAG_NAMES]), bytes([layout.TAG_NAMES + 1]))
        named = {keys.number_at(key, 1) for key in names if len(key) == 5}
        log = txn.scan_keys(bytes([layout.TAG_LOG]), bytes([layout.TAG_LOG + 1]))
        found += [key.hex() for key in log if keys.number_at(key, 1) not in named]
    return found


def open_later(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open the store twice after a while: what is ended by the first may be reclaimed later."""
    now = session.this_minute()
    with monkeypatch.context() as patch:
        patch.setattr(session, "this_minute", lambda: now + 100)
        for _ in range(2):
            Store(engine).setup()


def check_left(engine: Engine, before: Seen, after: Seen) -> None:
    """What is listed reads as before or as after; what stays is listed."""
    assert [] == Store(engine).verify().damage
    left = seen(engine)
    for key, found in left.items():
        assert found in (before.get(key), after.get(key)), key
    assert before.keys() & after.keys() <= left.keys() <= before.keys() | after.keys()


def check_repeated(engine: Engine, operation: Operation, after: Seen) -> None:
    """Calling again completes; a copy that is there already says so."""
    with suppress(InvalidArgumentError):
        operation(Store(engine, OPTIONS), nothing)
    assert after == seen(engine)
    assert [] == Store(engine).verify().damage


class Case:
    """An operation, what it begins with, and what is seen before and after it."""

    def __init__(self, name: str) -> None:
        self.operation = OPERATIONS[name]
        engine = filled()
        self.stored = pairs(engine)
        self.before = seen(engine)
        self.calls: list[int] = []
        self.operation(Store(engine, OPTIONS), lambda done, _: self.calls.append(done))
        self.after = seen(engine)
        assert [] == leftovers(engine)
        assert self.before != self.after

    def check(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        """Check what was left, open the store again, go on."""
        check_left(engine, self.before, self.after)
        open_later(engine, monkeypatch)
        assert [] == leftovers(engine)
        check_repeated(engine, self.operation, self.after)
        assert [] == leftovers(engine)

    def fail(self, engine: Engine, fail_at: int, monkeypatch: pytest.MonkeyPatch) -> bool:
        """Run it with one call of the engine failing; return whether one did."""
        failing = FailingEngine(engine, fail_at)
        has_failed = failing.fails(lambda: self.operation(Store(failing, OPTIONS), nothing))
        assert has_failed or self.after == seen(engine)
        self.check(engine, monkeypatch)
        return has_failed


@pytest.mark.parametrize("kind", ["memory", "lmdb"])
@each_operation
def test_maintenance_survives_a_failure_at_every_call_of_the_engine(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller is told, and whatever was half done is either hidden or harmless."""
    case = Case(name)
    for fail_at in range(1, CALLS_MAX):
        where = tmp_path / str(fail_at) if kind == "lmdb" else None
        engine = copied(case.stored, where)
        has_failed = case.fail(engine, fail_at, monkeypatch)
        engine.close()
        if where is not None:
            shutil.rmtree(where)
        if not has_failed:
            assert fail_at > 50
            return
    raise AssertionError


@each_operation
def test_an_interruption_by_progress_ends_the_call_without_harm(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control-C comes there most often; progress is told at least once."""
    case = Case(name)
    assert case.calls
    for stop_at in range(1, len(case.calls) + 1):
        engine = copied(case.stored)
        told = count(1)

        def progress(done: int, total: int, stop_at: int = stop_at, told: Any = told) -> None:
            assert 0 <= done <= total
            if next(told) == stop_at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            case.operation(Store(engine, OPTIONS), progress)
        case.check(engine, monkeypatch)


# --- killed ---------------------------------------------------------------------------------


class KillingEngine(FailingEngine):
    """Kills its process at the `fail_at`-th call."""

    def count(self, what: str) -> None:
        """Count one call."""
        self.calls += 1
        if self.calls == self._fail_at:
            os.kill(os.getpid(), signal.SIGKILL)


def killed(work: Callable[[], object]) -> int:
    """Run `work` in a forked child; return the signal that ended it, negative, or its status."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, Python 3.12
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(20)
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@each_operation
def test_a_killed_process_leaves_a_store_that_goes_on(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody ends its watch, and no `finally` of it runs."""
    case = Case(name)
    counted = FailingEngine(copied(case.stored), 0)
    case.operation(Store(counted, OPTIONS), nothing)
    source = random.Random(12)
    for number, kill_at in enumerate(sorted(source.sample(range(20, counted.calls), 8))):
        where = tmp_path / str(number)
        copied(case.stored, where).close()

        def work(where: Path = where, kill_at: int = kill_at) -> None:
            engine = KillingEngine(LmdbEngine(where, durability="normal"), kill_at)
            case.operation(Store(engine, OPTIONS), nothing)

        assert -signal.SIGKILL == killed(work), kill_at
        engine = LmdbEngine(where, durability="normal")
        case.check(engine, monkeypatch)
        engine.close()


# --- at once ----------------------------------------------------------------------------------


def at_once(*works: Callable[[], object]) -> list[BaseException]:
    """Run each in a thread of its own; return what they raised."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        start.wait(20)
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return errors


@pytest.mark.parametrize("how", ["prune", "prune to two", "delete runs"])
def test_two_stores_that_do_the_same_at_once_end_with_one_right_result(
    how: str, tmp_path: Path
) -> None:
    """They watch the same thread, and each makes the other start again."""
    case = Case(how)
    for number in range(4):
        where = tmp_path / str(number)
        copied(case.stored, where).close()
        with Store.open(where, OPTIONS) as one, Store.open(where, OPTIONS) as other:
            errors = at_once(*(lambda s=s: case.operation(s, nothing) for s in (one, other)))
            assert [] == errors
            assert case.after == seen(one._session.engine)
            assert [] == leftovers(one._session.engine)
            assert [] == other.verify().damage


def test_two_stores_that_copy_to_one_target_at_once_make_one_copy(tmp_path: Path) -> None:
    """The other finds it there, or gives up; nothing of its own copy stays."""
    case = Case("copy")
    for number in range(4):
        where = tmp_path / str(number)
        copied(case.stored, where).close()
        with Store.open(where, OPTIONS) as one, Store.open(where, OPTIONS) as other:
            errors = at_once(*(lambda s=s: s.copy_thread("t", "copy") for s in (one, other)))
            assert 1 == len(errors)
            assert isinstance(errors[0], (InvalidArgumentError, EngineError))
            assert case.after == seen(one._session.engine)
            assert [] == leftovers(one._session.engine)


def test_a_thread_grows_while_it_is_pruned_and_copied(tmp_path: Path) -> None:
    """A run goes on in one store while another maintains: its steps are all there at the end."""
    with Store.open(tmp_path / "store", OPTIONS) as one, Store.open(tmp_path / "store") as other:
        saver = DeltaStoreSaver.on_store(one)
        keeper = Keeper(lambda: saver)
        thread, twin = Thread(keeper), Thread(keeper, "twin")
        for each in (thread, twin):
            each.steps([1, 2, 3])

        def live() -> None:
            for minute in range(4, 40):
                thread.superstep(minute, minute - 1, log=[minute])

        def maintain() -> None:
            for number in range(8):
                other.prune("t")
                other.copy_thread("t", f"copy {number}")

        assert [] == at_once(live, maintain)
        twin.steps(range(4, 40), 3)
        other.prune("t")
        other.prune("twin")
        assert read_all(keeper, "twin") == read_all(keeper, "t")
        assert shape([*range(2, 40)]) == shape(thread.log())
        for number in range(8):
            copy = Thread(keeper, f"copy {number}")
            assert [*range(2, len(copy.log()) + 2)] == copy.log()
        assert [] == leftovers(one._session.engine)
