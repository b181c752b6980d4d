"""Payloads of the records outside the log: the store's own, a thread's entry, a name, a counter.

    store    varint format version, 16 bytes identity
    counter  varint next number
    name     text; of a namespace's number: text, varint number
    thread   text thread id, varint number (0: deleted), varint namespaces given so far,
             varint minute of last activity, varint marks, then per mark:
               text `mark_name` of the namespace, varint length and cid of the greatest uuid6
               deleted there,
               varint count and u64 hashes of other ids deleted there, oldest first
    dropped  varint checkpoints, then per checkpoint: varint length and cid, varint depth,
             u8 1 if its writes stay, varint count and varint ordinals of the values that do
    watch    8 bytes that name the watcher, varint minute since when
    lease    text thread id, text owner, varint token, varint Unix time in ms of the claim or
             renewal, varint ms it lasts from then on

Pure functions; readers raise CorruptionError on malformed bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import xxhash

from deltastore.errors import CorruptionError
from deltastore.format import varint
from deltastore.format.text import get_text, put_text
from deltastore.ids import FORM_ULID

DELETED_TEXT_IDS_MAX: Final = 1_024
_CALL: Final = re.compile(r":[^|]*")


class StoreEntry(NamedTuple):
    """The store's own record: the format it is written in and its identity."""

    format_version: int
    identity: bytes


@dataclass(frozen=True, slots=True)
class DeletedMark:
    """What is known of the checkpoints deleted from one namespace.

    Attributes:
        greatest: Greatest form 1 cid ever deleted; empty for none.
        hashes: Hashes of form 2 cids deleted, the newest `DELETED_TEXT_IDS_MAX`.
    """

    greatest: bytes = b""
    hashes: tuple[int, ...] = ()

    def with_deleted(self, cid: bytes) -> DeletedMark:
        """Return the mark once `cid` is deleted too."""
        if cid[0] == FORM_ULID:
            return DeletedMark(max(self.greatest, cid), self.hashes)
        mark = text_hash(cid)
        if mark in self.hashes:
            return self
        return DeletedMark(self.greatest, (*self.hashes, mark)[-DELETED_TEXT_IDS_MAX:])

    def joined(self, other: DeletedMark) -> DeletedMark:
        """Return the mark once what `other` knows is deleted too."""
        new = [number for number in other.hashes if number not in self.hashes]
        hashes = (*self.hashes, *new)[-DELETED_TEXT_IDS_MAX:]
        return DeletedMark(max(self.greatest, other.greatest), hashes)

    def covers(self, cid: bytes) -> bool:
        """Whether an absent `cid` counts as deleted rather than never stored."""
        if cid[0] == FORM_ULID:
            return cid <= self.greatest
        return text_hash(cid) in self.hashes


@dataclass(frozen=True, slots=True)
class ThreadEntry:
    """A thread's entry in the directory.

    Attributes:
        number: Prefix of its records; 0 when it was deleted and not used since.
        namespaces: Namespace numbers given so far; the next one is this plus 1.
        minute: Unix time / 60 of the last activity, kept to the minute.
        deleted: By `mark_name` of the namespace, what was deleted (kept when the thread starts
            anew).
    """

    thread_id: str
    number: int
    namespaces: int = 0
    minute: int = 0
    deleted: Mapping[str, DeletedMark] = field(default_factory=dict)

    def mark_of(self, namespace: str) -> DeletedMark | None:
        """Return what is known of the checkpoints deleted from a namespace."""
        return self.deleted.get(mark_name(namespace)) if self.deleted else None


class Dropped(NamedTuple):
    """A checkpoint whose records wait to be deleted.

    Attributes:
        cid: Which.
        depth: Of its header, which a mark of late writes is found by.
        keeps_writes: Whether its writes stay, an anchor's or early ones.
        remains: Ordinals of its values that stay, since others refer to them.
    """

    cid: bytes
    depth: int
    keeps_writes: bool
    remains: tuple[int, ...]


class LeaseEntry(NamedTuple):
    """Who holds a thread: since when, in Unix milliseconds, and for how long, in milliseconds."""

    thread_id: str
    owner: str
    token: int
    since_ms: int
    ttl_ms: int


class Watch(NamedTuple):
    """Who plans maintenance of a thread, and since when (Unix time / 60)."""

    token: bytes
    minute: int


def mark_name(namespace: str) -> str:
    """Return what a namespace's mark is kept under: namespaces of calls of one node share theirs.

    Each call makes a namespace, whose last part is its own; marks must not grow with them.
    """
    return _CALL.sub(":", namespace) if ":" in namespace else namespace


def with_deleted(entry: ThreadEntry, namespace: str, mark: DeletedMark) -> ThreadEntry:
    """Return a thread's entry once checkpoints of a namespace are deleted."""
    name = mark_name(namespace)
    joined = entry.deleted.get(name, DeletedMark()).joined(mark)
    return (
        entry
        if joined == DeletedMark()
        else replace(entry, deleted={**entry.deleted, name: joined})
    )


def text_hash(data: bytes) -> int:
    """64-bit hash of a form 2 cid or a task id."""
    return xxhash.xxh3_64_intdigest(data)


def encode_store(entry: StoreEntry) -> bytes:
    """Return the payload of the store's own record."""
    out = bytearray()
    varint.put(out, entry.format_version)
    return bytes(out + entry.identity)


def decode_store(payload: bytes) -> StoreEntry:
    """Read the store's own record. The identity of a newer format may have another length."""
    number, at = varint.get(payload, 0)
    return StoreEntry(number, payload[at:])


def encode_number(number: int) -> bytes:
    """Return the payload of a counter."""
    out = bytearray()
    varint.put(out, number)
    return bytes(out)


def decode_number(payload: bytes) -> int:
    """Read a counter."""
    return varint.get(payload, 0)[0]


def encode_name(name: str) -> bytes:
    """Return the payload of a name."""
    out = bytearray()
    put_text(out, name)
    return bytes(out)


def decode_name(payload: bytes) -> str:
    """Read a name."""
    return get_text(payload, 0)[0]


def encode_named_number(name: str, number: int) -> bytes:
    """Return the payload of a namespace's number: the text it belongs to, and the number."""
    out = bytearray()
    put_text(out, name)
    varint.put(out, number)
    return bytes(out)


def decode_named_number(payload: bytes) -> tuple[str, int]:
    """Read a namespace's text and number."""
    name, at = get_text(payload, 0)
    return name, varint.get(payload, at)[0]


def encode_thread(entry: ThreadEntry) -> bytes:
    """Return the payload of a thread's entry."""
    out = bytearray()
    put_text(out, entry.thread_id)
    varint.put(out, entry.number)
    varint.put(out, entry.namespaces)
    varint.put(out, entry.minute)
    varint.put(out, len(entry.deleted))
    for namespace, mark in entry.deleted.items():
        put_text(out, namespace)
        varint.put(out, len(mark.greatest))
        out += mark.greatest
        varint.put(out, len(mark.hashes))
        for number in mark.hashes:
            out += number.to_bytes(8, "big")
    return bytes(out)


def decode_thread(payload: bytes) -> ThreadEntry:
    """Read a thread's entry."""
    thread_id, at = get_text(payload, 0)
    number, at = varint.get(payload, at)
    namespaces, at = varint.get(payload, at)
    minute, at = varint.get(payload, at)
    count, at = varint.get(payload, at)
    deleted = {}
    for _ in range(count):
        namespace, at = get_text(payload, at)
        length, at = varint.get(payload, at)
        greatest = payload[at : at + length]
        hashes, at = varint.get(payload, at + length)
        end = at + 8 * hashes
        if end > len(payload):
            raise CorruptionError("thread entry ends inside its marks of deleted checkpoints")
        numbers = tuple(int.from_bytes(payload[i : i + 8], "big") for i in range(at, end, 8))
        deleted[namespace] = DeletedMark(greatest, numbers)
        at = end
    return ThreadEntry(thread_id, number, namespaces, minute, deleted)


def encode_dropped(dropped: Sequence[Dropped]) -> bytes:
    """Return the payload of a list of dropped checkpoints."""
    out = bytearray()
    varint.put(out, len(dropped))
    for cid, depth, keeps_writes, remains in dropped:
        varint.put(out, len(cid))
        out += cid
        varint.put(out, depth)
        out.append(keeps_writes)
        varint.put(out, len(remains))
        for ordinal in remains:
            varint.put(out, ordinal)
    return bytes(out)


def decode_dropped(payload: bytes) -> list[Dropped]:
    """Read a list of dropped checkpoints."""
    count, at = varint.get(payload, 0)
    found = []
    for _ in range(count):
        length, at = varint.get(payload, at)
        cid = payload[at : at + length]
        depth, at = varint.get(payload, at + length)
        keeps_writes, at = varint.get(payload, at)
        remaining, at = varint.get(payload, at)
        remains = []
        for _ in range(remaining):
            ordinal, at = varint.get(payload, at)
            remains.append(ordinal)
        found.append(Dropped(cid, depth, bool(keeps_writes), tuple(remains)))
    return found


def encode_watch(watch: Watch) -> bytes:
    """Return the payload of a watch."""
    out = bytearray(watch.token)
    varint.put(out, watch.minute)
    return bytes(out)


def decode_watch(payload: bytes) -> Watch:
    """Read a watch."""
    return Watch(payload[:8], varint.get(payload, 8)[0])


def encode_lease(lease: LeaseEntry) -> bytes:
    """Return the payload of a lease."""
    out = bytearray()
    put_text(out, lease.thread_id)
    put_text(out, lease.owner)
    for number in (lease.token, lease.since_ms, lease.ttl_ms):
        varint.put(out, number)
    return bytes(out)


def decode_lease(payload: bytes) -> LeaseEntry:
    """Read a lease."""
    thread_id, at = get_text(payload, 0)
    owner, at = get_text(payload, at)
    token, at = varint.get(payload, at)
    since_ms, at = varint.get(payload, at)
    ttl_ms, at = varint.get(payload, at)
    return LeaseEntry(thread_id, owner, token, since_ms, ttl_ms)
