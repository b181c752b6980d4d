"""The directory: which numbers stand for a thread and its namespaces, and when it was last active.

A *stream* is all checkpoints of one thread and namespace; its records share a key prefix made of
two interned numbers. Numbers are given inside the write transaction that first needs them and are
never reused, so nothing cached under one can come to mean something else. A deleted thread keeps
its entry with number 0 and what was deleted (invariants D1 to D4 of docs/invariants.md).

Functions of a transaction; nothing here is cached.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

from deltastore.absence import check_absent
from deltastore.engine.api import Transaction
from deltastore.errors import CorruptionError, FormatVersionError
from deltastore.format import entries, frame, keys, layout
from deltastore.format.entries import ThreadEntry
from deltastore.ids import encode_text

_STORE_KEY: Final = keys.store_key(b"store")
_THREADS_KEY: Final = keys.store_key(b"threads")


class Stream(NamedTuple):
    """One thread's namespace, resolved: its texts, its numbers and its log prefix."""

    thread_id: str
    checkpoint_ns: str
    thread: int
    namespace: int
    prefix: bytes


def _read(txn: Transaction, key: bytes, kind: int) -> bytes | None:
    record = txn.get(key)
    return None if record is None else frame.unseal(key, record, kind).payload


def _write(txn: Transaction, key: bytes, kind: int, payload: bytes) -> None:
    txn.put(key, frame.seal(key, kind, b"", payload))


def put_mark(txn: Transaction, key: bytes) -> None:
    """Put a record that says nothing but its key."""
    _write(txn, key, layout.KIND_MARK, b"")


def store_identity(txn: Transaction) -> bytes | None:
    """Return the store's identity, or None where no store was made yet.

    Raises:
        FormatVersionError: The store is of a newer format.
    """
    payload = _read(txn, _STORE_KEY, layout.KIND_STORE)
    if payload is None:
        return None
    entry = entries.decode_store(payload)
    if entry.format_version > layout.FORMAT_VERSION:
        raise FormatVersionError(
            f"the store is of format {entry.format_version}; this release knows formats up to "
            f"{layout.FORMAT_VERSION}: upgrade langgraph-checkpoint-deltastore"
        )
    return entry.identity


def make_store(txn: Transaction) -> None:
    """Write the store's own record unless it is there."""
    if store_identity(txn) is None:
        for key, record in new_identity().items():
            txn.put(key, record)


def new_identity() -> dict[bytes, bytes]:
    """Return the store's own record, with an identity that no other store has."""
    entry = entries.StoreEntry(layout.FORMAT_VERSION, secrets.token_bytes(16))
    payload = entries.encode_store(entry)
    return {_STORE_KEY: frame.seal(_STORE_KEY, layout.KIND_STORE, b"", payload)}


# Memoized by the record's own bytes: nothing can be stale.
@lru_cache(maxsize=1_024)
def _decode_thread(key: bytes, record: bytes) -> ThreadEntry:
    return entries.decode_thread(frame.unseal(key, record, layout.KIND_THREAD).payload)


@lru_cache(maxsize=1_024)
def _decode_namespace(key: bytes, record: bytes) -> tuple[str, int]:
    payload = frame.unseal(key, record, layout.KIND_NAME).payload
    return entries.decode_named_number(payload)


def find_thread(txn: Transaction, thread_id: str) -> ThreadEntry | None:
    """Return a thread's entry, deleted ones included, or None if it was never used."""
    key = keys.thread_key(encode_text(thread_id, "thread_id"))
    record = txn.get(key)
    if record is None:
        check_absent(txn, key)
        return None
    entry = _decode_thread(key, record)
    if entry.thread_id != thread_id:
        raise CorruptionError(
            f"directory entry belongs to thread {entry.thread_id[:60]!r}",
            thread_id=thread_id,
            record=key.hex(),
        )
    return entry


def save_thread(txn: Transaction, entry: ThreadEntry) -> None:
    """Store a thread's entry."""
    key = keys.thread_key(entry.thread_id.encode())
    _write(txn, key, layout.KIND_THREAD, entries.encode_thread(entry))


def find_stream(txn: Transaction, thread_id: str, checkpoint_ns: str) -> Stream | None:
    """Return a stream, or None if nothing was stored in it since its thread was deleted."""
    entry = find_thread(txn, thread_id)
    if entry is None or entry.number == 0:
        return None
    return _namespace(txn, entry, checkpoint_ns)


def _namespace(txn: Transaction, entry: ThreadEntry, checkpoint_ns: str) -> Stream | None:
    key = keys.namespace_key(entry.number, encode_text(checkpoint_ns, "checkpoint_ns"))
    record = txn.get(key)
    if record is None:
        check_absent(txn, key)
        return None
    name, number = _decode_namespace(key, record)
    if name != checkpoint_ns:
        raise CorruptionError(
            f"directory entry belongs to namespace {name[:60]!r}",
            thread_id=entry.thread_id,
            checkpoint_ns=checkpoint_ns,
            record=key.hex(),
        )
    return make_stream(entry, checkpoint_ns, number)


def make_stream(entry: ThreadEntry, checkpoint_ns: str, number: int) -> Stream:
    """Return the stream of a namespace number."""
    prefix = keys.log_prefix(entry.number, number)
    return Stream(entry.thread_id, checkpoint_ns, entry.number, number, prefix)


def intern_stream(
    txn: Transaction, thread_id: str, checkpoint_ns: str
) -> tuple[ThreadEntry, Stream]:
    """Return a thread's entry and a stream, giving numbers to what has none."""
    entry = find_thread(txn, thread_id) or ThreadEntry(thread_id, 0)
    if entry.number == 0:
        entry = replace(entry, number=next_thread_number(txn), namespaces=0, minute=0)
        name_thread(txn, entry)
    stream = _namespace(txn, entry, checkpoint_ns)
    if stream is not None:
        return entry, stream
    number = entry.namespaces + 1
    entry = replace(entry, namespaces=number)
    save_thread(txn, entry)
    name_namespace(txn, entry.number, checkpoint_ns, number)
    return entry, make_stream(entry, checkpoint_ns, number)


def name_thread(txn: Transaction, entry: ThreadEntry) -> None:
    """Store a thread's entry and the name of its number."""
    name_key = keys.thread_name_key(entry.number)
    _write(txn, name_key, layout.KIND_NAME, entries.encode_name(entry.thread_id))
    save_thread(txn, entry)


def name_namespace(txn: Transaction, thread: int, checkpoint_ns: str, number: int) -> None:
    """Store a namespace's number and its name."""
    key = keys.namespace_key(thread, encode_text(checkpoint_ns, "checkpoint_ns"))
    _write(txn, key, layout.KIND_NAME, entries.encode_named_number(checkpoint_ns, number))
    name_key = keys.namespace_name_key(thread, number)
    _write(txn, name_key, layout.KIND_NAME, entries.encode_name(checkpoint_ns))


def threads_given(txn: Transaction) -> int:
    """Return how many thread numbers were ever given, which is the last one of them."""
    payload = _read(txn, _THREADS_KEY, layout.KIND_STORE)
    return 0 if payload is None else entries.decode_number(payload) - 1


def set_threads_given(txn: Transaction, number: int) -> None:
    """Note the last thread number that was given."""
    _write(txn, _THREADS_KEY, layout.KIND_STORE, entries.encode_number(number + 1))


def next_thread_number(txn: Transaction) -> int:
    """Give a thread number that was never given before."""
    number = threads_given(txn) + 1
    set_threads_given(txn, number)
    return number


def touch(txn: Transaction, entry: ThreadEntry, minute: int) -> None:
    """Note activity; costs writes only in a minute after the last one noted.

    A clock that was put back does not make a thread look idle: the last minute noted stays.
    """
    if entry.minute >= minute:
        return
    if entry.minute:
        txn.delete(keys.activity_key(entry.minute, entry.number))
    put_mark(txn, keys.activity_key(minute, entry.number))
    save_thread(txn, replace(entry, minute=minute))


def streams(txn: Transaction, thread_id: str) -> list[Stream]:
    """Return every stream of a thread, in the order their first writes came."""
    entry = find_thread(txn, thread_id)
    if entry is None or entry.number == 0:
        return []
    prefix = keys.thread_prefix(layout.TAG_NAMES, entry.number)
    found = []
    for key, record in txn.scan(prefix + b"\x00", keys.after(prefix)):
        name = entries.decode_name(frame.unseal(key, record, layout.KIND_NAME).payload)
        found.append(make_stream(entry, name, keys.number_at(key, 5)))
    return found


def thread_id_of(txn: Transaction, number: int) -> str:
    """Return the id of a thread number in use."""
    key = keys.thread_name_key(number)
    payload = _read(txn, key, layout.KIND_NAME)
    if payload is None:
        raise CorruptionError(f"thread number {number} has no name", record=key.hex())
    return entries.decode_name(payload)


def find_thread_id(txn: Transaction, number: int) -> str | None:
    """Return the id of a thread number, None if the thread was deleted."""
    payload = _read(txn, keys.thread_name_key(number), layout.KIND_NAME)
    if payload is None:
        return None
    thread_id = entries.decode_name(payload)
    entry = find_thread(txn, thread_id)
    return thread_id if entry is not None and entry.number == number else None


def scan_active(txn: Transaction, after_key: bytes, limit: int) -> list[tuple[bytes, int, int]]:
    """Return up to `limit` (key, minute, thread number), newest activity first, beyond `after_key`.

    An empty `after_key` starts at the newest.
    """
    start = after_key + b"\x00" if after_key else bytes([layout.TAG_ACTIVITY])
    found = txn.scan_keys(start, bytes([layout.TAG_ACTIVITY + 1]), limit=limit)
    return [(key, 0xFFFF_FFFF - keys.number_at(key, 1), keys.number_at(key, 5)) for key in found]


def before_minute(minute: int) -> bytes:
    """Return where `scan_active` starts to begin with the threads active in `minute`."""
    return keys.activity_key(minute, 0)


def scan_thread_ids(txn: Transaction, after_id: str | None, limit: int) -> list[str]:
    """Return up to `limit` ids of threads in use, in key order, beyond `after_id`.

    None starts at the first. Fewer than `limit` are returned only at the end.
    """
    start = bytes([layout.TAG_THREAD])
    if after_id is not None:
        start = keys.thread_key(after_id.encode()) + b"\x00"
    stop = bytes([layout.TAG_THREAD + 1])
    found: list[str] = []
    while len(found) < limit and (page := txn.scan(start, stop, limit=limit)):
        threads = [_decode_thread(key, record) for key, record in page]
        found += [entry.thread_id for entry in threads if entry.number]
        start = page[-1][0] + b"\x00"
    return found[:limit]
