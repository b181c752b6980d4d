"""Savers with one rule broken, and the law that has to catch each.

They stand on LangGraph's in-memory saver or on this package's, which hold the law named. Most break
their rule in a way a real saver did, or a quick one would. The savers named *Shelved* keep their
checkpoints in a file, so that there is a restart to survive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver

from deltastore import DeltaStoreSaver
from deltastore.testing import Saver
from deltastore.testing.saver_suite import StrictSaverSuite
from tests.conformance.broken_stores import (
    AsyncListingHoldsTheLock,
    ClosesNever,
    CopiesHeads,
    DryRunPrunes,
    ErrorsSwallowed,
    LastCallerWins,
    ListingHoldsTheLock,
    OddMetadataTaken,
    OpensNever,
    PruneKeepsOne,
    RunsDeletedByThread,
    Shelved,
    ShelvedCountsAnew,
    ShelvedDeletesNothing,
    ShelvedTasksRetry,
    ShelvedWithoutEarlyWrites,
    ShelvedWithoutPaths,
    TornReads,
    UnknownIdsVanish,
    UpdatesLost,
    moved,
)

# Order, retries and arrival of writes.


class PathsDropped(InMemorySaver):
    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        super().put_writes(config, writes, task_id)


class PathsDroppedAsync(InMemorySaver):
    async def aput_writes(
        self, config: Any, writes: Any, task_id: str, task_path: str = ""
    ) -> None:
        super().put_writes(config, writes, task_id)


class IndexAsText(InMemorySaver):
    def _ordered_writes(self, *place: str) -> Any:
        stored = self.writes.get(place, {})
        return [
            stored[key] for key in sorted(stored, key=lambda k: (stored[k][3], k[0], str(k[1])))
        ]


class RetriedWriteWins(InMemorySaver):
    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        place = config["configurable"]
        kept = self.writes[place["thread_id"], place["checkpoint_ns"], place["checkpoint_id"]]
        for key in [key for key in kept if key[0] == task_id]:
            del kept[key]
        super().put_writes(config, writes, task_id, task_path)


class OneWritePerChannel(InMemorySaver):
    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        super().put_writes(config, [*dict(writes).items()], task_id, task_path)


class TasksInLowerCase(InMemorySaver):
    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        super().put_writes(config, writes, task_id.lower(), task_path)


class EarlyWritesForgotten(InMemorySaver):
    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        returned = super().put(config, checkpoint, metadata, new_versions)
        self.writes.pop(tuple(returned["configurable"].values()), None)
        return returned


class FalsyWritesDropped(InMemorySaver):
    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        super().put_writes(config, [write for write in writes if write[1]], task_id, task_path)


# Reading and listing.


class FilterIgnored(InMemorySaver):
    def list(self, config: Any, *, filter: Any = None, **how: Any) -> Iterator[CheckpointTuple]:
        return super().list(config, **how)


class LimitZeroIsAll(InMemorySaver):
    def list(self, config: Any, *, limit: Any = None, **how: Any) -> Iterator[CheckpointTuple]:
        return super().list(config, limit=limit or None, **how)


class LimitBeforeFilter(InMemorySaver):
    def list(self, config: Any, *, filter: Any = None, **how: Any) -> Iterator[CheckpointTuple]:
        for item in super().list(config, **how):
            if all(item.metadata.get(key) == value for key, value in (filter or {}).items()):
                yield item


class LimitBeforeBefore(InMemorySaver):
    def list(self, config: Any, *, before: Any = None, **how: Any) -> Iterator[CheckpointTuple]:
        for item in super().list(config, **how):
            bound = (before or {"configurable": {}})["configurable"].get("checkpoint_id", "~")
            if item.config["configurable"]["checkpoint_id"] < bound:
                yield item


class LimitPerThread(InMemorySaver):
    def list(self, config: Any, **how: Any) -> Iterator[CheckpointTuple]:
        for thread_id in [*self.storage] if config is None else [None]:
            one = {"configurable": {"thread_id": thread_id}} if config is None else config
            yield from super().list(one, **how)


class NoNamespaceIsRoot(InMemorySaver):
    def list(self, config: Any, **how: Any) -> Iterator[CheckpointTuple]:
        if config is not None:
            config = moved(config, checkpoint_ns=config["configurable"].get("checkpoint_ns", ""))
        return super().list(config, **how)


class ListedWithoutWrites(InMemorySaver):
    def list(self, config: Any, **how: Any) -> Iterator[CheckpointTuple]:
        return (item._replace(pending_writes=[]) for item in super().list(config, **how))


class RunIdsForgotten(InMemorySaver):
    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        bare = {"configurable": config["configurable"]}
        return super().put(bare, checkpoint, metadata, new_versions)


class ListedOldestFirst(DeltaStoreSaver):
    def list(self, config: Any, **how: Any) -> Iterator[CheckpointTuple]:
        return reversed([*super().list(config, **how)])


# Configs.


class ChangesConfigs(InMemorySaver):
    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        config["configurable"].pop("extra", None)
        return super().get_tuple(config)


class KeepsConfigs(InMemorySaver):
    """Remembers the parent's config as it came, not what it said."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self.__dict__.setdefault("parents", {})[checkpoint["id"]] = config
        return super().put(config, checkpoint, metadata, new_versions)

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        found = super().get_tuple(config)
        return found and found._replace(parent_config=self.parents[found.checkpoint["id"]])


# Names, forks and history.


class NamesJoined(InMemorySaver):
    """Threads and namespaces in one key, joined by a NUL."""

    def _joined(self, config: Any) -> Any:
        place = config["configurable"]
        thread_id = f"{place['thread_id']}\0{place.get('checkpoint_ns', '')}"
        return moved(config, thread_id=thread_id, checkpoint_ns="")

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        super().put(self._joined(config), checkpoint, metadata, new_versions)
        return moved(config, checkpoint_id=checkpoint["id"])

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        super().put_writes(self._joined(config), writes, task_id, task_path)

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        return super().get_tuple(self._joined(config))


class WritesByIdAlone(InMemorySaver):
    """One table of writes for all threads and namespaces, by checkpoint id."""

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        super().put_writes(moved(config, thread_id="*"), writes, task_id, task_path)

    def _ordered_writes(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> Any:
        return super()._ordered_writes("*", "", checkpoint_id)


class ParentIsTheLatest(InMemorySaver):
    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        latest = self.get_tuple(moved(config, checkpoint_id=None))
        if latest is not None and config["configurable"].get("checkpoint_id"):
            config = moved(config, checkpoint_id=latest.checkpoint["id"])
        return super().put(config, checkpoint, metadata, new_versions)


class BranchesShareVersions(InMemorySaver):
    """Versions cut to their number, by which two branches are one."""

    def _cut(self, versions: Any) -> Any:
        return {channel: str(version)[:1] for channel, version in versions.items()}

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        checkpoint = {**checkpoint, "channel_versions": self._cut(checkpoint["channel_versions"])}
        return super().put(config, checkpoint, metadata, self._cut(new_versions))


class FirstBranchTakesWrites(InMemorySaver):
    """Writes are handed on to the first child and gone for the second."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        parent = config["configurable"].get("checkpoint_id")
        self.__dict__.setdefault("firsts", {}).setdefault(parent, checkpoint["id"])
        return super().put(config, checkpoint, metadata, new_versions)

    def get_delta_channel_history(self, *, config: Any, channels: Sequence[str]) -> Any:
        found = super().get_delta_channel_history(config=config, channels=channels)
        if config["configurable"]["checkpoint_id"] not in self.firsts.values():
            return {channel: {"writes": []} for channel in found}
        return found


class WalksAHundred(InMemorySaver):
    def get_delta_channel_history(self, *, config: Any, channels: Sequence[str]) -> Any:
        found = super().get_delta_channel_history(config=config, channels=channels)
        oldest = sorted(self.storage["t"][""])[-101:][0]
        for entry in found.values():
            entry["writes"] = [write for write in entry["writes"] if str(write[2]) >= oldest]
        return found


class HistoryByTask(DeltaStoreSaver):
    def get_delta_channel_history(self, *, config: Any, channels: Sequence[str]) -> Any:
        found = super().get_delta_channel_history(config=config, channels=channels)
        return {c: {**one, "writes": sorted(one["writes"], key=repr)} for c, one in found.items()}


BOTH = ("sync", "async")
SYNC = ("sync",)
ASYNC = ("async",)
CAUGHT_BY: list[tuple[Callable[..., Saver], str, tuple[str, ...]]] = [
    (PathsDropped, "writes are ordered by path task and index", BOTH),
    (PathsDroppedAsync, "writes are ordered by path task and index", ASYNC),
    (IndexAsText, "writes are ordered by path task and index", BOTH),
    (RetriedWriteWins, "first regular write stays", BOTH),
    (OneWritePerChannel, "writes of one batch keep order and channels", BOTH),
    (TasksInLowerCase, "writes of other tasks and checkpoints are apart", BOTH),
    (EarlyWritesForgotten, "early writes keep the rules of others", BOTH),
    (EarlyWritesForgotten, "writes may come before their checkpoint", BOTH),
    (FalsyWritesDropped, "falsy values are values", BOTH),
    (FilterIgnored, "all keys of a filter match by type", BOTH),
    (FilterIgnored, "run ids and config scalars can be filtered by", BOTH),
    (LimitZeroIsAll, "limit counts what the filter left", BOTH),
    (LimitBeforeFilter, "limit counts what the filter left", BOTH),
    (LimitBeforeBefore, "pages meet every checkpoint once", BOTH),
    (LimitPerThread, "filter before and limit act together", BOTH),
    (NoNamespaceIsRoot, "missing namespace lists all and the empty one is root", BOTH),
    (ListedWithoutWrites, "listed tuples are as they read", BOTH),
    (RunIdsForgotten, "run ids and config scalars can be filtered by", BOTH),
    (ListedOldestFirst, "listing is newest first and before is exclusive", BOTH),
    (ChangesConfigs, "reading changes no argument", BOTH),
    (KeepsConfigs, "changing a config later changes nothing", BOTH),
    (NamesJoined, "names never reach a neighbour", BOTH),
    (WritesByIdAlone, "same ids in other streams are others", BOTH),
    (ParentIsTheLatest, "branch from the past is the latest and has that past", BOTH),
    (BranchesShareVersions, "branches show their own values", BOTH),
    (FirstBranchTakesWrites, "writes of a shared parent reach every branch", BOTH),
    (WalksAHundred, "long threads are read to their beginning", BOTH),
    (HistoryByTask, "writes are ordered by path task and index", BOTH),
    (UpdatesLost, "branches grown at once are whole", BOTH),
    (LastCallerWins, "tasks that write at once are all kept", BOTH),
    (TornReads, "readers beside a writer see whole checkpoints", BOTH),
    (ErrorsSwallowed, "batch with an unstorable value leaves nothing", SYNC),
    (OddMetadataTaken, "metadata that cannot be stored leaves nothing", SYNC),
    (UnknownIdsVanish, "thread ids of other types are refused or found", SYNC),
    (DryRunPrunes, "a dry run tells what is then done", BOTH),
    (PruneKeepsOne, "keep last counts checkpoints not anchors", BOTH),
    (CopiesHeads, "a copy is whole and reads as its source", BOTH),
    (RunsDeletedByThread, "exactly the runs checkpoints go over all threads", BOTH),
    (ShelvedDeletesNothing, "restart undoes no deletion", BOTH),
    (ShelvedWithoutEarlyWrites, "restart keeps everything", BOTH),
    (ShelvedWithoutPaths, "history is the same after a restart", BOTH),
    (ShelvedTasksRetry, "retries after a restart keep the rules", BOTH),
    (ShelvedCountsAnew, "versions grow over a restart", BOTH),
]
HANGS: list[tuple[Callable[..., Saver], str, tuple[str, ...]]] = [
    (ListingHoldsTheLock, "listing left open blocks no write", BOTH),
    (ListingHoldsTheLock, "listing left open blocks no read", BOTH),
    (AsyncListingHoldsTheLock, "listing left open blocks no write", ASYNC),
    (ClosesNever, "absent checkpoint is none", BOTH),
    (OpensNever, "absent checkpoint is none", BOTH),
]


def suite_on(saver: Any) -> type[StrictSaverSuite]:
    """Return a suite for one of the savers here."""

    class Suite(StrictSaverSuite):
        persistent = issubclass(saver, Shelved)

        def open(self, where: Path) -> Saver:
            if self.persistent:
                return saver(where)
            return saver.ephemeral() if issubclass(saver, DeltaStoreSaver) else saver()

    return Suite


def hanging(where: Path) -> Saver:
    """A target of the command line: both faces hang in a listing."""
    return ListingHoldsTheLock()
