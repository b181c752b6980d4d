"""Graphs that replay recorded turns through LangGraph, as a tool-calling agent would live them.

A *workload* is a graph and, for each turn, its input and what the nodes will answer. The *script*
of a turn is handed to the graph as run context, which LangGraph does not store: a node takes its
next message from it, so every saver sees the same messages in the same supersteps.

    START -> (edit ->) route -> agent -> route -> tools -> route -> ... -> END

Graphs of other shapes are in `bench.shapes`; `bench.workloads` lists them all.

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
    """What the nodes of one run answer: replies, oldest first, files to write, parts of a whole."""

    replies: deque[AIMessage | ToolMessage]
    files: Mapping[str, Any] = field(default_factory=dict)
    parts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One turn of a workload, the same for every saver.

    Attributes:
        values: Input of the run.
        replies, files, parts: As in `Script`; made anew for each run, which uses it up.
        new: The messages and whole files the turn adds to the state, serialised.
        back: Turns to go back before this one: it starts from the state that was left then.
    """

    values: dict[str, Any]
    replies: tuple[AIMessage | ToolMessage, ...]
    files: Mapping[str, Any]
    new: bytes
    parts: Sequence[str] = ()
    back: int = 0

    @property
    def new_bytes(self) -> int:
        """Serialised size of what the turn adds to the state."""
        return len(self.new)

    def script(self) -> Script:
        """Return a script for one run."""
        return Script(deque(self.replies), self.files, self.parts)


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


def reply(state: Any, runtime: Runtime[Script]) -> dict[str, Any]:
    """Node: the next message of the script."""
    return {"messages": [runtime.context.replies.popleft()]}


def edit(state: Any, runtime: Runtime[Script]) -> dict[str, Any]:
    """Node: the files of the script."""
    return {"files": dict(runtime.context.files)}


def route(state: Any, runtime: Runtime[Script]) -> str:
    """Edge: to the node whose message is next."""
    replies = runtime.context.replies
    if not replies:
        return END
    return "tools" if isinstance(replies[0], ToolMessage) else "agent"


def agent_graph(schema: type[Any], *, edits: bool = False) -> StateGraph[Any, Any, Any, Any]:
    """Return an agent and its tools on a schema; with `edits`, a node that writes files first."""
    builder = StateGraph(schema, context_schema=Script)
    builder.add_node("agent", reply)
    builder.add_node("tools", reply)
    first = START
    if edits:
        builder.add_node("edit", edit)
        builder.add_edge(START, "edit")
        first = "edit"
    for name in (first, "agent", "tools"):
        builder.add_conditional_edges(name, route)
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
    steps = []
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
        new = serialised(turn.messages, edited, *([added] if added else []))
        steps.append(Step(values, turn.replies, edited, new))
    return Workload(
        "files",
        lambda saver: agent_graph(WithFiles, edits=True).compile(checkpointer=saver),
        steps,
        {"messages": all_messages(turns), "files": stored},
    )


def _chat(name: str, schema: type[Any], turns: Sequence[Turn]) -> Workload:
    steps = [
        Step({"messages": [turn.user]}, turn.replies, {}, serialised(turn.messages))
        for turn in turns
    ]
    return Workload(
        name,
        lambda saver: agent_graph(schema).compile(checkpointer=saver),
        steps,
        {"messages": all_messages(turns)},
    )


def all_messages(turns: Sequence[Turn]) -> list[AnyMessage]:
    """Return the messages of all turns, oldest first."""
    return [message for turn in turns for message in turn.messages]


_SERDE = JsonPlusSerializer()


def serialised(*values: Any) -> bytes:
    """Return the values by the serializer that savers use unless told otherwise, concatenated."""
    return b"".join(_SERDE.dumps_typed(value)[1] for value in values)
