"""The generation that a vacuum or a backup makes: nobody else knows of it until it is named.

Its commits are not synced; `finish` syncs everything once, before anything names the generation.
Pages are zero-initialised by LMDB, so the file holds what was put here and nothing else.

Every error is one of ours, about this environment and never about the one that is copied.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection
from contextlib import suppress

import lmdb

from deltastore.engine import lmdb_files as files
from deltastore.engine import lmdb_generations as generations
from deltastore.engine.api import Pair
from deltastore.engine.lmdb_errors import convert
from deltastore.engine.lmdb_mapped import has_room
from deltastore.engine.lmdb_shared import SharedEnvironment
from deltastore.errors import DeltaStoreError, StoreFullError


class UnfinishedGeneration:
    """A generation under construction, above the one in use; the vacuum's lock must be held.

    Args:
        shared: Where it is made; only its path, map size and way of mapping are used.
        in_use: The generation below; 0 for a store that is being made.
        what: Of what it is part, for messages.
    """

    def __init__(self, shared: SharedEnvironment, in_use: int, what: str = "vacuum") -> None:
        self.number = generations.get_next_number(in_use)
        self._in_use = in_use
        self._shared = shared
        self._what = what
        self._directory = files.get_directory(shared.path, self.number)
        self._env: lmdb.Environment | None = None

    def create(self) -> None:
        """Remove what a killed vacuum left behind, and make the files."""
        try:
            generations.remove_unfinished(self._shared.path, self._in_use)
            files.make_files(self._directory)
        except OSError as error:
            raise convert(error, self._shared.path, self._what) from error
        self._open()

    def append(self, pairs: Collection[Pair]) -> None:
        """Store pairs whose keys ascend and sort after all that are there, in one transaction."""

        def work(txn: lmdb.Transaction[bytes]) -> None:
            for key, value in pairs:
                txn.put(key, value, append=True)

        self._transact(work)

    def apply(self, keys: Collection[bytes], get: Callable[[bytes], bytes | None]) -> None:
        """Make each key what `get` says, None being absent, in one transaction."""

        def work(txn: lmdb.Transaction[bytes]) -> None:
            for key in keys:
                value = get(key)
                if value is None:
                    txn.delete(key)
                else:
                    txn.put(key, value)

        if keys:
            self._transact(work)

    def _transact(self, work: Callable[[lmdb.Transaction[bytes]], None]) -> None:
        while True:
            env = self._open()
            try:
                with env.begin(write=True) as txn:
                    work(txn)
                return
            except lmdb.MapFullError:
                self._grow(env)
            except lmdb.Error as error:
                raise self._convert(error) from error

    def _open(self) -> lmdb.Environment:
        if self._env is None:
            try:
                self._env = self._shared.map(self._directory, self._shared.map_bytes, sync=False)
            except lmdb.Error as error:
                raise self._convert(error) from error
        return self._env

    def _grow(self, env: lmdb.Environment) -> None:
        try:
            env.set_mapsize(2 * env.info()["map_size"])
        except (lmdb.Error, OverflowError) as error:
            raise StoreFullError(
                f"{self._shared.path}: no address space for a {self._what} ({error}); raise the "
                "limit (ulimit -v)"
            ) from error

    def _convert(self, error: lmdb.Error) -> DeltaStoreError:
        if error.code == errno.EIO and not self._has_room():
            # A write that ended halfway, which LMDB does not tell from a broken disk.
            return StoreFullError(
                f"{self._shared.path}: no room for a second copy; make room and try again"
            )
        return convert(error, self._shared.path, self._what)

    def _has_room(self) -> bool:
        with (self._directory / files.DATA).open("rb") as data:
            return has_room(data.fileno(), os.sysconf("SC_PAGE_SIZE"))

    def count(self) -> int:
        """Return the number of pairs."""
        entries: int = self._open().stat()["entries"]
        return entries

    def sync(self) -> None:
        """Write what is there to disk, so that little is left for `finish`."""
        try:
            self._open().sync(True)
        except lmdb.Error as error:
            raise self._convert(error) from error

    def finish(self) -> None:
        """Make all of it durable and close it, as long as its meta pages say.

        May be called again after more was applied.
        """
        self.sync()
        self.close()
        data = self._directory / files.DATA
        try:
            claimed = files.measure_claim(data)
            if data.stat().st_size < claimed:
                os.truncate(data, claimed)
            files.sync_files(self._directory)
            files.sync_directory(self._shared.path)
        except OSError as error:
            raise convert(error, self._shared.path, self._what) from error

    def close(self) -> None:
        """Close the environment if it is open."""
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def remove(self) -> None:
        """Remove the files as far as possible; the next opening removes what is left."""
        with suppress(OSError):
            generations.remove_unfinished(self._shared.path, self._in_use)
