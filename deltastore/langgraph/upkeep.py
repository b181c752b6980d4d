"""What stays and what goes, as methods of `DeltaStoreSaver`; see `deltastore.upkeep`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from os import PathLike

from langgraph.checkpoint.base import BaseCheckpointSaver

from deltastore.langgraph import configs
from deltastore.langgraph.channels import folds_of
from deltastore.langgraph.core import Core
from deltastore.langgraph.serde import Coder
from deltastore.options import RetentionPolicy, SnapshotBounds
from deltastore.plans import (
    BackupReport,
    CompactionPlan,
    CopyReport,
    PrunePlan,
    RetentionReport,
    VacuumReport,
)
from deltastore.store import Store


class UpkeepMixin(BaseCheckpointSaver[str]):
    """A saver's maintenance, sync and async."""

    _core: Core

    @property
    def store(self) -> Store:
        """The store underneath: listing without values, sizes, verification."""
        return self._core.store

    def flush(self) -> None:
        """Return when every call that returned is on disk, in every durability.

        Raises:
            LostWriteError: Durability is "relaxed", and a write could not be stored.
        """
        self.store.flush()

    async def aflush(self) -> None:
        """As `flush`."""
        await self._core.work(self.flush)

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread in all its namespaces; one that is not there is no error."""
        self.store.delete_thread(configs.thread_id_of(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        await self._core.work(lambda: self.delete_thread(thread_id))

    def prune(  # type: ignore[override]  # it tells what went
        self,
        thread_ids: Sequence[str],
        *,
        strategy: str = "keep_latest",
        keep_last: int | None = None,
        older_than: timedelta | None = None,
        dry_run: bool = False,
    ) -> list[PrunePlan]:
        """Prune threads, one after the other; see `Store.prune`.

        Raises:
            InvalidArgumentError, InvalidTypeError: Of any thread or option; nothing was done.
        """
        names = configs.thread_ids_of(thread_ids)
        options = configs.prune_options(strategy, keep_last, older_than)
        cipher = Coder.of(self.serde).cipher
        return [self.store.prune(name, **options, dry_run=dry_run, cipher=cipher) for name in names]

    async def aprune(  # type: ignore[override]  # as prune
        self,
        thread_ids: Sequence[str],
        *,
        strategy: str = "keep_latest",
        keep_last: int | None = None,
        older_than: timedelta | None = None,
        dry_run: bool = False,
    ) -> list[PrunePlan]:
        """As `prune`."""
        return await self._core.work(
            lambda: self.prune(
                thread_ids,
                strategy=strategy,
                keep_last=keep_last,
                older_than=older_than,
                dry_run=dry_run,
            )
        )

    def copy_thread(  # type: ignore[override]  # it tells what was copied
        self, source_thread_id: str, target_thread_id: str, *, heads_only: bool = False
    ) -> CopyReport:
        """Copy a thread to another id; see `Store.copy_thread`."""
        return self.store.copy_thread(
            configs.thread_id_of(source_thread_id),
            configs.thread_id_of(target_thread_id),
            heads_only=heads_only,
            cipher=Coder.of(self.serde).cipher,
        )

    async def acopy_thread(  # type: ignore[override]  # as copy_thread
        self, source_thread_id: str, target_thread_id: str, *, heads_only: bool = False
    ) -> CopyReport:
        """As `copy_thread`."""
        return await self._core.work(
            lambda: self.copy_thread(source_thread_id, target_thread_id, heads_only=heads_only)
        )

    def delete_for_runs(  # type: ignore[override]  # it tells what went
        self, run_ids: Sequence[str], *, refuse: bool = False, dry_run: bool = False
    ) -> list[PrunePlan]:
        """Delete what runs put and wrote, in all threads; see `Store.delete_for_runs`.

        Raises:
            NeededRunError: `refuse` was asked, and checkpoints that stay need a run's.
        """
        names = configs.run_ids_of(run_ids)
        cipher = Coder.of(self.serde).cipher
        return self.store.delete_for_runs(names, refuse=refuse, dry_run=dry_run, cipher=cipher)

    async def adelete_for_runs(  # type: ignore[override]  # as delete_for_runs
        self, run_ids: Sequence[str], *, refuse: bool = False, dry_run: bool = False
    ) -> list[PrunePlan]:
        """As `delete_for_runs`."""
        return await self._core.work(
            lambda: self.delete_for_runs(run_ids, refuse=refuse, dry_run=dry_run)
        )

    def compact(
        self,
        thread_id: str | None = None,
        bounds: SnapshotBounds | None = None,
        *,
        dry_run: bool = False,
    ) -> CompactionPlan:
        """Compact one thread, or all, with the saver's reducers; see `Store.compact`."""
        coder = Coder.of(self.serde)
        return self.store.compact(
            None if thread_id is None else configs.thread_id_of(thread_id),
            bounds,
            folds=folds_of(self._core.reducers, coder),
            dry_run=dry_run,
            cipher=coder.cipher,
        )

    async def acompact(
        self,
        thread_id: str | None = None,
        bounds: SnapshotBounds | None = None,
        *,
        dry_run: bool = False,
    ) -> CompactionPlan:
        """As `compact`."""
        return await self._core.work(lambda: self.compact(thread_id, bounds, dry_run=dry_run))

    def apply_retention(
        self, policy: RetentionPolicy | None = None, *, dry_run: bool = False
    ) -> RetentionReport:
        """Delete threads that expired and what a policy does not keep; see `Store.apply_retention`.

        Raises:
            InvalidArgumentError: No policy is given, here or to the saver, and there is no ttl.
        """
        cipher = Coder.of(self.serde).cipher
        return self.store.apply_retention(policy, dry_run=dry_run, cipher=cipher)

    async def aapply_retention(
        self, policy: RetentionPolicy | None = None, *, dry_run: bool = False
    ) -> RetentionReport:
        """As `apply_retention`."""
        return await self._core.work(lambda: self.apply_retention(policy, dry_run=dry_run))

    def vacuum(self, *, secure: bool = False) -> VacuumReport:
        """Give the space of what was deleted back to the file system; see `Store.vacuum`."""
        return self.store.vacuum(secure=secure)

    async def avacuum(self, *, secure: bool = False) -> VacuumReport:
        """As `vacuum`."""
        return await self._core.work(lambda: self.vacuum(secure=secure))

    def backup(self, target: str | PathLike[str]) -> BackupReport:
        """Copy the store as it is at one moment to a new place; see `Store.backup`."""
        return self.store.backup(target)

    async def abackup(self, target: str | PathLike[str]) -> BackupReport:
        """As `backup`."""
        return await self._core.work(lambda: self.backup(target))
