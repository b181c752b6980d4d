"""Delete a thread: out of sight in one small transaction, its records in further ones.

The entry stays with number 0 and a mark of what was deleted, so that a late put on a deleted parent
is refused and not taken for a root; the number goes to the reclaim list, which a crash cannot lose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from deltastore import directory
from deltastore.directory import Stream
from deltastore.engine.api import Transaction
from deltastore.format import keys, layout
from deltastore.format.entries import DELETED_TEXT_IDS_MAX, DeletedMark
from deltastore.ids import FORM_TEXT, FORM_ULID
from deltastore.log import StreamReader

RECORDS_MAX: Final = 1_000  # per transaction, so that writers beside it wait for no longer
_TAGS: Final = (
    layout.TAG_LOG,
    layout.TAG_LATE,
    layout.TAG_SECRET,
    layout.TAG_NAMESPACE,
    layout.TAG_NAMES,
)

MakeReader = Callable[[Transaction, Stream, None], StreamReader]


def retire_thread(txn: Transaction, thread_id: str, make_reader: MakeReader) -> bool:
    """Take a thread out of sight; return whether it was there."""
    entry = directory.find_thread(txn, thread_id)
    if entry is None or entry.number == 0:
        return False
    deleted = dict(entry.deleted)
    for stream in directory.streams(txn, thread_id):
        reader = make_reader(txn, stream, None)
        gone = reader.page(FORM_ULID, None, 1)
        gone += reversed(reader.page(FORM_TEXT, None, DELETED_TEXT_IDS_MAX))
        for cid in gone:
            mark = deleted.get(stream.checkpoint_ns, DeletedMark())
            deleted[stream.checkpoint_ns] = mark.with_deleted(cid)
    directory.put_mark(txn, keys.reclaim_key(entry.number))
    if entry.minute:
        txn.delete(keys.activity_key(entry.minute, entry.number))
    directory.save_thread(txn, replace(entry, number=0, deleted=deleted))
    return True


def reclaim_some(txn: Transaction) -> bool:
    """Delete up to `RECORDS_MAX` records of retired threads; return whether more may be left."""
    low = bytes([layout.TAG_RECLAIM])
    waiting = txn.scan_keys(low, keys.after(low), limit=1)
    if not waiting:
        return False
    number = keys.number_at(waiting[0], 1)
    left = RECORDS_MAX
    for tag in _TAGS:
        prefix = keys.thread_prefix(tag, number)
        left -= txn.delete_range(prefix, keys.after(prefix), limit=left)
        if left <= 0:
            return True
    txn.delete(waiting[0])
    return True
