"""Rebuild what a caller sees: a checkpoint with its values and writes, or channels' histories.

Everything is returned as serialized bytes, so that the caller can decode after the view has ended.
The order of writes is decided here: (task_path, task_id, index) within a checkpoint, oldest
checkpoint first across a history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from deltastore import ancestry
from deltastore.decoded import HeaderEntry
from deltastore.format.header import Header
from deltastore.format.writes import Row, WritesRecord
from deltastore.ids import id_from_cid
from deltastore.log import StreamReader
from deltastore.types import Typed
from deltastore.values import Values, shown


class PendingWrite(NamedTuple):
    """One write as a reader sees it."""

    task_id: str
    channel: str
    value: Typed


class StoredCheckpoint(NamedTuple):
    """A checkpoint as stored: header, values by channel, writes in replay order."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    header: Header
    values: dict[str, Typed]
    writes: list[PendingWrite]


class ChannelHistory(NamedTuple):
    """A channel's history: the seed, if an ancestor shows a value, and the writes after it."""

    seed: Typed | None
    writes: list[PendingWrite]


def checkpoint(
    reader: StreamReader, values: Values, cid: bytes, entry: HeaderEntry
) -> StoredCheckpoint:
    """Return a checkpoint whole. Cost: one look-up per value and per delta, one scan for writes.

    An anchor shows its seeds as values, and no versions: none of them is the seeds' own.
    """
    header = entry.header
    slots = header.slots
    found = {}
    reader.check_keys(cid)
    for channel in slots if entry.is_anchor else header.versions:
        ref = slots[channel].value
        if ref is not None:
            found[channel] = values.load(reader, ref).typed
    if entry.is_anchor:
        header = replace(header, versions={})
    return StoredCheckpoint(
        reader.stream.thread_id,
        reader.stream.checkpoint_ns,
        id_from_cid(cid),
        None if header.parent is None else id_from_cid(header.parent),
        header,
        found,
        pending(reader, values, cid),
    )


def size(stored: StoredCheckpoint) -> int:
    """Return the bytes of a checkpoint's serialized values and writes."""
    values = sum(len(typed.data) for typed in stored.values.values())
    return values + sum(len(write.value.data) for write in stored.writes)


def pending(
    reader: StreamReader,
    values: Values,
    cid: bytes,
    wanted: Callable[[str], bool] = lambda _: True,
) -> list[PendingWrite]:
    """Return a checkpoint's writes in replay order, of the channels wanted."""
    return [
        PendingWrite(record.task_id, row.channel, values.row(reader, cid, row))
        for _, record in reader.writes(cid)
        for row in record.rows
        if wanted(row.channel)
    ]


def whole_rows(
    reader: StreamReader, values: Values, cid: bytes, record: WritesRecord
) -> tuple[Row, ...]:
    """Return a record's rows with every delta turned back into its value."""
    typed = [values.row(reader, cid, row) for row in record.rows]
    return tuple(
        row._replace(type=value.type, base=None, data=value.data)
        for row, value in zip(record.rows, typed, strict=True)
    )


def history(
    reader: StreamReader, values: Values, target: bytes, channels: Sequence[str]
) -> dict[str, ChannelHistory]:
    """Return each channel's history before `target`.

    A channel nothing is known of has no seed and no writes. Cost: see `ancestry.walk`.
    """
    newest_first: dict[str, list[list[PendingWrite]]] = {channel: [] for channel in channels}

    def collect(cid: bytes, sought: set[str]) -> bool:
        found: dict[str, list[PendingWrite]] = {}
        for write in pending(reader, values, cid, sought.__contains__):
            found.setdefault(write.channel, []).append(write)
        for channel, writes in found.items():
            newest_first[channel].append(writes)
        return bool(found)

    seeds: dict[str, bytes] = {}
    entry = reader.entry(target)
    if entry is None:
        reader.check_absent(target)
    else:
        first = ancestry.parent_link(reader, target, entry.header)
        if first is not None:
            seeds = ancestry.walk(reader, target, first, newest_first, collect)
    result = {}
    for channel, steps in newest_first.items():
        seed = None
        if channel in seeds:
            seed = values.load(reader, shown(reader, seeds[channel], channel)).typed
        result[channel] = ChannelHistory(
            seed, [write for step in reversed(steps) for write in step]
        )
    return result
