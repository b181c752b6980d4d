"""Level two of a check in the log: what records of one stream say of one another.

Parents, pointers to values, bases of deltas and their digests, anchors, owners of writes and
values, hints and marks, the index of runs. Every value is rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deltastore import ancestry, tasks
from deltastore.errors import CorruptionError
from deltastore.findings import REFERENCES, Report
from deltastore.format import keys, layout
from deltastore.format.clear import parent_of
from deltastore.format.entries import DeletedMark
from deltastore.format.frame import peek
from deltastore.format.header import Header
from deltastore.format.keys import LogKey
from deltastore.format.writes import WritesRecord
from deltastore.ids import id_from_cid
from deltastore.log import StreamReader
from deltastore.reconstruct import whole_rows
from deltastore.run_index import run_of
from deltastore.values import Values
from deltastore.verify_directory import may_be_dropped


class StreamCheck:
    """Checks the records of one stream, in any order."""

    def __init__(
        self, reader: StreamReader, values: Values, mark: DeletedMark, report: Report
    ) -> None:
        self.reader = reader
        self._values = values
        self._mark = mark
        self._report = report
        self._is_unhinted = ancestry.is_unhinted(reader)
        self._late = ancestry.late(reader)
        self._runs: set[str] = set()  # that were found in the index

    def check(self, place: LogKey, key: bytes, record: bytes) -> None:
        """Check one record; what is wrong is noted in the report."""
        check = {
            layout.KIND_HEADER: self._check_header,
            layout.KIND_ANCHOR: self._check_anchor,
            layout.KIND_VALUE: self._check_value,
            layout.KIND_WRITES: self._check_writes,
            layout.KIND_FOLDED: self._check_folded,
        }[place.kind]
        with self._noting(place.kind, place.cid, key):
            check(place, key, record)

    @contextmanager
    def _noting(
        self, kind: int, cid: bytes, key: bytes | None = None, channel: str | None = None
    ) -> Iterator[None]:
        """Note the damage that ends the block, as one of a checkpoint."""
        at = id_from_cid(cid)
        with self._report.noting(REFERENCES, kind, key=key, channel=channel, checkpoint_id=at):
            try:
                yield
            except CorruptionError as error:
                raise self.reader.locate(error, cid) from None

    def _error(self, what: str, cid: bytes, key: bytes | None = None) -> CorruptionError:
        error = CorruptionError(what, record=None if key is None else key.hex())
        return self.reader.locate(error, cid)

    def _has_place(self, cid: bytes) -> bool:
        return self.reader.raw_header(cid) is not None or self.reader.raw_anchor(cid) is not None

    def _check_header(self, place: LogKey, key: bytes, record: bytes) -> None:
        reader, cid = self.reader, place.cid
        header = reader.decode(cid, record).header
        for channel in header.versions:
            if channel not in header.slots:
                raise self._error(f"channel {channel!r} has no slot", cid)
        self._check_references(header, cid, key)
        with self._noting(place.kind, cid, key):
            self._check_hints(header, cid)
            if header.is_folded:
                self._check_mark(cid)
        with self._noting(layout.KIND_MARK, cid):
            self._check_run(run_of(header.metadata), cid)

    def _check_references(self, header: Header, cid: bytes, key: bytes) -> None:
        """Check the parent, and each value that is shown, by itself."""
        kind = keys.split(key).kind
        with self._noting(kind, cid, key):
            self._check_parent(header, cid)
        for channel, slot in header.slots.items():
            if slot.value is not None:
                with self._noting(kind, cid, key, channel):
                    self._values.load(self.reader, slot.value)

    def _check_parent(self, header: Header, cid: bytes) -> None:
        parent = header.parent
        if parent is None or self._has_place(parent):
            return
        if header.parent_stored:
            gone = keys.header_key(self.reader.stream.prefix, parent)
            raise self._error("its parent was stored and is gone", cid, gone)
        if not self._is_unhinted and not ancestry.has_orphans(self.reader, parent):
            raise self._error("its parent never came, and the mark that says so is gone", cid)

    def _check_hints(self, header: Header, cid: bytes) -> None:
        """Check that a header knows who wrote at its parent, or a mark says that it does not."""
        parent = header.parent
        if parent is None or self._is_unhinted or parent in self._late:
            return
        if self.reader.raw_header(parent) is None:
            return
        wrote = {row.channel for one in self.reader.writes(parent) for row in one.record.rows}
        known = {channel for channel, slot in header.slots.items() if slot.writer == parent}
        for channel in sorted(wrote ^ known):
            if channel in wrote:
                what = f"its parent holds writes of {channel!r} that it does not know of"
            else:
                what = f"its parent held writes of {channel!r}, which are gone"
            raise self._error(f"{what}, and no mark tells of that", cid)

    def _check_mark(self, cid: bytes) -> None:
        """Check that walks are told to stop here, since headers below do not know what came."""
        if cid not in self._late and not self._is_unhinted:
            raise self._error("the mark that makes walks stop here is gone", cid)

    def _check_run(self, run_id: str, cid: bytes) -> None:
        if not run_id or run_id in self._runs:
            return
        txn, thread = self.reader.txn, self.reader.stream.thread
        for run_hash in tasks.run_hashes(txn, run_id, self.reader.cipher, make_secret=False):
            if txn.get(keys.run_key(run_hash, thread)) is not None:
                self._runs.add(run_id)
                return
        raise self._error(f"run {run_id!r} is missing from the index of runs", cid)

    def _check_anchor(self, place: LogKey, key: bytes, record: bytes) -> None:
        reader, cid = self.reader, place.cid
        if reader.raw_header(cid) is not None:
            raise self._error("an anchor beside what it stands for", cid, key)
        if parent_of(peek(key, record, place.kind)).is_lost:
            self._report.gaps += 1
            return
        if not may_be_dropped(self._mark, cid):
            raise self._error("an anchor for a checkpoint that was not dropped", cid, key)
        with self._noting(layout.KIND_MARK, cid):
            self._check_mark(cid)
        self._check_references(reader.decode_anchor(cid, record).header, cid, key)

    def _check_value(self, place: LogKey, key: bytes, record: bytes) -> None:  # noqa: ARG002 - it is read by its place
        cid = place.cid
        self._values.rebuild(self.reader, cid, int.from_bytes(place.suffix, "big"))
        if not self._has_place(cid) and not may_be_dropped(self._mark, cid):
            gone = keys.header_key(self.reader.stream.prefix, cid)
            raise self._error("a value is there, and its checkpoint is gone", cid, gone)

    def _check_writes(self, place: LogKey, key: bytes, record: bytes) -> None:
        reader, cid = self.reader, place.cid
        found = reader.decode_writes(key, record, cid)
        self._check_task(found, cid, key)
        if any(row.base is not None for row in found.rows):
            whole_rows(reader, self._values, cid, found)
        with self._noting(layout.KIND_MARK, cid):
            for run_id in sorted(found.runs()):
                self._check_run(run_id, cid)

    def _check_task(self, found: WritesRecord, cid: bytes, key: bytes) -> None:
        at = tasks.find_task(self.reader, cid, found.task_id, make_secret=False).key
        if at != key:
            raise self._error(f"task {found.task_id!r} is not found where its writes are", cid, key)

    def _check_folded(self, place: LogKey, key: bytes, record: bytes) -> None:
        self.reader.decode_folded(key, record, place.cid)
        if self.reader.raw_anchor(place.cid) is None:
            raise self._error("folded writes without an anchor", place.cid, key)
        number = int.from_bytes(place.suffix, "big")
        if number > 0:
            before = keys.folded_key(self.reader.stream.prefix, place.cid, number - 1)
            if self.reader.txn.get(before) is None:
                raise self._error(
                    f"folded writes at {id_from_cid(place.cid)!r} begin before what is there",
                    place.cid,
                    before,
                )
