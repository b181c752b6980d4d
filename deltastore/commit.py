"""Commit the operations of many callers in few transactions.

An *op* is a function of a transaction. It may be run several times, each time in a transaction that
shows no trace of the run before, and has no effect outside of it. The *queue* holds ops in the
order they came; that is the order they take effect in. The *leader* is the one thread that commits:
it takes the front of the queue, its *batch*, runs it in one write transaction, tells every caller
its outcome, and hands the lead on. A sync caller leads when nobody does or when it is handed the
lead; otherwise it sleeps on a lock of its own. The *drain thread* leads when only async ops wait.

Nobody lingers for a fuller batch: the queue fills while the commit before it is flushed. An op
stays in the queue until its outcome is known, so an interrupted leader has nothing to put back.
Knows nothing of what ops do, never runs one outside a transaction, and never holds the
queue's lock while an op, a commit or a callback runs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final, TypeVar

from deltastore.afterfork import renew_in_children
from deltastore.engine.api import Engine, Transaction
from deltastore.errors import EngineError, RetryTransactionError, StoreClosedError
from deltastore.meter import Meter
from deltastore.queued import Queued
from deltastore.types import Wake

T = TypeVar("T")
Op = Callable[[Transaction], T]

RETRIES_MAX: Final = 64  # in a row; an engine that grows doubles, so more means it cannot
EXHAUSTED: Final = f"nothing was stored: the engine undid this {RETRIES_MAX + 1} times in a row"
CLOSED: Final = "the store is closed; open it again to write"
IN_DOUBT: Final = (
    "the committing thread was interrupted in the commit, so it is unknown whether this operation "
    "is stored; read it back, or run it again where that is harmless"
)
IDLE_SECONDS: Final = 10.0  # a drain thread without work ends after this


class CommitQueue:
    """Group commit over an engine; every method may be called from any thread.

    Callbacks (`after`, `done`) run after the commit, on the committing thread, in commit order.
    They must not raise, nor call `run`, `flush` or `close`. One that an interruption of that thread
    cuts short is called again.

    A child of fork() starts with an empty queue; ops queued at the fork are the parent's.
    """

    def __init__(self, engine: Engine, *, batch_max: int = 512, meter: Meter | None = None) -> None:
        """Make a queue, without starting a thread or touching the engine.

        Args:
            batch_max: Ops in one transaction, at least 1; bounds its memory and how long it takes.
            meter: Counts what is committed.
        """
        assert batch_max >= 1
        self._engine = engine
        self._batch_max = batch_max
        self._meter = meter or Meter()
        self._closed = False
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Start over with nothing queued and nobody leading."""
        self._lock = threading.Lock()
        self._queue: deque[Queued] = deque()
        self._callers: deque[Queued] = deque()  # the sync ops among them, same order
        self._running: list[Queued] = []  # the leader's batch; a prefix of the queue
        self._leader: Queued | None = None  # None: nothing queued, or no thread to be had for it
        self._leader_thread = 0  # while a batch runs
        self._drain: Queued | None = None
        self._drain_thread: threading.Thread | None = None

    @property
    def queued(self) -> int:
        """Ops in the queue, those of the batch that is being committed included."""
        return len(self._queue)

    def run(self, op: Op[T], *, after: Callable[[T], None] | None = None) -> T:
        """Run `op` in a write transaction and return its result once that is committed.

        Args:
            op: May be run more than once, on any thread. Must not call this queue.
            after: Called with the result, before this call returns.

        Raises:
            StoreClosedError, ForkedStoreError: As `Engine.check`, or the queue was closed.
            EngineError: The commit failed and `op` had no effect, which is unknown only where the
                message says so: after an interruption of the committing thread.
            Exception: What `op` raised; it had no effect and the ops beside it are not concerned.
            KeyboardInterrupt: And other interruptions: `op` took effect whole or not at all.

        Cost: about 4 us beside the transaction, which is shared with the ops that came while the
            one before it was committed. An op that raises makes its batch run once more.
        """
        self._engine.check()
        entry = Queued(op, after)
        self._perform(entry, closing=False)
        error, entry.error = entry.error, None
        if error is None:
            result: T = entry.result
            return result
        try:
            raise error
        finally:
            del error  # its traceback holds this frame: no cycle

    def submit(
        self, op: Op[T], done: Callable[[T | None, BaseException | None], Wake | None]
    ) -> None:
        """Queue `op` and return without waiting for any I/O.

        Args:
            op: As for `run`.
            done: Called with `(result, None)` or `(None, error)`; errors are those of `run`. It may
                return a function, which is called once when the whole batch has been told, for all
                that returned an equal one.

        Raises (and then does not call `done`):
            StoreClosedError, ForkedStoreError: As for `run`.
            EngineError: No thread to commit on could be started.
        """
        self._engine.check()
        entry = Queued(op, None, done)
        with self._lock:
            if self._closed:
                raise StoreClosedError(CLOSED)
            self._queue.append(entry)
            if self._leader is None:
                self._hand_over(None)
                if self._leader is None:
                    self._queue.pop()
                    raise EngineError("no thread could be started to commit async operations")

    def flush(self) -> None:
        """Return when every op queued before is committed or failed, and its callback was called.

        Raises:
            StoreClosedError, ForkedStoreError: As for `run`.
        """
        self._engine.check()
        self._settle_queue(closing=False)

    def close(self) -> None:
        """Refuse new ops, finish those queued, end the drain thread. Closing twice is no error.

        Raises:
            ForkedStoreError: As for `run`.
        """
        try:
            self._engine.check()
        except StoreClosedError:
            pass  # what is still queued fails with this very error
        self._settle_queue(closing=True)
        with self._lock:
            thread = self._drain_thread
            if self._drain is not None:
                self._drain.wake()
        if thread is not None:
            thread.join()

    def _settle_queue(self, *, closing: bool) -> None:
        with self._lock:
            self._closed = self._closed or closing
            if self._leader is None and not self._queue:
                return
        # First in, first out: when an op of our own is through, so are those before it.
        self._perform(Queued(_nothing), closing=closing)

    def _perform(self, entry: Queued, *, closing: bool) -> None:
        """Queue a sync op; lead or sleep until its outcome is known."""
        entry.lock.acquire()
        try:
            with self._lock:
                if self._leader_thread == threading.get_ident():
                    raise AssertionError("an op or callback waits for its own commit queue")
                if self._closed and not closing:
                    raise StoreClosedError(CLOSED)
                self._queue.append(entry)
                self._callers.append(entry)
                if self._leader is None:
                    self._leader = entry
            while True:
                if self._leader is entry:
                    self._lead(entry)
                elif entry.told:
                    return
                else:
                    entry.lock.acquire()
        except BaseException:
            self._abandon(entry)
            raise

    def _lead(self, own: Queued) -> None:
        """Commit one batch and hand the lead on, perhaps to oneself."""
        with self._lock:
            batch = list(islice(self._queue, self._batch_max))
            self._running = batch
            self._leader_thread = threading.get_ident()
        self._commit(batch)
        bug = self._tell(batch)
        with self._lock:
            self._hand_over(own)
        if bug is not None:
            raise AssertionError("a `done` callback of a commit queue raised") from bug

    def _commit(self, batch: list[Queued]) -> None:
        """Decide every op of `batch`."""
        live = batch
        try:
            while live:
                live = self._transact(live)
        except Exception as error:  # noqa: BLE001 - it goes to the callers
            if len(live) == 1:
                live[0].fail(error)
                return
        # Not for the op that cannot be stored to take the others with it: each on its own.
        for entry in live:
            self._commit([entry])

    def _transact(self, live: list[Queued]) -> list[Queued]:
        """Run and commit `live` in one transaction; return those that are to be run again.

        Raises what the engine raised, also under an op: the op that finds a disk full need not be
        the one that filled it.
        """
        retry: RetryTransactionError | None = None
        for _ in range(RETRIES_MAX + 1):
            at: Queued | None = None
            ran = False
            try:
                with self._meter.begin(self._engine, len(live)) as txn:
                    for at in live:
                        at.result = at.op(txn)
                    at = None
                    ran = True
                for entry in live:
                    entry.decided = True
                return []
            except RetryTransactionError as error:
                retry = error.with_traceback(None)
            except EngineError:
                raise
            except BaseException as error:
                if at is not None and not _interrupts(error):
                    at.fail(error)
                    return [entry for entry in live if entry is not at]
                if ran and not isinstance(error, Exception):
                    _fail_rest(live, IN_DOUBT)
                raise
        _fail_rest(live, f"{EXHAUSTED}: {retry}")
        return []

    def _tell(self, batch: list[Queued]) -> BaseException | None:
        """Tell the callers of decided ops, in commit order; may be resumed by a second call.

        Returns what a `done` raised, a bug that no caller would hear of.
        """
        bug: BaseException | None = None
        wakes: dict[Wake, None] = {}
        for entry in (entry for entry in batch if entry.decided and not entry.told):
            try:
                if entry.done is not None:
                    wake = entry.done(entry.result, entry.error)
                    if wake is not None:
                        wakes[wake] = None
                elif entry.after is not None and entry.error is None:
                    entry.after(entry.result)
            except BaseException as error:
                if _interrupts(error):
                    raise
                if entry.done is not None:
                    bug = error
                entry.error = AssertionError("the `after` callback of a committed op raised")
                entry.error.__cause__ = error
            entry.op = _nothing  # an error of another op may keep this entry, not what it stored
            entry.told = True
            if entry.done is None:
                entry.wake()
            else:
                entry.error = None
        for wake in wakes:
            wake()
        return bug

    def _hand_over(self, own: Queued | None) -> None:
        """Drop what is done from the front of the queue and name a new leader, under the lock."""
        self._running = []
        self._leader_thread = 0
        queue, callers = self._queue, self._callers
        while queue and queue[0].told:
            queue.popleft()
        while callers and callers[0].told:
            callers.popleft()
        if callers:
            heir = callers[0]
            self._leader = heir
            if heir is not own:
                heir.wake()
        elif queue:
            self._appoint_drain(own)
        else:
            self._leader = None

    def _appoint_drain(self, own: Queued | None) -> None:
        """Give the drain thread the lead, under the lock; `own` keeps it if no thread can start."""
        if self._drain is None:
            drain = Queued(_nothing)
            drain.lock.acquire()
            thread = threading.Thread(
                target=self._run_drain, args=(drain,), name="deltastore-commit", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:
                self._leader = own
                return
            self._drain, self._drain_thread = drain, thread
        self._drain.wake()  # before the lead: an interruption in between must not leave it asleep
        self._leader = self._drain

    def _run_drain(self, drain: Queued) -> None:
        try:
            while True:
                if self._leader is drain:
                    self._lead(drain)
                    continue
                woken = drain.lock.acquire(timeout=IDLE_SECONDS)
                with self._lock:
                    if self._leader is not drain and (self._closed or not woken):
                        if self._drain is drain:
                            self._drain = None
                        return
        except BaseException:
            self._abandon(drain)
            raise

    def _abandon(self, own: Queued) -> None:
        """Leave because of an exception, but not while another thread commits the op of `own`."""
        while True:
            if self._leader is own:
                self._tell(self._running)
            with self._lock:
                leads = self._leader is own
                if own is self._drain:
                    self._drain = None
                if leads or own not in self._running:
                    self._queue = deque(e for e in self._queue if e is not own and not e.told)
                    self._callers = deque(e for e in self._callers if e is not own and not e.told)
                    if leads:
                        self._hand_over(None)
                    elif self._leader is not None and not self._leader_thread:
                        # Named and not leading yet; who named it may have been cut off before it
                        # woke it. One that leads wakes itself, and two may not at once.
                        self._leader.wake()
                    return
            if own.told:
                return
            own.lock.acquire()


def _nothing(txn: Transaction) -> None:
    pass


def _fail_rest(live: list[Queued], message: str) -> None:
    for entry in live:
        if not entry.decided:
            entry.fail(EngineError(message))


def _interrupts(error: BaseException) -> bool:
    """Interruptions come to the main thread; elsewhere it is the code that raises them."""
    on_main = threading.get_ident() == threading.main_thread().ident
    return on_main and not isinstance(error, Exception)
