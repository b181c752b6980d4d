"""Writes through the commit queue: prepare in a view, apply in the queue's transaction, try again.

What was prepared may be overtaken by another writer before it is applied; it is then prepared
again. What an operation means is decided in `refill`, `append`, `pending` and `replace`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from deltastore import append, directory, forks, pending, refill, replace, run_index, watch
from deltastore.append import StaleError
from deltastore.engine.api import Transaction
from deltastore.errors import EngineError
from deltastore.format.entries import ThreadEntry
from deltastore.ids import cid_from_id
from deltastore.log import StreamReader
from deltastore.pending import NewWrites, PreparedWrites
from deltastore.refill import NewCheckpoint, PreparedCheckpoint
from deltastore.session import Session, this_minute
from deltastore.types import Cipher, Typed, Wake

Done = Callable[[BaseException | None], Wake | None]
Prepared = tuple[Callable[[Transaction], Any], Callable[[Any], None]]  # operation, after its commit

ATTEMPTS_MAX: Final = 32
_SMALL_BYTES_MAX: Final = 16_384


class _Stored(NamedTuple):
    reader: StreamReader  # names the stream; its transaction has ended
    prepared: PreparedCheckpoint


class Writer:
    """Puts checkpoints and writes; any number of threads may use one."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._queue = session.queue
        self._values = session.values

    def put(self, new: NewCheckpoint | NewWrites, cipher: Cipher | None) -> None:
        """Store a checkpoint, or a task's writes; durable when this returns.

        Raises:
            DeletedParentError: A checkpoint's parent is absent because it was deleted.
            EngineError: It could not be stored; nothing was.
        """
        for attempt in range(ATTEMPTS_MAX):
            op, after = self.prepare(new, cipher, attempt)
            try:
                self._queue.run(op, after=after)
            except StaleError:
                continue
            return
        raise contended()

    def submit(self, new: NewCheckpoint | NewWrites, cipher: Cipher | None, done: Done) -> None:
        """As `put`, up to the commit: `done` is called with its error or None after it.

        `done` runs on the committing thread; it must be quick and must not raise. It may return a
        function, which is called when all that were committed at once have been told.
        """
        self._submit(new, cipher, done, 0)

    def _submit(
        self, new: NewCheckpoint | NewWrites, cipher: Cipher | None, done: Done, attempt: int
    ) -> None:
        if attempt == ATTEMPTS_MAX:
            raise contended()
        op, after = self.prepare(new, cipher, attempt)

        def settled(result: Any, error: BaseException | None) -> Wake | None:
            if isinstance(error, StaleError):
                # Rare. On a thread of its own, since this one commits for everybody.
                threading.Thread(target=again, daemon=True).start()
                return None
            if error is None:
                after(result)
            return done(error)

        def again() -> None:
            try:
                self._submit(new, cipher, done, attempt + 1)
            except BaseException as error:  # noqa: BLE001 - it goes to the caller
                tell(done, error)

        self._queue.submit(op, settled)

    def is_small(self, new: NewCheckpoint | NewWrites, attempt: int) -> bool:
        """Whether a write is prepared in the transaction that stores it, and in no view before.

        That takes less time than to read everything twice. A first attempt at it that needs more is
        not repeated.
        """
        return attempt == 0 and given_bytes(new) <= _SMALL_BYTES_MAX

    def prepare(
        self, new: NewCheckpoint | NewWrites, cipher: Cipher | None, attempt: int
    ) -> Prepared:
        """Return what stores a write in a transaction, and what follows its commit.

        The operation raises `StaleError` where it has to be prepared anew, as the next attempt.
        """
        is_small = self.is_small(new, attempt)
        if isinstance(new, NewCheckpoint):
            op, after = self._put_checkpoint(new, cipher, is_small)
        else:
            op, after = self._put_writes(new, cipher, is_small)

        def stored(result: Any) -> None:
            after(result)
            self._session.meter.note_given(given_bytes(new))

        return self._session.bounded(op), stored

    def _find(
        self, txn: Transaction, new: NewCheckpoint | NewWrites, cipher: Cipher | None
    ) -> StreamReader | None:
        return self._session.find(txn, new.thread_id, new.checkpoint_ns, cipher)

    def _open(
        self, txn: Transaction, new: NewCheckpoint | NewWrites, cipher: Cipher | None
    ) -> tuple[ThreadEntry, StreamReader]:
        entry, stream = directory.intern_stream(txn, new.thread_id, new.checkpoint_ns)
        watch.note(txn, stream, cid_from_id(new.checkpoint_id))
        run_index.note(txn, entry.number, _run_of(new), cipher)
        return entry, self._session.reader(txn, stream, cipher)

    def _put_checkpoint(
        self, new: NewCheckpoint, cipher: Cipher | None, is_small: bool
    ) -> Prepared:
        ready: PreparedCheckpoint | None = None
        if not is_small:
            with self._session.view() as txn:
                ready = refill.prepare_checkpoint(self._find(txn, new, cipher), self._values, new)

        def op(txn: Transaction) -> _Stored | None:
            entry, reader = self._open(txn, new, cipher)
            prepared = ready or refill.prepare_checkpoint(reader, self._values, new, spare=_refuse)
            if self._session.options.refuse_forks:
                forks.check_head(reader, prepared)
            if prepared.replaces and reader.raw_header(prepared.cid) is not None:
                again = replace.replace_checkpoint(entry, reader, self._values, new, this_minute())
                return None if again is None else _Stored(reader, again)
            append.apply_checkpoint(entry, reader, prepared, this_minute())
            return _Stored(reader, prepared)

        def after(stored: _Stored | None) -> None:
            if stored is not None:
                append.keep_values(stored.reader, self._values, stored.prepared)

        return op, after

    def _put_writes(self, new: NewWrites, cipher: Cipher | None, is_small: bool) -> Prepared:
        ready: PreparedWrites | None = None
        if not is_small:
            with self._session.view() as txn:
                ready = pending.prepare_writes(self._find(txn, new, cipher), self._values, new)

        def op(txn: Transaction) -> None:
            entry, reader = self._open(txn, new, cipher)
            prepared = ready
            if prepared is None or prepared.is_early:
                prepared = pending.prepare_writes(reader, self._values, new)
            pending.apply_writes(entry, reader, new, prepared, this_minute())

        return op, _nothing


def tell(done: Done, error: BaseException | None) -> None:
    """Tell one caller alone."""
    wake = done(error)
    if wake is not None:
        wake()


def given_bytes(new: NewCheckpoint | NewWrites) -> int:
    """Return the bytes of the serialized values handed in."""
    if isinstance(new, NewCheckpoint):
        return sum(len(typed.data) for typed in new.new.values() if typed is not None)
    return sum(len(row.data) for row in new.rows)


def _run_of(new: NewCheckpoint | NewWrites) -> str:
    return run_index.run_of(new.metadata) if isinstance(new, NewCheckpoint) else new.run_id


def _refuse(_: str) -> Typed | None:
    """Serialize nothing while others wait for the transaction: that is the caller's code."""
    raise StaleError


def _nothing(_: object) -> None:
    """Follow a commit that fills no cache."""


def contended() -> EngineError:
    """Return the error of a write that was overtaken too often."""
    return EngineError(
        f"another writer changed the parent checkpoint {ATTEMPTS_MAX} times while this one was "
        "prepared; nothing was stored, the call may be repeated"
    )
