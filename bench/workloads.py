"""Graphs that replay recorded turns through LangGraph, as a tool-calling agent would live them.

A *workload* is a graph and, for each turn, its input and what the nodes will answer. The *script*
of a turn is handed to the graph as run context, which LangGraph does not store: a node takes its
next message from it, so every saver sees the same messages in the same supersteps.

    START -> (edit ->) route -> agent -> route -> tools -> route -> ... -> END

Nothing here knows which saver is underneath or measures anything.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime

from bench.conversations import Turn, make_text

FILES = 50
FILE_BYTES = 4_096


@dataclass(slots=True)
class Script:
    """What the nodes of one run answer: replies, oldest first, and files to write."""

    replies: deque[AIMessage | ToolMessage]
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One turn of a workload, the same for every saver.

    Attributes:
        values: Input of the run.
        replies, files: As in `Script`; made anew for each run, which uses it up.
        new_bytes: Serialised size of the messages and whole files the turn adds to the state.
    """

    values: dict[str, Any]
    replies: tuple[AIMessage | ToolMessage, ...]
    files: Mapping[str, str]
    new_bytes: int

    def script(self) -> Script:
        """Return a script for one run."""
        return Script(deque(self.replies), self.files)


@dataclass(frozen=True, slots=True)
class Workload:
    """A graph to compile, its turns, and the state they must end in."""

    name: str
    compile: Callable[[BaseCheckpointSaver[Any]], CompiledStateGraph[Any, Any, Any, Any]]
    steps: Sequence[Step]
    final: Mapping[str, Any]


class Plain(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Delta(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


def merge_files(left: dict[str, str], right: dict[str, str]) -> dict[str, str]:
    """Reducer: files by name, the newer one stays."""
    return {**left, **right}


class WithFiles(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    files: Annotated[dict[str, str], merge_files]


def _reply(state: Any, runtime: Runtime[Script]) -> dict[str, Any]:
    return {"messages": [runtime.context.replies.popleft()]}


def _edit(state: Any, runtime: Runtime[Script]) -> dict[str, Any]:
    return {"files": dict(runtime.context.files)}


def _route(state: Any, runtime: Runtime[Script]) -> str:
    replies = runtime.context.replies
    if not replies:
        return END
    return "tools" if isinstance(replies[0], ToolMessage) else "agent"


def _agent_graph(schema: type[Any], *, edits: bool = False) -> StateGraph[Any, Any, Any, Any]:
    builder = StateGraph(schema, context_schema=Script)
    builder.add_node("agent", _reply)
    builder.add_node("tools", _reply)
    first = START
    if edits:
        builder.add_node("edit", _edit)
        builder.add_edge(START, "edit")
        first = "edit"
    for name in (first, "agent", "tools"):
        builder.add_conditional_edges(name, _route)
    return builder


def chat_plain(turns: Sequence[Turn]) -> Workload:
    """A conversation in an `add_messages` channel: the whole list is handed over at each step."""
    return _chat("chat_plain", Plain, turns)


def chat_delta(turns: Sequence[Turn]) -> Workload:
    """The same conversation in LangGraph's `DeltaChannel`, at its default snapshot frequency."""
    return _chat("chat_delta", Delta, turns)


def files(turns: Sequence[Turn], seed: int) -> Workload:
    """The conversation beside a dict of 50 files of 4 KB; a turn changes one line of one file."""
    rng = random.Random(seed)
    stored = {f"src/part_{i:02d}.txt": make_text(rng, FILE_BYTES) for i in range(FILES)}
    steps, measure = [], _Measure()
    for number, turn in enumerate(turns):
        added = dict(stored) if number == 0 else {}
        values: dict[str, Any] = {"messages": [turn.user]}
        if added:
            values["files"] = added
        name = rng.choice(sorted(stored))
        lines = stored[name].splitlines(keepends=True)
        place = rng.randrange(len(lines))
        lines[place] = make_text(rng, len(lines[place]))
        edited = {name: "".join(lines)}
        stored.update(edited)
        new_bytes = measure.size(turn.messages) + measure.size(edited)
        if added:
            new_bytes += measure.size(added)
        steps.append(Step(values, turn.replies, edited, new_bytes))
    return Workload(
        "files",
        lambda saver: _agent_graph(WithFiles, edits=True).compile(checkpointer=saver),
        steps,
        {"messages": _all_messages(turns), "files": stored},
    )


WORKLOADS: Mapping[str, Callable[[Sequence[Turn], int], Workload]] = {
    "chat_plain": lambda turns, _seed: chat_plain(turns),
    "chat_delta": lambda turns, _seed: chat_delta(turns),
    "files": files,
}
"""Makers of workloads by name, from turns and the seed of whatever a workload makes up."""


def _chat(name: str, schema: type[Any], turns: Sequence[Turn]) -> Workload:
    measure = _Measure()
    steps = [
        Step({"messages": [turn.user]}, turn.replies, {}, measure.size(turn.messages))
        for turn in turns
    ]
    return Workload(
        name,
        lambda saver: _agent_graph(schema).compile(checkpointer=saver),
        steps,
        {"messages": _all_messages(turns)},
    )


def _all_messages(turns: Sequence[Turn]) -> list[AnyMessage]:
    return [message for turn in turns for message in turn.messages]


class _Measure:
    """Serialised sizes, by the serializer that savers use unless told otherwise."""

    def __init__(self) -> None:
        self._serde = JsonPlusSerializer()

    def size(self, value: Any) -> int:
        return len(self._serde.dumps_typed(value)[1])
