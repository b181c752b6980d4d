"""Figures of the running store: what `Store.stats` returns, cheap enough to poll."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deltastore import directory
from deltastore.cache import WeightedCache
from deltastore.session import Session


@dataclass(frozen=True, slots=True)
class CacheStats:
    """One cache of an opening.

    Attributes:
        entries: Kept now.
        bytes: Of these, by the cache's own estimate.
        bytes_max: Its bound, an option.
        hits, misses: Look-ups since the opening that found something, and those that did not.
    """

    entries: int
    bytes: int
    bytes_max: int
    hits: int
    misses: int


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Figures of a store and of one opening of it.

    Of the store, whoever wrote it:

    Attributes:
        threads_given: Threads that ever were, deleted ones and copies included.
        entries: Keys in the engine.
        file_bytes: Bytes of the data file; 0 in memory.
        free_bytes: Bytes of its pages that hold nothing, to be used again.
        used_bytes: What `max_bytes` bounds: bytes of pages in use; in memory of keys and values.
        max_bytes: The bound this opening was given, or None.

    Of this opening, since it was made:

        commits: Write transactions committed.
        ops: Operations in them: calls, and the steps of maintenance.
        ops_max: Operations of the largest commit.
        ops_histogram: Commits by number of operations: 1, 2, 3 to 4, 5 to 8, 9 to 16, 17 to 32, 33
            to 64, 65 to 128, 129 to 256, 257 to 512, more.
        commit_seconds: Seconds all commits took, from the beginning of the transaction to its end.
        queued: Operations that wait to be committed, now.
        records_stored: Records put into the engine, those of maintenance included.
        stored_bytes: Their bytes, keys included, compressed as they are stored.
        given_bytes: Bytes of serialized values and writes that callers handed in and that were
            stored, before any of it was found to be stored already.
        values, headers, writes: The caches.
    """

    threads_given: int
    entries: int
    file_bytes: int
    free_bytes: int
    used_bytes: int
    max_bytes: int | None
    commits: int
    ops: int
    ops_max: int
    ops_histogram: tuple[int, ...]
    commit_seconds: float
    queued: int
    records_stored: int
    stored_bytes: int
    given_bytes: int
    values: CacheStats
    headers: CacheStats
    writes: CacheStats

    @property
    def ops_mean(self) -> float:
        """Operations in a commit, 0 before the first."""
        return self.ops / self.commits if self.commits else 0.0

    @property
    def write_amplification(self) -> float | None:
        """Bytes of records stored per byte handed in, None before the first; small is good.

        LangGraph hands in whole values, so a store of what changed stays below 1 for long ones.
        What an engine writes beyond the records, such as pages and their tree, is not in it.
        """
        return self.stored_bytes / self.given_bytes if self.given_bytes else None


def store_stats(session: Session) -> StoreStats:
    """Return the figures of a store; see `Store.stats`."""
    with session.view() as txn:
        threads = directory.threads_given(txn)
        used = txn.used_bytes()
    sizes = session.engine.stat()
    counts = session.meter.counts()
    return StoreStats(
        threads_given=threads,
        entries=sizes.entries,
        file_bytes=sizes.file_bytes,
        free_bytes=sizes.free_bytes,
        used_bytes=used,
        max_bytes=session.options.max_bytes,
        commits=counts.commits,
        ops=counts.ops,
        ops_max=counts.ops_max,
        ops_histogram=counts.histogram,
        commit_seconds=counts.commit_seconds,
        queued=session.queue.queued,
        records_stored=counts.records,
        stored_bytes=counts.stored_bytes,
        given_bytes=counts.given_bytes,
        values=_cache_stats(session.values.cache),
        headers=_cache_stats(session.caches.headers),
        writes=_cache_stats(session.caches.writes),
    )


def _cache_stats(cache: WeightedCache[Any]) -> CacheStats:
    return CacheStats(len(cache), cache.weight, cache.weight_max, cache.hits, cache.misses)
