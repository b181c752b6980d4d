"""Acknowledge writes before they are stored: durability "relaxed".

The *backlog* holds writes that were acknowledged and are not committed yet, in the order they came.
It is committed, and synced, at most `WINDOW_SECONDS` after a write came in: in one transaction for
all that waits. So whatever ends the process, or the machine, what is lost of a thread are the
newest of its acknowledged writes and nothing before them.

Whoever needs what was acknowledged (a read of the thread, maintenance, `flush`, a put that finds
the backlog full) does not wait for the window but commits at once. Rounds run one after the other.

A write that turns out not to be storable takes those with it that were acknowledged after it on the
same thread, as they were built on it; the next call on that thread is told, and `flush`.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from deltastore import refill
from deltastore.afterfork import renew_in_children
from deltastore.append import StaleError
from deltastore.engine.api import Transaction
from deltastore.errors import (
    DeltaStoreError,
    EngineError,
    ForkedStoreError,
    LostWriteError,
    StoreClosedError,
)
from deltastore.ids import cid_from_id
from deltastore.pending import NewWrites
from deltastore.refill import NewCheckpoint
from deltastore.session import Session
from deltastore.types import Cipher, Typed, Version
from deltastore.writer import ATTEMPTS_MAX, Prepared, Writer, contended, given_bytes

WINDOW_SECONDS: Final = 0.005
WRITES_MAX: Final = 1_024
BYTES_MAX: Final = 8 << 20
_IDLE_SECONDS: Final = 10.0  # the thread ends after this without work
_logger: Final = logging.getLogger("deltastore")


@dataclass(slots=True, eq=False)
class _Entry:
    """An acknowledged write."""

    new: NewCheckpoint | NewWrites
    cipher: Cipher | None
    size: int
    attempt: int = 0


class Backlog:
    """Writes acknowledged and not committed yet; any number of threads may use one."""

    def __init__(self, session: Session, writer: Writer) -> None:
        self._session = session
        self._writer = writer
        self.renew()
        session.settle = self.settle
        _backlogs.add(self)
        renew_in_children(self)

    def renew(self) -> None:
        """Start over with nothing acknowledged."""
        self._lock = threading.Lock()
        self._entries: deque[_Entry] = deque()
        self._bytes = 0
        self._lost: dict[str, LostWriteError] = {}
        self._round_lock = threading.Lock()
        self._worker = 0  # thread that runs a round
        self._thread: threading.Thread | None = None
        self._woken = threading.Event()
        self._stopping = threading.Event()

    # -- callers ----------------------------------------------------------------------------

    def put(self, new: NewCheckpoint | NewWrites, cipher: Cipher | None) -> None:
        """Acknowledge a write. Cost: a view, for a checkpoint whose parent is not in the backlog.

        Raises:
            LostWriteError: An earlier write to the thread could not be stored; nor was this one.
        """
        self._tell_lost(new.thread_id)
        if isinstance(new, NewCheckpoint):
            new = self._frozen(new, cipher)
        entry = _Entry(new, cipher, given_bytes(new))
        while not self._append(entry):
            self._run_round()
        self._wake()

    def settle(self, thread_id: str | None) -> None:
        """Return when what was acknowledged is committed: of one thread, or with None of all.

        Raises:
            LostWriteError: Some of it could not be stored, of the one thread that was named.
        """
        if self._worker == threading.get_ident():
            return  # a round reads what it goes on from
        while self._waits(thread_id):
            self._run_round()
        if thread_id is not None:
            self._tell_lost(thread_id)

    def flush(self) -> None:
        """Return when all that was acknowledged is committed.

        Raises:
            LostWriteError: Some of it could not be stored, and no call was told. Of several it is
                the first; the others are logged.
        """
        self.settle(None)
        self._tell_lost(None)

    def is_empty(self) -> bool:
        """Whether all that was acknowledged is committed, or lost."""
        return not self._entries

    def close(self) -> None:
        """Commit what was acknowledged and acknowledge nothing more. Closing twice is no error.

        Raises:
            LostWriteError: As `flush`.
        """
        try:
            self._session.engine.check()
        except ForkedStoreError:
            return  # what was acknowledged before the fork is the parent's
        except StoreClosedError:
            pass
        with self._lock:
            self._stopping.set()
            thread = self._thread
        self._woken.set()
        try:
            self.flush()
        finally:
            if thread is not None:
                thread.join()

    def has_room(self, new: NewCheckpoint | NewWrites) -> bool:
        """Whether a put of this write would not have to commit others first."""
        return not self._entries or (
            len(self._entries) < WRITES_MAX and self._bytes + given_bytes(new) <= BYTES_MAX
        )

    def _append(self, entry: _Entry) -> bool:
        with self._lock:
            if self._stopping.is_set():
                raise StoreClosedError("the store is closed; open it again to write")
            if not self.has_room(entry.new):
                return False
            self._entries.append(entry)
            self._bytes += entry.size
            return True

    def _waits(self, thread_id: str | None) -> bool:
        if not self._entries:
            return False
        with self._lock:
            return thread_id is None or any(e.new.thread_id == thread_id for e in self._entries)

    def _tell_lost(self, thread_id: str | None) -> None:
        if not self._lost:
            return
        with self._lock:
            if thread_id is None:
                lost, self._lost = [*self._lost.values()], {}
            else:
                lost = [self._lost.pop(thread_id)] if thread_id in self._lost else []
        for other in lost[1:]:
            _logger.error("%s", other)
        if lost:
            raise lost[0]

    def _frozen(self, new: NewCheckpoint, cipher: Cipher | None) -> NewCheckpoint:
        """Serialize now what storing it may ask for: later the values are the caller's again."""
        versions = self._versions_of_parent(new, cipher)
        spare = {channel: new.spare(channel) for channel in refill.uncovered(new, versions)}

        def frozen(channel: str) -> Typed | None:
            if channel not in spare:
                raise EngineError(
                    f"checkpoint {new.checkpoint_id!r} was put on {new.parent_id!r}, which another "
                    f"process changed before it was stored: channel {channel!r} is not the same"
                )
            return spare[channel]

        return replace(new, spare=frozen)

    def _versions_of_parent(self, new: NewCheckpoint, cipher: Cipher | None) -> dict[str, Version]:
        if not new.parent_id:
            return {}
        with self._lock:
            for entry in reversed(self._entries):
                found = entry.new
                if (
                    isinstance(found, NewCheckpoint)
                    and found.checkpoint_id == new.parent_id
                    and found.thread_id == new.thread_id
                    and found.checkpoint_ns == new.checkpoint_ns
                ):
                    return found.versions
        with self._session.engine.begin(write=False) as txn:
            reader = self._session.find(txn, new.thread_id, new.checkpoint_ns, cipher)
            parent = None if reader is None else reader.entry(cid_from_id(new.parent_id))
            return {} if parent is None else parent.header.versions

    # -- rounds -----------------------------------------------------------------------------

    def _run_round(self) -> None:
        """Commit the front of the backlog: all of it, unless a write must see one before it."""
        with self._round_lock:
            self._worker = threading.get_ident()
            try:
                with self._lock:
                    entries = list(self._entries)
                if entries:
                    self._commit(entries)
            finally:
                self._worker = 0

    def _commit(self, entries: list[_Entry]) -> None:
        batch = self._prepare(entries)
        while batch:
            results: list[Any] = []
            try:
                self._session.queue.run(partial(_run_all, batch, results))
            except StaleError:
                batch[len(results)][0].attempt += 1
                batch = batch[: len(results)]
            except EngineError as error:
                # For the write that cannot be stored not to take others with it: each on its own.
                if len(batch) == 1:
                    self._lose(batch[0][0], error)
                    return
                batch = batch[:1]
            except Exception as error:  # noqa: BLE001 - it goes to the caller's next call
                at = min(len(results), len(batch) - 1)
                self._lose(batch[at][0], error)
                batch = batch[:at]
            else:
                for (_, (_, after)), result in zip(batch, results, strict=True):
                    after(result)
                self._drop({id(entry) for entry, _ in batch})
                return

    def _prepare(self, entries: list[_Entry]) -> list[tuple[_Entry, Prepared]]:
        """Prepare writes from the front on, up to one that must see a write before it."""
        batch: list[tuple[_Entry, Prepared]] = []
        threads: set[str] = set()
        for entry in entries:
            needs_view = not self._writer.is_small(entry.new, entry.attempt)
            if needs_view and entry.new.thread_id in threads:
                break
            if entry.attempt == ATTEMPTS_MAX:
                self._lose(entry, contended())
                break
            try:
                prepared = self._writer.prepare(entry.new, entry.cipher, entry.attempt)
            except Exception as error:  # noqa: BLE001 - it goes to the caller's next call
                self._lose(entry, error)
                break
            batch.append((entry, prepared))
            threads.add(entry.new.thread_id)
        return batch

    def _lose(self, entry: _Entry, error: Exception) -> None:
        """Drop a write that cannot be stored, with those that were built on it."""
        thread_id = entry.new.thread_id
        with self._lock:
            entries = list(self._entries)
            later = entries[entries.index(entry) :]
            gone = [one for one in later if one.new.thread_id == thread_id]
            lost = LostWriteError(
                f"{len(gone)} acknowledged writes to thread {thread_id!r}, the first at checkpoint "
                f"{entry.new.checkpoint_id!r}, could not be stored: {error}. Go on from the newest "
                "checkpoint that is listed",
                thread_id=thread_id,
                checkpoint_id=entry.new.checkpoint_id,
                writes=len(gone),
            )
            lost.__cause__ = error
            self._lost.setdefault(thread_id, lost)
        self._drop({id(one) for one in gone})

    def _drop(self, gone: set[int]) -> None:
        with self._lock:
            self._entries = deque(one for one in self._entries if id(one) not in gone)
            self._bytes = sum(one.size for one in self._entries)

    # -- the thread -------------------------------------------------------------------------

    def _wake(self) -> None:
        """See to it that a round begins within the window."""
        if self._thread is None and not self._start():
            self._run_round()
        if not self._woken.is_set():
            self._woken.set()

    def _start(self) -> bool:
        """Start the thread; return False if there is none to be had."""
        with self._lock:
            if self._thread is None and not self._stopping.is_set():
                thread = threading.Thread(target=self._run, name="deltastore-backlog", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return False
                self._thread = thread
            return True

    def _run(self) -> None:
        while not self._stopping.is_set():
            if not self._woken.wait(_IDLE_SECONDS):
                with self._lock:
                    if not self._entries:
                        self._thread = None
                        return
            self._woken.clear()
            self._stopping.wait(WINDOW_SECONDS)
            while self._entries:
                self._run_round()


def _run_all(
    batch: Sequence[tuple[_Entry, Prepared]], results: list[Any], txn: Transaction
) -> None:
    """Run all of a batch in one transaction; how many results there are says how far it came."""
    results.clear()
    for _, (run, _) in batch:
        results.append(run(txn))


_backlogs: weakref.WeakSet[Backlog] = weakref.WeakSet()


def _settle_all() -> None:
    for backlog in list(_backlogs):
        try:
            backlog.flush()
        except DeltaStoreError as error:
            _logger.error("%s", error)


# A program that ends without closing loses nothing either.
atexit.register(_settle_all)
