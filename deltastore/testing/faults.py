"""An engine that fails at a chosen call, for loops over every call that could fail.

A *call* is a begin, a get, a scan, a put, a delete, the commit at the end of a block, a vacuum or a
backup, counted from 1 over all threads. A loop runs the same work with `fail_at` 1, 2, 3, ... until
`has_failed` stays False: every place where an engine may fail was then tried once.

Injects nothing below the seam: torn pages and full disks are for the tests of one engine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from types import TracebackType

from deltastore.engine.api import Engine, EngineStat, Pair, Transaction
from deltastore.errors import DeltaStoreError, EngineError
from deltastore.plans import BackupReport, Progress, VacuumReport, no_progress


class FailingEngine:
    """Raises `EngineError` at the `fail_at`-th call, once; its transaction then has no effect.

    As with a real engine, a caller that swallows the error does not save the transaction: every
    later call of it and its end raise the same.

    Args:
        inner: Answers every other call; closed with this one.
        fail_at: From 1; 0 never fails and only counts.
    """

    def __init__(self, inner: Engine, fail_at: int) -> None:
        self._inner = inner
        self._mutex = threading.Lock()
        self._fail_at = fail_at
        self.calls = 0
        self.has_failed = False

    def count(self, what: str) -> None:
        """Count one call; raise if it is the chosen one."""
        with self._mutex:
            self.calls += 1
            if self.calls == self._fail_at:
                self.has_failed = True
                raise EngineError(f"injected failure: {what}, call {self.calls}")

    def fails(self, work: Callable[[], object]) -> bool:
        """Run `work`; return whether the failure was met and reached its caller.

        Raises:
            AssertionError: It was swallowed, or another error came in its place.
        """
        raised = ""
        try:
            work()
        except DeltaStoreError as error:
            raised = str(error)
        assert self.has_failed == (f"call {self._fail_at}" in raised), raised
        return self.has_failed

    @property
    def key_bytes_max(self) -> int:
        """Longest key of the engine inside, in bytes."""
        return self._inner.key_bytes_max

    def begin(self, *, write: bool, scope: bytes = b"") -> AbstractContextManager[Transaction]:
        """Begin a transaction of the engine inside; one of the calls that count."""
        self.count("begin")
        return _FailingBlock(self, self._inner.begin(write=write, scope=scope), write)

    def version(self) -> int | None:
        """Return the version of the engine inside."""
        return self._inner.version()

    def check(self) -> None:
        """Check the engine inside."""
        self._inner.check()

    def stat(self) -> EngineStat:
        """Return the sizes of the engine inside."""
        return self._inner.stat()

    def sync(self) -> None:
        """Sync the engine inside; one of the calls that count."""
        self.count("sync")
        self._inner.sync()

    def vacuum(self, *, secure: bool = False, progress: Progress = no_progress) -> VacuumReport:
        """Vacuum the engine inside; one of the calls that count."""
        self.count("vacuum")
        return self._inner.vacuum(secure=secure, progress=progress)

    def backup(
        self,
        target: str | PathLike[str],
        *,
        instead: Mapping[bytes, bytes] | None = None,
        progress: Progress = no_progress,
    ) -> BackupReport:
        """Back up the engine inside; one of the calls that count."""
        self.count("backup")
        return self._inner.backup(target, instead=instead, progress=progress)

    def close(self) -> None:
        """Close the engine inside."""
        self._inner.close()


class _FailingBlock:
    def __init__(
        self, engine: FailingEngine, begun: AbstractContextManager[Transaction], write: bool
    ) -> None:
        self._engine = engine
        self._begun = begun
        self._write = write

    def __enter__(self) -> Transaction:
        self._transaction = _FailingTransaction(self._engine, self._begun.__enter__())
        return self._transaction

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        failure = self._transaction.failure
        if error is None and failure is None and self._write:
            try:
                self._engine.count("commit")
            except EngineError as injected:
                failure = injected
        if error is None and failure is not None:
            self._begun.__exit__(type(failure), failure, failure.__traceback__)
            raise failure
        return self._begun.__exit__(kind, error, trace)


class _FailingTransaction:
    def __init__(self, engine: FailingEngine, inner: Transaction) -> None:
        self._engine = engine
        self._inner = inner
        self.failure: EngineError | None = None

    def _count(self, what: str) -> None:
        if self.failure is not None:
            raise self.failure
        try:
            self._engine.count(what)
        except EngineError as injected:
            self.failure = injected
            raise

    def get(self, key: bytes) -> bytes | None:
        self._count("get")
        return self._inner.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._count("get_many")
        return self._inner.get_many(keys)

    def scan(
        self, start: bytes, stop: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[Pair]:
        self._count("scan")
        return self._inner.scan(start, stop, reverse=reverse, limit=limit)

    def scan_keys(
        self, start: bytes, stop: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[bytes]:
        self._count("scan_keys")
        return self._inner.scan_keys(start, stop, reverse=reverse, limit=limit)

    def put(self, key: bytes, value: bytes) -> None:
        self._count("put")
        self._inner.put(key, value)

    def delete(self, key: bytes) -> bool:
        self._count("delete")
        return self._inner.delete(key)

    def delete_range(self, start: bytes, stop: bytes, *, limit: int) -> int:
        self._count("delete_range")
        return self._inner.delete_range(start, stop, limit=limit)

    def used_bytes(self) -> int:
        return self._inner.used_bytes()
