"""A saver that stores every value whole: the oracle other savers are compared with.

A *stored checkpoint* holds its own copy of each value it shows, settled when it was put, so no
later put can change it. Everything is kept as the serializer's bytes and loaded anew at each read:
callers share nothing with the store, and what comes back is what the serializer gives back.

Plain dicts, no deltas, no pointers, no caches, no threads: it must stay so simple that a reader can
check it against the contract. The small methods below `put_writes` are the rules; broken stand-ins
override one of them each.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_metadata,
    writes_sort_key,
)

from deltastore.errors import DeletedParentError
from deltastore.ids import ulid_from_uuid6

Typed = tuple[str, bytes]
Stream = tuple[str, str]
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """One checkpoint: its header and metadata as bytes, and a copy of each value it shows."""

    header: Typed
    metadata: Typed
    parent: str | None
    versions: ChannelVersions
    values: dict[str, Typed]


@dataclass(frozen=True, slots=True)
class StoredWrite:
    """One pending write; `idx` is negative for LangGraph's special channels."""

    task_path: str
    task_id: str
    idx: int
    channel: str
    value: Typed


class ModelSaver(BaseCheckpointSaver[Any]):
    """The full-value oracle. Not for use: every put costs the whole state."""

    def __init__(self, *, serde: Any = None) -> None:
        super().__init__(serde=serde)
        self.streams: dict[Stream, dict[str, StoredCheckpoint]] = {}
        self.writes: dict[tuple[Stream, str], dict[tuple[str, int], StoredWrite]] = {}
        self.deleted: dict[Stream, set[str]] = {}

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, replacing one of the same id; its pending writes stay.

        Raises:
            DeletedParentError: The parent was stored once and has been deleted.
        """
        stream = self._stream(config)
        parent = config["configurable"].get("checkpoint_id") or None
        stored = self.streams.get(stream, {})
        if parent is not None and parent not in stored and parent in self.deleted.get(stream, ()):
            raise DeletedParentError(
                f"checkpoint {checkpoint['id']!r} names parent {parent!r}, which was deleted; "
                "put it without a parent to start the thread anew"
            )
        values: dict[str, Typed] = {}
        for channel in checkpoint["channel_versions"]:
            shown = self._value_shown(stored, parent, checkpoint, new_versions, channel)
            if shown is not None:
                values[channel] = shown
        header = {key: item for key, item in checkpoint.items() if key != "channel_values"}
        made = StoredCheckpoint(
            self.serde.dumps_typed(header),
            self.serde.dumps_typed(get_checkpoint_metadata(config, metadata)),
            parent,
            dict(checkpoint["channel_versions"]),
            values,
        )
        self.streams.setdefault(stream, {})[checkpoint["id"]] = made
        return self._config(stream, checkpoint["id"])

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store writes under a checkpoint that may not be there yet."""
        key = self._stream(config), config["configurable"]["checkpoint_id"]
        for position, (channel, value) in enumerate(writes):
            idx = WRITES_IDX_MAP.get(channel, position)
            made = StoredWrite(task_path, task_id, idx, channel, self.serde.dumps_typed(value))
            kept = self.writes.setdefault(key, {})
            if (task_id, idx) not in kept or self._replaces(made):
                kept[task_id, idx] = made

    def _replaces(self, made: StoredWrite) -> bool:
        """Return whether a repeated write takes the place of the one that is there."""
        return made.idx < 0

    def _order(self, kept: Iterable[StoredWrite]) -> list[StoredWrite]:
        """Return the writes of one checkpoint in the order every reading shows them in."""
        return sorted(kept, key=lambda w: writes_sort_key(w.task_path, w.task_id, w.idx))

    def _latest(self, stored: Mapping[str, StoredCheckpoint]) -> str | None:
        """Return the id of a stream's head: the greatest as text."""
        return max(stored, default=None)

    def _value_shown(
        self,
        stored: Mapping[str, StoredCheckpoint],
        parent: str | None,
        checkpoint: Checkpoint,
        new_versions: ChannelVersions,
        channel: str,
    ) -> Typed | None:
        """Return the value a checkpoint being put will show for a channel; None for none."""
        put_value = checkpoint["channel_values"].get(channel, _MISSING)
        version = checkpoint["channel_versions"][channel]
        # A checkpoint put on itself has no parent to inherit from: what it was is being replaced.
        carried = None if parent in {None, checkpoint["id"]} else stored.get(parent or "")
        if channel not in new_versions:
            if carried is not None and carried.versions.get(channel, _MISSING) == version:
                return carried.values.get(channel)
            if put_value is _MISSING:
                return self._nearest(stored, parent, checkpoint["id"], channel, version)
        return None if put_value is _MISSING else self.serde.dumps_typed(put_value)

    def _nearest(
        self,
        stored: Mapping[str, StoredCheckpoint],
        parent: str | None,
        checkpoint_id: str,
        channel: str,
        version: Any,
    ) -> Typed | None:
        """Return what the nearest checkpoint with this version shows: ancestors, then any.

        Newest first: ids that carry a time before those that are mere text.
        """
        ancestors = [cid for cid, _ in self._walk(stored, parent, checkpoint_id)]
        rest = stored.keys() - {checkpoint_id, *ancestors}
        timed = sorted((cid for cid in rest if ulid_from_uuid6(cid)), reverse=True)
        texts = sorted(rest.difference(timed), reverse=True)
        for cid in (*ancestors, *timed, *texts):
            if stored[cid].versions.get(channel, _MISSING) == version:
                return stored[cid].values.get(channel)
        return None

    def _walk(
        self, stored: Mapping[str, StoredCheckpoint], start: str | None, below: str
    ) -> Iterator[tuple[str, StoredCheckpoint]]:
        """Yield the chain from `start` upwards; a loop ends it, `below` counts as visited."""
        seen = {below}
        here = start
        while here is not None and here in stored and here not in seen:
            seen.add(here)
            yield here, stored[here]
            here = stored[here].parent

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint the config names, or the stream's head."""
        stream = self._stream(config)
        stored = self.streams.get(stream, {})
        cid = config["configurable"].get("checkpoint_id") or self._latest(stored)
        return None if cid is None or cid not in stored else self._tuple(stream, cid)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield matching checkpoints, newest id first over all streams asked for."""
        asked = dict(config["configurable"]) if config is not None else {}
        bound = before["configurable"].get("checkpoint_id") if before is not None else None
        rows = sorted(
            ((cid, stream) for stream, stored in self.streams.items() for cid in stored),
            reverse=True,
        )
        for cid, (thread_id, ns) in rows:
            if config is not None and thread_id != str(asked["thread_id"]):
                continue
            if asked.get("checkpoint_ns") is not None and ns != asked["checkpoint_ns"]:
                continue
            if asked.get("checkpoint_id") and cid != asked["checkpoint_id"]:
                continue
            if bound and not self._precedes(cid, bound):
                continue
            found = self._tuple((thread_id, ns), cid)
            if not self._matches(dict(found.metadata), filter or {}):
                continue
            if limit is not None:
                if limit <= 0:
                    return
                limit -= 1
            yield found

    def _precedes(self, cid: str, bound: str) -> bool:
        """Return whether a checkpoint lies before the `before` of a listing."""
        return cid < bound

    def _matches(self, metadata: dict[str, Any], wanted: dict[str, Any]) -> bool:
        """Return whether all keys of a filter match by `==`, so 1 is not "1"."""
        return all(metadata.get(key) == value for key, value in wanted.items())

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return, per channel, the seed and the writes since; by parent links, the target apart."""
        stream = self._stream(config)
        stored = self.streams.get(stream, {})
        target = config["configurable"].get("checkpoint_id") or self._latest(stored)
        found: dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in channels}
        open_channels = set(channels)
        if target is None or target not in stored:
            return found
        for cid, ancestor in self._walk(stored, stored[target].parent, target):
            for write in reversed(self._pending(stream, cid)):
                if write[1] in open_channels:
                    found[write[1]]["writes"].insert(0, write)
            for channel in open_channels & ancestor.values.keys():
                found[channel]["seed"] = self.serde.loads_typed(ancestor.values[channel])
                open_channels.discard(channel)
        return found

    def delete_thread(self, thread_id: str) -> None:
        """Forget all of a thread but the ids it had."""
        for stream in [s for s in self.streams if s[0] == str(thread_id)]:
            self.deleted.setdefault(stream, set()).update(self.streams.pop(stream))
        for key in [k for k in self.writes if k[0][0] == str(thread_id)]:
            del self.writes[key]

    def get_next_version(self, current: Any, channel: None) -> str:  # noqa: ARG002 (LangGraph's)
        """Return the next version, as LangGraph's own savers form it."""
        count = int(str(current).split(".")[0]) if current is not None else 0
        return f"{count + 1:032}.{random.random():016}"

    def _stream(self, config: RunnableConfig) -> Stream:
        place = config["configurable"]
        return str(place["thread_id"]), place.get("checkpoint_ns") or ""

    def _config(self, stream: Stream, cid: str) -> RunnableConfig:
        place = {"thread_id": stream[0], "checkpoint_ns": stream[1], "checkpoint_id": cid}
        return {"configurable": place}

    def _pending(self, stream: Stream, cid: str) -> Sequence[PendingWrite]:
        kept = self._order(self.writes.get((stream, cid), {}).values())
        return [(w.task_id, w.channel, self.serde.loads_typed(w.value)) for w in kept]

    def _tuple(self, stream: Stream, cid: str) -> CheckpointTuple:
        stored = self.streams[stream][cid]
        checkpoint: Any = self.serde.loads_typed(stored.header)
        checkpoint["channel_values"] = {
            channel: self.serde.loads_typed(value) for channel, value in stored.values.items()
        }
        return CheckpointTuple(
            self._config(stream, cid),
            checkpoint,
            self.serde.loads_typed(stored.metadata),
            None if stored.parent is None else self._config(stream, stored.parent),
            [*self._pending(stream, cid)],
        )

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As `put`."""
        return self.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """As `put_writes`."""
        self.put_writes(config, writes, task_id, task_path)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `get_tuple`."""
        return self.get_tuple(config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As `list`."""
        for found in self.list(config, filter=filter, before=before, limit=limit):
            yield found

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """As `get_delta_channel_history`."""
        return self.get_delta_channel_history(config=config, channels=channels)

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        self.delete_thread(thread_id)
