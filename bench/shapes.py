"""Graphs of further shapes: what agents, parallel tasks, forks and large values do to a saver.

Each maker takes turns and the seed of whatever it makes up, and returns a `Workload` whose graph
answers from the script, as those of `bench.graphs` do.
"""

from __future__ import annotations

import base64
import operator
import random
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypedDict

from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.runtime import Runtime
from langgraph.types import Send

from bench.conversations import Turn, make_text
from bench.graphs import (
    FILE_BYTES,
    FILES,
    Delta,
    Plain,
    Script,
    Step,
    Workload,
    agent_graph,
    all_messages,
    reply,
    route,
    serialised,
)

PARTS: Final = 8  # parallel tasks of a fan-out
PART_BYTES: Final = 200
IMAGE_BYTES: Final = 64 << 10
IMAGE_EVERY: Final = 5  # turns
FORK_EVERY: Final = 4  # turns
FORK_BACK: Final = 3  # turns
PROFILE_BYTES: Final = 2_000
_DEEP_FREQUENCY: Final = 50  # of deepagents 0.7
_TIME: Final = "2026-01-05T09:00:00+00:00"


# Agents


def agent_tools(turns: Sequence[Turn], _seed: int) -> Workload:
    """An agent whose tools are called as LangGraph's prebuilt agent calls them.

    Each tool call is sent to a task of its own, and what is sent carries the whole state, so that
    it is written once more as a pending write. Messages are a plain `add_messages` channel.
    """
    builder = StateGraph(Plain, context_schema=Script)
    builder.add_node("agent", reply)
    builder.add_node("tools", reply)
    builder.add_conditional_edges(START, route)
    builder.add_conditional_edges("agent", _send_calls)
    builder.add_conditional_edges("tools", route)
    steps = [
        Step({"messages": [turn.user]}, turn.replies, {}, serialised(turn.messages))
        for turn in turns
    ]
    return Workload(
        "agent_tools",
        lambda saver: builder.compile(checkpointer=saver),
        steps,
        {"messages": all_messages(turns)},
    )


def _send_calls(state: Any, runtime: Runtime[Script]) -> Any:
    if not runtime.context.replies or not isinstance(runtime.context.replies[0], ToolMessage):
        return route(state, runtime)
    return [
        Send("tools", {"__type": "tool_call_with_context", "tool_call": call, "state": dict(state)})
        for call in state["messages"][-1].tool_calls
    ]


class FileData(TypedDict):
    content: str
    encoding: str
    created_at: str
    modified_at: str


def _merge_all(
    left: Mapping[str, FileData] | None, writes: Sequence[Mapping[str, FileData]]
) -> dict[str, FileData]:
    merged = dict(left or {})
    for write in writes:
        merged.update(write)
    return merged


class Deep(TypedDict):
    messages: Annotated[
        list[AnyMessage], DeltaChannel(_messages_delta_reducer, snapshot_frequency=_DEEP_FREQUENCY)
    ]
    files: Annotated[
        dict[str, FileData], DeltaChannel(_merge_all, snapshot_frequency=_DEEP_FREQUENCY)
    ]


def deep_agent_files(turns: Sequence[Turn], seed: int) -> Workload:
    """Messages and 50 files of 4 KB in delta channels with a snapshot every 50 updates.

    So deepagents 0.7 keeps them. A turn changes one line of one file and writes that file whole.
    """
    rng = random.Random(seed)

    def as_file(text: str) -> FileData:
        return {"content": text, "encoding": "utf-8", "created_at": _TIME, "modified_at": _TIME}

    stored = {f"/src/part_{i:02d}.txt": as_file(make_text(rng, FILE_BYTES)) for i in range(FILES)}
    steps = []
    for number, turn in enumerate(turns):
        added = dict(stored) if number == 0 else {}
        name = rng.choice(sorted(stored))
        lines = stored[name]["content"].splitlines(keepends=True)
        place = rng.randrange(len(lines))
        lines[place] = make_text(rng, len(lines[place]))
        edited = {name: as_file("".join(lines))}
        stored.update(edited)
        values: dict[str, Any] = {"messages": [turn.user], **({"files": added} if added else {})}
        new = serialised(turn.messages, edited, *([added] if added else []))
        steps.append(Step(values, turn.replies, edited, new))
    return Workload(
        "deep_agent_files",
        lambda saver: agent_graph(Deep, edits=True).compile(checkpointer=saver),
        steps,
        {"messages": all_messages(turns), "files": stored},
    )


# Parallel tasks


class Parts(TypedDict):
    topic: str
    parts: Annotated[list[str], operator.add]


def _plan(state: Any, runtime: Runtime[Script]) -> dict[str, Any]:
    return {}


def _spread(state: Any, runtime: Runtime[Script]) -> list[Send]:
    return [
        Send("work", {"topic": state["topic"], "number": n})
        for n in range(len(runtime.context.parts))
    ]


def _work(task: Any, runtime: Runtime[Script]) -> dict[str, Any]:
    return {"parts": [runtime.context.parts[task["number"]]]}


def _join(state: Any, runtime: Runtime[Script]) -> dict[str, Any]:
    return {}


def fan_out(turns: Sequence[Turn], seed: int) -> Workload:
    """Eight parallel tasks a turn, each adding 200 bytes of text to one plain list."""
    rng = random.Random(seed)
    builder = StateGraph(Parts, context_schema=Script)
    for name, node in (("plan", _plan), ("work", _work), ("join", _join)):
        builder.add_node(name, node)
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", _spread, ["work"])
    builder.add_edge("work", "join")
    builder.add_edge("join", END)
    steps: list[Step] = []
    everything: list[str] = []
    topic = ""
    for number in range(len(turns)):
        topic = f"topic {number}"
        parts = tuple(make_text(rng, PART_BYTES) for _ in range(PARTS))
        everything += parts
        steps.append(Step({"topic": topic}, (), {}, serialised(topic, list(parts)), parts))
    return Workload(
        "fan_out",
        lambda saver: builder.compile(checkpointer=saver),
        steps,
        {"topic": topic, "parts": everything},
    )


# Values that rest, forks, large values


def _extend(left: list[str] | None, writes: Sequence[list[str]]) -> list[str]:
    return [*(left or []), *(one for write in writes for one in write)]


class Idle(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]
    notes: Annotated[list[str], DeltaChannel(_extend)]
    profile: dict[str, str]


def long_idle(turns: Sequence[Turn], seed: int) -> Workload:
    """A chat in a delta channel beside two channels that the first turn writes and none after it.

    One is a delta channel, whose write is looked for ever further back; one a dict of 2 KB.
    """
    rng = random.Random(seed)
    notes = [make_text(rng, PART_BYTES)]
    profile = {f"field_{n}": make_text(rng, PROFILE_BYTES // 10) for n in range(10)}
    steps = []
    for number, turn in enumerate(turns):
        extra = {"notes": notes, "profile": profile} if number == 0 else {}
        values = {"messages": [turn.user], **extra}
        new = serialised(turn.messages, *extra.values())
        steps.append(Step(values, turn.replies, {}, new))
    return Workload(
        "long_idle",
        lambda saver: agent_graph(Idle).compile(checkpointer=saver),
        steps,
        {"messages": all_messages(turns), "notes": notes, "profile": profile},
    )


def fork_heavy(turns: Sequence[Turn], _seed: int) -> Workload:
    """A chat in a delta channel in which every fourth turn goes three turns back and forks there.

    The abandoned branches stay in the store, as they do after time travel.
    """
    steps: list[Step] = []
    kept: list[list[Turn]] = [[]]  # after each turn, the turns that lead to its state
    for number, turn in enumerate(turns):
        back = FORK_BACK if number and number % FORK_EVERY == 0 else 0
        kept.append([*kept[len(kept) - 1 - back], turn])
        new = serialised(turn.messages)
        steps.append(Step({"messages": [turn.user]}, turn.replies, {}, new, back=back))
    return Workload(
        "fork_heavy",
        lambda saver: agent_graph(Delta).compile(checkpointer=saver),
        steps,
        {"messages": all_messages(kept[-1])},
    )


def images(turns: Sequence[Turn], seed: int) -> Workload:
    """A chat in a plain channel; the user of every fifth turn sends a picture of 64 KB.

    It stays in the list as the base64 text that chat models are given, and does not compress.
    """
    rng = random.Random(seed)
    shown = []
    for number, turn in enumerate(turns):
        user = turn.user
        if number % IMAGE_EVERY == 0:
            picture = base64.b64encode(rng.randbytes(IMAGE_BYTES)).decode()
            address = {"url": f"data:image/png;base64,{picture}"}
            content: list[Any] = [
                {"type": "text", "text": user.content},
                {"type": "image_url", "image_url": address},
            ]
            user = HumanMessage(content, id=user.id)
        shown.append(Turn(user, turn.replies))
    return Workload(
        "images",
        lambda saver: agent_graph(Plain).compile(checkpointer=saver),
        [
            Step({"messages": [turn.user]}, turn.replies, {}, serialised(turn.messages))
            for turn in shown
        ],
        {"messages": all_messages(shown)},
    )
