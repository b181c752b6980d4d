"""What a thread is made of: bytes by namespace, kind of record and channel; lengths of chains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from deltastore import directory, merging, reclaim
from deltastore.engine.api import Transaction
from deltastore.format import keys, layout
from deltastore.format.writes import WritesRecord
from deltastore.log import StreamReader
from deltastore.merging import Place
from deltastore.options import SnapshotBounds
from deltastore.plans import Progress
from deltastore.session import Session
from deltastore.survey import Node, measure, survey
from deltastore.types import Cipher

_PAGE: Final = 1_000
_UNBOUNDED: Final = SnapshotBounds(updates=None, supersteps=None)
_KINDS: Final = {
    layout.KIND_HEADER: "headers",
    layout.KIND_VALUE: "values",
    layout.KIND_WRITES: "writes",
    layout.KIND_ANCHOR: "anchors",
    layout.KIND_FOLDED: "folded",
}


@dataclass(frozen=True, slots=True)
class KindStats:
    """Records of one kind: how many, and their bytes as stored, keys included.

    Kinds are "headers", "values", "writes", "anchors", "folded" (writes kept at anchors).
    """

    kind: str
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ChannelStats:
    """One channel of a namespace.

    Attributes:
        channel: Its name; "" also for values that no checkpoint shows and others are coded against.
        values: Values with a record of their own.
        value_bytes: Bytes of these records as stored, keys included.
        inline: Values that lie in headers.
        writes: Writes to it, folded ones included.
        write_bytes: Their share of the records they are in, by size before compression.
        chain_max: Deltas that a read of its worst value follows down to a snapshot point.
    """

    channel: str
    values: int
    value_bytes: int
    inline: int
    writes: int
    write_bytes: int
    chain_max: int


@dataclass(frozen=True, slots=True)
class NamespaceStats:
    """One namespace of a thread; bytes of `kinds` add up to `bytes`.

    Attributes:
        checkpoint_ns: Which.
        checkpoints: Stored checkpoints.
        records, bytes: Of the log, keys included.
        depth_max: Ancestors of its deepest checkpoint.
        kinds: Those there are.
        channels: By name.
    """

    checkpoint_ns: str
    checkpoints: int
    records: int
    bytes: int
    depth_max: int
    kinds: tuple[KindStats, ...]
    channels: tuple[ChannelStats, ...]


@dataclass(frozen=True, slots=True)
class ThreadStats:
    """What a thread is made of; no namespaces where nothing is stored.

    Attributes:
        thread_id: Which.
        namespaces: In the order their first writes came.
        other_records, other_bytes: Names, marks and secrets of the thread, outside the log.
    """

    thread_id: str
    namespaces: tuple[NamespaceStats, ...]
    other_records: int
    other_bytes: int

    @property
    def records(self) -> int:
        """All records of the thread."""
        return self.other_records + sum(one.records for one in self.namespaces)

    @property
    def bytes(self) -> int:
        """Their bytes, keys included."""
        return self.other_bytes + sum(one.bytes for one in self.namespaces)


def thread_stats(
    session: Session, thread_id: str, cipher: Cipher | None, progress: Progress
) -> ThreadStats:
    """Return what a thread is made of; see `Store.thread_stats`."""
    with session.view() as txn:
        streams = directory.streams(txn, thread_id)
        if not streams:
            return ThreadStats(thread_id, (), 0, 0)
        readers = [session.reader(txn, stream, cipher) for stream in streams]
        surveys = [survey(reader) for reader in readers]
        total = sum(node.records for nodes in surveys for node in nodes.values())
        done = 0

        def step(records: int) -> None:
            nonlocal done
            done += records
            progress(done, total)

        found = [
            _Namespace(reader, nodes).stats(step)
            for reader, nodes in zip(readers, surveys, strict=True)
        ]
        other = _other(txn, streams[0].thread)
    return ThreadStats(thread_id, tuple(found), *other)


def _other(txn: Transaction, thread: int) -> tuple[int, int]:
    tags = [tag for tag in reclaim.TAGS if tag != layout.TAG_LOG]
    sizes = [measure(txn, keys.thread_prefix(tag, thread)) for tag in tags]
    return sum(records for records, _ in sizes), sum(size for _, size in sizes)


@dataclass(slots=True)
class _Channel:
    values: int = 0
    value_bytes: int = 0
    inline: int = 0
    writes: int = 0
    write_bytes: int = 0
    chain_max: int = 0


@dataclass(slots=True)
class _Namespace:
    """One namespace while it is read."""

    reader: StreamReader
    nodes: Mapping[bytes, Node]
    kinds: dict[int, list[int]] = field(default_factory=dict)
    channels: dict[str, _Channel] = field(default_factory=dict)

    def stats(self, step: Callable[[int], None]) -> NamespaceStats:
        named = merging.channels_of(self.reader, self.nodes)
        self._scan(step)
        self._place_values(named)
        chains = merging.measure_chains(self.reader, self.nodes, _UNBOUNDED, named)
        for channel, chain in chains.items():
            self._channel(channel).chain_max = chain.chain_max
        nodes = self.nodes.values()
        return NamespaceStats(
            self.reader.stream.checkpoint_ns,
            checkpoints=sum(1 for node in nodes if node.kind == layout.KIND_HEADER),
            records=sum(node.records for node in nodes),
            bytes=sum(node.bytes for node in nodes),
            depth_max=max((node.depth for node in nodes), default=0),
            kinds=tuple(
                KindStats(_KINDS[kind], *self.kinds[kind]) for kind in _KINDS if kind in self.kinds
            ),
            channels=tuple(
                ChannelStats(
                    name,
                    one.values,
                    one.value_bytes,
                    one.inline,
                    one.writes,
                    one.write_bytes,
                    one.chain_max,
                )
                for name, one in sorted(self.channels.items())
            ),
        )

    def _channel(self, name: str) -> _Channel:
        return self.channels.setdefault(name, _Channel())

    def _scan(self, step: Callable[[int], None]) -> None:
        reader, prefix = self.reader, self.reader.stream.prefix
        start, stop = prefix, keys.after(prefix)
        while page := reader.txn.scan(start, stop, limit=_PAGE):
            for key, record in page:
                place = keys.split(key)
                size = len(key) + len(record)
                counted = self.kinds.setdefault(place.kind, [0, 0])
                counted[0] += 1
                counted[1] += size
                if place.kind == layout.KIND_WRITES:
                    self._share([reader.decode_writes(key, record, place.cid)], size)
                elif place.kind == layout.KIND_FOLDED:
                    folded = reader.decode_folded(key, record, place.cid)
                    self._share([one.record for one in folded], size)
            start = page[-1][0] + b"\x00"
            step(len(page))

    def _share(self, records: Iterable[WritesRecord], size: int) -> None:
        """Share a record's bytes among the channels written to, so that all add up."""
        rows = [(row.channel, len(row.data) + 1) for record in records for row in record.rows]
        left, weights = size, sum(weight for _, weight in rows)
        for channel, weight in rows:
            share = left * weight // weights
            left, weights = left - share, weights - weight
            one = self._channel(channel)
            one.writes += 1
            one.write_bytes += share

    def _place_values(self, named: Mapping[Place, str]) -> None:
        for cid, node in self.nodes.items():
            for ordinal, size in node.values.items():
                one = self._channel(named.get((cid, ordinal), ""))
                one.values += 1
                one.value_bytes += size
        for (cid, ordinal), channel in named.items():
            at = self.nodes.get(cid)
            if at is not None and ordinal not in at.values:
                self._channel(channel).inline += 1
