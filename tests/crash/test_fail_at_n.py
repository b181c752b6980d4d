"""Every operation with its engine failing at every call, one after the other.

Each failure must reach the caller as a `DeltaStoreError`, leave the store as before or as after the
operation and sound, and the operation repeated must succeed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import RESUME, _DeltaSnapshot

from deltastore import DeltaStoreError, DeltaStoreSaver, reclaim
from deltastore.engine.lmdb import LmdbEngine
from deltastore.engine.memory import MemoryEngine
from deltastore.options import SnapshotBounds, StoreOptions
from deltastore.store import Store
from deltastore.testing import Caller, Lane, history_shape, make_checkpoint, tuple_shape
from deltastore.testing.faults import FailingEngine
from deltastore.testing.strategies import checkpoint_id

Operation = Callable[[Lane], object]
OPTIONS = StoreOptions(bounds=SnapshotBounds(updates=4))
CALLS_MAX = 2_000
ITEMS = [f"message {n}: " + "text of some length " * 8 for n in range(12)]


def lane_on(engine: Any) -> Lane:
    saver = DeltaStoreSaver.on_store(Store(engine, OPTIONS))
    return Lane(Caller(lambda: saver))


def copied(engine: MemoryEngine) -> MemoryEngine:
    """Return an engine that holds the same."""
    twin = MemoryEngine()
    with engine.begin(write=False) as old, twin.begin(write=True) as new:
        for key, value in old.scan(b"\x00", b"\xff"):
            new.put(key, value)
    return twin


def filled() -> MemoryEngine:
    """Return an engine with a short conversation, forks, a delta channel, and early writes."""
    engine = MemoryEngine()
    lane = lane_on(engine)
    for n in range(8):
        new = {"x": n + 1, "d": n + 1}
        values: dict[str, Any] = {"x": [*ITEMS, *range(n)], "y": ITEMS}
        if n % 4 == 0:
            values["d"] = _DeltaSnapshot([*ITEMS, n])
        carried = {"y": 1}
        if n == 0:
            new, carried = {**new, "y": 1}, {}
        parent = checkpoint_id(n - 1) if n else None
        lane.put(checkpoint_id(n), parent, new=new, carried=carried, values=values)
        lane.write(checkpoint_id(n), [("x", [n]), ("d", [ITEMS[0], n])], "task")
    lane.put(checkpoint_id(20), checkpoint_id(3), carried={"x": 4, "y": 1})
    lane.write(checkpoint_id(30), [("x", "early")])
    Lane(lane.caller, "u", "n").put("1", new={"x": 1}, values={"x": ITEMS})
    return engine


def put_child(lane: Lane) -> None:
    versions: dict[str, Any] = {"x": 10, "y": 1, "d": 10, "new": 1}
    values = {"x": [*ITEMS, *range(8), "more"], "d": _DeltaSnapshot([*ITEMS, 7]), "new": ITEMS}
    checkpoint = make_checkpoint(checkpoint_id(30), versions, values)
    lane.caller.put(lane.config(checkpoint_id(7)), checkpoint, {}, {"x": 10, "d": 10, "new": 1})


def put_again(lane: Lane) -> None:
    lane.put(checkpoint_id(3), checkpoint_id(2), new={"x": 4}, values={"x": ["short"]})


OPERATIONS: dict[str, Operation] = {
    "put a child": put_child,
    "put a fork": lambda lane: lane.put(
        checkpoint_id(40), checkpoint_id(2), new={"x": 50}, values={"x": [*ITEMS, "fork"]}
    ),
    "put with a version from elsewhere": lambda lane: lane.put(
        checkpoint_id(40), checkpoint_id(20), carried={"x": 8}
    ),
    "put with a parent never stored": lambda lane: lane.put(
        checkpoint_id(60), checkpoint_id(50), new={"x": 60}, values={"x": ITEMS}
    ),
    "put a first checkpoint": lambda lane: Lane(lane.caller, "fresh").put(
        "1", new={"x": 1}, values={"x": ITEMS}
    ),
    "put equal again": lambda lane: Lane(lane.caller, "u", "n").put(
        "1", new={"x": 1}, values={"x": ITEMS}
    ),
    "put other content again": put_again,
    "write": lambda lane: lane.write(checkpoint_id(7), [("x", [*ITEMS, "w"]), ("y", 1)], "other"),
    "write more of a task": lambda lane: lane.write(
        checkpoint_id(7), [("x", 0), ("y", 0), ("z", 0), (RESUME, 1)], "task"
    ),
    "write late": lambda lane: lane.write(checkpoint_id(2), [("x", "late")], "other"),
    "write early": lambda lane: lane.write(checkpoint_id(70), [("x", "early")], "other"),
    "write to a fresh thread": lambda lane: Lane(lane.caller, "fresh").write("1", [("x", 1)]),
    "delete": lambda lane: lane.caller.delete_thread("t"),
    "delete what is absent": lambda lane: lane.caller.delete_thread("absent"),
}


def seen(engine: Any) -> Any:
    """Return all that a reader sees, through a store that has cached nothing."""
    lane = lane_on(engine)
    found = lane.caller.list(None)
    channels = ["x", "d", "y"]
    return [
        (tuple_shape(one), history_shape(lane.caller.history(one.config, channels)))
        for one in found
    ]


def check_every_failure(fresh: Callable[[], Any], operation: Operation) -> int:
    """Run an operation until no call of it fails any more; return how many calls it made."""
    clean = fresh()
    before = seen(clean)
    operation(lane_on(clean))
    after = seen(clean)
    outcomes = set()
    for fail_at in count(1):
        assert fail_at < CALLS_MAX
        engine = fresh()
        failing = FailingEngine(engine, fail_at)
        lane = lane_on(failing)
        if not failing.fails(partial(operation, lane)):
            assert after == seen(engine)
            return fail_at - 1
        left = seen(engine)
        assert left in (before, after)
        outcomes.add(left == after)
        assert [] == Store(engine).verify().damage
        operation(lane)
        assert after == seen(engine)
        assert [] == Store(engine).verify().damage
        engine.close()
    raise AssertionError


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_failure_leaves_before_or_after(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is told of it, nothing is half done, and the same object goes on working."""
    monkeypatch.setattr(reclaim, "RECORDS_MAX", 7)
    engine = filled()
    assert 3 < check_every_failure(lambda: copied(engine), OPERATIONS[name])


def test_every_failure_of_the_first_call_on_a_new_store() -> None:
    """It makes the store as well."""
    calls = check_every_failure(
        MemoryEngine, lambda lane: lane.put("1", new={"x": 1}, values={"x": ITEMS})
    )
    assert 10 < calls


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_failure_on_disk(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """LMDB undoes what the memory engine never began."""
    monkeypatch.setattr(reclaim, "RECORDS_MAX", 7)
    engine = filled()
    numbers = count()

    def fresh() -> LmdbEngine:
        twin = LmdbEngine(tmp_path / str(next(numbers)), durability="normal")
        with engine.begin(write=False) as old:
            pairs = old.scan(b"\x00", b"\xff")
        with twin.begin(write=True) as new:
            for key, value in pairs:
                new.put(key, value)
        return twin

    assert 3 < check_every_failure(fresh, OPERATIONS[name])


@pytest.mark.parametrize("name", ["put", "write"])
def test_every_failure_reaches_an_async_caller(name: str) -> None:
    """Its error crosses two threads; lost on the way, the caller would wait for ever."""
    engine = filled()

    async def operate(saver: DeltaStoreSaver) -> None:
        lane = Lane(Caller(lambda: saver))
        config = lane.config(checkpoint_id(7))
        if name == "put":
            checkpoint = make_checkpoint(checkpoint_id(30), {"x": 9}, {"x": [*ITEMS, "async"]})
            await saver.aput(config, checkpoint, {}, {"x": 9})
        else:
            await saver.aput_writes(config, [("x", [*ITEMS, "async"])], "other")

    def operation(lane: Lane) -> None:
        saver = lane.caller.saver
        assert isinstance(saver, DeltaStoreSaver)
        asyncio.run(asyncio.wait_for(operate(saver), 60))

    assert 3 < check_every_failure(lambda: copied(engine), operation)


def test_what_a_failed_deletion_left_is_reclaimed_at_the_next_opening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread is gone at the first commit; its space must follow one day."""
    monkeypatch.setattr(reclaim, "RECORDS_MAX", 7)
    engine = filled()
    clean = copied(engine)
    lane_on(clean).caller.delete_thread("t")
    expected = clean.stat().entries
    left_over = 0
    for fail_at in range(1, CALLS_MAX):
        twin = copied(engine)
        failing = FailingEngine(twin, fail_at)
        try:
            lane_on(failing).caller.delete_thread("t")
        except DeltaStoreError:
            left_over += twin.stat().entries > expected
        if not failing.has_failed:
            break
        store = Store(twin)
        store.setup()
        store.delete_thread("t")
        assert expected == twin.stat().entries
    assert 0 < left_over
