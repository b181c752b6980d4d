"""Reclaiming: in small transactions, whatever interrupts it, and nothing but what went."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deltastore import DeltaStoreSaver, directory, reclaim, retire
from deltastore.engine.counting import CountingEngine
from deltastore.engine.memory import MemoryEngine, MemoryTransaction
from deltastore.errors import PrunedCheckpointError
from deltastore.format import keys, layout
from deltastore.format.entries import Dropped
from deltastore.ids import cid_from_id
from deltastore.options import StoreOptions
from deltastore.refill import NewCheckpoint
from deltastore.store import Store
from deltastore.testing import Caller, Lane
from deltastore.testing.strategies import checkpoint_id as cid
from deltastore.types import Typed

LARGE = [f"message {n}: " + "text of some length " * 10 for n in range(20)]
AROUND = 10  # what a transaction touches beside records: lists, marks, entries


class SizedEngine(CountingEngine):
    """Remembers how many records each write transaction put and deleted."""

    def __init__(self) -> None:
        super().__init__(MemoryEngine())
        self.sizes: list[int] = []
        self._before = self.counts()

    def begin(self, *, write: bool, scope: bytes = b"") -> Any:
        self._close_last()
        return super().begin(write=write, scope=scope)

    def _close_last(self) -> None:
        spent = self.counts() - self._before
        self.sizes.append(spent.puts + spent.deletes)
        self._before = self.counts()

    def largest(self, work: Callable[[], object]) -> int:
        """Return the size of the largest transaction that some work takes."""
        self._close_last()
        self.sizes.clear()
        work()
        self._close_last()
        return max(self.sizes)


class StopError(BaseException):
    """What progress raises to interrupt a call."""


def stop(done: int, total: int) -> None:
    raise StopError


class Open(Lane):
    """A lane on a store of its own, or on another's engine."""

    def __init__(self, engine: Any = None) -> None:
        self.engine = engine or MemoryEngine()
        self.store = Store(self.engine, StoreOptions())
        self.saver = DeltaStoreSaver.on_store(self.store)
        super().__init__(Caller(lambda: self.saver))

    def prune_and_stop(self, **how: Any) -> None:
        """Prune, and die before anything is reclaimed."""
        with pytest.raises(StopError):
            self.store.prune("t", progress=stop, **how)

    def kinds(self, name: str) -> list[int]:
        at = keys.log_prefix(1, 1) + cid_from_id(name)
        with self.engine.begin(write=False) as txn:
            return [keys.split(key).kind for key in txn.scan_keys(at, keys.after(at))]

    def keys(self, tag: int) -> list[bytes]:
        with self.engine.begin(write=False) as txn:
            found: list[bytes] = txn.scan_keys(bytes([tag]), bytes([tag + 1]))
        return found


@pytest.fixture
def lane() -> Open:
    return Open()


def long_thread(lane: Open, count: int) -> None:
    """Put a line of checkpoints without the saver: thousands in a second."""
    for n in range(count):
        text = b"%d text that is no small value " % n * 10
        new = {"x": Typed("bytes", text), "y": Typed("bytes", text[::-1])}
        versions: Any = dict.fromkeys(new, n + 1)
        put = NewCheckpoint(
            thread_id="t",
            checkpoint_ns="",
            checkpoint_id=cid(n),
            parent_id=cid(n - 1) if n else None,
            fields={"v": 4, "ts": "2026-01-01T00:00:00+00:00"},
            versions=versions,
            seen={},
            metadata={"run_id": f"run {n % 3}"},
            new=new,
            spare=lambda channel: None,
        )
        lane.store.put(put, None)


@pytest.fixture(scope="module")
def thousands() -> SizedEngine:
    """A thread of 1,500 checkpoints with two values each, to be maintained once each way."""
    engine = SizedEngine()
    long_thread(Open(engine), 1_500)
    return engine


def test_no_transaction_of_a_long_threads_maintenance_is_large(thousands: SizedEngine) -> None:
    """Writers beside it wait for as long as one of them takes."""
    lane = Open(thousands)
    lane.store.setup()
    works: dict[str, Callable[[], object]] = {
        "copy": lambda: lane.store.copy_thread("t", "u"),
        "heads": lambda: lane.store.copy_thread("t", "heads", heads_only=True),
        "prune": lambda: lane.store.prune("t", keep_last=500),
        "prune all": lambda: lane.store.prune("t"),
        "delete": lambda: lane.store.delete_thread("u"),
    }
    largest = {name: thousands.largest(work) for name, work in works.items()}
    assert all(size <= reclaim.RECORDS_MAX + AROUND for size in largest.values()), largest
    assert largest["prune"] > 300
    assert ([cid(1_499)], []) == (lane.ids(), lane.store.verify().damage)


def test_what_an_interrupted_prune_left_is_reclaimed_at_the_next_opening(lane: Open) -> None:
    """Out of sight it is since the first commit; its space follows."""
    for n in range(4):
        lane.put(cid(n), cid(n - 1) if n else None, new={"x": n}, values={"x": [*LARGE, n]})
        lane.write(cid(n), [("log", [n])])
    lane.prune_and_stop()
    assert [cid(3)] == lane.ids()
    assert layout.KIND_VALUE in lane.kinds(cid(0))
    history = lane.history(cid(3), "log")
    again = Open(lane.engine)
    again.store.setup()
    assert ([], []) == (lane.kinds(cid(0)), lane.keys(layout.TAG_RECLAIM))
    assert history == again.history(cid(3), "log")
    assert {"x": [*LARGE, 3]} == again.values()


@pytest.mark.parametrize("most", [3, 4, 7, 1_000])
def test_reclaiming_goes_on_where_a_transaction_ended(
    lane: Open, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """What is left of a list is written back; nothing is met twice, nothing left out."""
    monkeypatch.setattr(reclaim, "RECORDS_MAX", most)
    for n in range(9):
        lane.put(cid(n), cid(n - 1) if n else None, new={"x": n}, values={"x": [*LARGE, n]})
        lane.write(cid(n), [("log", [n])], "a")
        lane.write(cid(n), [("log", [n])], "b")
    calls: list[tuple[int, int]] = []
    lane.store.prune("t", progress=lambda *call: calls.append(call))
    assert [] == lane.keys(layout.TAG_RECLAIM)
    assert [] == [kind for n in range(7) for kind in lane.kinds(cid(n))]
    assert [layout.KIND_HEADER, layout.KIND_VALUE, *[layout.KIND_WRITES] * 2] == lane.kinds(cid(8))
    assert calls[-1][0] <= calls[-1][1]


def test_a_list_under_the_same_key_is_joined(lane: Open) -> None:
    """Two prunes may list the same checkpoint first: neither may forget the other's."""
    lane.put(cid(0))
    with lane.engine.begin(write=True) as txn:
        for name in ("a", "b"):
            first = Dropped(cid_from_id("first"), 0, False, ())
            reclaim.list_dropped(txn, 1, 1, [first, Dropped(cid_from_id(name), 0, False, ())])
            txn.put(keys.writes_key(keys.log_prefix(1, 1), cid_from_id(name), 1), b"")
        assert reclaim.is_waiting(txn)
        while reclaim.reclaim_some(txn):
            pass
        assert not reclaim.is_waiting(txn)
    assert ([], []) == (lane.kinds("a"), lane.kinds("b"))


def test_a_checkpoint_put_again_meanwhile_is_left_alone(lane: Open) -> None:
    """Its id was free, as nothing of it was needed; what is there now is not what went."""
    lane.put(cid(0))
    lane.put(cid(1), new={"x": 1}, values={"x": "small"})
    lane.put(cid(2))
    lane.prune_and_stop()
    lane.put(cid(1), new={"x": 2}, values={"x": LARGE})
    lane.write(cid(1), [("log", [1])])
    Open(lane.engine).store.setup()
    assert ({"x": LARGE}, [("task", "log", [1])]) == (lane.values(cid(1)), lane.pending(cid(1)))


def test_an_emptied_namespace_is_forgotten_and_may_come_again(lane: Open) -> None:
    """Namespaces of single calls come and go; a number is never given twice."""
    lane.put(cid(0))
    calls = Lane(lane.caller, "t", "sub:1")
    calls.put(cid(1), metadata={"parents": {"": cid(0)}})
    calls.write(cid(1), [("x", 1)])
    lane.put(cid(2), cid(0))
    lane.saver.prune(["t"])
    with lane.engine.begin(write=False) as txn:
        assert [""] == [stream.checkpoint_ns for stream in directory.streams(txn, "t")]
        assert None is directory.find_stream(txn, "t", "sub:1")
        assert [] == txn.scan_keys(keys.log_prefix(1, 2), keys.after(keys.log_prefix(1, 2)))
    calls.put(cid(3))
    with lane.engine.begin(write=False) as txn:
        stream = directory.find_stream(txn, "t", "sub:1")
    assert stream is not None
    assert (3, [cid(3)]) == (stream.namespace, calls.ids())


def test_a_namespace_that_is_used_again_meanwhile_stays(lane: Open) -> None:
    """It is empty only if nothing at all is stored under its number."""
    lane.put(cid(0))
    calls = Lane(lane.caller, "t", "sub:1")
    calls.put(cid(1), metadata={"parents": {"": cid(0)}})
    lane.put(cid(2), cid(0))
    lane.prune_and_stop()
    calls.write(cid(9), [("x", "early")])
    Open(lane.engine).store.setup()
    calls.put(cid(9))
    assert [("task", "x", "early")] == calls.pending(cid(9))


def test_lists_of_a_thread_that_is_deleted_go_with_it(lane: Open) -> None:
    """Its number means nothing any more, whichever of the two waited first."""
    lane.put(cid(0), new={"x": 1}, values={"x": LARGE})
    lane.put(cid(1))
    lane.prune_and_stop()
    with lane.engine.begin(write=True) as txn:
        assert retire.retire_thread(txn, "t", lane.store._session.reader)
    lane.store._session.reclaim()
    assert ([], []) == (lane.keys(layout.TAG_RECLAIM), lane.keys(layout.TAG_LOG))


def test_marks_of_late_writes_go_with_their_checkpoint(lane: Open) -> None:
    """They would slow every walk of the stream for ever; those of anchors stay."""
    for n in range(5):
        lane.put(cid(n), cid(n - 1) if n else None, new={"x": n})
    for n in (1, 3):
        lane.write(cid(n), [("x", "late")], "late")
    marked = {key[13:] for key in lane.keys(layout.TAG_LATE)}
    assert {cid_from_id(cid(1)), cid_from_id(cid(3))} == marked
    lane.saver.prune(["t"])
    assert [cid_from_id(cid(3))] == [key[13:] for key in lane.keys(layout.TAG_LATE)]


class HiddenEngine(MemoryEngine):
    """Fails a test that writes although nothing is to be done."""

    is_sealed = False

    def begin(self, *, write: bool, scope: bytes = b"") -> MemoryTransaction:
        assert not (write and self.is_sealed)
        return super().begin(write=write, scope=scope)


def test_an_opening_writes_nothing_where_nothing_waits() -> None:
    """Most openings: a commit would cost a flush of the disk."""
    engine = HiddenEngine()
    lane = Open(engine)
    lane.put(cid(0))
    lane.put(cid(1), cid(0))
    lane.saver.prune(["t"])
    engine.is_sealed = True
    assert [cid(1)] == Open(engine).ids()


# --- ids of what went ------------------------------------------------------------------------


def test_ids_of_remains_and_anchors_are_not_given_again(lane: Open) -> None:
    """A checkpoint there would replace what others refer to."""
    lane.put(cid(0), new={"x": 1}, values={"x": LARGE})
    for n in (1, 2, 3, 4):
        lane.put(cid(n), cid(n - 1), carried={"x": 1})
    lane.write(cid(1), [("log", ["only writes"])])
    lane.saver.prune(["t"])
    for n in (0, 3):
        with pytest.raises(PrunedCheckpointError):
            lane.put(cid(n), new={"x": 9}, values={"x": LARGE[:3]})
    lane.put(cid(1), new={"x": 9}, values={"x": LARGE[:3]})  # nothing is left of it
    assert {"x": LARGE} == lane.values(cid(4))
    assert [] == lane.pending(cid(1))


@pytest.mark.parametrize("large", [False, True])
def test_writes_to_what_is_gone_make_no_checkpoint(lane: Open, large: bool) -> None:
    """They are kept as early ones: nobody sees them, and no anchor has them."""
    for n in range(4):
        lane.put(cid(n), cid(n - 1) if n else None, new={"x": n})
        lane.write(cid(n), [("log", [n])])
    lane.saver.prune(["t"])
    lane.write(cid(1), [("log", [LARGE if large else 1])], "late")
    assert [cid(3)] == lane.ids()
    assert lane.caller.get_tuple(lane.config(cid(1))) is None
    assert [layout.KIND_WRITES] == lane.kinds(cid(1))
    assert [0, 1, 2] == [write[2][0] for write in lane.history(cid(3), "log")["writes"]]
