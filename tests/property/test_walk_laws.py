"""Laws of walks over random trees: a walk that takes short cuts finds what a naive one finds.

A *tree* is put together from stretches of empty checkpoints, forks, ids out of order and of both
forms, early and late writes, parents that come after their children, and checkpoints put again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from deltastore import directory
from deltastore.decoded import Caches
from deltastore.engine.memory import MemoryEngine
from deltastore.format.writes import Row
from deltastore.ids import cid_from_id
from deltastore.log import StreamReader
from deltastore.options import StoreOptions
from deltastore.pending import NewWrites
from deltastore.refill import NewCheckpoint
from deltastore.store import Store
from deltastore.testing.history_laws import ends
from deltastore.testing.strategies import checkpoint_id
from deltastore.types import Typed

CHANNELS = ("a", "b", "c", "never")
Found = tuple[bytes | None, list[bytes]]


class Tree:
    """A stream under construction."""

    def __init__(self) -> None:
        self.engine = MemoryEngine()
        self.store = Store(self.engine, StoreOptions(header_cache_bytes=200_000))
        self.names: list[str] = []
        self.awaited: list[str] = []
        self.counter = 0

    def fresh_name(self, data: st.DataObject) -> str:
        self.counter += 1
        form = data.draw(st.sampled_from("uuuuuust"))
        if form == "u":
            return checkpoint_id(10_000 + self.counter)
        return checkpoint_id(5_000 - self.counter) if form == "s" else f"text {self.counter}"

    def put(self, name: str, parent: str | None, changes: dict[str, bytes | None]) -> None:
        new = {c: None if v is None else Typed("bytes", v) for c, v in changes.items()}
        self.counter += 1
        versions: dict[str, Any] = dict.fromkeys(changes, self.counter)
        made = NewCheckpoint(
            *("t", "", name, parent, {}, versions, {}, {}, new), spare=lambda _: None
        )
        self.store.put(made, None)
        if name not in self.names:
            self.names.append(name)

    def write(self, name: str, channel: str) -> None:
        self.counter += 1
        data = b"%d" % self.counter
        rows = [Row(0, channel, "bytes", None, data)]
        self.store.put(NewWrites("t", "", name, f"task {self.counter}", "", "", rows), None)

    def grow(self, data: st.DataObject) -> None:
        """Change the tree by one drawn step."""
        names = self.names
        near = st.sampled_from(names[-1:] * 3 + names)
        step = data.draw(st.sampled_from(STEPS))
        if step == "stretch":
            at = data.draw(near)
            for _ in range(data.draw(st.sampled_from([2, 9, 20, 40]))):
                self.counter += 1
                name = checkpoint_id(10_000 + self.counter)
                self.put(name, at, {})
                at = name
        elif step == "write":
            self.write(data.draw(near), data.draw(channels))
        elif step == "early":
            name = self.fresh_name(data)
            self.write(name, data.draw(channels))
            self.put(name, data.draw(near), {})
        elif step == "orphan":
            parent = self.fresh_name(data)
            self.awaited.append(parent)
            self.put(self.fresh_name(data), parent, data.draw(changes))
        elif step == "arrive" and self.awaited:
            self.put(self.awaited.pop(), data.draw(near), data.draw(changes))
        elif step == "again":
            self.put(data.draw(near), data.draw(st.none() | near), data.draw(changes))
        else:
            self.put(self.fresh_name(data), data.draw(near), data.draw(changes))

    def naive(self, reader: StreamReader, name: str, channel: str) -> Found:
        """Walk with decoded headers alone: every parent, every write, until a value is shown."""
        writes: list[list[bytes]] = []
        seen = {cid_from_id(name)}
        entry = reader.entry(cid_from_id(name))
        assert entry is not None
        at = entry.header.parent
        while at is not None and at not in seen:
            seen.add(at)
            entry = reader.entry(at)
            if entry is None:
                break
            writes.append(
                [
                    row.data
                    for _, record in reader.writes(at)
                    for row in record.rows
                    if row.channel == channel
                ]
            )
            slot = entry.header.slots.get(channel)
            if slot is not None and slot.value is not None:
                seed = reader.value(slot.value.cid, slot.value.ordinal)
                assert seed.base is None
                return seed.body, [*chain.from_iterable(reversed(writes))]
            at = entry.header.parent
        return None, [*chain.from_iterable(reversed(writes))]

    def check(self, names: Sequence[str], asked: Sequence[str]) -> None:
        """Compare both walks for some targets, warm and with empty caches."""
        for store in (self.store, Store(self.engine)):
            for name in names:
                with ends():
                    found = store.history("t", "", name, asked, None)
                with self.engine.begin(write=False) as txn:
                    stream = directory.find_stream(txn, "t", "")
                    assert stream is not None
                    reader = StreamReader(txn, stream, None, Caches(64, 0))
                    for channel in asked:
                        seed, writes = found[channel]
                        told = seed and seed.data, [write.value.data for write in writes]
                        assert self.naive(reader, name, channel) == told


STEPS: tuple[str, ...] = (
    "put",
    "put",
    "put",
    "stretch",
    "stretch",
    "write",
    "write",
    "write",
    "early",
    "orphan",
)
STEPS += ("arrive", "again")
channels = st.sampled_from(CHANNELS[:3])
changes = st.dictionaries(channels, st.none() | st.binary(min_size=1, max_size=3), max_size=1)
subsets = st.lists(st.sampled_from(CHANNELS), min_size=1, max_size=4, unique=True)


def grown(data: st.DataObject) -> Tree:
    tree = Tree()
    tree.put(tree.fresh_name(data), None, data.draw(changes))
    for _ in range(data.draw(st.integers(1, 14))):
        tree.grow(data)
    return tree


@settings(max_examples=60)
@given(st.data(), subsets)
def test_walk_finds_exactly_what_a_naive_walk_finds(data: st.DataObject, asked: list[str]) -> None:
    """For any channels, whatever was late, early, orphaned, forked, skewed or put again."""
    tree = grown(data)
    targets = data.draw(st.lists(st.sampled_from(tree.names), max_size=4, unique=True))
    tree.check([tree.names[-1], *targets], asked)
    assert [] == tree.store.verify().damage


@settings(max_examples=40)
@given(st.data())
def test_walk_of_all_channels_equals_the_walks_of_each(data: st.DataObject) -> None:
    """Channels end their walks one by one; none may end or prolong another's."""
    tree = grown(data)
    target = data.draw(st.sampled_from(tree.names))
    together = tree.store.history("t", "", target, CHANNELS, None)
    alone = {c: tree.store.history("t", "", target, [c], None)[c] for c in CHANNELS}
    assert alone == together
