"""What a value reads back as, where the serializer leaves a choice."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.base import empty_checkpoint

from deltastore import DeltaStoreSaver

CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def test_a_bytearray_reads_back_as_bytes_alone_as_inside_another_value() -> None:
    """One rule for both: MessagePack has one kind of bytes, and a channel is no special place."""
    values = {"alone": bytearray(b"ab"), "inside": {"x": bytearray(b"ab")}}
    versions: Any = {"alone": "1", "inside": "1"}
    checkpoint: Any = {
        **empty_checkpoint(),
        "channel_values": values,
        "channel_versions": versions,
    }
    with DeltaStoreSaver.ephemeral() as saver:
        stored = saver.put(CONFIG, checkpoint, {}, versions)
        found = saver.get_tuple(stored)
    assert found is not None
    read = found.checkpoint["channel_values"]
    assert {"alone": b"ab", "inside": {"x": b"ab"}} == read
    assert [bytes, bytes] == [type(read["alone"]), type(read["inside"]["x"])]


def test_a_bytearray_that_was_written_reads_back_as_it_was() -> None:
    """A write is a value of its own: the serializer tells the two kinds apart there."""
    with DeltaStoreSaver.ephemeral() as saver:
        stored = saver.put(CONFIG, empty_checkpoint(), {}, {})
        saver.put_writes(stored, [("x", bytearray(b"ab"))], "task")
        found = saver.get_tuple(stored)
    assert found is not None
    assert found.pending_writes is not None
    assert [bytearray] == [type(value) for _, _, value in found.pending_writes]
