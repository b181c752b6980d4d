"""Copies: hidden until whole, apart from their source, and nothing left of those given up."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from deltastore import (
    DeltaStoreSaver,
    SnapshotBounds,
    copying,
    directory,
    reclaim,
    retire,
    session,
    watch,
)
from deltastore.engine.lmdb import LmdbEngine
from deltastore.engine.memory import MemoryEngine
from deltastore.errors import DeletedParentError, EngineError, InvalidArgumentError
from deltastore.format import keys, layout
from deltastore.format.writes import Row
from deltastore.options import StoreOptions
from deltastore.pending import NewWrites
from deltastore.refill import NewCheckpoint
from deltastore.store import Store
from deltastore.testing.retention_calls import Keeper, Thread, minute_id, read_all
from deltastore.testing.strategies import checkpoint_id
from deltastore.types import Typed

LARGE = ["text of some length " * 200]
each_form = pytest.mark.parametrize("heads_only", [False, True])


class Open:
    """A store, its thread `t`, and what lies in its keyspaces."""

    def __init__(self, engine: MemoryEngine | None = None) -> None:
        self.engine = engine or MemoryEngine()
        options = StoreOptions(bounds=SnapshotBounds(updates=3))
        self.store = Store(self.engine, options)
        self.saver = DeltaStoreSaver.on_store(self.store)
        self.keeper = Keeper(lambda: self.saver)
        self.thread = Thread(self.keeper)

    def fill(self) -> None:
        """Live with values that are inherited, a fork, a subgraph, late and early writes."""
        self.thread.superstep(1, doc=LARGE, run="a")
        self.thread.steps([2, 3, 4], 1, run="a")
        self.thread.superstep(5, 3, log=["five"], doc=[*LARGE, "five"], run="b")
        self.thread.task(2, ["late"], "late")
        self.thread.task(99, ["early"], "early")
        Thread(self.keeper, "t", "sub").steps([1, 2])

    def keys(self, tag: int) -> list[bytes]:
        with self.engine.begin(write=False) as txn:
            return txn.scan_keys(bytes([tag]), bytes([tag + 1]))

    def numbers(self) -> set[int]:
        """Return the thread numbers that records of the log have."""
        return {keys.number_at(key, 1) for key in self.keys(layout.TAG_LOG)}

    def names(self) -> list[str]:
        return [one.thread_id for one in self.store.threads().threads]

    def clean(self) -> bool:
        """Return whether nothing of maintenance is left."""
        return self.keys(layout.TAG_WATCH) == [] == self.keys(layout.TAG_RECLAIM)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Return a filled store that copies ten records at a time."""
    monkeypatch.setattr(copying, "RECORDS_MAX", 10)
    opened = Open()
    opened.fill()
    return opened


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, opened: Open, work: Callable[[], object]
) -> Callable[[int, int], None]:
    """Return a progress that does some work once, in the middle of a copy."""
    calls: list[int] = []

    def progress(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) == 3:
            work()

    return progress


# --- whole or not at all ---------------------------------------------------------------------


def test_a_copy_that_is_being_made_is_no_thread(opened: Open) -> None:
    """Neither listed nor read nor damage: its records have a number, and that no name."""
    seen = []

    def look(done: int, total: int) -> None:
        other = Open(opened.engine)
        if not seen:
            assert opened.numbers() <= {1, 2}
        seen.append(opened.numbers())
        if done < total:
            assert ["t"] == other.names()
            assert {} == read_all(other.keeper, "copy")
        assert [] == other.store.verify().damage

    report = opened.store.copy_thread("t", "copy", progress=look)
    assert {1, 2} in seen
    assert (["copy", "t"], True) == (sorted(opened.names()), opened.clean())
    assert read_all(opened.keeper, "t") == read_all(opened.keeper, "copy")
    assert (2, 7) == (report.namespaces, report.checkpoints)
    assert (report.records, report.bytes) == opened.store.thread_bytes("copy")


@each_form
def test_what_is_copied_is_byte_for_byte_of_its_own_keys(opened: Open, heads_only: bool) -> None:
    """A record moved under another key by hand is damage; the copy's are sealed anew."""
    opened.store.copy_thread("t", "copy", heads_only=heads_only)
    opened.keeper.delete_thread("t")
    assert {2} == opened.numbers()
    cold = Open(opened.engine)
    assert [] == cold.store.verify().damage
    assert (["five"], [*LARGE, "five"]) == (
        Thread(cold.keeper, "copy").log()[-1:],
        Thread(cold.keeper, "copy").values()["doc"],
    )


@each_form
def test_a_target_that_holds_anything_is_refused_before_anything_is_done(
    opened: Open, heads_only: bool
) -> None:
    """Early writes are something; a deleted thread's name is free."""
    Thread(opened.keeper, "early").task(1, ["w"], "task")
    Thread(opened.keeper, "full").superstep(1)
    before = opened.engine.stat().entries
    for target in ("t", "early", "full"):
        with pytest.raises(InvalidArgumentError):
            opened.store.copy_thread("t", target, heads_only=heads_only)
    assert before == opened.engine.stat().entries
    opened.keeper.delete_thread("full")
    opened.store.copy_thread("t", "full", heads_only=heads_only)
    assert minute_id(5) == Thread(opened.keeper, "full").read().checkpoint["id"]


@each_form
def test_a_target_filled_meanwhile_is_not_overwritten(
    opened: Open, monkeypatch: pytest.MonkeyPatch, heads_only: bool
) -> None:
    """It is looked at again in the transaction that gives the copy its name."""
    calls: list[int] = []

    def fill(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) == 1:
            Thread(opened.keeper, "copy").superstep(1)

    with pytest.raises(InvalidArgumentError, match="exists"):
        opened.store.copy_thread("t", "copy", heads_only=heads_only, progress=fill)
    assert [1.0] == Thread(opened.keeper, "copy").minutes()
    assert (True, {1, 3}) == (opened.clean(), opened.numbers())


def test_what_the_targets_name_knew_of_deletions_is_kept(opened: Open) -> None:
    """A late put of the old thread's run must not become a root of the copy."""
    old = Thread(opened.keeper, "copy")
    old.put("only in the old one")
    opened.keeper.delete_thread("copy")
    opened.store.copy_thread("t", "copy")
    with pytest.raises(DeletedParentError):
        old.put("next", "only in the old one")


def test_a_copy_of_a_pruned_thread_knows_what_was_pruned(opened: Open) -> None:
    """It has the same anchors and remains, and refuses the same puts."""
    opened.keeper.prune(["t"])
    opened.store.copy_thread("t", "copy")
    copy = Thread(opened.keeper, "copy")
    assert read_all(opened.keeper, "t") == read_all(opened.keeper, "copy")
    copy.anchor(3)
    with pytest.raises(DeletedParentError):
        copy.put(minute_id(10), minute_id(2))


# --- while others go on ----------------------------------------------------------------------


@pytest.mark.parametrize("what", ["child", "fork", "late", "early", "again", "namespace", "many"])
def test_what_is_stored_meanwhile_is_in_the_copy(
    opened: Open, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The copy is the source at the moment it gets its name."""
    monkeypatch.setattr(copying, "_LATE_RECORDS_MAX", 6)
    thread = opened.thread

    def work() -> None:
        if what == "child":
            thread.superstep(6, 5, log=["six"], run="c")
        elif what == "fork":
            thread.superstep(6, 2, log=["six"], doc=["other"], run="c")
        elif what == "late":
            thread.task(1, ["later"], "later", run="c")
        elif what == "early":
            thread.superstep(99, 5, log=["ninety-nine"], run="c")
        elif what == "again":
            thread.put(minute_id(1), new={"doc": 1}, values={"doc": [*LARGE, "again"]})
        elif what == "namespace":
            Thread(opened.keeper, "t", "fresh").steps([1, 2], run="c")
        else:
            thread.steps([*range(10, 20)], 5, run="c")

    opened.store.copy_thread("t", "copy", progress=meanwhile(monkeypatch, opened, work))
    assert read_all(opened.keeper, "t") == read_all(opened.keeper, "copy")
    assert [] == opened.store.verify().damage
    assert opened.clean()
    late = [(keys.number_at(key, 1), key[5:]) for key in opened.keys(layout.TAG_LATE)]
    assert [key for number, key in late if number == 1] == [
        key for number, key in late if number == 2
    ]
    for each in ("t", "copy"):
        one = Thread(opened.keeper, each)
        one.task(2, ["after"], "after")
        one.put("zz", minute_id(5))
        one.put("zzz", "zz")
    assert read_all(opened.keeper, "t") == read_all(opened.keeper, "copy")
    opened.keeper.delete_for_runs(["c"])
    assert read_all(opened.keeper, "t") == read_all(opened.keeper, "copy")


def test_a_source_deleted_meanwhile_is_not_copied(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of it was there: nothing is better."""
    other = Open(opened.engine)
    work = meanwhile(monkeypatch, opened, lambda: other.keeper.delete_thread("t"))
    report = opened.store.copy_thread("t", "copy", progress=work)
    assert (0, 0, set()) == (report.checkpoints, report.records, opened.numbers())
    assert (True, []) == (opened.clean(), opened.names())


def test_a_source_made_anew_meanwhile_is_copied_as_it_is_now(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under its new number; the old one may still wait to be reclaimed."""

    def anew() -> None:
        other = Open(opened.engine)
        other.store.setup()
        with opened.engine.begin(write=True) as txn:
            retire.retire_thread(txn, "t", other.store._session.reader)
        Thread(other.keeper).superstep(50, log=["anew"])

    opened.store.copy_thread("t", "copy", progress=meanwhile(monkeypatch, opened, anew))
    assert [50.0] == opened.thread.minutes() == Thread(opened.keeper, "copy").minutes()


def test_a_copy_whose_watch_was_taken_begins_again(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the other did to the source is not known; after so many times it is given up."""
    calls: list[int] = []

    def take(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) in (2, 5):
            with opened.engine.begin(write=True) as txn:
                watch.begin(txn, 1, 0)

    opened.store.copy_thread("t", "copy", progress=take)
    assert read_all(opened.keeper, "t") == read_all(opened.keeper, "copy")
    assert {1, 4} == opened.numbers()

    def always(done: int, total: int) -> None:
        with opened.engine.begin(write=True) as txn:
            watch.begin(txn, 1, 0)

    monkeypatch.setattr(session, "_BACK_OFF_SECONDS_MAX", 0.0)
    with pytest.raises(EngineError, match="32 times"):
        opened.store.copy_thread("t", "again", progress=always)
    assert {1, 4} == opened.numbers()
    assert [] == opened.keys(layout.TAG_RECLAIM)


@each_form
def test_a_copy_that_is_given_up_leaves_nothing(opened: Open, heads_only: bool) -> None:
    """Whoever interrupts it need not know; the number is lost, and there are enough."""

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            opened.store.copy_thread("t", "copy", heads_only=heads_only, progress=interrupt)
        assert ({1}, True, ["t"]) == (opened.numbers(), opened.clean(), opened.names())
    with opened.engine.begin(write=False) as txn:
        assert 3 == directory.threads_given(txn)


def test_copied_heads_keep_the_marks_of_late_writes(opened: Open) -> None:
    """The hints below do not know these writes, in the copy as little as in the source."""
    root, sub = Thread(opened.keeper, "s"), Thread(opened.keeper, "s", "sub")
    root.steps([2, 4])
    for n in (1, 3, 5):
        sub.put(minute_id(n), minute_id(n - 2) if n > 1 else None, new={"x": n})
    sub.write(minute_id(1), [("x", "late")], "late")
    opened.store.copy_thread("s", "copy", heads_only=True)
    copy = Thread(opened.keeper, "copy", "sub")
    assert [5.0, 3.0, 1.0] == copy.minutes()
    for one in (sub, copy):
        one.put(minute_id(7), minute_id(5), new={"x": 7})
        assert ["late"] == [write[2] for write in one.history(minute_id(7), "x")["writes"]]


# --- cost ------------------------------------------------------------------------------------


def long_thread(where: Path, count: int) -> None:
    """Store a line, each checkpoint with a value and the writes of one task."""
    memory = MemoryEngine()
    store = Store(memory)
    for n in range(count):
        text = b"%d text that is no small value " % n * 40
        place = {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": checkpoint_id(n)}
        put = NewCheckpoint(
            **place,
            parent_id=checkpoint_id(n - 1) if n else None,
            fields={"v": 4},
            versions={"x": n},
            seen={},
            metadata={},
            new={"x": Typed("bytes", text)},
            spare=lambda channel: None,
        )
        rows = [Row(0, "x", "bytes", None, text)]
        store.put(put, None)
        store.put(NewWrites(**place, task_id="t", task_path="", run_id="", rows=rows), None)
    engine = LmdbEngine(where, durability="normal")
    with memory.begin(write=False) as old, engine.begin(write=True) as new:
        for key, record in old.scan(b"\x00", b"\xff"):
            new.put(key, record)
    engine.close()


def test_memory_of_a_copy_does_not_grow_with_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On disk, since the memory engine holds what it is given; after what is loaded once."""
    monkeypatch.setattr(copying, "RECORDS_MAX", 80)
    peaks = {}
    for count in (80, 80, 800):
        where = tmp_path / str(len([*tmp_path.iterdir()]))
        long_thread(where, count)
        with Store.open(where, StoreOptions(durability="normal")) as store:
            store.setup()
            tracemalloc.start()
            report = store.copy_thread("t", "copy")
            peaks[count] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert count == report.checkpoints
    assert peaks[800] < 2 * peaks[80], peaks


def test_a_full_list_of_what_waits_does_not_stop_a_copy(opened: Open) -> None:
    """It reclaims first: what is out of sight in the source must not come into the copy."""

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opened.store.prune("t", progress=stop)
    with opened.engine.begin(write=False) as txn:
        assert reclaim.is_waiting(txn)
    opened.store.copy_thread("t", "copy")
    assert [] == opened.store.verify().damage
    assert opened.store.thread_bytes("t") == opened.store.thread_bytes("copy")
