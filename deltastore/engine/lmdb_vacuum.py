"""Vacuum: write all pairs of an environment in key order into its successor, beside live users.

 1. The state in the old environment makes every later write transaction, of any process, keep a
    *journal* of the keys it puts or deletes (`lmdb_journal`).
 2. *Copy*: chunks of pairs in key order, each from a view of its own. A key that changes
    after its chunk was read is in the journal.
 3. *Replay*: for each key of the journal, what the old environment has now. In rounds, until
    little is left.
 4. The last round inside a write transaction of the old environment, which also names the successor
    in the state. From its commit on, nobody begins in the old generation: all move.

Views are short, so pages freed by writers meanwhile are used again. A vacuum that does not find the
state it wrote gives up: some writer took it for dead and keeps no journal any more.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

import lmdb

from deltastore.engine import lmdb_events as events
from deltastore.engine import lmdb_generations as generations
from deltastore.engine import lmdb_journal as journal
from deltastore.engine.api import EngineStat
from deltastore.engine.lmdb_errors import convert
from deltastore.engine.lmdb_registry import Opening, registry
from deltastore.engine.lmdb_transaction import LmdbTransaction
from deltastore.engine.lmdb_unfinished import UnfinishedGeneration
from deltastore.errors import (
    CorruptionError,
    DeltaStoreError,
    EngineError,
    RetryTransactionError,
)
from deltastore.plans import Progress, VacuumReport

T = TypeVar("T")

_CHUNK_BYTES_MAX: Final = 8 << 20  # of values in a chunk, but for one value that is longer
_RETRIES_MAX: Final = 64  # each doubles the map
_LAST_ROUNDS_MAX: Final = 100  # then the last round takes what there is
_SECONDS_MAX: Final = 10.0  # how long `secure` waits for transactions of this process


class Vacuum:
    """One vacuum of the store of an opening; `run` is called once."""

    def __init__(self, opening: Opening, progress: Progress, secure: bool) -> None:
        self._opening = opening
        self._shared = opening.shared or registry.attach(opening)
        self._progress = progress
        self._secure = secure
        self._number = 0
        self._state = b""
        self._seen = 0  # the last transaction of the journal that was replayed
        self._entries = 0  # of the journal that were replayed
        self._done = 0
        self._total = 0
        self._may_be_named = False

    def run(self) -> VacuumReport:
        """Do it, see `deltastore.engine.lmdb.LmdbEngine.vacuum`."""
        shared = self._shared
        if shared.gate.is_inside():
            raise AssertionError("a vacuum was begun inside a transaction of the same thread")
        self._stat()  # opens the environment
        try:
            shared.take_vacuum_lock()
        except OSError as error:
            raise convert(error, shared.path, "vacuum") from error
        try:
            before = self._stat()
            unfinished = UnfinishedGeneration(shared, self._number)
            try:
                self._run(unfinished, before)
            except BaseException:
                self._undo(unfinished)
                raise
            after = self._stat()
            if self._secure:
                shared.wait_left(_SECONDS_MAX)
        finally:
            shared.drop_vacuum_lock()
        if self._secure and min(generations.list_numbers(shared.path)) < unfinished.number:
            warnings.warn(
                f"{shared.path}: the old file is still in use; it is overwritten and removed when "
                "the last process that has it open begins its next transaction or closes",
                UserWarning,
                stacklevel=3,
            )
        report = VacuumReport(
            generation=unfinished.number,
            bytes_before=before.file_bytes,
            bytes_after=after.file_bytes,
            free_bytes_before=before.free_bytes,
        )
        events.vacuumed(self._opening.path, report)
        return report

    def _stat(self) -> EngineStat:
        with LmdbTransaction(self._opening, False) as transaction:
            assert transaction.mapped is not None
            self._number = transaction.mapped.number
            return transaction.stat()

    def _run(self, unfinished: UnfinishedGeneration, before: EngineStat) -> None:
        if self._secure:
            try:
                generations.mark_for_erasure(self._shared.path)
            except OSError as error:
                raise convert(error, self._shared.path, "vacuum") from error
        unfinished.create()
        while not self._write(self._begin_journal):
            pass
        self._total = before.entries
        self._copy(unfinished)
        unfinished.sync()
        for left in reversed(range(_LAST_ROUNDS_MAX)):
            while self._replay_some(unfinished):
                self._tell(0)
            if self._finish(unfinished, is_last=left == 0):
                return

    def _tell(self, more: int) -> None:
        self._done += more
        self._total = max(self._total, self._done)
        self._progress(self._done, self._total)

    def _write(self, work: Callable[[LmdbTransaction], T]) -> T:
        """Run `work` in a write transaction, again whenever the map was full."""
        for _ in range(_RETRIES_MAX):
            with suppress(RetryTransactionError), LmdbTransaction(self._opening, True) as txn:
                return work(txn)
        raise EngineError(f"{self._opening.path}: the map was full {_RETRIES_MAX} times in a row")

    def _begin_journal(self, transaction: LmdbTransaction) -> bool:
        """Begin the journal; return False if first there is more to remove of a dead vacuum's."""

        def work(txn: lmdb.Transaction[bytes]) -> bool:
            if not journal.drain(txn):
                return False
            self._state = journal.activate(txn, os.urandom(16))
            return True

        return transaction.run_private(work)

    def _check_state(self, txn: lmdb.Transaction[bytes]) -> None:
        if txn.get(journal.STATE) != self._state:
            raise EngineError(
                f"{self._opening.path}: a writer took this vacuum for dead, since nobody seemed to "
                f"hold the lock on {generations.VACUUM}; nothing was changed, run it again"
            )

    def _copy(self, unfinished: UnfinishedGeneration) -> None:
        start = b""
        while True:
            with LmdbTransaction(self._opening, False) as transaction:
                pairs = transaction.scan_some(start, journal.RECORDS_MAX, _CHUNK_BYTES_MAX)
            if not pairs:
                return
            unfinished.append(pairs)
            start = pairs[-1][0] + b"\x00"
            self._tell(len(pairs))

    def _replay_some(self, unfinished: UnfinishedGeneration) -> bool:
        """Replay some entries of the journal; return whether there may be many more."""
        with LmdbTransaction(self._opening, False) as transaction:

            def work(txn: lmdb.Transaction[bytes]) -> bool:
                self._check_state(txn)
                keys, seen, entries = journal.read(txn, self._seen, journal.RECORDS_MAX)
                unfinished.apply(sorted(keys), transaction.get)
                self._seen = seen
                self._entries += entries
                return len(keys) >= journal.RECORDS_MAX

            return transaction.run_private(work)

    def _finish(self, unfinished: UnfinishedGeneration, *, is_last: bool) -> bool:
        """Replay the rest and name the successor; return False if the rest is too long."""

        def finish(transaction: LmdbTransaction) -> bool:
            return transaction.run_private(lambda txn: work(transaction, txn))

        def work(transaction: LmdbTransaction, txn: lmdb.Transaction[bytes]) -> bool:
            self._check_state(txn)
            keys_max = None if is_last else journal.RECORDS_MAX + 1
            keys, _, entries = journal.read(txn, self._seen, keys_max)
            if keys_max is not None and len(keys) >= keys_max:
                return False
            unfinished.apply(sorted(keys), transaction.get)
            assert transaction.mapped is not None
            # Damage in a branch page hides keys from scans and look-ups alike.
            expected = transaction.mapped.count(txn) - self._entries - entries - 1
            if unfinished.count() != expected:
                raise CorruptionError(
                    f"{self._opening.path}: {unfinished.count()} of {expected} keys were reached; "
                    "a page is damaged: restore from a backup"
                )
            unfinished.finish()
            journal.supersede(txn, unfinished.number)
            self._may_be_named = True
            return True

        return self._write(finish)

    def _undo(self, unfinished: UnfinishedGeneration) -> None:
        """Leave things as they were, as far as that can be done now; writers do the rest."""
        unfinished.close()
        with suppress(DeltaStoreError):
            if self._may_be_named:
                number = self._number
                self._stat()
                if self._number != number:
                    return  # it is named, and in use
            unfinished.remove()
            while not self._write(lambda transaction: transaction.run_private(journal.drain)):
                pass
