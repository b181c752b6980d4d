"""What the tests of the commit queue share: an engine whose commits can be held and failed.

A *caller* is a thread whose result is asked for later; an *outcome* is what `done` was called with.
Threads are brought into a known place by waiting until the queue holds what they put there; every
wait is bounded, so a lost wake-up fails a test and does not hang it.

Asserts no law of the queue.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

from deltastore.commit import CommitQueue, Op
from deltastore.engine.api import EngineStat, Pair, Transaction
from deltastore.errors import StoreClosedError

PATIENCE = 20.0  # seconds until a test calls it a hang


class DictTransaction:
    """Reads through to a copy of the engine's dict."""

    def __init__(self, state: dict[bytes, bytes]) -> None:
        self.state = state

    def get(self, key: bytes) -> bytes | None:
        return self.state.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.state.get(key) for key in keys]

    def scan(
        self, start: bytes, stop: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[Pair]:
        raise NotImplementedError

    def scan_keys(
        self, start: bytes, stop: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[bytes]:
        raise NotImplementedError

    def put(self, key: bytes, value: bytes) -> None:
        self.state[key] = value

    def delete(self, key: bytes) -> bool:
        return self.state.pop(key, None) is not None

    def delete_range(self, start: bytes, stop: bytes, *, limit: int) -> int:
        raise NotImplementedError

    def used_bytes(self) -> int:
        raise NotImplementedError


class DictEngine:
    """A dict with a hook where a commit may wait or fail.

    Attributes:
        at_commit: Called with the keys about to be committed; what it raises fails the commit.
        commits: The keys each commit stored, in commit order.
        begun: Write transactions begun.
    """

    key_bytes_max = 511

    def __init__(self) -> None:
        self.state: dict[bytes, bytes] = {}
        self.commits: list[list[bytes]] = []
        self.begun = 0
        self.at_begin: Callable[[], None] = lambda: None
        self.at_commit: Callable[[list[bytes]], None] = lambda _: None
        self.closed = False
        self.writer: threading.Lock | threading.Semaphore = threading.Lock()

    @contextmanager
    def begin(self, *, write: bool, scope: bytes = b"") -> Iterator[Transaction]:
        assert write
        assert b"" == scope
        self.check()
        assert self.writer.acquire(blocking=False), "two leaders at once"
        try:
            self.begun += 1
            self.at_begin()
            txn = DictTransaction(dict(self.state))
            yield txn
            new = [key for key in txn.state if txn.state[key] != self.state.get(key)]
            self.at_commit(new)
            self.state = txn.state
            self.commits.append(new)
        finally:
            self.writer.release()

    def version(self) -> int | None:
        return None

    def check(self) -> None:
        if self.closed:
            raise StoreClosedError("closed")

    def stat(self) -> EngineStat:
        return EngineStat(len(self.state), 0, 0)

    def close(self) -> None:
        self.closed = True


class Held:
    """Holds the first commit of an engine until it is released; fails those after it on demand."""

    def __init__(self, engine: DictEngine) -> None:
        self.entered = threading.Event()
        self.go = threading.Event()
        self.then: Callable[[list[bytes]], None] = lambda _: None
        engine.at_commit = self

    def __call__(self, keys: list[bytes]) -> None:
        if self.entered.is_set():
            self.then(keys)
        else:
            self.entered.set()
            assert self.go.wait(PATIENCE)


class Callers:
    """Threads whose results are asked for later."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def start(self, function: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()

        def call() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - the test asks for it
                future.set_exception(error)

        thread = threading.Thread(target=call, daemon=True)
        self.threads.append(thread)
        thread.start()
        return future


def until(condition: Callable[[], bool]) -> None:
    """Yield to the other threads until `condition` holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "the other threads are stuck"
        os.sched_yield()


def queue_exceeds(queue: CommitQueue, ops: int) -> bool:
    return len(queue._queue) > ops


def put(key: bytes, value: bytes = b"") -> Op[bytes]:
    def op(txn: Transaction) -> bytes:
        txn.put(key, value)
        return key

    return op


def raising(error: BaseException, key: bytes = b"trace") -> Op[None]:
    """An op that stores something first, so that a trace of it could be found."""

    def op(txn: Transaction) -> None:
        txn.put(key, b"")
        raise error

    return op


@contextmanager
def open_queue(engine: DictEngine) -> Iterator[CommitQueue]:
    """Give a queue that must close in time."""
    queue = CommitQueue(engine)
    yield queue
    closer = threading.Thread(target=queue.close, daemon=True)
    closer.start()
    closer.join(PATIENCE)
    assert not closer.is_alive(), "close never returned"


@contextmanager
def join_callers() -> Iterator[Callers]:
    """Give callers that must all have returned in time."""
    callers = Callers()
    yield callers
    for thread in callers.threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a caller was never woken"


def hold(engine: DictEngine, queue: CommitQueue, callers: Callers) -> Held:
    """Bring a thread into the commit of key b"first" and keep it there."""
    held = Held(engine)
    callers.start(lambda: queue.run(put(b"first")))
    assert held.entered.wait(PATIENCE)
    return held


def enqueue(
    queue: CommitQueue, callers: Callers, ops: Sequence[Op[Any]], **options: Any
) -> list[Future[Any]]:
    """Start a sync caller for each op, in this order."""
    futures = []
    for op in ops:
        queued = len(queue._queue)
        futures.append(callers.start(partial(queue.run, op, **options)))
        until(partial(queue_exceeds, queue, queued))
    return futures


class Outcomes:
    """Collects what `done` is called with."""

    def __init__(self, expected: int) -> None:
        self.got: list[tuple[Any, BaseException | None]] = []
        self.expected = expected
        self.complete = threading.Event()

    def __call__(self, result: Any, error: BaseException | None) -> None:
        self.got.append((result, error))
        if len(self.got) == self.expected:
            self.complete.set()
