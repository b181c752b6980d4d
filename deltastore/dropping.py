"""Drop checkpoints of one stream so that those that stay rebuild to what they were.

What is dropped and what others need of it is planned in a view: anchors in the place of parents
that go, values that stay behind (*remains*) in the place of their checkpoint because others refer
to them, values stored anew whole because what they were coded against goes. Headers of checkpoints
that stay are not changed, but for being coded whole below an anchor: no reference in them moves.

The plan is applied in small transactions, children before parents, so that after each of them
every checkpoint that is still there rebuilds. Each first checks what others stored since the view
(`deltastore.watch`) and raises `StaleError` where that concerns the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from deltastore import ancestry, anchors, directory, log, reclaim
from deltastore.append import StaleError
from deltastore.drops import Place, Step, StreamDrop
from deltastore.engine.api import Transaction
from deltastore.errors import BrokenChainError
from deltastore.format import frame, keys, layout
from deltastore.format.entries import Dropped, with_deleted
from deltastore.format.value import Source, ValueRecord
from deltastore.format.writes import WritesRecord
from deltastore.ids import cid_time_ms
from deltastore.log import StreamReader
from deltastore.survey import Node
from deltastore.values import Values

_VALUE: Final = 1
_WHOLE: Final = 2
_WRITES: Final = 3
_GONE: Final = 4
_LIST: Final = 5
EARLY_WRITES_MS: Final = 24 * 3_600 * 1_000  # how long writes wait for their checkpoint


def plan_drop(
    reader: StreamReader,
    values: Values,
    nodes: Mapping[bytes, Node],
    keep: Iterable[bytes],
    writes: Mapping[Place, WritesRecord | None],
    held: Iterable[bytes],
    *,
    is_crossed: bool,
    recast: bool = False,
) -> StreamDrop:
    """Plan what goes from a stream of which `keep` stays.

    Args:
        writes: Writes of checkpoints that stay which change; None for those that go. No child that
            stays may need what goes of them.
        held: Checkpoints that stay where writes stay that were to go.
        is_crossed: Whether a checkpoint may refer to values of one that is no ancestor of it.
        recast: Make anchors anew even if no checkpoint goes.

    Cost: decodes the headers and values of the checkpoints below what goes, and folds writes.
    """
    drop = StreamDrop(
        reader.stream,
        nodes,
        frozenset(keep),
        writes=dict(writes),
        held=set(held),
        is_crossed=is_crossed,
    )
    gone = [cid for cid, node in nodes.items() if node.kind and cid not in drop.keep]
    if not recast and all(nodes[cid].kind == layout.KIND_ANCHOR for cid in gone):
        gone = []
    drop.early = _stale(nodes)
    if not gone and not writes:
        return drop
    drop.order = _children_first(nodes, gone)
    children: dict[bytes, list[bytes]] = {}
    for cid in drop.keep:
        parent = nodes[cid].parent
        if parent is not None and parent in nodes and nodes[parent].kind:
            children.setdefault(parent, []).append(cid)
    _plan_anchors(reader, values, drop, children)
    if gone:
        drop.remains = [cid for cid, node in nodes.items() if not node.kind and node.values]
    _plan_values(reader, values, drop, _below(drop, children, is_crossed=is_crossed))
    return drop


def _children_first(nodes: Mapping[bytes, Node], gone: Sequence[bytes]) -> list[bytes]:
    """Return what goes in such an order that no parent goes before a child."""
    left = dict.fromkeys(gone, 0)
    for cid in gone:
        parent = nodes[cid].parent
        if parent in left:
            left[parent] += 1
    order = [cid for cid in sorted(gone, reverse=True) if not left[cid]]
    for cid in order:  # it grows
        parent = nodes[cid].parent
        if parent in left:
            left[parent] -= 1
            if not left[parent]:
                order.append(parent)
    # What is left is a loop of parents, made by putting one again under its descendant.
    return order + [cid for cid in gone if left[cid]]


def _stale(nodes: Mapping[bytes, Node]) -> list[bytes]:
    """Return ids where nothing but writes is, much older than the newest checkpoint.

    Their checkpoints do not come any more. Ages are told by the ids, so that threads that were
    written with ids of old lose nothing.
    """
    times = [cid_time_ms(cid) for cid, node in nodes.items() if node.kind == layout.KIND_HEADER]
    before = max((ms for ms in times if ms is not None), default=0) - EARLY_WRITES_MS
    return [
        cid
        for cid, node in nodes.items()
        if not node.kind
        and not node.values
        and not node.is_gap
        and (cid_time_ms(cid) or before) < before
    ]


def _plan_anchors(
    reader: StreamReader, values: Values, drop: StreamDrop, children: Mapping[bytes, list[bytes]]
) -> None:
    late = ancestry.late(reader) if any(cid in children for cid in drop.order) else set()
    for cid in drop.order:
        below = children.get(cid)
        if not below:
            continue
        headers = []
        for child in sorted(below):
            entry = reader.entry(child)
            assert entry is not None  # it was surveyed in this view
            headers.append(entry.header)
            if drop.nodes[child].is_difference:
                drop.whole.append(child)
        plan = anchors.plan_anchor(
            reader, values, drop.nodes, late, cid, headers, drop.keep.__contains__
        )
        drop.anchors[cid] = plan
        if drop.nodes[cid].kind == layout.KIND_HEADER:
            drop.held.add(cid)


def _below(
    drop: StreamDrop, children: Mapping[bytes, list[bytes]], *, is_crossed: bool
) -> set[bytes]:
    """Return the checkpoints that stay and may refer to what goes."""
    if is_crossed:
        return set(drop.keep)
    waiting = [*drop.order, *(cid for cid, _ in drop.writes)]
    found: set[bytes] = set()
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def _plan_values(
    reader: StreamReader, values: Values, drop: StreamDrop, below: Iterable[bytes]
) -> None:
    refs = [ref for plan in drop.anchors.values() for ref in plan.seeds()]
    own: list[Place] = []
    for cid in below:
        entry = reader.entry(cid)
        assert entry is not None
        refs += [slot.value for slot in entry.header.slots.values() if slot.value is not None]
        own += [(cid, ordinal) for ordinal in drop.nodes[cid].values]
    for ref in refs:
        if ref.cid not in drop.keep:
            drop.needed[ref.cid, ref.ordinal] = ref
    for place in (*own, *drop.needed):
        _plan_value(reader, values, drop, place)


def _plan_value(reader: StreamReader, values: Values, drop: StreamDrop, place: Place) -> None:
    """Store a value anew if it lay inline in a header that goes, or its base or sources go."""
    cid, ordinal = place
    node = drop.nodes.get(cid)
    record = reader.value(cid, ordinal)
    is_inline = node is None or ordinal not in node.values
    base = record.base
    if base is not None and (
        (base.cid not in drop.keep and (base.cid, base.ordinal) not in drop.needed)
        or any(_goes(drop, source) for source in base.sources)
    ):
        data = values.rebuild(reader, cid, ordinal).typed.data
        depth = 0 if node is None else node.depth
        record = ValueRecord(record.type, depth, None, data)
    elif not is_inline:
        return
    if is_inline:
        drop.moved.setdefault(cid, []).append(ordinal)
    drop.values[place] = record, None if is_inline else _checksum(reader, place)


def _goes(drop: StreamDrop, source: Source) -> bool:
    return source.cid not in drop.keep or (source.cid, source.suffix) in drop.writes


def _checksum(reader: StreamReader, place: Place) -> int:
    raw = reader.txn.get(keys.value_key(reader.stream.prefix, *place))
    if raw is None:
        raise reader.locate(BrokenChainError("a value is referred to, but is gone"), place[0])
    return frame.checksum(raw)


# -- applying -----------------------------------------------------------------------------------


def check_drop(reader: StreamReader, drop: StreamDrop, left: set[bytes], cid: bytes) -> None:
    """Check that what others stored at `cid` since the view leaves a plan right.

    Args:
        left: What is still to go, and what stays while writes of it go.

    Raises:
        StaleError: It does not.
    """
    if cid in left:
        raise StaleError
    raw = reader.raw_header(cid)
    node = drop.nodes.get(cid)
    if raw is None:
        return  # early writes, or a late call on what is gone already
    if node is not None and node.kind == layout.KIND_HEADER and cid in drop.keep:
        if frame.checksum(raw) not in (node.checksum, drop.recoded.get(cid)):
            raise StaleError
        return
    header = reader.decode(cid, raw).header
    if header.parent in left:
        raise StaleError
    for slot in header.slots.values():
        if slot.value is not None:
            _check_place(drop, slot.value.cid, slot.value.ordinal)
    prefix = reader.stream.prefix + cid + bytes([layout.KIND_VALUE])
    for key in reader.txn.scan_keys(prefix, keys.after(prefix)):
        base = reader.value(cid, int.from_bytes(key[-2:], "big")).base
        if base is not None:
            _check_place(drop, base.cid, base.ordinal)


def _check_place(drop: StreamDrop, cid: bytes, ordinal: int) -> None:
    """Check that a value that a new checkpoint refers to is none that goes."""
    node = drop.nodes.get(cid)
    if node is not None and cid not in drop.keep and (cid, ordinal) not in drop.needed:
        raise StaleError


def plan_steps(drop: StreamDrop) -> list[Step]:
    """Return what is to be done, in order; any number of steps may share a transaction."""
    steps = [Step(_VALUE, *place, 1, ends=False) for place in drop.values]
    steps += [Step(_WHOLE, cid, 0, 1, ends=False) for cid in drop.whole]
    steps += [Step(_WRITES, *place, 2, ends=True) for place in drop.writes]
    gone = (*drop.order, *drop.remains, *drop.early)
    steps += [Step(_GONE, cid, 0, _records(drop, cid), ends=True) for cid in gone]
    if drop.is_crossed:
        # Until all are gone, one of them may show a value of another.
        steps += [Step(_LIST, cid, 0, 1, ends=False) for cid in gone]
    return steps


def _records(drop: StreamDrop, cid: bytes) -> int:
    """Return how many records dropping a checkpoint writes or deletes before it is reclaimed."""
    plan = drop.anchors.get(cid)
    return 1 if plan is None else 3 + len(plan.own) + 2 * len(anchors.chunks(plan.folded))


def apply_steps(reader: StreamReader, drop: StreamDrop, batch: Iterable[Step]) -> None:
    """Do some steps, in a write transaction.

    Raises:
        StaleError: Something is not as it was in the view; undo the transaction.
    """
    listed = []
    for kind, cid, number, *_ in batch:
        if kind == _VALUE:
            _store_value(reader, drop, (cid, number))
        elif kind == _WHOLE:
            _code_whole(reader, drop, cid)
        elif kind == _WRITES:
            _store_writes(reader, drop, (cid, number))
        elif kind == _LIST:
            listed.append(_listed(drop, cid))
        else:
            _drop_header(reader, drop, cid)
            if not drop.is_crossed:
                listed.append(_listed(drop, cid))
    if listed:
        stream = drop.stream
        reclaim.list_dropped(reader.txn, stream.thread, stream.namespace, listed)


def note_deleted(txn: Transaction, drops: Iterable[StreamDrop]) -> None:
    """Note in their thread's entry what goes, before the first of it does."""
    entry = None
    for drop in drops:
        entry = entry or directory.find_thread(txn, drop.stream.thread_id)
        assert entry is not None
        entry = with_deleted(entry, drop.stream.checkpoint_ns, drop.mark())
    if entry is not None:
        directory.save_thread(txn, entry)


def _store_value(reader: StreamReader, drop: StreamDrop, place: Place) -> None:
    record, checksum = drop.values[place]
    raw = reader.txn.get(keys.value_key(reader.stream.prefix, *place))
    if (None if raw is None else frame.checksum(raw)) != checksum:
        raise StaleError
    log.put_value(reader, *place, record)


def _code_whole(reader: StreamReader, drop: StreamDrop, cid: bytes) -> None:
    entry = reader.entry(cid)
    if entry is None or entry.checksum != drop.nodes[cid].checksum:
        raise StaleError
    log.put_header(reader, cid, entry.header, None)
    raw = reader.raw_header(cid)
    assert raw is not None
    drop.recoded[cid] = frame.checksum(raw)


def _store_writes(reader: StreamReader, drop: StreamDrop, place: Place) -> None:
    key = keys.writes_key(reader.stream.prefix, *place)
    record = drop.writes[place]
    if record is None:
        reader.txn.delete(key)
    else:
        log.put_writes(reader, key, record)
    # Headers below name it as the nearest writer of channels that it may hold nothing of now.
    ancestry.mark_late(reader, drop.nodes[place[0]].depth, place[0])


def _drop_header(reader: StreamReader, drop: StreamDrop, cid: bytes) -> None:
    """Take a checkpoint or an older anchor out of sight, and put its anchor."""
    kind = drop.nodes[cid].kind
    if not kind:
        return  # nothing but values that were left, or early writes
    raw = reader.raw_header(cid) or reader.raw_anchor(cid)
    if raw is None or frame.checksum(raw) != drop.nodes[cid].checksum:
        raise StaleError
    prefix = reader.stream.prefix
    if kind == layout.KIND_HEADER:
        reader.txn.delete(keys.header_key(prefix, cid))
    else:
        anchors.delete_anchor(reader, cid)
    plan = drop.anchors.get(cid)
    if plan is not None:
        anchors.apply_anchor(reader, plan)


def _listed(drop: StreamDrop, cid: bytes) -> Dropped:
    node = drop.nodes[cid]
    ordinals: tuple[int, ...] = ()
    if drop.needed:
        stored = {*node.values, *drop.moved.get(cid, ())}
        ordinals = tuple(sorted(ordinal for ordinal in stored if (cid, ordinal) in drop.needed))
    keeps_writes = cid in drop.anchors or (not node.kind and bool(node.values))
    return Dropped(cid, node.depth, keeps_writes, ordinals)
