"""Laws of putting a checkpoint again: nothing else changes, whatever relied on the old one."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest

from deltastore import DeltaStoreSaver, SnapshotBounds
from deltastore.engine.counting import CountingEngine
from deltastore.engine.memory import MemoryEngine, MemoryTransaction
from deltastore.options import StoreOptions
from deltastore.store import Store
from deltastore.testing import Caller, Lane, history_shape, make_checkpoint, tuple_shape
from deltastore.testing.history_laws import ends
from deltastore.testing.strategies import checkpoint_id

CHANNELS = ["x", "y", "z"]
LARGE = [f"message {n}: " + "text of some length " * 10 for n in range(20)]
Put = tuple[str, str | None, dict[str, Any], dict[str, Any], dict[str, Any]]


class Open:
    """A saver on a counted engine, and one stream of it."""

    def __init__(self, **bounds: Any) -> None:
        self.engine = MemoryEngine()
        self.counting = CountingEngine(self.engine)
        self.store = Store(self.counting, StoreOptions(bounds=SnapshotBounds(**bounds)))
        self.saver = DeltaStoreSaver.on_store(self.store)
        self.lane = Lane(Caller(lambda: self.saver))
        self.puts: dict[str, Put] = {}

    def put(
        self, cid: str, parent: str | None, carried: Any = None, new: Any = None, values: Any = None
    ) -> None:
        self.puts[cid] = copy.deepcopy((cid, parent, carried or {}, new or {}, values or {}))
        self.lane.put(cid, parent, carried=carried, new=new, values=values)

    def again(self, cid: str) -> None:
        """Put a checkpoint as it was put before."""
        _, parent, carried, new, values = self.puts[cid]
        self.lane.put(cid, parent, carried=carried, new=new, values=values)

    def conversation(self, count: int) -> list[str]:
        """Put a chain with a growing list, one value that stays, one now and then; and writes."""
        ids = [checkpoint_id(n) for n in range(count)]
        for n, cid in enumerate(ids):
            new = {"x": n + 1} | ({"y": n + 1} if n % 4 == 0 else {})
            new |= {"z": 1} if n == 0 else {}
            carried = {} if n == 0 else {"y": n // 4 * 4 + 1, "z": 1}
            carried = {c: v for c, v in carried.items() if c not in new}
            values: dict[str, Any] = {"x": [*LARGE, *range(n)], "z": LARGE}
            if n % 8 == 0:
                values["y"] = {"n": n, "more": LARGE}
            self.put(cid, ids[n - 1] if n else None, carried, new, values)
            self.lane.write(cid, [("x", n), ("y", [*LARGE, n])])
        return ids

    def shown(self, *, without: str = "", store: Store | None = None) -> dict[str, Any]:
        """Return all that is seen of every checkpoint, through a store that cached nothing."""
        saver = DeltaStoreSaver.on_store(store or Store(self.engine))
        lane = Lane(Caller(lambda: saver))
        return {cid: tuple_shape(lane.read(cid)) for cid in lane.ids() if cid != without}

    def histories(self, cid: str) -> Any:
        return history_shape(self.lane.caller.history(self.lane.config(cid), CHANNELS))

    def check(self) -> None:
        assert self.shown() == self.shown(store=self.store)
        assert [] == self.store.verify().damage


# --- equal ---


@pytest.mark.parametrize("number", [0, 1, 4, 8, 15])
def test_equal_put_writes_nothing(number: int) -> None:
    """Retries after an unsure acknowledgement are common; they must cost no page."""
    opened = Open()
    ids = opened.conversation(16)
    opened.lane.put(checkpoint_id(99), ids[3])
    before = opened.counting.counts()
    opened.again(ids[number])
    spent = opened.counting.counts() - before
    assert (0, 0, 0) == (spent.puts, spent.deletes, spent.put_bytes)
    opened.check()


def test_equal_put_through_a_cold_store_writes_nothing() -> None:
    """What is compared is what is stored, not what is cached."""
    opened = Open()
    ids = opened.conversation(12)
    counting = CountingEngine(opened.engine)
    saver = DeltaStoreSaver.on_store(Store(counting, StoreOptions(value_cache_bytes=0)))
    opened.lane = Lane(Caller(lambda: saver))
    opened.again(ids[7])
    assert 0 == counting.counts().puts


def vary(opened: Open, cid: str, what: str) -> None:
    """Put a checkpoint again with one thing changed."""
    _, parent, carried, new, values = opened.puts[cid]
    checkpoint = make_checkpoint(cid, {**carried, **new}, values)
    metadata: dict[str, Any] = {"source": "loop", "step": 0}
    if what == "metadata":
        metadata["step"] = 1
    elif what == "type":
        metadata["step"] = 0.0
    elif what == "field":
        checkpoint["ts"] = "2027"
    elif what == "seen":
        checkpoint["versions_seen"] = {"node": {"x": 77}}
    elif what == "value":
        checkpoint["channel_values"]["x"] = ["another"]
    elif what == "emptied":
        del checkpoint["channel_values"]["x"]
    elif what == "version":
        checkpoint["channel_versions"]["x"] = 5_000
        new = {**new, "x": 5_000}
    elif what == "dropped":
        del checkpoint["channel_versions"]["z"]
    elif what == "parent":
        parent = None
    config = opened.lane.config(parent)
    opened.lane.caller.put(config, checkpoint, metadata, new)  # type: ignore[arg-type]


CHANGES = ["metadata", "type", "field", "seen", "value", "emptied", "version", "dropped", "parent"]


@pytest.mark.parametrize("what", CHANGES)
def test_any_difference_counts(what: str) -> None:
    """Taken for equal, the second put would be lost though it was acknowledged."""
    opened = Open()
    ids = opened.conversation(12)
    before = tuple_shape(opened.lane.read(ids[6]))
    vary(opened, ids[6], what)
    assert before != tuple_shape(opened.lane.read(ids[6]))
    opened.check()


# --- different ---


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("number", [0, 1, 4, 9, 15])
def test_nothing_else_changes(what: str, number: int) -> None:
    """Children are coded against it, pointers of descendants point into it: all read as before."""
    opened = Open()
    ids = opened.conversation(16)
    fork = checkpoint_id(50)
    opened.put(fork, ids[number], {"x": number + 1, "z": 1})
    opened.put(checkpoint_id(51), fork, {"z": 1}, {"x": 51}, {"x": [*LARGE, "fork"]})
    others = opened.shown(without=ids[number])
    writes = opened.lane.pending(ids[number])
    vary(opened, ids[number], what)
    assert others == opened.shown(without=ids[number])
    assert writes == opened.lane.pending(ids[number])
    opened.check()


@pytest.mark.parametrize("bounds", [{"updates": 1}, {"updates": 3}, {"ratio": 0.1}, {"ratio": 2.0}])
def test_nothing_else_changes_under_any_bounds(bounds: Any) -> None:
    """Runs and whole values are referred to as deltas are."""
    opened = Open(**bounds)
    ids = opened.conversation(14)
    for number in (0, 5, 13, 5, 1):
        others = opened.shown(without=ids[number])
        vary(opened, ids[number], "value")
        assert others == opened.shown(without=ids[number])
        vary(opened, ids[number], "metadata")
        assert others == opened.shown(without=ids[number])
    opened.check()


def test_histories_of_descendants_stay_where_no_value_of_theirs_changed() -> None:
    """The chain goes through it as before; its writes are still its own."""
    opened = Open()
    ids = opened.conversation(16)
    before = {cid: opened.histories(cid) for cid in ids}
    vary(opened, ids[6], "metadata")
    assert before == {cid: opened.histories(cid) for cid in ids}
    vary(opened, ids[6], "field")
    assert before == {cid: opened.histories(cid) for cid in ids}


def test_history_goes_by_what_is_there_now() -> None:
    """A seed that was taken away, and one that was put in the way."""
    opened = Open()
    ids = [checkpoint_id(n) for n in range(20)]
    opened.put(ids[0], None, new={"x": 1}, values={"x": "seed"})
    for n in range(19):
        opened.lane.write(ids[n], [("x", n)])
        opened.put(ids[n + 1], ids[n], new={"x": n + 2})
    opened.lane.put(ids[5], ids[4], new={"x": 6}, values={"x": "nearer"})
    found = opened.lane.history(ids[19], "x")
    assert ("nearer", [*range(5, 19)]) == (found["seed"], [w[2] for w in found["writes"]])
    opened.lane.put(ids[5], ids[4], new={"x": 6})
    found = opened.lane.history(ids[19], "x")
    assert ("seed", [*range(19)]) == (found["seed"], [w[2] for w in found["writes"]])
    opened.check()


def test_put_again_with_more_and_fewer_values() -> None:
    """Places of its old values must not serve for its new ones."""
    opened = Open()
    many = {f"c{n}": [*LARGE, n] for n in range(6)}
    opened.put("1", None, new=dict.fromkeys(many, 1), values=many)
    opened.put("2", "1", carried=dict.fromkeys(many, 1))
    opened.put("3", "2", dict.fromkeys(many, 1), {"c1": 3}, {"c1": [*LARGE, 1, 3]})
    for kept in (many.keys() - {"c0"}, {"c5"}, many.keys(), set[str]()):
        values = {channel: [*many[channel], len(kept)] for channel in sorted(kept)}
        opened.lane.put("1", new=dict.fromkeys(values, 1), values=values)
        assert values == opened.lane.values("1")
        assert many == opened.lane.values("2")
        assert {**many, "c1": [*LARGE, 1, 3]} == opened.lane.values("3")
        opened.check()


@pytest.mark.parametrize("length", [1, 2, 5, 40])
def test_loops_read_walk_and_verify(length: int) -> None:
    """An ancestor put under its own descendant: each header would be coded against the next."""
    opened = Open()
    ids = opened.conversation(length + 1)
    for number in (0, length // 2, 0):
        opened.put(ids[number], ids[-1], {"x": length + 1, "z": 1}, {"y": 9}, {"y": LARGE})
        opened.check()
        for cid in ids:
            with ends():
                opened.histories(cid)
    opened.lane.put(checkpoint_id(99), ids[0], carried={"x": length + 1, "y": 9, "z": 1})
    assert {"x": [*LARGE, *range(length)], "y": LARGE, "z": LARGE} == opened.lane.values()
    opened.check()


def test_many_puts_again_in_any_order() -> None:
    """Each moves what the ones before it moved."""
    opened = Open(updates=4)
    ids = opened.conversation(12)
    source = random.Random(5)
    for _ in range(60):
        cid = source.choice(ids)
        others = opened.shown(without=cid)
        vary(opened, cid, source.choice(CHANGES[:-1]))
        assert others == opened.shown(without=cid)
        if source.random() < 0.3:
            opened.again(cid)
            assert others == opened.shown(without=cid)
    opened.check()


class HookedEngine(MemoryEngine):
    """Calls `hook` once before the next write transaction, as another process would come."""

    hook: Callable[[], object] | None = None

    def begin(self, *, write: bool, scope: bytes = b"") -> MemoryTransaction:
        hook = self.hook
        if write and hook is not None:
            self.hook = None
            hook()
        return super().begin(write=write, scope=scope)


def racing(**bounds: Any) -> tuple[HookedEngine, Lane, Lane]:
    """Return an engine and one stream through two stores on it."""
    engine = HookedEngine()
    options = StoreOptions(bounds=SnapshotBounds(**bounds))
    return engine, lane_on(engine, options), lane_on(engine, options)


def lane_on(engine: MemoryEngine, options: StoreOptions) -> Lane:
    saver = DeltaStoreSaver.on_store(Store(engine, options))
    return Lane(Caller(lambda: saver))


def check_cold(engine: HookedEngine, cid: str, values: dict[str, Any]) -> None:
    """A checkpoint must read so from the engine alone."""
    assert engine.hook is None
    store = Store(engine)
    saver = DeltaStoreSaver.on_store(store)
    assert values == Lane(Caller(lambda: saver)).values(cid)
    assert [] == store.verify().damage


def test_parent_put_again_between_planning_and_commit() -> None:
    """The child was planned against what is gone: it shows what its parent shows now."""
    engine, lane, other = racing()
    lane.put("1", new={"x": 1}, values={"x": LARGE})
    engine.hook = lambda: other.put("1", new={"x": 1}, values={"x": ["short"]})
    lane.put("2", "1", carried={"x": 1})
    check_cold(engine, "2", {"x": ["short"]})


@pytest.mark.parametrize("value", [LARGE, [*LARGE, "new"]])
def test_seed_put_again_between_planning_and_commit(value: Any) -> None:
    """An emptied channel is coded against its last value, for which no parent's header vouches."""
    engine, lane, other = racing()
    lane.put("1", new={"x": 1}, values={"x": LARGE})
    for n in (2, 3, 4):
        lane.put(str(n), str(n - 1), new={"x": n})
    engine.hook = lambda: other.put("1", new={"x": 1}, values={"x": ["short"]})
    lane.put("5", "4", new={"x": 5}, values={"x": value})
    check_cold(engine, "5", {"x": value})


def test_snapshot_point_put_again_between_planning_and_commit() -> None:
    """A run is coded against the last snapshot point, which may lie far up the chain."""
    engine, lane, other = racing(updates=3)
    for n in (1, 2, 3):
        lane.put(str(n), str(n - 1) if n > 1 else None, new={"x": n}, values={"x": [*LARGE, n]})
    engine.hook = lambda: other.put("1", new={"x": 1}, values={"x": ["short"]})
    lane.put("4", "3", new={"x": 4}, values={"x": [*LARGE, 4]})
    check_cold(engine, "4", {"x": [*LARGE, 4]})


@pytest.mark.parametrize(("version", "expected"), [(1, {"x": ["short"]}), (9, {})])
def test_version_elsewhere_put_again_between_planning_and_commit(
    version: int, expected: dict[str, Any]
) -> None:
    """What was found under the version is gone; so may be the version."""
    engine, lane, other = racing()
    lane.put("1", new={"x": 1}, values={"x": LARGE})
    lane.put("2")
    engine.hook = lambda: other.put("1", new={"x": version}, values={"x": ["short"]})
    lane.put("3", "2", carried={"x": 1})
    check_cold(engine, "3", expected)
