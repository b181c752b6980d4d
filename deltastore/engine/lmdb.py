"""The embedded engine: an LMDB environment in a directory, shared by threads and processes.

Obligations E1 to E13 of `deltastore.engine.api` hold over a killed process; over a crash of the
operating system too with durability "full". Writes of all processes run one after the other.

POSIX only (fcntl, flock), on a local disk. Knows nothing of records: damage inside a value is for
the log to find; the structure of the file is checked before it is mapped (`lmdb_files`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import lmdb

from deltastore.engine import lmdb_files as files
from deltastore.engine import lmdb_paths as paths
from deltastore.engine.api import EngineStat
from deltastore.engine.limits import KEY_BYTES_MAX
from deltastore.engine.lmdb_backup import backup
from deltastore.engine.lmdb_errors import convert
from deltastore.engine.lmdb_partial import check_target
from deltastore.engine.lmdb_registry import Opening, registry
from deltastore.engine.lmdb_shared import MAP_BYTES
from deltastore.engine.lmdb_transaction import LmdbTransaction
from deltastore.engine.lmdb_vacuum import Vacuum
from deltastore.errors import InvalidArgumentError, ReadOnlyError
from deltastore.options import ENGINE_DURABILITIES, EngineDurability
from deltastore.plans import BackupReport, Progress, VacuumReport, no_progress


class LmdbEngine:
    """An engine on a directory; made now, opened at the first transaction or `stat`.

    Engines of one process on one real path share an environment. A read-only one shares whatever is
    open; one that writes needs the durability of the one that is open, and not a read-only one.

    Args:
        path: A directory that holds a store, is empty (dot-files do not count) or absent; it is
            created with its parents at first use.
        durability: "full": a transaction that has ended is on disk. "normal": the same for a killed
            process; after a crash of the operating system the last commit may be undone.
        read_only: Begin no write transaction; beside a live writer, `lock.mdb` must be writable.
        verify_bytes_max: Walk the structure of a data file of up to this size before mapping it, if
            no other process has it open; about 20 ms per MB.
        max_bytes: The data file gets no longer than `limits.file_bytes_max` of this by transactions
            of this process; one that needs more raises `QuotaExceededError`. What is beyond
            `max_bytes` is for deletions: whoever stores looks at `used_bytes`.

    Raises:
        StorePathError: The path cannot hold a store, or `read_only` and there is none.
        InvalidArgumentError: `durability` is unknown.

    Warns:
        UserWarning: The path is on a network file system.

    The first use raises `CorruptionError` on a damaged store, and `StorePathError` if the path is
    open in this process in another way.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: EngineDurability = "full",
        read_only: bool = False,
        verify_bytes_max: int = 16 << 20,
        max_bytes: int | None = None,
        _map_size: int = MAP_BYTES,
    ) -> None:
        if durability not in ENGINE_DURABILITIES:
            raise InvalidArgumentError(
                f"durability must be one of {', '.join(ENGINE_DURABILITIES)} (got {durability!r})"
            )
        real = paths.check_path(path, read_only=read_only)
        files.warn_network(real, stacklevel=2)
        self._opening = Opening(real, durability, read_only, verify_bytes_max, _map_size, max_bytes)

    @property
    def key_bytes_max(self) -> int:
        """Longest key, in bytes: 511."""
        return KEY_BYTES_MAX

    def begin(
        self,
        *,
        write: bool,
        scope: bytes = b"",  # noqa: ARG002 - LMDB has one writer
    ) -> LmdbTransaction:
        """Begin a transaction, see `deltastore.engine.api.Engine.begin`; `scope` is not used.

        Raises:
            ReadOnlyError: A write transaction of a read-only engine.
            RetryTransactionError: From inside the block or at its end: the map was full. It had no
                effect, there is room now, and it may be run again.
            StoreFullError: As before, but no room could be made.
        """
        self._opening.check()
        if write:
            self._check_writable()
        return LmdbTransaction(self._opening, write)

    def _check_writable(self) -> None:
        if self._opening.read_only:
            raise ReadOnlyError(
                f"{self._opening.path} was opened with read_only=True; open it without to write"
            )

    def version(self) -> int | None:
        """Return the generation and its last commit by any process, as one ascending number.

        None before the first use, and from the end of a vacuum to the next transaction.
        """
        opening = self._opening
        opening.check()
        return None if opening.shared is None else opening.shared.get_version()

    def check(self) -> None:
        """Raise `StoreClosedError` or `ForkedStoreError` if no transaction could begin; no I/O."""
        self._opening.check()

    def stat(self) -> EngineStat:
        """Return sizes; `free_bytes` counts the few pages of LMDB's own free list as free."""
        opening = self._opening
        opening.check()
        shared = opening.shared or registry.attach(opening)
        try:
            if shared.gate.is_inside():
                return shared.stat()
            with LmdbTransaction(opening, False) as transaction:
                return transaction.stat()
        except (lmdb.Error, OSError) as error:
            raise convert(error, opening.path, "stat") from error

    def sync(self) -> None:
        """Make every transaction that has ended safe from a power cut.

        Raises:
            ReadOnlyError: The engine was opened read-only.
        """
        self._opening.check()
        self._check_writable()
        if self._opening.durability == "full":
            return  # each was when it ended
        with LmdbTransaction(self._opening, False) as transaction:
            transaction.sync()

    def vacuum(self, *, secure: bool = False, progress: Progress = no_progress) -> VacuumReport:
        """Write all pairs in key order into a new file, and use that from then on.

        See `deltastore.engine.api.Engine.vacuum` and docs/engines.md. Transactions of any process
        go on meanwhile; none waits for more than 1,000 records. The old file goes when no process
        uses it any more: at the end of this call, or when the last that does begins its next
        transaction or closes.

        Args:
            secure: Also overwrite the old file with zeros before it is removed. No program can
                promise what that does on flash or on file systems that copy on write.
            progress: Called at least once in 1,000 keys or 8 MiB of values.

        Raises:
            ReadOnlyError: The engine was opened read-only.
            EngineError: Another vacuum is running on the store.
            StoreFullError: No room for a second copy; the store is as it was.
            CorruptionError: Keys are out of order, or not all of them are reached.

        Warns:
            UserWarning: With `secure`, the old file is still in use; it is overwritten later.
        """
        self._opening.check()
        self._check_writable()
        return Vacuum(self._opening, progress, secure).run()

    def backup(
        self,
        target: str | os.PathLike[str],
        *,
        instead: Mapping[bytes, bytes] | None = None,
        progress: Progress = no_progress,
    ) -> BackupReport:
        """Write all pairs of one view into a new store; see `deltastore.engine.api.Engine.backup`.

        Pages that the view shows are kept while it runs: beside many writes the file grows.

        Raises:
            StorePathError: The target is not absent or an empty directory, or cannot be made.
            StoreFullError: No room for the copy; nothing is left of it.
            CorruptionError: Keys are out of order, or not all of them are reached.
            EngineError: A backup to the same place is running.
        """
        self._opening.check()
        real = check_target(target, self._opening.path)
        return backup(self._opening, real, instead or {}, progress)

    def close(self) -> None:
        """Close; waits for the transactions running on the path. Closing twice is no error."""
        registry.detach(self._opening)
