"""Store a task's writes at a checkpoint, which may not be stored yet.

Planned in a view, where large writes are coded against what their checkpoint shows; stored in the
write transaction, merged with what the task wrote before. A write that comes after a child of its
checkpoint was stored leaves a mark for walks (`deltastore.ancestry`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from deltastore import ancestry, directory, log, tasks
from deltastore.append import StaleError
from deltastore.format import delta, frame
from deltastore.format import writes as writes_format
from deltastore.format.entries import ThreadEntry
from deltastore.format.header import Header
from deltastore.format.writes import Row, RowBase, WritesRecord
from deltastore.ids import cid_from_id
from deltastore.log import StreamReader
from deltastore.types import Typed
from deltastore.values import Values

_DELTA_BYTES_MIN: Final = 1_024  # a smaller base lies inline
_DELTA_OVERHEAD: Final = 16


@dataclass(frozen=True, slots=True)
class NewWrites:
    """One task's writes to store; rows are whole values."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    task_id: str
    task_path: str
    run_id: str
    rows: Sequence[Row]


class PreparedWrites(NamedTuple):
    """What `apply_writes` needs: the rows, and the checksum of the header they are coded against.

    The checksum is None where no row is a delta.
    """

    rows: Sequence[Row]
    coded_against: int | None


def prepare_writes(reader: StreamReader | None, values: Values, new: NewWrites) -> PreparedWrites:
    """Code large writes against what their checkpoint shows."""
    if reader is None or max(len(row.data) for row in new.rows) < _DELTA_BYTES_MIN:
        return PreparedWrites(new.rows, None)
    cid = cid_from_id(new.checkpoint_id)
    entry = reader.entry(cid)
    if entry is None or entry.is_anchor:
        return PreparedWrites(new.rows, None)
    rows = [_code_row(reader, values, entry.header, row) for row in new.rows]
    coded = any(row.base is not None for row in rows)
    return PreparedWrites(rows, entry.checksum if coded else None)


def _code_row(reader: StreamReader, values: Values, header: Header, row: Row) -> Row:
    """Code one write as a delta to the largest value of its type at hand, where that halves it."""
    size = len(row.data)
    if size < _DELTA_BYTES_MIN:
        return row
    found = values.largest_at_hand(reader, Typed(row.type, row.data), header.slots)
    if found is None:
        return row
    channel, _, loaded = found
    body = delta.diff(loaded.typed.data, row.data)
    if len(body) + len(channel) + _DELTA_OVERHEAD > size // 2:
        return row
    return row._replace(base=RowBase(channel, loaded.digest), data=body)


def apply_writes(
    entry: ThreadEntry,
    reader: StreamReader,
    new: NewWrites,
    prepared: PreparedWrites,
    minute: int,
) -> None:
    """Store a task's writes, merged with what the task wrote before.

    Raises:
        StaleError: The header the rows are coded against has changed.

    A task may write in several runs, when it is resumed, and under several paths; each write is
    noted with its own.
    """
    cid = cid_from_id(new.checkpoint_id)
    raw = reader.raw_header(cid) or reader.raw_anchor(cid)
    rows, coded_against = prepared
    if coded_against is not None and (raw is None or frame.checksum(raw) != coded_against):
        raise StaleError
    task = tasks.find_task(reader, cid, new.task_id, make_secret=True)
    old = task.record
    path, run = (new.task_path, new.run_id) if old is None else (old.task_path, old.run_id)
    if new.run_id != run:
        rows = [row._replace(run_id=new.run_id) for row in rows]
    if new.task_path != path:
        rows = [row._replace(path=new.task_path) for row in rows]
    merged = writes_format.merge(() if old is None else old.rows, rows)
    if old is None or merged != old.rows:
        log.put_writes(reader, task.key, WritesRecord(new.task_id, path, run, merged))
    if raw is None:
        return  # early: it shows nowhere until its checkpoint comes
    directory.touch(reader.txn, entry, minute)
    if not reader.is_newest(cid):
        link = reader.link(cid)
        assert link is not None
        ancestry.mark_late(reader, link.clear.depth, cid)
