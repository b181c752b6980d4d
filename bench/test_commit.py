"""What the commit queue costs and gains: one sync caller, and sixteen threads.

The engines: one whose transactions do nothing, where all that is left is the queue itself; one that
takes 300 us to commit without the GIL, as a synced LMDB does; and the memory engine.

Run: pytest bench/test_commit.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import pytest

from deltastore.commit import CommitQueue
from deltastore.engine.api import Transaction
from deltastore.engine.memory import MemoryEngine

COMMIT_SECONDS = 300e-6
THREADS = 16
OPS = 50  # of each thread in a round
ROUNDS = 3


class IdleTransaction:
    """Stores nothing; its end takes as long as it is told."""

    def __init__(self, commit_seconds: float) -> None:
        self.commit_seconds = commit_seconds

    def __enter__(self) -> IdleTransaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.commit_seconds:
            time.sleep(self.commit_seconds)

    def put(self, key: bytes, value: bytes) -> None:
        """Forget it."""


class IdleEngine:
    """The part of an engine that a queue uses, and a count of its commits."""

    def __init__(self, commit_seconds: float = 0.0) -> None:
        self.transaction = IdleTransaction(commit_seconds)
        self.commits = 0

    def begin(self, *, write: bool, scope: bytes = b"") -> IdleTransaction:
        assert write
        assert not scope
        self.commits += 1
        return self.transaction

    def check(self) -> None:
        """Always open."""


ENGINES: dict[str, Callable[[], Any]] = {
    "noop": IdleEngine,
    "300us": lambda: IdleEngine(COMMIT_SECONDS),
    "memory": MemoryEngine,
}


def op(txn: Transaction) -> None:
    txn.put(b"key", b"value")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Any:
    return ENGINES[request.param]()


def test_bare_transaction(benchmark: Any, engine: Any) -> None:
    """What `test_one_caller` is to be compared with."""

    def run() -> None:
        with engine.begin(write=True, scope=b"") as txn:
            op(txn)

    benchmark(run)


def test_one_caller(benchmark: Any, engine: Any) -> None:
    """The price of the queue where there is nobody to share a commit with."""
    benchmark(CommitQueue(engine).run, op)


@pytest.mark.parametrize("batch_max", [512, 1])
def test_sixteen_threads(benchmark: Any, engine: Any, batch_max: int) -> None:
    """What grouping gains over one op in a commit; a round is 16 x 50 ops."""
    queue = CommitQueue(engine, batch_max=batch_max)

    def caller() -> None:
        for _ in range(OPS):
            queue.run(op)

    with ThreadPoolExecutor(THREADS) as pool:

        def together() -> None:
            for future in [pool.submit(caller) for _ in range(THREADS)]:
                future.result()

        benchmark.pedantic(together, rounds=ROUNDS)
    queue.close()
    if isinstance(engine, IdleEngine):
        ops = ROUNDS * THREADS * OPS
        benchmark.extra_info["ops_per_commit"] = round(ops / engine.commits, 1)
