"""A wrapper that notes how long the calls of a saver took, sync and async; changes nothing.

Reads of one graph run and writes of another may overlap on threads: a call is noted by one append.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

Saver = BaseCheckpointSaver[Any]


@dataclass(slots=True)
class Times:
    """What the calls of one stretch of a run took.

    Attributes:
        puts_s, put_writes_s: Seconds of each put and put_writes.
        gets_s, histories_s: Seconds of each get_tuple and get_delta_channel_history.
        checkpoints: Checkpoints put.
        supersteps: Those put for a superstep, that is without those of inputs.
    """

    puts_s: list[float] = field(default_factory=list)
    put_writes_s: list[float] = field(default_factory=list)
    gets_s: list[float] = field(default_factory=list)
    histories_s: list[float] = field(default_factory=list)
    checkpoints: int = 0
    supersteps: int = 0

    @property
    def writes_s(self) -> list[float]:
        """Seconds of each put and put_writes."""
        return self.puts_s + self.put_writes_s

    @property
    def reads_s(self) -> list[float]:
        """Seconds of each get_tuple and get_delta_channel_history."""
        return self.gets_s + self.histories_s


class TimedSaver(BaseCheckpointSaver[Any]):
    """A saver that hands every call to another one and notes its time."""

    def __init__(self, saver: Saver) -> None:
        super().__init__(serde=saver.serde)
        self.saver = saver
        self.times = Times()

    def take_times(self) -> Times:
        """Return what was noted since the last call, and begin anew."""
        taken, self.times = self.times, Times()
        return taken

    @property
    def config_specs(self) -> list[Any]:
        return self.saver.config_specs

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self.saver.get_next_version(current, channel)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        with _noted(self.times.puts_s):
            stored = self.saver.put(config, checkpoint, metadata, new_versions)
        self._count(metadata)
        return stored

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        with _noted(self.times.puts_s):
            stored = await self.saver.aput(config, checkpoint, metadata, new_versions)
        self._count(metadata)
        return stored

    def _count(self, metadata: CheckpointMetadata) -> None:
        self.times.checkpoints += 1
        self.times.supersteps += metadata.get("source") == "loop"

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        with _noted(self.times.put_writes_s):
            self.saver.put_writes(config, writes, task_id, task_path)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        with _noted(self.times.put_writes_s):
            await self.saver.aput_writes(config, writes, task_id, task_path)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        with _noted(self.times.gets_s):
            return self.saver.get_tuple(config)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        with _noted(self.times.gets_s):
            return await self.saver.aget_tuple(config)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        with _noted(self.times.histories_s):
            return self.saver.get_delta_channel_history(config=config, channels=channels)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        with _noted(self.times.histories_s):
            return await self.saver.aget_delta_channel_history(config=config, channels=channels)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        return self.saver.list(config, filter=filter, before=before, limit=limit)

    def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        return self.saver.alist(config, filter=filter, before=before, limit=limit)

    def delete_thread(self, thread_id: str) -> None:
        self.saver.delete_thread(thread_id)

    async def adelete_thread(self, thread_id: str) -> None:
        await self.saver.adelete_thread(thread_id)


@contextmanager
def _noted(into: list[float]) -> Iterator[None]:
    begun = perf_counter()
    try:
        yield
    finally:
        into.append(perf_counter() - begun)
