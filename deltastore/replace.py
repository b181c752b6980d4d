"""Store a checkpoint again under an id that is stored already.

Equal content changes nothing. Otherwise whatever refers to the old records is first rewritten so
that it no longer does: headers whole, with the values they point at stored again; deltas whole;
then the old records go and the new checkpoint is stored, keeping its writes. All in one write
transaction; O(stream), for a case LangGraph does not make in ordinary use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from deltastore import ancestry, append, log, refill
from deltastore.format import frame, keys, layout
from deltastore.format import header as header_format
from deltastore.format.entries import ThreadEntry
from deltastore.format.header import Header, ValueRef
from deltastore.format.value import ValueRecord
from deltastore.ids import FORM_TEXT, FORM_ULID
from deltastore.log import HeaderEntry, StreamReader
from deltastore.reconstruct import whole_rows
from deltastore.refill import NewCheckpoint, PreparedCheckpoint
from deltastore.values import Values

_PAGE: Final = 256


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


def _cids(reader: StreamReader) -> Iterator[bytes]:
    for form in (FORM_ULID, FORM_TEXT):
        below: bytes | None = None
        while page := reader.page(form, below, _PAGE):
            yield from page
            below = page[-1]


def _release(reader: StreamReader, values: Values, cid: bytes) -> None:
    """Rewrite every record that refers to the records of `cid`."""
    # All headers are decoded before the first is rewritten: a child may be coded against one.
    entries = {other: reader.entry(other) for other in _cids(reader) if other != cid}
    moved: dict[ValueRef, ValueRef] = {}
    for other, found in sorted(entries.items(), key=lambda item: _depth(item[1])):
        assert found is not None
        _release_header(reader, values, cid, other, found.header, moved)
    for other in entries:
        _release_values(reader, values, cid, other)
    for suffix, record in reader.writes(cid):
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
    header: Header,
    moved: dict[ValueRef, ValueRef],
) -> None:
    raw = reader.raw_header(other)
    assert raw is not None
    key = keys.header_key(reader.stream.prefix, other)
    clear = header_format.parent_of(frame.peek(key, raw, layout.KIND_HEADER))
    pointing = [c for c, s in header.slots.items() if s.value is not None and s.value.cid == cid]
    if not pointing and not (clear.is_difference and header.parent == cid):
        return
    slots = dict(header.slots)
    for channel in pointing:
        ref = slots[channel].value
        assert ref is not None
        if ref not in moved:
            loaded = values.load(reader, ref)
            ordinal = _free_ordinal(reader, other, header)
            record = ValueRecord(loaded.typed.type, header.depth, None, loaded.typed.data)
            log.put_value(reader, other, ordinal, record)
            moved[ref] = ValueRef(other, ordinal, loaded.digest)
        slots[channel] = slots[channel]._replace(value=moved[ref])
    log.put_header(reader, other, append.header_with(header, slots), None)


def _free_ordinal(reader: StreamReader, cid: bytes, header: Header) -> int:
    prefix = reader.stream.prefix + cid + bytes([layout.KIND_VALUE])
    last = reader.txn.scan_keys(prefix, keys.after(prefix), reverse=True, limit=1)
    stored = int.from_bytes(last[0][-2:], "big") if last else -1
    return max(stored, max(header.inline, default=-1)) + 1


def _release_values(reader: StreamReader, values: Values, cid: bytes, other: bytes) -> None:
    prefix = reader.stream.prefix + other + bytes([layout.KIND_VALUE])
    for key in reader.txn.scan_keys(prefix, keys.after(prefix)):
        ordinal = int.from_bytes(key[-2:], "big")
        record = reader.value(other, ordinal)
        if record.base is None or record.base.cid != cid:
            continue
        data = values.rebuild(reader, other, ordinal).typed.data
        whole = ValueRecord(record.type, _depth(reader.entry(other)), None, data)
        log.put_value(reader, other, ordinal, whole)
