"""Payloads of value records, byte for byte, and what is refused."""

from __future__ import annotations

import pytest
import xxhash

from deltastore.errors import CorruptionError
from deltastore.format.value import Base, Source, ValueRecord, decode, digest, encode
from deltastore.ids import cid_from_id

CID = cid_from_id("1f1ecb42-a12a-6876-bfff-421a31cae801")
OTHER = cid_from_id("a")
SOURCES = (Source(CID, 0, 0), Source(CID, (1 << 64) - 1, 300), Source(OTHER, 5, 1))
BASE = Base(CID, 2, 0xDEADBEEF, 3, 1_000, SOURCES)
DELTA = ValueRecord("msgpack", 7, BASE, b"body")


@pytest.mark.parametrize(
    "record",
    [
        ValueRecord("msgpack", 0, None, b""),
        ValueRecord("custom", (1 << 32) - 3, None, b"\0" * 300),
        DELTA,
        ValueRecord("", 1, BASE._replace(sources=()), b""),
        ValueRecord("x", 1, BASE._replace(sources=(SOURCES[2], SOURCES[0], SOURCES[2])), b"b"),
        ValueRecord("x", 1, Base(OTHER, 65_535, 0, 0, 0), b"run"),
    ],
)
def test_a_value_record_is_read_back_as_it_was(record: ValueRecord) -> None:
    """A base or source that reads as another rebuilds another value."""
    assert record == decode(encode(record))


def test_bytes_of_a_whole_value() -> None:
    """The format, as docs/format.md has it."""
    assert b"\x01\x01\x05body" == encode(ValueRecord("msgpack", 5, None, b"body"))


def test_bytes_of_a_delta() -> None:
    """A source at the checkpoint of the one before it, or of the base, does not name it again."""
    expected = (
        b"\x02\x01\x07"
        + (bytes([17]) + CID + b"\x02\xde\xad\xbe\xef\x03\xe8\x07")
        + (b"\x03" + b"\x00" + bytes(8) + b"\x00")
        + (b"\x00" + b"\xff" * 8 + b"\xac\x02")
        + (b"\x03" + OTHER + bytes(7) + b"\x05\x01")
        + b"body"
    )
    assert expected == encode(DELTA)


def test_digest_is_the_low_half_of_xxh3() -> None:
    """It is in every reference: another choice makes every store unreadable."""
    assert 0x38D394C2 == xxhash.xxh3_64_intdigest(b"") & 0xFFFF_FFFF == digest(b"")
    assert xxhash.xxh3_64_intdigest(b"abc") & 0xFFFF_FFFF == digest(b"abc")


@pytest.mark.parametrize("form", [0, 3, 255])
def test_an_unknown_form_is_damage(form: int) -> None:
    """0 is invalid on purpose: zeroed pages are common damage."""
    with pytest.raises(CorruptionError, match=f"form {form}"):
        decode(bytes([form]) + encode(DELTA)[1:])


def test_a_delta_cut_before_its_body_is_damage() -> None:
    """Within the body a cut cannot be told; the frame's checksum and the digest find it."""
    raw = encode(DELTA)
    for end in range(len(raw) - len(DELTA.body)):
        with pytest.raises(CorruptionError):
            decode(raw[:end])
    assert b"bod" == decode(raw[:-1]).body
