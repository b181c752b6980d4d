"""Laws of the commit queue: batches, order, the drain thread, callbacks.

What fails is in test_commit_failures.py; how a queue ends and what interrupts it, in
test_commit_interruption.py.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

import deltastore.commit
from deltastore.commit import CommitQueue, Op
from deltastore.engine.api import Transaction
from deltastore.errors import DeletedParentError, EngineError
from tests.unit.commit_fakes import (
    PATIENCE,
    Callers,
    DictEngine,
    Held,
    Outcomes,
    enqueue,
    hold,
    put,
    raising,
    until,
)


def test_run_returns_the_result_after_the_commit(engine: DictEngine, queue: CommitQueue) -> None:
    """An acknowledged op is a durable one."""
    assert b"a" == queue.run(put(b"a"))
    assert [[b"a"]] == engine.commits


def test_ops_queued_during_a_commit_share_the_next_one(
    engine: DictEngine, queue: CommitQueue, callers: Callers
) -> None:
    """This is all the queue is for: one flush for everybody who came meanwhile."""
    held = hold(engine, queue, callers)
    keys = [b"%d" % i for i in range(15)]
    futures = enqueue(queue, callers, [put(key) for key in keys])
    held.go.set()
    assert keys == [future.result(PATIENCE) for future in futures]
    assert [[b"first"], keys] == engine.commits


def test_a_batch_takes_no_more_ops_than_allowed(engine: DictEngine, callers: Callers) -> None:
    """An unbounded transaction would grow with the load; the lead must still reach everyone."""
    queue = CommitQueue(engine, batch_max=2)
    held = hold(engine, queue, callers)
    outcomes = Outcomes(5)
    for i in range(5):
        queue.submit(put(b"%d" % i), outcomes)
    futures = enqueue(queue, callers, [put(b"5"), put(b"6")])
    held.go.set()
    assert [b"5", b"6"] == [future.result(PATIENCE) for future in futures]
    assert [[b"first"], [b"0", b"1"], [b"2", b"3"], [b"4", b"5"], [b"6"]] == engine.commits
    queue.close()


def test_ops_take_effect_in_the_order_they_came(
    engine: DictEngine, queue: CommitQueue, callers: Callers
) -> None:
    """A put_writes queued after its put must find it, whichever way each was queued."""
    held = hold(engine, queue, callers)
    outcomes = Outcomes(2)

    def extend(letter: bytes) -> Op[None]:
        return lambda txn: txn.put(b"k", (txn.get(b"k") or b"") + letter)

    queue.submit(extend(b"a"), outcomes)
    enqueue(queue, callers, [extend(b"b")])
    queue.submit(extend(b"c"), outcomes)
    held.go.set()
    queue.flush()
    assert b"abc" == engine.state[b"k"]


@pytest.mark.parametrize("batch_max", [1, 3, 512])
def test_no_wake_up_is_lost_under_load(engine: DictEngine, batch_max: int) -> None:
    """A hand-over that misses a sleeper hangs it for ever; each caller's own order is kept."""
    queue = CommitQueue(engine, batch_max=batch_max)
    callers = Callers()
    outcomes = Outcomes(4 * 200)

    def append(name: int, i: int) -> Op[int]:
        def op(txn: Transaction) -> int:
            key = b"%d" % name
            seen = txn.get(key) or b""
            assert i == len(seen)
            txn.put(key, seen + b".")
            return i

        return op

    def sync_caller(name: int) -> list[int]:
        return [queue.run(append(name, i)) for i in range(200)]

    def async_caller(name: int) -> None:
        for i in range(200):
            queue.submit(append(name, i), outcomes)

    futures = [callers.start(partial(sync_caller, name)) for name in range(16)]
    for name in range(16, 20):
        callers.start(partial(async_caller, name))
    for future in futures:
        assert list(range(200)) == future.result(PATIENCE)
    assert outcomes.complete.wait(PATIENCE)
    assert [] == [error for _, error in outcomes.got if error is not None]
    assert {b"%d" % name: b"." * 200 for name in range(20)} == engine.state
    queue.close()


def test_async_ops_alone_are_committed_together(engine: DictEngine, queue: CommitQueue) -> None:
    """Without a sync caller somebody must lead, and 64 tasks must not cost 64 flushes."""
    held = Held(engine)
    outcomes = Outcomes(4)
    queue.submit(put(b"first"), outcomes)
    assert held.entered.wait(PATIENCE)
    for key in (b"a", b"b", b"c"):
        queue.submit(put(key), outcomes)
    held.go.set()
    assert outcomes.complete.wait(PATIENCE)
    assert [(key, None) for key in (b"first", b"a", b"b", b"c")] == outcomes.got
    assert [[b"first"], [b"a", b"b", b"c"]] == engine.commits


def test_async_ops_left_by_a_sync_leader_go_to_the_drain_thread(
    engine: DictEngine, queue: CommitQueue, callers: Callers
) -> None:
    """The sync caller got its result; it must not be kept working for others."""
    held = hold(engine, queue, callers)
    outcomes = Outcomes(1)
    threads: list[str] = []

    def op(txn: Transaction) -> None:
        threads.append(threading.current_thread().name)

    queue.submit(op, outcomes)
    held.go.set()
    assert outcomes.complete.wait(PATIENCE)
    assert ["deltastore-commit"] == threads


def test_a_drain_thread_that_idled_out_is_replaced(
    engine: DictEngine, queue: CommitQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that was quiet for a while must take async ops again."""
    monkeypatch.setattr(deltastore.commit, "IDLE_SECONDS", 0)
    for key in (b"a", b"b"):
        outcomes = Outcomes(1)
        queue.submit(put(key), outcomes)
        assert outcomes.complete.wait(PATIENCE)
        assert queue._drain_thread is not None
        queue._drain_thread.join(PATIENCE)
        assert not queue._drain_thread.is_alive()
    assert [[b"a"], [b"b"]] == engine.commits


def test_submit_without_a_thread_to_be_had_says_so(
    engine: DictEngine, queue: CommitQueue, callers: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An op nobody will ever commit must not be taken; one taken already goes to whoever leads."""
    held = hold(engine, queue, callers)
    outcomes = Outcomes(1)
    queue.submit(put(b"taken"), outcomes)

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    held.go.set()
    assert outcomes.complete.wait(PATIENCE)
    until(lambda: queue._leader is None)
    with pytest.raises(EngineError, match="no thread could be started"):
        queue.submit(put(b"refused"), outcomes)
    assert b"sync" == queue.run(put(b"sync"))
    assert [[b"first"], [b"taken"], [b"sync"]] == engine.commits


def test_after_runs_in_commit_order_before_any_later_caller_is_woken(
    engine: DictEngine, queue: CommitQueue, callers: Callers
) -> None:
    """It fills caches: a caller that got its result must find its own write there."""
    held = hold(engine, queue, callers)
    calls: list[tuple[bytes, list[list[bytes]]]] = []

    def after(result: bytes) -> None:
        calls.append((result, list(engine.commits)))

    keys = [b"a", b"b", b"c"]
    ops = [put(key) for key in keys]
    futures = enqueue(queue, callers, ops, after=after)
    enqueue(queue, callers, [raising(DeletedParentError("gone"))], after=after)
    held.go.set()
    for i, future in enumerate(futures):
        future.result(PATIENCE)
        assert keys[: i + 1] == [key for key, _ in calls][: i + 1]
    queue.flush()
    assert [(key, [[b"first"], keys]) for key in keys] == calls


def test_a_callback_that_raises_is_a_bug_and_hangs_nobody(
    engine: DictEngine, queue: CommitQueue, callers: Callers
) -> None:
    """The op is committed; its caller must hear of the bug, and the others not suffer."""
    held = hold(engine, queue, callers)

    def after(result: bytes) -> None:
        raise ValueError("bug")

    def done(result: bytes | None, error: BaseException | None) -> None:
        raise ValueError("bug")

    (bad,) = enqueue(queue, callers, [put(b"a")], after=after)
    queue.submit(put(b"b"), done)
    (good,) = enqueue(queue, callers, [put(b"c")])
    held.go.set()
    assert AssertionError is type(bad.exception(PATIENCE))
    assert b"c" == good.result(PATIENCE)
    assert b"d" == queue.run(put(b"d"))


class SeenEarly(CommitQueue):
    """Lets the heir see that it leads before the one who named it wakes it."""

    heir: int | None = None  # thread of the caller that is to inherit the lead

    def __init__(self, engine: DictEngine) -> None:
        self.waiting, self.named, self.seen = (threading.Event() for _ in range(3))
        super().__init__(engine)

    @property
    def _leader(self) -> Any:
        # Its first look is under the queue's lock, and the next one is not.
        if threading.get_ident() == self.heir and not self._lock.locked():
            self.waiting.set()
            assert self.named.wait(PATIENCE)
            self.seen.set()
        return self.led

    @_leader.setter
    def _leader(self, leader: Any) -> None:
        self.led = leader
        if self.waiting.is_set() and leader is not None and not self.named.is_set():
            self.named.set()
            assert self.seen.wait(PATIENCE)


def test_an_heir_that_sees_it_leads_before_it_is_woken_leads_once(
    engine: DictEngine, callers: Callers
) -> None:
    """Between the two lines that name and wake it any thread may run."""
    queue = SeenEarly(engine)
    held = Held(engine)
    first = callers.start(lambda: queue.run(put(b"first")))
    assert held.entered.wait(PATIENCE)

    def inherit() -> bytes:
        queue.heir = threading.get_ident()
        return queue.run(put(b"heir"))

    heir = callers.start(inherit)
    assert queue.waiting.wait(PATIENCE)
    held.go.set()
    assert (b"first", b"heir") == (first.result(PATIENCE), heir.result(PATIENCE))
    queue.heir = None
    assert b"end" == queue.run(put(b"end"))
    queue.close()
