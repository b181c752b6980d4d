"""Payloads of the records outside the log: the store's own, a thread's entry, a name, a counter.

    store    varint format version, 16 bytes identity
    counter  varint next number
    name     text; of a namespace's number: text, varint number
    thread   text thread id, varint number (0: deleted), varint namespaces given so far,
             varint minute of last activity, varint marks, then per mark:
               text namespace, varint length and cid of the greatest uuid6 deleted there,
               varint count and u64 hashes of other ids deleted there, oldest first

Pure functions; readers raise CorruptionError on malformed bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import xxhash

from deltastore.errors import CorruptionError
from deltastore.format import varint
from deltastore.format.text import get_text, put_text
from deltastore.ids import FORM_ULID

DELETED_TEXT_IDS_MAX: Final = 1_024


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
        deleted: By namespace, what was deleted (kept when the thread starts anew).
    """

    thread_id: str
    number: int
    namespaces: int = 0
    minute: int = 0
    deleted: Mapping[str, DeletedMark] = field(default_factory=dict)


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
