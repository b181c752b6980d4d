"""Payload of a writes record: what one task wrote at one checkpoint.

    id      task id
    text    task path
    id      run id, empty when the caller gave none
    varint  rows, then per row:
      varint zigzag   index: position in the task, or LangGraph's negative slot of a special channel
      text            channel
      tag             serializer type
      u8              flags; 1: data is a delta, and there follow
        text, u32     channel whose value shown at the same checkpoint is the base, digest of it
                      2: another run than the record's wrote it, and there follows
        id            its id
                      4: it was written under another path than the record's, and there follows
        text          its path
      varint          length of data
    data    of all rows, one after the other

Payload of a record of folded writes, which an anchor keeps of dropped ancestors: for each writes
record, in replay order, varint length and its payload as above.

Rows are kept sorted by index. `merge` is the one place that knows which write of a repeated call
stays: the first of a regular channel, the last of a special one. `by_path` knows which of a task's
writes stand together in replay order. Pure functions.
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
    """One write: index, channel, serializer type, base if `data` is a delta, data.

    `run_id` names the run that wrote it where that is another than the record's, `path` the path it
    was written under in the same way; else they are None.
    """

    idx: int
    channel: str
    type: str
    base: RowBase | None
    data: bytes
    run_id: str | None = None
    path: str | None = None


class WritesRecord(NamedTuple):
    """The writes of one task at one checkpoint; `run_id` is empty when unknown.

    Path and run are those of its first call.
    """

    task_id: str
    task_path: str
    run_id: str
    rows: tuple[Row, ...]

    def run_of(self, row: Row) -> str:
        """Return the run that wrote a row, empty when unknown."""
        return self.run_id if row.run_id is None else row.run_id

    def runs(self) -> set[str]:
        """Return the runs that wrote its rows, without those unknown."""
        return {self.run_of(row) for row in self.rows} - {""}


def merge(stored: Sequence[Row], new: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows after a further call of the same task.

    A regular write (index >= 0) that is there stays; a special one (index < 0) is replaced, unless
    it is the same, which then stays its first run's; within `new` the same holds in order, so the
    last special write of a batch counts.
    """
    rows = {row.idx: row for row in stored}
    for row in new:
        old = rows.get(row.idx)
        if old is None or (row.idx < 0 and row._replace(run_id=old.run_id) != old):
            rows[row.idx] = row
    return tuple(sorted(rows.values()))


def by_path(record: WritesRecord) -> list[WritesRecord]:
    """Return a record's writes as one record a path, without paths of rows' own.

    `update_state` writes for an interrupted task under another path than the task itself did.
    """
    if all(row.path is None for row in record.rows):
        return [record]
    found: dict[str, list[Row]] = {}
    for row in record.rows:
        path = record.task_path if row.path is None else row.path
        found.setdefault(path, []).append(row._replace(path=None))
    return [record._replace(task_path=path, rows=tuple(rows)) for path, rows in found.items()]


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
        out.append(
            (row.base is not None) | (row.run_id is not None) << 1 | (row.path is not None) << 2
        )
        if row.base is not None:
            put_text(out, row.base.channel)
            out += row.base.digest.to_bytes(4, "big")
        if row.run_id is not None:
            put_id(out, row.run_id)
        if row.path is not None:
            put_text(out, row.path)
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
    heads: list[tuple[Row, int]] = []
    for _ in range(count):
        zigzag, at = varint.get(payload, at)
        channel, at = get_text(payload, at)
        tag, at = get_tag(payload, at)
        flags, at = varint.get(payload, at)
        base = run = path = None
        if flags & 1:
            base_channel, at = get_text(payload, at)
            base = RowBase(base_channel, int.from_bytes(payload[at : at + 4], "big"))
            at += 4
        if flags & 2:
            run, at = get_id(payload, at)
        if flags & 4:
            path, at = get_text(payload, at)
        length, at = varint.get(payload, at)
        index = -(zigzag >> 1) - 1 if zigzag & 1 else zigzag >> 1
        heads.append((Row(index, channel, tag, base, b"", run, path), length))
    rows = []
    for row, length in heads:
        rows.append(row._replace(data=payload[at : at + length]))
        at += length
    if at != len(payload):
        raise CorruptionError(f"writes record of {len(payload)} bytes, its rows take {at}")
    return WritesRecord(task_id, task_path, run_id, tuple(rows))


def encode_folded(records: Sequence[WritesRecord]) -> bytes:
    """Return the payload of a record of folded writes."""
    out = bytearray()
    for record in records:
        payload = encode(record)
        varint.put(out, len(payload))
        out += payload
    return bytes(out)


def decode_folded(payload: bytes) -> list[WritesRecord]:
    """Read a record of folded writes.

    Raises:
        CorruptionError: It is malformed.
    """
    found, at = [], 0
    while at < len(payload):
        length, at = varint.get(payload, at)
        found.append(decode(payload[at : at + length]))
        at += length
    return found
