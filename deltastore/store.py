"""The store: every operation on checkpoints, each in transactions of its own.

Speaks of threads, namespaces, ids and serialized values; knows nothing of LangGraph and decodes no
value. Owns the engine, the commit queue and the caches; what an operation means is decided on the
floors below. Any number of threads may use one store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from os import PathLike
from typing import Final, TypeVar

from deltastore import directory, listing, reconstruct
from deltastore.backlog import Backlog
from deltastore.engine.api import Engine
from deltastore.engine.lmdb import LmdbEngine
from deltastore.errors import (
    DeltaStoreError,
    InvalidArgumentError,
)
from deltastore.format.header import Header
from deltastore.ids import cid_from_id
from deltastore.inspecting import Inspecting
from deltastore.leasing import Leasing
from deltastore.listing import CheckpointInfo, Lister, Row
from deltastore.options import StoreOptions
from deltastore.pending import NewWrites
from deltastore.reconstruct import ChannelHistory, StoredCheckpoint
from deltastore.refill import NewCheckpoint
from deltastore.session import Session
from deltastore.sweeper import Sweeper
from deltastore.types import Cipher
from deltastore.upkeep import Upkeep
from deltastore.writer import Done, Writer, given_bytes, tell

T = TypeVar("T")

_THREADS_PAGE: Final = 256


def _verb(new: NewCheckpoint | NewWrites) -> str:
    return "put" if isinstance(new, NewCheckpoint) else "put_writes"


def _checked_limit(limit: int | None) -> int | None:
    """Return a limit of rows.

    Raises:
        InvalidArgumentError: It is below 0.
    """
    if limit is not None and limit < 0:
        raise InvalidArgumentError(f"limit must be at least 0, or None for no limit (got {limit})")
    return limit


class Store(Inspecting, Leasing, Upkeep):
    """An open store. Close it, or use it as a context manager.

    Args:
        engine: Where the bytes are; the store closes it.
        options: See `StoreOptions`.
    """

    def __init__(self, engine: Engine, options: StoreOptions | None = None) -> None:
        self.options = options or StoreOptions()
        super().__init__(Session(engine, self.options))
        self._writer = Writer(self._session)
        self._backlog: Backlog | None = None
        if self.options.durability == "relaxed" and not self.options.read_only:
            self._backlog = Backlog(self._session, self._writer)
        self._sweeper = Sweeper(self._session)

    @classmethod
    def open(cls, path: str | PathLike[str], options: StoreOptions | None = None) -> Store:
        """Open the store in a directory; checks the path and opens no file before the first call.

        Raises:
            StorePathError: The path cannot hold a store, or holds something else.
        """
        options = options or StoreOptions()
        engine = LmdbEngine(
            path,
            durability=options.engine_durability,
            read_only=options.read_only,
            verify_bytes_max=options.verify_bytes_max,
            max_bytes=options.max_bytes,
        )
        return cls(engine, options)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is queued and close; later calls raise StoreClosedError.

        Closing twice is no error.

        Raises:
            LostWriteError: Durability is "relaxed", and an acknowledged write could not be stored.
        """
        with ExitStack() as ending:
            ending.callback(self._session.close)
            if self._backlog is not None:
                ending.callback(self._backlog.close)
            self._sweeper.close()

    def check(self) -> None:
        """Raise `StoreClosedError` or `ForkedStoreError` if no call could go on; no I/O."""
        self._session.engine.check()

    def setup(self) -> None:
        """Create the store if it is new and finish deletions that were interrupted. Idempotent."""
        self._session.setup()

    # -- writing ----------------------------------------------------------------------------

    def put(self, new: NewCheckpoint | NewWrites, cipher: Cipher | None) -> None:
        """Store a checkpoint, or a task's writes; durable when this returns, unless "relaxed".

        Raises:
            DeletedParentError: A checkpoint's parent is absent because it was deleted.
            EngineError: It could not be stored; nothing was.
            LostWriteError: Durability is "relaxed" and an earlier write to the thread, of those
                that were acknowledged, could not be stored; nor was this one.
        """
        self._session.begin_write()
        put = self._writer.put if self._backlog is None else self._backlog.put
        slow = self._session.slow
        if slow.is_on:
            with slow.timed(_verb(new), new.thread_id, bytes=given_bytes(new)):
                put(new, cipher)
        else:
            put(new, cipher)
        self._sweeper.note_use()

    def submit(self, new: NewCheckpoint | NewWrites, cipher: Cipher | None, done: Done) -> None:
        """As `put`, up to the commit: `done` is called with its error or None after it.

        `done` runs on the committing thread; it must be quick and must not raise. It may return a
        function, which is called when all that were committed at once have been told.
        """
        self._session.begin_write()
        slow = self._session.slow
        if slow.is_on:
            done = slow.timed_done(_verb(new), new.thread_id, done, bytes=given_bytes(new))
        if self._backlog is None:
            self._writer.submit(new, cipher, done)
        else:
            self._backlog.put(new, cipher)
            tell(done, None)
        self._sweeper.note_use()

    def is_instant(self, new: NewCheckpoint | NewWrites) -> bool:
        """Whether `submit` of this write would wait for nothing, and read a header at most."""
        if not self._session.is_ready or not self._writer.is_small(new, 0):
            return False
        return self._backlog is None or self._backlog.has_room(new)

    def flush(self) -> None:
        """Return when everything that was acknowledged is on disk, in every durability.

        Raises:
            LostWriteError: An acknowledged write could not be stored; see `StoreOptions`.
        """
        self._session.engine.check()
        if self._backlog is not None:
            self._backlog.flush()
        self._session.queue.flush()
        if not self.options.read_only:
            self._session.engine.sync()

    # -- reading ----------------------------------------------------------------------------

    def get(
        self, thread_id: str, checkpoint_ns: str, checkpoint_id: str | None, cipher: Cipher | None
    ) -> StoredCheckpoint | None:
        """Return a checkpoint, the newest without an id, or None."""
        found = self.get_chain(thread_id, checkpoint_ns, checkpoint_id, cipher, count=1)
        return found[0] if found else None

    def get_chain(
        self,
        thread_id: str,
        checkpoint_ns: str,
        checkpoint_id: str | None,
        cipher: Cipher | None,
        *,
        count: int,
        bytes_max: int = 0,
    ) -> list[StoredCheckpoint]:
        """Return a checkpoint and up to `count - 1` of its ancestors, nearest first, in one view.

        Without an id it begins at the newest. It stops before the ancestor that would take the
        values and writes of the ancestors above `bytes_max`.
        """
        found: list[StoredCheckpoint] = []
        timer = self._session.slow.timed("get", thread_id)
        with timer, self._session.view(thread_id) as txn:
            reader = self._session.find(txn, thread_id, checkpoint_ns, cipher)
            if reader is None:
                return found
            cid = reader.newest() if checkpoint_id is None else cid_from_id(checkpoint_id)
            left = bytes_max
            while cid is not None and len(found) < count:
                try:
                    entry = reader.entry(cid)
                    if entry is None:
                        reader.check_absent(cid)
                        break
                    stored = reconstruct.checkpoint(reader, self._session.values, cid, entry)
                except DeltaStoreError:
                    if not found:
                        raise
                    break  # whoever asks for that ancestor is told
                if found:
                    left -= reconstruct.size(stored)
                    if left < 0:
                        break
                found.append(stored)
                cid = entry.header.parent
            timer.note(checkpoints=len(found))
        if found:
            self._sweeper.note_read(thread_id)
        return found

    def version(self) -> int | None:
        """Return a number that changes with every commit by any process, without I/O.

        None where it cannot be told at once.
        """
        if self._backlog is not None and not self._backlog.is_empty():
            return None
        return self._session.engine.version()

    def history(
        self,
        thread_id: str,
        checkpoint_ns: str,
        checkpoint_id: str | None,
        channels: Sequence[str],
        cipher: Cipher | None,
    ) -> dict[str, ChannelHistory]:
        """Return channels' histories before a checkpoint, the newest without an id.

        Raises:
            BrokenChainError: An ancestor that was stored is gone.
        """
        found = {channel: ChannelHistory(None, []) for channel in channels}
        timer = self._session.slow.timed("history", thread_id, channels=len(channels))
        with timer, self._session.view(thread_id) as txn:
            reader = self._session.find(txn, thread_id, checkpoint_ns, cipher)
            if reader is not None:
                cid = reader.newest() if checkpoint_id is None else cid_from_id(checkpoint_id)
                if cid is not None:
                    found = reconstruct.history(reader, self._session.values, cid, channels)
        if reader is not None:
            self._sweeper.note_read(thread_id)
        return found

    def list(
        self,
        thread_id: str | None = None,
        checkpoint_ns: str | None = None,
        *,
        only: str | None = None,
        before: str | None = None,
        limit: int | None = None,
        matches: Callable[[Header], bool] = lambda _: True,
        cipher: Cipher | None = None,
    ) -> Iterator[StoredCheckpoint]:
        """Yield checkpoints, newest first by id within a thread, thread after thread.

        Holds no lock and no view between two rows. Values are read for rows that are yielded only.

        Args:
            thread_id, checkpoint_ns: None for every one.
            only: Only the checkpoints with this id.
            before: Only ids below this one, as text.
            limit: Rows yielded, counted after `matches`.
        """
        lister = partial(Lister, checkpoint_ns=checkpoint_ns, before=before, only=only)
        rows = self._rows(thread_id, lister, cipher, matches, self._whole_row)
        return islice(self._noted(thread_id, rows), _checked_limit(limit))

    def _noted(self, thread_id: str | None, rows: Iterator[T]) -> Iterator[T]:
        for row in rows:
            if thread_id is None:  # whoever lists everything has no thread in mind
                self._sweeper.note_use()
            else:
                self._sweeper.note_read(thread_id)
            yield row

    def checkpoints(
        self,
        thread_id: str,
        checkpoint_ns: str | None = None,
        *,
        before: str | None = None,
        limit: int | None = None,
        cipher: Cipher | None = None,
    ) -> Iterator[CheckpointInfo]:
        """As `list`, without reading any value or write."""
        lister = partial(Lister, checkpoint_ns=checkpoint_ns, before=before, only=None)
        rows = self._rows(thread_id, lister, cipher, lambda _: True, listing.info)
        return islice(rows, _checked_limit(limit))

    def _whole_row(self, row: Row) -> StoredCheckpoint:
        return reconstruct.checkpoint(row.reader, self._session.values, row.cid, row.entry)

    def _rows(
        self,
        thread_id: str | None,
        make_lister: Callable[[str], Lister],
        cipher: Cipher | None,
        matches: Callable[[Header], bool],
        read: Callable[[Row], T],
    ) -> Iterator[T]:
        open_reader = partial(self._session.reader, cipher=cipher)
        for one in self._thread_ids() if thread_id is None else (thread_id,):
            view = partial(self._session.view, one)
            yield from listing.rows(view, open_reader, make_lister(one), matches, read)

    def _thread_ids(self) -> Iterator[str]:
        last = None
        while True:
            with self._session.view() as txn:
                page = directory.scan_thread_ids(txn, last, _THREADS_PAGE)
            yield from page
            if len(page) < _THREADS_PAGE:
                return
            last = page[-1]
