"""The clear part of a header or anchor: what is read without decoding, and never encrypted.

    clear   u8 form (1 difference, 2 has stored parent, 4 has parent, 8 folded, or 16 alone: lost),
            varint depth, then the parent's cid or nothing

With form 16 it is a *gap*: damage took what was here, and a repair has left its place.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from deltastore.errors import CorruptionError
from deltastore.format import varint
from deltastore.ids import CID_ULID_BYTES, FORM_ULID, cid_length

DIFFERENCE: Final = 1
PARENT_STORED: Final = 2
HAS_PARENT: Final = 4
FOLDED: Final = 8
_LOST: Final = 16


class ClearHeader(NamedTuple):
    """What the clear part tells.

    Attributes:
        parent: The parent's cid, None for a root.
        parent_stored: Whether the parent was stored when this checkpoint was put.
        is_difference: Whether decoding needs the parent's header.
        depth, is_folded: See `Header`.
        is_lost: It is the place of a checkpoint that damage took; there is nothing to decode.
    """

    parent: bytes | None
    parent_stored: bool
    is_difference: bool
    depth: int
    is_folded: bool
    is_lost: bool = False


def parent_of(clear: bytes) -> ClearHeader:
    """Return what the clear part of a header tells, by itself.

    Raises:
        CorruptionError: The bytes are no clear part.

    Cost: 1 us.
    """
    form = clear[0] if clear else 32
    if form > 15 and form != _LOST:
        raise CorruptionError(f"clear part of a header has unknown form: {clear[:40].hex()!r}")
    if len(clear) > 1 and clear[1] < 128:
        depth, at = clear[1], 2
    else:
        depth, at = varint.get(clear, 1)
    parent = clear[at:] if form & HAS_PARENT else None
    if parent is None:
        if at != len(clear):
            raise CorruptionError(f"clear part of a root header is too long: {clear[:40].hex()}")
    elif (len(parent) != CID_ULID_BYTES or parent[0] != FORM_ULID) and (
        cid_length(parent, 0) != len(parent)
    ):
        raise CorruptionError(f"clear part of a header names no parent: {clear[:40].hex()}")
    stored, is_difference = form & PARENT_STORED != 0, form & DIFFERENCE != 0
    is_folded, is_lost = form & FOLDED != 0, form == _LOST
    return tuple.__new__(ClearHeader, (parent, stored, is_difference, depth, is_folded, is_lost))


def gap(depth: int) -> bytes:
    """Return the clear part that stands for a checkpoint of which nothing is left but its depth."""
    out = bytearray((_LOST,))
    varint.put(out, depth)
    return bytes(out)
