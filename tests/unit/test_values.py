"""Laws of stored values: how each is coded, how long chains get, and what is stored only once.

Everything is put through a store and looked at in its records, decompressed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import ormsgpack
import pytest

from deltastore.engine.memory import MemoryEngine, MemoryTransaction
from deltastore.errors import BrokenChainError, CorruptionError
from deltastore.format import frame, keys, layout
from deltastore.format import value as value_format
from deltastore.format.keys import LogKey
from deltastore.format.value import ValueRecord
from deltastore.format.writes import Row
from deltastore.options import SnapshotBounds, StoreOptions
from deltastore.pending import NewWrites
from deltastore.refill import NewCheckpoint
from deltastore.store import Store
from deltastore.testing.strategies import checkpoint_id
from deltastore.types import Typed, Version
from deltastore.values import element_bytes

SNAPSHOT_EXT = 7


class HookedEngine(MemoryEngine):
    """Calls `hook` once before the next write transaction, as another process would come."""

    hook: Callable[[], object] | None = None

    def begin(self, *, write: bool, scope: bytes = b"") -> MemoryTransaction:
        hook = self.hook
        if write and hook is not None:
            self.hook = None
            hook()
        return super().begin(write=write, scope=scope)


class Line:
    """One stream of a store: a chain of checkpoints 0, 1, 2, ... with a channel "x"."""

    def __init__(self, cache_bytes: int = 1 << 20, **bounds: Any) -> None:
        self.engine = HookedEngine()
        options = StoreOptions(bounds=SnapshotBounds(**bounds), value_cache_bytes=cache_bytes)
        self.store = Store(self.engine, options)
        self.other = Store(self.engine, options)
        self.number = -1
        self.values: dict[str, dict[str, Typed]] = {}
        self.versions: dict[str, dict[str, Version]] = {}

    def put(self, parent: int | None = -2, **values: Typed | None) -> str:
        """Put the next checkpoint with new versions of these channels."""
        self.number += 1
        at = self.number - 1 if parent == -2 else parent
        cid = checkpoint_id(self.number)
        parent_id = None if at is None or at < 0 else checkpoint_id(at)
        versions = {**self.versions.get(parent_id or "", {})}
        versions |= dict.fromkeys(values, self.number + 1)
        new = NewCheckpoint(
            *("t", "", cid, parent_id, {}, versions, {}, {}, values),
            spare=lambda _: None,
        )
        self.store.put(new, None)
        self.versions[cid] = versions
        shown = dict(self.values.get(parent_id or "", {}))
        for channel, typed in values.items():
            shown.pop(channel, None)
            if typed is not None:
                shown[channel] = typed
        self.values[cid] = shown
        return cid

    def write(self, cid: str, *rows: tuple[str, bytes], task: str = "task") -> None:
        """Write to a checkpoint, past the store's own queue."""
        made = [
            Row(idx, channel, "msgpack", None, data) for idx, (channel, data) in enumerate(rows)
        ]
        self.other.put(NewWrites("t", "", cid, task, "", "", made), None)

    def payloads(self) -> Iterator[tuple[LogKey, bytes]]:
        """Yield every record of the log, decompressed."""
        with self.engine.begin(write=False) as txn:
            for key, record in txn.scan(b"\x10", b"\x11"):
                place = keys.split(key)
                yield place, frame.unseal(key, record, place.kind).payload

    def records(self) -> dict[tuple[bytes, int], ValueRecord]:
        """Return every value record by its place."""
        return {
            (place.cid, int.from_bytes(place.suffix, "big")): value_format.decode(payload)
            for place, payload in self.payloads()
            if place.kind == layout.KIND_VALUE
        }

    def count(self, marker: bytes) -> int:
        return sum(payload.count(marker) for _, payload in self.payloads())

    def stored_bytes(self) -> int:
        with self.engine.begin(write=False) as txn:
            return sum(len(key) + len(record) for key, record in txn.scan(b"\x10", b"\x11"))

    def check(self) -> None:
        """Every checkpoint shows what was put; from a store without caches, and verified."""
        cold = Store(self.engine, StoreOptions(value_cache_bytes=0, writes_cache_bytes=0))
        for store in (self.store, cold):
            for cid, values in self.values.items():
                found = store.get("t", "", cid, None)
                assert found is not None
                assert values == found.values
        assert [] == self.store.verify().damage


def text(seed: int, size: int = 300) -> str:
    source = random.Random(seed)
    return f"<{seed}>" + "".join(source.choices("abcdefghijklmnopqrstuvwxyz     ", k=size))


def packed(*items: Any) -> Typed:
    return Typed("msgpack", ormsgpack.packb([*items]))


def snapshot(*items: Any) -> Typed:
    return Typed("msgpack", ormsgpack.packb(ormsgpack.Ext(SNAPSHOT_EXT, ormsgpack.packb([*items]))))


def grown(count: int, **bounds: Any) -> Line:
    """Return a line whose channel grew by one message a checkpoint."""
    line = Line(**bounds)
    for n in range(1, count + 1):
        line.put(x=packed(*map(text, range(n))))
    return line


# --- how a value is coded ---


def test_equal_value_is_stored_as_a_pointer() -> None:
    """A node that returns its state unchanged must not pay for it again (a new version is put)."""
    line = Line()
    line.put(x=packed(text(1), text(2), text(3), text(4)))
    before = line.records()
    for _ in range(3):
        line.put(x=packed(text(1), text(2), text(3), text(4)))
    assert before == line.records()
    line.check()


def test_equal_bytes_of_another_type_are_another_value() -> None:
    """The tag belongs to the value: the same bytes as "bytes" and as "msgpack" are not equal."""
    line = Line()
    for tag in ("msgpack", "bytes", "msgpack", "null"):
        line.put(x=Typed(tag, packed(*map(text, range(5))).data))
    assert 4 == len(line.records())
    line.check()


@pytest.mark.parametrize("size", [0, 1, 199, 200, 201, 1_023, 1_024, 1_025, 5_000])
@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_values_of_every_size_come_back(size: int, cache_bytes: int) -> None:
    """On both sides of each bound at which a value is coded in another way, empty included."""
    line = Line(cache_bytes)
    for n in range(4):
        line.put(x=Typed("bytes", bytes([n]) * size), y=Typed("bytes", b"y" * size))
    line.check()


def test_many_small_values_come_back() -> None:
    """More of them than fit inline in one header."""
    line = Line()
    for n in range(3):
        values: dict[str, Any] = {f"c{i}": Typed("bytes", bytes([i, n]) * 90) for i in range(40)}
        line.put(**values)
    line.check()


def test_forks_are_coded_against_their_own_parent() -> None:
    """Two children of one checkpoint share its value; neither may see the other's."""
    line = Line()
    line.put(x=packed(*map(text, range(9))))
    for n in range(4):
        line.put(0, x=packed(*map(text, range(9)), f"fork {n}"))
    line.put(2, x=packed(*map(text, range(9)), "fork 1", "more"))
    assert 5 == sum(record.base is not None for record in line.records().values())
    line.check()


def test_emptied_channel_is_coded_against_its_last_value() -> None:
    """A delta channel empties itself each step: its next snapshot holds the one before."""
    line = Line()
    items = [text(n) for n in range(20)]
    line.put(x=snapshot(*items))
    for n in range(5):
        for _ in range(3):
            line.put(x=None)
        items.append(f"new {n}")
        line.put(x=snapshot(*items))
    wholes = [record for record in line.records().values() if record.base is None]
    assert 1 == len(wholes)
    line.check()


# --- how long chains get ---


def test_append_only_list_never_forces_a_whole_value() -> None:
    """Whole values at intervals would make a conversation quadratic again."""
    line = grown(150)
    large = [r for r in line.records().values() if r.base is None and len(r.body) > 4_000]
    assert [] == large
    line.check()


@pytest.mark.parametrize(("updates", "supersteps"), [(1, None), (5, None), (None, 4), (3, 6)])
def test_append_only_list_stays_cheap_where_runs_are_due(
    updates: int | None, supersteps: int | None
) -> None:
    """Bounds on look-ups merge deltas into runs; they must not store the list again."""
    line = grown(90, updates=updates, supersteps=supersteps)
    large = [r for r in line.records().values() if r.base is None and len(r.body) > 9_000]
    assert [] == large
    line.check()


def test_bytes_of_n_appends_are_linear() -> None:
    """O(N) in all: twice the messages, about twice the bytes."""
    half, full = grown(80).stored_bytes(), grown(160).stored_bytes()
    assert 1.7 * half < full < 2.2 * half
    assert full < 3 * 160 * 300


@pytest.mark.parametrize("updates", [1, 2, 3, 5, 10])
def test_chains_are_no_longer_than_the_bound(updates: int) -> None:
    """A cold read costs a look-up per delta: the caller said how many it may be."""
    line = grown(40, updates=updates, supersteps=None)
    assert {r.base.updates for r in line.records().values() if r.base} == set(range(updates))
    longest = longest_chain(line)
    assert longest <= updates
    line.check()


def longest_chain(line: Line) -> int:
    """Return the most records from a value to the nearest snapshot point, both counted."""
    records = line.records()
    longest = 0
    for record in records.values():
        length, at = 1, record
        while at.base is not None and at.base.updates > 0:
            length += 1
            at = records.get((at.base.cid, at.base.ordinal)) or ValueRecord("", 0, None, b"")
        longest = max(longest, length)
    return longest


def test_spans_are_no_longer_than_the_bound() -> None:
    """A point at least every `supersteps` checkpoints at which the channel is written."""
    line = Line(updates=None, supersteps=6)
    items = [text(n) for n in range(30)]
    for n in range(40):
        line.put()
        if n % 2:
            line.put(x=packed(*items[: 20 + n // 8], n))
    points = [r.point_depth for r in line.records().values()]
    depths = {checkpoint_id(n): n for n in range(line.number + 1)}
    assert len(set(points)) >= line.number // 8
    assert max(depths.values()) - max(points) <= 6
    line.check()


@pytest.mark.parametrize("ratio", [0.1, 0.5, 1.0, 2.0])
def test_bytes_along_a_chain_are_within_the_ratio(ratio: float) -> None:
    """A value that is edited over and over is stored whole once too much of it is superseded."""
    line = Line(ratio=ratio)
    items = [text(n) for n in range(12)]
    for n in range(60):
        items[n % 12] = text(100 + n)
        line.put(x=packed(*items))
    size = len(packed(*items).data)
    records = line.records().values()
    deltas = [r for r in records if r.base is not None]
    assert 0 < len(deltas) < len(records)
    assert max(r.base.stored for r in deltas if r.base) <= (1 + ratio) * size + 50
    line.check()


# --- what a task wrote is stored once ---


def test_message_written_by_a_task_is_stored_once() -> None:
    """The node's message is a write first and part of the channel's value a moment later."""
    line = Line()
    items: list[Any] = [text(n) for n in range(8)]
    cid = line.put(x=packed(*items))
    for n in range(20, 40):
        line.write(cid, ("x", packed(text(n)).data))
        items.append(text(n))
        cid = line.put(x=packed(*items))
    assert [1] * 20 == [line.count(f"<{n}>".encode()) for n in range(20, 40)]
    line.check()


def test_writes_of_several_tasks_and_no_lists_are_stored_once() -> None:
    """Parallel tasks, several writes a task, values that are no list: all are appended."""
    line = Line()
    items: list[Any] = [text(n) for n in range(8)]
    cid = line.put(x=packed(*items))
    for n in range(20, 60, 4):
        line.write(cid, ("x", packed(text(n), text(n + 1)).data), ("y", b"\x01"), task="a")
        line.write(cid, ("y", b"\x01"), ("x", ormsgpack.packb(text(n + 2))), task="b")
        line.write(cid, ("x", packed(text(n + 3)).data), task="c")
        items += map(text, range(n, n + 4))
        cid = line.put(x=packed(*items))
    assert [1] * 40 == [line.count(f"<{n}>".encode()) for n in range(20, 60)]
    line.check()


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_write_that_commits_after_the_put_was_prepared_is_stored_once(cache_bytes: int) -> None:
    """LangGraph waits for neither: the write may come between planning and committing the put."""
    line = Line(cache_bytes)
    items: list[Any] = [text(n) for n in range(8)]
    cid = line.put(x=packed(*items))
    for n in range(20, 30):
        items.append(text(n))
        at = cid
        line.engine.hook = lambda at=at, n=n: line.write(at, ("x", packed(text(n)).data))
        cid = line.put(x=packed(*items))
        assert line.engine.hook is None
    assert [1] * 10 == [line.count(f"<{n}>".encode()) for n in range(20, 30)]
    line.check()


def test_late_write_never_changes_a_stored_value() -> None:
    """The value is made of the writes that were there; one that comes later belongs to nobody."""
    line = Line()
    items: list[Any] = [text(n) for n in range(8)]
    first = line.put(x=packed(*items))
    line.write(first, ("x", packed(text(20)).data), task="b")
    line.put(x=packed(*items, text(20)))
    for task in ("a", "b", "c"):
        line.write(first, ("x", packed(text(30)).data), ("x", packed(text(31)).data), task=task)
    line.put(x=packed(*items, text(20), text(21)))
    assert 1 == line.count(b"<20>")
    line.check()


def test_elements_of_arrays_and_of_anything_else() -> None:
    """A reducer that appends takes a list's elements, or the one thing that was written."""
    for count in (0, 1, 15, 16, 65_535, 65_536):
        body = b"\x01" * count
        assert body == element_bytes(ormsgpack.packb([1] * count))
    for other in (b"", b"\xc0", b"\x81\x01\x02", b"\xa1a"):
        assert other == element_bytes(other)


# --- damage ---


@pytest.mark.damaged
def test_missing_base_is_a_broken_chain() -> None:
    """Never a value from the wrong bytes, and never none."""
    line = grown(30)
    records = line.records()
    cid, ordinal = min(records)
    with line.engine.begin(write=True) as txn:
        key = keys.value_key(keys.log_prefix(1, 1), cid, ordinal)
        assert txn.delete(key)
    cold = Store(line.engine, StoreOptions())
    with pytest.raises(BrokenChainError, match="is gone"):
        cold.get("t", "", None, None)
    assert [] != cold.verify().damage


@pytest.mark.damaged
def test_value_from_another_base_is_never_returned() -> None:
    """A record that was swapped for one with a sound checksum is caught by the digest."""
    line = Line()
    items = [text(n) for n in range(10)]
    for n in range(5):
        line.put(x=packed(*items, n))
    cid, ordinal = min(line.records())
    key = keys.value_key(keys.log_prefix(1, 1), cid, ordinal)
    record = line.records()[cid, ordinal]
    assert b"<0>" in record.body
    forged = record._replace(body=record.body.replace(b"<0>", b"<9>"))
    sealed = frame.seal(key, layout.KIND_VALUE, b"", value_format.encode(forged))
    with line.engine.begin(write=True) as txn:
        txn.put(key, sealed)
    cold = Store(line.engine, StoreOptions())
    with pytest.raises(CorruptionError, match="digest"):
        cold.get("t", "", None, None)
