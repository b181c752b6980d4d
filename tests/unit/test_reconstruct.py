"""Laws of what a reader sees: values, writes in replay order, histories; as serialized bytes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from deltastore.engine.memory import MemoryEngine
from deltastore.format.writes import Row
from deltastore.options import StoreOptions
from deltastore.pending import NewWrites
from deltastore.reconstruct import PendingWrite
from deltastore.refill import NewCheckpoint
from deltastore.store import Store
from deltastore.types import Typed

Told = tuple[str, str, list[tuple[int, str, bytes]]]
BIG = b"a value of some length, " * 50


def put(store: Store, cid: str, parent: str | None = None, **values: bytes) -> None:
    new = {channel: Typed("bytes", value) for channel, value in values.items()}
    versions: dict[str, Any] = dict.fromkeys(values, cid)
    store.put(
        NewCheckpoint(*("t", "", cid, parent, {}, versions, {}, {}, new), spare=lambda _: None),
        None,
    )


def write(store: Store, cid: str, told: Told) -> None:
    task, path, rows = told
    made = [Row(idx, channel, "bytes", None, data) for idx, channel, data in rows]
    store.put(NewWrites("t", "", cid, task, path, "", made), None)


TASKS: list[Told] = [
    ("b", "", [(0, "x", b"1"), (10, "x", b"3"), (9, "y", b"2"), (-1, "__error__", b"0")]),
    ("a", "~1", [(1, "x", b"5"), (0, "x", b"4")]),
    ("a2", "~1", [(0, "y", b"6")]),
    ("0", "~2", [(0, "x", BIG)]),
]
IN_ORDER = [b"0", b"1", b"2", b"3", b"4", b"5", b"6", BIG]


@pytest.mark.parametrize("order", [*itertools.permutations(range(4))][::3])
def test_writes_are_shown_by_path_task_and_index_whatever_came_first(order: list[int]) -> None:
    """Live execution applies tasks in this order; replaying another one gives another state."""
    store = Store(MemoryEngine())
    for early in order[:2]:
        write(store, "1", TASKS[early])
    put(store, "1", x=BIG)
    for timely in order[2:]:
        write(store, "1", TASKS[timely])
    found = store.get("t", "", "1", None)
    assert found is not None
    assert IN_ORDER == [one.value.data for one in found.writes]
    put(store, "2", "1")
    history = store.history("t", "", "2", ["x", "y"], None)
    assert [b"1", b"3", b"4", b"5", BIG] == [one.value.data for one in history["x"].writes]
    assert [b"2", b"6"] == [one.value.data for one in history["y"].writes]


def test_checkpoint_is_returned_as_stored_bytes() -> None:
    """The caller decodes after the view has ended; types and bytes are the serializer's own."""
    store = Store(MemoryEngine())
    put(store, "1", x=BIG, y=b"")
    put(store, "2", "1", x=BIG + b"more")
    write(store, "2", ("task", "", [(0, "x", BIG + b"more!")]))
    found = store.get("t", "", "2", None)
    assert found is not None
    assert ("t", "", "2", "1") == found[:4]
    assert {"x": Typed("bytes", BIG + b"more")} == found.values
    assert [PendingWrite("task", "x", Typed("bytes", BIG + b"more!"))] == found.writes


def test_values_are_in_the_order_of_channel_versions() -> None:
    """Reducers and exports iterate over them."""
    store = Store(MemoryEngine())
    put(store, "1", z=b"z", a=b"a", m=b"m")
    found = store.get("t", "", "1", None)
    assert found is not None
    assert ["z", "a", "m"] == list(found.values)


def test_large_write_is_coded_against_what_its_checkpoint_shows() -> None:
    """A call that carries the state costs what is new in it, cold or warm, also in histories."""
    engine = MemoryEngine()
    store = Store(engine)
    state = bytes(range(256)) * 40
    put(store, "1", x=state)
    before = sum(len(v) for v in engine._state.values.values())
    write(store, "1", ("task", "", [(0, "__pregel_tasks", state + b"call")]))
    assert 400 > sum(len(v) for v in engine._state.values.values()) - before
    put(store, "2", "1")
    for cache in (0, 1 << 20):
        cold = Store(engine, StoreOptions(value_cache_bytes=cache, writes_cache_bytes=cache))
        found = cold.history("t", "", "2", ["__pregel_tasks"], None)["__pregel_tasks"]
        assert [state + b"call"] == [one.value.data for one in found.writes]
    assert [] == store.verify().damage


def test_history_has_an_entry_for_every_channel_asked() -> None:
    """Unknown ones, unknown targets and unknown threads included: nothing known is no error."""
    store = Store(MemoryEngine())
    put(store, "1", x=BIG)
    for thread, cid in (("t", "1"), ("t", "9"), ("t", None), ("u", None)):
        found = store.history(thread, "", cid, ["x", "never"], None)
        assert {"x": (None, []), "never": (None, [])} == found


def test_history_excludes_the_targets_own_writes_and_value() -> None:
    """They are pending and belong to its child."""
    store = Store(MemoryEngine())
    put(store, "1", x=b"one")
    put(store, "2", "1", x=b"two")
    write(store, "1", ("task", "", [(0, "x", b"w1")]))
    write(store, "2", ("task", "", [(0, "x", b"w2")]))
    found = store.history("t", "", "2", ["x"], None)["x"]
    assert (b"one", [b"w1"]) == (
        found.seed and found.seed.data,
        [w.value.data for w in found.writes],
    )
