"""One generation that this process has open, and who uses it.

A mapped generation is an environment and its data file's descriptor.

The descriptor holds the generation's flock (`lmdb_generations`), so nobody removes the files while
they are mapped. Callers see to it that nothing is called while the map is being changed or closed.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import lmdb

from deltastore.backoff import back_off
from deltastore.engine import lmdb_files as files
from deltastore.engine import lmdb_journal as journal
from deltastore.engine.api import EngineStat
from deltastore.errors import EngineError

_ATTEMPTS_MAX: Final = 24
_PAUSE_SECONDS_MAX: Final = 0.2
_ROOM_BYTES_LEAST: Final = 1 << 20  # less is as good as full: file systems keep some for themselves


class MappedGeneration:
    """An environment and what belongs to it.

    Args:
        env: Opened on `directory`; closed with this.
        data: A descriptor of its data file; closed with this.
    """

    def __init__(self, env: lmdb.Environment, directory: Path, data: int) -> None:
        self.env = env
        self.number = int(directory.name)
        self.begin = env.begin
        self.database = env.open_db(None)
        self.page_bytes: int = env.stat()["psize"]
        self._file = directory / files.DATA
        self._data: int | None = data
        self._known_version = -1

    def close(self) -> None:
        """Close both."""
        self.env.close()
        self.abandon()

    def abandon(self) -> None:
        """Close the descriptor alone, in a child that must not touch the environment.

        Else it would keep the flock after the parent's death.
        """
        data, self._data = self._data, None
        if data is not None:
            os.close(data)

    def get_map_bytes(self) -> int:
        """Return the size of the map."""
        size: int = self.env.info()["map_size"]
        return size

    def get_version(self) -> int | None:
        """Return the id of the last commit, greater than any of an earlier generation.

        None once the generation is superseded, since commits are made elsewhere then, and where
        LMDB cannot tell at once.
        """
        try:
            version: int = self.env.info()["last_txnid"]
            if version != self._known_version:
                with self.env.begin() as txn:
                    if journal.get_successor(txn.get(journal.STATE)):
                        return None
                    version = txn.id()
                self._known_version = version
        except lmdb.Error:
            return None
        return self.number << 64 | version

    def stat(self, txn: lmdb.Transaction[bytes]) -> EngineStat:
        """Return sizes, counted in a view; records of a vacuum are not among the entries."""
        entries = self.count(txn) - journal.count(txn)
        size = self.get_file_bytes()
        return EngineStat(entries, size, max(0, size - self.get_used_bytes(txn)))

    def get_used_bytes(self, txn: lmdb.Transaction[bytes]) -> int:
        """Return the bytes of the pages that hold something, the changes of `txn` included.

        Without those of LMDB's own list of free pages.
        """
        sizes = txn.stat(self.database)
        pages = 2 + sizes["branch_pages"] + sizes["leaf_pages"] + sizes["overflow_pages"]
        used: int = pages * sizes["psize"]
        return used

    def get_file_bytes(self) -> int:
        """Return the length of the data file."""
        return self._file.stat().st_size

    def count(self, txn: lmdb.Transaction[bytes]) -> int:
        """Return the number of records in a view, those of a vacuum included."""
        entries: int = txn.stat(self.database)["entries"]
        return entries

    def has_room(self) -> bool:
        """Return whether the data file may grow by a page; asked after a write that fell short."""
        return self._data is None or has_room(self._data, self.page_bytes)

    def fill_file(self) -> None:
        """Make the data file as long as its last commit claims.

        LMDB leaves pages at the end unwritten that a transaction took and gave back. At the next
        opening such a file cannot be told from a truncated one without walking all of it.
        """
        env, data = self.env, self._data
        if data is None:
            return
        if os.fstat(data).st_size >= (env.info()["last_pgno"] + 1) * self.page_bytes:
            return
        # Only under the write lock: another process may be writing at the end just now.
        with env.begin(write=True) as transaction:
            claimed = (env.info()["last_pgno"] + 1) * self.page_bytes
            if os.fstat(data).st_size < claimed:
                os.truncate(data, claimed)
            transaction.abort()

    def is_replaced(self) -> bool:
        """Return whether another file is at the data file's path now than the one that is open."""
        if self._data is None:
            return False
        try:
            return not os.path.samestat(os.fstat(self._data), self._file.stat())
        except OSError:
            return True


def attach(directory: Path, open_environment: Callable[[], lmdb.Environment]) -> lmdb.Environment:
    """Open an environment whose lock region can be relied on.

    The region, LMDB's part of lock.mdb, tells the number of the last commit. The first process to
    open an environment makes it anew: as 0 to begin with. Killed before it has put the number in,
    it leaves the 0 to those that wait to open; LMDB would then count its commits from 1 again on
    top of either of the last two, overwrite pages in use, and lose what was acknowledged. So
    whoever finds such a region closes the environment: the first to open it with nobody else
    inside makes the region anew. An environment that is open for reading alone is never found
    so: LMDB takes the number from the meta pages there.

    Raises:
        EngineError: Others keep the environment open all the while.
    """
    for attempt in range(_ATTEMPTS_MAX):
        env = open_environment()
        try:
            if not _is_region_void(env):
                return env
        except BaseException:
            env.close()
            raise
        env.close()  # and wait for others that found the same to do so too
        back_off(attempt, first_seconds=0.001, seconds_max=_PAUSE_SECONDS_MAX)
    raise EngineError(
        f"{directory / files.READERS} was left half made by a process that was killed while it "
        "opened the store, and others keep it open; end every process that uses the store"
    )


def _is_region_void(env: lmdb.Environment) -> bool:
    """Return whether the lock region is behind the meta pages by more than a commit under way."""
    newest = env.info()["last_txnid"]
    try:
        with env.begin() as txn:
            known = txn.id()
    except (lmdb.ReadersFullError, lmdb.MapResizedError):
        return False  # others read, or have just grown the file, so they found it as it should be
    behind = newest - known
    if behind < 1 or (behind == 1 and known):
        return False
    # Once more while no other can write: a commit may be under way, or have died there.
    with env.begin(write=True) as txn:
        is_void: bool = txn.id() <= env.info()["last_txnid"]
        txn.abort()
    return is_void


def has_room(data: int, page_bytes: int) -> bool:
    """Return whether a data file may grow by a page, by its descriptor."""
    disk = os.fstatvfs(data)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    size = os.fstat(data).st_size + page_bytes
    is_allowed = limit == resource.RLIM_INFINITY or size <= limit
    return is_allowed and disk.f_bavail * disk.f_frsize >= _ROOM_BYTES_LEAST


class Holder(Protocol):
    """A transaction, as its environment sees it.

    Attributes:
        mapped: Where it runs; None until that is known.
    """

    mapped: MappedGeneration | None

    def check(self) -> None:
        """Raise if its opening was closed while it waited."""

    def abandon(self) -> None:
        """Note that this process is a child forked while the transaction ran."""


class _Nobody:
    """Who is inside the gate only to look at a number."""

    mapped: MappedGeneration | None = None

    def check(self) -> None:
        pass

    def abandon(self) -> None:
        pass


NOBODY: Final = _Nobody()
