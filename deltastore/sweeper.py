"""The sweep: expired threads go by themselves, beside what a store is used for.

A *use* is a read or a write; the first one of a minute begins a sweep, on a thread of its own. With
`refresh_on_read` a read is also noted as activity of its thread, at most once a minute, by the
commit queue. Neither delays the use or lets it fail; what goes wrong is logged.

A thread that was *lately* read here, in this minute or the one before, is left to a later sweep:
often the read is that of a graph that goes on with the thread, and its put would be refused.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

from deltastore import directory, expiry
from deltastore.engine.api import Transaction
from deltastore.errors import DeltaStoreError, ForkedStoreError, StoreClosedError
from deltastore.session import Session, this_minute

_logger: Final = logging.getLogger("deltastore.expiry")


class _StoppedError(Exception):
    """The store closes while a sweep runs."""


class Sweeper:
    """Deletes expired threads and notes reads, beside what a store is used for.

    Both methods that are told of a use return at once and never raise; without a time to live, and
    in a read-only store, they do nothing.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ttl = None if session.options.read_only else session.options.ttl
        self._protected = expiry.protected(session)
        self._lock = threading.Lock()
        self._closed = False
        self._swept = 0  # minute the last sweep began in
        self._thread: threading.Thread | None = None
        self._read: tuple[int, set[str], set[str]]  # minute, threads read in it, in the one before
        self._read = (0, set(), set())

    def note_read(self, thread_id: str) -> None:
        """Be told that something of a thread was read."""
        ttl = self._ttl
        if ttl is None:
            return
        minute = this_minute()
        if self._is_first(thread_id, minute) and ttl.refresh_on_read:
            self._refresh(thread_id, minute)
        self.note_use()

    def note_use(self) -> None:
        """Be told that the store was used; begins a sweep, at most one a minute."""
        if self._ttl is None:
            return
        minute = this_minute()
        # Whoever finds the lock held leaves the sweep to its holder.
        if minute == self._swept or not self._lock.acquire(blocking=False):
            return
        try:
            if self._closed or (self._thread is not None and self._thread.is_alive()):
                return
            self._swept = minute
            thread = threading.Thread(target=self._sweep, name="deltastore-expiry", daemon=True)
            thread.start()
            self._thread = thread
        except RuntimeError as error:
            _logger.warning("no thread could be started to delete expired threads: %s", error)
        finally:
            self._lock.release()

    def wait(self) -> None:
        """Return when the sweep that was begun last is over."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def close(self) -> None:
        """Stop a sweep between two of its transactions, and begin no other."""
        self._closed = True
        try:
            self._session.engine.check()
        except ForkedStoreError:
            return  # the sweep, and perhaps the lock, stayed with the parent
        except StoreClosedError:
            pass
        with self._lock:
            pass  # one that is being started is known then
        self.wait()

    def _is_first(self, thread_id: str, minute: int) -> bool:
        """Remember a read; return whether it is the first of its thread in a minute."""
        at, now, before = self._read
        if at != minute:
            now, before = set(), now if at == minute - 1 else set()
            self._read = (minute, now, before)
        if thread_id in now:
            return False
        now.add(thread_id)
        return True

    def _is_spared(self, thread_id: str) -> bool:
        at, now, before = self._read
        age = this_minute() - at
        is_lately_read = (age <= 1 and thread_id in now) or (age < 1 and thread_id in before)
        return is_lately_read or thread_id in self._protected

    def _refresh(self, thread_id: str, minute: int) -> None:
        def op(txn: Transaction) -> None:
            entry = directory.find_thread(txn, thread_id)
            if entry is not None and entry.number and entry.minute < minute:
                directory.touch(txn, entry, minute)

        try:
            self._session.queue.submit(op, _refreshed)
        except DeltaStoreError as error:
            _refreshed(None, error)

    def _sweep(self) -> None:
        assert self._ttl is not None
        try:
            gone = expiry.expire(
                self._session,
                self._ttl,
                self._is_spared,
                dry_run=False,
                step=self._check_open,
                failed=lambda error: _logger.warning("an expired thread stays: %s", error),
            )
            if gone:
                _logger.info("%d expired threads deleted", len(gone))
        except (_StoppedError, StoreClosedError):
            pass
        except Exception:
            _logger.exception("expired threads could not be deleted; tried again in a minute")

    def _check_open(self, _: int) -> None:
        if self._closed:
            raise _StoppedError


def _refreshed(_: Any, error: BaseException | None) -> None:
    if error is not None and not isinstance(error, StoreClosedError):
        _logger.warning("a read was not noted as activity of its thread: %s", error)
