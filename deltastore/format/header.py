"""Code a checkpoint's header: all of a checkpoint but its values.

A header is *whole*, or a *difference* to its parent's, the *base*. It takes two byte strings: the
*clear* part, which is never encrypted and holds nothing of the user's, and the *payload*:

    clear       u8 form (1 difference, 2 has stored parent, 4 has parent, 8 folded, 16 lost), depth,
                parent
    whole       varint size, MessagePack array of everything
    difference  4-byte digest of the base, u16 flags, the parts the flags name in this order:
                versions (`versions`), fields (`maps`), seen (`versions`), metadata (`maps`),
                inline values, slots (`slots`)

Headers are not to be changed once made: a decoded one shares parts with its base. Must not read a
store, compress or encrypt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from xxhash import xxh3_64_intdigest

from deltastore.errors import CorruptionError, InvalidArgumentError
from deltastore.format import maps, varint, versions
from deltastore.format.clear import (
    DIFFERENCE,
    FOLDED,
    HAS_PARENT,
    PARENT_STORED,
    ClearHeader,
    parent_of,
)
from deltastore.format.plain import (
    DAMAGE,
    Opaque,
    Plain,
    checked_bytes,
    checked_int,
    checked_name,
    pack,
    unpack,
)
from deltastore.format.slots import (
    Slot,
    ValueRef,
    checked_slot,
    get_inline,
    get_slots,
    put_inline,
    put_slots,
)
from deltastore.types import Typed, Version

__all__ = [
    "ClearHeader",
    "Header",
    "Opaque",
    "Plain",
    "Slot",
    "ValueRef",
    "decode",
    "encode",
    "equal",
    "measure",
    "parent_of",
]


@dataclass(slots=True, eq=False)
class Header:
    """A checkpoint but its values. Equal to another if all is, types and order of keys included.

    Attributes:
        parent: The parent's cid, None for a root.
        parent_stored: Whether the parent was stored when this checkpoint was put.
        depth: 0 for a root, else the parent's depth + 1; below 2**64.
        fields: The checkpoint's keys but id, channel_values, channel_versions and versions_seen.
        versions: channel_versions.
        seen: versions_seen.
        metadata: The checkpoint's metadata.
        slots: By channel; may hold channels that have no version.
        inline: Own small values by ordinal; never inherited.
        is_folded: Whether it got values after headers below it, which may name seeds further up.
    """

    parent: bytes | None
    parent_stored: bool
    depth: int
    fields: dict[str, Plain]
    versions: dict[str, Version]
    seen: dict[str, dict[str, Version]]
    metadata: dict[str, Plain]
    slots: dict[str, Slot]
    inline: dict[int, Typed]
    is_folded: bool = False

    __hash__ = None  # type: ignore[assignment]  # compared by content, so not hashable

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Header):
            return NotImplemented
        return _same(self, _visible(self), other)


def _visible(header: Header) -> bytes:
    """Return the canonical bytes of the user-visible part."""
    return pack([header.fields, header.versions, header.seen, header.metadata, header.parent])


def _same(header: Header, visible: bytes, other: Header) -> bool:
    """Return whether all of two headers is equal; `visible` are the first's canonical bytes."""
    return (
        _visible(other) == visible
        and header.slots == other.slots
        and list(header.slots) == list(other.slots)
        and header.inline == other.inline
        and list(header.inline) == list(other.inline)
        and header.depth == other.depth
        and header.parent_stored == other.parent_stored
        and header.is_folded == other.is_folded
    )


def measure(header: Header) -> tuple[int, int]:
    """Return digest, 32 bits of xxh3 over the user-visible part, and bytes with inline values.

    Cost: packs fields, versions, seen, metadata and parent: 2 us for 1 kB.
    """
    visible = _visible(header)
    size = len(visible) + sum([len(typed.data) for typed in header.inline.values()])
    return xxh3_64_intdigest(visible) & 0xFFFFFFFF, size


def equal(a: Header, b: Header) -> bool:
    """Return whether the user-visible parts are equal: types, -0.0, NaN and order of keys too."""
    return _visible(a) == _visible(b)


def encode(
    header: Header, cid: bytes, base: Header | None, *, base_digest: int | None = None
) -> tuple[bytes, bytes]:
    """Return the clear part and the payload of a header.

    Args:
        cid: The header's own.
        base: The parent's header; None to code the header whole.
        base_digest: That of `measure(base)`, if known.

    Returns:
        A difference to `base` if that is smaller and reads back as an equal header, else whole.

    Raises:
        InvalidArgumentError: Something in the header cannot be stored.

    Cost: 60 us for a difference of 7 channels, 25 us of it to read it back.
    """
    visible = _visible(header)
    if not 0 <= header.depth <= varint.NUMBER_MAX:
        raise InvalidArgumentError(
            f"a checkpoint's depth is 0 to {varint.NUMBER_MAX}, not {header.depth}"
        )
    form = PARENT_STORED if header.parent_stored else 0
    if header.parent is not None:
        form |= HAS_PARENT
    if header.is_folded:
        form |= FOLDED
    clear = bytearray((form,))
    varint.put(clear, header.depth)
    clear += header.parent or b""
    whole = None
    if base is not None:
        if base_digest is None:
            base_digest = measure(base)[0]
        try:
            payload = _difference(header, cid, base, base_digest)
        except UnicodeEncodeError:  # a lone surrogate, which the whole form refuses by name
            payload = None
        # A whole payload holds all of `visible` but the parent's cid: mostly this comparison does.
        if payload is not None and len(payload) + len(clear) >= len(visible):
            whole = _whole(header)
            payload = payload if len(payload) < len(whole) else None
        if payload is not None:
            clear[0] = form | DIFFERENCE
            if _reads_back(header, visible, bytes(clear), payload, cid, base, base_digest):
                return bytes(clear), payload
            clear[0] = form
    whole = whole or _whole(header)
    if not _reads_back(header, visible, bytes(clear), whole, cid, None, None):
        raise InvalidArgumentError(
            f"checkpoint header of {len(whole)} bytes does not read back as it was: metadata or "
            "checkpoint keys nested too deeply, or slots of wrong types"
        )
    return bytes(clear), whole


def _reads_back(
    header: Header,
    visible: bytes,
    clear: bytes,
    payload: bytes,
    cid: bytes,
    base: Header | None,
    base_digest: int | None,
) -> bool:
    try:
        again = decode(clear, payload, cid, base, base_digest=base_digest)
    except CorruptionError:
        return False
    return _same(header, visible, again)


def decode(
    clear: bytes,
    payload: bytes,
    cid: bytes,
    base: Header | None,
    *,
    base_digest: int | None = None,
) -> Header:
    """Return the header that `encode` coded.

    Args:
        cid: The header's own.
        base: The parent's header; needed for a difference only.
        base_digest: That of `measure(base)`, if known.

    Raises:
        CorruptionError: The bytes are damaged, or `base` is missing or not the header they were
            coded against.

    Cost: 18 us for a difference of 7 channels.
    """
    head = parent_of(clear)
    try:
        if not head.is_difference:
            return _from_whole(payload, head)
        if base is None:
            raise CorruptionError(
                "header is a difference to its parent's, which was not given; decode that first"
            )
        if base_digest is None:
            base_digest = measure(base)[0]
        coded_against = int.from_bytes(payload[:4], "big")
        if coded_against != base_digest:
            raise CorruptionError(
                f"header was coded against a parent's header of digest {coded_against:08x}, "
                f"but that header has digest {base_digest:08x}"
            )
        return _from_difference(payload, cid, base, head)
    except DAMAGE as error:
        raise CorruptionError(
            f"header payload of {len(payload)} bytes does not decode: {error!r}"
        ) from error


def _whole(header: Header) -> bytes:
    cids: dict[bytes | None, int] = {None: 0}
    slots: list[Any] = []
    for name, (value, emptied, seed, writer) in header.slots.items():
        slot: list[Any] = [
            name,
            emptied,
            cids.setdefault(seed, len(cids)),
            cids.setdefault(writer, len(cids)),
        ]
        if value is not None:
            slot += (cids.setdefault(value.cid, len(cids)), value.ordinal, value.digest)
        slots.append(slot)
    packed = pack(
        [
            header.fields,
            header.versions,
            header.seen,
            header.metadata,
            list(cids)[1:],
            slots,
            [[ordinal, value.type, value.data] for ordinal, value in header.inline.items()],
        ]
    )
    out = bytearray()
    varint.put(out, len(packed))
    return bytes(out + packed)


def _from_whole(payload: bytes, head: ClearHeader) -> Header:
    size, at = varint.get(payload, 0)
    if at + size != len(payload):
        raise CorruptionError(
            f"whole header is {len(payload) - at} bytes long, but was written as {size}"
        )
    fields, channel_versions, seen, metadata, cids, slots, inline = unpack(payload[at:])
    for version in channel_versions.values():
        versions.checked_version(version)
    for sights in seen.values():
        for version in sights.values():
            versions.checked_version(version)
    if type(fields) is not dict or type(metadata) is not dict:
        raise ValueError("fields or metadata are no map")
    known = [None, *map(checked_bytes, cids)]
    return Header(
        head.parent,
        head.parent_stored,
        head.depth,
        fields,
        channel_versions,
        seen,
        metadata,
        {
            checked_name(name): checked_slot(
                emptied, known[seed], known[writer], [known[value[0]], *value[1:]] if value else ()
            )
            for name, emptied, seed, writer, *value in slots
        },
        {
            checked_int(ordinal): Typed(checked_name(kind), checked_bytes(content))
            for ordinal, kind, content in inline
        },
        head.is_folded,
    )


def _difference(header: Header, cid: bytes, base: Header, base_digest: int) -> bytes | None:
    """Return the header as a difference; None if its form cannot tell it."""
    out = bytearray(base_digest.to_bytes(4, "big"))
    out += b"\0\0"
    new_versions = header.versions
    coded = versions.put_versions(out, base.versions, new_versions)
    if coded is None:
        return None
    flags, changed = coded
    flags |= maps.put_fields(out, base.fields, header.fields, cid, changed)
    seen = versions.put_seen(out, base.seen, header.seen, base.versions, new_versions)
    if seen is None:
        return None
    flags |= seen | maps.put_metadata(out, base.metadata, header.metadata, new_versions)
    flags |= put_inline(out, header.inline)
    slots = put_slots(
        out, base.slots, header.slots, cid, header.parent, new_versions, header.inline
    )
    if slots is None:
        return None
    out[4:6] = (flags | slots).to_bytes(2, "big")
    return bytes(out)


def _from_difference(payload: bytes, cid: bytes, base: Header, head: ClearHeader) -> Header:
    flags = payload[4] << 8 | payload[5]
    old_versions = base.versions
    new_versions, names, changed, at = versions.get_versions(payload, 6, flags, old_versions)
    fields, at = maps.get_fields(payload, at, flags, base.fields, cid, changed)
    seen, at = versions.get_seen(payload, at, flags, base.seen, old_versions, new_versions, names)
    metadata, at = maps.get_metadata(payload, at, flags, base.metadata, names)
    inline, at = get_inline(payload, at, flags)
    slots, at = get_slots(payload, at, flags, base.slots, cid, head.parent, names, inline)
    if at != len(payload):
        raise CorruptionError(
            f"header difference ends at byte {at}, but its payload has {len(payload)}"
        )
    parent, stored, _, depth, fold, _ = head
    return Header(parent, stored, depth, fields, new_versions, seen, metadata, slots, inline, fold)
