"""Short texts inside payloads: what they cost, and that malformed ones are damage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deltastore.errors import CorruptionError
from deltastore.format.text import get_id, get_tag, get_text, put_id, put_tag, put_text

UUID = "8b5c3a1e-0000-4000-8000-00000000000f"
TEXTS = ["", "a", "\0", "é", "\U0010ffff", UUID, UUID.upper(), UUID[:-1], "x" * 20_000]
FORMS: list[Any] = [(put_text, get_text), (put_id, get_id), (put_tag, get_tag)]
Put = Callable[[bytearray, str], None]
Get = Callable[[bytes, int], tuple[str, int]]


def written(put: Put, text: str) -> bytes:
    out = bytearray()
    put(out, text)
    return bytes(out)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("put", "get"), FORMS)
def test_a_text_is_read_back_from_where_it_was_put(put: Put, get: Get, text: str) -> None:
    """Payloads put one after the other; the index after it is where the next one begins."""
    raw = written(put, text)
    assert (text, 2 + len(raw)) == get(b"\xff\xff" + raw + b"\xff", 2)


@pytest.mark.parametrize(
    ("put", "text", "length"),
    [
        (put_id, UUID, 17),
        (put_id, UUID.upper(), 37),
        (put_id, "", 1),
        (put_tag, "msgpack", 1),
        (put_tag, "null", 1),
        (put_tag, "custom", 8),
        (put_text, "x" * 127, 128),
        (put_text, "x" * 128, 130),
    ],
)
def test_usual_texts_are_short(put: Put, text: str, length: int) -> None:
    """Task ids are UUIDs and types are few: that is half of a small record."""
    assert length == len(written(put, text))


@pytest.mark.parametrize(
    ("number", "tag"),
    [(1, "msgpack"), (2, "null"), (3, "bytes"), (4, "bytearray"), (5, "json"), (6, "pickle")],
)
def test_tag_numbers_never_change(number: int, tag: str) -> None:
    """They are on disk."""
    assert bytes([number]) == written(put_tag, tag)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("put", "get"), FORMS)
def test_a_text_cut_short_is_damage(put: Put, get: Get, text: str) -> None:
    """A shorter text read without an error would be a wrong one."""
    raw = written(put, text)
    for end in {*range(min(len(raw), 40)), len(raw) - 1}:
        with pytest.raises(CorruptionError):
            get(raw[:end], 0)


@pytest.mark.parametrize(
    ("get", "raw"),
    [
        (get_text, b"\x01\xff"),
        (get_id, b"\x02\xff"),
        (get_tag, b"\x00\x01\xff"),
        (get_tag, b"\x07"),
        (get_tag, b"\xff"),
        (get_text, b"\xff" * 10),
        (get_text, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    ],
)
def test_bytes_that_are_no_text_are_damage(get: Get, raw: bytes) -> None:
    """Not UTF-8, an unknown number, a length beyond all memory."""
    with pytest.raises(CorruptionError):
        get(raw, 0)
