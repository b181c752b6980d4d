"""The store: every operation on checkpoints, each in transactions of its own.

Speaks of threads, namespaces, ids and serialized values; knows nothing of LangGraph and decodes no
value. Owns the engine, the commit queue and the caches; what an operation means is decided on the
floors below. Any number of threads may use one store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import islice
from os import PathLike
from typing import Final, TypeVar

from deltastore import directory, listing, reconstruct, retire
from deltastore.commit import CommitQueue
from deltastore.directory import Stream
from deltastore.engine.api import Engine, EngineStat, Transaction
from deltastore.engine.lmdb import LmdbEngine
from deltastore.errors import (
    DeltaStoreError,
    ForkedStoreError,
    InvalidArgumentError,
    ReadOnlyError,
)
from deltastore.format.header import Header
from deltastore.ids import cid_from_id
from deltastore.listing import CheckpointInfo, Lister, Row, ThreadPage
from deltastore.log import Caches, StreamReader
from deltastore.options import StoreOptions
from deltastore.pending import NewWrites
from deltastore.reconstruct import ChannelHistory, StoredCheckpoint
from deltastore.refill import NewCheckpoint
from deltastore.types import Cipher
from deltastore.values import Values
from deltastore.verify import Report, verify_store
from deltastore.writer import Done, Writer

T = TypeVar("T")

_THREADS_PAGE: Final = 256


def _checked_limit(limit: int | None) -> int | None:
    """Return a limit of rows.

    Raises:
        InvalidArgumentError: It is below 0.
    """
    if limit is not None and limit < 0:
        raise InvalidArgumentError(f"limit must be at least 0, or None for no limit (got {limit})")
    return limit


class Store:
    """An open store. Close it, or use it as a context manager.

    Args:
        engine: Where the bytes are; the store closes it.
        options: See `StoreOptions`.
    """

    def __init__(self, engine: Engine, options: StoreOptions | None = None) -> None:
        self.options = options or StoreOptions()
        self._engine = engine
        self._queue = CommitQueue(engine)
        self._values = Values(self.options.bounds, self.options.value_cache_bytes)
        self._caches = self._fresh_caches()
        self._writer = Writer(self._queue, self._view, self._values, self._caches)
        self._ready = False
        self._ready_lock = threading.Lock()

    @classmethod
    def open(cls, path: str | PathLike[str], options: StoreOptions | None = None) -> Store:
        """Open the store in a directory; checks the path and opens no file before the first call.

        Raises:
            StorePathError: The path cannot hold a store, or holds something else.
        """
        options = options or StoreOptions()
        engine = LmdbEngine(
            path,
            durability=options.durability,
            read_only=options.read_only,
            verify_bytes_max=options.verify_bytes_max,
        )
        return cls(engine, options)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is queued and close; later calls raise StoreClosedError.

        Closing twice is no error.
        """
        with suppress(ForkedStoreError):  # a child lets go of what is its parent's
            self._queue.close()
        self._engine.close()

    def check(self) -> None:
        """Raise `StoreClosedError` or `ForkedStoreError` if no call could go on; no I/O."""
        self._engine.check()

    def setup(self) -> None:
        """Create the store if it is new and finish deletions that were interrupted. Idempotent."""
        self._engine.check()
        if self._ready:
            return
        with self._engine.begin(write=False) as txn:
            identity = directory.store_identity(txn)
        if not self.options.read_only:
            if identity is None:
                self._queue.run(directory.make_store)
            self._reclaim()
        with self._ready_lock:
            self._ready = True

    def _fresh_caches(self) -> Caches:
        return Caches(self.options.header_cache_entries, self.options.writes_cache_bytes)

    def _view(self) -> AbstractContextManager[Transaction]:
        """Begin a read transaction, once the store is ready."""
        if not self._ready:
            self.setup()
        return self._engine.begin(write=False)

    def _begin_write(self) -> None:
        self._engine.check()
        if self.options.read_only:
            raise ReadOnlyError(
                "the store was opened read-only; open it without read_only to write"
            )
        if not self._ready:
            self.setup()

    def _reader(self, txn: Transaction, stream: Stream, cipher: Cipher | None) -> StreamReader:
        return StreamReader(txn, stream, cipher, self._caches)

    def _find(
        self, txn: Transaction, thread_id: str, checkpoint_ns: str, cipher: Cipher | None
    ) -> StreamReader | None:
        stream = directory.find_stream(txn, thread_id, checkpoint_ns)
        return None if stream is None else self._reader(txn, stream, cipher)

    # -- writing ----------------------------------------------------------------------------

    def put(self, new: NewCheckpoint | NewWrites, cipher: Cipher | None) -> None:
        """Store a checkpoint, or a task's writes; durable when this returns.

        Raises:
            DeletedParentError: A checkpoint's parent is absent because it was deleted.
            EngineError: It could not be stored; nothing was.
        """
        self._begin_write()
        self._writer.put(new, cipher)

    def submit(self, new: NewCheckpoint | NewWrites, cipher: Cipher | None, done: Done) -> None:
        """As `put`, up to the commit: `done` is called with its error or None after it.

        `done` runs on the committing thread; it must be quick and must not raise.
        """
        self._begin_write()
        self._writer.submit(new, cipher, done)

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with everything in it; it is gone at the first commit, space follows.

        A later put without a parent starts it anew; one on a deleted parent raises
        `DeletedParentError`.
        """
        self._begin_write()
        self._queue.run(lambda txn: retire.retire_thread(txn, thread_id, self._reader))
        self._reclaim()

    def _reclaim(self) -> None:
        while self._queue.run(retire.reclaim_some):
            pass

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
        with self._view() as txn:
            reader = self._find(txn, thread_id, checkpoint_ns, cipher)
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
                    stored = reconstruct.checkpoint(reader, self._values, cid, entry)
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
        return found

    def version(self) -> int | None:
        """Return a number that changes with every commit by any process, without I/O."""
        return self._engine.version()

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
        with self._view() as txn:
            reader = self._find(txn, thread_id, checkpoint_ns, cipher)
            if reader is not None:
                cid = reader.newest() if checkpoint_id is None else cid_from_id(checkpoint_id)
                if cid is not None:
                    return reconstruct.history(reader, self._values, cid, channels)
        return {channel: ChannelHistory(None, []) for channel in channels}

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
        return islice(rows, _checked_limit(limit))

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
        return reconstruct.checkpoint(row.reader, self._values, row.cid, row.entry)

    def _rows(
        self,
        thread_id: str | None,
        make_lister: Callable[[str], Lister],
        cipher: Cipher | None,
        matches: Callable[[Header], bool],
        read: Callable[[Row], T],
    ) -> Iterator[T]:
        open_reader = partial(self._reader, cipher=cipher)
        for one in self._thread_ids() if thread_id is None else (thread_id,):
            yield from listing.rows(self._view, open_reader, make_lister(one), matches, read)

    def _thread_ids(self) -> Iterator[str]:
        last = None
        while True:
            with self._view() as txn:
                page = directory.scan_thread_ids(txn, last, _THREADS_PAGE)
            yield from page
            if len(page) < _THREADS_PAGE:
                return
            last = page[-1]

    def threads(
        self, *, prefix: str = "", limit: int = 100, cursor: str | None = None
    ) -> ThreadPage:
        """Return a page of threads, newest activity first, without reading values.

        Raises:
            InvalidArgumentError: `limit` is below 1, or the cursor is none that a page gave.
        """
        if limit < 1:
            raise InvalidArgumentError(f"limit must be at least 1 (got {limit})")
        with self._view() as txn:
            open_reader = partial(self._reader, cipher=None)
            return listing.threads_page(txn, open_reader, prefix, limit, cursor)

    def verify(self, *, cipher: Cipher | None = None) -> Report:
        """Check every record and reference in one view; see `deltastore.verify`."""
        with self._view() as txn:
            # Fresh caches: what is checked is what is stored.
            values = Values(self.options.bounds, self.options.value_cache_bytes)
            open_reader = partial(StreamReader, cipher=cipher, caches=self._fresh_caches())
            return verify_store(txn, open_reader, values)

    def stat(self) -> EngineStat:
        """Return sizes of the engine."""
        return self._engine.stat()
