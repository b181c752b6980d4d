"""Count what an opening commits: commits, the ops in each, and the bytes of records they put.

A *measured* transaction hands every call on as it is and counts puts, which become part of the
figures once it is committed. Cheap enough for every commit: 3 us, and 0.3 us a put. Counts what is
handed to the engine, not what the engine writes for it.
"""

from __future__ import annotations

import sys
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import Final

from deltastore.engine.api import Engine, Transaction
from deltastore.slow import SlowLog

BUCKETS: Final = 11  # of the histogram: 1, 2, up to 4, up to 8, ... up to 512, more


@dataclass(frozen=True, slots=True)
class Counts:
    """What was committed since an opening.

    Attributes:
        commits: Write transactions that were committed.
        ops: Operations in them: calls, and the steps of maintenance.
        ops_max: Operations of the largest.
        histogram: Commits by their operations: 1, 2, 3 to 4, 5 to 8, ..., 257 to 512, more.
        records, stored_bytes: Records put, and their bytes, keys included.
        given_bytes: Bytes of serialized values and writes that callers handed in.
        commit_seconds: Time spent from the beginning of these transactions to their end, waiting
            for other processes included.
    """

    commits: int = 0
    ops: int = 0
    ops_max: int = 0
    histogram: tuple[int, ...] = (0,) * BUCKETS
    records: int = 0
    stored_bytes: int = 0
    given_bytes: int = 0
    commit_seconds: float = 0.0


class Meter:
    """The counts of one opening; any number of threads may use it."""

    def __init__(self, slow: SlowLog | None = None) -> None:
        self._slow = slow or SlowLog(None)
        self._lock = threading.Lock()
        self._commits = self._ops = self._ops_max = 0
        self._histogram = [0] * BUCKETS
        self._records = self._stored_bytes = self._given_bytes = 0
        self._commit_seconds = 0.0

    def note_given(self, size: int) -> None:
        """Be told of bytes of serialized values that a caller handed in and that were stored."""
        with self._lock:
            self._given_bytes += size

    def counts(self) -> Counts:
        """Return the counts as they are now."""
        with self._lock:
            return Counts(
                self._commits,
                self._ops,
                self._ops_max,
                tuple(self._histogram),
                self._records,
                self._stored_bytes,
                self._given_bytes,
                self._commit_seconds,
            )

    def begin(self, engine: Engine, ops: int) -> AbstractContextManager[Transaction]:
        """Begin a measured write transaction in which that many operations will run."""
        return _Block(self, engine.begin(write=True, scope=b""), ops)

    def _committed(self, ops: int, done: _MeasuredTransaction, seconds: float) -> None:
        with self._lock:
            self._commits += 1
            self._ops += ops
            self._ops_max = max(self._ops_max, ops)
            self._histogram[min((ops - 1).bit_length(), BUCKETS - 1)] += 1
            self._records += done.records
            self._stored_bytes += done.size
            self._commit_seconds += seconds
        if self._slow.is_on:
            self._slow.tell("commit", seconds, ops=ops, records=done.records, bytes=done.size)


class _Block:
    __slots__ = ("_begun", "_inner", "_meter", "_ops", "_transaction")

    def __init__(self, meter: Meter, inner: AbstractContextManager[Transaction], ops: int) -> None:
        self._meter = meter
        self._inner = inner
        self._ops = ops
        self._begun = perf_counter()

    def __enter__(self) -> _MeasuredTransaction:
        transaction = self._inner.__enter__()
        try:
            self._transaction = _MeasuredTransaction(transaction)
        except BaseException:  # an interruption: nobody else would end what was begun
            self._inner.__exit__(*sys.exc_info())
            raise
        return self._transaction

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        swallowed = self._inner.__exit__(kind, error, trace)
        if kind is None:
            seconds = perf_counter() - self._begun
            self._meter._committed(self._ops, self._transaction, seconds)
        return swallowed


class _MeasuredTransaction:
    __slots__ = (
        "_put",
        "delete",
        "delete_range",
        "get",
        "get_many",
        "records",
        "scan",
        "scan_keys",
        "size",
        "used_bytes",
    )

    def __init__(self, inner: Transaction) -> None:
        # The inner one's own methods, so that they cost what they cost.
        self.get = inner.get
        self.get_many = inner.get_many
        self.scan = inner.scan
        self.scan_keys = inner.scan_keys
        self.delete = inner.delete
        self.delete_range = inner.delete_range
        self.used_bytes = inner.used_bytes
        self._put = inner.put
        self.records = 0
        self.size = 0

    def put(self, key: bytes, value: bytes) -> None:
        self._put(key, value)
        self.records += 1
        self.size += len(key) + len(value)
