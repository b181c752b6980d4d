"""How a commit queue ends, and what may interrupt it: flush, close, fork, Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from deltastore.commit import CommitQueue, Op
from deltastore.errors import EngineError, ForkedStoreError, StoreClosedError
from deltastore.queued import Queued
from tests.unit.commit_fakes import (
    PATIENCE,
    Callers,
    DictEngine,
    Outcomes,
    enqueue,
    hold,
    put,
    raising,
    until,
)


@pytest.mark.parametrize("wait", [lambda q: q.run(put(b"b")), CommitQueue.flush, CommitQueue.close])
@pytest.mark.parametrize("where", ["op", "after"])
def test_waiting_for_the_queue_from_inside_is_refused(
    queue: CommitQueue, callers: Callers, wait: Callable[[CommitQueue], None], where: str
) -> None:
    """It would wait for itself; a bug must be an error and not a hang."""
    options: dict[str, Any] = {} if where == "op" else {"after": lambda _: wait(queue)}
    op: Op[Any] = (lambda _: wait(queue)) if where == "op" else put(b"a")
    future = callers.start(partial(queue.run, op, **options))
    assert AssertionError is type(future.exception(PATIENCE))


def test_flush_returns_when_all_before_it_is_committed(
    engine: DictEngine, queue: CommitQueue, callers: Callers
) -> None:
    """Relaxed callers rely on it at the end of a run."""
    held = hold(engine, queue, callers)
    outcomes = Outcomes(3)
    for i in range(3):
        queue.submit(put(b"%d" % i), outcomes)

    def flush() -> int:
        queue.flush()
        return len(outcomes.got)

    flushed = callers.start(flush)
    until(lambda: len(queue._queue) == 5)
    assert not flushed.done()
    held.go.set()
    assert 3 == flushed.result(PATIENCE)


def test_flush_of_an_idle_queue_begins_no_transaction(
    engine: DictEngine, queue: CommitQueue
) -> None:
    """A commit is a flush of the disk; nothing to do must cost nothing."""
    queue.flush()
    assert 0 == engine.begun


def test_close_finishes_what_is_queued_and_refuses_the_rest(
    engine: DictEngine, queue: CommitQueue, callers: Callers
) -> None:
    """Closing must neither lose an op that was taken nor take one it will not finish."""
    held = hold(engine, queue, callers)
    outcomes = Outcomes(1)
    queue.submit(put(b"async"), outcomes)
    enqueue(queue, callers, [put(b"sync")])
    closing = callers.start(queue.close)
    until(lambda: queue._closed)
    with pytest.raises(StoreClosedError):
        queue.run(put(b"late"))
    with pytest.raises(StoreClosedError):
        queue.submit(put(b"late"), outcomes)
    held.go.set()
    closing.result(PATIENCE)
    assert [(b"async", None)] == outcomes.got
    assert {b"first", b"async", b"sync"} == set(engine.state)
    queue.close()


def test_close_ends_an_idle_drain_thread(queue: CommitQueue) -> None:
    """A thread that outlives its store keeps the engine, and its file, open."""
    outcomes = Outcomes(1)
    queue.submit(put(b"a"), outcomes)
    assert outcomes.complete.wait(PATIENCE)
    thread = queue._drain_thread
    assert thread is not None
    queue.close()
    assert not thread.is_alive()


def test_close_under_load_finishes_or_refuses_every_call(engine: DictEngine) -> None:
    """A call that is neither acknowledged nor refused is a hung thread."""
    queue = CommitQueue(engine)
    callers = Callers()
    acknowledged: list[bytes] = []
    slots = threading.Semaphore(64)
    started = threading.Barrier(9)

    def done(result: bytes | None, error: BaseException | None) -> None:
        acknowledged.append(result or b"failed")
        slots.release()

    def until_closed(name: int) -> None:
        started.wait(PATIENCE)
        i = 0
        while True:
            key = b"%d.%d" % (name, i)
            try:
                if name % 2:
                    acknowledged.append(queue.run(put(key)))
                else:
                    assert slots.acquire(timeout=PATIENCE)
                    queue.submit(put(key), done)
            except StoreClosedError:
                return
            i += 1

    futures = [callers.start(partial(until_closed, name)) for name in range(8)]
    started.wait(PATIENCE)
    until(lambda: len(engine.commits) > 20)
    queue.close()
    for future in futures:
        future.result(PATIENCE)
    assert sorted(engine.state) == sorted(acknowledged)


def test_close_after_the_engine_was_closed_is_no_error(engine: DictEngine) -> None:
    """A store that failed half way through closing is closed again by its user."""
    queue = CommitQueue(engine)
    engine.close()
    queue.close()
    queue.close()


def test_the_engine_is_asked_before_any_lock_is_taken(
    engine: DictEngine, queue: CommitQueue, callers: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a child of fork() the locks may be held by threads that do not exist there."""

    def check() -> None:
        raise ForkedStoreError("forked")

    with queue._lock, monkeypatch.context() as patch:
        patch.setattr(engine, "check", check)
        for call in (
            lambda: queue.run(put(b"a")),
            lambda: queue.submit(put(b"a"), Outcomes(1)),
            queue.flush,
            queue.close,
        ):
            assert ForkedStoreError is type(callers.start(call).exception(PATIENCE))


# From Python 3.12 on, a fork beside threads warns of just what this law is about.
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_of_fork_starts_with_an_empty_queue(
    engine: DictEngine, queue: CommitQueue, callers: Callers
) -> None:
    """The parent's leader does not exist in the child; waiting for it would be for ever."""
    held = hold(engine, queue, callers)
    enqueue(queue, callers, [put(b"parent")])
    with queue._lock:
        pid = os.fork()
        if pid == 0:
            signal.alarm(int(PATIENCE))
            engine.writer = threading.Lock()
            outcomes = Outcomes(1)
            queue.submit(put(b"async"), outcomes)
            outcomes.complete.wait(PATIENCE)
            queue.run(put(b"sync"))
            queue.close()
            os._exit(engine.commits != [[b"async"], [b"sync"]])
    assert 0 == os.waitpid(pid, 0)[1]
    held.go.set()
    queue.flush()
    assert [[b"first"], [b"parent"]] == engine.commits


class Interruption:
    """One Ctrl-C for the main thread.

    It is sent until it arrives: a signal that comes just before a thread sleeps does not wake it.
    """

    def __init__(self) -> None:
        self.arrived = threading.Event()

    def __enter__(self) -> Interruption:
        self.before = signal.signal(signal.SIGINT, self.handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self.before)

    def handle(self, number: int, frame: object) -> None:
        if not self.arrived.is_set():
            self.arrived.set()
            raise KeyboardInterrupt

    def attempt(self) -> bool:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return self.arrived.is_set()


class TestInterruption:
    """Ctrl-C reaches the main thread, wherever it is; this test's own thread is the main one."""

    @pytest.fixture(autouse=True)
    def _interruptible(self) -> Iterator[None]:
        # Whoever starts the tests in the background may have had them ignore it.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        signal.signal(signal.SIGINT, before)

    def test_of_a_leader_puts_its_batch_back(
        self, engine: DictEngine, queue: CommitQueue, callers: Callers
    ) -> None:
        """The others' ops must be committed by another thread and its own must be gone."""
        held = hold(engine, queue, callers)
        outcomes = Outcomes(1)

        def direct() -> list[Future[Any]]:
            until(lambda: len(queue._queue) == 2)
            queue.submit(put(b"a"), outcomes)
            futures = enqueue(queue, callers, [put(b"b"), put(b"c")])
            held.go.set()
            return futures

        directed = callers.start(direct)
        with pytest.raises(KeyboardInterrupt):
            queue.run(raising(KeyboardInterrupt()))
        assert [b"b", b"c"] == [f.result(PATIENCE) for f in directed.result(PATIENCE)]
        assert [[b"first"], [b"a", b"b", b"c"]] == engine.commits

    def test_in_the_commit_leaves_the_others_in_doubt_and_hangs_nobody(
        self, engine: DictEngine, queue: CommitQueue, callers: Callers
    ) -> None:
        """It cannot be told whether the disk has it: neither success nor failure may be claimed."""
        held = hold(engine, queue, callers)

        def interrupt(keys: list[bytes]) -> None:
            held.then = lambda _: None
            raise KeyboardInterrupt

        def direct() -> list[Future[Any]]:
            until(lambda: len(queue._queue) == 2)
            futures = enqueue(queue, callers, [put(b"b")])
            held.then = interrupt
            held.go.set()
            return futures

        directed = callers.start(direct)
        with pytest.raises(KeyboardInterrupt):
            queue.run(put(b"a"))
        (future,) = directed.result(PATIENCE)
        with pytest.raises(EngineError, match="interrupted"):
            future.result(PATIENCE)
        assert b"c" == queue.run(put(b"c"))

    def test_of_a_sleeper_takes_its_op_back(
        self, engine: DictEngine, queue: CommitQueue, callers: Callers
    ) -> None:
        """The caller was told that the call did not return; its op must not take effect later."""
        held = hold(engine, queue, callers)
        with Interruption() as interruption:

            def direct() -> None:
                until(lambda: len(queue._queue) == 2)
                until(interruption.attempt)

            directed = callers.start(direct)
            with pytest.raises(KeyboardInterrupt):
                queue.run(put(b"taken back"))
            directed.result(PATIENCE)
        enqueue(queue, callers, [put(b"a")])
        held.go.set()
        queue.flush()
        assert [b"first", b"a"] == list(engine.state)

    def test_of_a_sleeper_whose_op_is_being_committed_waits_for_the_outcome(
        self, engine: DictEngine, queue: CommitQueue, callers: Callers
    ) -> None:
        """Once the call has ended, its op must not be about to take effect."""
        held = hold(engine, queue, callers)
        committing = threading.Event()
        with Interruption() as interruption:

            def second(keys: list[bytes]) -> None:
                committing.set()
                assert interruption.arrived.wait(PATIENCE)

            def direct() -> None:
                until(lambda: len(queue._queue) == 3)
                held.then = second
                held.go.set()
                assert committing.wait(PATIENCE)
                until(interruption.attempt)

            enqueue(queue, callers, [put(b"leader")])
            directed = callers.start(direct)
            with pytest.raises(KeyboardInterrupt):
                queue.run(put(b"sleeper"))
            commits = list(engine.commits)
            directed.result(PATIENCE)
        assert [[b"first"], [b"leader", b"sleeper"]] == commits

    def test_raised_by_an_op_on_another_thread_is_that_ops_own(
        self, engine: DictEngine, queue: CommitQueue
    ) -> None:
        """The drain thread serves everybody: no op may end it."""
        outcomes = Outcomes(2)
        failure = SystemExit()
        queue.submit(raising(failure), outcomes)
        queue.submit(put(b"a"), outcomes)
        assert outcomes.complete.wait(PATIENCE)
        assert {(None, failure), (b"a", None)} == set(outcomes.got)
        assert {b"a"} == set(engine.state)

    def test_between_naming_the_next_leader_and_waking_it_hangs_nobody(
        self, engine: DictEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The one named sleeps, and nobody else would wake it."""
        queue, callers = CommitQueue(engine, batch_max=1), Callers()
        wake, main, left = Queued.wake, threading.get_ident(), [KeyboardInterrupt()]
        other: list[Future[Any]] = []

        def interrupted(entry: Queued) -> None:
            if left and threading.get_ident() == main and not entry.told:
                raise left.pop()
            wake(entry)

        def wait_for_other(_: Any) -> None:
            other.append(callers.start(partial(queue.run, put(b"other"))))
            until(lambda: queue.queued == 2)

        monkeypatch.setattr(Queued, "wake", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.run(wait_for_other)
        assert b"other" == other[0].result(PATIENCE)
        queue.close()

    @pytest.mark.parametrize("batch_max", [1, 2, 512])
    def test_at_any_moment_hangs_nobody(self, engine: DictEngine, batch_max: int) -> None:
        """Signals arrive between any two bytecodes, also in the middle of a hand-over."""
        # One that comes while the engine takes its lock leaves it taken; that is not tested here.
        engine.writer = threading.Semaphore(1000)
        queue = CommitQueue(engine, batch_max=batch_max)
        callers = Callers()
        armed, stop = threading.Event(), threading.Event()
        main = threading.main_thread().ident or 0

        def run(op: Op[bytes]) -> None:
            try:
                queue.run(op)
            except EngineError as error:
                if "interrupted" not in str(error):
                    raise

        def call(op: Op[bytes]) -> None:
            while not stop.is_set():
                run(op)

        def shoot() -> None:
            for _ in range(50):
                assert armed.wait(PATIENCE)
                armed.clear()
                signal.pthread_kill(main, signal.SIGINT)

        futures = [callers.start(partial(call, put(b"%d" % name))) for name in range(3)]
        futures.append(callers.start(shoot))
        interruptions = 0
        while interruptions < 50:
            try:
                armed.set()
                while True:
                    run(put(b"main"))
            except KeyboardInterrupt:
                interruptions += 1
        stop.set()
        for future in futures:
            future.result(PATIENCE)
        assert b"end" == queue.run(put(b"end"))
        queue.close()
