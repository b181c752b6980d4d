"""Write what stays of a stream under another stream, as if the rest had been dropped there.

Takes the plan that `dropping` makes; the stream it was made of is only read.
"""

from __future__ import annotations

from deltastore import ancestry, anchors, log
from deltastore.append import StaleError
from deltastore.drops import StreamDrop
from deltastore.format import frame, keys, layout
from deltastore.log import StreamReader
from deltastore.run_index import run_of


def write_survivors(here: StreamReader, there: StreamReader, drop: StreamDrop) -> set[str]:
    """Write the checkpoints that stay, their anchors and what both need; return their runs.

    Raises:
        StaleError: A checkpoint is not as it was when the plan was made; undo the transaction.
    """
    found = set()
    late = ancestry.late(here)
    for cid in sorted({*drop.keep, *drop.anchors}):
        if cid in drop.keep:
            entry = here.entry(cid)
            if entry is None or entry.checksum != drop.nodes[cid].checksum:
                raise StaleError
            log.put_header(there, cid, entry.header, None)
            for ordinal in drop.nodes[cid].values:
                _write_value(here, there, drop, (cid, ordinal))
            found.add(run_of(entry.header.metadata))
            if cid in late:
                ancestry.mark_late(there, entry.header.depth, cid)
        for run_id in _move_writes(here, there, cid):
            found.add(run_id)
        plan = drop.anchors.get(cid)
        if plan is not None:
            anchors.apply_anchor(there, plan)
    _put_gaps(there, drop)
    for place in drop.needed:
        _write_value(here, there, drop, place)
    if ancestry.is_unhinted(here):
        ancestry.mark_unhinted(there)
    if ancestry.is_crossed(here):
        ancestry.mark_crossed(there)
    return found


def _put_gaps(there: StreamReader, drop: StreamDrop) -> None:
    """Keep the gaps that something stands on."""
    above = {drop.nodes[cid].parent for cid in drop.keep}
    above |= {plan.header.parent for plan in drop.anchors.values()}
    for cid in above:
        node = None if cid is None else drop.nodes.get(cid)
        if cid is not None and node is not None and node.is_gap:
            ancestry.put_gap(there, cid, node.depth)


def _write_value(
    here: StreamReader, there: StreamReader, drop: StreamDrop, place: tuple[bytes, int]
) -> None:
    anew = drop.values.get(place)
    log.put_value(there, *place, here.value(*place) if anew is None else anew[0])


def _move_writes(here: StreamReader, there: StreamReader, cid: bytes) -> set[str]:
    """Copy a checkpoint's own writes; an anchor's plan then changes what it must."""
    kind = bytes([layout.KIND_WRITES])
    prefix = here.stream.prefix + cid + kind
    found = set()
    for key, record in here.txn.scan(prefix, keys.after(prefix)):
        found |= here.decode_writes(key, record, cid).runs()
        new_key = there.stream.prefix + key[len(here.stream.prefix) :]
        there.txn.put(new_key, frame.move(key, new_key, record, here.cipher))
    return found
