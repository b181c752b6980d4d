"""Anchors: what stands in the place of a dropped checkpoint whose children stay.

An *anchor* keeps the id of the dropped parent, so nothing in its children changes. It shows what a
walk from them would have found in the dropped ancestors: per channel the *seed*, and the *folded*
writes from the seed on. Its parent is the nearest ancestor that stays. It is never listed.

Channels that every child shows need nothing from it: they are *left out*, which the anchor says by
a blank slot, so that a checkpoint put on it later is not taken to have no history there. A slot
with both a value and `emptied` holds a seed from further up: under the version the anchor has of
the channel, what it stands for showed none.

Planned in a view, written in a transaction. Rules and their reasons: docs/invariants.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from deltastore import ancestry, log
from deltastore.decoded import FOLDED, HeaderEntry, Link, StoredWrites
from deltastore.format import frame, keys, layout
from deltastore.format import writes as writes_format
from deltastore.format.header import Header, Slot, ValueRef
from deltastore.format.writes import WritesRecord
from deltastore.ids import id_from_cid
from deltastore.log import StreamReader
from deltastore.reconstruct import whole_rows
from deltastore.refill import NO_SLOT, PRUNED
from deltastore.survey import Node
from deltastore.values import Values, shown

IS_ANCHOR: Final = "deltastore_anchor"  # in the metadata of what an anchor shows
# LangGraph's own channels: no history of them is ever asked for.
OWN_CHANNELS: Final = frozenset(
    "__start__ __input__ __pregel_tasks __error__ __error_source_node__ __interrupt__ __resume__ "
    "__scheduled__ __no_writes__ __return__ __previous__".split()
)
_FIELDS: Final = ("v", "ts")
_FOLDED_BYTES: Final = 64 << 10  # of writes in one record, so that they compress together


@dataclass(frozen=True, slots=True)
class AnchorPlan:
    """An anchor to be written.

    Attributes:
        cid: Of the dropped checkpoint.
        header: Its own: parent, seeds, and what it shows.
        folded: Writes of dropped ancestors, oldest first.
        own: The dropped checkpoint's own writes that change, by suffix; None for those that go.
    """

    cid: bytes
    header: Header
    folded: list[WritesRecord]
    own: dict[int, WritesRecord | None]

    def seeds(self) -> list[ValueRef]:
        """Return the values it shows."""
        return [slot.value for slot in self.header.slots.values() if slot.value is not None]


def plan_anchor(
    reader: StreamReader,
    values: Values,
    nodes: Mapping[bytes, Node],
    late: Set[bytes],
    cid: bytes,
    children: Sequence[Header],
    is_kept: Callable[[bytes], bool],
) -> AnchorPlan:
    """Plan the anchor in the place of a checkpoint that goes, or of an older anchor.

    Args:
        nodes: The stream as it was surveyed.
        late: Checkpoints marked for writes that came late.
        children: Headers of its children that stay, at least one.
        is_kept: Whether a checkpoint stays; False for every anchor.

    Cost: a walk over the dropped ancestors, and the bytes of the writes that are folded.
    """
    entry = reader.entry(cid)
    assert entry is not None
    region, above = _dropped(reader, nodes, cid, is_kept)
    first, root = reader.link(cid), None if above is None else reader.link(above)
    assert first is not None
    names = _names(reader, late, cid, entry, region)
    present = set.intersection(*map(shown_channels, children))
    groups: list[tuple[bytes, list[StoredWrites]]] = []

    def collect(at: bytes, wanted: set[str]) -> bool:
        found = []
        for suffix, record in reader.writes(at):
            rows = tuple(row for row in record.rows if row.channel in wanted)
            if rows:
                rows = whole_rows(reader, values, at, record._replace(rows=rows))
                found.append(StoredWrites(suffix, record._replace(rows=rows)))
        groups.append((at, found))
        return bool(found)

    sought = names - OWN_CHANNELS - present
    seeds = ancestry.walk(reader, b"", first, sought, collect, root)
    left_out = (names & present) | (_left_out(reader, nodes, region) - set(seeds))
    folded = sought - left_out
    slots = _slots(reader, entry, folded, seeds, root)
    slots.update(dict.fromkeys(sorted(left_out - OWN_CHANNELS), NO_SLOT))
    header = _header(cid, entry.header, root, folded, slots)
    older = [
        _only(record, folded)
        for at, found in reversed(groups)
        for suffix, record in found
        if at != cid or suffix == FOLDED
    ]
    own: dict[int, WritesRecord | None] = {}
    for suffix, record in reader.own_writes(cid):
        stays = _only(record, folded)
        stays = stays._replace(rows=whole_rows(reader, values, cid, stays))
        if not stays.rows:
            own[suffix] = None
        elif stays != record:
            own[suffix] = stays
    return AnchorPlan(cid, header, [one for one in older if one.rows], own)


def apply_anchor(reader: StreamReader, plan: AnchorPlan) -> None:
    """Write an anchor; the header it takes the place of is the caller's to delete."""
    prefix, txn = reader.stream.prefix, reader.txn
    log.put_anchor(reader, plan.cid, plan.header)
    _delete_folded(reader, plan.cid)
    for place, records in enumerate(chunks(plan.folded)):
        key = keys.folded_key(prefix, plan.cid, place)
        payload = writes_format.encode_folded(records)
        txn.put(key, frame.seal(key, layout.KIND_FOLDED, b"", payload, reader.cipher))
    for suffix, record in plan.own.items():
        key = keys.writes_key(prefix, plan.cid, suffix)
        if record is None:
            txn.delete(key)
        else:
            log.put_writes(reader, key, record)
    # Headers below do not know the writes that moved here: no walk may jump past it.
    ancestry.mark_late(reader, plan.header.depth, plan.cid)


def delete_anchor(reader: StreamReader, cid: bytes) -> None:
    """Delete an anchor and its folded writes; its own writes are the caller's."""
    reader.txn.delete(keys.anchor_key(reader.stream.prefix, cid))
    _delete_folded(reader, cid)


def _delete_folded(reader: StreamReader, cid: bytes) -> None:
    prefix = reader.stream.prefix + cid + bytes([layout.KIND_FOLDED])
    for key in reader.txn.scan_keys(prefix, keys.after(prefix)):
        reader.txn.delete(key)


def chunks(records: Sequence[WritesRecord]) -> list[list[WritesRecord]]:
    """Return folded writes as they share records."""
    found: list[list[WritesRecord]] = []
    size = _FOLDED_BYTES
    for record in records:
        if size >= _FOLDED_BYTES:
            found.append([])
            size = 0
        found[-1].append(record)
        size += sum(len(row.data) for row in record.rows)
    return found


def _dropped(
    reader: StreamReader,
    nodes: Mapping[bytes, Node],
    cid: bytes,
    is_kept: Callable[[bytes], bool],
) -> tuple[list[bytes], bytes | None]:
    """Return the checkpoint and its ancestors that go, nearest first, and the first that stays.

    A gap stays: what is beyond it is not known.
    """
    region: dict[bytes, None] = {}
    at: bytes | None = cid
    while at is not None and at not in region:
        if is_kept(at):
            return list(region), at
        region[at] = None
        above = nodes[at].parent
        if above is not None and above in nodes and nodes[above].is_gap:
            return list(region), above
        if above is not None and (above not in nodes or not nodes[above].kind):
            link = reader.link(at)
            assert link is not None
            above = None if ancestry.parent_link(reader, at, link.clear) is None else above
        at = above
    return list(region), None


def _names(
    reader: StreamReader,
    late: Set[bytes],
    cid: bytes,
    entry: HeaderEntry,
    region: Sequence[bytes],
) -> set[str]:
    """Return every channel that the dropped checkpoints hold writes or values of.

    A header has a slot for each channel its ancestors held anything of, but for writes that came
    late; those are marked.
    """
    names = {row.channel for one in reader.writes(cid) for row in one.record.rows}
    names.update(entry.header.slots)
    unhinted = ancestry.is_unhinted(reader)
    for at in region if unhinted else late & set(region):
        names.update(row.channel for one in reader.writes(at) for row in one.record.rows)
        if unhinted:
            other = reader.entry(at)
            names.update(() if other is None else other.header.slots)
    return names


def shown_channels(header: Header) -> set[str]:
    """Return the channels a checkpoint shows a value of; their history is not asked of it."""
    return {channel for channel in header.versions if header.slots[channel].value is not None}


def _left_out(
    reader: StreamReader, nodes: Mapping[bytes, Node], region: Sequence[bytes]
) -> set[str]:
    """Return what older anchors among the dropped had left out."""
    found: set[str] = set()
    for cid in region:
        if nodes[cid].kind == layout.KIND_ANCHOR:
            entry = reader.entry(cid)
            assert entry is not None
            found.update(c for c, slot in entry.header.slots.items() if slot == NO_SLOT)
    return found


def _only(record: WritesRecord, channels: set[str]) -> WritesRecord:
    return record._replace(rows=tuple(row for row in record.rows if row.channel in channels))


def _slots(
    reader: StreamReader,
    entry: HeaderEntry,
    folded: set[str],
    seeds: dict[str, bytes],
    root: Link | None,
) -> dict[str, Slot]:
    """Return the anchor's slots: its seeds, and hints to what lies beyond the dropped ancestors."""
    above: dict[str, Slot] = {}
    written: set[str] = set()
    if root is not None and root.clear.is_lost:
        written = folded - set(seeds)  # so that a walk goes there, and is told
    elif root is not None:
        at_root = reader.entry(root.cid)
        assert at_root is not None
        above = at_root.header.slots
        written = {row.channel for one in reader.writes(root.cid) for row in one.record.rows}
    slots = {}
    for channel in sorted(folded):
        value = shown(reader, seeds[channel], channel) if channel in seeds else None
        old, far = entry.header.slots.get(channel, NO_SLOT), above.get(channel, NO_SLOT)
        shows = old.value is not None and not old.emptied
        seed = None
        if value is None and root is not None:
            seed = root.cid if far.value is not None else far.seed
        writer = root.cid if root is not None and channel in written else far.writer
        emptied = channel in entry.header.versions and not shows
        slot = Slot(value, emptied, seed, writer)
        if slot != NO_SLOT:
            slots[channel] = slot
    return slots


def _header(
    cid: bytes, old: Header, root: Link | None, folded: set[str], slots: dict[str, Slot]
) -> Header:
    metadata: dict[str, Any] = {
        key: old.metadata[key] for key in ("source", "step") if key in old.metadata
    }
    return Header(
        parent=None if root is None else root.cid,
        parent_stored=root is not None,
        depth=old.depth,
        fields={key: old.fields[key] for key in _FIELDS if key in old.fields},
        versions={c: version for c, version in old.versions.items() if c in folded},
        seen={PRUNED: {"id": id_from_cid(cid)}},
        metadata={**metadata, "parents": {}, IS_ANCHOR: True},
        slots=slots,
        inline={},
    )
