"""What stays in a store and what goes: the half of `Store` that operators use.

Everything here works beside live traffic, in transactions of at most 1,000 records, and may be
interrupted without harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from os import PathLike

from deltastore import compaction, copying, expiry, retention, retire
from deltastore.folding import Fold
from deltastore.options import RetentionPolicy, SnapshotBounds
from deltastore.plans import (
    BackupReport,
    CompactionPlan,
    CopyReport,
    Progress,
    PrunePlan,
    RetentionReport,
    VacuumReport,
    no_progress,
)
from deltastore.session import Session
from deltastore.types import Cipher


class Upkeep:
    """Maintenance of a store; `Store` is one, and adds what graphs use."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with everything in it; it is gone at the first commit, space follows.

        A later put without a parent starts it anew; one on a deleted parent raises
        `DeletedParentError`.
        """
        self._begin(writes=True)
        session = self._session
        with session.slow.timed("delete_thread", thread_id):
            session.settle(thread_id)
            session.queue.run(lambda txn: retire.retire_thread(txn, thread_id, session.reader))
            session.reclaim()

    def prune(
        self,
        thread_id: str,
        strategy: str = retention.KEEP_LATEST,
        *,
        keep_last: int | None = None,
        older_than: timedelta | None = None,
        dry_run: bool = False,
        cipher: Cipher | None = None,
        progress: Progress = no_progress,
    ) -> PrunePlan:
        """Drop checkpoints of a thread that those which stay do not need; a missing one is empty.

        Args:
            strategy: "keep_latest" keeps the newest of each namespace; "delete" and "delete_all"
                delete the thread.
            keep_last: Keep this many of each namespace, at least 1.
            older_than: Keep what is younger as well.
            dry_run: Return what would go, and do nothing.

        Raises:
            InvalidArgumentError: An argument is none of these; nothing was done.

        Values, writes and metadata of what stays, and what it rebuilds to, do not change. What is
        stored meanwhile stays too. Cost: a scan of the thread, and what goes.
        """
        self._begin(writes=not dry_run)
        with self._session.slow.timed("prune", thread_id):
            return retention.prune(
                self._session,
                thread_id,
                strategy,
                keep_last=keep_last,
                older_than=older_than,
                dry_run=dry_run,
                cipher=cipher,
                progress=progress,
            )

    def delete_for_runs(
        self,
        run_ids: Sequence[str],
        *,
        refuse: bool = False,
        dry_run: bool = False,
        cipher: Cipher | None = None,
        progress: Progress = no_progress,
    ) -> list[PrunePlan]:
        """Delete the checkpoints some runs put, and what they wrote at others, over all threads.

        What checkpoints of other runs are rebuilt from stays, in anchors: their history still holds
        those writes.

        Args:
            refuse: Raise where checkpoints that stay need a run's, and do nothing at all.
            dry_run: Return what would go, and do nothing.

        Raises:
            NeededRunError: See `refuse`.

        Returns:
            What went, one plan for each thread of which anything did.

        Cost: a scan of each thread the runs touched; no other is read.
        """
        self._begin(writes=not dry_run)
        with self._session.slow.timed("delete_for_runs"):
            return retention.delete_for_runs(
                self._session,
                run_ids,
                refuse=refuse,
                dry_run=dry_run,
                cipher=cipher,
                progress=progress,
            )

    def copy_thread(
        self,
        source: str,
        target: str,
        *,
        heads_only: bool = False,
        cipher: Cipher | None = None,
        progress: Progress = no_progress,
    ) -> CopyReport:
        """Copy a thread to another id; return what was copied. A missing source copies nothing.

        The copy is seen whole or not at all, and depends on its source in nothing.

        Args:
            heads_only: Copy what `prune` with "keep_latest" would keep, with its anchors, and not
                the history.

        Raises:
            InvalidArgumentError: The target is the source, or holds something; nothing was done.

        Cost: each record is read, sealed and written once; memory does not grow with the thread.
        """
        self._session.begin_write()
        with self._session.slow.timed("copy_thread", source):
            return copying.copy_thread(
                self._session,
                source,
                target,
                heads_only=heads_only,
                cipher=cipher,
                progress=progress,
            )

    def apply_retention(
        self,
        policy: RetentionPolicy | None = None,
        *,
        dry_run: bool = False,
        cipher: Cipher | None = None,
        progress: Progress = no_progress,
    ) -> RetentionReport:
        """Delete threads that expired, prune the others, and delete those that do not fit.

        Expired are threads idle for longer than the `ttl` the store was opened with. The rest is
        the policy's, in this order: `keep_last` and `max_age` as `prune` does, then `max_bytes`.
        What the options' policy protects is left alone whichever policy is given. A thread that
        becomes active meanwhile is not deleted. Applying twice changes nothing.

        Args:
            policy: None for the one the store was opened with.
            dry_run: Return what would go, and do nothing.
            progress: Called with the threads seen and those there are, over all passes.

        Raises:
            InvalidArgumentError: There is neither a policy nor a `ttl`; nothing was done.

        Cost: a scan of what expired; with a policy that keeps less than all, a scan of every
            thread, two with `max_bytes`. Memory: about 300 bytes a thread.
        """
        self._begin(writes=not dry_run)
        with self._session.slow.timed("apply_retention"):
            return expiry.apply_retention(
                self._session,
                policy or self._session.options.retention,
                self._session.options.ttl,
                dry_run=dry_run,
                cipher=cipher,
                progress=progress,
            )

    def _begin(self, *, writes: bool) -> None:
        """Begin an operation on all that was acknowledged."""
        if writes:
            self._session.begin_write()
        else:
            self._session.setup()
        self._session.settle(None)

    def compact(
        self,
        thread_id: str | None = None,
        bounds: SnapshotBounds | None = None,
        *,
        folds: Mapping[str, Fold] | None = None,
        dry_run: bool = False,
        cipher: Cipher | None = None,
        progress: Progress = no_progress,
    ) -> CompactionPlan:
        """Bring chains of deltas, and histories of delta channels, back under bounds.

        Args:
            thread_id: None for every thread.
            bounds: None for those the store was opened with.
            folds: By channel, what makes a snapshot of a seed and writes; histories of other
                channels are left as they are, and told in the plan.
            dry_run: Return what would be done, and do nothing.

        Cost: decodes every header, write and value record of a thread; rebuilds what is written.
        """
        self._begin(writes=not dry_run)
        with self._session.slow.timed("compact", thread_id):
            return compaction.compact(
                self._session,
                thread_id,
                bounds,
                folds or {},
                dry_run=dry_run,
                cipher=cipher,
                progress=progress,
            )

    def vacuum(self, *, secure: bool = False, progress: Progress = no_progress) -> VacuumReport:
        """Write everything into a new file without free pages, and use that from then on.

        Args:
            secure: Leave nothing that was deleted before the call in any file of the store.

        Raises:
            EngineError: Another vacuum of the store is running.
            StoreFullError: No room for a second copy of what is stored; nothing was changed.

        Cost: see docs/engines.md.
        """
        self._session.begin_write()
        with self._session.slow.timed("vacuum"):
            self._session.reclaim()  # what waits to be deleted need not be copied
            return self._session.engine.vacuum(secure=secure, progress=progress)

    def backup(
        self, target: str | PathLike[str], *, progress: Progress = no_progress
    ) -> BackupReport:
        """Copy the store as it is at one moment to a new place, beside whoever uses it.

        The copy is a store of its own, without free pages; it opens like any other. It is there
        whole, and on disk, when this returns. Records are copied as they are: `Store.verify` of
        the copy tells whether one is damaged, and `restore` asks it.

        Args:
            target: Absent, or an empty directory; made 0700.
            progress: Called with records copied and records there are, while a view is open: it
                must not use the store.

        Raises:
            StorePathError: The target holds something, lies in the store, or cannot be made.
            StoreFullError: No room; nothing is left of the copy.
            CorruptionError: Damage hides records.
            EngineError: The store has no files, or a backup to the same place is running.

        Cost: all is read and written once. The pages of the view's moment are kept while it runs:
            beside many writes the file grows.
        """
        self._begin(writes=False)
        with self._session.slow.timed("backup"):
            return self._session.engine.backup(target, progress=progress)
