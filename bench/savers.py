"""Savers to compare, opened on a directory, and a wrapper that times their calls.

A *kind* knows how to open its saver and how its bytes come to rest on disk. `TimedSaver` stands
between a graph and a saver and notes how long each call took; it changes nothing that passes.

Imports of the savers stay inside the functions: a missing one must not keep the others from
running. No result is judged here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
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


class SaverUnavailableError(Exception):
    """A saver was asked for that this environment cannot import."""


@dataclass(frozen=True, slots=True)
class SaverKind:
    """One saver to compare.

    Attributes:
        open: Opens the saver on a directory that exists; closed when the block ends.
        persistent: Whether what it stored is there after closing.
    """

    name: str
    open: Callable[[Path], AbstractContextManager[Saver]]
    persistent: bool = True


@contextmanager
def open_deltastore(directory: Path) -> Iterator[Saver]:
    """Open deltastore with its defaults: a call returns when its commit is on disk."""
    try:
        from deltastore import DeltaStoreSaver
    except ImportError as error:
        raise SaverUnavailableError(f"deltastore cannot be imported: {error}") from error
    with DeltaStoreSaver(str(directory)) as saver:
        yield saver


@contextmanager
def open_sqlite(directory: Path) -> Iterator[Saver]:
    """Open `SqliteSaver` with its defaults: write-ahead log, full synchronisation."""
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver
    except ImportError as error:
        raise SaverUnavailableError(
            f"langgraph-checkpoint-sqlite is not installed: {error}"
        ) from error
    path = directory / "checkpoints.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        yield saver
    # Its write-ahead log belongs into the file before sizes are read.
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@contextmanager
def open_memory(_directory: Path) -> Iterator[Saver]:
    """Open `InMemorySaver`; the directory stays empty."""
    from langgraph.checkpoint.memory import InMemorySaver

    yield InMemorySaver()


SAVERS: Mapping[str, SaverKind] = {
    kind.name: kind
    for kind in (
        SaverKind("deltastore", open_deltastore),
        SaverKind("sqlite", open_sqlite),
        SaverKind("memory", open_memory, persistent=False),
    )
}


def directory_bytes(directory: Path) -> int:
    """Return the sum of the sizes of all files below `directory`; meant for a closed store."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


@dataclass(slots=True)
class Times:
    """What the calls of one stretch of a run took.

    Attributes:
        writes_s: Seconds of each put and put_writes.
        reads_s: Seconds of each get_tuple and get_delta_channel_history.
        checkpoints: Checkpoints put.
        supersteps: Those put for a superstep, that is without those of inputs.
    """

    writes_s: list[float] = field(default_factory=list)
    reads_s: list[float] = field(default_factory=list)
    checkpoints: int = 0
    supersteps: int = 0


class TimedSaver(BaseCheckpointSaver[Any]):
    """A saver that hands every call to another one and notes its time. Sync methods only."""

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
        with _noted(self.times.writes_s):
            stored = self.saver.put(config, checkpoint, metadata, new_versions)
        self.times.checkpoints += 1
        self.times.supersteps += metadata.get("source") == "loop"
        return stored

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        with _noted(self.times.writes_s):
            self.saver.put_writes(config, writes, task_id, task_path)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        with _noted(self.times.reads_s):
            return self.saver.get_tuple(config)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        with _noted(self.times.reads_s):
            return self.saver.get_delta_channel_history(config=config, channels=channels)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        return self.saver.list(config, filter=filter, before=before, limit=limit)

    def delete_thread(self, thread_id: str) -> None:
        self.saver.delete_thread(thread_id)


@contextmanager
def _noted(into: list[float]) -> Iterator[None]:
    begun = perf_counter()
    try:
        yield
    finally:
        into.append(perf_counter() - begun)
