"""Laws of payloads over arbitrary content and arbitrary damage.

A frame's checksum finds damage before a payload is decoded. What is decoded all the same must be
refused with `CorruptionError` or read as something of the right form: never another exception,
which a reader of history would take for a bug, or not catch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltastore.errors import CorruptionError
from deltastore.format import entries, value, writes
from deltastore.format.entries import DeletedMark, StoreEntry, ThreadEntry
from deltastore.format.text import get_id, get_tag, get_text, put_id, put_tag, put_text
from deltastore.format.value import Base, Source, ValueRecord
from deltastore.format.writes import Row, RowBase, WritesRecord, merge
from deltastore.ids import cid_from_id

texts = st.text(st.characters(codec="utf-8"), max_size=20) | st.just("é" * 100)
uuids = st.uuids().map(str)
tags = st.sampled_from(["msgpack", "null", "bytes", "json", "pickle", "", "custom"]) | texts
u16, u32, u64 = (st.integers(0, (1 << bits) - 1) for bits in (16, 32, 64))
cids = st.sampled_from(["1f1ecb42-a12a-6876-bfff-421a31cae801", "a", "n" * 400]).map(cid_from_id)
sources = st.lists(st.builds(Source, cids, u64, u32), max_size=4).map(tuple)
bases = st.builds(Base, cids, u16, u32, u32, u64, sources)
values = st.builds(ValueRecord, tags, u32, st.none() | bases, st.binary(max_size=20))
row_bases = st.none() | st.builds(RowBase, texts, u32)
rows = st.builds(Row, st.integers(-9, 300), texts, tags, row_bases, st.binary(max_size=9))
sorted_rows = st.lists(rows, max_size=5, unique_by=lambda row: row.idx).map(
    lambda drawn: tuple(sorted(drawn, key=lambda row: row.idx))
)
records = st.builds(WritesRecord, texts | uuids, texts, texts | uuids, sorted_rows)
marks = st.builds(DeletedMark, st.just(b"") | cids, st.lists(u64, max_size=4).map(tuple))
threads = st.builds(ThreadEntry, texts, u32, u32, u32, st.dictionaries(texts, marks, max_size=3))
stores = st.builds(StoreEntry, u64, st.binary(max_size=20))
named = st.tuples(texts, u32)

Codec = tuple[st.SearchStrategy[Any], Callable[[Any], bytes], Callable[[bytes], Any]]
CODECS: dict[str, Codec] = {
    "value": (values, value.encode, value.decode),
    "writes": (records, writes.encode, writes.decode),
    "thread": (threads, entries.encode_thread, entries.decode_thread),
    "store": (stores, entries.encode_store, entries.decode_store),
    "number": (u64, entries.encode_number, entries.decode_number),
    "name": (texts, entries.encode_name, entries.decode_name),
    "named": (named, lambda pair: entries.encode_named_number(*pair), entries.decode_named_number),
}
each_codec = pytest.mark.parametrize("name", CODECS)


@each_codec
@given(st.data())
@settings(max_examples=60)
def test_a_payload_is_read_back_as_it_was(name: str, data: st.DataObject) -> None:
    """Arbitrary texts, numbers of full width, any number of parts."""
    strategy, encode, decode = CODECS[name]
    record = data.draw(strategy)
    assert record == decode(encode(record))


@each_codec
@given(st.data())
@settings(max_examples=60)
def test_a_damaged_payload_is_refused_or_read(name: str, data: st.DataObject) -> None:
    """Every truncation, every bit of some bytes, and a few bytes put in."""
    strategy, encode, decode = CODECS[name]
    raw = encode(data.draw(strategy))
    damaged = [raw[:end] for end in range(min(len(raw), 200))]
    if raw:
        at = data.draw(st.integers(0, len(raw) - 1))
        damaged += [raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :] for bit in range(8)]
        damaged.append(raw[:at] + data.draw(st.binary(min_size=1, max_size=9)) + raw[at:])
    for payload in damaged:
        refused_or_read(decode, payload)


@each_codec
@given(st.binary(max_size=40))
@settings(max_examples=60)
def test_any_bytes_are_refused_or_read(name: str, payload: bytes) -> None:
    """Not only those near a real payload."""
    refused_or_read(CODECS[name][2], payload)


def refused_or_read(decode: Callable[[bytes], Any], payload: bytes) -> None:
    try:
        decode(payload)
    except CorruptionError:
        pass


@given(records)
def test_no_cut_of_a_writes_record_is_read(record: WritesRecord) -> None:
    """It ends with the user's data, which must never come back shorter."""
    raw = writes.encode(record)
    for end in range(len(raw)):
        with pytest.raises(CorruptionError):
            writes.decode(raw[:end])


@given(texts | uuids | uuids.map(str.upper), st.binary(max_size=3), st.binary(max_size=3))
def test_texts_end_where_the_next_begins(text: str, head: bytes, tail: bytes) -> None:
    """All three forms, in the middle of other bytes."""
    forms: list[Any] = [(put_text, get_text), (put_id, get_id), (put_tag, get_tag)]
    for put, get in forms:
        out = bytearray(head)
        put(out, text)
        assert (text, len(out)) == get(bytes(out) + tail, len(head))


@given(st.lists(st.lists(rows, max_size=4), max_size=5))
def test_merging_calls_equals_the_rule_row_by_row(calls: list[list[Row]]) -> None:
    """The first of a regular index stays, the last of a special one, however calls are cut."""
    model: dict[int, Row] = {}
    stored: tuple[Row, ...] = ()
    for call in calls:
        for row in call:
            if row.idx < 0 or row.idx not in model:
                model[row.idx] = row
        stored = merge(stored, call)
    assert [model[idx] for idx in sorted(model)] == list(stored)
    assert stored == merge((), [row for call in calls for row in call])


@given(st.lists(cids | texts.filter(bool).map(cid_from_id), max_size=8))
def test_a_mark_covers_whatever_was_deleted(deleted: list[bytes]) -> None:
    """In any order and however often."""
    mark = DeletedMark()
    for cid in deleted:
        mark = mark.with_deleted(cid)
    assert all(mark.covers(cid) for cid in deleted)
    again = ThreadEntry("t", 0, deleted={"": mark})
    assert again == entries.decode_thread(entries.encode_thread(again))
