"""Plan a checkpoint: what it shows for each channel, and how its new values are stored.

The rule of what a checkpoint shows ("refill", docs/invariants.md I1) is here alone: the value that
comes with a new version, else what the parent shows under the same version, else a value given all
the same, else what the nearest checkpoint with that version shows.

Reads in a view; writes nothing. `deltastore.append` stores what is planned here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from deltastore.decoded import HeaderEntry
from deltastore.errors import InvalidArgumentError, PrunedCheckpointError
from deltastore.format import frame, keys, layout
from deltastore.format.header import Header, Slot, ValueRef
from deltastore.format.value import ValueRecord
from deltastore.ids import FORM_TEXT, FORM_ULID, cid_from_id
from deltastore.log import StreamReader
from deltastore.types import Typed, Version
from deltastore.values import Loaded, Values

Spare = Callable[[str], Typed | None]

VALUES_MAX: Final = 65_536
PRUNED: Final = "__pruned__"  # in versions_seen of what an anchor shows, and so of what is built on
NO_SLOT: Final = Slot()
_INLINE_TOTAL_BYTES_MAX: Final = 1_400
_PAGE: Final = 64


@dataclass(frozen=True, slots=True)
class NewCheckpoint:
    """A checkpoint to store, its values serialized.

    Attributes:
        fields: The checkpoint's keys but id, channel_values, channel_versions and versions_seen.
        new: Channels with a new version: the value, or None for one that was emptied.
        spare: Serializes the value given for a channel without a new version; None if none was.
    """

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    fields: dict[str, Any]
    versions: dict[str, Version]
    seen: dict[str, dict[str, Version]]
    metadata: dict[str, Any]
    new: Mapping[str, Typed | None]
    spare: Spare


@dataclass(slots=True)
class OwnValue:
    """A value the new checkpoint stores itself."""

    channel: str
    record: ValueRecord | None  # None: inline
    loaded: Loaded
    supersedes: ValueRef | None
    base_size: int  # bytes of the base, where `record` is a delta


@dataclass(slots=True)
class PreparedCheckpoint:
    """What `apply_checkpoint` needs. `replaces` means that the id is stored already.

    `relied` has the checksums of the headers, beside the parent's, that show the values referred
    to: a header changes when a value it shows is replaced, and vouches for no other.
    """

    new: NewCheckpoint
    cid: bytes
    parent: HeaderEntry | None
    replaces: bool
    header: Header  # slots lack the writer hints
    own: list[OwnValue]
    relied: dict[bytes, int] = field(default_factory=dict)
    crossed: bool = False  # a value shown is none that the parent shows


def prepare_checkpoint(
    reader: StreamReader | None, values: Values, new: NewCheckpoint, *, spare: Spare | None = None
) -> PreparedCheckpoint:
    """Plan how a checkpoint is stored.

    Args:
        reader: None where the stream does not exist yet.
        spare: Takes the place of `new.spare`.

    Raises:
        PrunedCheckpointError: It is built on a pruned checkpoint, or on an anchor without what it
            carries over.
    """
    if PRUNED in new.seen:
        pruned = new.seen[PRUNED].get("id")
        raise _pruned(new, f"it was built on checkpoint {pruned!r}, which has been pruned")
    cid = cid_from_id(new.checkpoint_id)
    parent_cid = cid_from_id(new.parent_id) if new.parent_id else None
    parent = reader.entry(parent_cid) if reader is not None and parent_cid is not None else None
    if reader is not None and parent_cid is not None and parent is None:
        reader.check_absent(parent_cid)
    depth = min(parent.header.depth + 1, keys.DEPTH_MAX) if parent is not None else 0
    header = Header(
        parent=parent_cid,
        parent_stored=parent is not None,
        depth=depth,
        fields=new.fields,
        versions=new.versions,
        seen=new.seen,
        metadata=new.metadata,
        slots={},
        inline={},
    )
    replaces = reader is not None and reader.raw_header(cid) is not None
    prepared = PreparedCheckpoint(new, cid, parent, replaces, header, [])
    _fill_slots(reader, values, prepared, spare or new.spare)
    return prepared


def _fill_slots(
    reader: StreamReader | None, values: Values, prepared: PreparedCheckpoint, spare: Spare
) -> None:
    """Decide what each channel shows: the refill rule."""
    new, parent = prepared.new, prepared.parent
    parent_slots = parent.header.slots if parent is not None else {}
    parent_versions = parent.header.versions if parent is not None else {}
    parent_cid = prepared.header.parent
    slots = prepared.header.slots
    on_anchor = parent is not None and parent.is_anchor
    for channel, version in new.versions.items():
        old = parent_slots.get(channel, NO_SLOT)
        seed = parent_cid if old.value is not None else old.seed
        if channel in new.new:
            typed = new.new[channel]
        elif _has(parent_versions, channel, version):
            # What was made of writes later is not what was put under this version: nothing was.
            is_made = old.emptied and old.value is not None
            slots[channel] = Slot(None, True, parent_cid, old.writer) if is_made else old
            continue
        else:
            typed = spare(channel)
            if typed is None:
                found = _with_version(reader, prepared, channel, version)
                if found is None and on_anchor:
                    raise _pruned(new, f"it carries over channel {channel!r}, whose value is gone")
                if found is None or found[1].value is None or found[1].emptied:
                    emptied = found is not None and found[1].emptied
                    slots[channel] = Slot(None, emptied, seed, old.writer)
                else:
                    slots[channel] = Slot(found[1].value, False, None, old.writer)
                    prepared.crossed = True
                    _rely(reader, prepared, found[0])
                continue
        if typed is None and on_anchor and channel in parent_slots and old == NO_SLOT:
            raise _pruned(new, f"it goes on channel {channel!r}, whose history is gone")
        if typed is None:
            slots[channel] = Slot(None, True, seed, old.writer)
        else:
            ref = _own_value(reader, values, prepared, channel, typed, old)
            slots[channel] = Slot(ref, False, None, old.writer)
    for channel, old in parent_slots.items():
        if channel not in slots:
            if on_anchor and old == NO_SLOT:
                raise _pruned(new, f"it lacks channel {channel!r}, whose history is gone")
            seed = parent_cid if old.value is not None else old.seed
            slots[channel] = Slot(None, False, seed, old.writer)


def uncovered(new: NewCheckpoint, parent_versions: Mapping[str, Version]) -> list[str]:
    """Return the channels whose value a checkpoint neither brings nor has from its parent.

    They are what it serializes the values given for anyway.
    """
    return [
        channel
        for channel, version in new.versions.items()
        if channel not in new.new and not _has(parent_versions, channel, version)
    ]


def free_ordinal(reader: StreamReader, cid: bytes, header: Header) -> int:
    """Return an ordinal that no value at a checkpoint has."""
    prefix = reader.stream.prefix + cid + bytes([layout.KIND_VALUE])
    last = reader.txn.scan_keys(prefix, keys.after(prefix), reverse=True, limit=1)
    stored = int.from_bytes(last[0][-2:], "big") if last else -1
    return max(stored, max(header.inline, default=-1)) + 1


def _pruned(new: NewCheckpoint, why: str) -> PrunedCheckpointError:
    return PrunedCheckpointError(
        f"checkpoint {new.checkpoint_id!r} of thread {new.thread_id!r}, namespace "
        f"{new.checkpoint_ns!r}, cannot be stored: {why}. Start from a checkpoint that is listed"
    )


def _has(versions: Mapping[str, Version], channel: str, version: Version) -> bool:
    if channel not in versions:
        return False
    found = versions[channel]
    return type(found) is type(version) and found == version


def _own_value(
    reader: StreamReader | None,
    values: Values,
    prepared: PreparedCheckpoint,
    channel: str,
    typed: Typed,
    old: Slot,
) -> ValueRef:
    """Plan a value, note it among the checkpoint's own unless it equals one that is there."""
    base_ref = old.value
    if base_ref is None and old.seed is not None and reader is not None:
        entry = reader.entry(old.seed)
        slot = None if entry is None else entry.header.slots.get(channel)
        base_ref = None if slot is None else slot.value
    depth = prepared.header.depth
    if reader is None:
        plan = values.plan_first(typed, depth)
    else:
        plan = values.plan(reader, typed, base_ref, depth)
        is_whole = plan.record is not None and plan.record.base is None
        if is_whole and prepared.parent is not None and not prepared.parent.is_anchor:
            slots = prepared.parent.header.slots
            plan = values.plan_on_another(reader, typed, slots, depth) or plan
    if old.value is None and old.seed is not None and base_ref is not None:
        _rely(reader, prepared, old.seed)  # it vouches for the value it shows, as the parent does
    if plan.ref is not None:
        return plan.ref
    ordinal = len(prepared.own)
    if ordinal >= VALUES_MAX:
        raise InvalidArgumentError(f"a checkpoint may bring at most {VALUES_MAX} new values")
    record, inline = plan.record, prepared.header.inline
    base = None if record is None else record.base
    is_shown = base is not None and base_ref is not None and base[:2] == base_ref[:2]
    if base is not None and not is_shown and not _rely(reader, prepared, base.cid):
        # Nothing that is stored vouches for that value: it may be about to be deleted.
        record = ValueRecord(typed.type, depth, None, typed.data)
    if record is None:
        if (
            sum(len(one.data) for one in inline.values()) + len(typed.data)
            > _INLINE_TOTAL_BYTES_MAX
        ):
            record = ValueRecord(typed.type, depth, None, typed.data)
        else:
            inline[ordinal] = typed
    prepared.own.append(OwnValue(channel, record, plan.loaded, base_ref, plan.base_size))
    return ValueRef(prepared.cid, ordinal, None if record is None else plan.loaded.digest)


def _rely(reader: StreamReader | None, prepared: PreparedCheckpoint, cid: bytes) -> bool:
    """Note that a checkpoint must be as it is now; return whether it is stored."""
    raw = None if reader is None else reader.raw_header(cid) or reader.raw_anchor(cid)
    if raw is not None:
        prepared.relied[cid] = frame.checksum(raw)
    return raw is not None


def _with_version(
    reader: StreamReader | None, prepared: PreparedCheckpoint, channel: str, version: Version
) -> tuple[bytes, Slot] | None:
    """Return the nearest checkpoint with this version of the channel, and what it shows.

    Ancestors first, then the rest of the stream, newest first. Cost: O(stream), for a put that
    names a version it neither brings nor inherits, which LangGraph does not do.
    """
    if reader is None:
        return None
    at, seen = prepared.header.parent, {prepared.cid}
    while at is not None and at not in seen:
        seen.add(at)
        entry = reader.entry(at)
        if entry is None:
            break
        if not entry.is_anchor and _has(entry.header.versions, channel, version):
            return at, entry.header.slots[channel]
        at = entry.header.parent
    for form in (FORM_ULID, FORM_TEXT):
        below: bytes | None = None
        while page := reader.page(form, below, _PAGE):
            for cid in page:
                entry = reader.entry(cid) if cid not in seen else None
                if entry is not None and _has(entry.header.versions, channel, version):
                    return cid, entry.header.slots[channel]
            below = page[-1]
    return None
