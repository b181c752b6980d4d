"""The engine seam: an ordered, transactional key-value store of bytes.

An *engine* knows nothing of checkpoints. What the log relies on, numbered for the tests in
`deltastore.testing.engine_suite`:

 E1  Keys are ordered as bytes. Keys are 1 to `key_bytes_max` bytes and sort before `KEYS_END`,
     values are 0 to `VALUE_BYTES_MAX` bytes.
 E2  A write transaction takes effect whole, at the end of its `with` block, or not at all: any
     exception that leaves the block undoes it.
 E3  When the block of a write transaction has ended, its effect is as durable as was asked at open.
 E4  A transaction reads one state: that of its beginning, and its own puts and deletes.
 E5  Write transactions of one scope run one after the other; an engine may run those of different
     scopes at once.
 E6  Bytes returned belong to the caller: they stay the same after the transaction ends.
 E7  `scan` yields ascending keys (descending with `reverse`), sees the transaction's own puts, and
     returns at most `limit` pairs; a caller pages by passing the last key.
 E8  Limits are checked before any effect: a key or value out of bounds raises
     `InvalidArgumentError` and leaves the transaction usable.
 E9  Only `DeltaStoreError`s leave an engine: `EngineError` and below for failures of its own,
     `ForkedStoreError`, `StoreClosedError`. An exception of the caller's block passes unchanged.
 E10 `begin` may be called from any thread, any number at once. A write transaction belongs to the
     thread that began it. No transaction is begun inside another of the same thread.
 E11 A vacuum changes no pair. It runs beside transactions of any thread and process: what they put
     and delete meanwhile counts as ever, and one begun before its end keeps the state of its
     beginning. One that raises has changed nothing either.
 E12 A backup holds the pairs of one moment, beside transactions of any thread and process. It is
     there whole when the call returns, as durable as a commit; one that raises or whose process
     dies leaves nothing at its place. An engine without files refuses.
 E13 `used_bytes` grows with what is stored and shrinks with what is deleted, within a few pages.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from deltastore.plans import BackupReport, Progress, VacuumReport, no_progress

VALUE_BYTES_MAX: Final = (1 << 31) - 1
KEYS_END: Final = b"\xff" * 8  # every key sorts before it; beyond it are an engine's own
Pair = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class EngineStat:
    """Sizes of an engine, cheap to take.

    Attributes:
        entries: Keys stored.
        file_bytes: Bytes of the data file; 0 for an engine without one.
        free_bytes: Bytes of the file in pages that hold nothing; 0 where unknown.
    """

    entries: int
    file_bytes: int
    free_bytes: int


class Transaction(Protocol):
    """One transaction; usable only inside the `with` block that `Engine.begin` opened."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of `keys`, in their order, None for each that is absent."""

    def scan(
        self, start: bytes, stop: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[Pair]:
        """Return pairs with `start <= key < stop`, ascending, or descending with `reverse`.

        `limit` bounds the number of pairs, counted from the end the scan begins at; None means all.
        """

    def scan_keys(
        self, start: bytes, stop: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[bytes]:
        """As `scan`, keys only."""

    def put(self, key: bytes, value: bytes) -> None:
        """Store `value` under `key`, replacing what is there."""

    def delete(self, key: bytes) -> bool:
        """Remove `key`; return whether it was there."""

    def delete_range(self, start: bytes, stop: bytes, *, limit: int) -> int:
        """Remove up to `limit` pairs with `start <= key < stop`, lowest first; return how many."""

    def used_bytes(self) -> int:
        """Return the bytes that all pairs take, own puts and deletes included (E13).

        In the units of what `Engine` was bounded by: pages in use, or keys and values. Cost: O(1).
        """


class Engine(Protocol):
    """An open engine. Opening is the implementation's own; this is what the store uses."""

    @property
    def key_bytes_max(self) -> int:
        """Longest key, in bytes; at least 511."""

    def begin(self, *, write: bool, scope: bytes = b"") -> AbstractContextManager[Transaction]:
        """Begin a transaction; it ends with the `with` block (E2).

        Args:
            write: A read transaction that puts or deletes is a bug of the caller.
            scope: What the transaction will write, for engines that run scopes at once (E5).
                Empty means everything.
        """

    def version(self) -> int | None:
        """Return a number that changes with every commit by any process, without I/O.

        None where the engine cannot tell at once; never waits.
        """

    def check(self) -> None:
        """Raise `StoreClosedError` or `ForkedStoreError` if no transaction could begin; no I/O."""

    def stat(self) -> EngineStat:
        """Return sizes."""

    def sync(self) -> None:
        """Make every write transaction that has ended safe from a power cut, however it was asked.

        Raises:
            ReadOnlyError: The engine was opened read-only.
        """

    def vacuum(self, *, secure: bool = False, progress: Progress = no_progress) -> VacuumReport:
        """Give the space of what was deleted back to the file system (E11).

        Called inside no transaction of this thread.

        Args:
            secure: Leave nothing that was deleted before the call in any file of the store.
            progress: Called with keys done and keys there are, between transactions, in this
                thread and at times of the engine's choice, perhaps never. What it raises ends the
                vacuum and passes.

        Returns:
            Sizes before and after; all 0 for an engine without files.

        Raises:
            EngineError: Another vacuum of the store is running, or the engine failed.
            StoreFullError: No room for a second copy of what is stored.
            ReadOnlyError: The engine was opened read-only.
        """

    def backup(
        self,
        target: str | os.PathLike[str],
        *,
        instead: Mapping[bytes, bytes] | None = None,
        progress: Progress = no_progress,
    ) -> BackupReport:
        """Copy what one view shows into a new store of the same kind (E12).

        Called inside no transaction of this thread.

        Args:
            target: Absent, or an empty directory.
            instead: Pairs that the copy holds in the place of the store's own, or beside them.
            progress: Called with keys done and keys there are. It must not use the engine. What it
                raises ends the backup and passes.

        Raises:
            StorePathError: The target holds something, or cannot be made.
            StoreFullError: No room; nothing is left of the copy.
            CorruptionError: Damage hides keys.
            EngineError: The engine has no files, or failed.
        """

    def close(self) -> None:
        """Close; waits for running transactions. Closing twice is no error."""
