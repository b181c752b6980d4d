"""What is done to a saver: tasks that drive it, by running a graph or by making its calls.

A *task* yields after each *unit* (a turn, as a rule), knows the new state of each, and can load the
newest state and say whether it is the one that was put in. Everything is written as coroutines
over a `Stage`, so that sync and async savers are driven by the same code.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any, Final

from bench.conversations import Turn
from bench.figures_puts import Chat, Put
from bench.fits import milestones, quantile
from bench.graphs import Workload, all_messages, serialised
from bench.stage import Stage

THREAD: Final = "conversation"
HEAD: Final[Any] = {"configurable": {"thread_id": THREAD, "checkpoint_ns": ""}}
_CONFIG: Final[Any] = {"configurable": {"thread_id": THREAD}, "recursion_limit": 1_000}
_THREADS_MAX: Final = 64
_LAG_EVERY_S: Final = 0.001
_ROUNDS: Final = 5


class Task(ABC):
    """One workload, made for a number of turns.

    Attributes:
        new: Serialised new state of each unit.
        counted: Whether bytes are counted between the saver and its engine meanwhile.
    """

    new: Sequence[bytes]
    counted: bool = True

    @abstractmethod
    def drive(self, stage: Stage) -> AsyncIterator[None]:
        """Do it, yielding after each unit."""

    @abstractmethod
    async def load(self, stage: Stage) -> Any:
        """Return the newest state."""

    @property
    @abstractmethod
    def final(self) -> Any:
        """What `load` must return after all units."""

    async def after(self, stage: Stage) -> None:  # noqa: B027 - most tasks have nothing to add
        """Measure what is to be measured once, when all units are done."""


class GraphTask(Task):
    """A workload's turns, each run through its compiled graph with `durability="sync"`."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.new = [step.new for step in workload.steps]

    async def drive(self, stage: Stage) -> AsyncIterator[None]:
        graph = self._workload.compile(stage.saver)
        forks = any(step.back for step in self._workload.steps)
        left: list[Any] = [_CONFIG]  # the config each turn left its state under
        for step in self._workload.steps:
            begin = left[-1 - step.back] if step.back else _CONFIG
            # `sync`: a superstep begins when the last one is stored; no call hides behind another.
            await stage.ask(
                graph, "invoke", step.values, begin, context=step.script(), durability="sync"
            )
            if forks:
                state = await stage.ask(graph, "get_state", _CONFIG)
                left.append({**_CONFIG, **state.config})
            yield

    async def load(self, stage: Stage) -> Any:
        graph = self._workload.compile(stage.saver)
        return dict((await stage.ask(graph, "get_state", _CONFIG)).values)

    @property
    def final(self) -> Any:
        return dict(self._workload.final)


class CallsTask(Task):
    """The calls a chat's graph makes, made without running it, which a long thread would be mostly.

    The newest state is loaded at some points, as each turn of a graph would.
    """

    def __init__(self, turns: Sequence[Turn], *, snapshot_frequency: int | None, seed: int) -> None:
        self._turns = turns
        self._frequency = snapshot_frequency
        self._seed = seed
        self.new = [serialised(turn.messages) for turn in turns]
        self.ends: list[Any] = []  # of the turns' last checkpoints

    async def drive(self, stage: Stage) -> AsyncIterator[None]:
        chat = Chat(THREAD, snapshot_frequency=self._frequency, seed=self._seed)
        reads = set(milestones(len(self._turns)))
        for number, turn in enumerate(self._turns, 1):
            for call in chat.calls([turn]):
                await make_call(stage, call)
            self.ends.append(chat.head)
            yield
            if number in reads:
                await self.read_point(stage, number)

    async def read_point(self, stage: Stage, _number: int) -> None:
        """Read at one of some points on the way."""
        await self.load(stage)

    async def load(self, stage: Stage) -> Any:
        return await self.load_at(stage, HEAD)

    async def load_at(self, stage: Stage, config: Any) -> list[Any]:
        """Return the messages at a checkpoint; none if it is not there."""
        found = await stage.call("get_tuple", config)
        if found is None:
            return []
        values = found.checkpoint["channel_values"]
        if self._frequency is None:
            return list(values["messages"])
        told = await stage.call(
            "get_delta_channel_history", config=found.config, channels=["messages"]
        )
        history = told["messages"]
        seed = values.get("messages", history.get("seed"))
        if "messages" in values:
            return list(getattr(seed, "value", seed))
        writes = [one for _, _, new in history["writes"] for one in new]
        return [*(seed.value if seed is not None else ()), *writes]

    @property
    def final(self) -> Any:
        return all_messages(self._turns)


async def make_call(stage: Stage, call: Any) -> None:
    """Make a call of `bench.figures_puts`."""
    if isinstance(call, Put):
        await stage.call(
            "put", call.config, call.checkpoint, call.metadata, dict(call.new_versions)
        )
    else:
        await stage.call("put_writes", call.config, call.writes, call.task_id, call.task_path)


class ResumeTask(CallsTask):
    """A long chat that is closed and taken up again by a new saver, at points ever further on."""

    async def read_point(self, stage: Stage, number: int) -> None:
        taken = []
        for _ in range(_ROUNDS):
            begun = time.perf_counter()
            await stage.reopen()
            await self.load(stage)
            taken.append((time.perf_counter() - begun) * 1e3)
        stage.notes.setdefault("resume_at", []).append([number, min(taken), median(taken)])


class HistoryTask(CallsTask):
    """A long chat that is then looked back into: listed, and read at points in its past."""

    async def after(self, stage: Stage) -> None:
        listed, whole, tuples, states = [], [], [], []
        for _ in range(_ROUNDS):
            begun = time.perf_counter()
            found = await stage.listed(HEAD, limit=10)
            listed.append((time.perf_counter() - begun) * 1e3)
            if len(found) != 10:
                raise AssertionError(f"list(limit=10) gave {len(found)}")
        begun = time.perf_counter()
        count = len(await stage.listed(HEAD))
        whole.append((time.perf_counter() - begun) * 1e3)
        for place in range(1, 10):
            config = self.ends[len(self.ends) * place // 10]
            begun = time.perf_counter()
            await stage.call_bare("get_tuple", config)
            tuples.append((time.perf_counter() - begun) * 1e3)
            begun = time.perf_counter()
            messages = await self.load_at(stage, config)
            states.append((time.perf_counter() - begun) * 1e3)
            planned = all_messages(self._turns[: len(self.ends) * place // 10 + 1])
            if messages != planned:
                raise AssertionError(f"a past state holds {len(messages)} of {len(planned)}")
        stage.notes["history"] = {
            "list10_ms": median(listed),
            "list_all_ms": whole[0],
            "listed": count,
            "past_tuple_ms": median(tuples),
            "past_state_ms": median(states),
        }


class PruneCopyTask(CallsTask):
    """A long chat that is copied, pruned to its newest checkpoint, and whose copy is deleted."""

    async def after(self, stage: Stage) -> None:
        copied = {"configurable": {"thread_id": "copy", "checkpoint_ns": ""}}
        found: dict[str, Any] = {}
        found["copy"] = await self._attempt(stage, "copy_thread", THREAD, "copy")
        if "ms" in found["copy"] and await self.load_at(stage, copied) != self.final:
            raise AssertionError("the copy holds another state")
        found["prune"] = await self._attempt(stage, "prune", [THREAD])
        found["delete"] = await self._attempt(
            stage, "delete_thread", "copy" if "ms" in found["copy"] else THREAD
        )
        self._deleted = "ms" not in found["copy"] and "ms" in found["delete"]
        stage.notes["maintenance"] = found

    async def _attempt(self, stage: Stage, name: str, *args: Any) -> dict[str, Any]:
        begun = time.perf_counter()
        try:
            await stage.call_bare(name, *args)
        except NotImplementedError as refused:
            return {"refused": str(refused)[:120] or "NotImplementedError"}
        return {"ms": (time.perf_counter() - begun) * 1e3}

    async def load(self, stage: Stage) -> Any:
        if getattr(self, "_deleted", False):  # nothing is left to load where copying is unknown
            return self.final
        return await super().load(stage)


class ManyThreadsTask(Task):
    """Conversations at once, each making its calls one after the other as fast as they return.

    An async saver gets a coroutine for each, on one event loop, beside a task that sleeps for 1 ms
    and notes by how much it overslept. Any other gets threads, 64 at most, that share them out.
    This is about pace, of which counting would take a part that differs among savers.
    """

    counted = False

    def __init__(self, turns: Sequence[Turn], *, conversations: int, seed: int) -> None:
        each = max(1, len(turns) // conversations)
        self._given = [
            [turns[(number * each + place) % len(turns)] for place in range(each)]
            for number in range(conversations)
        ]
        self._seed = seed
        self.new = [serialised(*(turn.messages for given in self._given for turn in given))]

    async def drive(self, stage: Stage) -> AsyncIterator[None]:
        if stage.kind.is_async:
            lags: list[float] = []
            watching = asyncio.create_task(_watch_lag(lags))
            await asyncio.gather(*(self._converse(stage, n) for n in range(len(self._given))))
            watching.cancel()
            lags.sort()
            stage.notes["lag_ms"] = {
                "p50": quantile(lags, 0.5),
                "p99": quantile(lags, 0.99),
                "p999": quantile(lags, 0.999),
                "max": lags[-1],
                "samples": len(lags),
            }
        else:
            with ThreadPoolExecutor(min(len(self._given), _THREADS_MAX)) as pool:
                list(pool.map(lambda n: self._converse_sync(stage, n), range(len(self._given))))
        yield

    def _converse_sync(self, stage: Stage, number: int) -> None:
        work = self._converse(stage, number)
        try:
            work.send(None)
        except StopIteration:
            return
        raise AssertionError("a call of a sync saver waited for an event loop")

    async def _converse(self, stage: Stage, number: int) -> None:
        chat = Chat(f"{THREAD} {number}", snapshot_frequency=None, seed=self._seed + number)
        for call in chat.calls(self._given[number]):
            if stage.expired:
                return
            await make_call(stage, call)

    async def load(self, stage: Stage) -> Any:
        found = []
        for number in range(0, len(self._given), max(1, len(self._given) // 8)):
            config = {"configurable": {"thread_id": f"{THREAD} {number}", "checkpoint_ns": ""}}
            head = await stage.call("get_tuple", config)
            found.append(head and list(head.checkpoint["channel_values"]["messages"]))
        return found

    @property
    def final(self) -> Any:
        every = max(1, len(self._given) // 8)
        return [all_messages(given) for given in self._given[::every]]


async def _watch_lag(lags: list[float]) -> None:
    while True:
        begun = time.perf_counter()
        await asyncio.sleep(_LAG_EVERY_S)
        lags.append((time.perf_counter() - begun - _LAG_EVERY_S) * 1e3)
