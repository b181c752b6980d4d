"""Savers broken where it takes several calls at once, an error, a hang or a restart to see it, and
savers that maintain wrongly. As `broken_savers`, which names the law that has to catch each.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple, get_checkpoint_metadata
from langgraph.checkpoint.memory import InMemorySaver

from deltastore import DeltaStoreSaver


def moved(config: Any, **changes: Any) -> Any:
    """Return a config with a part of its place changed."""
    return {**config, "configurable": {**config["configurable"], **changes}}


# Many at once.


class Meeting:
    """Holds a call back until another one has come, so that the two overlap for certain."""

    def __init__(self) -> None:
        self.calls = 0
        self.another = threading.Condition()

    def wait_for_another(self) -> None:
        """Wait; the last call of all finds no other, and gives up soon."""
        with self.another:
            self.calls += 1
            mine = self.calls
            self.another.notify_all()
            self.another.wait_for(lambda: self.calls > mine, timeout=0.1)


class UpdatesLost(InMemorySaver):
    """Reads all of a thread, adds to it and writes all of it back."""

    def __init__(self) -> None:
        super().__init__()
        self.meeting = Meeting()

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        kept = self._all_of(config)
        self.meeting.wait_for_another()
        return self._write_back(kept, config, checkpoint, metadata, new_versions)

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        kept = self._all_of(config)
        await asyncio.sleep(0)
        return self._write_back(kept, config, checkpoint, metadata, new_versions)

    def _all_of(self, config: Any) -> Any:
        return dict(self.storage[config["configurable"]["thread_id"]][""])

    def _write_back(self, kept: Any, config: Any, checkpoint: Any, *rest: Any) -> Any:
        returned = InMemorySaver.put(self, config, checkpoint, *rest)
        thread = self.storage[config["configurable"]["thread_id"]]
        thread[""] = {**kept, checkpoint["id"]: thread[""][checkpoint["id"]]}
        return returned


class LastCallerWins(InMemorySaver):
    """Keeps the task under way on the object, where another call finds it."""

    def __init__(self) -> None:
        super().__init__()
        self.meeting = Meeting()

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.under_way = task_id, task_path
        self.meeting.wait_for_another()
        super().put_writes(config, writes, *self.under_way)

    async def aput_writes(
        self, config: Any, writes: Any, task_id: str, task_path: str = ""
    ) -> None:
        self.under_way = task_id, task_path
        await asyncio.sleep(0)
        InMemorySaver.put_writes(self, config, writes, *self.under_way)


class TornReads(InMemorySaver):
    """Reads the header of the latest, and then the values of what is the latest by then."""

    def __init__(self) -> None:
        super().__init__()
        self.meeting = Meeting()

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        returned = super().put(config, checkpoint, metadata, new_versions)
        self.meeting.wait_for_another()
        return returned

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        return InMemorySaver.put(self, config, checkpoint, metadata, new_versions)

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        header = super().get_tuple(config)
        if "checkpoint_id" not in config["configurable"]:
            self.meeting.wait_for_another()
        return self._torn(header, super().get_tuple(config))

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        header = InMemorySaver.get_tuple(self, config)
        for _ in range(2):  # the writer puts at every second turn
            await asyncio.sleep(0)
        return self._torn(header, InMemorySaver.get_tuple(self, config))

    def _torn(self, header: Any, values: Any) -> CheckpointTuple | None:
        shown = values and values.checkpoint["channel_values"]
        return header and header._replace(checkpoint={**header.checkpoint, "channel_values": shown})


# What cannot be stored.


class ErrorsSwallowed(DeltaStoreSaver):
    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        try:
            super().put_writes(config, writes, task_id, task_path)
        except TypeError:
            pass


class OddMetadataTaken(DeltaStoreSaver):
    """Stores the checkpoint first and looks at its metadata after that."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        returned = super().put(config, checkpoint, {}, new_versions)
        self.serde.dumps_typed(get_checkpoint_metadata(config, metadata))
        return super().put(config, checkpoint, metadata, new_versions) and returned


class UnknownIdsVanish(DeltaStoreSaver):
    """Returns from a put that was refused."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        try:
            return super().put(config, checkpoint, metadata, new_versions)
        except (TypeError, ValueError):
            return moved(config, checkpoint_id=checkpoint.get("id"))


# Hangs.


class ListingHoldsTheLock(InMemorySaver):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def list(self, config: Any, **how: Any) -> Iterator[CheckpointTuple]:
        with self.lock:
            yield from super().list(config, **how)

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        with self.lock:
            return super().get_tuple(config)

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        with self.lock:
            return super().put(config, checkpoint, metadata, new_versions)


class AsyncListingHoldsTheLock(InMemorySaver):
    def __init__(self) -> None:
        super().__init__()
        self.lock = asyncio.Lock()

    async def alist(self, config: Any, **how: Any) -> AsyncIterator[CheckpointTuple]:
        async with self.lock:
            for item in super().list(config, **how):
                yield item

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        async with self.lock:
            return super().put(config, checkpoint, metadata, new_versions)


class ClosesNever(InMemorySaver):
    def close(self) -> None:
        threading.Event().wait()


class OpensNever(InMemorySaver):
    def __init__(self) -> None:
        super().__init__()
        threading.Event().wait()


# Maintenance.


class DryRunPrunes(DeltaStoreSaver):
    def prune(self, thread_ids: Any, *, dry_run: bool = False, **how: Any) -> Any:
        return super().prune(thread_ids, **how)


class PruneKeepsOne(DeltaStoreSaver):
    def prune(self, thread_ids: Any, *, keep_last: Any = None, **how: Any) -> Any:
        return super().prune(thread_ids, **how)


class CopiesHeads(DeltaStoreSaver):
    def copy_thread(self, source: str, target: str, *, heads_only: bool = False) -> Any:
        return super().copy_thread(source, target, heads_only=True)


class RunsDeletedByThread(DeltaStoreSaver):
    """Deletes every thread a run was in."""

    def delete_for_runs(self, run_ids: Any, **how: Any) -> Any:
        for run_id in run_ids:
            for item in [*self.list(None, filter={"run_id": run_id})]:
                self.delete_thread(item.config["configurable"]["thread_id"])


# Restarts.


class Shelved(InMemorySaver):
    """Sound: what it holds is in a file when it is closed, and read when it is opened."""

    def __init__(self, where: Path) -> None:
        super().__init__()
        self.file = where / "shelf"
        if self.file.exists():
            self.fill(*pickle.loads(self.file.read_bytes()))

    def fill(self, checkpoints: Any, writes: Any, blobs: Any) -> None:
        """Take what was stored."""
        for thread_id, namespaces in checkpoints.items():
            self.storage[thread_id].update(namespaces)
        self.writes.update(writes)
        self.blobs.update(blobs)

    def kept(self) -> Any:
        """Return what is stored."""
        return {key: dict(one) for key, one in self.storage.items()}, dict(self.writes), self.blobs

    def close(self) -> None:
        """Store it."""
        self.file.write_bytes(pickle.dumps(self.kept()))


class ShelvedDeletesNothing(Shelved):
    def __init__(self, where: Path) -> None:
        self.shadow = InMemorySaver()
        super().__init__(where)

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self.shadow.put(config, checkpoint, metadata, new_versions)
        return super().put(config, checkpoint, metadata, new_versions)

    def kept(self) -> Any:
        return {key: dict(one) for key, one in self.shadow.storage.items()}, {}, self.shadow.blobs


class ShelvedWithoutEarlyWrites(Shelved):
    def kept(self) -> Any:
        checkpoints, writes, blobs = super().kept()
        there = {
            (t, ns, cid) for t, n in checkpoints.items() for ns, ids in n.items() for cid in ids
        }
        return checkpoints, {key: one for key, one in writes.items() if key in there}, blobs


class ShelvedWithoutPaths(Shelved):
    def kept(self) -> Any:
        checkpoints, writes, blobs = super().kept()
        bare = {
            key: {place: (*write[:3], "") for place, write in one.items()}
            for key, one in writes.items()
        }
        return checkpoints, bare, blobs


class ShelvedTasksRetry(Shelved):
    """Which writes are there is known to the process, not to the file."""

    def fill(self, checkpoints: Any, writes: Any, blobs: Any) -> None:
        super().fill(checkpoints, writes, blobs)
        self.old = set(writes)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        place = config["configurable"]
        key = place["thread_id"], place["checkpoint_ns"], place["checkpoint_id"]
        if key in self.__dict__.get("old", ()):
            self.old.discard(key)
            self.writes[key].clear()
        super().put_writes(config, writes, task_id, task_path)


class ShelvedCountsAnew(Shelved):
    def __init__(self, where: Path) -> None:
        super().__init__(where)
        self.count = 0

    def get_next_version(self, current: Any, channel: Any) -> str:
        self.count += 1
        return super().get_next_version(self.count - 1, channel)
