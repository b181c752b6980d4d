"""Store a checkpoint again under an id that is stored already.

Equal content changes nothing. Otherwise whatever refers to the old records is first rewritten so
that it no longer does: headers whole, with the values they point at stored again; deltas whole;
then the old records go and the new checkpoint is stored, keeping its writes. All in one write
transaction; O(stream), for a case LangGraph does not make in ordinary use.
"""

from __future__ import annotations

from deltastore import ancestry, append, log, refill, watch
from deltastore.decoded import HeaderEntry
from deltastore.format import header as header_format
from deltastore.format import keys, layout
from deltastore.format.entries import ThreadEntry
from deltastore.format.header import Header, ValueRef
from deltastore.format.value import ValueRecord
from deltastore.log import StreamReader
from deltastore.reconstruct import whole_rows
from deltastore.refill import NewCheckpoint, PreparedCheckpoint
from deltastore.survey import survey
from deltastore.values import Values


def replace_checkpoint(
    entry: ThreadEntry, reader: StreamReader, values: Values, new: NewCheckpoint, minute: int
) -> PreparedCheckpoint | None:
    """Store a checkpoint whose id is stored; return what was stored, None if it was equal.

    Raises:
        DeletedParentError: Its parent is absent because it was deleted.
    """
    prepared = refill.prepare_checkpoint(reader, values, new)
    cid = prepared.cid
    existing = reader.entry(cid)
    assert existing is not None
    if _unchanged(reader, values, existing.header, prepared):
        return None
    append.check_parent(entry, reader, prepared)
    _release(reader, values, cid)
    own = reader.stream.prefix + cid
    reader.txn.delete(keys.header_key(reader.stream.prefix, cid))
    first, last = own + bytes([layout.KIND_VALUE]), own + bytes([layout.KIND_WRITES])
    reader.txn.delete_range(first, last, limit=refill.VALUES_MAX)
    prepared = refill.prepare_checkpoint(reader, values, new)
    append.store_checkpoint(entry, reader, prepared, minute)
    ancestry.mark_unhinted(reader)
    ancestry.mark_crossed(reader)  # what descended from it may descend from it no more
    return prepared


def _unchanged(
    reader: StreamReader, values: Values, old: Header, prepared: PreparedCheckpoint
) -> bool:
    new = prepared.header
    if not header_format.equal(old, new):
        return False
    own = {ordinal: one.loaded.typed for ordinal, one in enumerate(prepared.own)}
    for channel in new.versions:
        was, now = old.slots[channel], new.slots[channel]
        if was.emptied:
            was = was._replace(value=None)  # what was folded since was not put
        if was.value is None or now.value is None:
            if (was.value, was.emptied) != (now.value, now.emptied):
                return False
        elif was.value != now.value or now.value.cid == prepared.cid:
            ref = now.value
            typed = (
                own[ref.ordinal]
                if ref.cid == prepared.cid and ref.ordinal in own
                else values.load(reader, ref).typed
            )
            if values.load(reader, was.value).typed != typed:
                return False
    return True


def _release(reader: StreamReader, values: Values, cid: bytes) -> None:
    """Rewrite every record that refers to the records of `cid`."""
    nodes = {other: node for other, node in survey(reader).items() if other != cid}
    # All headers are decoded before the first is rewritten: a child may be coded against one.
    entries = {other: reader.entry(other) for other, node in nodes.items() if node.kind}
    moved: dict[ValueRef, ValueRef] = {}
    for other, found in sorted(entries.items(), key=lambda item: _depth(item[1])):
        assert found is not None
        _release_header(reader, values, cid, other, found, moved)
    for other, node in nodes.items():
        for ordinal in node.values:
            _release_value(reader, values, cid, (other, ordinal), node.depth)
    for suffix, record in reader.own_writes(cid):
        if any(row.base is not None for row in record.rows):
            rows = whole_rows(reader, values, cid, record)
            key = keys.writes_key(reader.stream.prefix, cid, suffix)
            log.put_writes(reader, key, record._replace(rows=rows))


def _depth(found: HeaderEntry | None) -> int:
    return 0 if found is None else found.header.depth


def _release_header(
    reader: StreamReader,
    values: Values,
    cid: bytes,
    other: bytes,
    found: HeaderEntry,
    moved: dict[ValueRef, ValueRef],
) -> None:
    header = found.header
    link = reader.link(other)
    assert link is not None
    pointing = [c for c, s in header.slots.items() if s.value is not None and s.value.cid == cid]
    if not pointing and not (link.clear.is_difference and header.parent == cid):
        return
    slots = dict(header.slots)
    for channel in pointing:
        ref = slots[channel].value
        assert ref is not None
        if ref not in moved:
            loaded = values.load(reader, ref)
            ordinal = refill.free_ordinal(reader, other, header)
            record = ValueRecord(loaded.typed.type, header.depth, None, loaded.typed.data)
            log.put_value(reader, other, ordinal, record)
            moved[ref] = ValueRef(other, ordinal, loaded.digest)
        slots[channel] = slots[channel]._replace(value=moved[ref])
    changed = append.header_with(header, slots)
    if found.is_anchor:
        log.put_anchor(reader, other, changed)
    else:
        log.put_header(reader, other, changed, None)
    watch.note(reader.txn, reader.stream, other)


def _release_value(
    reader: StreamReader, values: Values, cid: bytes, place: tuple[bytes, int], depth: int
) -> None:
    record = reader.value(*place)
    if record.base is None or (
        record.base.cid != cid and all(source.cid != cid for source in record.base.sources)
    ):
        return
    data = values.rebuild(reader, *place).typed.data
    log.put_value(reader, *place, ValueRecord(record.type, depth, None, data))
    watch.note(reader.txn, reader.stream, place[0])
