"""Code where a header's values are: its slots and inline values, as differences to its parent's.

A *slot* tells where one channel stands: *own* if it shows a value of this very checkpoint, *gone*
if emptied here, *written* if the parent holds writes of it, *odd* if it changed in any other way.
A value is *inline* if the header itself holds it; its *ordinal* tells it from the checkpoint's
others.

`put_` and `get_` functions are as `plain` says; these return their flags, and take them. A base's
slots are never changed, but its unchanged slots are shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from operator import ne
from typing import Any, Final, NamedTuple

from deltastore.errors import CorruptionError
from deltastore.format import varint
from deltastore.format.plain import (
    checked_bytes,
    checked_int,
    get_names,
    get_set,
    get_tree,
    put_names,
    put_set,
    put_tree,
)
from deltastore.format.text import get_tag, put_tag
from deltastore.types import Typed

# Flags of a difference; changing any makes every stored difference unreadable.
SLOT_NAMES: Final = 0x1000  # channels the parent has no slot of
SLOTS: Final = 0x2000  # slots that are own, gone or written
SLOTS_ODD: Final = 0x4000  # ordinals of own values that do not ascend from 0, and any other slots
INLINE: Final = 0x8000


class ValueRef(NamedTuple):
    """Where a value is stored.

    Attributes:
        cid: Key form of the checkpoint whose records hold the value.
        ordinal: Which of that checkpoint's values, 0 to 65 535.
        digest: 32 bits of xxh3 of the value's bytes; None if it lies inline in that header.
    """

    cid: bytes
    ordinal: int
    digest: int | None


class Slot(NamedTuple):
    """Where one channel stands at a checkpoint.

    Attributes:
        value: The value the checkpoint shows; None if it shows none.
        emptied: Whether the channel's version is known and no value was put under it. Beside a
            value, that one was made later: an anchor's seed, or folded from writes.
        seed: cid of the nearest ancestor that shows a value of the channel; only without `value`.
        writer: cid of the nearest strict ancestor that holds writes of the channel; a hint.
    """

    value: ValueRef | None = None
    emptied: bool = False
    seed: bytes | None = None
    writer: bytes | None = None


_BLANK: Final = Slot()


def checked_slot(emptied: Any, seed: Any, writer: Any, value: Any) -> Slot:
    """Return a slot made of unpacked parts; raises ValueError if they have wrong types."""
    for cid in (seed, writer):
        if cid is not None:
            checked_bytes(cid)
    ref = None
    if value:
        cid, ordinal, value_digest = value
        if value_digest is not None:
            checked_int(value_digest)
        ref = ValueRef(checked_bytes(cid), checked_int(ordinal), value_digest)
    if type(emptied) is not bool:
        raise ValueError(f"a {type(emptied).__name__} where a flag belongs")
    return Slot(ref, emptied, seed, writer)


def put_inline(out: bytearray, inline: dict[int, Typed]) -> int:
    """Code the inline values."""
    if not inline:
        return 0
    if len(inline) < 128:
        out.append(len(inline))
    else:
        varint.put(out, len(inline))
    for ordinal, (kind, content) in inline.items():
        if ordinal < 128:
            out.append(ordinal)
        else:
            varint.put(out, ordinal)
        put_tag(out, kind)
        if len(content) < 128:
            out.append(len(content))
        else:
            varint.put(out, len(content))
        out += content
    return INLINE


def get_inline(data: bytes, at: int, flags: int) -> tuple[dict[int, Typed], int]:
    """Return the inline values, and the place after."""
    inline: dict[int, Typed] = {}
    if not flags & INLINE:
        return inline, at
    count = data[at]
    if count < 128:
        at += 1
    else:
        count, at = varint.get(data, at)
    for _ in range(count):
        ordinal = data[at]
        if ordinal < 128:
            at += 1
        else:
            ordinal, at = varint.get(data, at)
        kind, at = get_tag(data, at)
        size = data[at]
        if size < 128:
            at += 1
        else:
            size, at = varint.get(data, at)
        end = at + size
        inline[ordinal] = tuple.__new__(Typed, (kind, data[at:end]))
        at = end
    return inline, at


def _changes(
    base: dict[str, Slot],
    new: dict[str, Slot],
    cid: bytes,
    parent: bytes | None,
    inline: dict[int, Typed],
) -> tuple[int, int, int, list[ValueRef], list[Any]]:
    """Return sets of own, gone and written slots, own values in order, and odd slots in full."""
    own = gone = written = 0
    refs: list[ValueRef] = []
    odd: list[Any] = []
    olds = [*base.values(), *[_BLANK] * (len(new) - len(base))]
    news = [*new.values()]
    for place in compress(range(len(news)), map(ne, olds, news)):
        old_value, old_emptied, old_seed, old_writer = olds[place]
        value, emptied, seed, writer = news[place]
        strange = False
        if writer != old_writer:
            written |= 1 << place
            strange = writer != parent
        if value is None:
            if emptied and seed == (old_seed if old_value is None else parent):
                gone |= 1 << place
            elif old_value is not None or emptied != old_emptied or seed != old_seed:
                strange = True
        else:
            home, ordinal, value_digest = value
            strange = strange or emptied
            if home == cid and (value_digest is None) == (ordinal in inline) and not strange:
                own |= 1 << place
                refs.append(value)
            elif value != old_value or emptied != old_emptied:
                strange = True
        if strange:
            odd.append([place, emptied, seed, writer, value and [*value]])
    return own, gone, written, refs, odd


def put_slots(
    out: bytearray,
    base: dict[str, Slot],
    new: dict[str, Slot],
    cid: bytes,
    parent: bytes | None,
    channels: Iterable[str],
    inline: dict[int, Typed],
) -> int | None:
    """Code the slots; None if a slot of the base was removed or moved.

    Args:
        cid: The header's own.
        parent: The parent's cid, None for a root.
        channels: Those that have a version.
        inline: The inline values: an own value is among them just if it has no digest.
    """
    names = list(new)
    if names[: len(base)] != list(base):
        return None
    flags = 0
    if len(names) > len(base):
        put_names(out, names[len(base) :], channels)
        flags = SLOT_NAMES
    own, gone, written, refs, odd = _changes(base, new, cid, parent, inline)
    if not (own or gone or written or odd):
        return flags
    size = len(names)
    put_set(out, own, size)
    put_set(out, gone, size)
    put_set(out, written, size)
    ordinals = [ref[1] for ref in refs]
    if odd or ordinals != [*range(len(refs))]:
        flags |= SLOTS_ODD
        put_tree(out, [ordinals, *odd])
    for ref in refs:
        if ref[2] is not None:
            out += ref[2].to_bytes(4, "big")
    return flags | SLOTS


def get_slots(
    data: bytes,
    at: int,
    flags: int,
    base: dict[str, Slot],
    cid: bytes,
    parent: bytes | None,
    channels: Sequence[str],
    inline: dict[int, Typed],
) -> tuple[dict[str, Slot], int]:
    """Return the slots, and the place after; arguments as of `put_slots`."""
    slots = dict(base)
    names = list(base)
    if flags & SLOT_NAMES:
        added, at = get_names(data, at, channels)
        names += added
        slots.update(dict.fromkeys(added, _BLANK))
        if len(slots) != len(names):
            raise CorruptionError("header names a new slot twice")
    if not flags & SLOTS:
        return slots, at
    size = len(names)
    own, at = get_set(data, at, size)
    gone, at = get_set(data, at, size)
    written, at = get_set(data, at, size)
    ordinals: Iterator[int] | range = range(len(own))
    odd: Any = ()
    if flags & SLOTS_ODD:
        (ordinals, *odd), at = get_tree(data, at)
    new = tuple.__new__
    for place, ordinal in zip(own, ordinals, strict=True):
        name = names[place]
        value_digest = None
        if ordinal not in inline:
            value_digest = int.from_bytes(data[at : at + 4], "big")
            at += 4
        writer = parent if place in written else slots[name][3]
        ref = new(ValueRef, (cid, ordinal, value_digest))
        slots[name] = new(Slot, (ref, False, None, writer))
    for place in gone:
        name = names[place]
        value, _, seed, writer = slots[name]
        if place in written:
            writer = parent
        slots[name] = new(Slot, (None, True, seed if value is None else parent, writer))
    for place in written:
        if place not in own and place not in gone:
            name = names[place]
            value, emptied, seed, _ = slots[name]
            slots[name] = new(Slot, (value, emptied, seed, parent))
    for place, emptied, seed, writer, ref in odd:
        slots[names[place]] = checked_slot(emptied, seed, writer, ref)
    return slots, at
