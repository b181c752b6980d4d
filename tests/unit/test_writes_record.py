"""Payloads of writes records, and which write of a repeated call stays."""

from __future__ import annotations

import random

import pytest

from deltastore.errors import CorruptionError
from deltastore.format.writes import Row, RowBase, WritesRecord, by_path, decode, encode, merge

TASK = "8b5c3a1e-0000-4000-8000-00000000000f"
RECORD = WritesRecord(
    TASK,
    "~__pregel_pull, node",
    "",
    (
        Row(-4, "__resume__", "msgpack", None, b"\xc0"),
        Row(-1, "__error__", "null", None, b""),
        Row(0, "messages", "msgpack", RowBase("messages", 0xDEADBEEF), b"delta"),
        Row(2, "messages", "msgpack", RowBase("messages", 1), b"delta", TASK, ""),
        Row(300, "", "custom", None, b"x" * 300, None, "~another"),
    ),
)


@pytest.mark.parametrize(
    "record",
    [RECORD, WritesRecord("", "", "", ()), RECORD._replace(task_id="a\0", run_id=TASK, rows=())],
)
def test_a_writes_record_is_read_back_as_it_was(record: WritesRecord) -> None:
    """Negative slots, empty channels, delta bases, other runs and other paths included."""
    assert record == decode(encode(record))


def test_bytes_of_a_small_record() -> None:
    """The format, as docs/format.md has it: heads first, then all data."""
    rows = (
        Row(-1, "e", "null", None, b""),
        Row(0, "a", "msgpack", None, b"\x01"),
        Row(1, "b", "msgpack", RowBase("a", 1), b"\x02\x03"),
    )
    expected = (
        b"\x02t"
        + (b"\x01p" + b"\x01" + b"\x03")
        + b"\x01\x01e\x02\x00\x00"
        + b"\x00\x01a\x01\x00\x01"
        + b"\x02\x01b\x01\x01\x01a\x00\x00\x00\x01\x02"
        + b"\x01\x02\x03"
    )
    assert expected == encode(WritesRecord("t", "p", "", rows))


def test_rows_are_taken_apart_by_path() -> None:
    """Each part says its path once, and keeps the order of its rows and what else they say."""
    of_first = RECORD.rows[:3]
    assert [
        RECORD._replace(rows=of_first),
        RECORD._replace(task_path="", rows=(RECORD.rows[3]._replace(path=None),)),
        RECORD._replace(task_path="~another", rows=(RECORD.rows[4]._replace(path=None),)),
    ] == by_path(RECORD)
    whole = RECORD._replace(rows=of_first)
    assert [whole] == by_path(whole)


def test_any_cut_or_tail_is_damage() -> None:
    """The last write's data must not come back shorter, nor with something behind it."""
    raw = encode(RECORD)
    for end in range(len(raw)):
        with pytest.raises(CorruptionError):
            decode(raw[:end])
    with pytest.raises(CorruptionError, match="its rows take"):
        decode(raw + b"\0")


def row(idx: int, data: bytes) -> Row:
    return Row(idx, "c", "msgpack", None, data)


def test_the_first_regular_write_of_an_index_stays() -> None:
    """A task that is run again after a crash must not change what it wrote before it."""
    stored = merge((), [row(0, b"first"), row(1, b"other")])
    assert stored == merge(stored, [row(0, b"second")])
    assert stored[0] == merge((), [row(0, b"first"), row(0, b"second")])[0]


def test_the_last_special_write_stays() -> None:
    """A second interrupt or error of a task is the one that counts."""
    stored = merge((), [row(-1, b"first")])
    assert (row(-1, b"third"),) == merge(stored, [row(-1, b"second"), row(-1, b"third")])


def test_rows_are_sorted_by_index_whatever_their_content() -> None:
    """Replay order within a task is index order."""
    rows = [Row(idx, chr(120 - idx), "x", None, b"") for idx in (5, -3, 0, 2, -1)]
    assert [-3, -1, 0, 2, 5] == [one.idx for one in merge((), rows)]


def test_merge_equals_a_row_by_row_model() -> None:
    """Calls of put_writes in any number and order, against the plainest statement of the rule."""
    rng = random.Random(3)
    for _ in range(300):
        model: dict[int, Row] = {}
        stored: tuple[Row, ...] = ()
        for call in range(rng.randrange(1, 6)):
            batch = [row(rng.randrange(-3, 4), b"%d" % call) for _ in range(rng.randrange(5))]
            for one in batch:
                if one.idx < 0:
                    model[one.idx] = one
                else:
                    model.setdefault(one.idx, one)
            stored = merge(stored, batch)
            assert [model[idx] for idx in sorted(model)] == list(stored)
