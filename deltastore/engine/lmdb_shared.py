"""The LMDB environment that the engines of one process share on one path.

It is opened at the first transaction, grown when its map is full, and opened anew after a failure
that may have left it unusable. Transactions hold its gate; growing, opening and closing take it
alone, since each of them would pull the map from under a running transaction.

A vacuum of any process leaves a *successor*. Whoever begins a transaction and finds that the
generation has one *moves*: maps the successor, where all later transactions run. Transactions in
the middle finish where they began, and the last of them closes what was left. Moving waits for
no transaction, so it holds the gate as any transaction does.

Never touched in a process that did not make it: callers compare process ids first.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

import lmdb

from deltastore.engine import lmdb_events as events
from deltastore.engine import lmdb_files as files
from deltastore.engine import lmdb_generations as generations
from deltastore.engine import lmdb_journal as journal
from deltastore.engine.api import EngineStat
from deltastore.engine.gate import Gate
from deltastore.engine.limits import file_bytes_max
from deltastore.engine.lmdb_errors import convert, file_full
from deltastore.engine.lmdb_mapped import NOBODY, Holder, MappedGeneration, attach
from deltastore.errors import DeltaStoreError, StoreFullError
from deltastore.options import EngineDurability

MAP_BYTES: Final = 1 << 40 if sys.maxsize > 1 << 32 else 1 << 30  # address space only, never disk
NEW_MAP_BYTES: Final = 1 << 20
_MAP_BYTES_LEAST: Final = 1 << 30
_READERS_MAX: Final = 1_024


class SharedEnvironment:
    """The environment of one path in one process; opened at first use, reopened after a failure."""

    def __init__(
        self,
        path: Path,
        *,
        durability: EngineDurability,
        read_only: bool,
        verify_bytes_max: int,
        map_bytes: int,
        max_bytes: int | None = None,
    ) -> None:
        self.path = path
        self.durability = durability
        self.read_only = read_only
        self.pid = os.getpid()
        self.gate: Gate[Holder] = Gate()
        self.references = 0
        self.was_mapped = False
        self.map_bytes = map_bytes
        self.max_bytes = max_bytes
        self._limit_bytes = 0  # of the map; 0 for none
        self._verify_bytes_max = verify_bytes_max
        self._env: MappedGeneration | None = None
        self._lock: int | None = None
        self._vacuum_lock: int | None = None
        # Held inside the gate to change what is in use; nobody who has it waits for the gate.
        self._moving = threading.Condition(threading.Lock())
        self._left: list[MappedGeneration] = []  # superseded, with transactions still in them

    # Transactions

    def begin(
        self, holder: Holder, *, write: bool
    ) -> tuple[lmdb.Transaction[bytes], int, bytes | None]:
        """Begin a transaction inside the gate, in the generation in use.

        Opens the environment if it is not, follows a map that another process has grown and a
        generation that another process made, and drops reader slots of dead processes once if
        none is free.

        Returns:
            The transaction, the ticket to leave with, and the state of `lmdb_journal` if a write
            transaction has to heed it, else None.
        """
        tried: set[type[lmdb.Error]] = set()
        while True:
            ticket = self.gate.enter(holder)
            txn = problem = None
            try:
                holder.check()
                holder.mapped = mapped = self._env
                if mapped is not None:
                    txn = mapped.begin(write=write)
                    state = txn.get(journal.STATE)
                    if state is None:
                        return txn, ticket, None
                    successor = journal.get_successor(state)
                    if not successor:
                        return txn, ticket, state if write else None
                    txn.abort()
                    txn = None
                    self._move(mapped, successor)
            except lmdb.Error as error:
                if txn is not None:
                    txn.abort()
                problem = error
            except BaseException:
                self.leave(ticket)
                raise
            self.leave(ticket)
            if problem is not None:
                self._mend(problem, tried)
            elif mapped is None:
                self._open_if_closed()

    def leave(self, ticket: int) -> None:
        """Leave the gate; close what nobody uses any more."""
        self.gate.leave(ticket)
        if self._left:
            self._close_left()

    def _mend(self, problem: lmdb.Error, tried: set[type[lmdb.Error]]) -> None:
        """Do what makes a beginning succeed that failed, each but following a map once."""
        if isinstance(problem, lmdb.MapResizedError):
            self._follow_map()
            return
        if type(problem) in tried:
            raise convert(problem, self.path, "begin") from problem
        tried.add(type(problem))
        if isinstance(problem, lmdb.ReadersFullError):
            with self.gate.alone():
                if self._env is not None:
                    events.cleared(self.path, self._env.env.reader_check())
        elif isinstance(problem, lmdb.PanicError):
            with self.gate.alone():  # a meta page could not be written; opening reads them afresh
                self.close_env()
        else:
            raise convert(problem, self.path, "begin") from problem

    def _follow_map(self) -> None:
        with self.gate.alone():
            if self._env is not None:
                try:
                    self._limit_map(self._env.get_file_bytes())
                    self._env.env.set_mapsize(self._limit_bytes)
                except lmdb.Error:
                    self.close_env()  # opening finds a size that the address space allows

    def _limit_map(self, file_bytes: int) -> None:
        """Bound the map of a data file of a length, if the store has a bound."""
        if self.max_bytes is not None:
            self._limit_bytes = file_bytes_max(self.max_bytes, file_bytes)
            self.map_bytes = min(self.map_bytes, self._limit_bytes)

    def get_map_bytes(self) -> int:
        """Return the size of the map; called inside the gate."""
        return 0 if self._env is None else self._env.get_map_bytes()

    def grow(self, full_bytes: int) -> None:
        """Double the map if it still has the size at which it was found full.

        Raises:
            StoreFullError: The address space does not allow it.
            QuotaExceededError: The bound of the store does not.
        """
        grown_bytes = min(2 * full_bytes, self._limit_bytes or 2 * full_bytes)
        if self.max_bytes is not None and grown_bytes <= full_bytes:
            raise file_full(self.path, full_bytes, self.max_bytes)
        with self.gate.alone():
            if self._env is None or self.get_map_bytes() != full_bytes:
                return
            try:
                self._env.env.set_mapsize(grown_bytes)
            except (lmdb.Error, OverflowError) as error:
                self.close_env()  # a failed growth leaves it unmapped
                self.map_bytes = full_bytes
                raise StoreFullError(
                    f"{self.path}: the map of {full_bytes} bytes is full and cannot be doubled "
                    f"({error}); raise the limit on address space (ulimit -v), or delete data"
                ) from error
            self.map_bytes = grown_bytes
        events.grown(self.path, grown_bytes)

    # Generations

    def _move(self, old: MappedGeneration, successor: int) -> None:
        """Use the successor of a generation from now on; called inside the gate."""
        with self._moving:
            if self._env is not old:
                return  # another thread was faster
            try:
                if not self.read_only:
                    with old.begin(write=True) as txn:
                        generations.name_successor(self.path, old.number, successor)
                        txn.abort()
                    # Before anything is acknowledged in it: whoever named it may be about to sync.
                    files.sync_directory(self.path)
                fresh = self._map_generation(alone=False, least=successor)
            except OSError as error:
                raise convert(error, self.path, "opening a new generation") from error
            self._left.append(old)
            self._env = fresh
        events.moved(self.path, old.number, fresh.number)

    def _close_left(self) -> None:
        """Close generations that no transaction of this process uses any more."""
        with self._moving:
            used = {holder.mapped for holder in self.gate.get_holders()}
            if None in used:
                return  # it may be about to use any of them; it comes here when it leaves
            for old in [old for old in self._left if old not in used]:
                self._left.remove(old)
                old.close()
            self._moving.notify_all()
            if self._vacuum_lock is None:  # else whoever has it does that at its end
                self._remove_superseded()

    def wait_left(self, seconds: float) -> None:
        """Wait until no transaction of this process runs in a superseded generation."""
        with self._moving:
            self._moving.wait_for(lambda: not self._left, seconds)

    def _remove_superseded(self) -> None:
        """Remove generations that nobody uses; what cannot be removed now stays for another day."""
        if not self.read_only:
            with suppress(OSError, DeltaStoreError):
                generations.remove_superseded(self.path)

    def take_vacuum_lock(self) -> None:
        """Take the lock of the store's one vacuum, see `lmdb_generations`."""
        self._vacuum_lock = generations.take_vacuum_lock(self.path)

    def drop_vacuum_lock(self) -> None:
        """Remove superseded generations and drop the lock."""
        lock, self._vacuum_lock = self._vacuum_lock, None
        self._remove_superseded()  # from here on, whoever closes one later does this as well
        if lock is not None:
            os.close(lock)

    # Sizes

    def get_version(self) -> int | None:
        """Return the version of the generation in use, None if none is open; never waits."""
        if self.gate.is_inside():
            return None if self._env is None else self._env.get_version()
        ticket = self.gate.try_enter(NOBODY)
        if ticket is None:
            return None
        try:
            return None if self._env is None else self._env.get_version()
        finally:
            self.gate.leave(ticket)  # and close nothing here: that takes time

    def stat(self) -> EngineStat:
        """Return sizes; called inside a transaction of this thread."""
        assert self._env is not None
        with self._env.env.begin() as txn:
            return self._env.stat(txn)

    # Opening and closing

    def _open_if_closed(self) -> None:
        with self.gate.alone():
            if self._env is None:
                try:
                    self._open()
                except (lmdb.Error, OSError) as error:
                    self.close_env()
                    raise convert(error, self.path, "opening") from error
                except BaseException:
                    self.close_env()
                    raise

    def _open(self) -> None:
        if not self.read_only:
            files.make_directories(self.path)
        self._lock, alone = files.take_lock(self.path, read_only=self.read_only)
        while files.read_current(self.path) is None and not self.read_only:
            if alone:
                files.create(self.path, lambda at: self.map(at, NEW_MAP_BYTES))
            else:  # whoever was creating it died, or has just finished
                self._drop_lock()
                self._lock, alone = files.take_lock(self.path, read_only=False)
        self._env = self._map_generation(alone=alone, least=0)
        self._remove_superseded()
        if not self.read_only and generations.has_unfinished(self.path, self._env.number):
            self._remove_unfinished(self._env)

    def _map_generation(self, *, alone: bool, least: int) -> MappedGeneration:
        """Lock, check and map the generation in use, or the one numbered `least` if later."""
        number, descriptor = generations.hold(self.path, least=least, read_only=self.read_only)
        try:
            directory = files.get_directory(self.path, number)
            if alone:
                files.check_data_file(
                    directory / files.DATA,
                    verify_bytes_max=self._verify_bytes_max,
                    read_only=self.read_only,
                )
            else:
                files.measure_claim(directory / files.DATA)
            self.was_mapped = True
            self._limit_map(os.fstat(descriptor).st_size)
            env = attach(directory, lambda: self.map(directory, self.map_bytes))
            try:
                if self._lock is not None:
                    files.share_lock(self._lock)  # not earlier: see `attach`
                events.cleared(self.path, env.reader_check())
                mapped = MappedGeneration(env, directory, descriptor)
                events.opened(self.path, mapped, self.durability)
                return mapped
            except BaseException:
                env.close()
                raise
        except BaseException:
            os.close(descriptor)
            raise

    def _remove_unfinished(self, mapped: MappedGeneration) -> None:
        """Remove what a killed vacuum left behind; nothing if one runs, or it was nearly through.

        A successor that is named is no leaving: the first transaction moves there.
        """
        with suppress(OSError, lmdb.Error, DeltaStoreError):
            self.take_vacuum_lock()
            try:
                with mapped.begin(write=False) as txn:
                    state = txn.get(journal.STATE)
                if not journal.get_successor(state):
                    generations.remove_unfinished(self.path, mapped.number)
            finally:
                self.drop_vacuum_lock()

    def map(self, directory: Path, map_bytes: int, *, sync: bool = True) -> lmdb.Environment:
        """Open an environment, with a smaller map where the address space is limited.

        Without `sync`, commits are not on disk before it is asked for.
        """
        while True:
            try:
                return lmdb.Environment(
                    str(directory),
                    map_size=map_bytes,
                    readonly=self.read_only,
                    sync=sync,
                    metasync=self.durability == "full",
                    mode=0o600,
                    create=False,
                    max_readers=_READERS_MAX,
                    lib_version=0,
                )
            except lmdb.MemoryError:
                map_bytes //= 2
                if map_bytes < _MAP_BYTES_LEAST:
                    raise

    def close_env(self) -> None:
        """Close the environment, if it is open; the gate must be held alone."""
        env, self._env = self._env, None
        left, self._left = self._left, []
        for mapped in (*left, env):
            if mapped is not None:
                mapped.close()
        self.was_mapped = False
        if env is not None:
            self._remove_superseded()
        self._drop_lock()

    def _drop_lock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def is_replaced(self) -> bool:
        """Return whether other files are at the path now than those that are open."""
        return self._env is not None and self._env.is_replaced()

    def abandon(self) -> None:
        """Let go of what a child inherited, without touching the environment itself.

        Descriptors that hold locks are closed, since they would keep them after the parent's death.
        """
        for holder in self.gate.get_holders():
            holder.abandon()
        for mapped in (*self._left, self._env):
            if mapped is not None:
                mapped.abandon()
        lock, self._vacuum_lock = self._vacuum_lock, None
        if lock is not None:
            os.close(lock)
        self._drop_lock()
