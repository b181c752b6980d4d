"""Payload of a writes record: what one task wrote at one checkpoint.

    id      task id
    text    task path
    id      run id, empty when the caller gave none
    varint  rows, then per row:
      varint zigzag   index: position in the task, or LangGraph's negative slot of a special channel
      text            channel
      tag             serializer type
      u8              0: data is the value; 1: data is a delta, and there follow
        text, u32     channel whose value shown at the same checkpoint is the base, digest of it
      varint          length of data
    data    of all rows, one after the other

Rows are kept sorted by index. `merge` is the one place that knows which write of a repeated call
stays: the first of a regular channel, the last of a special one. Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from deltastore.errors import CorruptionError
from deltastore.format import varint
from deltastore.format.text import get_id, get_tag, get_text, put_id, put_tag, put_text


class RowBase(NamedTuple):
    """A row's base: the value of `channel` that the row's checkpoint shows, and its digest."""

    channel: str
    digest: int


class Row(NamedTuple):
    """One write: index, channel, serializer type, base if `data` is a delta, data."""

    idx: int
    channel: str
    type: str
    base: RowBase | None
    data: bytes


class WritesRecord(NamedTuple):
    """The writes of one task at one checkpoint; `run_id` is empty when unknown."""

    task_id: str
    task_path: str
    run_id: str
    rows: tuple[Row, ...]


def merge(stored: Sequence[Row], new: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows after a further call of the same task.

    A regular write (index >= 0) that is there stays; a special one (index < 0) is replaced; within
    `new` the same holds in order, so the last special write of a batch counts.
    """
    rows = {row.idx: row for row in stored}
    for row in new:
        if row.idx < 0 or row.idx not in rows:
            rows[row.idx] = row
    return tuple(sorted(rows.values()))


def encode(record: WritesRecord) -> bytes:
    """Return the payload of a writes record."""
    out = bytearray()
    put_id(out, record.task_id)
    put_text(out, record.task_path)
    put_id(out, record.run_id)
    varint.put(out, len(record.rows))
    for row in record.rows:
        varint.put(out, row.idx << 1 if row.idx >= 0 else (-row.idx << 1) - 1)
        put_text(out, row.channel)
        put_tag(out, row.type)
        if row.base is None:
            out.append(0)
        else:
            out.append(1)
            put_text(out, row.base.channel)
            out += row.base.digest.to_bytes(4, "big")
        varint.put(out, len(row.data))
    for row in record.rows:
        out += row.data
    return bytes(out)


def decode(payload: bytes) -> WritesRecord:
    """Read the payload of a writes record.

    Raises:
        CorruptionError: It is malformed.
    """
    task_id, at = get_id(payload, 0)
    task_path, at = get_text(payload, at)
    run_id, at = get_id(payload, at)
    count, at = varint.get(payload, at)
    heads: list[tuple[int, str, str, RowBase | None, int]] = []
    for _ in range(count):
        zigzag, at = varint.get(payload, at)
        channel, at = get_text(payload, at)
        tag, at = get_tag(payload, at)
        based, at = varint.get(payload, at)
        base = None
        if based:
            base_channel, at = get_text(payload, at)
            base = RowBase(base_channel, int.from_bytes(payload[at : at + 4], "big"))
            at += 4
        length, at = varint.get(payload, at)
        index = -(zigzag >> 1) - 1 if zigzag & 1 else zigzag >> 1
        heads.append((index, channel, tag, base, length))
    rows = []
    for index, channel, tag, base, length in heads:
        rows.append(Row(index, channel, tag, base, payload[at : at + length]))
        at += length
    if at != len(payload):
        raise CorruptionError(f"writes record of {len(payload)} bytes, its rows take {at}")
    return WritesRecord(task_id, task_path, run_id, tuple(rows))
