"""Keys of every keyspace, built and taken apart. All numbers are big endian, so keys sort by them.

    00 | name                                  the store's own record
    01 | text                                  thread id -> thread entry
    02 | thread u32 | text                     namespace -> its number
    03 | thread u32 | [ns u32]                 number -> thread id, number -> namespace
    04 | minutes left u32 | thread u32         newest activity first
    05 | thread u32 | ordinal u16              encrypted secret that keys task suffixes
    06 | thread u32 | ns u32 | depth u32 | cid writes that came after a child was stored
    07 | thread u32 | [ns u32 | cid]           a deleted thread, or checkpoints, that wait to go
    08 | hash u64 | thread u32                 a thread that a run touched
    09 | thread u32 | [ns u32 | cid]           a watched thread, and what was stored there since
    0a | thread u32 | hash u64                 a run that touched a thread
    0b | text                              thread id -> its lease
    10 | thread u32 | ns u32 | cid | kind u8 | suffix

*text* is 00 and the UTF-8 itself up to `TEXT_BYTES_MAX` bytes, else 01, its first `TEXT_BYTES_MAX`
bytes and the xxh3-128 of the whole (the record then holds the whole, and it is compared). The
suffix of a value is its ordinal u16, of a writes record the hash u64 of its task id, of folded
writes their place u32 in order, of the others nothing. Pure functions.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import xxhash

from deltastore.errors import CorruptionError
from deltastore.format import layout
from deltastore.ids import cid_length

TEXT_BYTES_MAX: Final = 400
DEPTH_MAX: Final = 0xFFFF_FFFC
DEPTH_CROSSED: Final = 0xFFFF_FFFD  # a checkpoint shows a value that no ancestor of it shows
DEPTH_ORPHANED: Final = 0xFFFF_FFFE  # the cid is a parent that was absent when its child was put
DEPTH_UNHINTED: Final = 0xFFFF_FFFF  # nothing in the stream's hints may be relied on
MINUTES_MAX: Final = 0xFFFF_FFFF
_U32: Final = struct.Struct(">BI")
_U32_U32: Final = struct.Struct(">BII")
_LATE: Final = struct.Struct(">BIII")
_U64_U32: Final = struct.Struct(">BQI")


class LogKey(NamedTuple):
    """A key of the log, taken apart."""

    thread: int
    namespace: int
    cid: bytes
    kind: int
    suffix: bytes


def _text(text: bytes) -> bytes:
    if len(text) <= TEXT_BYTES_MAX:
        return b"\x00" + text
    return b"\x01" + text[:TEXT_BYTES_MAX] + xxhash.xxh3_128_digest(text)


def store_key(name: bytes) -> bytes:
    """Key of one of the store's own records."""
    return bytes([layout.TAG_STORE]) + name


def thread_key(thread_id: bytes) -> bytes:
    """Key of a thread's entry, by its id."""
    return bytes([layout.TAG_THREAD]) + _text(thread_id)


def lease_key(thread_id: bytes) -> bytes:
    """Key of a thread's lease, by its id: it may be claimed before anything is stored in it."""
    return bytes([layout.TAG_LEASE]) + _text(thread_id)


def namespace_key(thread: int, namespace: bytes) -> bytes:
    """Key of a namespace's number, by its text."""
    return _U32.pack(layout.TAG_NAMESPACE, thread) + _text(namespace)


def thread_name_key(thread: int) -> bytes:
    """Key of a thread's id, by its number."""
    return _U32.pack(layout.TAG_NAMES, thread)


def namespace_name_key(thread: int, namespace: int) -> bytes:
    """Key of a namespace's text, by its number."""
    return _U32_U32.pack(layout.TAG_NAMES, thread, namespace)


def number_at(key: bytes, start: int) -> int:
    """Return the u32 at `key[start:start + 4]`."""
    if len(key) < start + 4:
        raise CorruptionError("key is too short for its keyspace", record=key.hex())
    return int.from_bytes(key[start : start + 4], "big")


def activity_key(minute: int, thread: int) -> bytes:
    """Key that sorts threads by the minute (Unix time / 60) of last activity, newest first."""
    return _U32_U32.pack(layout.TAG_ACTIVITY, MINUTES_MAX - minute, thread)


def secret_key(thread: int, ordinal: int) -> bytes:
    """Key of a thread's n-th secret."""
    return _U32.pack(layout.TAG_SECRET, thread) + ordinal.to_bytes(2, "big")


def late_key(thread: int, namespace: int, depth: int, cid: bytes) -> bytes:
    """Key that marks a checkpoint whose writes its descendants' hints may not know."""
    return _LATE.pack(layout.TAG_LATE, thread, namespace, depth) + cid


def reclaim_key(thread: int) -> bytes:
    """Key that marks a deleted thread number whose records wait to be deleted."""
    return _U32.pack(layout.TAG_RECLAIM, thread)


def dropped_key(thread: int, namespace: int, cid: bytes) -> bytes:
    """Key of a list of dropped checkpoints whose records wait to be deleted; `cid` is the first."""
    return _U32_U32.pack(layout.TAG_RECLAIM, thread, namespace) + cid


def run_prefix(run_hash: int) -> bytes:
    """Prefix of the marks of the threads that a run touched."""
    return bytes([layout.TAG_RUN]) + run_hash.to_bytes(8, "big")


def run_key(run_hash: int, thread: int) -> bytes:
    """Key that marks a thread as touched by a run."""
    return _U64_U32.pack(layout.TAG_RUN, run_hash, thread)


def thread_run_key(thread: int, run_hash: int) -> bytes:
    """Key that marks a run as having touched a thread."""
    return _U32.pack(layout.TAG_THREAD_RUNS, thread) + run_hash.to_bytes(8, "big")


def watch_key(thread: int) -> bytes:
    """Key of the record that says that maintenance of a thread is being planned."""
    return _U32.pack(layout.TAG_WATCH, thread)


def touched_key(thread: int, namespace: int, cid: bytes) -> bytes:
    """Key that marks a checkpoint as stored, or written to, while its thread is watched."""
    return _U32_U32.pack(layout.TAG_WATCH, thread, namespace) + cid


def log_prefix(thread: int, namespace: int) -> bytes:
    """Prefix of every log record of one stream."""
    return _U32_U32.pack(layout.TAG_LOG, thread, namespace)


def thread_prefix(tag: int, thread: int) -> bytes:
    """Prefix of every key of one thread in the keyspace `tag`."""
    return _U32.pack(tag, thread)


def header_key(prefix: bytes, cid: bytes) -> bytes:
    """Key of a checkpoint's header."""
    return prefix + cid + b"\x01"


def value_key(prefix: bytes, cid: bytes, ordinal: int) -> bytes:
    """Key of a checkpoint's n-th value."""
    return prefix + cid + b"\x02" + ordinal.to_bytes(2, "big")


def writes_key(prefix: bytes, cid: bytes, task_hash: int) -> bytes:
    """Key of one task's writes at a checkpoint."""
    return prefix + cid + b"\x03" + task_hash.to_bytes(8, "big")


def anchor_key(prefix: bytes, cid: bytes) -> bytes:
    """Key of an anchor: what stands in the place of a dropped checkpoint's header."""
    return prefix + cid + b"\x04"


def folded_key(prefix: bytes, cid: bytes, place: int) -> bytes:
    """Key of an anchor's n-th record of writes that dropped ancestors held."""
    return prefix + cid + b"\x05" + place.to_bytes(4, "big")


def after(prefix: bytes) -> bytes:
    """Return the smallest key above every key that begins with `prefix`."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1])


def split(key: bytes) -> LogKey:
    """Take a log key apart.

    Raises:
        CorruptionError: It is no key of the log.
    """
    if len(key) < 10 or key[0] != layout.TAG_LOG:
        raise CorruptionError("not a key of the log", record=key.hex())
    end = 9 + cid_length(key, 9)
    kind = key[end] if end < len(key) else 0
    suffix = key[end + 1 :]
    wanted = {
        layout.KIND_HEADER: 0,
        layout.KIND_VALUE: 2,
        layout.KIND_WRITES: 8,
        layout.KIND_ANCHOR: 0,
        layout.KIND_FOLDED: 4,
    }
    if wanted.get(kind) != len(suffix):
        raise CorruptionError(
            f"log key with kind {kind} and suffix {suffix.hex()!r}", record=key.hex()
        )
    return LogKey(number_at(key, 1), number_at(key, 5), key[9:end], kind, suffix)
