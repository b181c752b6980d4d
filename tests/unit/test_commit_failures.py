"""When an op or a commit fails: who hears of it, what is tried again, what is kept alive."""

from __future__ import annotations

import gc
import weakref

import pytest

from deltastore.commit import RETRIES_MAX, CommitQueue, Op
from deltastore.engine.api import Transaction
from deltastore.errors import (
    CorruptionError,
    DeletedParentError,
    EngineError,
    RetryTransactionError,
    StoreFullError,
)
from tests.unit.commit_fakes import (
    PATIENCE,
    Callers,
    DictEngine,
    Outcomes,
    enqueue,
    hold,
    put,
    raising,
)


def test_an_op_that_raises_fails_alone(
    engine: DictEngine, queue: CommitQueue, callers: Callers
) -> None:
    """One thread's deleted parent must not cost the other threads their checkpoints."""
    held = hold(engine, queue, callers)
    failure = DeletedParentError("gone")
    traces: list[bytes | None] = []

    def look(txn: Transaction) -> None:
        traces.append(txn.get(b"trace"))

    futures = enqueue(queue, callers, [put(b"a"), raising(failure), look, put(b"b")])
    held.go.set()
    assert failure is futures[1].exception(PATIENCE)
    assert [b"a", None, b"b"] == [futures[i].result(PATIENCE) for i in (0, 2, 3)]
    assert [None] == traces
    assert [[b"first"], [b"a", b"b"]] == engine.commits


def test_an_async_op_that_raises_is_told_its_error(queue: CommitQueue) -> None:
    """A task waiting for a result that is not coming would hang its graph."""
    failure = DeletedParentError("gone")
    outcomes = Outcomes(1)
    queue.submit(raising(failure), outcomes)
    assert outcomes.complete.wait(PATIENCE)
    assert [(None, failure)] == outcomes.got


def test_an_error_does_not_keep_the_batch_alive(
    engine: DictEngine, queue: CommitQueue, callers: Callers
) -> None:
    """Errors are logged and kept; the values of 511 other callers must not be kept with them."""
    held = hold(engine, queue, callers)
    beside = put(b"a")
    watched = weakref.ref(beside)
    failing = raising(DeletedParentError("gone"))
    futures = enqueue(queue, callers, [put(b"leader"), beside, failing])
    del beside
    held.go.set()
    error = futures[2].exception(PATIENCE)
    for thread in callers.threads:
        thread.join(PATIENCE)
    gc.collect()
    assert watched() is None
    assert error is not None


def test_an_error_leaves_no_garbage(queue: CommitQueue) -> None:
    """A cycle through a traceback keeps a large value until the collector comes by."""

    class Value:
        pass

    value = Value()
    watched = weakref.ref(value)

    def fail(txn: Transaction, value: Value = value) -> None:
        raise DeletedParentError("gone")

    gc.disable()
    try:
        try:
            queue.run(fail)
        except DeletedParentError:
            pass
        del fail, value
        assert watched() is None
    finally:
        gc.enable()


def test_a_retry_replays_the_whole_batch(
    engine: DictEngine, queue: CommitQueue, callers: Callers
) -> None:
    """An engine that grew its map undid everything, not just the op it was at."""
    held = hold(engine, queue, callers)
    runs: list[int] = []

    def count(i: int) -> Op[None]:
        return lambda txn: runs.append(i)

    futures = enqueue(queue, callers, [put(b"a"), count(1), count(2)])
    replays = iter([RetryTransactionError("grown")] * RETRIES_MAX)

    def grow(keys: list[bytes]) -> None:
        for error in replays:
            raise error

    held.then = grow
    held.go.set()
    assert [b"a", None, None] == [future.result(PATIENCE) for future in futures]
    assert [1, 2] * (RETRIES_MAX + 1) == runs
    assert [[b"first"], [b"a"]] == engine.commits


def test_a_retry_asked_for_inside_an_op_is_not_the_ops_failure(
    engine: DictEngine, queue: CommitQueue
) -> None:
    """LMDB finds its map full in the put, before any commit."""
    tries = iter([True, False])

    def op(txn: Transaction) -> str:
        txn.put(b"k", b"")
        if next(tries):
            raise RetryTransactionError("grown")
        return "stored"

    assert "stored" == queue.run(op)


def test_endless_retries_become_an_error_for_all(
    engine: DictEngine, queue: CommitQueue, callers: Callers
) -> None:
    """An engine that cannot grow must not keep its callers spinning."""
    held = hold(engine, queue, callers)
    futures = enqueue(queue, callers, [put(b"a"), put(b"b")])

    def grow(keys: list[bytes]) -> None:
        raise RetryTransactionError("grown")

    held.then = grow
    held.go.set()
    for future in futures:
        assert EngineError is type(future.exception(PATIENCE))
    assert futures[0].exception() is not futures[1].exception()
    assert 1 + RETRIES_MAX + 1 == engine.begun


@pytest.mark.parametrize("error", [StoreFullError("full"), CorruptionError("damaged")])
@pytest.mark.parametrize("where", ["commit", "begin"])
def test_a_commit_that_fails_is_taken_apart(
    engine: DictEngine, queue: CommitQueue, callers: Callers, error: Exception, where: str
) -> None:
    """One huge value on a full disk must not refuse the small ones beside it."""
    held = hold(engine, queue, callers)
    futures = enqueue(queue, callers, [put(b"a"), put(b"huge"), put(b"b")])
    begun = iter([True, False, True, False])

    def full(keys: list[bytes]) -> None:
        if b"huge" in keys:
            raise error

    def refuse() -> None:
        if next(begun):
            raise error

    if where == "commit":
        held.then = full
    else:
        engine.at_begin = refuse
    held.go.set()
    assert error is futures[1].exception(PATIENCE)
    assert [b"a", b"b"] == [futures[i].result(PATIENCE) for i in (0, 2)]
    assert [[b"first"], [b"a"], [b"b"]] == engine.commits


def test_a_full_disk_found_inside_an_op_is_not_blamed_on_that_op(
    engine: DictEngine, queue: CommitQueue, callers: Callers
) -> None:
    """The put that finds the map full comes after the one that filled it."""
    held = hold(engine, queue, callers)

    def small(txn: Transaction) -> str:
        if txn.get(b"huge") is not None:
            raise StoreFullError("full")
        txn.put(b"small", b"")
        return "stored"

    def full(keys: list[bytes]) -> None:
        if b"huge" in keys:
            raise StoreFullError("full")

    held.then = full
    futures = enqueue(queue, callers, [put(b"huge"), small])
    held.go.set()
    assert StoreFullError is type(futures[0].exception(PATIENCE))
    assert "stored" == futures[1].result(PATIENCE)
