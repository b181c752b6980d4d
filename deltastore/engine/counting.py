"""An engine that counts what is asked of the engine inside it; for tests and benchmarks.

Changes no answer and no error. Counts are exact under threads; they say what was asked for, not
what the disk did, so a transaction that is undone or run again counts each time.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from os import PathLike
from types import TracebackType

from deltastore.engine.api import Engine, EngineStat, Pair, Transaction
from deltastore.plans import BackupReport, Progress, VacuumReport, no_progress


@dataclass(frozen=True, slots=True)
class EngineCounts:
    """What was asked of an engine since it was wrapped.

    Attributes:
        read_transactions, write_transactions: Begun, whether or not they ended well.
        gets: Keys looked up, each key of a `get_many` included.
        round_trips: Calls that a server would answer one by one: `get`, `get_many`, `scan`,
            `scan_keys`, `delete_range`.
        scans: Calls of `scan` and `scan_keys`.
        scanned: Pairs and keys that scans returned.
        puts: Pairs stored.
        put_bytes: Bytes of their keys and values.
        deletes: Keys removed.
    """

    read_transactions: int = 0
    write_transactions: int = 0
    gets: int = 0
    round_trips: int = 0
    scans: int = 0
    scanned: int = 0
    puts: int = 0
    put_bytes: int = 0
    deletes: int = 0

    def __sub__(self, earlier: EngineCounts) -> EngineCounts:
        """Return what was asked between two snapshots."""
        names = self.__dataclass_fields__
        return EngineCounts(**{n: getattr(self, n) - getattr(earlier, n) for n in names})


class CountingEngine:
    """Counts what is asked of `inner`, which it closes when closed."""

    def __init__(self, inner: Engine) -> None:
        self._inner = inner
        self._mutex = threading.Lock()
        self._counts = EngineCounts()

    def counts(self) -> EngineCounts:
        """Return a snapshot of the counts."""
        return self._counts

    def _add(self, **more: int) -> None:
        with self._mutex:
            now = self._counts
            self._counts = replace(now, **{n: getattr(now, n) + more[n] for n in more})

    @property
    def key_bytes_max(self) -> int:
        """Longest key of the engine inside, in bytes."""
        return self._inner.key_bytes_max

    def begin(self, *, write: bool, scope: bytes = b"") -> AbstractContextManager[Transaction]:
        """Begin a transaction of the engine inside, counted."""
        begun = self._inner.begin(write=write, scope=scope)
        self._add(**{"write_transactions" if write else "read_transactions": 1})
        return _CountingBlock(self, begun)

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
        """Sync the engine inside."""
        self._inner.sync()

    def vacuum(self, *, secure: bool = False, progress: Progress = no_progress) -> VacuumReport:
        """Vacuum the engine inside; its own transactions are not counted."""
        return self._inner.vacuum(secure=secure, progress=progress)

    def backup(
        self,
        target: str | PathLike[str],
        *,
        instead: Mapping[bytes, bytes] | None = None,
        progress: Progress = no_progress,
    ) -> BackupReport:
        """Back up the engine inside; not counted."""
        return self._inner.backup(target, instead=instead, progress=progress)

    def close(self) -> None:
        """Close the engine inside."""
        self._inner.close()


class _CountingBlock:
    def __init__(self, engine: CountingEngine, begun: AbstractContextManager[Transaction]) -> None:
        self._engine = engine
        self._begun = begun

    def __enter__(self) -> _CountingTransaction:
        return _CountingTransaction(self._engine, self._begun.__enter__())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._begun.__exit__(kind, error, trace)


class _CountingTransaction:
    def __init__(self, engine: CountingEngine, inner: Transaction) -> None:
        self._engine = engine
        self._inner = inner

    def get(self, key: bytes) -> bytes | None:
        self._engine._add(gets=1, round_trips=1)
        return self._inner.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._engine._add(gets=len(keys), round_trips=1)
        return self._inner.get_many(keys)

    def scan(
        self, start: bytes, stop: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[Pair]:
        pairs = self._inner.scan(start, stop, reverse=reverse, limit=limit)
        self._engine._add(scans=1, round_trips=1, scanned=len(pairs))
        return pairs

    def scan_keys(
        self, start: bytes, stop: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[bytes]:
        keys = self._inner.scan_keys(start, stop, reverse=reverse, limit=limit)
        self._engine._add(scans=1, round_trips=1, scanned=len(keys))
        return keys

    def put(self, key: bytes, value: bytes) -> None:
        self._inner.put(key, value)
        self._engine._add(puts=1, put_bytes=len(key) + len(value))

    def delete(self, key: bytes) -> bool:
        removed = self._inner.delete(key)
        self._engine._add(deletes=int(removed))
        return removed

    def delete_range(self, start: bytes, stop: bytes, *, limit: int) -> int:
        removed = self._inner.delete_range(start, stop, limit=limit)
        self._engine._add(deletes=removed, round_trips=1)
        return removed

    def used_bytes(self) -> int:
        return self._inner.used_bytes()
