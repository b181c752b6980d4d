"""What is in a store and how large it is, without its values: the half of `Store` to look with.

Nothing here changes a store, and nothing decodes a value but `verify`.
"""

from __future__ import annotations

from functools import partial

from deltastore import directory, listing
from deltastore.engine.api import EngineStat
from deltastore.errors import InvalidArgumentError
from deltastore.findings import Report
from deltastore.format import keys, layout
from deltastore.listing import ThreadPage
from deltastore.log import StreamReader
from deltastore.plans import Progress, no_progress
from deltastore.session import Session
from deltastore.stats import StoreStats, store_stats
from deltastore.survey import measure
from deltastore.thread_stats import ThreadStats, thread_stats
from deltastore.types import Cipher
from deltastore.values import Values
from deltastore.verify import levels_of, verify_store


class Inspecting:
    """Listings, sizes and checks of a store; `Store` is one."""

    _session: Session

    def threads(
        self, *, prefix: str = "", limit: int = 100, cursor: str | None = None
    ) -> ThreadPage:
        """Return a page of threads, newest activity first, without reading values.

        Raises:
            InvalidArgumentError: `limit` is below 1, or the cursor is none that a page gave.
        """
        if limit < 1:
            raise InvalidArgumentError(f"limit must be at least 1 (got {limit})")
        with self._session.slow.timed("threads"), self._session.view() as txn:
            open_reader = partial(self._session.reader, cipher=None)
            return listing.threads_page(txn, open_reader, prefix, limit, cursor)

    def thread_bytes(self, thread_id: str) -> tuple[int, int]:
        """Return how many records a thread has and their bytes, keys included; decodes none.

        Cost: a scan of the thread.
        """
        timer = self._session.slow.timed("thread_bytes", thread_id)
        with timer, self._session.view(thread_id) as txn:
            found = directory.find_thread(txn, thread_id)
            number = 0 if found is None else found.number
            return measure(txn, keys.thread_prefix(layout.TAG_LOG, number))

    def verify(
        self,
        *,
        level: str | None = None,
        cipher: Cipher | None = None,
        progress: Progress = no_progress,
    ) -> Report:
        """Check what is stored, in one view; see `deltastore.verify`.

        Args:
            level: "records" for each record by itself: key, checksum, decoding; "references" for
                what records say of one another, with every value rebuilt; None for both.
            cipher: Without it encrypted records are checked by their checksums, and counted as
                undecodable.

        Returns:
            All that is wrong, named; nothing is raised for damage.

        Raises:
            InvalidArgumentError: There is no such level.

        The pages of the view's moment are kept while it runs: beside many writes the file grows.
        Cost: one reading of everything; level "references" looks up what each record refers to.
        """
        levels = levels_of(level)
        total = self._session.engine.stat().entries if progress is not no_progress else 0
        with self._session.slow.timed("verify"), self._session.view() as txn:
            # Fresh caches: what is checked is what is stored.
            values = Values(self._session.options.bounds, self._session.options.value_cache_bytes)
            open_reader = partial(StreamReader, cipher=cipher, caches=self._session.fresh_caches())
            return verify_store(
                txn, open_reader, values, cipher, levels=levels, total=total, progress=progress
            )

    def stat(self) -> EngineStat:
        """Return sizes of the engine."""
        return self._session.engine.stat()

    def stats(self) -> StoreStats:
        """Return figures of the store and of this opening, cheap enough to poll.

        Cost: two views and no scan, whatever is stored. Beside a vacuum, one step more for each
        transaction committed since that began.
        """
        return store_stats(self._session)

    def thread_stats(
        self, thread_id: str, *, cipher: Cipher | None = None, progress: Progress = no_progress
    ) -> ThreadStats:
        """Return what a thread is made of, by namespace, kind of record and channel.

        Args:
            progress: Called with the records read and those there are, inside a view: it must not
                call the store.

        Raises:
            CorruptionError: A record is damaged.
            DecryptionError: A record is encrypted and the cipher does not open it.

        Cost: reads the thread twice, and decodes every header, write and value record, rebuilding
            none; in one view. About 300 bytes of memory a checkpoint.
        """
        with self._session.slow.timed("thread_stats", thread_id):
            return thread_stats(self._session, thread_id, cipher, progress)
