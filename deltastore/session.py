"""An open store's parts: the engine, its commit queue, the caches; begins every transaction."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final, TypeVar

from deltastore import directory, reclaim, watch
from deltastore.backoff import back_off
from deltastore.commit import CommitQueue
from deltastore.decoded import Caches
from deltastore.directory import Stream
from deltastore.engine.api import Engine, Transaction
from deltastore.errors import ForkedStoreError, QuotaExceededError, ReadOnlyError
from deltastore.log import StreamReader
from deltastore.meter import Meter
from deltastore.options import StoreOptions
from deltastore.slow import SlowLog
from deltastore.types import Cipher
from deltastore.values import Values

T = TypeVar("T")

_logger: Final = logging.getLogger("deltastore.store")
_UPKEEP_LOCKS: Final = 64
_BACK_OFF_SECONDS_MAX: Final = 2.0


class Session:
    """What every operation of a store works with; any number of threads may use one.

    Attributes:
        engine: Where the bytes are.
        queue: What commits; meter: what it has committed.
        slow: Times operations.
        values, caches: Shared by all readers of the store.
        settle: Returns when what was acknowledged of a thread, or with None of all, is committed.
    """

    def __init__(self, engine: Engine, options: StoreOptions) -> None:
        self.engine = engine
        self.options = options
        self.slow = SlowLog(options.slow_seconds)
        self.meter = Meter(self.slow)
        self.queue = CommitQueue(engine, meter=self.meter)
        self.values = Values(options.bounds, options.value_cache_bytes)
        self.caches = self.fresh_caches()
        self.settle: Callable[[str | None], None] = _nothing_waits
        self._upkeep = [threading.RLock() for _ in range(_UPKEEP_LOCKS)]
        self._ready = False
        self._ready_lock = threading.Lock()

    def close(self) -> None:
        """Finish what is queued and close the engine. Closing twice is no error."""
        with suppress(ForkedStoreError):  # a child lets go of what is its parent's
            self.queue.close()
        self.engine.close()

    def setup(self) -> None:
        """Create the store if it is new and go on with deletions that were interrupted."""
        self.engine.check()
        if self._ready:
            return
        with self.engine.begin(write=False) as txn:
            identity = directory.store_identity(txn)
            is_left = reclaim.is_waiting(txn), watch.is_any(txn)
        if not self.options.read_only:
            if identity is None:
                self.queue.run(directory.make_store)
            while is_left[1] and self.queue.run(lambda txn: watch.end_stale(txn, this_minute())):
                pass
            if any(is_left):
                self.reclaim()
        with self._ready_lock:
            self._ready = True

    @property
    def is_ready(self) -> bool:
        """Whether the first call is over, which opens the store."""
        return self._ready

    def reclaim(self, step: Callable[[], None] = lambda: None) -> None:
        """Delete the records of what is out of sight; `step` is called after each transaction."""
        steps = 0
        while self.queue.run(reclaim.reclaim_some):
            steps += 1
            step()
        if steps:
            _logger.info("reclaimed what was deleted, in %d transactions", steps)

    def fresh_caches(self) -> Caches:
        """Return empty caches of the size that was asked for."""
        return Caches(self.options.header_cache_bytes, self.options.writes_cache_bytes)

    def view(self, thread_id: str | None = None) -> AbstractContextManager[Transaction]:
        """Begin a read transaction, once the store is ready.

        It shows all that was acknowledged: of the thread, without one of all.
        """
        if not self._ready:
            self.setup()
        self.settle(thread_id)
        return self.engine.begin(write=False)

    def begin_write(self) -> None:
        """Check that the store may be written, and make it ready.

        Raises:
            ReadOnlyError: It was opened read-only.
        """
        self.engine.check()
        if self.options.read_only:
            raise ReadOnlyError(
                "the store was opened read-only; open it without read_only to write"
            )
        if not self._ready:
            self.setup()

    def bounded(self, op: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
        """Return an op that stores more so that it fails where that would exceed `max_bytes`.

        It then raises `QuotaExceededError`. What deletes is not to be bounded.
        """
        most = self.options.max_bytes
        if most is None:
            return op

        def bounded_op(txn: Transaction) -> T:
            before = txn.used_bytes()
            result = op(txn)
            used = txn.used_bytes()
            if used > most and used > before:
                raise QuotaExceededError(
                    f"this would take the store to {used} bytes, beyond its max_bytes={most}; "
                    "nothing was stored. Delete or prune threads, or open the store with a greater "
                    "max_bytes; a vacuum helps where pages are half empty",
                    used_bytes=used,
                    max_bytes=most,
                )
            return result

        return bounded_op

    def reader(self, txn: Transaction, stream: Stream, cipher: Cipher | None) -> StreamReader:
        """Return a reader of a stream in a transaction."""
        return StreamReader(txn, stream, cipher, self.caches)

    def find(
        self, txn: Transaction, thread_id: str, checkpoint_ns: str, cipher: Cipher | None
    ) -> StreamReader | None:
        """Return a reader of a stream, or None if there is no such stream."""
        stream = directory.find_stream(txn, thread_id, checkpoint_ns)
        return None if stream is None else self.reader(txn, stream, cipher)

    @contextmanager
    def upkeep(self, thread_id: str) -> Iterator[None]:
        """Let one maintenance call of this process at a time work on a thread.

        Those of other processes make each other start again (`deltastore.watch`).
        """
        with self._upkeep[hash(thread_id) % len(self._upkeep)]:
            yield

    def back_off(self, attempt: int) -> None:
        """Wait before a maintenance call starts again, so that one of several gets through."""
        if attempt:
            back_off(attempt, first_seconds=0.005, seconds_max=_BACK_OFF_SECONDS_MAX)


def _nothing_waits(_: str | None) -> None:
    """Where every write is committed before it is acknowledged."""


def this_minute() -> int:
    """Return Unix time / 60."""
    return int(time.time()) // 60
