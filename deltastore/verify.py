"""Check a store: every record by itself, then what records say of one another. Reads only.

Damage is collected and not raised, so that one report names all of it. A record that refers to a
damaged one is reported as well: it does not rebuild.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from deltastore import verify_directory
from deltastore.directory import Stream
from deltastore.engine.api import KEYS_END, Transaction
from deltastore.errors import CorruptionError, DecryptionError, InvalidArgumentError
from deltastore.findings import LEVELS, RECORDS, REFERENCES, Level, Report
from deltastore.format import keys, layout
from deltastore.format.entries import Dropped
from deltastore.format.keys import LogKey
from deltastore.ids import id_from_cid
from deltastore.log import StreamReader
from deltastore.plans import Progress, no_progress
from deltastore.reclaim import stays, waiting_in
from deltastore.types import Cipher
from deltastore.values import Values
from deltastore.verify_records import check_record, kind_at
from deltastore.verify_references import StreamCheck

OpenReader = Callable[[Transaction, Stream], StreamReader]

_PAGE: Final = 1_000
_LOG: Final = bytes([layout.TAG_LOG])


def levels_of(level: str | None) -> tuple[Level, ...]:
    """Return what a level stands for; None for both.

    Raises:
        InvalidArgumentError: There is no such level.
    """
    found = tuple(one for one in LEVELS if level in (None, one))
    if not found:
        raise InvalidArgumentError(
            f"level must be one of {', '.join(LEVELS)}, or None for both (got {level!r})"
        )
    return found


def verify_store(
    txn: Transaction,
    open_reader: OpenReader,
    values: Values,
    cipher: Cipher | None,
    *,
    levels: Collection[Level] = LEVELS,
    total: int = 0,
    progress: Progress = no_progress,
) -> Report:
    """Check everything one view shows.

    Args:
        open_reader, values: With caches of their own, so that what is checked is what is stored.
        levels: What to check.
        total: Records there are, for `progress` alone.

    Cost: level one reads each record once; level two looks up what each refers to, and rebuilds
        every value.
    """
    check = _Check(txn, open_reader, values, cipher, tuple(levels), Report(tuple(levels)))
    check.run(total, progress)
    return check.report


@dataclass(slots=True)
class _Check:
    txn: Transaction
    open_reader: OpenReader
    values: Values
    cipher: Cipher | None
    levels: tuple[Level, ...]
    report: Report
    stream: StreamCheck | None = None  # of the numbers below
    numbers: tuple[int, int] = (0, 0)
    is_passing: bool = False

    def run(self, total: int, progress: Progress) -> None:
        if REFERENCES in self.levels:
            with self.report.noting(REFERENCES, layout.KIND_STORE):
                verify_directory.check_store(self.txn)
        waiting: Mapping[tuple[int, int, bytes], Dropped] = {}
        with self.report.noting(RECORDS, layout.KIND_DROPPED):
            waiting = waiting_in(self.txn)
        done = 0
        # What a scan meets out of order ends it; what lies before and behind is still looked at.
        for low, stop in ((b"\0", _LOG), (_LOG, KEYS_END)):
            at = low
            with self.report.noting(RECORDS):
                while page := self.txn.scan(at, stop, limit=_PAGE):
                    for key, record in page:
                        self._one(key, record, waiting)
                    at = page[-1][0] + b"\x00"
                    done += len(page)
                    progress(done, max(done, total))

    def _one(
        self, key: bytes, record: bytes, waiting: Mapping[tuple[int, int, bytes], Dropped]
    ) -> None:
        is_log = key[:1] == _LOG
        self.report.records += is_log
        found = len(self.report.damage)
        undecodable = self.report.undecodable
        if RECORDS in self.levels:
            self._record(key, record)
        place = None
        if is_log:
            try:
                place = keys.split(key)
            except CorruptionError:
                if RECORDS not in self.levels:
                    self._note_key(key)
                return
            self.report.checkpoints += place.kind == layout.KIND_HEADER
        if REFERENCES in self.levels and len(self.report.damage) == found:
            if place is None:
                with self.report.noting(REFERENCES, kind_at(key), key=key):
                    verify_directory.check_pair(self.txn, key, record)
            else:
                self._place(place, key, record, waiting)
                if undecodable < self.report.undecodable:
                    self.report.undecodable = undecodable + 1  # once, whoever came upon it

    def _note_key(self, key: bytes) -> None:
        with self.report.noting(RECORDS, key=key):
            keys.split(key)

    def _record(self, key: bytes, record: bytes) -> None:
        try:
            check_record(key, record, self.cipher)
        except DecryptionError:
            self.report.undecodable += key[:1] == _LOG
        except CorruptionError as error:
            with self.report.noting(RECORDS, _kind_of(key), key=key):
                raise self._located(error, key) from None

    def _located(self, error: CorruptionError, key: bytes) -> CorruptionError:
        """Tell an error whose record it is about, as far as the directory tells."""
        try:
            place = keys.split(key)
        except CorruptionError:
            return error
        thread_id, checkpoint_ns = verify_directory.name_of(self.txn, place.thread, place.namespace)
        try:
            return error.locate(thread_id, checkpoint_ns, id_from_cid(place.cid))
        except CorruptionError:
            return error.locate(thread_id, checkpoint_ns)

    def _place(
        self,
        place: LogKey,
        key: bytes,
        record: bytes,
        waiting: Mapping[tuple[int, int, bytes], Dropped],
    ) -> None:
        if waiting and _is_waiting(waiting, place):
            return
        numbers = (place.thread, place.namespace)
        if numbers != self.numbers:
            self.numbers = numbers
            self._open(*numbers)
        if self.is_passing:
            return
        with self.report.noting(REFERENCES, place.kind, key=key):
            if self.stream is None:
                raise self._located(
                    CorruptionError(
                        f"no thread has number {place.thread} and namespace {place.namespace}",
                        record=key.hex(),
                    ),
                    key,
                )
            self.stream.check(place, key, record)

    def _open(self, thread: int, namespace: int) -> None:
        self.stream = None
        self.is_passing = verify_directory.is_passing(self.txn, thread)
        found = verify_directory.find_stream(self.txn, thread, namespace)
        if found is not None:
            mark = verify_directory.mark_of(self.txn, found)
            reader = self.open_reader(self.txn, found)
            self.stream = StreamCheck(reader, self.values, mark, self.report)


def _kind_of(key: bytes) -> int | None:
    try:
        return kind_at(key)
    except CorruptionError:
        return None


def _is_waiting(waiting: Mapping[tuple[int, int, bytes], Dropped], place: LogKey) -> bool:
    """Whether a record is about to be deleted; what it refers to may be gone already."""
    one = waiting.get((place.thread, place.namespace, place.cid))
    if one is None or place.kind == layout.KIND_HEADER:
        return False
    return not stays(one, place)
