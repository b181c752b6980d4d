"""Compact threads: bring chains of deltas and histories of delta channels back under the bounds.

Planned in a view, applied one value at a time beside live traffic, while the thread is watched.
What a checkpoint shows and rebuilds to does not change; what is added is shown by the checkpoint
that gets it. Values that are no longer needed go at the next prune.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from deltastore import directory, folding, log, merging, watch
from deltastore.append import StaleError
from deltastore.directory import Stream
from deltastore.engine.api import Transaction
from deltastore.errors import EngineError
from deltastore.folding import Fold, FoldPlan
from deltastore.format import frame, keys
from deltastore.log import StreamReader
from deltastore.merging import ChainPlan, Place
from deltastore.options import SnapshotBounds
from deltastore.plans import ChannelPlan, CompactionPlan, Progress
from deltastore.session import Session, this_minute
from deltastore.survey import Node, survey
from deltastore.types import Cipher
from deltastore.values import Values

NO_REDUCER: Final = "no reducer is registered for it"
_ATTEMPTS_MAX: Final = 32
_THREADS_PAGE: Final = 256


def compact(
    session: Session,
    thread_id: str | None,
    bounds: SnapshotBounds | None,
    folds: Mapping[str, Fold],
    *,
    dry_run: bool,
    cipher: Cipher | None,
    progress: Progress,
) -> CompactionPlan:
    """Compact one thread, or all; see `Store.compact`."""
    thread_ids = _thread_ids(session) if thread_id is None else iter((thread_id,))
    found: list[ChannelPlan] = []
    for one in thread_ids:
        work = _Work(session, one, bounds or session.options.bounds, folds, cipher, progress)
        found += work.plan() if dry_run else work.run()
    return CompactionPlan(tuple(found))


def _thread_ids(session: Session) -> Iterator[str]:
    last = None
    while True:
        with session.view() as txn:
            page = directory.scan_thread_ids(txn, last, _THREADS_PAGE)
        yield from page
        if len(page) < _THREADS_PAGE:
            return
        last = page[-1]


@dataclass(slots=True)
class _StreamWork:
    """What is to be done in one namespace."""

    stream: Stream
    nodes: dict[bytes, Node]
    chains: dict[str, ChainPlan]
    folds: dict[str, FoldPlan]


class _Work:
    """One thread's compaction."""

    def __init__(
        self,
        session: Session,
        thread_id: str,
        bounds: SnapshotBounds,
        folds: Mapping[str, Fold],
        cipher: Cipher | None,
        progress: Progress,
    ) -> None:
        self._session = session
        self._thread_id = thread_id
        self._bounds = bounds
        self._folds = folds
        self._cipher = cipher
        self._progress = progress
        self._values = Values(bounds, session.options.value_cache_bytes)

    def plan(self) -> list[ChannelPlan]:
        """Return what would be done."""
        with self._session.view() as txn:
            return [one for work in self._works(txn) for one in self._summary(txn, work)]

    def run(self) -> list[ChannelPlan]:
        """Do it; return what was done."""
        self._session.reclaim()  # what waits to be deleted is nothing to compact
        with self._session.upkeep(self._thread_id):
            for attempt in range(_ATTEMPTS_MAX):
                self._session.back_off(attempt)
                with self._session.view() as txn:
                    entry = directory.find_thread(txn, self._thread_id)
                if entry is None or entry.number == 0:
                    return []
                number = entry.number
                token = self._session.queue.run(
                    partial(watch.begin, thread=number, minute=this_minute())
                )
                try:
                    return self._apply(number, token)
                except StaleError:
                    continue
                finally:
                    while self._session.queue.run(
                        partial(watch.end_own, thread=number, token=token)
                    ):
                        pass
        raise EngineError(
            f"thread {self._thread_id!r} was changed {_ATTEMPTS_MAX} times while its compaction "
            "was planned; nothing is lost, the call may be repeated"
        )

    def _reader(self, txn: Transaction, stream: Stream) -> StreamReader:
        return self._session.reader(txn, stream, self._cipher)

    def _works(self, txn: Transaction) -> list[_StreamWork]:
        works = []
        for stream in directory.streams(txn, self._thread_id):
            reader = self._reader(txn, stream)
            nodes = survey(reader)
            chains = merging.plan_chains(reader, nodes, self._bounds)
            folds = folding.plan_folds(reader, nodes, self._bounds)
            if chains or folds:
                works.append(_StreamWork(stream, nodes, chains, folds))
        return works

    def _summary(self, txn: Transaction, work: _StreamWork) -> list[ChannelPlan]:
        reader = self._reader(txn, work.stream)
        found = []
        for channel in sorted({*work.chains, *work.folds}):
            chain = work.chains.get(channel, ChainPlan())
            histories = work.folds.get(channel, FoldPlan())
            size = 0
            for place in chain.places:
                size += len(self._values.rebuild(reader, *place).typed.data)
            how = self._folds.get(channel)
            if how is not None:
                for cid in histories.cids:
                    folded = folding.fold(reader, self._values, cid, channel, how)
                    size += len(folded.data)
            found.append(
                ChannelPlan(
                    work.stream.thread_id,
                    work.stream.checkpoint_ns,
                    channel,
                    len(chain.places),
                    0 if how is None else len(histories.cids),
                    NO_REDUCER if how is None and histories.cids else "",
                    max(chain.chain_max, histories.history_max),
                    size,
                )
            )
        return found

    def _apply(self, number: int, token: bytes) -> list[ChannelPlan]:
        with self._session.view() as txn:
            works = self._works(txn)
            plans = [one for work in works for one in self._summary(txn, work)]
        total = sum(plan.snapshots + plan.folded for plan in plans)
        done = 0
        for work in works:
            for place in _bases_first(work):
                self._apply_point(number, token, work, place)
                done += 1
                self._progress(done, total)
            for channel, histories in work.folds.items():
                how = self._folds.get(channel)
                for cid in histories.cids if how is not None else ():
                    assert how is not None
                    self._apply_fold(number, token, work, cid, channel, how)
                    done += 1
                    self._progress(done, total)
        return plans

    def _apply_point(self, number: int, token: bytes, work: _StreamWork, place: Place) -> None:
        key = keys.value_key(work.stream.prefix, *place)
        node = work.nodes.get(place[0])
        with self._session.view() as txn:
            reader = self._reader(txn, work.stream)
            raw = txn.get(key)
            if raw is None:
                raise StaleError
            record = self._values.point(reader, *place, 0 if node is None else node.depth)

        def op(txn: Transaction) -> None:
            self._check(txn, number, token)
            now = txn.get(key)
            if now is None or frame.checksum(now) != frame.checksum(raw):
                raise StaleError
            log.put_value(self._reader(txn, work.stream), *place, record)

        self._session.queue.run(self._session.bounded(op))

    def _apply_fold(
        self, number: int, token: bytes, work: _StreamWork, cid: bytes, channel: str, how: Fold
    ) -> None:
        with self._session.view() as txn:
            reader = self._reader(txn, work.stream)
            typed = folding.fold(reader, self._values, cid, channel, how)
        children = folding.children(work.nodes, cid)
        ancestors = folding.ancestors(work.nodes, cid)

        def op(txn: Transaction) -> None:
            self._check(txn, number, token)
            reader = self._reader(txn, work.stream)
            entry = reader.entry(cid)
            if entry is None:
                raise StaleError
            if entry.is_anchor:
                folding.apply_anchor_fold(reader, self._values, cid, channel, typed)
                return
            new = []
            for namespace, other in watch.touched(txn, number):
                if namespace != work.stream.namespace:
                    continue
                if other in ancestors:
                    raise StaleError  # it was folded without what is written there now
                link = reader.link(other)
                if link is not None and link.clear.parent == cid and other not in children:
                    new.append(other)
            below = [*children, *new]
            folding.apply_fold(reader, self._values, cid, channel, typed, below)

        self._session.queue.run(self._session.bounded(op))

    def _check(self, txn: Transaction, number: int, token: bytes) -> None:
        if not watch.renew(txn, number, token, this_minute()):
            raise StaleError


def _bases_first(work: _StreamWork) -> list[Place]:
    """Return the values to be stored anew, those of ancestors first."""
    places = [place for plan in work.chains.values() for place in plan.places]
    depth = {cid: node.depth for cid, node in work.nodes.items()}
    return sorted(places, key=lambda place: depth.get(place[0], 0))
