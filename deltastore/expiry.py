"""Apply retention policies, and delete threads that nobody uses.

A thread is *idle* since the minute its last activity was noted in. Whether it still is, and is
still the thread that was chosen, is asked again in the transaction that takes it out of sight, so
that one that becomes active after it was chosen stays.

Deletes whole threads and has `retention` prune the others; knows nothing of what a checkpoint
needs. Every transaction is small, and a call that is interrupted leaves what a shorter one would.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, NamedTuple

from deltastore import choosing, directory, dropping, leases, reclaim, retention, retire, watch
from deltastore.choosing import Choice, Surveyed
from deltastore.engine.api import Transaction
from deltastore.errors import CorruptionError, InvalidArgumentError, InvalidTypeError
from deltastore.format import keys, layout
from deltastore.format.entries import ThreadEntry
from deltastore.ids import id_from_cid
from deltastore.log import StreamReader
from deltastore.options import RetentionPolicy, TimeToLive
from deltastore.plans import Progress, PrunePlan, RetentionReport
from deltastore.rehearsal import Rehearsal
from deltastore.session import Session, this_minute
from deltastore.survey import measure
from deltastore.types import Cipher

_PAGE: Final = 1_000


class _Thread(NamedTuple):
    """A thread as it was chosen; they sort longest idle first."""

    minute: int
    number: int
    thread_id: str


def apply_retention(
    session: Session,
    policy: RetentionPolicy | None,
    ttl: TimeToLive | None,
    *,
    dry_run: bool,
    cipher: Cipher | None,
    progress: Progress,
) -> RetentionReport:
    """Delete what expired and what a policy does not keep; see `Store.apply_retention`."""
    if policy is None and ttl is None:
        raise InvalidArgumentError(
            "there is no retention policy and no time to live to apply; pass a policy, as in "
            "apply_retention(RetentionPolicy(keep_last=10)), or open the store with retention=... "
            "or ttl=..."
        )
    if policy is not None and not isinstance(policy, RetentionPolicy):
        raise InvalidTypeError(f"policy must be a RetentionPolicy (got {type(policy).__name__})")
    return _Work(session, policy or RetentionPolicy(), dry_run, cipher, progress).run(ttl)


def expire(
    session: Session,
    ttl: TimeToLive,
    is_spared: Callable[[str], bool],
    *,
    dry_run: bool,
    step: Callable[[int], None],
    failed: Callable[[CorruptionError], None] | None = None,
) -> list[str]:
    """Delete the threads that were idle for too long; return them, longest idle first.

    Args:
        is_spared: Whether a thread is left alone; asked in the transaction that deletes, too.
        step: Called between two transactions with the threads that may be left; may raise.
        failed: Told of a damaged thread, which then stays; without it the error is raised.

    Cost: a scan of the expired; no other thread is read.
    """
    latest = this_minute() - ttl.minutes - 1
    found = _scan(session, directory.before_minute(latest)) if latest > 0 else []
    gone = []

    def is_due(_: Transaction, entry: ThreadEntry) -> bool:
        return entry.minute <= latest and not is_spared(entry.thread_id)

    for place, (_, number) in enumerate(found):
        step(len(found) - place)
        try:
            with session.view() as txn:
                thread_id = directory.find_thread_id(txn, number)
                held = thread_id is not None and leases.is_held(txn, thread_id)
            if thread_id is None or held or is_spared(thread_id):
                continue
            if dry_run or _retire(session, thread_id, number, is_due):
                gone.append(thread_id)
        except CorruptionError as error:
            if failed is None:
                raise
            failed(error)
    if gone and not dry_run:
        session.reclaim(partial(step, 0))
    return gone


def _scan(session: Session, at: bytes) -> list[tuple[int, int]]:
    """Return minute and number of the threads beyond a key of the activity index, oldest first."""
    found = []
    with session.view() as txn:
        while page := directory.scan_active(txn, at, _PAGE):
            at = page[-1][0]
            found += [(minute, number) for _, minute, number in page]
    found.sort()
    return found


def _retire(
    session: Session,
    thread_id: str,
    number: int,
    only_if: Callable[[Transaction, ThreadEntry], bool],
) -> bool:
    """Take a thread out of sight if it is still the one of a number and a condition holds."""

    def op(txn: Transaction) -> bool:
        entry = directory.find_thread(txn, thread_id)
        if entry is None or entry.number != number or not only_if(txn, entry):
            return False
        if leases.is_held(txn, thread_id):
            return False  # somebody is about to use it
        return retire.retire_thread(txn, thread_id, session.reader)

    return session.queue.run(op)


class _Work:
    """One application of a policy."""

    def __init__(
        self,
        session: Session,
        policy: RetentionPolicy,
        dry_run: bool,
        cipher: Cipher | None,
        progress: Progress,
    ) -> None:
        self._session = session
        self._policy = policy
        self._protect = protected(session, policy)
        self._dry_run = dry_run
        self._cipher = cipher
        self._progress = progress
        self._done = 0
        self._total = 0

    def run(self, ttl: TimeToLive | None) -> RetentionReport:
        """Delete the expired, prune the others, then evict; return what went."""
        session, policy = self._session, self._policy
        with session.view() as txn:
            entries = [directory.find_thread(txn, one) for one in self._protect]
        spared = sum(1 for entry in entries if entry is not None and entry.number)
        expired: list[str] = []
        if ttl is not None:
            is_spared = self._protect.__contains__
            expired = expire(session, ttl, is_spared, dry_run=self._dry_run, step=self._expiring)
        is_pruned = policy.keep_last is not None or policy.max_age is not None
        left: list[_Thread] = []
        if is_pruned or policy.max_bytes is not None:
            left = self._left(expired if self._dry_run else ())
        self._total = self._done + len(left) * (is_pruned + (policy.max_bytes is not None))
        pruned = []
        for one in left if is_pruned else ():
            plan = self._prune(one)
            if plan is not None:
                pruned.append(plan)
            self._step(1)
        evicted = self._evict(left, pruned) if policy.max_bytes is not None else []
        return RetentionReport(tuple(expired), tuple(evicted), tuple(pruned), spared)

    def _expiring(self, left: int) -> None:
        self._progress(self._done, self._done + left)
        self._done += 1 if left else 0

    def _step(self, threads: int) -> None:
        self._done += threads
        self._progress(self._done, self._total)

    def _left(self, without: Collection[str]) -> list[_Thread]:
        found, gone = [], frozenset(without)
        for minute, number in _scan(self._session, b""):
            with self._session.view() as txn:
                thread_id = directory.find_thread_id(txn, number)
            if thread_id is not None and thread_id not in gone:
                found.append(_Thread(minute, number, thread_id))
        return found

    # -- pruning ----------------------------------------------------------------------------

    def _prune(self, one: _Thread) -> PrunePlan | None:
        """Prune a thread; return what went, or None if nothing did."""
        if one.thread_id in self._protect:
            return None
        prune = partial(
            retention.prune,
            self._session,
            one.thread_id,
            retention.KEEP_LATEST,
            keep_last=self._policy.keep_last,
            older_than=self._policy.max_age,
            cipher=self._cipher,
            progress=lambda _done, _total: self._step(0),
        )
        # Planned first in a view: a thread of which nothing goes costs no commit.
        plan = prune(dry_run=True)
        if not self._dry_run and not plan.is_empty:
            plan = prune(dry_run=False)
        return None if plan.is_empty else plan

    # -- evicting ---------------------------------------------------------------------------

    def _evict(self, threads: Sequence[_Thread], pruned: Sequence[PrunePlan]) -> list[str]:
        """Delete threads, longest idle first, until the others fit; return them."""
        assert self._policy.max_bytes is not None
        plans = {plan.thread_id: plan for plan in pruned}
        sizes: list[tuple[int, int]] = []
        for one in threads:
            records, size = self._measure(one)
            if self._dry_run and one.thread_id in plans:
                size += self._growth(one, plans[one.thread_id])
            sizes.append((records, size))
            self._step(1)
        total = sum(size for _, size in sizes)
        evicted = []
        for one, measured in zip(threads, sizes, strict=True):
            if total <= self._policy.max_bytes:
                break
            with self._session.view() as txn:
                held = leases.is_held(txn, one.thread_id)
            if held or one.thread_id in self._protect:
                continue
            self._step(0)
            if self._dry_run or self._delete(one, measured):
                evicted.append(one.thread_id)
                total -= measured[1]
        if evicted and not self._dry_run:
            self._session.reclaim(partial(self._step, 0))
        return evicted

    def _measure(self, one: _Thread) -> tuple[int, int]:
        with self._session.view() as txn:
            return measure(txn, keys.thread_prefix(layout.TAG_LOG, one.number))

    def _delete(self, one: _Thread, size: tuple[int, int]) -> bool:
        """Take a thread out of sight unless it was active since it was chosen; return whether.

        Its minute does not tell what happened within the minute it was chosen in: its size does,
        and from then on a watch.
        """
        session, number = self._session, one.number

        with session.upkeep(one.thread_id):
            token = session.queue.run(lambda txn: watch.begin(txn, number, this_minute()))

            def is_untouched(txn: Transaction, entry: ThreadEntry) -> bool:
                is_watched = watch.holds(txn, number, token) and not watch.touched(txn, number)
                return is_watched and entry.minute == one.minute

            def end(txn: Transaction) -> bool:
                return watch.holds(txn, number, token) and watch.end(txn, number)

            try:
                is_same = self._measure(one) == size
                return is_same and _retire(session, one.thread_id, number, is_untouched)
            finally:
                while session.queue.run(end):
                    pass

    def _growth(self, one: _Thread, plan: PrunePlan) -> int:
        """Return by how many bytes pruning a thread as planned would change its size."""
        dropped = {stream.checkpoint_ns: set(stream.dropped) for stream in plan.streams}

        def choose(streams: Sequence[Surveyed]) -> list[Choice]:
            chosen = []
            for stream in streams:
                gone = dropped.get(stream.reader.stream.checkpoint_ns, set())
                keep = {cid for cid in stream.cids() if id_from_cid(cid) not in gone}
                chosen.append(Choice(keep))
            return chosen

        session = self._session
        with session.view() as txn:
            drops = choosing.plan_thread(session, txn, one.thread_id, choose, self._cipher)
            rehearsal = Rehearsal(txn)
            for drop in drops:
                # Caches of its own: what is rehearsed is not stored.
                caches = session.fresh_caches()
                reader = StreamReader(rehearsal, drop.stream, self._cipher, caches)
                dropping.apply_steps(reader, drop, dropping.plan_steps(drop))
            while reclaim.reclaim_some(rehearsal):
                pass
            return rehearsal.growth(keys.thread_prefix(layout.TAG_LOG, one.number))


def protected(session: Session, policy: RetentionPolicy | None = None) -> frozenset[str]:
    """Return the threads that the options, or a policy, say are never touched."""
    known = [one.protect for one in (session.options.retention, policy) if one is not None]
    return frozenset().union(*known)
