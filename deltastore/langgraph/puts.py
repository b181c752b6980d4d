"""Read the arguments of `put` and `put_writes` into what the store takes, values serialized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.base import get_checkpoint_metadata

from deltastore.errors import InvalidArgumentError, InvalidTypeError
from deltastore.langgraph import configs
from deltastore.langgraph.serde import Coder, check_key
from deltastore.pending import NewWrites
from deltastore.refill import NewCheckpoint
from deltastore.types import Typed


def new_checkpoint(
    serde: Any, config: Any, checkpoint: Any, metadata: Any, new_versions: Any
) -> tuple[NewCheckpoint, Coder]:
    """Return a checkpoint to store, and what coded its values.

    Raises:
        InvalidTypeError, InvalidArgumentError: An argument cannot be stored.
    """
    coder = Coder.of(serde)
    target = configs.target_of(config)
    parts = configs.checkpoint_parts(checkpoint, coder)
    new = configs.versions_of(new_versions, "new_versions")
    if not isinstance(metadata, Mapping):
        raise InvalidTypeError(f"metadata must be a dict (got {type(metadata).__name__})")
    for key in metadata:
        check_key(key, "metadata")
    configs.check_extras(config)
    values = parts.values

    def dumps(channel: str) -> Typed | None:
        if channel not in values:
            return None
        value = values[channel]
        if type(value) is bytearray:
            value = bytes(value)  # as it reads back from inside any other value
        return coder.dumps(value, f"channel {channel!r}")

    return NewCheckpoint(
        thread_id=target.thread_id,
        checkpoint_ns=target.checkpoint_ns or "",
        checkpoint_id=parts.checkpoint_id,
        parent_id=target.checkpoint_id,
        fields=parts.fields,
        versions=parts.versions,
        seen=parts.seen,
        metadata=coder.plain_dict(
            get_checkpoint_metadata(config, metadata),  # type: ignore[arg-type]  # checked above
            "metadata",
        ),
        new={channel: dumps(channel) for channel in new if channel in parts.versions},
        spare=dumps,
    ), coder


def new_writes(
    serde: Any, config: Any, writes: Any, task_id: Any, task_path: Any
) -> tuple[NewWrites, Coder]:
    """Return a task's writes to store, and what coded them.

    Raises:
        InvalidTypeError, InvalidArgumentError: An argument cannot be stored.
    """
    coder = Coder.of(serde)
    target = configs.target_of(config)
    if target.checkpoint_id is None:
        raise InvalidArgumentError(
            "put_writes needs the checkpoint the writes belong to: config['configurable'] has "
            "no checkpoint_id"
        )
    task_id, task_path = configs.task_of(task_id, task_path)
    return NewWrites(
        target.thread_id,
        target.checkpoint_ns or "",
        target.checkpoint_id,
        task_id,
        task_path,
        configs.run_id_of(config),
        configs.rows_of(writes, coder),
    ), coder
