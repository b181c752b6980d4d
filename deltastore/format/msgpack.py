"""Find where the elements of a msgpack container lie, without decoding any of them.

Nouns: the *container* of a value is its outermost array or map, or the one that fills a snapshot
(ext type 7, LangGraph's `_DeltaSnapshot`). Its *header* is every byte in front of its first
element, its *body* the rest. An *element* is one member of an array, or a key and its value of a
map. *Bounds* are the offsets where elements begin, and the end of the last.

Must not build objects, and must not trust the bytes: a count or a length may claim anything.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SNAPSHOT_EXT: Final = 7
ELEMENTS_MAX: Final = 1 << 16
_EXT16: Final = 0xC8
_STR8: Final = 0xD9
_UNUSED: Final = 0xC1

_LENGTH_BYTES: Final = dict(  # width of the length or count behind the first byte
    zip(  # bin, ext, str, array, map
        b"\xc4\xc5\xc6\xc7\xc8\xc9\xd9\xda\xdb\xdc\xdd\xde\xdf",
        (1, 2, 4, 1, 2, 4, 1, 2, 4, 2, 4, 2, 4),
        strict=True,
    )
)
_NUMBER_BYTES: Final = (5, 9, 2, 3, 5, 9, 2, 3, 5, 9)  # CA to D3: floats, uints, ints


class Elements(NamedTuple):
    """Where the elements of a container lie.

    Attributes:
        is_map: Whether an element is a key and its value.
        bounds: Offsets ascending; element `i` is `data[bounds[i]:bounds[i + 1]]`. The first is the
            start of the body, the last the end of the value. Never empty.
    """

    is_map: bool
    bounds: list[int]


def _whole_size(byte: int) -> int:
    """Return the bytes an object of this first byte takes, 0 if the first byte does not tell."""
    if byte <= 0x7F or byte >= 0xE0 or byte in (0xC0, 0xC2, 0xC3):
        return 1
    if 0xA0 <= byte <= 0xBF:
        return 1 + byte - 0xA0
    if 0xCA <= byte <= 0xD3:
        return _NUMBER_BYTES[byte - 0xCA]
    if 0xD4 <= byte <= 0xD8:
        return 2 + (1 << byte - 0xD4)
    return 0


_SIZE: Final = tuple(map(_whole_size, range(256)))


def elements(data: bytes) -> Elements | None:
    """Return where the elements of `data`'s container lie.

    None if `data` is no msgpack container that ends exactly at the end of `data`, or if it has more
    than 65,536 elements, for which offsets one by one would cost more than they save.

    Cost: one step per object inside, none for the contents of strings and ext objects: 0.2 us per
    LangGraph message, 2 us per plain dict of ten entries.
    """
    try:
        at = _start_of_inner(data, SNAPSHOT_EXT)
        count, objects_each, at = _open(data, at)
        if count > ELEMENTS_MAX:
            return None
        bounds = [at]
        for _ in range(count):
            # An ext of 256 to 65,535 bytes is what a message is; spare it the general case.
            if data[at] == _EXT16 and objects_each == 1:
                at += 4 + (data[at + 1] << 8 | data[at + 2])
            else:
                at = _skip(data, at, objects_each)
            bounds.append(at)
    except (IndexError, ValueError):
        return None
    return Elements(objects_each == 2, bounds) if at == len(data) else None


def body_start(data: bytes) -> int:
    """Return the length of the header of `data`: of an ext object, array, map, string or binary.

    A guess, by the first bytes alone: what follows may be no msgpack. An ext object of any type
    counts with the object it wraps. At most `len(data)`; 0 for anything else. Cost: under 1 us.
    """
    try:
        at = _start_of_inner(data, None)
        byte = data[at]
    except (IndexError, ValueError):
        return 0
    if 0x80 <= byte <= 0xBF:
        return at + 1
    return min(at + 1 + _LENGTH_BYTES[byte], len(data)) if byte in _LENGTH_BYTES else at


def _start_of_inner(data: bytes, ext_type: int | None) -> int:
    """Return where the object begins that an outermost ext (of any type: None) wraps; 0 if no ext.

    Raises IndexError if `data` ends before, ValueError if the ext does not fill `data`.
    """
    byte = data[0]
    if 0xC7 <= byte <= 0xC9:
        width = _LENGTH_BYTES[byte]
        length = int.from_bytes(data[1 : 1 + width], "big")
    elif 0xD4 <= byte <= 0xD8:
        width, length = 0, 1 << byte - 0xD4
    else:
        return 0
    if ext_type is not None and data[1 + width] != ext_type:
        return 0
    if 2 + width + length != len(data):
        raise ValueError("ext object does not fill the value")
    return 2 + width


def _open(data: bytes, at: int) -> tuple[int, int, int]:
    """Return a container's count of elements, objects per element, and start of the body.

    Raises IndexError if `data` ends before, ValueError if no container begins at `at`.
    """
    byte = data[at]
    if byte & 0xF0 == 0x90:
        return byte & 0x0F, 1, at + 1
    if byte & 0xF0 == 0x80:
        return byte & 0x0F, 2, at + 1
    if not 0xDC <= byte <= 0xDF:
        raise ValueError("not a container")
    body = at + 1 + _LENGTH_BYTES[byte]
    return int.from_bytes(data[at + 1 : body], "big"), 1 if byte <= 0xDD else 2, body


def _skip(data: bytes, at: int, objects: int) -> int:
    """Return the offset after `objects` objects; past the end of `data` if the last is cut off.

    Not recursive: nesting may be as deep as the bytes are long. Raises IndexError if an object
    begins past the end, ValueError on the one byte msgpack does not use.
    """
    sizes = _SIZE
    while objects:
        objects -= 1
        byte = data[at]
        size = sizes[byte]
        if size:
            at += size
        elif byte == _STR8:
            at += 2 + data[at + 1]
        elif byte < 0xA0:
            objects += byte - 0x90 if byte >= 0x90 else byte - 0x80 << 1
            at += 1
        elif byte == _UNUSED:
            raise ValueError("byte C1 is not msgpack")
        else:
            start = at + 1 + _LENGTH_BYTES[byte]
            number = int.from_bytes(data[at + 1 : start], "big")
            if byte >= 0xDC:
                objects += number if byte <= 0xDD else number << 1
                at = start
            else:
                at = start + number + (0xC7 <= byte <= 0xC9)
    return at
