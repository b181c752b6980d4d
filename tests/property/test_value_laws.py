"""Laws of stored values over generated lives of channels: what comes back, and what it costs.

A *life* is a tree of checkpoints, each of which brings some edit of the value it inherits, under
bounds so tight that every way of storing a value comes up. Writes come before a checkpoint is put,
between its planning and its commit, or late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltastore.engine.memory import MemoryEngine, MemoryTransaction
from deltastore.format import frame, keys, layout
from deltastore.format import value as value_format
from deltastore.format.value import ValueRecord
from deltastore.format.writes import Row
from deltastore.options import SnapshotBounds, StoreOptions
from deltastore.pending import NewWrites
from deltastore.refill import NewCheckpoint
from deltastore.store import Store
from deltastore.testing.strategies import checkpoint_id
from deltastore.types import Typed, Version

Draw = st.DrawFn
EDITS: tuple[str, ...] = (
    "append",
    "append",
    "append",
    "edit",
    "front",
    "slide",
    "back",
    "insert",
    "replace",
)
EDITS += ("same", "type", "snapshot", "empty", "carry", "small", "raw")
bounds = st.builds(
    SnapshotBounds,
    updates=st.none() | st.integers(1, 5),
    supersteps=st.none() | st.integers(1, 6),
    ratio=st.floats(0.1, 2.0),
)
cache_bytes = st.sampled_from([0, 3_000, 1 << 20])
items = st.builds(
    lambda n, size: f"<{n}>" + "lorem ipsum "[n % 7 :] * size,
    st.integers(0, 99),
    st.sampled_from([1, 10, 30]),
)


class HookedEngine(MemoryEngine):
    """Calls `hook` once before the next write transaction, as another process would come."""

    hook: Callable[[], object] | None = None

    def begin(self, *, write: bool, scope: bytes = b"") -> MemoryTransaction:
        hook = self.hook
        if write and hook is not None:
            self.hook = None
            hook()
        return super().begin(write=write, scope=scope)


def coded(value: list[str], kind: str) -> Typed:
    """Return a list as a channel's value."""
    data = ormsgpack.packb(value)
    if kind == "snapshot":
        data = ormsgpack.packb(ormsgpack.Ext(7, data))
    elif kind == "carry":
        data = ormsgpack.packb({"state": value, "more": "call"})
    elif kind == "small":
        data = ormsgpack.packb(value[:1])
    elif kind == "raw":
        data = "".join(value).encode()
    return Typed("bytes" if kind in {"type", "raw"} else "msgpack", data)


def edited(draw: Draw, value: list[str], kind: str) -> list[str]:
    """Return a list after one edit."""
    at = draw(st.integers(0, len(value)))
    if kind == "append":
        return [*value, *draw(st.lists(items, min_size=1, max_size=3))]
    if kind == "edit":
        return [*value[:at], draw(items), *value[at + 1 :]]
    if kind == "front":
        return value[at:]
    if kind == "slide":
        return [*value[1:], draw(items)]
    if kind == "back":
        return value[:at]
    if kind == "insert":
        return [*value[:at], draw(items), *value[at:]]
    if kind == "replace":
        return draw(st.lists(items, max_size=20))
    return value


def put(store: Store, number: int, parent: int | None, value: Typed | None) -> None:
    parent_id = None if parent is None else checkpoint_id(parent)
    versions: dict[str, Version] = {"x": number + 1}
    new = NewCheckpoint(
        *("t", "", checkpoint_id(number), parent_id, {}, versions, {}, {}, {"x": value}),
        spare=lambda _: None,
    )
    store.put(new, None)


def write(store: Store, number: int, task: int, written: list[str], bare: bool) -> None:
    data = [*map(ormsgpack.packb, written)] if bare else [ormsgpack.packb(written)]
    rows = [Row(idx, "x", "msgpack", None, one) for idx, one in enumerate(data)]
    store.put(NewWrites("t", "", checkpoint_id(number), f"task {task}", "", "", rows), None)


def value_records(engine: MemoryEngine) -> dict[tuple[bytes, int], ValueRecord]:
    with engine.begin(write=False) as txn:
        return {
            (place.cid, int.from_bytes(place.suffix, "big")): value_format.decode(
                frame.unseal(key, record, layout.KIND_VALUE).payload
            )
            for key, record in txn.scan(b"\x10", b"\x11")
            for place in [keys.split(key)]
            if place.kind == layout.KIND_VALUE
        }


def check_shown(store: Store, shown: list[Typed | None]) -> None:
    """Every checkpoint shows the bytes that were put, and their type."""
    for number, typed in enumerate(shown):
        found = store.get("t", "", checkpoint_id(number), None)
        assert found is not None
        assert ({} if typed is None else {"x": typed}) == found.values


def check_chains(engine: MemoryEngine, limits: SnapshotBounds) -> None:
    """Follow each stored value to its whole one, by the records alone."""
    records = value_records(engine)
    for record in records.values():
        base = record.base
        if base is None:
            continue
        if limits.updates is not None:
            assert base.updates < max(limits.updates, 1)
        deltas, read, at = 0, 0, record
        while at.base is not None and at.base.updates > 0:
            deltas += 1
            # A base that is not among the records lies inline in its header.
            at = records.get((at.base.cid, at.base.ordinal)) or ValueRecord("", 0, None, b"")
        assert deltas == base.updates
        at = record
        while at.base is not None:
            read += len(at.body)
            at = records.get((at.base.cid, at.base.ordinal)) or ValueRecord("", 0, None, b"")
        assert read + len(at.body) <= base.stored


@settings(max_examples=80)
@given(st.data(), bounds, cache_bytes)
def test_every_value_of_a_life_comes_back_byte_for_byte(
    data: st.DataObject, limits: SnapshotBounds, cache: int
) -> None:
    """At every checkpoint, on every fork, warm and cold; and the books of each chain are right."""
    engine = MemoryEngine()
    store = Store(engine, StoreOptions(bounds=limits, value_cache_bytes=cache))
    lists: list[list[str]] = []
    shown: list[Typed | None] = []
    for number in range(data.draw(st.integers(2, 25))):
        parents = [number - 1] * 5 + [*range(number)]
        parent = data.draw(st.sampled_from(parents)) if number else None
        old = [f"<{n}> first" * 9 for n in range(20)] if parent is None else lists[parent]
        kind = data.draw(st.sampled_from(EDITS))
        lists.append(data.draw(st.composite(edited)(old, kind)))
        typed = None if kind == "empty" else coded(lists[-1], kind)
        if kind == "same" and parent is not None and shown[parent] is not None:
            typed = shown[parent]
        shown.append(typed)
        put(store, number, parent, typed)
    check_shown(store, shown)
    check_shown(Store(engine, StoreOptions(value_cache_bytes=0)), shown)
    check_chains(engine, limits)
    assert [] == store.verify().damage


@settings(max_examples=40)
@given(st.data(), bounds)
def test_bytes_read_along_a_chain_are_within_the_ratio(
    data: st.DataObject, limits: SnapshotBounds
) -> None:
    """What a cold read fetches is at most 1 + ratio times what it returns."""
    engine = MemoryEngine()
    store = Store(engine, StoreOptions(bounds=limits))
    value = [f"<{n}> first" * 9 for n in range(20)]
    for number in range(data.draw(st.integers(2, 25))):
        kind = data.draw(st.sampled_from(EDITS[:9]))
        value = data.draw(st.composite(edited)(value, kind))
        typed = coded(value, kind)
        put(store, number, number - 1 if number else None, typed)
    with engine.begin(write=False) as txn:
        cids = {keys.split(key).cid for key in txn.scan_keys(b"\x10", b"\x11")}
    records = value_records(engine)
    for number, cid in enumerate(sorted(cids)):
        record = records.get((cid, 0))
        if record is not None and record.base is not None:
            found = store.get("t", "", checkpoint_id(number), None)
            assert found is not None
            assert record.base.stored <= (1 + limits.ratio) * len(found.values["x"].data)


@pytest.mark.damaged
@given(st.data(), bounds, cache_bytes)
def test_writes_shared_with_values_change_neither(
    data: st.DataObject, limits: SnapshotBounds, cache: int
) -> None:
    """Written before the put, between its planning and its commit, or late: all read as given."""
    engine = HookedEngine()
    options = StoreOptions(bounds=limits, value_cache_bytes=cache, writes_cache_bytes=cache)
    store, other = Store(engine, options), Store(engine, options)
    value = [f"<{n}> first" * 9 for n in range(20)]
    shown: list[Typed | None] = []
    pending: dict[int, dict[tuple[str, int], bytes]] = {}
    for number in range(data.draw(st.integers(2, 15))):
        added: list[str] = []
        for task in range(data.draw(st.integers(0, 3)) if number else 0):
            at = data.draw(st.sampled_from([number - 1] * 4 + [*range(number)]))
            written = data.draw(st.lists(items, min_size=1, max_size=3))
            bare, when = data.draw(st.booleans()), data.draw(st.sampled_from("bbm"))
            told = [*map(ormsgpack.packb, written)] if bare else [ormsgpack.packb(written)]
            for idx, one in enumerate(told):
                pending.setdefault(at, {}).setdefault((f"task {task}", idx), one)
            arguments = (at, task, written, bare)
            added += written
            if when == "m" and engine.hook is None:
                engine.hook = lambda arguments=arguments: write(other, *arguments)
            else:
                hook, engine.hook = engine.hook, None
                write(other, *arguments)
                engine.hook = hook
        value = [*value, *added]
        kind = data.draw(st.sampled_from(["append", "append", "snapshot", "empty", "front"]))
        value = value[1:] if kind == "front" else value
        shown.append(None if kind == "empty" else coded(value, kind))
        put(store, number, number - 1 if number else None, shown[-1])
    check_shown(store, shown)
    for each in (store, Store(engine, StoreOptions(value_cache_bytes=0, writes_cache_bytes=0))):
        check_shown(each, shown)
        for at, rows in pending.items():
            found = each.get("t", "", checkpoint_id(at), None)
            assert found is not None
            assert [rows[key] for key in sorted(rows)] == [w.value.data for w in found.writes]
    assert [] == store.verify().damage


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(20, 60), st.data())
def test_append_only_list_never_forces_a_whole_value(
    updates: int, supersteps: int, count: int, data: st.DataObject
) -> None:
    """Whatever the bounds on look-ups are: only `ratio` may, and an append supersedes nothing."""
    engine = MemoryEngine()
    limits = SnapshotBounds(updates=updates, supersteps=supersteps)
    store = Store(engine, StoreOptions(bounds=limits))
    value = [f"<{n}> first" * 40 for n in range(40)]
    seed: Any = data.draw(st.randoms(use_true_random=False))
    for number in range(count):
        put(store, number, number - 1 if number else None, coded(value, "append"))
        value = [*value, f"<{number}>" + seed.choice("abcdef") * seed.randint(100, 400)]
    assert 1 == sum(record.base is None for record in value_records(engine).values())
