"""The workloads by name: what each stands for, and how it is made from turns and a seed.

The first group runs real compiled graphs; the second makes the same calls on the saver itself,
which a test compares with a graph's, so that threads of thousands of turns can be measured in the
time a graph would take for hundreds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from bench import graphs, shapes
from bench.conversations import Turn
from bench.drives import (
    CallsTask,
    GraphTask,
    HistoryTask,
    ManyThreadsTask,
    PruneCopyTask,
    ResumeTask,
    Task,
)
from bench.graphs import Workload

DELTA_FREQUENCY: Final = 100
"""Updates between two snapshots of a delta channel: LangGraph's default."""

WORKLOADS: Final[Mapping[str, Callable[[Sequence[Turn], int], Workload]]] = {
    "chat_plain": lambda turns, _seed: graphs.chat_plain(turns),
    "chat_delta": lambda turns, _seed: graphs.chat_delta(turns),
    "files": graphs.files,
    "agent_tools": shapes.agent_tools,
    "deep_agent_files": shapes.deep_agent_files,
    "fan_out": shapes.fan_out,
    "long_idle": shapes.long_idle,
    "fork_heavy": shapes.fork_heavy,
    "images": shapes.images,
}
"""Graphs and their turns, by name, from turns and the seed of whatever a workload makes up."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One workload of the suite.

    Attributes:
        what: What it stands for, in a sentence.
        make: Makes its task from turns and a seed.
        runs_graph: Whether a compiled graph is run; else the saver's calls are made.
    """

    what: str
    make: Callable[[Sequence[Turn], int], Task]
    runs_graph: bool


def _graph(what: str, name: str) -> Entry:
    return Entry(what, lambda turns, seed: GraphTask(WORKLOADS[name](turns, seed)), True)


def _calls(what: str, task: type[CallsTask], frequency: int | None) -> Entry:
    return Entry(
        what,
        lambda turns, seed: task(turns, snapshot_frequency=frequency, seed=seed),
        False,
    )


def _many(what: str, conversations: int) -> Entry:
    return Entry(what, partial(_many_threads, conversations=conversations), False)


def _many_threads(turns: Sequence[Turn], seed: int, *, conversations: int) -> Task:
    return ManyThreadsTask(turns, conversations=conversations, seed=seed)


CATALOGUE: Final[Mapping[str, Entry]] = {
    "chat_plain": _graph(
        "the recorded conversations in an `add_messages` channel: the whole list is handed over at "
        "each superstep",
        "chat_plain",
    ),
    "chat_delta": _graph(
        "the same in LangGraph's `DeltaChannel`, at its default snapshot frequency", "chat_delta"
    ),
    "agent_tools": _graph(
        "the same as LangGraph's prebuilt agent runs it: each tool call is a `Send` that carries "
        "the whole state",
        "agent_tools",
    ),
    "files": _graph(
        "`chat_plain` beside a plain dict of 50 files of 4 KB; a turn changes one line of one",
        "files",
    ),
    "deep_agent_files": _graph(
        "messages and the same files as deepagents keeps them: delta channels with a snapshot "
        "every 50 updates",
        "deep_agent_files",
    ),
    "fan_out": _graph("eight parallel `Send` tasks a turn, each adding 200 bytes", "fan_out"),
    "long_idle": _graph(
        "`chat_delta` beside a delta channel and a dict that only the first turn writes",
        "long_idle",
    ),
    "fork_heavy": _graph(
        "`chat_delta` in which every fourth turn goes three turns back and forks there",
        "fork_heavy",
    ),
    "images": _graph(
        "`chat_plain` in which the user sends a picture of 64 KB every five turns", "images"
    ),
    "calls_plain": _calls("the calls of `chat_plain`, without the graph", CallsTask, None),
    "calls_delta": _calls(
        "the calls of `chat_delta`, without the graph", CallsTask, DELTA_FREQUENCY
    ),
    "resume": _calls(
        "`calls_delta`, closed and loaded by a new saver at points ever further on",
        ResumeTask,
        DELTA_FREQUENCY,
    ),
    "history": _calls(
        "`calls_delta`, then listed and read at points in its past", HistoryTask, DELTA_FREQUENCY
    ),
    "prune_copy": _calls(
        "`calls_delta`, then copied, pruned to its newest checkpoint, and the copy deleted",
        PruneCopyTask,
        DELTA_FREQUENCY,
    ),
    **{
        f"many_threads_{count}": _many(
            f"{count} conversations at once share the turns out, calls of `chat_plain`", count
        )
        for count in (1, 8, 16, 64, 1_000)
    },
}
"""Every workload of the suite, by name."""
