"""The LMDB environment that the engines of one process share on one path.

It is opened at the first transaction, grown when its map is full, and opened anew after a failure
that may have left it unusable. Transactions hold its gate; growing, opening and closing take it
alone, since each of them would pull the map from under a running transaction.

Never touched in a process that did not make it: callers compare process ids first.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Final, Protocol

import lmdb

from deltastore.engine import lmdb_files as files
from deltastore.engine.api import EngineStat
from deltastore.engine.gate import Gate
from deltastore.engine.lmdb_errors import convert
from deltastore.errors import StoreFullError
from deltastore.options import Durability

MAP_BYTES: Final = 1 << 40 if sys.maxsize > 1 << 32 else 1 << 30  # address space only, never disk
_MAP_BYTES_LEAST: Final = 1 << 30
_NEW_MAP_BYTES: Final = 1 << 20
_READERS_MAX: Final = 1_024
_ROOM_BYTES_LEAST: Final = 1 << 20  # less is as good as full: file systems keep some for themselves


class Holder(Protocol):
    """A transaction, as its environment sees it."""

    def check(self) -> None:
        """Raise if its opening was closed while it waited."""

    def abandon(self) -> None:
        """Note that this process is a child forked while the transaction ran."""


class SharedEnvironment:
    """The environment of one path in one process; opened at first use, reopened after a failure."""

    def __init__(
        self,
        path: Path,
        *,
        durability: Durability,
        read_only: bool,
        verify_bytes_max: int,
        map_bytes: int,
    ) -> None:
        self.path = path
        self.durability = durability
        self.read_only = read_only
        self.pid = os.getpid()
        self.gate: Gate[Holder] = Gate()
        self.references = 0
        self.was_mapped = False
        self._verify_bytes_max = verify_bytes_max
        self._map_bytes = map_bytes
        self._env: lmdb.Environment | None = None
        self._lock: int | None = None
        self._data: int | None = None
        self._data_file = path / files.DATA
        self._page_bytes = 0

    # Transactions

    def begin(self, holder: Holder, *, write: bool) -> tuple[lmdb.Transaction[bytes], int]:
        """Begin a transaction inside the gate; return it and the ticket to leave with.

        Opens the environment if it is not, follows a map that another process has grown, and drops
        reader slots of dead processes once if none is free.
        """
        tried: set[type[lmdb.Error]] = set()
        while True:
            ticket = self.gate.enter(holder)
            try:
                holder.check()
                env = self._env
                if env is not None:
                    return env.begin(write=write), ticket
                problem = None
            except lmdb.Error as error:
                problem = error
            except BaseException:
                self.gate.leave(ticket)
                raise
            self.gate.leave(ticket)
            if problem is None:
                self._open_if_closed()
            elif isinstance(problem, lmdb.MapResizedError):
                self._follow_map()
            elif type(problem) in tried:
                raise convert(problem, self.path, "begin") from problem
            else:
                tried.add(type(problem))
                self._mend(problem)

    def _mend(self, problem: lmdb.Error) -> None:
        if isinstance(problem, lmdb.ReadersFullError):
            with self.gate.alone():
                if self._env is not None:
                    self._env.reader_check()
        elif isinstance(problem, lmdb.PanicError):
            with self.gate.alone():  # a meta page could not be written; opening reads them afresh
                self.close_env()
        else:
            raise convert(problem, self.path, "begin") from problem

    def _follow_map(self) -> None:
        with self.gate.alone():
            if self._env is not None:
                try:
                    self._env.set_mapsize(0)
                except lmdb.Error:
                    self.close_env()  # opening finds a size that the address space allows

    def get_map_bytes(self) -> int:
        """Return the size of the map; called inside the gate."""
        return 0 if self._env is None else self._env.info()["map_size"]

    def grow(self, full_bytes: int) -> None:
        """Double the map if it still has the size at which it was found full.

        Raises:
            StoreFullError: The address space does not allow it.
        """
        with self.gate.alone():
            if self._env is None or self.get_map_bytes() != full_bytes:
                return
            try:
                self._env.set_mapsize(2 * full_bytes)
            except (lmdb.Error, OverflowError) as error:
                self.close_env()  # a failed growth leaves it unmapped
                self._map_bytes = full_bytes
                raise StoreFullError(
                    f"{self.path}: the map of {full_bytes} bytes is full and cannot be doubled "
                    f"({error}); raise the limit on address space (ulimit -v), or delete data"
                ) from error
            self._map_bytes = 2 * full_bytes

    def has_room(self) -> bool:
        """Return whether the data file may grow by a page; asked after a write that fell short."""
        if self._data is None:
            return True
        disk = os.fstatvfs(self._data)
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        size = os.fstat(self._data).st_size + self._page_bytes
        is_allowed = limit == resource.RLIM_INFINITY or size <= limit
        return is_allowed and disk.f_bavail * disk.f_frsize >= _ROOM_BYTES_LEAST

    def fill_file(self) -> None:
        """Make the data file as long as its last commit claims; called inside the gate.

        LMDB leaves pages at the end unwritten that a transaction took and gave back. At the next
        opening such a file cannot be told from a truncated one without walking all of it.
        """
        env, data = self._env, self._data
        if env is None or data is None:
            return
        if os.fstat(data).st_size >= (env.info()["last_pgno"] + 1) * self._page_bytes:
            return
        # Only under the write lock: another process may be writing at the end just now.
        with env.begin(write=True) as transaction:
            claimed = (env.info()["last_pgno"] + 1) * self._page_bytes
            if os.fstat(data).st_size < claimed:
                os.truncate(data, claimed)
            transaction.abort()

    # Sizes

    def get_version(self) -> int | None:
        """Return the last transaction id, None if the environment is not open; never waits."""
        if self.gate.is_inside():
            return None if self._env is None else self._env.info()["last_txnid"]
        ticket = self.gate.try_enter(_NOBODY)
        if ticket is None:
            return None
        try:
            return None if self._env is None else self._env.info()["last_txnid"]
        finally:
            self.gate.leave(ticket)

    def stat(self, check: Holder) -> EngineStat:
        """Return sizes, see `LmdbEngine.stat`; opens the environment if it is not."""
        if self.gate.is_inside():
            return self._stat()
        while True:
            ticket = self.gate.enter(check)
            try:
                check.check()
                if self._env is not None:
                    return self._stat()
            finally:
                self.gate.leave(ticket)
            self._open_if_closed()

    def _stat(self) -> EngineStat:
        assert self._env is not None
        sizes = self._env.stat()
        pages = 2 + sizes["branch_pages"] + sizes["leaf_pages"] + sizes["overflow_pages"]
        size = self._data_file.stat().st_size
        return EngineStat(
            entries=sizes["entries"],
            file_bytes=size,
            free_bytes=max(0, size - pages * sizes["psize"]),
        )

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
                files.create(self.path, lambda at: self._map(at, _NEW_MAP_BYTES))
            else:  # whoever was creating it died, or has just finished
                self._drop_lock()
                self._lock, alone = files.take_lock(self.path, read_only=False)
        directory = files.find_generation(self.path)
        data = directory / files.DATA
        if alone:
            files.check_data_file(
                data, verify_bytes_max=self._verify_bytes_max, read_only=self.read_only
            )
        else:
            files.measure_claim(data)
        if self._lock is not None:
            files.share_lock(self._lock)
        self.was_mapped = True
        self._env = self._map(directory, self._map_bytes)
        self._env.reader_check()
        self._page_bytes = self._env.stat()["psize"]
        self._data_file = data
        access = os.O_RDONLY if self.read_only else os.O_RDWR
        self._data = os.open(data, access | os.O_CLOEXEC)

    def _map(self, directory: Path, map_bytes: int) -> lmdb.Environment:
        while True:
            try:
                return lmdb.Environment(
                    str(directory),
                    map_size=map_bytes,
                    readonly=self.read_only,
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
        if env is not None:
            env.close()
        self.was_mapped = False
        data, self._data = self._data, None
        if data is not None:
            os.close(data)
        self._drop_lock()

    def _drop_lock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def is_replaced(self) -> bool:
        """Return whether other files are at the path now than those that are open."""
        if self._data is None:
            return False
        try:
            return not os.path.samestat(os.fstat(self._data), self._data_file.stat())
        except OSError:
            return True

    def abandon(self) -> None:
        """Let go of what a child inherited, without touching the environment itself.

        The lock's descriptor is closed, since it would keep the lock after the parent's death.
        """
        for holder in self.gate.get_holders():
            holder.abandon()
        self._drop_lock()


class _Nobody:
    """Who is inside the gate only to look at a number."""

    def check(self) -> None:
        pass

    def abandon(self) -> None:
        pass


_NOBODY: Final = _Nobody()
