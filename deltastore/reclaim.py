"""Delete the records of what is out of sight: of deleted threads, and of dropped checkpoints.

What waits is listed in the store, so that a crash or an interruption loses nothing: whoever opens
the store next goes on. Transactions are small, so that writers beside them wait for no longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deltastore import run_index
from deltastore.engine.api import Transaction
from deltastore.format import entries, frame, keys, layout
from deltastore.format.entries import Dropped
from deltastore.format.keys import LogKey

RECORDS_MAX: Final = 1_000  # per transaction
TAGS: Final = (
    layout.TAG_LOG,
    layout.TAG_LATE,
    layout.TAG_SECRET,
    layout.TAG_NAMESPACE,
    layout.TAG_NAMES,
    layout.TAG_WATCH,
)
_THREAD_KEY_BYTES: Final = 5


def list_dropped(txn: Transaction, thread: int, namespace: int, dropped: Sequence[Dropped]) -> None:
    """List checkpoints whose headers are gone, for their other records to be deleted."""
    key = keys.dropped_key(thread, namespace, dropped[0].cid)
    record = txn.get(key)
    waiting = [] if record is None else _read(key, record)
    _write(txn, key, [*waiting, *dropped])


def is_listed_thread(key: bytes) -> bool:
    """Whether a key of the list stands for a whole thread."""
    return len(key) == _THREAD_KEY_BYTES


def waiting_in(txn: Transaction) -> dict[tuple[int, int, bytes], Dropped]:
    """Return the dropped checkpoints whose records wait, by thread, namespace and cid."""
    low = bytes([layout.TAG_RECLAIM])
    return {
        (keys.number_at(key, 1), keys.number_at(key, 5), one.cid): one
        for key, record in txn.scan(low, keys.after(low))
        if not is_listed_thread(key)
        for one in _read(key, record)
    }


def stays(one: Dropped, place: LogKey) -> bool:
    """Whether a record of a dropped checkpoint stays."""
    if place.kind == layout.KIND_VALUE:
        return int.from_bytes(place.suffix, "big") in one.remains
    return one.keeps_writes


def is_waiting(txn: Transaction) -> bool:
    """Whether anything waits to be deleted."""
    low = bytes([layout.TAG_RECLAIM])
    return bool(txn.scan_keys(low, keys.after(low), limit=1))


def reclaim_some(txn: Transaction) -> bool:
    """Delete up to `RECORDS_MAX` records that wait; return whether more may be left."""
    low = bytes([layout.TAG_RECLAIM])
    waiting = txn.scan(low, keys.after(low), limit=1)
    if not waiting:
        return False
    key, record = waiting[0]
    if is_listed_thread(key):
        _reclaim_thread(txn, keys.number_at(key, 1))
    else:
        _reclaim_dropped(txn, key, _read(key, record))
    return True


def _read(key: bytes, record: bytes) -> list[Dropped]:
    return entries.decode_dropped(frame.unseal(key, record, layout.KIND_DROPPED).payload)


def _write(txn: Transaction, key: bytes, dropped: Sequence[Dropped]) -> None:
    payload = entries.encode_dropped(dropped)
    txn.put(key, frame.seal(key, layout.KIND_DROPPED, b"", payload))


def _reclaim_thread(txn: Transaction, number: int) -> None:
    hashes = run_index.scan(txn, number, -1, RECORDS_MAX // 2)
    if hashes:
        run_index.forget(txn, number, hashes)
        return
    left = RECORDS_MAX
    for tag in (*TAGS, layout.TAG_RECLAIM):  # last what says that there is something to do
        prefix = keys.thread_prefix(tag, number)
        left -= txn.delete_range(prefix, keys.after(prefix), limit=left)
        if left <= 0:
            return


def _reclaim_dropped(txn: Transaction, key: bytes, waiting: Sequence[Dropped]) -> None:
    thread, namespace = keys.number_at(key, 1), keys.number_at(key, 5)
    prefix = keys.log_prefix(thread, namespace)
    left = RECORDS_MAX
    for place, one in enumerate(waiting):
        looked_at = _reclaim_checkpoint(txn, prefix, one, left)
        left -= looked_at
        if left <= 0:  # there may be more of it
            _write(txn, key, waiting[place:])
            return
        if not one.keeps_writes:
            txn.delete(keys.late_key(thread, namespace, one.depth, one.cid))
    txn.delete(key)
    if not txn.scan_keys(prefix, keys.after(prefix), limit=1):
        _forget_namespace(txn, thread, namespace)


def _reclaim_checkpoint(txn: Transaction, prefix: bytes, one: Dropped, limit: int) -> int:
    """Delete a dropped checkpoint's records, up to `limit`; return how many, and one more."""
    if txn.get(keys.header_key(prefix, one.cid)) is not None:
        return 1  # put again meanwhile
    at = prefix + one.cid
    if not one.keeps_writes and not one.remains:
        return 1 + txn.delete_range(at, keys.after(at), limit=limit)
    deleted = 0
    for key in txn.scan_keys(at, keys.after(at)):
        if not stays(one, keys.split(key)):
            if deleted == limit:
                break
            txn.delete(key)
            deleted += 1
    return 1 + deleted


def _forget_namespace(txn: Transaction, thread: int, namespace: int) -> None:
    """Remove an empty namespace from the directory; its number is not given again."""
    name_key = keys.namespace_name_key(thread, namespace)
    record = txn.get(name_key)
    if record is None:
        return
    name = entries.decode_name(frame.unseal(name_key, record, layout.KIND_NAME).payload)
    txn.delete(name_key)
    txn.delete(keys.namespace_key(thread, name.encode()))
    marks = keys.late_key(thread, namespace, 0, b"")[:9]
    txn.delete_range(marks, keys.after(marks), limit=RECORDS_MAX)
