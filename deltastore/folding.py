"""Fold the writes of delta channels into values, so that their histories stay short.

For a channel whose reducer is known, a checkpoint with a long history gets a value of its own: what
the reducer makes of that history. It shows from then on, and histories below begin with it. An
anchor's folded writes become its seed in the same way. Of other channels it is only told that their
histories are long.

A write that arrives afterwards at an ancestor of such a checkpoint is not seen below it, as with
the snapshots that LangGraph itself stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from deltastore import ancestry, anchors, append, log, reconstruct
from deltastore.anchors import OWN_CHANNELS, AnchorPlan
from deltastore.append import StaleError
from deltastore.decoded import FOLDED
from deltastore.format import layout
from deltastore.format.header import Header, Slot, ValueRef
from deltastore.format.value import ValueRecord
from deltastore.log import StreamReader
from deltastore.options import SnapshotBounds
from deltastore.refill import free_ordinal
from deltastore.survey import Node
from deltastore.types import Typed
from deltastore.values import Values

Fold = Callable[[Typed | None, Sequence[Typed]], Typed]
"""Makes a snapshot of a seed, or of none, and the writes after it, oldest first."""


@dataclass(slots=True)
class FoldPlan:
    """Checkpoints and anchors of one channel that get a value, ancestors first.

    Attributes:
        cids: Which.
        history_max: Longest history there is now, in writes.
    """

    cids: list[bytes] = field(default_factory=list)
    history_max: int = 0


@dataclass(slots=True)
class _Length:
    """A channel's history at a checkpoint: writes, and the depth it begins at."""

    writes: int
    begins: int


def plan_folds(
    reader: StreamReader, nodes: Mapping[bytes, Node], bounds: SnapshotBounds
) -> dict[str, FoldPlan]:
    """Return, by channel, where histories exceed the bounds; only channels with such are there.

    Cost: every header and every write of the stream is decoded once.
    """
    plans: dict[str, FoldPlan] = {}
    if any(node.is_gap for node in nodes.values()):
        return plans  # histories may be cut there
    lengths: dict[bytes, dict[str, _Length]] = {}
    for cid, node in sorted(nodes.items(), key=lambda item: item[1].depth):
        if not node.kind:
            continue
        entry = reader.entry(cid)
        assert entry is not None  # it was surveyed in this view
        header = entry.header
        above = {} if node.parent is None else lengths.get(node.parent, {})
        ours = {}
        if entry.is_anchor:
            due = _folded(reader, cid, bounds)
            shown = {channel for channel, slot in header.slots.items() if slot.value is not None}
        else:
            shown = anchors.shown_channels(header)
            ours = {c: one for c, one in above.items() if c not in shown}
            for channel, one in ours.items():
                plan = plans.get(channel)
                if plan is not None:
                    plan.history_max = max(plan.history_max, one.writes)
            due = [
                channel
                for channel, one in ours.items()
                if channel in header.versions and _is_due(one, node.depth, bounds)
            ]
        for channel in due:
            plan = plans.setdefault(channel, FoldPlan())
            plan.cids.append(cid)
            if channel in ours:
                plan.history_max = max(plan.history_max, ours.pop(channel).writes)
        lengths[cid] = _after(reader, cid, node.depth, ours)
    return plans


def _is_due(length: _Length, depth: int, bounds: SnapshotBounds) -> bool:
    return (bounds.updates is not None and length.writes >= bounds.updates) or (
        bounds.supersteps is not None
        and length.writes > 0
        and depth - length.begins >= bounds.supersteps
    )


def _folded(reader: StreamReader, cid: bytes, bounds: SnapshotBounds) -> list[str]:
    """Return the channels of an anchor that hold many writes of dropped ancestors."""
    found: dict[str, _Length] = {}
    for suffix, record in reader.writes(cid):
        if suffix == FOLDED:
            for row in record.rows:
                found.setdefault(row.channel, _Length(0, 0)).writes += 1
    return [c for c, one in found.items() if _is_due(one, 0, bounds)]


def _after(
    reader: StreamReader, cid: bytes, depth: int, ours: dict[str, _Length]
) -> dict[str, _Length]:
    """Return the histories of a checkpoint's children: its own, and what was written at it."""
    found = {channel: _Length(one.writes, one.begins) for channel, one in ours.items()}
    for _, record in reader.writes(cid):
        for row in record.rows:
            if row.channel not in OWN_CHANNELS:
                found.setdefault(row.channel, _Length(0, depth)).writes += 1
    return found


def fold(reader: StreamReader, values: Values, cid: bytes, channel: str, how: Fold) -> Typed:
    """Return the value that a checkpoint, or an anchor, gets."""
    entry = reader.entry(cid)
    assert entry is not None
    if not entry.is_anchor:
        history = reconstruct.history(reader, values, cid, [channel])[channel]
        return how(history.seed, [write.value for write in history.writes])
    slot = entry.header.slots.get(channel, Slot())
    seed = None if slot.value is None else values.load(reader, slot.value).typed
    older = [
        Typed(row.type, row.data)
        for suffix, record in reader.writes(cid)
        if suffix == FOLDED
        for row in record.rows
        if row.channel == channel
    ]
    return how(seed, older)


def apply_anchor_fold(
    reader: StreamReader, values: Values, cid: bytes, channel: str, typed: Typed
) -> None:
    """Make a value an anchor's seed, in the place of the writes it was folded from."""
    entry = reader.entry(cid)
    if entry is None or not entry.is_anchor:
        raise StaleError
    header = entry.header
    old = header.slots.get(channel, Slot())
    ref = _store(reader, values, cid, header, typed, old.value)
    emptied = old.emptied or channel in header.versions
    slots = {**header.slots, channel: Slot(ref, emptied, None, old.writer)}
    folded = []
    for suffix, record in reader.writes(cid):
        if suffix == FOLDED:
            rows = tuple(row for row in record.rows if row.channel != channel)
            if rows:
                folded.append(record._replace(rows=rows))
    plan = AnchorPlan(cid, append.header_with(header, slots), folded, {})
    anchors.apply_anchor(reader, plan)


def apply_fold(
    reader: StreamReader,
    values: Values,
    cid: bytes,
    channel: str,
    typed: Typed,
    children: Iterable[bytes],
) -> None:
    """Give a checkpoint a value of a channel.

    Headers below are not told: what they say of seeds is overruled by the folded one, which a mark
    keeps walks from passing by. Only its children are coded anew, as they were coded against it.
    `emptied` beside the value says that it was not put: what is put below under the same version
    does not show it.
    """
    entry = reader.entry(cid)
    if entry is None or entry.is_anchor:
        raise StaleError
    header = entry.header
    old = header.slots[channel]
    if old.value is not None:
        raise StaleError
    below = {child: reader.entry(child) for child in children}
    base_ref = None
    if old.seed is not None:
        at_seed = reader.entry(old.seed)
        base_ref = None if at_seed is None else at_seed.header.slots.get(channel, Slot()).value
    ref = _store(reader, values, cid, header, typed, base_ref)
    slots = {**header.slots, channel: Slot(ref, True, None, old.writer)}
    _put_header(reader, cid, replace(append.header_with(header, slots), is_folded=True))
    for child, found in below.items():
        if found is not None and not found.is_anchor:
            _put_header(reader, child, found.header)
    ancestry.mark_late(reader, header.depth, cid)


def _put_header(reader: StreamReader, cid: bytes, header: Header) -> None:
    """Store a header again, as a difference to its parent's as that is now."""
    base = None if header.parent is None else reader.entry(header.parent)
    if base is not None and base.is_anchor:
        base = None
    log.put_header(reader, cid, header, base)


def _store(
    reader: StreamReader,
    values: Values,
    cid: bytes,
    header: Header,
    typed: Typed,
    base_ref: ValueRef | None,
) -> ValueRef:
    plan = values.plan(reader, typed, base_ref, header.depth)
    if plan.ref is not None:
        return plan.ref
    record = plan.record or ValueRecord(typed.type, header.depth, None, typed.data)
    ordinal = free_ordinal(reader, cid, header)
    log.put_value(reader, cid, ordinal, record)
    return ValueRef(cid, ordinal, plan.loaded.digest)


def children(nodes: Mapping[bytes, Node], cid: bytes) -> list[bytes]:
    """Return a checkpoint's children."""
    return [
        other
        for other, node in nodes.items()
        if node.parent == cid and node.kind == layout.KIND_HEADER
    ]


def ancestors(nodes: Mapping[bytes, Node], cid: bytes) -> set[bytes]:
    """Return a checkpoint's ancestors, an anchor's place included."""
    found: set[bytes] = set()
    at = nodes[cid].parent
    while at is not None and at in nodes and at not in found:
        found.add(at)
        at = nodes[at].parent
    return found
