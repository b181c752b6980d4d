"""Short texts inside payloads: plain UTF-8, ids that are usually UUIDs, serializer type tags.

    text    varint length, UTF-8
    id      0 and the 16 bytes of a canonical UUID, or varint length + 1 and the UTF-8
    tag     u8 number of a well-known serializer type, or 0 and a text

Pure functions; every reader raises CorruptionError on malformed bytes.
"""

from __future__ import annotations

import re
from typing import Final

from deltastore.errors import CorruptionError
from deltastore.format import varint

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# Numbers on disk: append only.
_TAGS: Final = ("", "msgpack", "null", "bytes", "bytearray", "json", "pickle")
_TAG_NUMBERS: Final = {tag: number for number, tag in enumerate(_TAGS) if tag}


def put_text(out: bytearray, text: str) -> None:
    """Append a text."""
    raw = text.encode()
    varint.put(out, len(raw))
    out += raw


def get_text(data: bytes, at: int) -> tuple[str, int]:
    """Read a text; returns it and the index after it."""
    length, at = varint.get(data, at)
    return _utf8(data, at, length), at + length


def put_id(out: bytearray, text: str) -> None:
    """Append an id; 17 bytes for a canonical UUID."""
    if len(text) == 36 and _UUID.fullmatch(text):
        out.append(0)
        out += bytes.fromhex(text.replace("-", ""))
        return
    raw = text.encode()
    varint.put(out, len(raw) + 1)
    out += raw


def get_id(data: bytes, at: int) -> tuple[str, int]:
    """Read an id; returns it and the index after it."""
    length, at = varint.get(data, at)
    if length:
        return _utf8(data, at, length - 1), at + length - 1
    raw = data[at : at + 16].hex()
    if len(raw) != 32:
        raise CorruptionError("record ends inside an id")
    return f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}", at + 16


def put_tag(out: bytearray, tag: str) -> None:
    """Append a serializer type tag."""
    number = _TAG_NUMBERS.get(tag, 0)
    out.append(number)
    if not number:
        put_text(out, tag)


def get_tag(data: bytes, at: int) -> tuple[str, int]:
    """Read a serializer type tag; returns it and the index after it."""
    number = data[at] if at < len(data) else len(_TAGS)
    if number >= len(_TAGS):
        raise CorruptionError(f"record names unknown serializer type {number}")
    return (_TAGS[number], at + 1) if number else get_text(data, at + 1)


def _utf8(data: bytes, at: int, length: int) -> str:
    raw = data[at : at + length]
    if len(raw) != length:
        raise CorruptionError(f"record ends inside a text of {length} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise CorruptionError(f"text in record is not UTF-8: {error}") from None
