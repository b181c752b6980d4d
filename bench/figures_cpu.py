"""CPU the engine takes beside serialising: figures `overhead`, `list`, `head` and `walk`.

All times are CPU times, of the thread or, where work is spread over threads, of the process: what
else the machine does moves them little, but not by nothing. So each is taken `ROUNDS` times, what
is compared in turns, and the best round counts: the one least disturbed.

A *superstep* is the `put_writes` of a task and the `put` of the checkpoint that follows from it.
Its *overhead* is its time less what the serializer took inside it, and less the commit where one
goes to a file. Calls are those of `bench.figures_puts`.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, thread_time
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from langchain_core.messages import AnyMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from bench.conversations import Turn
from bench.figures_puts import Call, Chat, Put, apply_call
from bench.figures_table import Figure, Result
from bench.kinds import directory_bytes
from deltastore import DeltaStoreSaver
from deltastore.engine.lmdb import LmdbTransaction

ROUNDS = 5
_THREAD: Final = "conversation"
_HEAD: Final[Any] = {"configurable": {"thread_id": _THREAD, "checkpoint_ns": ""}}
_OTHERS: Final = {"customer": "mia_li_3668", "locale": "en-US", "plan": ["book", "confirm"]}
_WARM_UP: Final = 5  # supersteps of a list not counted: the first stores it whole
_UNBOUNDED: Final = 1 << 40


class _TimedSerde(JsonPlusSerializer):
    """LangGraph's serializer, with the CPU seconds of each `dumps_typed` since the last `take`."""

    def __init__(self) -> None:
        super().__init__()
        self._taken: list[float] = []

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        begun = thread_time()
        typed = super().dumps_typed(obj)
        self._taken.append(thread_time() - begun)
        return typed

    def take(self) -> list[float]:
        taken, self._taken = self._taken, []
        return taken


@dataclass(slots=True)
class _CommitClock:
    """CPU seconds spent in commits of LMDB since the last `take`."""

    taken_s: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        commit = LmdbTransaction._commit

        def timed(transaction: LmdbTransaction) -> None:
            begun = thread_time()
            try:
                commit(transaction)
            finally:
                self.taken_s += thread_time() - begun

        with patch.object(LmdbTransaction, "_commit", timed):
            yield

    def take(self) -> float:
        taken, self.taken_s = self.taken_s, 0.0
        return taken


class _Superstep(NamedTuple):
    """CPU seconds of one superstep; `list_s` is the longest of its `dumps_typed`."""

    overhead_s: float
    serialising_s: float
    list_s: float
    commit_s: float


@dataclass(slots=True)
class _Run:
    """The supersteps of one round on one engine."""

    steps: list[_Superstep] = field(default_factory=list)

    def tenths_us(self) -> tuple[float, float]:
        """Return the median overhead of the first and of the last tenth, in microseconds."""
        tenth = max(1, len(self.steps) // 10)
        first, last = self.steps[:tenth], self.steps[-tenth:]
        return _median_us(first, "overhead_s"), _median_us(last, "overhead_s")

    def share(self) -> float:
        """Return the median overhead as a share of serialising the list."""
        steps = self.steps[_WARM_UP:]
        return median(s.overhead_s for s in steps) / median(s.list_s for s in steps)

    def median_us(self, what: str) -> float:
        return _median_us(self.steps, what)


def _median_us(steps: Sequence[_Superstep], what: str) -> float:
    return median(float(getattr(step, what)) for step in steps) * 1e6


def _supersteps(
    saver: DeltaStoreSaver, serde: _TimedSerde, commits: _CommitClock, calls: Iterable[Call]
) -> Iterator[_Superstep]:
    """Make the calls and yield each superstep; the `put` of an input is not one."""
    total_s = 0.0
    expected = 0
    for call in calls:
        begun = thread_time()
        apply_call(saver, call)
        total_s += thread_time() - begun
        if not isinstance(call, Put):
            expected = len(call.writes)
            continue
        expected += len(call.new_versions.keys() & call.checkpoint["channel_values"].keys())
        taken, commit_s = serde.take(), commits.take()
        if len(taken) != expected:
            raise AssertionError(f"{len(taken)} values were serialised where {expected} are new")
        if call.metadata["source"] == "loop":
            overhead_s = total_s - sum(taken) - commit_s
            yield _Superstep(overhead_s, sum(taken), max(taken), commit_s)
        total_s, expected = 0.0, 0


def _run_on(engine: str, make_calls: Callable[[], Iterator[Call]], supersteps: int) -> _Run:
    serde, commits, run = _TimedSerde(), _CommitClock(), _Run()
    with tempfile.TemporaryDirectory(prefix="figures-") as scratch, commits.running():
        if engine == "memory":
            saver = DeltaStoreSaver.ephemeral(serde=serde)
        else:
            saver = DeltaStoreSaver(Path(scratch) / "store", serde=serde, durability="normal")
        with saver:
            saver.setup()
            commits.take()
            gc.collect()
            timed = _supersteps(saver, serde, commits, make_calls())
            run.steps = list(islice(timed, supersteps))
    return run


def _runs(make_calls: Callable[[], Iterator[Call]], supersteps: int) -> dict[str, list[_Run]]:
    runs: dict[str, list[_Run]] = {"lmdb": [], "memory": []}
    for _ in range(ROUNDS):
        for engine, done in runs.items():
            done.append(_run_on(engine, make_calls, supersteps))
    return runs


def measure_overhead(turns: Sequence[Turn], supersteps: int) -> Result:
    """Measure the overhead of a superstep of a delta channel at the start and end of a thread."""

    def calls() -> Iterator[Call]:
        return Chat(_THREAD, snapshot_frequency=100, others=_OTHERS).calls(turns)

    result = Result([], [f"best of {ROUNDS} rounds of {supersteps} supersteps, 7 channels"])
    for engine, runs in _runs(calls, supersteps).items():
        best = min(runs, key=lambda run: sum(run.tenths_us()))
        first, last = best.tenths_us()
        where = f"beyond serialising, {engine}"
        if engine == "lmdb":
            where += " without commit"
        result.figures.extend(
            (
                Figure("overhead", f"first tenth {where}", first, "us", 150),
                Figure("overhead", f"last tenth {where}", last, "us", 150),
                Figure("overhead", f"last / first tenth, {engine}", last / first, "x", 1.3),
            )
        )
        result.notes.append(
            f"{engine}: serialising {best.median_us('serialising_s'):.0f} us, commit "
            f"{best.median_us('commit_s'):.0f} us; last tenth of every round: "
            + ", ".join(f"{run.tenths_us()[1]:.0f}" for run in runs)
        )
        result.counts[f"supersteps_{engine}"] = [len(run.steps) for run in runs]
    return result


def measure_list(turns: Sequence[Turn], messages: int) -> Result:
    """Measure the overhead of a superstep of a plain list of `messages` messages."""
    begin = 0
    held: list[AnyMessage] = []
    while len(held) < messages and begin < len(turns) // 2 + 1:
        held += turns[begin].messages
        begin += 1
    supersteps = max(2 * _WARM_UP, messages // 10)

    def calls() -> Iterator[Call]:
        chat = Chat(_THREAD, snapshot_frequency=None, messages=held)
        return chat.calls(turns[begin:])

    result = Result([], [f"best of {ROUNDS} rounds of {supersteps} supersteps, from {len(held)}"])
    for engine, runs in _runs(calls, supersteps).items():
        best = min(runs, key=_Run.share)
        what = f"beyond serialising / serialising a plain list, {engine}"
        result.figures.append(Figure("list", what, best.share(), "x", 0.15))
        result.notes.append(
            f"{engine}: overhead {best.median_us('overhead_s'):.0f} us, the list "
            f"{best.median_us('list_s'):.0f} us, commit {best.median_us('commit_s'):.0f} us; every "
            "round: " + ", ".join(f"{run.share():.2f}" for run in runs)
        )
    result.counts["messages"] = len(held)
    return result


@dataclass(frozen=True, slots=True)
class _Store:
    """A closed store of one thread.

    Attributes:
        before_snapshot: Config of the parent of the last checkpoint with a snapshot; None if none.
    """

    directory: Path
    turns: int
    before_snapshot: Any


def _build_store(directory: Path, turns: Sequence[Turn], writes: int | None) -> _Store:
    """Store a chat; with `writes`, up to that many and without a snapshot."""
    if writes is None:
        calls = Chat(_THREAD, snapshot_frequency=100).calls(turns)
    else:
        chat = Chat(_THREAD, snapshot_frequency=10_000, supersteps_max=_UNBOUNDED)
        calls = chat.calls(turns)
    before, made, played = None, 0, 0
    with DeltaStoreSaver(directory, durability="normal") as saver:
        for call in calls:
            apply_call(saver, call)
            if not isinstance(call, Put):
                made += 1
                continue
            if "messages" in call.checkpoint["channel_values"]:
                before = call.config
            played += call.metadata["source"] == "input"
            if made == writes:
                break
    return _Store(directory, played, before)


def _load_head(saver: DeltaStoreSaver) -> Any:
    """Load the newest checkpoint as LangGraph does; return all that came."""
    head = saver.get_tuple(_HEAD)
    assert head is not None
    return head, saver.get_delta_channel_history(config=head.config, channels=["messages"])


def _measure_store(store: _Store, what: str) -> Result:
    with DeltaStoreSaver(store.directory) as saver:
        head = saver.store.get(_THREAD, "", None, None)
        assert head is not None
        history = saver.store.history(_THREAD, "", head.checkpoint_id, ["messages"], None)
        seed, writes = history["messages"]
    typed = [*head.values.values(), *(write.value for write in (*head.writes, *writes))]
    typed += [] if seed is None else [seed]
    serde = JsonPlusSerializer()
    opening_s, loading_s, alone_s = [], [], []
    for _ in range(ROUNDS):
        gc.collect()
        begun = thread_time()
        saver = DeltaStoreSaver(store.directory)
        saver.setup()
        opened = thread_time()
        found = _load_head(saver)
        loaded = thread_time()
        saver.close()
        opening_s.append(opened - begun)
        loading_s.append(loaded - opened)
        del found
        gc.collect()
        begun = thread_time()
        found = [serde.loads_typed((one.type, one.data)) for one in typed]
        alone_s.append(thread_time() - begun)
        del found
    loading, alone = min(loading_s), min(alone_s)
    size = directory_bytes(store.directory)
    seed_bytes = 0 if seed is None else len(seed.data)
    note = (
        f"{store.turns} turns: loading {loading * 1e3:.1f} ms, deserialising {seed_bytes} B of "
        f"seed and {len(writes)} writes {alone * 1e3:.1f} ms; opening, not counted, "
        f"{min(opening_s) * 1e3:.1f} ms for {size / 1e6:.1f} MB"
    )
    return Result(
        [Figure("head", f"loading / deserialising alone, {what}", loading / alone, "x", 1.5)],
        [note],
        {what: {"writes": len(writes), "seed_bytes": seed_bytes}},
    )


def measure_head(turns: Sequence[Turn]) -> Result:
    """Measure loading the head of a long delta chat, with a snapshot near and with none at all."""
    total = Result([], [f"best of {ROUNDS} rounds, caches cold"])
    for what, writes in (("a snapshot every 100", None), ("no snapshot", 2 * len(turns))):
        with tempfile.TemporaryDirectory(prefix="figures-") as scratch:
            one = _measure_store(_build_store(Path(scratch) / "store", turns, writes), what)
        total.figures.extend(one.figures)
        total.notes.extend(one.notes)
        total.counts.update(one.counts)
    return total


class _Walked(NamedTuple):
    cpu_s: float
    wall_s: float
    found: Any


async def _walk(store: _Store, config: Any, *, step_by_step: bool) -> _Walked:
    """Fetch a history from a fresh saver: by its own method, or checkpoint by checkpoint."""
    method = BaseCheckpointSaver if step_by_step else DeltaStoreSaver
    async with DeltaStoreSaver(store.directory) as saver:
        await saver.aget_tuple({"configurable": {"thread_id": "another"}})  # starts a thread
        gc.collect()
        cpu, wall = process_time(), perf_counter()
        found = await method.aget_delta_channel_history(saver, config=config, channels=["messages"])
        return _Walked(process_time() - cpu, perf_counter() - wall, found["messages"])


def measure_walk(turns: Sequence[Turn]) -> Result:
    """Measure walking from just before a snapshot to the one before it by `aget_tuple`."""
    own: list[_Walked] = []
    steps: list[_Walked] = []
    with tempfile.TemporaryDirectory(prefix="figures-") as scratch:
        store = _build_store(Path(scratch) / "store", turns, None)
        config = store.before_snapshot or _HEAD
        for _ in range(ROUNDS):
            steps.append(asyncio.run(_walk(store, config, step_by_step=True)))
            own.append(asyncio.run(_walk(store, config, step_by_step=False)))
    if steps[0].found != own[0].found:
        raise AssertionError("the two ways to a history found different ones")
    step, whole = min(one.cpu_s for one in steps), min(one.cpu_s for one in own)
    what = "aget_tuple of each ancestor / aget_delta_channel_history"
    writes = len(own[0].found["writes"])
    step_wall, whole_wall = min(one.wall_s for one in steps), min(one.wall_s for one in own)
    note = (
        f"best of {ROUNDS} rounds, caches cold; {writes} writes back to the seed: "
        f"{step * 1e3:.1f} ms against {whole * 1e3:.1f} ms of CPU, wall {step_wall * 1e3:.1f} "
        f"against {whole_wall * 1e3:.1f} ms"
    )
    return Result(
        [Figure("walk", what, step / whole, "x", 1.5)],
        [note],
        {"writes": writes},
    )
