"""Delete a thread: out of sight in one small transaction; `reclaim` deletes its records in others.

The entry stays with number 0 and a mark of what was deleted, so that a late put on a deleted parent
is refused and not taken for a root; the number goes to the reclaim list, which a crash cannot lose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from deltastore import directory, leases
from deltastore.directory import Stream
from deltastore.engine.api import Transaction
from deltastore.format import keys
from deltastore.format.entries import DELETED_TEXT_IDS_MAX, DeletedMark, ThreadEntry, with_deleted
from deltastore.ids import FORM_TEXT, FORM_ULID
from deltastore.log import StreamReader

MakeReader = Callable[[Transaction, Stream, None], StreamReader]


def retire_thread(txn: Transaction, thread_id: str, make_reader: MakeReader) -> bool:
    """Take a thread out of sight, and its lease; return whether it was there."""
    leases.forget(txn, thread_id)
    entry = directory.find_thread(txn, thread_id)
    if entry is None or entry.number == 0:
        return False
    for stream in directory.streams(txn, thread_id):
        reader = make_reader(txn, stream, None)
        gone = reader.page(FORM_ULID, None, 1)
        gone += reversed(reader.page(FORM_TEXT, None, DELETED_TEXT_IDS_MAX))
        for cid in gone:
            mark = DeletedMark().with_deleted(cid)
            entry = with_deleted(entry, stream.checkpoint_ns, mark)
    retire_entry(txn, entry)
    return True


def retire_entry(txn: Transaction, entry: ThreadEntry) -> None:
    """Take a thread's number from it; the records under that number wait to be deleted."""
    directory.put_mark(txn, keys.reclaim_key(entry.number))
    if entry.minute:
        txn.delete(keys.activity_key(entry.minute, entry.number))
    directory.save_thread(txn, replace(entry, number=0))
