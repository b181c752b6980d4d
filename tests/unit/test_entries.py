"""Payloads of the directory's records, and what a deletion leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deltastore.errors import CorruptionError
from deltastore.format import entries
from deltastore.format.entries import (
    DELETED_TEXT_IDS_MAX,
    DeletedMark,
    StoreEntry,
    ThreadEntry,
    text_hash,
)
from deltastore.ids import cid_from_id

OLD, MIDDLE, NEW = (cid_from_id(f"1f1ecb42-a12{digit}-6876-bfff-421a31cae801") for digit in "abc")
MARK = DeletedMark(MIDDLE, (1, (1 << 64) - 1))
ENTRY = ThreadEntry("a\0é", 7, 3, 29_000_000, {"": MARK, "sub|in:9": DeletedMark()})


@pytest.mark.parametrize(
    ("encode", "decode", "arguments", "expected"),
    [
        (entries.encode_store, entries.decode_store, [StoreEntry(1, b"i" * 16)], b"\1" + b"i" * 16),
        (entries.encode_number, entries.decode_number, [300], b"\xac\x02"),
        (entries.encode_name, entries.decode_name, ["é"], b"\x02\xc3\xa9"),
        (entries.encode_named_number, entries.decode_named_number, ["a", 2], b"\x01a\x02"),
        (entries.encode_thread, entries.decode_thread, [ThreadEntry("t", 1)], b"\1t\1\0\0\0"),
    ],
)
def test_entries_are_read_back_as_they_were(
    encode: Callable[..., bytes], decode: Callable[[bytes], Any], arguments: Any, expected: bytes
) -> None:
    """The bytes are the format's."""
    raw = encode(*arguments)
    assert expected == raw
    assert decode(raw) == (tuple(arguments) if len(arguments) > 1 else arguments[0])


def test_a_thread_entry_with_marks_is_read_back_as_it_was() -> None:
    """A mark lost is a deleted parent taken for one that never was."""
    assert ENTRY == entries.decode_thread(entries.encode_thread(ENTRY))


def test_a_thread_entry_cut_short_is_damage() -> None:
    """Fewer marks would be a wrong answer."""
    raw = entries.encode_thread(ThreadEntry("t", 1, 1, 1, {"": MARK}))
    for end in range(len(raw)):
        with pytest.raises(CorruptionError):
            entries.decode_thread(raw[:end])


def test_a_mark_covers_absent_uuid6_up_to_the_greatest_deleted() -> None:
    """uuid6 ids ascend in time: one that is newer was never stored, so its child is an orphan."""
    mark = DeletedMark().with_deleted(MIDDLE).with_deleted(OLD)
    assert [True, True, False] == [mark.covers(cid) for cid in (OLD, MIDDLE, NEW)]
    assert not any(DeletedMark().covers(cid) for cid in (OLD, MIDDLE, NEW))


def test_a_mark_covers_other_ids_one_by_one() -> None:
    """They have no order in time."""
    mark = DeletedMark().with_deleted(cid_from_id("b"))
    assert [False, True, False] == [mark.covers(cid_from_id(text)) for text in "abc"]
    assert mark is mark.with_deleted(cid_from_id("b"))
    assert not mark.covers(OLD)


def test_a_mark_keeps_the_newest_of_too_many_ids() -> None:
    """A thread entry must not grow without a bound."""
    cids = [cid_from_id(f"id {i}") for i in range(DELETED_TEXT_IDS_MAX + 5)]
    mark = DeletedMark()
    for cid in cids:
        mark = mark.with_deleted(cid)
    assert tuple(text_hash(cid) for cid in cids[5:]) == mark.hashes
    assert [False, True] == [mark.covers(cids[4]), mark.covers(cids[5])]
