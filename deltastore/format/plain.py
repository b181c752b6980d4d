"""Code what a header is made of: plain trees, sets, names.

A *plain* value is what MessagePack holds by itself, or an *opaque* one: bytes that only the user's
serializer reads. A *tree* is a list of plain values in MessagePack, a *set* is of indices into a
list that both sides know, a *name* is a text, told by its *place* (from 1) in such a list if it is
there.

Here and in `maps`, `versions` and `slots`, a `put_` function appends its part of a header to `out`.
A `get_` function reads the same part at `at` and returns it with the place after. The bytes may be
damaged: it raises one of `DAMAGE`, or may return a place beyond their end, and never checks for
that: the caller does, once, after the last part.

Must not know what the trees, sets and names are of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, Union

import ormsgpack

from deltastore.errors import InvalidArgumentError
from deltastore.format import varint
from deltastore.format.text import get_text, put_text

DAMAGE: Final = (IndexError, KeyError, ValueError, TypeError, OverflowError, AttributeError)
SET_BITS_MAX: Final = 64  # larger sets are coded by their members

_OPAQUE: Final = 1  # MessagePack extension type
_BITS: Final = tuple(tuple(i for i in range(8) if byte >> i & 1) for byte in range(256))
# Types that MessagePack would turn into others in silence are refused instead.
_PACK: Final = (
    ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
)


class Opaque(NamedTuple):
    """A metadata or field value that only the user's serializer understands."""

    type: str
    data: bytes


Plain: TypeAlias = Union[
    bool, int, float, str, bytes, "list[Plain]", "dict[str, Plain]", Opaque, None
]


def _pack_opaque(value: object) -> ormsgpack.Ext:
    if type(value) is not Opaque:
        raise TypeError(f"no header can hold a {type(value).__name__}")
    return ormsgpack.Ext(_OPAQUE, ormsgpack.packb([value.type, value.data]))


def _unpack_opaque(tag: int, packed: bytes) -> Opaque:
    kind, content = ormsgpack.unpackb(packed)
    if tag != _OPAQUE or type(kind) is not str or type(content) is not bytes:
        raise ValueError(f"extension {tag} is no opaque value")
    return Opaque(kind, content)


def pack(tree: list[Any]) -> bytes:
    """Return the MessagePack form of a tree of `Plain`.

    Raises:
        InvalidArgumentError: It holds another type, an int beyond 64 bits, a lone surrogate, or is
            nested too deeply.
    """
    try:
        return ormsgpack.packb(tree, _pack_opaque, _PACK)
    except TypeError as error:
        raise InvalidArgumentError(
            f"checkpoint header cannot be stored: {error.__cause__ or error}; "
            "metadata and checkpoint keys must be text, numbers, lists or dicts of them"
        ) from error


def unpack(packed: bytes) -> Any:
    """Return the tree; bytes after its end are ignored. Raises ValueError on damage."""
    return ormsgpack.unpackb(packed, ext_hook=_unpack_opaque)


def put_set(out: bytearray, mask: int, size: int) -> None:
    """Append a set of indices below `size`, given as the sum of their powers of two."""
    if size <= 8:
        if size:
            out.append(mask)
    elif size <= SET_BITS_MAX:
        out += mask.to_bytes((size + 7) >> 3, "little")
    else:
        members = [place for place in range(mask.bit_length()) if mask >> place & 1]
        varint.put(out, len(members))
        before = 0
        for member in members:
            varint.put(out, member - before)
            before = member


def get_set(data: bytes, at: int, size: int) -> tuple[Sequence[int], int]:
    """Return the set at `at`, ascending, and the place after it; a member may exceed `size`."""
    if size <= 8:
        return (_BITS[data[at]], at + 1) if size else ((), at)
    members: list[int] = []
    if size <= SET_BITS_MAX:
        end = at + (size + 7 >> 3)
        mask = int.from_bytes(data[at:end], "little")
        while mask:
            low = mask & -mask
            members.append(low.bit_length() - 1)
            mask ^= low
        return members, end
    count, at = varint.get(data, at)
    member = 0
    for _ in range(count):
        step, at = varint.get(data, at)
        member += step
        members.append(member)
    return members, at


def put_names(out: bytearray, names: Sequence[str], known: Iterable[str]) -> None:
    """Append names, each as its place among the `known` ones or as text."""
    if not names:
        out.append(0)
        return
    places = {name: place for place, name in enumerate(known, 1)}
    varint.put(out, len(names))
    for name in names:
        place = places.get(name, 0)
        varint.put(out, place)
        if not place:
            put_text(out, name)


def get_names(data: bytes, at: int, known: Sequence[str]) -> tuple[list[str], int]:
    """Return the names at `at`, and the place after them."""
    names: list[str] = []
    if data[at] == 0:
        return names, at + 1
    count, at = varint.get(data, at)
    for _ in range(count):
        place, at = varint.get(data, at)
        if place:
            name = known[place - 1]
        else:
            name, at = get_text(data, at)
        names.append(name)
    return names, at


def put_tree(out: bytearray, tree: list[Any]) -> None:
    """Append the MessagePack form of a tree of `Plain`, with its length."""
    packed = pack(tree)
    varint.put(out, len(packed))
    out += packed


def get_tree(data: bytes, at: int) -> tuple[Any, int]:
    """Return the tree at `at`, and the place after it."""
    size, at = varint.get(data, at)
    return unpack(data[at : at + size]), at + size


def checked_name(name: Any) -> str:
    """Return `name` if it is text; raises ValueError."""
    if type(name) is str:
        return name
    raise ValueError(f"a {type(name).__name__} is no name")


def checked_bytes(value: Any) -> bytes:
    """Return `value` if it is bytes; raises ValueError."""
    if type(value) is bytes:
        return value
    raise ValueError(f"a {type(value).__name__} where bytes belong")


def checked_int(value: Any) -> int:
    """Return `value` if it is a number; raises ValueError, for a flag too."""
    if type(value) is int:
        return value
    raise ValueError(f"a {type(value).__name__} where a number belongs")
