"""Stored values: rebuild one from its chain of deltas, and plan how the next one is stored.

A *chain* of values ends in a whole one. `load` follows it, applies the deltas and checks the digest
of what comes out, so a wrong base can never yield a wrong value. `plan` decides between a pointer,
inline, a delta, a run (a delta to the last snapshot point) and a whole value, under SnapshotBounds.

Bytes of values are cached, never decoded objects. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from deltastore.cache import WeightedCache
from deltastore.errors import BrokenChainError, CorruptionError, DecryptionError
from deltastore.format import delta
from deltastore.format import value as value_format
from deltastore.format.header import Slot, ValueRef
from deltastore.format.value import Base, Source, ValueRecord
from deltastore.format.writes import Row
from deltastore.log import StreamReader
from deltastore.options import SnapshotBounds
from deltastore.types import Typed

INLINE_BYTES_MAX: Final = 200
INLINE_WITHOUT_BASE_BYTES_MAX: Final = 1_024
_RECORD_OVERHEAD: Final = 80  # bytes a record of its own costs: key, page slot, frame, base
EXTENSION_BYTES_MIN: Final = 120  # below this a delta is not worth a look at the writes
_SOURCE_BYTES: Final = 12
_CHAIN_MAX: Final = 1 << 20
_ENTRY_WEIGHT: Final = 300  # bytes an entry costs beside the value's own


class Loaded(NamedTuple):
    """A value's bytes, and how its chain stands.

    Attributes:
        typed: The value.
        digest: Of its bytes.
        updates: Deltas since the last snapshot point.
        stored: Bytes of all bodies along the chain.
        point_depth: Depth of the checkpoint of the last snapshot point.
    """

    typed: Typed
    digest: int
    updates: int
    stored: int
    point_depth: int


class AtHand(NamedTuple):
    """A value that a checkpoint shows, and that costs no look-up."""

    channel: str
    ref: ValueRef
    loaded: Loaded


class Extension(NamedTuple):
    """Stored writes that a value may be coded against besides its base.

    Attributes:
        sources: Where they are.
        data: Their elements' bytes, one after the other; see `element_bytes`.
    """

    sources: tuple[Source, ...]
    data: bytes


class Plan(NamedTuple):
    """How a new value is stored: `ref` to one that is there, else `record`, else inline.

    `loaded` is what to cache once it is stored; its `typed` is the value itself. `base_size` is the
    size of the base's bytes where `record` is a delta.
    """

    ref: ValueRef | None
    record: ValueRecord | None
    loaded: Loaded
    base_size: int = 0


@dataclass(slots=True)
class Values:
    """Loads and plans values; shared by all streams of a store.

    Attributes:
        cache: Bytes of values, never more than `cache_bytes` of them.
    """

    bounds: SnapshotBounds
    cache_bytes: int
    cache: WeightedCache[tuple[Loaded, object]] = field(init=False)

    def __post_init__(self) -> None:
        self.cache = WeightedCache(self.cache_bytes)

    def load(self, reader: StreamReader, ref: ValueRef) -> Loaded:
        """Return the value a reference names.

        Cost: one look-up per delta of its chain when it is not cached, at most `bounds.updates`
        and one per run.

        Raises:
            CorruptionError: The chain is damaged or broken, or yields other bytes than were stored.
        """
        if ref.digest is None:  # inline: its header is cached, and names it by place alone
            return self.rebuild(reader, ref.cid, ref.ordinal)
        hit = self.cache.get(_cache_key(reader, ref.cid, ref.ordinal))
        if hit is not None and hit[0].digest == ref.digest:
            return hit[0]
        loaded = self.rebuild(reader, ref.cid, ref.ordinal)
        if loaded.digest != ref.digest:
            error = CorruptionError(
                f"value {ref.ordinal} has digest {loaded.digest:#010x}, its reference says "
                f"{ref.digest:#010x}"
            )
            raise reader.locate(error, ref.cid)
        self.keep(reader, ref.cid, ref.ordinal, loaded)
        return loaded

    def rebuild(self, reader: StreamReader, cid: bytes, ordinal: int) -> Loaded:
        """Return a value by its place, from the log alone but for bases that are cached."""
        top = reader.value(cid, ordinal)
        deltas: list[bytes] = []
        extensions: list[bytes] = []
        record, at, number = top, cid, ordinal
        while record.base is not None:
            if len(deltas) > _CHAIN_MAX:
                raise reader.locate(CorruptionError("chain of deltas without an end"), cid)
            base = record.base
            deltas.append(record.body)
            extensions.append(self._sources(reader, base.sources))
            hit = self.cache.get(_cache_key(reader, base.cid, base.ordinal))
            if hit is not None and hit[0].digest == base.digest:
                data = hit[0].typed.data
                break
            at, number = base.cid, base.ordinal
            record = reader.value(at, number)
        else:
            data = record.body
        try:
            if deltas:
                data = delta.apply(data, deltas[::-1], extensions[::-1])
        except CorruptionError as error:
            raise reader.locate(error, cid) from None
        updates = top.base.updates if top.base is not None else 0
        stored = top.base.stored if top.base is not None else len(data)
        digest = value_format.digest(data)
        return Loaded(Typed(top.type, data), digest, updates, stored, top.point_depth)

    def _sources(self, reader: StreamReader, sources: tuple[Source, ...]) -> bytes:
        """Return the elements of the writes that extend a delta's base."""
        found = []
        for source in sources:
            row = reader.source(source)
            found.append(element_bytes(self.row(reader, source.cid, row).data))
        return b"".join(found)

    def row(self, reader: StreamReader, cid: bytes, row: Row) -> Typed:
        """Return the value of a write stored at `cid`."""
        if row.base is None:
            return Typed(row.type, row.data)
        base = self.load(reader, shown(reader, cid, row.base.channel))
        try:
            if base.digest != row.base.digest:
                raise CorruptionError(
                    f"a write of {row.channel!r} is a delta to a value of {row.base.channel!r} "
                    f"with digest {row.base.digest:#010x}; the one there has {base.digest:#010x}"
                )
            return Typed(row.type, delta.apply(base.typed.data, [row.data]))
        except CorruptionError as error:
            raise reader.locate(error, cid) from None

    def keep(self, reader: StreamReader, cid: bytes, ordinal: int, loaded: Loaded) -> None:
        """Cache a value that is stored, or was just committed."""
        weight = len(loaded.typed.data) + _ENTRY_WEIGHT
        self.cache.put(_cache_key(reader, cid, ordinal), (loaded, reader.cipher), weight)

    def supersede(self, reader: StreamReader, ref: ValueRef) -> None:
        """Forget a value whose successor was just cached: a conversation needs only its newest."""
        self.cache.drop(_cache_key(reader, ref.cid, ref.ordinal))

    def at_hand(self, reader: StreamReader, ref: ValueRef) -> Loaded | None:
        """Return a value that has a record of its own, if that costs no look-up.

        Not an inline one: reading it means decoding headers, which may cost more than it saves.
        """
        hit = self.cache.get(_cache_key(reader, ref.cid, ref.ordinal))
        return hit[0] if hit is not None and hit[0].digest == ref.digest else None

    def plan_first(self, typed: Typed, depth: int) -> Plan:
        """As `plan`, for a stream that holds nothing to be coded against."""
        whole = _whole(typed, depth)
        if len(typed.data) <= INLINE_WITHOUT_BASE_BYTES_MAX:
            return Plan(None, None, whole)
        return Plan(None, ValueRecord(typed.type, depth, None, typed.data), whole)

    def plan(
        self, reader: StreamReader, typed: Typed, base_ref: ValueRef | None, depth: int
    ) -> Plan:
        """Decide how a channel's new value is stored at a checkpoint of depth `depth`.

        Args:
            base_ref: The channel's value at the nearest ancestor that shows one; None for none.

        Cost: the comparison and difference of two byte strings, a fraction of serializing them.
        """
        whole = _whole(typed, depth)
        if len(typed.data) <= INLINE_BYTES_MAX:
            return Plan(None, None, whole)
        base = None if base_ref is None else self._base(reader, base_ref)
        if base is not None and base_ref is not None and base.typed.type == typed.type:
            if base.typed.data == typed.data:
                return Plan(base_ref, None, base)
            plan = self._against(reader, whole, base, base_ref, depth)
            if plan is not None:
                return plan
        return self.plan_first(typed, depth)

    def plan_on_another(
        self, reader: StreamReader, typed: Typed, slots: Mapping[str, Slot], depth: int
    ) -> Plan | None:
        """As `plan`, for a value with no predecessor that it resembles; None if no other is better.

        A call that carries the state resembles the state. Cost: as `plan`, if one is at hand.
        """
        found = largest_like(typed, self.at_hand_of(reader, slots))
        if found is None:
            return None
        return self._against(reader, _whole(typed, depth), found.loaded, found.ref, depth)

    def at_hand_of(self, reader: StreamReader, slots: Mapping[str, Slot]) -> list[AtHand]:
        """Return the values shown that are at hand."""
        refs = [(channel, slot.value) for channel, slot in slots.items() if slot.value is not None]
        found = [(channel, ref, self.at_hand(reader, ref)) for channel, ref in refs]
        return [AtHand(channel, ref, at) for channel, ref, at in found if at is not None]

    def point(self, reader: StreamReader, cid: bytes, ordinal: int, depth: int) -> ValueRecord:
        """Return the record that stores a value anew as a snapshot point: a run, or the whole."""
        record = reader.value(cid, ordinal)
        whole = _whole(self.rebuild(reader, cid, ordinal).typed, depth)
        run = None
        if record.base is not None:
            below = ValueRef(record.base.cid, record.base.ordinal, record.base.digest)
            run = self._run(reader, whole, below, depth)
        return run or ValueRecord(record.type, depth, None, whole.typed.data)

    def _base(self, reader: StreamReader, ref: ValueRef) -> Loaded | None:
        # Only to diff against: with a key that does not open it, or damage, store the value whole.
        # The damage is still there for whoever reads that value.
        try:
            return self.load(reader, ref)
        except (DecryptionError, CorruptionError):
            return None

    def _against(
        self, reader: StreamReader, whole: Loaded, base: Loaded, ref: ValueRef, depth: int
    ) -> Plan | None:
        """Plan a value as a delta to a certain one; None where that does not halve it."""
        record = self._delta(reader, whole, base, ref, depth)
        if record is None or record.base is None:
            return None
        updates, stored = record.base.updates, record.base.stored
        loaded = Loaded(whole.typed, whole.digest, updates, stored, record.point_depth)
        return Plan(None, record, loaded, len(base.typed.data))

    def _delta(
        self, reader: StreamReader, whole: Loaded, base: Loaded, ref: ValueRef, depth: int
    ) -> ValueRecord | None:
        data = whole.typed.data
        body = delta.diff(base.typed.data, data)
        if len(body) + _RECORD_OVERHEAD > len(data) // 2:
            return None
        stored = base.stored + len(body)
        if self._superseded(stored, len(data)):
            return None
        updates = base.updates + 1
        if self._due(updates, depth - base.point_depth):
            return self._run(reader, whole, ref, depth)
        link = Base(ref.cid, ref.ordinal, base.digest, updates, stored)
        return ValueRecord(whole.typed.type, base.point_depth, link, body)

    def _run(
        self, reader: StreamReader, whole: Loaded, ref: ValueRef, depth: int
    ) -> ValueRecord | None:
        """Merge the chain into one delta to its snapshot point; None if whole is as good."""
        cid, ordinal = ref.cid, ref.ordinal
        record = reader.value(cid, ordinal)
        while record.base is not None and record.base.updates > 0:
            cid, ordinal = record.base.cid, record.base.ordinal
            record = reader.value(cid, ordinal)
        point = self.rebuild(reader, cid, ordinal)
        data = whole.typed.data
        body = delta.diff(point.typed.data, data)
        stored = point.stored + len(body)
        if len(body) + _RECORD_OVERHEAD > len(data) // 2 or self._superseded(stored, len(data)):
            return None
        link = Base(cid, ordinal, point.digest, 0, stored)
        return ValueRecord(whole.typed.type, depth, link, body)

    def _superseded(self, stored: int, size: int) -> bool:
        return stored > (1 + self.bounds.ratio) * size

    def _due(self, updates: int, supersteps: int) -> bool:
        bounds = self.bounds
        return (bounds.updates is not None and updates >= bounds.updates) or (
            bounds.supersteps is not None and supersteps >= bounds.supersteps
        )


def largest_like(typed: Typed, found: Iterable[AtHand]) -> AtHand | None:
    """Return the largest value that another may resemble: of its type, and of about its size.

    A small base cannot halve a large value, and a far larger one rarely resembles it.
    """
    size = len(typed.data)
    alike = [
        one
        for one in found
        if one.loaded.typed.type == typed.type
        and size // 4 <= len(one.loaded.typed.data) <= 4 * size
    ]
    return max(alike, key=lambda one: len(one.loaded.typed.data), default=None)


def _whole(typed: Typed, depth: int) -> Loaded:
    return Loaded(typed, value_format.digest(typed.data), 0, len(typed.data), depth)


def _cache_key(reader: StreamReader, cid: bytes, ordinal: int) -> Hashable:
    return reader.stream.prefix, cid, ordinal, id(reader.cipher)


def shared(record: ValueRecord, base_size: int, longer: Extension) -> ValueRecord | None:
    """Return a delta's record without the bytes that stored writes provide; None if none pays."""
    base = record.base
    if base is None or base.sources:
        return None
    body = delta.share(record.body, base_size, longer.data)
    if body is None or len(body) + _SOURCE_BYTES * len(longer.sources) >= len(record.body) // 2:
        return None
    return record._replace(body=body, base=base._replace(sources=longer.sources))


def element_bytes(data: bytes) -> bytes:
    """Return the bytes of a MessagePack array's elements, or all of `data` if it is none."""
    first = data[0] if data else 0
    if first >> 4 == 0x9:
        return data[1:]
    if first == 0xDC:
        return data[3:]
    return data[5:] if first == 0xDD else data


def shown(reader: StreamReader, cid: bytes, channel: str) -> ValueRef:
    """Return the reference to the value a checkpoint shows for a channel.

    Raises:
        BrokenChainError: The checkpoint is gone, or shows none, though something relies on it.
    """
    entry = reader.entry(cid)
    slot = None if entry is None else entry.header.slots.get(channel)
    if slot is None or slot.value is None:
        error = BrokenChainError(f"channel {channel!r} has no value here, though one is relied on")
        raise reader.locate(error, cid)
    return slot.value
