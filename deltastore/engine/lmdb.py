"""The embedded engine: an LMDB environment in a directory, shared by threads and processes.

Obligations E1 to E10 of `deltastore.engine.api` hold over a killed process; over a crash of the
operating system too with durability "full". Writes of all processes run one after the other.

POSIX only (fcntl, flock), on a local disk. Knows nothing of records: damage inside a value is for
the log to find; the structure of the file is checked before it is mapped (`lmdb_files`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from types import TracebackType
from typing import Final

import lmdb

from deltastore.engine import lmdb_files as files
from deltastore.engine.api import EngineStat, Pair
from deltastore.engine.limits import (
    KEY_BYTES_MAX,
    check_key,
    check_keys,
    check_limit,
    check_pair,
)
from deltastore.engine.lmdb_errors import convert
from deltastore.engine.lmdb_registry import Opening, registry
from deltastore.engine.lmdb_shared import MAP_BYTES, SharedEnvironment
from deltastore.errors import (
    CorruptionError,
    DeltaStoreError,
    ForkedStoreError,
    InvalidArgumentError,
    ReadOnlyError,
    RetryTransactionError,
    StoreFullError,
)
from deltastore.options import DURABILITIES, Durability

_INLINE_BYTES_MAX: Final = 1_500  # up to here a value shares a page, whatever its key and the page


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
        durability: Durability = "full",
        read_only: bool = False,
        verify_bytes_max: int = 16 << 20,
        _map_size: int = MAP_BYTES,
    ) -> None:
        if durability not in DURABILITIES:
            raise InvalidArgumentError(
                f"durability must be one of {', '.join(DURABILITIES)} (got {durability!r})"
            )
        real = files.check_path(path, read_only=read_only)
        files.warn_network(real, stacklevel=2)
        self._opening = Opening(real, durability, read_only, verify_bytes_max, _map_size)

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
        if write and self._opening.read_only:
            raise ReadOnlyError(
                f"{self._opening.path} was opened with read_only=True; open it without to write"
            )
        return LmdbTransaction(self._opening, write)

    def version(self) -> int | None:
        """Return the id of the last commit by any process, None before the first use."""
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
            return shared.stat(LmdbTransaction(opening, False))
        except (lmdb.Error, OSError) as error:
            raise convert(error, opening.path, "stat") from error

    def close(self) -> None:
        """Close; waits for the transactions running on the path. Closing twice is no error."""
        registry.detach(self._opening)


class LmdbTransaction:
    """One transaction of an `LmdbEngine`, see `deltastore.engine.api.Transaction`."""

    __slots__ = (
        "_failure",
        "_long",
        "_opening",
        "_running",
        "_shared",
        "_ticket",
        "_txn",
        "_write",
    )

    _shared: SharedEnvironment
    _txn: lmdb.Transaction[bytes]
    _ticket: int

    def __init__(self, opening: Opening, write: bool) -> None:
        self._opening = opening
        self._write = write
        self._running = False
        self._failure: DeltaStoreError | None = None
        self._long: set[bytes] = set()  # keys put here whose values are on pages of their own

    def check(self) -> None:
        """Raise if the engine was closed while this transaction waited to begin."""
        self._opening.check()

    def abandon(self) -> None:
        """Refuse all further writes: this process was forked while the transaction ran."""
        self._failure = ForkedStoreError(
            f"{self._opening.path}: the process forked inside a transaction, which belongs to the "
            "parent; begin no transaction around a fork"
        )

    def __enter__(self) -> LmdbTransaction:
        opening = self._opening  # checked by `begin` just now, and once more inside the gate
        self._shared = opening.shared or registry.attach(opening)
        self._txn, self._ticket = self._shared.begin(self, write=self._write)
        self._running = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shared = self._shared
        if os.getpid() != shared.pid:
            if error is None:
                self.check()
            return
        full_bytes = 0
        try:
            if error is None and self._failure is None and self._write:
                self._commit()
            else:
                self._txn.abort()
            if isinstance(self._failure, RetryTransactionError):
                full_bytes = shared.get_map_bytes()
        finally:
            self._running = False
            shared.gate.leave(self._ticket)
        failure = self._failure
        if failure is None:
            return
        if full_bytes:
            try:
                shared.grow(full_bytes)
            except StoreFullError:
                if error is None or error is failure:
                    raise
        if error is None:
            raise failure

    def _commit(self) -> None:
        try:
            self._txn.commit()
        except lmdb.Error as error:
            self._fail(error, "commit")
            return
        # A longer file is a convenience of the next opening; the commit stands without it.
        with suppress(lmdb.Error, OSError):
            self._shared.fill_file()

    def _fail(self, error: lmdb.Error, what: str) -> DeltaStoreError:
        """Note the failure that ends this write transaction: LMDB takes nothing more in it."""
        if self._failure is None:
            if isinstance(error, lmdb.MapFullError):
                self._failure = RetryTransactionError(
                    f"{self._opening.path}: the map was full at {what}; run the transaction again"
                )
            elif error.code == errno.EIO and not self._shared.has_room():
                # A write that ended halfway, which LMDB does not tell from a broken disk.
                self._failure = StoreFullError(
                    f"{self._opening.path}: no room for {what}; make room and try again"
                )
            else:
                self._failure = convert(error, self._opening.path, what)
            self._failure.__cause__ = error
        return self._failure

    def _convert(self, error: lmdb.Error, what: str) -> Exception:
        if not self._running:
            return AssertionError("a transaction was used outside its block")
        return self._failure or convert(error, self._opening.path, what)

    def _check_writing(self) -> None:
        if not self._running:
            raise AssertionError("a transaction was used outside its block")
        if not self._write:
            raise AssertionError("a read transaction was asked to write")
        if self._failure is not None:
            raise self._failure

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None."""
        check_key(key)
        try:
            return self._txn.get(key)
        except lmdb.Error as error:
            raise self._convert(error, "get") from error

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of `keys`, in their order, None for each that is absent."""
        check_keys(keys)
        try:
            return list(map(self._txn.get, keys))
        except lmdb.Error as error:
            raise self._convert(error, "get") from error

    def _seek(self, cursor: lmdb.Cursor[bytes], start: bytes, stop: bytes, reverse: bool) -> bool:
        """Move to where a scan begins; both sides of the place must be in order.

        A damaged key in a branch page sends searches to the wrong leaf, past keys that are there.
        """
        edge = stop if reverse else start
        is_above = cursor.set_range(edge)
        if is_above and cursor.key() < edge:
            raise self._disorder(edge, cursor.key())
        is_below = cursor.prev() if is_above else cursor.last()
        if is_below and cursor.key() >= edge:
            raise self._disorder(cursor.key(), edge)
        if reverse:
            return is_below
        if not is_above:
            return False
        return cursor.next() if is_below else cursor.first()

    def scan(
        self, start: bytes, stop: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[Pair]:
        """Return pairs with `start <= key < stop`, see `deltastore.engine.api.Transaction.scan`."""
        check_limit(limit)
        found: list[Pair] = []
        try:
            with self._txn.cursor() as cursor:
                if start >= stop or not self._seek(cursor, start, stop, reverse):
                    return found
                pairs = cursor.iterprev() if reverse else cursor.iternext()
                previous = None
                for pair in islice(pairs, limit):
                    key = pair[0]
                    if key < start if reverse else key >= stop:
                        break
                    if previous is not None and (key >= previous if reverse else key <= previous):
                        raise self._disorder(previous, key)
                    previous = key
                    found.append(pair)
        except lmdb.Error as error:
            raise self._convert(error, "scan") from error
        return found

    def scan_keys(
        self, start: bytes, stop: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[bytes]:
        """As `scan`, keys only; reads no value."""
        check_limit(limit)
        found: list[bytes] = []
        try:
            with self._txn.cursor() as cursor:
                if start >= stop or not self._seek(cursor, start, stop, reverse):
                    return found
                keys = cursor.iterprev(values=False) if reverse else cursor.iternext(values=False)
                previous = None
                for key in islice(keys, limit):
                    if key < start if reverse else key >= stop:
                        break
                    if previous is not None and (key >= previous if reverse else key <= previous):
                        raise self._disorder(previous, key)
                    previous = key
                    found.append(key)
        except lmdb.Error as error:
            raise self._convert(error, "scan") from error
        return found

    def _disorder(self, previous: bytes, key: bytes) -> CorruptionError:
        return CorruptionError(
            f"{self._opening.path}: keys out of order, {key.hex()} follows {previous.hex()}; "
            "a page is damaged or misplaced: restore from a backup",
            record=key.hex(),
        )

    def put(self, key: bytes, value: bytes) -> None:
        """Store `value` under `key`, replacing what is there."""
        self._check_writing()
        check_pair(key, value)
        try:
            if self._long and key in self._long:
                # Put over a longer value of the same transaction, LMDB keeps the longer one's pages
                # and counts them; the structural check would take such a file for damaged.
                self._txn.delete(key)
            self._txn.put(key, value)
            if len(value) > _INLINE_BYTES_MAX:
                self._long.add(key)
        except lmdb.Error as error:
            raise self._fail(error, "put") from error

    def delete(self, key: bytes) -> bool:
        """Remove `key`; return whether it was there."""
        self._check_writing()
        check_key(key)
        try:
            return self._txn.delete(key)
        except lmdb.Error as error:
            raise self._fail(error, "delete") from error

    def delete_range(self, start: bytes, stop: bytes, *, limit: int) -> int:
        """Remove up to `limit` pairs with `start <= key < stop`, lowest first; return how many."""
        self._check_writing()
        keys = self.scan_keys(start, stop, limit=limit)
        for key in keys:
            self.delete(key)
        return len(keys)
