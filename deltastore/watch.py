"""Watch a thread while maintenance of it is planned: who stores something there leaves a mark.

A plan is made in a read view and applied in a later write transaction. In between others go on;
the marks tell which checkpoints they stored or wrote to, so that applying checks these and no
others. Costs a writer one look-up where nothing is watched.

A watch that was left behind, by a process that was killed, is replaced by the next one on that
thread and ended by the next opening of the store after `STALE_MINUTES`.
"""

from __future__ import annotations

import secrets
from typing import Final

from deltastore import directory
from deltastore.directory import Stream
from deltastore.engine.api import Transaction
from deltastore.format import entries, frame, keys, layout
from deltastore.format.entries import Watch

STALE_MINUTES: Final = 60
_MARKS_MAX: Final = 1_000  # ended in one transaction


def begin(txn: Transaction, thread: int, minute: int) -> bytes:
    """Watch a thread from now on; return the token that ends the watch of others."""
    end(txn, thread)
    token = secrets.token_bytes(8)
    key = keys.watch_key(thread)
    _write(txn, key, Watch(token, minute))
    return token


def holds(txn: Transaction, thread: int, token: bytes) -> bool:
    """Whether the watch with this token still stands."""
    key = keys.watch_key(thread)
    record = txn.get(key)
    return record is not None and _read(key, record).token == token


def renew(txn: Transaction, thread: int, token: bytes, minute: int) -> bool:
    """As `holds`, in a write transaction; notes that the watcher is still at work."""
    key = keys.watch_key(thread)
    record = txn.get(key)
    if record is None or (found := _read(key, record)).token != token:
        return False
    if found.minute != minute:
        _write(txn, key, Watch(token, minute))
    return True


def note(txn: Transaction, stream: Stream, cid: bytes) -> None:
    """Mark a checkpoint as stored, or written to, if its thread is watched."""
    if txn.get(keys.watch_key(stream.thread)) is not None:
        directory.put_mark(txn, keys.touched_key(stream.thread, stream.namespace, cid))


def touched(txn: Transaction, thread: int) -> list[tuple[int, bytes]]:
    """Return namespace number and cid of what was stored or written to since the watch began."""
    prefix = keys.watch_key(thread)
    marks = txn.scan_keys(prefix + b"\x00", keys.after(prefix))
    return [(keys.number_at(key, 5), key[9:]) for key in marks]


def end(txn: Transaction, thread: int) -> bool:
    """End a thread's watch; return whether marks may be left, to be ended by another call."""
    prefix = keys.watch_key(thread)
    return txn.delete_range(prefix, keys.after(prefix), limit=_MARKS_MAX) == _MARKS_MAX


def watched(txn: Transaction) -> list[int]:
    """Return the numbers of the threads that are watched, the copies that are being made too."""
    found = []
    at = bytes([layout.TAG_WATCH])
    stop = keys.after(at)
    while page := txn.scan_keys(at, stop, limit=1):
        found.append(keys.number_at(page[0], 1))
        at = keys.after(keys.watch_key(found[-1]))
    return found


def end_own(txn: Transaction, thread: int, token: bytes) -> bool:
    """As `end`, unless another watch has taken the place of the one with this token."""
    return holds(txn, thread, token) and end(txn, thread)


def is_any(txn: Transaction) -> bool:
    """Whether anything is watched, or was and is not ended yet."""
    low = bytes([layout.TAG_WATCH])
    return bool(txn.scan_keys(low, keys.after(low), limit=1))


def end_stale(txn: Transaction, minute: int) -> bool:
    """End one watch that was left behind; return whether there may be more."""
    at = bytes([layout.TAG_WATCH])
    stop = keys.after(at)
    while page := txn.scan(at, stop, limit=1):
        key, record = page[0]
        thread = keys.number_at(key, 1)
        # Marks without a watch are what an interrupted `end` left.
        if len(key) > 5 or abs(minute - _read(key, record).minute) > STALE_MINUTES:
            end(txn, thread)
            if directory.find_thread_id(txn, thread) is None:
                directory.put_mark(txn, keys.reclaim_key(thread))  # a copy that was given up
            return True
        at = keys.after(keys.watch_key(thread))
    return False


def _write(txn: Transaction, key: bytes, watch: Watch) -> None:
    txn.put(key, frame.seal(key, layout.KIND_WATCH, b"", entries.encode_watch(watch)))


def _read(key: bytes, record: bytes) -> Watch:
    return entries.decode_watch(frame.unseal(key, record, layout.KIND_WATCH).payload)
