"""The calls LangGraph makes on a saver during a chat, made without running a graph.

A *call* is a `put` or a `put_writes` with its arguments. The calls are those of the graphs in
`bench.workloads` (agent and tools, one message a superstep), with ids, times and versions from a
seed; tests/unit/test_bench_figures.py compares them with a real graph's.

Running a graph costs several times what the saver does, so a figure that needs thousands of turns
or a quiet loop takes the calls from here. Touches no saver.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Final, NamedTuple
from uuid import UUID

from langchain_core.messages import AnyMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from bench.conversations import Turn
from bench.timed import Saver

_BEGIN: Final = datetime(2026, 1, 5, 9, tzinfo=timezone.utc)
_UUID_EPOCH: Final = datetime(1582, 10, 15, tzinfo=timezone.utc)
_SUPERSTEP: Final = timedelta(milliseconds=40)
_SUPERSTEPS_MAX: Final = 5_000  # LangGraph's own bound, whatever the snapshot frequency


class Put(NamedTuple):
    """Arguments of a `put`."""

    config: Any
    checkpoint: Any
    metadata: Any
    new_versions: dict[str, str]


class Writes(NamedTuple):
    """Arguments of a `put_writes`."""

    config: Any
    writes: list[tuple[str, Any]]
    task_id: str
    task_path: str


Call = Put | Writes


def apply_call(saver: Saver, call: Call) -> None:
    """Make a call on a saver."""
    if isinstance(call, Put):
        saver.put(call.config, call.checkpoint, call.metadata, dict(call.new_versions))
    else:
        saver.put_writes(call.config, call.writes, call.task_id, call.task_path)


class Chat:
    """One thread of a chat.

    Args:
        snapshot_frequency: Of the delta channel `messages`; None for a plain channel, whose whole
            list is in every checkpoint.
        supersteps_max: Supersteps after which a delta channel is snapshotted in any case.
        others: Further channels and their values, set by the first input and never changed.
        messages: What the list holds before the first turn.
    """

    def __init__(
        self,
        thread_id: str,
        *,
        snapshot_frequency: int | None,
        supersteps_max: int = _SUPERSTEPS_MAX,
        others: Mapping[str, Any] | None = None,
        messages: Sequence[AnyMessage] = (),
        seed: int = 1,
    ) -> None:
        self._thread_id = thread_id
        self._frequency = snapshot_frequency
        self._supersteps_max = supersteps_max
        self._others = dict(others or {})
        self._messages = list(messages)
        self._rng = random.Random(seed)
        self._versions: dict[str, str] = {}
        self._seen: dict[str, dict[str, str]] = {"__input__": {}}
        self._kept: dict[str, Any] = {}
        self._parent: str | None = None
        self._step = -1
        self._updates = self._supersteps = 0

    @property
    def head(self) -> dict[str, Any]:
        """Config of the newest checkpoint."""
        return self._config()

    def calls(self, turns: Sequence[Turn]) -> Iterator[Call]:
        """Yield the calls of the turns, each when the ones before it have returned.

        Goes on where the last call of it ended, which must have been used up.
        """
        for turn in turns:
            given = {"messages": [turn.user], **({} if self._kept else self._others)}
            self._versions["__start__"] = version = self._next_version()
            yield self._put("input", {"__start__": given}, {"__start__": version}, ["__start__"])
            yield from self._superstep("__start__", "__start__", list(given.items()), turn.replies)
            self._kept.update(self._others)
            for place, reply in enumerate(turn.replies):
                node = "tools" if reply.type == "tool" else "agent"
                written = [("messages", [reply])]
                rest = turn.replies[place + 1 :]
                yield from self._superstep(node, f"branch:to:{node}", written, rest)

    def _superstep(
        self, node: str, trigger: str, written: list[tuple[str, Any]], rest: Sequence[AnyMessage]
    ) -> Iterator[Call]:
        branch = {}
        if rest:
            branch = {f"branch:to:{'tools' if rest[0].type == 'tool' else 'agent'}": None}
        writes = [*written, *branch.items()]
        task_id = str(UUID(int=self._rng.getrandbits(128)))
        yield Writes(self._config(), writes, task_id, f"~__pregel_pull, {node}")
        self._seen[node] = {trigger: self._versions[trigger]}
        version = self._next_version()
        changed = {trigger, *(channel for channel, _ in writes)}
        for channel in [trigger, *(channel for channel, _ in writes)]:
            self._versions[channel] = version
        self._messages += dict(written)["messages"]
        self._updates += 1
        self._kept.update((channel, value) for channel, value in written if channel != "messages")
        new = {channel: version for channel in self._versions if channel in changed}
        yield self._put("loop", branch, new, sorted(channel for channel, _ in writes))

    def _put(
        self, source: str, values: dict[str, Any], new: dict[str, str], updated: list[str]
    ) -> Put:
        config, self._parent = self._config(), self._checkpoint_id()
        metadata: dict[str, Any] = {"source": source, "step": self._step, "parents": {}}
        values = {**self._kept, **values}
        if self._frequency is None:
            if "messages" in self._versions:
                values["messages"] = list(self._messages)
        else:
            self._supersteps += 1
            due = self._updates >= self._frequency or self._supersteps >= self._supersteps_max
            if due and "messages" in new:
                values["messages"] = _DeltaSnapshot(list(self._messages))
                self._updates = self._supersteps = 0
            else:
                counters = {"messages": (self._updates, self._supersteps)}
                metadata["counters_since_delta_snapshot"] = counters
        checkpoint = {
            "v": 4,
            "ts": self._now().isoformat(),
            "id": self._parent,
            "channel_values": values,
            "channel_versions": dict(self._versions),
            "versions_seen": {node: dict(seen) for node, seen in self._seen.items()},
            "updated_channels": updated,
        }
        self._step += 1
        return Put(config, checkpoint, metadata, new)

    def _config(self) -> dict[str, Any]:
        configurable = {"thread_id": self._thread_id, "checkpoint_ns": ""}
        if self._parent is not None:
            configurable["checkpoint_id"] = self._parent
        return {"configurable": configurable, "metadata": {"thread_id": self._thread_id}}

    def _now(self) -> datetime:
        return _BEGIN + self._step * _SUPERSTEP

    def _checkpoint_id(self) -> str:
        """Return a uuid6, as LangGraph makes it: the step as clock sequence, a random node."""
        ticks = (self._now() - _UUID_EPOCH) // timedelta(microseconds=1) * 10
        high = f"{ticks >> 12:012x}"
        clock = self._step & 0x3FFF | 0x8000
        node = self._rng.getrandbits(48)
        return f"{high[:8]}-{high[8:]}-6{ticks & 0xFFF:03x}-{clock:04x}-{node:012x}"

    def _next_version(self) -> str:
        count = max((int(version.split(".")[0]) for version in self._versions.values()), default=0)
        return f"{count + 1:032}.{self._rng.random():016}"
