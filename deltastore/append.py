"""Store a planned checkpoint, in the write transaction.

What it was planned against is checked again first (else `StaleError`: plan again). May be run again
from the start, as the commit queue does. Everything a checkpoint brings is put in key order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deltastore import ancestry, directory, log, rowcoding, watch
from deltastore.decoded import StoredWrites
from deltastore.errors import (
    CorruptionError,
    DecryptionError,
    DeletedParentError,
    PrunedCheckpointError,
)
from deltastore.format import frame, keys, layout
from deltastore.format.entries import ThreadEntry
from deltastore.format.header import Header, Slot
from deltastore.format.value import Source, ValueRecord
from deltastore.log import StreamReader
from deltastore.refill import NO_SLOT, OwnValue, PreparedCheckpoint
from deltastore.values import EXTENSION_BYTES_MIN, Extension, Values, element_bytes, shared

_SOURCES_MAX: Final = 32  # each is a look-up for whoever rebuilds the value


class StaleError(Exception):
    """What was prepared against has changed; nothing was stored. Never leaves the store."""


def apply_checkpoint(
    entry: ThreadEntry,
    reader: StreamReader,
    prepared: PreparedCheckpoint,
    minute: int,
) -> None:
    """Store a prepared checkpoint whose id is not stored yet.

    Raises:
        StaleError: The parent, a checkpoint whose values are referred to, or the id itself is not
            as it was when it was prepared.
        DeletedParentError: The parent is absent because it was deleted.
        PrunedCheckpointError: An anchor stands at its id, or values that others refer to are there.
    """
    check_parent(entry, reader, prepared)
    if reader.raw_header(prepared.cid) is not None:
        raise StaleError
    _check_place(entry, reader, prepared)
    for relied, checksum in prepared.relied.items():
        raw = reader.raw_header(relied) or reader.raw_anchor(relied)
        if raw is None or frame.checksum(raw) != checksum:
            raise StaleError
    store_checkpoint(entry, reader, prepared, minute)


def store_checkpoint(
    entry: ThreadEntry,
    reader: StreamReader,
    prepared: PreparedCheckpoint,
    minute: int,
) -> None:
    """As `apply_checkpoint`, for one prepared in this very transaction."""
    cid, header = prepared.cid, prepared.header
    parent = header.parent
    slots = dict(header.slots)
    written: list[StoredWrites] = []
    if parent is not None and prepared.parent is not None:
        written = reader.writes(parent)
        for _, record in written:
            for row in record.rows:
                slots[row.channel] = slots.get(row.channel, NO_SLOT)._replace(writer=parent)
        if cid <= parent or cid[0] != parent[0]:
            # The parent is the newest by key although it has a child: later writes would not be
            # taken for late (is_newest below).
            ancestry.mark_late(reader, prepared.parent.header.depth, parent)
            watch.note(reader.txn, reader.stream, parent)
    elif parent is not None:
        ancestry.mark_orphan(reader, parent)
    if prepared.crossed:
        ancestry.mark_crossed(reader)
    if ancestry.has_orphans(reader, cid):
        ancestry.mark_unhinted(reader)
    # In key order: LMDB fills a page to its end only where nothing is put before its last key.
    # An anchor is written again at the next prune, so nothing may be coded against it.
    base = None if prepared.parent is not None and prepared.parent.is_anchor else prepared.parent
    header = header_with(header, slots)
    log.put_header(reader, cid, header, base)
    for ordinal, own in enumerate(prepared.own):
        if own.record is not None:
            log.put_value(reader, cid, ordinal, _shared(reader, prepared, own, written))
    _code_early_writes(reader, prepared, header)
    directory.touch(reader.txn, entry, minute)


def _code_early_writes(reader: StreamReader, prepared: PreparedCheckpoint, header: Header) -> None:
    """Code writes that came before their checkpoint against the values that it stores whole."""
    if not any(rowcoding.is_base(own.loaded.typed, own.record) for own in prepared.own):
        return
    try:
        early = reader.own_writes(prepared.cid)
    except (CorruptionError, DecryptionError):
        return  # of another key, or damaged, which it still is for whoever reads it
    for suffix, record in early:
        if rowcoding.is_worth_it(record.rows):
            rows = rowcoding.code_on_own(reader, prepared.cid, header, record.rows)
            if rows != record.rows:
                key = keys.writes_key(reader.stream.prefix, prepared.cid, suffix)
                log.put_writes(reader, key, record._replace(rows=rows))


def _shared(
    reader: StreamReader,
    prepared: PreparedCheckpoint,
    own: OwnValue,
    written: Sequence[StoredWrites],
) -> ValueRecord:
    """Return a value's record, without what the parent's writes hold of it.

    Done here and not before, as writes often come after the value was prepared.
    """
    record, parent = own.record, prepared.parent
    assert record is not None
    if parent is None or record.base is None or len(record.body) < EXTENSION_BYTES_MIN:
        return record
    if parent.is_anchor:
        return record  # its writes are those of several checkpoints
    slot = parent.header.slots.get(own.channel)
    value = None if slot is None else slot.value
    if value is None or value != own.supersedes or record.base.cid != value.cid:
        return record
    assert prepared.header.parent is not None
    extension = _extension(reader, prepared.header.parent, parent.header, written, own.channel)
    return (extension and shared(record, own.base_size, extension)) or record


def _extension(
    reader: StreamReader,
    parent: bytes,
    header: Header,
    written: Sequence[StoredWrites],
    channel: str,
) -> Extension | None:
    """Return the elements that a checkpoint's writes of a channel add where it appends."""
    rows = [
        (Source(parent, suffix, row.idx), data)
        for suffix, record in written
        for row in record.rows
        if row.channel == channel and row.type == "msgpack" and row.idx >= 0
        if (data := rowcoding.row_data(reader, parent, header, row)) is not None
    ]
    if not 0 < len(rows) <= _SOURCES_MAX:
        return None
    elements = b"".join([element_bytes(data) for _, data in rows])
    return Extension(tuple(source for source, _ in rows), elements)


def header_with(header: Header, slots: dict[str, Slot]) -> Header:
    """Return a copy of a header with other slots."""
    return Header(
        parent=header.parent,
        parent_stored=header.parent_stored,
        depth=header.depth,
        fields=header.fields,
        versions=header.versions,
        seen=header.seen,
        metadata=header.metadata,
        slots=slots,
        inline=header.inline,
        is_folded=header.is_folded,
    )


def check_parent(entry: ThreadEntry, reader: StreamReader, prepared: PreparedCheckpoint) -> None:
    """Check that the parent is what it was when a checkpoint was prepared.

    Raises:
        StaleError: It is not.
        DeletedParentError: It is absent because it was deleted.
    """
    parent = prepared.header.parent
    if parent is None:
        return
    raw = reader.raw_header(parent) or reader.raw_anchor(parent)
    if (raw is None) != (prepared.parent is None):
        raise StaleError
    if raw is not None:
        assert prepared.parent is not None
        if frame.checksum(raw) != prepared.parent.checksum:
            raise StaleError
        return
    mark = entry.mark_of(reader.stream.checkpoint_ns)
    if mark is not None and mark.covers(parent):
        new = prepared.new
        raise DeletedParentError(
            f"checkpoint {new.checkpoint_id!r} of thread {new.thread_id!r}, namespace "
            f"{new.checkpoint_ns!r}, was put on parent {new.parent_id!r}, which has been deleted; "
            "stored without it, its history would be cut. Start the thread anew by a put without a "
            "parent"
        )


def _check_place(entry: ThreadEntry, reader: StreamReader, prepared: PreparedCheckpoint) -> None:
    """Check that nothing is left at the id of a checkpoint that is new."""
    cid = prepared.cid
    if entry.mark_of(reader.stream.checkpoint_ns) is None:
        return  # nothing was ever dropped
    at = reader.stream.prefix + cid
    left = reader.txn.scan_keys(at + bytes([layout.KIND_VALUE]), keys.after(at))
    kinds = {keys.split(key).kind for key in left}
    if not kinds <= {layout.KIND_WRITES}:
        new = prepared.new
        raise PrunedCheckpointError(
            f"checkpoint {new.checkpoint_id!r} of thread {new.thread_id!r}, namespace "
            f"{new.checkpoint_ns!r}, was pruned, and what others need of it is still in its place; "
            "put it under another id"
        )


def keep_values(reader: StreamReader, values: Values, prepared: PreparedCheckpoint) -> None:
    """Cache what a committed checkpoint stored; its successors will be coded against it.

    `reader` names the stream; its transaction may have ended.
    """
    for ordinal, own in enumerate(prepared.own):
        if own.record is not None:
            values.keep(reader, prepared.cid, ordinal, own.loaded)
        if own.supersedes is not None:
            values.supersede(reader, own.supersedes)
