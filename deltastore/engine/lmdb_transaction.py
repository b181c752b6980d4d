"""One transaction of the LMDB engine.

Begins in the generation in use, whichever that is by then, and turns LMDB's errors into ours. A
write transaction heeds the state of `lmdb_journal`: while a vacuum runs, it stores which keys it
put or deleted; where one died, it removes some of what that one left behind.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from types import TracebackType
from typing import Final, TypeVar

import lmdb

from deltastore.engine import lmdb_generations as generations
from deltastore.engine import lmdb_journal as journal
from deltastore.engine.api import KEYS_END, EngineStat, Pair
from deltastore.engine.limits import check_key, check_keys, check_limit, check_pair
from deltastore.engine.lmdb_errors import convert
from deltastore.engine.lmdb_mapped import MappedGeneration
from deltastore.engine.lmdb_registry import Opening, registry
from deltastore.engine.lmdb_shared import SharedEnvironment
from deltastore.errors import (
    CorruptionError,
    DeltaStoreError,
    ForkedStoreError,
    RetryTransactionError,
    StoreFullError,
)

T = TypeVar("T")

_INLINE_BYTES_MAX: Final = 1_500  # up to here a value shares a page, whatever its key and the page


class LmdbTransaction:
    """One transaction of an `LmdbEngine`, see `deltastore.engine.api.Transaction`."""

    __slots__ = (
        "_failure",
        "_is_drain",
        "_long",
        "_opening",
        "_running",
        "_shared",
        "_ticket",
        "_touched",
        "_txn",
        "_write",
        "mapped",
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
        self._touched: set[bytes] | None = None  # keys for the journal; None: there is none to keep
        self._is_drain = False  # a dead vacuum's records are to be removed
        self.mapped: MappedGeneration | None = None

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
        self._txn, self._ticket, state = self._shared.begin(self, write=self._write)
        self._running = True
        if state is not None:
            if journal.is_active(state) and generations.is_vacuuming(opening.path):
                self._touched = set()
            else:
                self._is_drain = True
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
            shared.leave(self._ticket)
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
        assert self.mapped is not None
        try:
            if self._touched:
                journal.write(self._txn, self._touched)
            elif self._is_drain:
                journal.drain(self._txn)
            self._txn.commit()
        except lmdb.Error as error:
            if self._failure is None:
                self._fail(error, "commit")
            with suppress(lmdb.Error):
                self._txn.abort()
            return
        # A longer file is a convenience of the next opening; the commit stands without it.
        with suppress(lmdb.Error, OSError):
            self.mapped.fill_file()

    def _fail(self, error: lmdb.Error, what: str) -> DeltaStoreError:
        """Note the failure that ends this write transaction: LMDB takes nothing more in it."""
        if self._failure is None:
            if isinstance(error, lmdb.MapFullError):
                self._failure = RetryTransactionError(
                    f"{self._opening.path}: the map was full at {what}; run the transaction again"
                )
            elif error.code == errno.EIO and not self._has_room():
                # A write that ended halfway, which LMDB does not tell from a broken disk.
                self._failure = StoreFullError(
                    f"{self._opening.path}: no room for {what}; make room and try again"
                )
            else:
                self._failure = convert(error, self._opening.path, what)
            self._failure.__cause__ = error
        return self._failure

    def _has_room(self) -> bool:
        return self.mapped is None or self.mapped.has_room()

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

        `stop` is at most `KEYS_END`.

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
        stop = min(stop, KEYS_END)
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
        stop = min(stop, KEYS_END)
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
            if self._touched is not None:
                self._touched.add(key)
            if len(value) > _INLINE_BYTES_MAX:
                self._long.add(key)
        except lmdb.Error as error:
            raise self._fail(error, "put") from error

    def delete(self, key: bytes) -> bool:
        """Remove `key`; return whether it was there."""
        self._check_writing()
        check_key(key)
        try:
            if self._touched is not None:
                self._touched.add(key)
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

    def used_bytes(self) -> int:
        """Return the bytes of pages in use, see `deltastore.engine.api.Transaction.used_bytes`."""
        assert self.mapped is not None
        try:
            return self.mapped.get_used_bytes(self._txn)
        except lmdb.Error as error:
            raise self._convert(error, "stat") from error

    # For a vacuum

    def scan_some(self, start: bytes, records_max: int, bytes_max: int) -> list[Pair]:
        """Return the first pairs from `start` on, with at least one if there is any.

        Ends with the pair that reaches `bytes_max`.
        """
        found: list[Pair] = []
        size = 0
        try:
            with self._txn.cursor() as cursor:
                if not self._seek(cursor, start, KEYS_END, False):
                    return found
                for key, value in cursor.iternext():
                    if key >= KEYS_END:
                        break
                    if found and key <= found[-1][0]:
                        raise self._disorder(found[-1][0], key)
                    found.append((key, value))
                    size += len(value)
                    if len(found) == records_max or size >= bytes_max:
                        break
        except lmdb.Error as error:
            raise self._convert(error, "scan") from error
        return found

    def stat(self) -> EngineStat:
        """Return sizes, counted in this transaction's view."""
        assert self.mapped is not None
        try:
            return self.mapped.stat(self._txn)
        except (lmdb.Error, OSError) as error:
            raise convert(error, self._opening.path, "stat") from error

    def sync(self) -> None:
        """Make every commit of the environment it is in safe from a power cut."""
        assert self.mapped is not None
        try:
            self.mapped.env.sync(True)
        except lmdb.Error as error:
            raise convert(error, self._opening.path, "sync") from error

    def run_private(self, work: Callable[[lmdb.Transaction[bytes]], T]) -> T:
        """Run `work` on LMDB's own transaction, which does nothing for vacuums at its end then.

        Raises:
            EngineError: As `put` or `get`, for an `lmdb.Error` of `work`.
        """
        self._touched, self._is_drain = None, False
        try:
            return work(self._txn)
        except lmdb.Error as error:
            raise (self._fail if self._write else self._convert)(error, "vacuum") from error
