"""Prune threads and delete runs: plan in a view, apply beside live traffic, then reclaim.

While a plan is made and applied its thread is watched. What others store meanwhile stays; where it
stands on what was to go, a new plan is made. A call that is interrupted leaves a thread of which
every checkpoint that is still there rebuilds; calling again goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import Final

from deltastore import choosing, directory, dropping, retire, run_index, watch
from deltastore.append import StaleError
from deltastore.choosing import Choose
from deltastore.directory import Stream
from deltastore.drops import Step, StreamDrop
from deltastore.engine.api import Transaction
from deltastore.errors import EngineError, InvalidArgumentError, NeededRunError
from deltastore.log import StreamReader
from deltastore.plans import Progress, PrunePlan, StreamPlan
from deltastore.reclaim import RECORDS_MAX
from deltastore.session import Session, this_minute
from deltastore.types import Cipher

KEEP_LATEST: Final = "keep_latest"
STRATEGIES: Final = (KEEP_LATEST, "delete", "delete_all")
_ATTEMPTS_MAX: Final = 32
_OVERHEAD_RECORDS: Final = 8  # of a transaction: the thread's entry, the watch, the lists


def prune(
    session: Session,
    thread_id: str,
    strategy: str,
    *,
    keep_last: int | None,
    older_than: timedelta | None,
    dry_run: bool,
    cipher: Cipher | None,
    progress: Progress,
) -> PrunePlan:
    """Prune one thread; see `Store.prune`."""
    if strategy not in STRATEGIES:
        raise InvalidArgumentError(
            f"prune strategy must be one of {', '.join(STRATEGIES)} (got {strategy!r:.60})"
        )
    if strategy != KEEP_LATEST:
        if keep_last is not None or older_than is not None:
            raise InvalidArgumentError(
                f"keep_last and older_than choose what stays; strategy {strategy!r} leaves nothing"
            )
        return delete(session, thread_id, dry_run=dry_run, cipher=cipher, progress=progress)
    if keep_last is not None and keep_last < 1:
        raise InvalidArgumentError(
            f"keep_last must be at least 1 (got {keep_last}); strategy 'delete' leaves nothing"
        )
    younger = None
    if older_than is not None:
        if older_than < timedelta(0):
            raise InvalidArgumentError(f"older_than must not be negative (got {older_than})")
        younger = int((time.time() - older_than.total_seconds()) * 1_000)
    choose = choosing.keep_newest(keep_last or 1, younger)
    work = _Work(session, thread_id, choose, cipher, progress)
    return work.plan() if dry_run else work.run()


def delete(
    session: Session,
    thread_id: str,
    *,
    dry_run: bool,
    cipher: Cipher | None,
    progress: Progress,
) -> PrunePlan:
    """Delete a thread; return what goes, with `deletes` False where there is none."""
    work = _Work(session, thread_id, choosing.nothing, cipher, progress)
    plan = work.plan()
    if not dry_run:
        session.queue.run(lambda txn: retire.retire_thread(txn, thread_id, session.reader))
        work.reclaim(plan.records, 0)
    return plan


def delete_for_runs(
    session: Session,
    run_ids: Sequence[str],
    *,
    refuse: bool,
    dry_run: bool,
    cipher: Cipher | None,
    progress: Progress,
) -> list[PrunePlan]:
    """Delete what some runs put and wrote; see `Store.delete_for_runs`."""
    choose = choosing.without_runs(frozenset(run_ids))
    with session.view() as txn:
        found = [_threads_of(txn, run_id, cipher) for run_id in run_ids]
    thread_ids = dict.fromkeys(thread_id for threads in found for thread_id in threads)
    works = [_Work(session, thread_id, choose, cipher, progress) for thread_id in thread_ids]
    plans = [work.plan() for work in works] if dry_run or refuse else []
    if refuse:
        for plan in plans:
            _refuse(plan)
    if dry_run:
        return [plan for plan in plans if not plan.is_empty]
    plans = [work.run(refuse=refuse) for work in works]
    return [plan for plan in plans if not plan.is_empty]


def _threads_of(txn: Transaction, run_id: str, cipher: Cipher | None) -> list[str]:
    found = []
    for number in run_index.threads_of(txn, run_id, cipher):
        thread_id = directory.find_thread_id(txn, number)
        if thread_id is not None:
            found.append(thread_id)
    return found


def _refuse(plan: PrunePlan) -> None:
    for stream in plan.streams:
        if stream.held:
            raise NeededRunError(
                f"thread {plan.thread_id!r}, namespace {stream.checkpoint_ns!r}: checkpoints that "
                f"stay need what a run put or wrote at {stream.held[0]!r}; nothing was deleted. "
                "Without refuse, what they need is kept and the rest goes"
            )


class _Work:
    """One thread's pruning."""

    def __init__(
        self,
        session: Session,
        thread_id: str,
        choose: Choose,
        cipher: Cipher | None,
        progress: Progress,
    ) -> None:
        self._session = session
        self._thread_id = thread_id
        self._choose = choose
        self._cipher = cipher
        self._progress = progress

    def plan(self) -> PrunePlan:
        """Return what would go."""
        with self._session.view() as txn:
            return self._summary(self._drops(txn))

    def run(self, *, refuse: bool = False) -> PrunePlan:
        """Drop what goes and reclaim it; return what went.

        Raises:
            NeededRunError: `refuse`, and something stays since others need it; nothing went.
        """
        done: list[PrunePlan] = []
        with self._session.upkeep(self._thread_id):
            for attempt in range(_ATTEMPTS_MAX):
                self._session.back_off(attempt)
                number = self._number()
                if number is None:
                    return _joined(self._thread_id, done)
                if self._attempt(number, done, refuse=refuse):
                    return _joined(self._thread_id, done)
        raise EngineError(
            f"thread {self._thread_id!r} was changed {_ATTEMPTS_MAX} times while its pruning was "
            "planned; what is still there is whole, the call may be repeated"
        )

    def _attempt(self, number: int, done: list[PrunePlan], *, refuse: bool) -> bool:
        """As `run`; False if what others stored meanwhile asks for another plan."""
        token = self._session.queue.run(partial(watch.begin, thread=number, minute=this_minute()))
        drops: list[StreamDrop] = []
        left: dict[int, set[bytes]] = {}
        try:
            with self._session.view() as txn:
                drops = self._drops(txn)
            plan = self._summary(drops)
            if refuse:
                _refuse(plan)
            if plan.is_empty:
                done.append(plan)
                return True
            left.update({drop.stream.namespace: drop.pending() for drop in drops})
            steps = self._apply(number, token, drops, left, plan)
        except StaleError:
            for drop in drops:
                drop.order = [cid for cid in drop.order if cid not in left[drop.stream.namespace]]
                drop.early = drop.remains = []
            done.append(self._summary(drops))
            return False
        finally:
            while self._session.queue.run(partial(watch.end_own, thread=number, token=token)):
                pass
        done.append(plan)
        self.reclaim(steps + plan.records, steps)
        return True

    def reclaim(self, total: int, done: int) -> None:
        """Delete the records of what is out of sight."""

        def step() -> None:
            nonlocal done
            done = min(done + RECORDS_MAX, total)
            self._progress(done, total)

        self._session.reclaim(step)

    def _number(self) -> int | None:
        with self._session.view() as txn:
            entry = directory.find_thread(txn, self._thread_id)
        return None if entry is None or entry.number == 0 else entry.number

    def _drops(self, txn: Transaction) -> list[StreamDrop]:
        return choosing.plan_thread(self._session, txn, self._thread_id, self._choose, self._cipher)

    def _summary(self, drops: Sequence[StreamDrop]) -> PrunePlan:
        streams = tuple(drop.summary() for drop in drops)
        is_left = any(drop.keep or drop.holds_early() for drop in drops)
        deletes = any(drop.order for drop in drops) and not is_left
        return PrunePlan(self._thread_id, deletes, streams)

    def _apply(
        self,
        number: int,
        token: bytes,
        drops: Sequence[StreamDrop],
        left: dict[int, set[bytes]],
        plan: PrunePlan,
    ) -> int:
        """Apply all steps in small transactions; return how many there were."""
        steps = [(drop, step) for drop in drops for step in dropping.plan_steps(drop)]
        at = 0
        for batch in _batches(steps):
            is_first, at = at == 0, at + len(batch)

            def op(
                txn: Transaction,
                batch: list[tuple[StreamDrop, Step]] = batch,
                is_first: bool = is_first,
                is_last: bool = at == len(steps),
            ) -> None:
                self._check(txn, number, token, drops, left, deletes=plan.deletes)
                if is_first:
                    dropping.note_deleted(txn, drops)
                for _, group in groupby(batch, key=lambda one: one[0].stream.namespace):
                    owned = list(group)
                    drop = owned[0][0]
                    reader = self._reader(txn, drop.stream)
                    dropping.apply_steps(reader, drop, [step for _, step in owned])
                if is_last and plan.deletes:
                    retire.retire_thread(txn, self._thread_id, self._session.reader)

            self._session.queue.run(op)
            for drop, step in batch:
                if step.ends:
                    left[drop.stream.namespace].discard(step.cid)
            self._progress(at, len(steps) + plan.records)
        return len(steps)

    def _reader(self, txn: Transaction, stream: Stream) -> StreamReader:
        return self._session.reader(txn, stream, self._cipher)

    def _check(
        self,
        txn: Transaction,
        number: int,
        token: bytes,
        drops: Sequence[StreamDrop],
        left: dict[int, set[bytes]],
        *,
        deletes: bool,
    ) -> None:
        """Raise `StaleError` if what others stored since the view concerns the plan."""
        entry = directory.find_thread(txn, self._thread_id)
        if entry is None or entry.number != number:
            raise StaleError  # it was deleted, and may have started anew
        if not watch.renew(txn, number, token, this_minute()):
            raise StaleError
        by_namespace = {drop.stream.namespace: drop for drop in drops}
        touched = watch.touched(txn, number)
        if touched and deletes:
            raise StaleError
        for namespace, cid in touched:
            drop = by_namespace.get(namespace)
            if drop is not None:
                reader = self._reader(txn, drop.stream)
                dropping.check_drop(reader, drop, left[namespace], cid)


def _batches(
    steps: Sequence[tuple[StreamDrop, Step]],
) -> Iterator[list[tuple[StreamDrop, Step]]]:
    """Yield steps of up to `RECORDS_MAX` records together; a single one may be of more."""
    batch: list[tuple[StreamDrop, Step]] = []
    records = _OVERHEAD_RECORDS
    for drop, step in steps:
        if batch and records + step.records > RECORDS_MAX:
            yield batch
            batch, records = [], _OVERHEAD_RECORDS
        batch.append((drop, step))
        records += step.records
    if batch:
        yield batch


def _joined(thread_id: str, plans: Sequence[PrunePlan]) -> PrunePlan:
    """Return what several plans, each made where the one before was given up, did together."""
    if len(plans) == 1:
        return plans[0]
    streams: dict[str, StreamPlan] = {}
    for plan in plans:
        for new in plan.streams:
            old = streams.get(new.checkpoint_ns)
            streams[new.checkpoint_ns] = (
                new
                if old is None
                else replace(
                    new,
                    dropped=tuple(sorted({*old.dropped, *new.dropped}, reverse=True)),
                    writes=old.writes + new.writes,
                    records=old.records + new.records,
                    bytes=old.bytes + new.bytes,
                )
            )
    return PrunePlan(thread_id, bool(plans) and plans[-1].deletes, tuple(streams.values()))
