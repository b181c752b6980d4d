"""Checkpoint ids as log keys: canonical uuid6 <-> ULID, and a second form for any other text.

A *cid* is the key form of a checkpoint id, the same order as the ids' text within each form:

    form 1   01 | ULID 16 B              a canonical uuid6 of 1970 or later (lower case, variant 10)
    form 2   02 | text bytes + 1 | 00    any other id of 1 to 400 bytes of UTF-8

The ULID holds the uuid6's 60-bit time as 48-bit Unix milliseconds and 14 bits of 100 ns ticks, then
its 14-bit clock sequence and 48-bit node, then four zero bits. In form 2 each UTF-8 byte is moved
up by one (UTF-8 never uses FF), so that the terminator 00 sorts below every byte and no id is a
prefix of another's key. Source: RFC 9562 section 5.6, the ULID specification.

Pure functions; nothing here reads a store.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from deltastore.errors import CorruptionError, InvalidArgumentError

ID_BYTES_MAX: Final = 400
FORM_ULID: Final = 1
FORM_TEXT: Final = 2
CID_ULID_BYTES: Final = 17

_UNIX_EPOCH_TICKS: Final = 0x01B21DD213814000  # 100 ns ticks from 1582-10-15 to 1970-01-01
_TICKS_PER_MS: Final = 10_000
_UUID6: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_UP: Final = bytes((i + 1) & 0xFF for i in range(256))
_DOWN: Final = bytes((i - 1) & 0xFF for i in range(256))


def ulid_from_uuid6(text: str) -> bytes | None:
    """Return the ULID of a canonical uuid6 of 1970 or later, or None for any other text."""
    if len(text) != 36 or _UUID6.fullmatch(text) is None:
        return None
    time = int(text[0:8], 16) << 28 | int(text[9:13], 16) << 12 | int(text[15:18], 16)
    since_epoch = time - _UNIX_EPOCH_TICKS
    if since_epoch < 0:
        return None
    ms, ticks = divmod(since_epoch, _TICKS_PER_MS)
    clock = int(text[19:23], 16) & 0x3FFF
    node = int(text[24:36], 16)
    return (ms << 80 | ticks << 66 | clock << 52 | node << 4).to_bytes(16, "big")


def uuid6_from_ulid(ulid: bytes) -> str:
    """Return the uuid6 text a ULID was made from.

    Raises:
        CorruptionError: The 16 bytes are no image of a uuid6.
    """
    number = int.from_bytes(ulid, "big")
    ticks = number >> 66 & 0x3FFF
    if len(ulid) != 16 or number & 0xF or ticks >= _TICKS_PER_MS:
        raise CorruptionError(f"key holds a ULID that is no uuid6: {ulid.hex()}")
    time = (number >> 80) * _TICKS_PER_MS + ticks + _UNIX_EPOCH_TICKS
    if time >= 1 << 60:
        raise CorruptionError(f"key holds a ULID beyond the uuid6 range: {ulid.hex()}")
    clock = number >> 52 & 0x3FFF
    node = number >> 4 & 0xFFFFFFFFFFFF
    high = f"{time >> 12:012x}"
    return f"{high[:8]}-{high[8:]}-6{time & 0xFFF:03x}-{clock | 0x8000:04x}-{node:012x}"


@lru_cache(maxsize=4_096)
def cid_from_id(text: str) -> bytes:
    """Return the key form of a checkpoint id.

    Raises:
        InvalidArgumentError: Empty, over 400 bytes of UTF-8, or not encodable (a lone surrogate).
    """
    ulid = ulid_from_uuid6(text)
    if ulid is not None:
        return b"\x01" + ulid
    raw = encode_text(text, "checkpoint_id")
    if not 1 <= len(raw) <= ID_BYTES_MAX:
        raise InvalidArgumentError(
            f"checkpoint_id must be 1 to {ID_BYTES_MAX} bytes of UTF-8 (got {len(raw)} bytes: "
            f"{text[:60]!r}); use the ids LangGraph makes"
        )
    return b"\x02" + raw.translate(_UP) + b"\x00"


def by_id(cids: Sequence[bytes]) -> list[bytes]:
    """Return cids in the order of their ids as text."""
    # Those of form 1 are in the order of their ids already.
    if all(cid[0] == FORM_ULID for cid in cids):
        return sorted(cids)
    return sorted(cids, key=id_from_cid)


def bound_from_id(text: str, form: int) -> bytes | None:
    """Return a bound for the cids of one form: those below it are of ids below `text`.

    None where no such bound is known: form 1 and a text that is no canonical uuid6. The text need
    not be an id that could be stored.
    """
    if form == FORM_TEXT:
        return b"\x02" + encode_text(text, "before").translate(_UP) + b"\x00"
    ulid = ulid_from_uuid6(text)
    return None if ulid is None else b"\x01" + ulid


@lru_cache(maxsize=4_096)
def id_from_cid(cid: bytes) -> str:
    """Return the checkpoint id a key form stands for.

    Raises:
        CorruptionError: The bytes are no key form.
    """
    if len(cid) == CID_ULID_BYTES and cid[0] == FORM_ULID:
        return uuid6_from_ulid(cid[1:])
    if len(cid) > 2 and cid[0] == FORM_TEXT and cid[-1] == 0:
        try:
            return cid[1:-1].translate(_DOWN).decode()
        except UnicodeDecodeError:
            pass
    raise CorruptionError(f"not the key form of a checkpoint id: {cid.hex()}")


def cid_length(data: bytes, start: int) -> int:
    """Return how many bytes the cid at `data[start:]` takes, by its form alone.

    Raises:
        CorruptionError: No cid starts there.
    """
    form = data[start] if start < len(data) else 0
    if form == FORM_ULID and start + CID_ULID_BYTES <= len(data):
        return CID_ULID_BYTES
    if form == FORM_TEXT:
        end = data.find(b"\x00", start + 1)
        if end > start + 1:
            return end + 1 - start
    raise CorruptionError(f"no checkpoint id at byte {start} of key {data.hex()}")


def cid_time_ms(cid: bytes) -> int | None:
    """Return the Unix time of a form 1 cid in milliseconds; None for form 2, which has no time."""
    return int.from_bytes(cid[1:7], "big") if cid[0] == FORM_ULID else None


def least_cid(ms: int) -> bytes:
    """Return the least form 1 cid of a Unix time in milliseconds."""
    return bytes([FORM_ULID]) + (ms << 80).to_bytes(CID_ULID_BYTES - 1, "big")


def encode_text(text: str, what: str) -> bytes:
    """Return the UTF-8 of `text`.

    Raises:
        InvalidArgumentError: It holds a lone surrogate, which no encoding can store.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"{what} holds a lone surrogate at character {error.start} ({text[:60]!r}); "
            "such text has no UTF-8 form and cannot be stored"
        ) from None
