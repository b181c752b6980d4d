"""Payload of a value record: a channel's value, whole or as a delta to an ancestor's.

    u8      form: 1 whole, 2 delta
    text    type tag of the serializer
    varint  depth of the checkpoint that holds the chain's last snapshot point (its own if whole)
    only in a delta:
      varint length, cid    checkpoint that holds the base
      varint                the base's ordinal there
      u32                   digest of the base's bytes
      varint                deltas since the last snapshot point; 0: this record is one (a run)
      varint               bytes of all bodies along the chain, this one and the whole included
    body    the value's bytes, or the encoded delta (deltastore.format.delta)

A *source* is a stored write whose elements the delta's base is extended by before it is applied, so
that a message that a task wrote is stored once.

`digest` is the identity of a value's bytes in every reference to it. Pure functions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import xxhash

from deltastore.errors import CorruptionError
from deltastore.format import varint
from deltastore.format.text import get_tag, put_tag

_WHOLE: Final = 1
_DELTA: Final = 2


class Source(NamedTuple):
    """A stored write: its checkpoint, the suffix of its record's key, its index in the record."""

    cid: bytes
    suffix: int
    idx: int


class Base(NamedTuple):
    """What a delta is coded against, and how long its chain is.

    Attributes:
        cid, ordinal: Where the base is stored.
        digest: Of the base's bytes.
        updates: Deltas since the last snapshot point, this one counted; 0 for a run.
        stored: Bytes read to rebuild the value: bodies down to the whole one, and sources.
        sources: Writes whose elements extend the base, in order.
    """

    cid: bytes
    ordinal: int
    digest: int
    updates: int
    stored: int
    sources: tuple[Source, ...] = ()


class ValueRecord(NamedTuple):
    """A stored value: type tag, depth of its snapshot point, base if it is a delta, and body."""

    type: str
    point_depth: int
    base: Base | None
    body: bytes


def digest(data: bytes) -> int:
    """Return 32 bits of xxh3 over a value's bytes."""
    return xxhash.xxh3_64_intdigest(data) & 0xFFFF_FFFF


def encode(record: ValueRecord) -> bytes:
    """Return the payload of a value record."""
    out = bytearray([_WHOLE if record.base is None else _DELTA])
    put_tag(out, record.type)
    varint.put(out, record.point_depth)
    base = record.base
    if base is not None:
        varint.put(out, len(base.cid))
        out += base.cid
        varint.put(out, base.ordinal)
        out += base.digest.to_bytes(4, "big")
        varint.put(out, base.updates)
        varint.put(out, base.stored)
        _put_sources(out, base)
    out += record.body
    return bytes(out)


def decode(payload: bytes) -> ValueRecord:
    """Read the payload of a value record.

    Raises:
        CorruptionError: It is malformed.
    """
    form = payload[0] if payload else 0
    if form not in (_WHOLE, _DELTA):
        raise CorruptionError(f"value record of unknown form {form}")
    tag, at = get_tag(payload, 1)
    point_depth, at = varint.get(payload, at)
    base = None
    if form == _DELTA:
        length, at = varint.get(payload, at)
        cid = payload[at : at + length]
        ordinal, at = varint.get(payload, at + length)
        base_digest = int.from_bytes(payload[at : at + 4], "big")
        updates, at = varint.get(payload, at + 4)
        stored, at = varint.get(payload, at)
        sources, at = _get_sources(payload, at, cid)
        base = Base(cid, ordinal, base_digest, updates, stored, sources)
    return ValueRecord(tag, point_depth, base, payload[at:])


def _put_sources(out: bytearray, base: Base) -> None:
    varint.put(out, len(base.sources))
    last = base.cid
    for source in base.sources:
        if source.cid == last:
            out.append(0)
        else:
            varint.put(out, len(source.cid))
            out += source.cid
            last = source.cid
        out += source.suffix.to_bytes(8, "big")
        varint.put(out, source.idx)


def _get_sources(payload: bytes, at: int, cid: bytes) -> tuple[tuple[Source, ...], int]:
    count, at = varint.get(payload, at)
    sources = []
    for _ in range(count):
        length, at = varint.get(payload, at)
        if length:
            cid = payload[at : at + length]
            at += length
        suffix = int.from_bytes(payload[at : at + 8], "big")
        idx, at = varint.get(payload, at + 8)
        sources.append(Source(cid, suffix, idx))
    return tuple(sources), at
