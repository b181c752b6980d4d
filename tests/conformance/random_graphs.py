"""Random graphs whose nodes are deterministic, and a clock that makes their checkpoints so too.

A graph is drawn from a seed: two to four channels, plain or delta, one to three layers of parallel
nodes, among them ones that ask, that overwrite, that fan out, and a subgraph. What a node does
depends on its name and on the state alone; ids and versions come from the clock. So two savers that
see the same acts store the same checkpoints.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypedDict

import langgraph.checkpoint.base
import langgraph.pregel._checkpoint
import pytest
from langchain_core.messages import AIMessage, RemoveMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import START, StateGraph, add_messages
from langgraph.types import Overwrite, Send, interrupt

from deltastore.testing.retention_calls import minute_id

Made = dict[str, Any]


class Clock:
    """Gives ids and versions; set back, it gives them again."""

    def __init__(self) -> None:
        self.tick = 0

    def uuid6(self, node: Any = None, clock_seq: Any = None) -> str:
        """Return the next id."""
        self.tick += 1
        return minute_id(self.tick / 1000)

    def next_version(self, current: Any, channel: None) -> str:
        """Return a version above `current` that no other fork has."""
        self.tick += 1
        count = int(str(current).split(".")[0]) if current is not None else 0
        return f"{count + 1:032}.0.{self.tick:012}"


@contextmanager
def ticking() -> Iterator[Clock]:
    """Let LangGraph take its ids from a clock."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        for module in (langgraph.checkpoint.base, langgraph.pregel._checkpoint):
            patch.setattr(module, "uuid6", clock.uuid6)
        yield clock


def _append(held: Any, writes: Sequence[Any]) -> list[Any]:
    return [*(held or ()), *(item for write in writes for item in write)]


def _merge(held: Any, writes: Sequence[Any]) -> dict[str, Any]:
    merged = dict(held or {})
    for write in writes:
        merged |= write
    return {key: value for key, value in merged.items() if value is not None}


def _unite(held: Any, writes: Sequence[Any]) -> set[Any]:
    return set(held or ()).union(*writes)


def _messages(held: Any, writes: Sequence[Any]) -> Any:
    for write in writes:
        known = {message.id for message in held or []}
        kept = [m for m in write if not isinstance(m, RemoveMessage) or m.id in known]
        held = add_messages(held or [], kept)
    return held


REDUCERS: dict[str, tuple[type, Callable[[Any, Sequence[Any]], Any]]] = {
    "log": (list, _append),
    "files": (dict, _merge),
    "tags": (set, _unite),
    "messages": (list, _messages),
}


def _one_by_one(reducer: Callable[[Any, Sequence[Any]], Any]) -> Callable[[Any, Any], Any]:
    return lambda held, write: reducer(held, [write])


def _state_type(draw: random.Random) -> Any:
    """Draw which channels are delta channels, and how often they are stored whole."""
    fields: Made = {"turn": int}
    for name, (kind, reducer) in REDUCERS.items():
        if draw.random() < 0.7:
            frequency = draw.choice([1, 2, 3, 7, 1_000, 1_000])
            fields[name] = Annotated[
                kind, DeltaChannel(reducer, kind, snapshot_frequency=frequency)
            ]
        elif name == "log":
            fields[name] = Annotated[list, operator.add]
        else:
            fields[name] = Annotated[kind, _one_by_one(reducer)]
    made: Any = TypedDict
    return made("State", fields, total=False)


def given(draw: random.Random) -> Made:
    """Draw an input, or the values of an update."""
    number = draw.randrange(1_000)
    made: Made = {
        "log": [number],
        "files": {draw.choice("abc"): draw.choice([None, number, "x" * 50])},
        "tags": {number % 5},
        "messages": [AIMessage(f"said {number}", id=f"m{number % 7}")],
        "turn": number,
    }
    return {name: made[name] for name in draw.sample(sorted(made), draw.randint(1, 5))}


def _node(name: str, kind: str, seed: int) -> Callable[[Any], Any]:
    """Return what a node of a kind does: a function of its name and the state."""

    def run(state: Any) -> Any:
        log = state.get("log") or []
        draw = random.Random(f"{seed} {name} {len(log)} {state.get('turn')}")
        made = given(draw)
        made["log"] = [f"{name}{len(log)}"]
        made.pop("turn", None)
        if kind == "ask" and draw.random() < 0.6:
            made["log"] = [interrupt(f"{name}?")]
        if kind == "overwrite" and draw.random() < 0.5:
            made["log"] = Overwrite([f"{name} anew"])
        if kind == "remove" and state.get("messages"):
            made["messages"] = [RemoveMessage(id=state["messages"][0].id)]
        if kind == "fail" and draw.random() < 0.3:
            raise ArithmeticError(name)
        return made

    return run


def _work(state: Any) -> Made:
    return {"log": [f"w{state['n']}"], "files": {f"w{state['n']}": state["n"]}}


def _subgraph(draw: random.Random, state: Any, seed: int, remembers: bool) -> Any:
    graph: Any = StateGraph(state)
    graph.add_node("inner", _node("inner", draw.choice(["plain", "ask"]), seed))
    graph.add_node("deep", _node("deep", draw.choice(["plain", "ask"]), seed))
    graph.add_edge(START, "inner")
    graph.add_edge("inner", "deep")
    return graph.compile(checkpointer=True if remembers else None)


def build(seed: int) -> tuple[Any, bool]:
    """Return the graph of a seed, not compiled, and whether a subgraph of it remembers."""
    draw = random.Random(seed)
    state = _state_type(draw)
    graph: Any = StateGraph(state)
    above: list[str] = [START]
    subgraph_at = draw.choice([None, 0, 1, 2])
    overwriter_at, remembers = draw.choice([None, 0, 1]), draw.random() < 0.5
    for layer in range(draw.randint(1, 3)):
        names = [f"n{layer}{letter}" for letter in "zya"[: draw.randint(1, 3)]]
        for place, name in enumerate(names):
            # One that fails beside others may stop them, or not: only alone is it deterministic.
            kind = draw.choice(["plain", "plain", "plain", "ask", "remove", "fail"])
            if kind == "fail" and len(names) > 1:
                kind = "plain"
            if overwriter_at == layer and place == 0:
                kind = "overwrite"
            if subgraph_at == layer and place == 0:
                graph.add_node(name, _subgraph(draw, state, seed, remembers))
            else:
                graph.add_node(name, _node(name, kind, seed))
            for one in above:
                graph.add_edge(one, name)
        above = names
    if draw.random() < 0.4:
        count = draw.randint(2, 4)
        graph.add_node("work", _work)
        graph.add_node("join", _node("join", "plain", seed))
        graph.add_conditional_edges(
            above[0], lambda _: [Send("work", {"n": n}) for n in range(count)], ["work"]
        )
        graph.add_edge("work", "join")
    return graph, remembers and subgraph_at is not None
