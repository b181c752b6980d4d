"""Store a task's writes at a checkpoint, which may not be stored yet.

Planned in a view, where large writes are coded against what their checkpoint shows; stored in the
write transaction, merged with what the task wrote before. A write that comes after a child of its
checkpoint was stored leaves a mark for walks (`deltastore.ancestry`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from deltastore import ancestry, directory, log, rowcoding, tasks
from deltastore.append import StaleError
from deltastore.format import frame
from deltastore.format import writes as writes_format
from deltastore.format.entries import ThreadEntry
from deltastore.format.writes import Row, WritesRecord
from deltastore.ids import cid_from_id
from deltastore.log import StreamReader
from deltastore.values import Values


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

    The checksum is None where no row is a delta. `is_early` tells of writes whose checkpoint is not
    there: once it is, they may be coded against it.
    """

    rows: Sequence[Row]
    coded_against: int | None
    is_early: bool = False


def prepare_writes(reader: StreamReader | None, values: Values, new: NewWrites) -> PreparedWrites:
    """Code writes against what their checkpoint shows: first what it brought itself."""
    if not rowcoding.is_worth_it(new.rows):
        return PreparedWrites(new.rows, None)
    cid = cid_from_id(new.checkpoint_id)
    entry = None if reader is None else reader.entry(cid)
    if reader is None or entry is None:
        return PreparedWrites(new.rows, None, is_early=True)
    if entry.is_anchor:
        return PreparedWrites(new.rows, None)
    rows = rowcoding.code_on_own(reader, cid, entry.header, new.rows)
    rows = rowcoding.code_on_shown(reader, values, cid, entry.header.slots, rows)
    coded = any(row.base is not None for row in rows)
    return PreparedWrites(rows, entry.checksum if coded else None)


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
    rows, coded_against = prepared.rows, prepared.coded_against
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
