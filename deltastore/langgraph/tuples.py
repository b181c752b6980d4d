"""Build what LangGraph gets back: configs, writes, checkpoint tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from deltastore.langgraph.serde import Coder
from deltastore.reconstruct import PendingWrite, StoredCheckpoint


def config_of(thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> RunnableConfig:
    """Return the config that names a checkpoint."""
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": checkpoint_ns,
            "checkpoint_id": checkpoint_id,
        }
    }


def pending_of(writes: Sequence[PendingWrite], coder: Coder) -> list[tuple[str, str, Any]]:
    """Return writes as LangGraph's (task id, channel, value)."""
    found = coder.loads_many([write.value for write in writes])
    return [
        (write.task_id, write.channel, value) for write, value in zip(writes, found, strict=True)
    ]


def tuple_of(stored: StoredCheckpoint, coder: Coder) -> CheckpointTuple:
    """Return a stored checkpoint as LangGraph's tuple; nothing in it is shared."""
    header = stored.header
    checkpoint: Any = coder.unplain(header.fields)
    checkpoint["id"] = stored.checkpoint_id
    checkpoint["channel_values"] = {
        channel: coder.loads(typed) for channel, typed in stored.values.items()
    }
    checkpoint["channel_versions"] = dict(header.versions)
    checkpoint["versions_seen"] = {node: dict(seen) for node, seen in header.seen.items()}
    parent = stored.parent_id
    return CheckpointTuple(
        config=config_of(stored.thread_id, stored.checkpoint_ns, stored.checkpoint_id),
        checkpoint=checkpoint,
        metadata=coder.unplain(header.metadata),
        parent_config=(
            None if parent is None else config_of(stored.thread_id, stored.checkpoint_ns, parent)
        ),
        pending_writes=pending_of(stored.writes, coder),
    )
