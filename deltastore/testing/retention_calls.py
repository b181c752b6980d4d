"""What the laws of retention share: a caller that maintains, threads made by supersteps, readings.

A *keeper* is a caller that also prunes, copies, compacts and vacuums. A *thread of supersteps* has
a delta channel `log` (its writes lie on the parent), a plain channel `n` that changes at each step
and a plain channel `doc` that is set once and inherited. A *reading* is all that can be told about
one checkpoint: its tuple and its delta histories, by the saver's own walk and by the base class's.

Ids are canonical uuid6, a minute apart and less than a day old: age is part of the law for some,
and what is younger than a day is nobody's to reclaim.

Asserts no law, draws nothing at random.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from langgraph.checkpoint.base import (
    ChannelVersions,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore.testing import (
    Caller,
    Lane,
    history_shape,
    make_checkpoint,
    make_config,
    shape,
    tuple_shape,
)

Reducer = Callable[[Any, Sequence[Any]], Any]
OVERWRITE: Final = "__overwrite__"
MINUTES: Final = 12 * 60
"""How long before this process began the id of minute 0 was made."""

_EPOCH_TICKS: Final = 0x01B21DD213814000  # 100 ns ticks from 1582-10-15 to 1970-01-01
_FIRST_TICK: Final = (int(time.time()) // 60 - MINUTES) * 600_000_000 + _EPOCH_TICKS


def minute_id(minute: float) -> str:
    """Return the id of a checkpoint made `minute` minutes after the first one could be."""
    ticks = _FIRST_TICK + int(minute * 600_000_000)
    return f"{ticks >> 28:08x}-{ticks >> 12 & 0xFFFF:04x}-6{ticks & 0xFFF:03x}-8001-00000000abcd"


def append(held: Any, writes: Sequence[Any]) -> list[Any]:
    """Reduce a delta channel of lists; anything that is no list counts as an empty one."""
    return [*(held if isinstance(held, list) else ()), *(w for write in writes for w in write)]


REDUCERS: Final = {"log": append}


class Keeper(Caller):
    """A caller of the maintenance methods too, sync or async."""

    def _maintain(self, name: str, *arguments: Any, **named: Any) -> Any:
        if self._loop is None:
            return getattr(self.saver, name)(*arguments, **named)
        return self._run(getattr(self.saver, f"a{name}")(*arguments, **named))

    def prune(self, thread_ids: Sequence[str], **how: Any) -> Any:
        """Call prune or aprune."""
        return self._maintain("prune", thread_ids, **how)

    def copy_thread(self, source: str, target: str, **how: Any) -> Any:
        """Call copy_thread or acopy_thread."""
        return self._maintain("copy_thread", source, target, **how)

    def delete_for_runs(self, run_ids: Sequence[str], **how: Any) -> Any:
        """Call delete_for_runs or adelete_for_runs."""
        return self._maintain("delete_for_runs", run_ids, **how)

    def compact(self, thread_id: str | None = None, bounds: Any = None, **how: Any) -> Any:
        """Call compact or acompact."""
        return self._maintain("compact", thread_id, bounds, **how)

    def vacuum(self) -> Any:
        """Rewrite the store into a new file."""
        saver: Any = self.saver
        return saver.store.vacuum()


@dataclass(frozen=True)
class Reading:
    """One checkpoint as told; thread ids are left out, so that twins in one store compare."""

    told: Any
    history: Any
    walk: Any
    rebuilt: Any


class Thread(Lane):
    """One stream, lived by supersteps."""

    def __init__(self, caller: Keeper, thread_id: str = "t", ns: str = "") -> None:
        super().__init__(caller, thread_id, ns)
        self.keeper = caller
        self.versions: dict[str, ChannelVersions] = {}

    def superstep(
        self,
        minute: float,
        parent: float | None = None,
        *,
        log: Any = None,
        snapshot: list[Any] | None = None,
        doc: Any = None,
        run: str | None = None,
        **metadata: Any,
    ) -> str:
        """Write to the parent, then store its child; return the child's id.

        Args:
            minute, parent: When the child and its parent were made.
            log: A write of the delta channel; None for none.
            snapshot: The delta channel's value whole; None for none, as at most steps.
            doc: A new value of the channel that is seldom set.
        """
        if parent is not None and log is not None:
            self.task(parent, log, f"task-{minute}", run=run)
        cid = minute_id(minute)
        carried: ChannelVersions = {} if parent is None else self.versions[minute_id(parent)]
        version = f"{round(minute * 1000):032}.0.25"
        changed = {"n"} | ({"doc"} if doc is not None else set())
        if log is not None or snapshot is not None or parent is None:
            changed.add("log")
        new: ChannelVersions = dict.fromkeys(sorted(changed), version)
        values = {"n": minute, "doc": doc, "log": _DeltaSnapshot(snapshot)}
        given = {c: values[c] for c in new if c != "log" or snapshot is not None}
        self.versions[cid] = {**carried, **new}
        told = cast(CheckpointMetadata, {"source": "loop", "step": round(minute), **metadata})
        config = self.config(None if parent is None else minute_id(parent))
        if run is not None:
            config["metadata"] = {"run_id": run}
        self.caller.put(config, make_checkpoint(cid, self.versions[cid], given), told, new)
        return cid

    def task(
        self, minute: float, log: Any, task_id: str, path: str = "~pull", run: str | None = None
    ) -> None:
        """Write to the delta channel as a task of the checkpoint made at `minute`."""
        config = self.config(minute_id(minute))
        if run is not None:
            config["metadata"] = {"run_id": run}
        self.caller.put_writes(config, [("log", log)], task_id, path)

    def steps(self, minutes: Sequence[float], parent: float | None = None, **how: Any) -> None:
        """Go on superstep by superstep, each writing its minute to the log."""
        for minute in minutes:
            self.superstep(minute, parent, log=[minute], **how)
            parent = minute

    def log(self, minute: float | None = None) -> list[Any]:
        """Return the delta channel's value at a checkpoint, the head without a minute."""
        found = self.read(None if minute is None else minute_id(minute))
        config = found.config
        return rebuilt(found, self.caller.history(config, ["log"])["log"], "log") or []

    def anchor(self, minute: float) -> CheckpointTuple:
        """Return what stands for a checkpoint that went; it must be an anchor."""
        found = self.read(minute_id(minute))
        assert is_anchor(found), f"no anchor at minute {minute}: {found}"
        return found

    def minutes(self, **arguments: Any) -> list[float]:
        """Return the minutes of the checkpoints a listing yields."""
        return [minute_of(cid) for cid in self.ids(**arguments)]


def minute_of(cid: str) -> float:
    """Return the minute an id was made from."""
    ticks = int(cid[0:8], 16) << 28 | int(cid[9:13], 16) << 12 | int(cid[15:18], 16)
    return round((ticks - _FIRST_TICK) / 600_000_000, 3)


def is_anchor(found: CheckpointTuple) -> bool:
    """Return whether a tuple is that of an anchor."""
    metadata: Mapping[str, Any] = {**found.metadata}
    return metadata.get("deltastore_anchor") is True


def rebuilt(found: CheckpointTuple, history: DeltaChannelHistory | None, channel: str) -> Any:
    """Return a delta channel's value, as LangGraph puts it together; None for none."""
    shown = found.checkpoint["channel_values"]
    if channel in shown or history is None:
        return _unwrapped(shown.get(channel))
    return replayed(_unwrapped(history.get("seed")), [write[2] for write in history["writes"]])


def replayed(base: Any, writes: Sequence[Any], reducer: Reducer = append) -> Any:
    """Apply writes of a delta channel: the last that overwrites is the new base."""
    start = 0
    for position, write in enumerate(writes):
        if isinstance(write, dict) and OVERWRITE in write:
            base, start = write[OVERWRITE], position + 1
    return reducer(base, writes[start:]) if writes[start:] else base


def _unwrapped(value: Any) -> Any:
    return value.value if isinstance(value, _DeltaSnapshot) else value


def read_all(
    keeper: Caller, thread_id: str | None = None, ns: str | None = None
) -> dict[tuple[str, str, str], Reading]:
    """Return the readings of all checkpoints listed, by (thread or "", namespace, id).

    Without a thread id every thread is read, and keys have the thread.
    """
    config = None
    if thread_id is not None:
        config = make_config(thread_id, ns or "")
        if ns is None:
            del config["configurable"]["checkpoint_ns"]
    found: dict[tuple[str, str, str], Reading] = {}
    for listed in keeper.list(config):
        place = listed.config["configurable"]
        key = "" if thread_id is not None else place["thread_id"]
        told = keeper.get_tuple(listed.config)
        assert told is not None, f"{listed.config} is listed and not there"
        assert tuple_shape(listed) == tuple_shape(told), "listed as it does not read"
        found[key, place["checkpoint_ns"], place["checkpoint_id"]] = reading(keeper, told)
    return found


def reading(keeper: Caller, told: CheckpointTuple) -> Reading:
    """Return what is told about one checkpoint.

    Histories are those of the channels it shows no value of: nobody asks for others, and what lies
    before a value is not kept.
    """
    shown = told.checkpoint["channel_values"]
    channels = sorted({*told.checkpoint["channel_versions"], "log"} - shown.keys())
    own = keeper.history(told.config, channels)
    walk = keeper.history_of_base_class(told.config, channels)
    return Reading(
        told=_without_thread(tuple_shape(told)),
        history=history_shape(own),
        walk=history_shape(walk),
        rebuilt=shape(rebuilt(told, own.get("log"), "log")),
    )


def values_only(readings: Mapping[Any, Reading]) -> dict[Any, Reading]:
    """Return readings without the delta channel's stored form: compaction may change that alone."""
    return {key: _values_only(one) for key, one in readings.items()}


def _values_only(one: Reading) -> Reading:
    told = dict(one.told)
    kind, checkpoint = told["checkpoint"]
    values = dict(checkpoint["channel_values"][1])
    values.pop("log", None)
    told["checkpoint"] = kind, {**checkpoint, "channel_values": ("dict", values)}
    rest = [{c: h for c, h in form.items() if c != "log"} for form in (one.history, one.walk)]
    return replace(one, told=told, history=rest[0], walk=rest[1])


def _without_thread(told: dict[str, Any]) -> dict[str, Any]:
    for name in ("config", "parent_config"):
        kind, config = told[name]
        if config is not None:
            place = dict(config["configurable"][1])
            place.pop("thread_id")
            told[name] = kind, place
    return told


def lived(keeper: Keeper, life: Callable[[Thread], None]) -> tuple[Thread, Thread]:
    """Live the same life in the threads `t` and `twin`; return both."""
    threads = Thread(keeper, "t"), Thread(keeper, "twin")
    for thread in threads:
        life(thread)
    return threads


def survivors(twin: Thread, minutes: Iterable[float]) -> dict[tuple[str, str, str], Reading]:
    """Return a thread's readings of the checkpoints made at some minutes."""
    ids = {minute_id(minute) for minute in minutes}
    every = read_all(twin.keeper, twin.thread_id, twin.ns)
    return {key: one for key, one in every.items() if key[2] in ids}


def minutes_now() -> float:
    """Return the minute that is now."""
    return (time.time() / 60) - (_FIRST_TICK - _EPOCH_TICKS) / 600_000_000
