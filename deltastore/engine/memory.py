"""The engine of the oracle: a sorted list of keys and a dict, for tests and short-lived stores.

A *state* is what one commit left behind. Readers pin the state of their beginning; a commit changes
the state in place unless it is pinned, and a copy of it otherwise. A write transaction keeps its
puts and deletes aside until it ends, so undoing it is forgetting them.

Holds everything in memory, writes no file, and is the simplest thing that meets E1 to E13 of
`deltastore.engine.api`.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from types import TracebackType

from deltastore.engine.api import EngineStat, Pair
from deltastore.engine.gate import Gate
from deltastore.engine.limits import (
    KEY_BYTES_MAX,
    check_key,
    check_keys,
    check_limit,
    check_pair,
)
from deltastore.errors import EngineError, ForkedStoreError, StoreClosedError
from deltastore.plans import BackupReport, Progress, VacuumReport, no_progress


class _State:
    """Keys in order, their values, their bytes, and how many transactions read them."""

    __slots__ = ("keys", "pins", "size", "values")

    def __init__(self, keys: list[bytes], values: dict[bytes, bytes], size: int) -> None:
        self.keys = keys
        self.values = values
        self.size = size
        self.pins = 0


def _walk(keys: list[bytes], start: bytes, stop: bytes, reverse: bool) -> Iterator[bytes]:
    span = range(bisect_left(keys, start), bisect_left(keys, stop))
    return (keys[i] for i in (reversed(span) if reverse else span))


class MemoryEngine:
    """An engine without files; what it holds is gone with it.

    Cost: a get is one dict look-up; a commit shifts a list for each new key, and copies everything
    if a reader is running meanwhile.
    """

    def __init__(self) -> None:
        self._gate: Gate[MemoryTransaction] = Gate()
        self._writer = threading.Lock()
        self._mutex = threading.Lock()
        self._state = _State([], {}, 0)
        self._commits = 0
        self._closed = False
        self._pid = os.getpid()

    @property
    def key_bytes_max(self) -> int:
        """Longest key, in bytes: that of LMDB, so that a test here finds what would fail there."""
        return KEY_BYTES_MAX

    def begin(
        self,
        *,
        write: bool,
        scope: bytes = b"",  # noqa: ARG002 - one writer at a time is enough here
    ) -> MemoryTransaction:
        """Begin a transaction, see `deltastore.engine.api.Engine.begin`."""
        self.check()
        return MemoryTransaction(self, write)

    def version(self) -> int:
        """Return the number of commits."""
        self.check()
        return self._commits

    def check(self) -> None:
        """Raise `StoreClosedError` or `ForkedStoreError` if no transaction could begin."""
        if os.getpid() != self._pid:
            raise ForkedStoreError(
                "memory store carried through fork(): parent and child would each see half of what "
                "is written; make it in the child"
            )
        if self._closed:
            raise StoreClosedError("memory store is closed; make a new one")

    def stat(self) -> EngineStat:
        """Return the number of keys; there is no file."""
        self.check()
        return EngineStat(entries=len(self._state.keys), file_bytes=0, free_bytes=0)

    def sync(self) -> None:
        """Do nothing: there is no file."""
        self.check()

    def vacuum(
        self,
        *,
        secure: bool = False,  # noqa: ARG002 - what is deleted is in no file
        progress: Progress = no_progress,  # noqa: ARG002 - there is nothing to wait for
    ) -> VacuumReport:
        """Do nothing: there is no file. See `deltastore.engine.api.Engine.vacuum`."""
        self.check()
        return VacuumReport(generation=0, bytes_before=0, bytes_after=0, free_bytes_before=0)

    def backup(
        self,
        target: str | os.PathLike[str],
        *,
        instead: Mapping[bytes, bytes] | None = None,  # noqa: ARG002 - there is nothing to copy to
        progress: Progress = no_progress,  # noqa: ARG002 - it refuses at once
    ) -> BackupReport:
        """Refuse: there is no file. See `deltastore.engine.api.Engine.backup`."""
        self.check()
        raise EngineError(f"a memory store has no files, so it cannot be copied to {target!s}")

    def close(self) -> None:
        """Close and forget everything; waits for running transactions."""
        if self._closed or os.getpid() != self._pid:
            self._closed = True
            return
        if self._gate.is_inside():
            raise AssertionError("an engine was closed inside a transaction of the same thread")
        self._closed = True
        with self._gate.alone():
            self._state = _State([], {}, 0)


class MemoryTransaction:
    """One transaction of a `MemoryEngine`."""

    def __init__(self, engine: MemoryEngine, write: bool) -> None:
        self._engine = engine
        self._write = write
        self._ticket = 0
        self._running = False
        self._state = engine._state
        self._own: dict[bytes, bytes | None] = {}  # None: deleted
        self._own_keys: list[bytes] = []
        self._growth = 0

    def __enter__(self) -> MemoryTransaction:
        engine = self._engine
        self._ticket = engine._gate.enter(self)
        try:
            engine.check()
            if self._write:
                engine._writer.acquire()
        except BaseException:
            engine._gate.leave(self._ticket)
            raise
        with engine._mutex:
            self._state = engine._state
            self._state.pins += 1
        self._running = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        engine = self._engine
        if os.getpid() != engine._pid:
            if error is None:
                engine.check()
            return
        self._running = False
        with engine._mutex:
            self._state.pins -= 1
            if error is None and self._own:
                self._commit()
        if self._write:
            engine._writer.release()
        engine._gate.leave(self._ticket)

    def _commit(self) -> None:
        engine, state = self._engine, self._state
        if state.pins:
            state = _State(state.keys.copy(), state.values.copy(), state.size)
        keys, values = state.keys, state.values
        for key, value in self._own.items():
            if value is not None:
                if key not in values:
                    insort(keys, key)
                values[key] = value
            elif values.pop(key, None) is not None:
                del keys[bisect_left(keys, key)]
        state.size += self._growth
        engine._state = state
        engine._commits += 1

    def _check_running(self) -> None:
        if not self._running:
            raise AssertionError("a transaction was used outside its block")

    def _check_writing(self) -> None:
        self._check_running()
        if not self._write:
            raise AssertionError("a read transaction was asked to write")

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None."""
        self._check_running()
        check_key(key)
        if key in self._own:
            return self._own[key]
        return self._state.values.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of `keys`, in their order, None for each that is absent."""
        check_keys(keys)
        return [self.get(key) for key in keys]

    def scan(
        self, start: bytes, stop: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[Pair]:
        """Return pairs with `start <= key < stop`, see `deltastore.engine.api.Transaction.scan`."""
        pairs = []
        for key in self.scan_keys(start, stop, reverse=reverse, limit=limit):
            value = self._own.get(key)
            pairs.append((key, self._state.values[key] if value is None else value))
        return pairs

    def scan_keys(
        self, start: bytes, stop: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[bytes]:
        """As `scan`, keys only."""
        self._check_running()
        check_limit(limit)
        own = self._own
        stored = _walk(self._state.keys, start, stop, reverse)
        added = _walk(self._own_keys, start, stop, reverse)
        found: list[bytes] = []
        if limit == 0:
            return found
        previous = None
        for key in merge(stored, added, reverse=reverse):
            if key != previous and own.get(key, b"") is not None:
                found.append(key)
                if len(found) == limit:
                    break
            previous = key
        return found

    def put(self, key: bytes, value: bytes) -> None:
        """Store `value` under `key`, replacing what is there."""
        self._check_writing()
        check_pair(key, value)
        self._set(bytes(key), bytes(value))

    def delete(self, key: bytes) -> bool:
        """Remove `key`; return whether it was there."""
        self._check_writing()
        if self.get(key) is None:
            return False
        self._set(bytes(key), None)
        return True

    def delete_range(self, start: bytes, stop: bytes, *, limit: int) -> int:
        """Remove up to `limit` pairs with `start <= key < stop`, lowest first; return how many."""
        self._check_writing()
        keys = self.scan_keys(start, stop, limit=limit)
        for key in keys:
            self._set(key, None)
        return len(keys)

    def used_bytes(self) -> int:
        """Return the bytes of all keys and values, own puts and deletes included."""
        self._check_running()
        return self._state.size + self._growth

    def _set(self, key: bytes, value: bytes | None) -> None:
        if key not in self._own:
            insort(self._own_keys, key)
            old = self._state.values.get(key)
        else:
            old = self._own[key]
        self._growth -= 0 if old is None else len(key) + len(old)
        self._growth += 0 if value is None else len(key) + len(value)
        self._own[key] = value
