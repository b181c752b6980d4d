"""Suites a saver or an engine can be held against, and the words they share.

A *caller* calls one saver either by its sync methods or by their async twins, so that a law is
written once and holds for both. A *lane* is one stream seen through a caller. A *shape* is a tuple
or a history made comparable: types count (1 is not True), the order of channels and metadata keys
does not.

Nothing here asserts laws, draws random data or needs pytest; the suites beside it do. Nothing
outside `deltastore.testing` and the tests imports it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

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
T = TypeVar("T")
FALSY: Final[dict[str, Any]] = {
    "none": None,
    "zero": 0,
    "text": "",
    "list": [],
    "dict": {},
    "false": False,
}
_TS: Final = "2026-01-01T00:00:00+00:00"


def make_config(thread_id: Any, ns: str = "", checkpoint_id: str | None = None) -> RunnableConfig:
    """Return a config of one stream, and of one checkpoint of it if an id is given."""
    place: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": ns}
    if checkpoint_id is not None:
        place["checkpoint_id"] = checkpoint_id
    return {"configurable": place}


def make_checkpoint(
    checkpoint_id: str, versions: ChannelVersions, values: Mapping[str, Any]
) -> Checkpoint:
    """Return a checkpoint as LangGraph builds one, with `versions` as its channel_versions."""
    return Checkpoint(
        v=4,
        id=checkpoint_id,
        ts=_TS,
        channel_values=dict(values),
        channel_versions=dict(versions),
        versions_seen={"node": dict(versions)},
        updated_channels=sorted(versions),
    )


def shape(value: Any) -> Any:
    """Return a form of `value` that compares equal exactly if the values and their types do."""
    if isinstance(value, dict):
        return "dict", {key: shape(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [shape(item) for item in value]
    return type(value).__name__, value


def tuple_shape(found: CheckpointTuple | None) -> Any:
    """Return the shape of all a `CheckpointTuple` says; no pending writes are an empty list."""
    if found is None:
        return None
    return {
        "config": shape(found.config),
        "checkpoint": shape(found.checkpoint),
        "metadata": shape(found.metadata),
        "parent_config": shape(found.parent_config),
        "pending_writes": [shape(tuple(write)) for write in found.pending_writes or ()],
    }


def history_shape(found: Mapping[str, DeltaChannelHistory]) -> Any:
    """Return the shape of a delta channel history; a seed that is absent differs from None."""
    return {
        channel: {
            "writes": [shape(tuple(write)) for write in entry["writes"]],
            "seed": [shape(entry["seed"])] if "seed" in entry else [],
        }
        for channel, entry in found.items()
    }


class Caller:
    """Calls one saver's sync methods, or their async twins on an event loop of its own.

    Args:
        open_saver: Opens the saver; called with a running loop if `asynchronous`.
        close_saver: Closes it; None for a saver that needs no closing.
        reopen_saver: Returns the saver after a restart; None for one that keeps nothing.
        asynchronous: Which of the two faces is called. A loop is made for it and closed by `close`.
    """

    def __init__(
        self,
        open_saver: Callable[[], Saver],
        *,
        close_saver: Callable[[Saver], None] | None = None,
        reopen_saver: Callable[[Saver], Saver] | None = None,
        asynchronous: bool = False,
    ) -> None:
        self._loop = asyncio.new_event_loop() if asynchronous else None
        self._close_saver = close_saver
        self._reopen_saver = reopen_saver
        self.saver = self._call(open_saver)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return self._loop.run_until_complete(work)

    def _call(self, function: Callable[[], T]) -> T:
        async def called() -> T:
            return function()

        return function() if self._loop is None else self._run(called())

    def reopen(self) -> None:
        """Restart the saver."""
        if self._reopen_saver is not None:
            reopen_saver = self._reopen_saver
            self.saver = self._call(lambda: reopen_saver(self.saver))

    def close(self) -> None:
        """Close the saver, then the loop."""
        try:
            if self._close_saver is not None:
                close_saver = self._close_saver
                self._call(lambda: close_saver(self.saver))
        finally:
            if self._loop is not None:
                self._run(self._loop.shutdown_default_executor())
                self._loop.close()

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Call put or aput."""
        if self._loop is None:
            return self.saver.put(config, checkpoint, metadata, new_versions)
        return self._run(self.saver.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Call put_writes or aput_writes."""
        if self._loop is None:
            self.saver.put_writes(config, writes, task_id, task_path)
        else:
            self._run(self.saver.aput_writes(config, writes, task_id, task_path))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Call get_tuple or aget_tuple."""
        if self._loop is None:
            return self.saver.get_tuple(config)
        return self._run(self.saver.aget_tuple(config))

    def list(self, config: RunnableConfig | None, **arguments: Any) -> list[CheckpointTuple]:
        """Call list or alist and read it to its end."""
        if self._loop is None:
            return [*self.saver.list(config, **arguments)]

        async def collected() -> Any:
            return [item async for item in self.saver.alist(config, **arguments)]

        return cast("list[CheckpointTuple]", self._run(collected()))

    def list_first_then(
        self, config: RunnableConfig | None, action: Callable[[], object]
    ) -> CheckpointTuple:
        """Take one item of a listing, run `action` while it is open, drop the iterator."""
        if self._loop is None:
            paused = iter(self.saver.list(config))
            first = next(paused)
            action()
            return first
        paging = self.saver.alist(config)

        async def one() -> CheckpointTuple:
            return await anext(aiter(paging))

        first = self._run(one())
        action()
        if isinstance(paging, AsyncGenerator):
            self._run(paging.aclose())
        return first

    def history(
        self, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Call get_delta_channel_history or its async twin."""
        if self._loop is None:
            return self.saver.get_delta_channel_history(config=config, channels=channels)
        return self._run(self.saver.aget_delta_channel_history(config=config, channels=channels))

    def history_of_base_class(
        self, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Walk with get_tuple or aget_tuple alone, as LangGraph's base class does."""
        base = BaseCheckpointSaver
        if self._loop is None:
            return base.get_delta_channel_history(self.saver, config=config, channels=channels)
        return self._run(
            base.aget_delta_channel_history(self.saver, config=config, channels=channels)
        )

    def delete_thread(self, thread_id: str) -> None:
        """Call delete_thread or adelete_thread."""
        if self._loop is None:
            self.saver.delete_thread(thread_id)
        else:
            self._run(self.saver.adelete_thread(thread_id))


class Lane:
    """One stream of a caller's saver, for laws that need a line per call."""

    def __init__(self, caller: Caller, thread_id: Any = "t", ns: str = "") -> None:
        self.caller = caller
        self.thread_id = thread_id
        self.ns = ns

    def config(self, cid: str | None = None) -> RunnableConfig:
        """Return the config of one checkpoint, or of the stream."""
        return make_config(self.thread_id, self.ns, cid)

    def put(
        self,
        cid: str,
        parent: str | None = None,
        *,
        new: Mapping[str, Any] | None = None,
        carried: Mapping[str, Any] | None = None,
        values: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> RunnableConfig:
        """Put a checkpoint with the versions `carried` and `new`; new_versions has `new` alone."""
        checkpoint = make_checkpoint(cid, {**(carried or {}), **(new or {})}, values or {})
        told = cast(CheckpointMetadata, {"source": "loop", "step": 0, **(metadata or {})})
        return self.caller.put(self.config(parent), checkpoint, told, dict(new or {}))

    def write(
        self, cid: str, writes: Sequence[tuple[str, Any]], task_id: str = "task", path: str = ""
    ) -> None:
        """Put writes under a checkpoint."""
        self.caller.put_writes(self.config(cid), writes, task_id, path)

    def read(self, cid: str | None = None) -> CheckpointTuple:
        """Return a checkpoint, the head without an id; it must be there."""
        found = self.caller.get_tuple(self.config(cid))
        assert found is not None, f"checkpoint {cid!r} of {self.thread_id!r} is not there"
        return found

    def values(self, cid: str | None = None) -> dict[str, Any]:
        """Return the channel values a checkpoint shows."""
        return self.read(cid).checkpoint["channel_values"]

    def pending(self, cid: str) -> list[tuple[str, str, Any]]:
        """Return the pending writes of a checkpoint, each as a tuple."""
        return [(w[0], w[1], w[2]) for w in self.read(cid).pending_writes or ()]

    def history(self, cid: str, channel: str) -> DeltaChannelHistory:
        """Return the delta history of one channel."""
        return self.caller.history(self.config(cid), [channel])[channel]

    def ids(self, **arguments: Any) -> list[str]:
        """Return the checkpoint ids a listing of the stream yields."""
        return listed_ids(self.caller.list(self.config(), **arguments))


def listed_ids(found: Sequence[CheckpointTuple]) -> list[str]:
    """Return the checkpoint id of each tuple."""
    return [item.config["configurable"]["checkpoint_id"] for item in found]
