"""Compiled graphs on this package's saver and on LangGraph's in-memory saver, step by step.

The two are *twins*: the same graph, the same acts, one saver each. After every act all either
thread can tell (state, history, tasks, interrupts, subgraph states, metadata) must be equal but for
ids, which are random: a parent is compared as its place in the history.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import EmptyInputError
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Send, StateSnapshot, interrupt

from deltastore import DeltaStoreSaver
from deltastore.testing import Saver, shape

Durability = Literal["sync", "async", "exit"]
Builder = Callable[[], Any]
THREAD = {"configurable": {"thread_id": "t"}}
FREQUENCIES = [None, 1, 2, 5, 1_000]
DURABILITIES: list[Durability] = ["sync", "async", "exit"]


class Twins:
    """One graph on two savers; each act is done to both and must show the same."""

    def __init__(self, where: Path, *, asynchronous: bool, durability: Durability) -> None:
        self.ours = DeltaStoreSaver(where / "store")
        self.savers: list[Saver] = [self.ours, InMemorySaver()]
        self.loop = asyncio.new_event_loop() if asynchronous else None
        self.durability = durability
        self.graphs: list[Any] = []

    def close(self) -> None:
        """Verify and close."""
        assert [] == list(self.ours.store.verify().damage)
        self.ours.close()
        if self.loop is not None:
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    def compile(self, builder: Builder) -> None:
        """Run on with a graph built anew, as after a release of the application."""
        self.graphs = [builder().compile(checkpointer=saver) for saver in self.savers]

    def invoke(self, given: Any, place: int | None = None) -> None:
        """Invoke with an input, a Command or None; from an old checkpoint if `place` is given."""

        def act(graph: Any) -> Any:
            config = self._config(graph, place)
            try:
                return self._call(graph, "invoke", given, config, durability=self.durability)
            except (ArithmeticError, EmptyInputError) as error:
                return repr(error)

        self._both(act)

    def update(self, values: Any, as_node: str | None = None, place: int | None = None) -> None:
        """Call update_state on the head or on an old checkpoint."""

        def act(graph: Any) -> None:
            self._call(graph, "update_state", self._config(graph, place), values, as_node=as_node)

        self._both(act)

    def history(self, graph: Any) -> list[Any]:
        """Return all states of the thread, newest first."""
        if self.loop is None:
            return [*graph.get_state_history(THREAD)]

        async def collected() -> list[Any]:
            return [state async for state in graph.aget_state_history(THREAD)]

        return self.loop.run_until_complete(collected())

    def _call(self, graph: Any, name: str, *arguments: Any, **named: Any) -> Any:
        if self.loop is None:
            return getattr(graph, name)(*arguments, **named)
        return self.loop.run_until_complete(getattr(graph, f"a{name}")(*arguments, **named))

    def _config(self, graph: Any, place: int | None) -> Any:
        return THREAD if place is None else self.history(graph)[place].config

    def _both(self, act: Callable[[Any], Any]) -> None:
        ours, theirs = (shape(_without_ids(act(graph))) for graph in self.graphs)
        assert theirs == ours
        ours, theirs = (self._told(graph) for graph in self.graphs)
        assert theirs == ours

    def _told(self, graph: Any) -> Any:
        states = self.history(graph)
        ids = [state.config["configurable"]["checkpoint_id"] for state in states]
        head = self._call(graph, "get_state", THREAD, subgraphs=True)
        return [_state(head, ids)] + [_state(state, ids) for state in states]


def _state(state: Any, ids: list[str]) -> Any:
    """Return what a StateSnapshot tells, without ids."""
    if not isinstance(state, StateSnapshot):
        return type(state).__name__
    parent = (state.parent_config or THREAD)["configurable"].get("checkpoint_id")
    metadata: dict[str, Any] = {**(state.metadata or {})}
    told = {k: v for k, v in metadata.items() if k not in {"parents", "run_id", "thread_id"}}
    return {
        "values": shape(_without_ids(state.values)),
        "next": state.next,
        "metadata": shape(told),
        "parents": sorted(metadata.get("parents", {})),
        "parent": ids.index(parent) if parent in ids else parent is not None,
        "interrupts": [shape(item.value) for item in state.interrupts],
        "tasks": [
            {
                "name": task.name,
                "path": task.path,
                "error": repr(task.error),
                "interrupts": [shape(item.value) for item in task.interrupts],
                "result": shape(task.result),
                "state": _state(task.state, ids),
            }
            for task in state.tasks
        ],
    }


def _without_ids(value: Any) -> Any:
    """Return a run's output with interrupts reduced to their values."""
    if isinstance(value, dict) and "__interrupt__" in value:
        return {**value, "__interrupt__": [item.value for item in value["__interrupt__"]]}
    return value


@pytest.fixture(params=["sync", "async"])
def faces(request: pytest.FixtureRequest) -> bool:
    """Whether the async methods are called."""
    return bool(request.param == "async")


@pytest.fixture(params=DURABILITIES)
def twins(request: pytest.FixtureRequest, tmp_path: Path, faces: bool) -> Iterator[Twins]:
    """Twins on every face and in every durability."""
    made = Twins(tmp_path, asynchronous=faces, durability=request.param)
    yield made
    made.close()


def _append(held: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    return [*held, *(item for write in writes for item in write)]


def _merge(held: dict[str, Any], writes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    merged = dict(held)
    for write in writes:
        merged |= write
    return {key: value for key, value in merged.items() if value is not None}


def _merge_two(held: dict[str, Any], write: dict[str, Any]) -> dict[str, Any]:
    return _merge(held, [write])


def state_type(frequency: int | None) -> Any:
    """Return a state whose list and dict are plain (None) or delta channels."""
    if frequency is None:
        log, files = Annotated[list, operator.add], Annotated[dict, _merge_two]
    else:
        log = Annotated[list, DeltaChannel(_append, list, snapshot_frequency=frequency)]
        files = Annotated[dict, DeltaChannel(_merge, dict, snapshot_frequency=frequency)]
    made: Any = TypedDict
    return made("State", {"log": log, "files": files, "turn": int}, total=False)


def pair(frequency: int | None) -> Builder:
    """Two parallel nodes, named against their order of arrival, then a join."""

    def built() -> Any:
        graph: Any = StateGraph(state_type(frequency))
        graph.add_node("zeta", lambda s: {"log": [f"z{len(s['log'])}"], "files": {"z": "0" * 99}})
        graph.add_node("alpha", lambda s: {"log": [f"a{len(s['log'])}"], "files": {"a": None}})
        graph.add_node("join", lambda s: {"turn": s.get("turn", 0) + 1, "log": ["j"]})
        for name in ("zeta", "alpha"):
            graph.add_edge(START, name)
            graph.add_edge(name, "join")
        return graph

    return built


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_turns_updates_and_history_are_the_twins(twins: Twins, frequency: int | None) -> None:
    """Every snapshot frequency, every durability: the common life of a thread."""
    twins.compile(pair(frequency))
    for turn in range(3):
        twins.invoke({"log": [f"u{turn}"], "files": {"a": turn, f"f{turn}": [turn] * 50}})
    twins.update({"log": ["edited"], "files": {"f1": None}})
    twins.update({"log": ["as zeta"]}, as_node="zeta")
    twins.invoke({"log": []})


@pytest.mark.parametrize("frequency", [None, 2, 1_000])
def test_time_travel_and_forks_are_the_twins(twins: Twins, frequency: int | None) -> None:
    """A fork sees its own ancestors only, and the branch it left stays as it was."""
    twins.compile(pair(frequency))
    for turn in range(2):
        twins.invoke({"log": [f"u{turn}"], "files": {f"f{turn}": turn}})
    twins.update({"log": ["fork"]}, place=-1)
    twins.invoke(None)
    twins.invoke(None, place=2)
    twins.invoke({"log": ["side"]}, place=-2)
    twins.update(None, as_node="__copy__", place=2)
    twins.invoke(None)
    twins.update(None, as_node=END)
    twins.invoke({"log": ["last"]})


def test_channels_migrate_to_delta_and_back(twins: Twins) -> None:
    """A plain value seeds a delta channel, a snapshot seeds a plain one."""
    for frequency in (None, 1_000, 2, None, 1):
        twins.compile(pair(frequency))
        for turn in range(2):
            twins.invoke({"log": [f"u{turn}"], "files": {f"{frequency}": turn}})


def asking(frequency: int | None) -> Builder:
    """A node that asks twice beside one that fails once."""

    def ask(state: Any) -> Any:
        return {"log": [interrupt({"question": len(state["log"])}), interrupt("sure?")]}

    def built() -> Any:
        graph: Any = StateGraph(state_type(frequency))
        graph.add_node("ask", ask)
        graph.add_node("note", lambda s: {"log": ["noted"], "files": {"n": "x" * 200}})
        graph.add_node("after", lambda s: {"turn": len(s["log"])})
        graph.add_edge(START, "ask")
        graph.add_edge(START, "note")
        graph.add_edge("ask", "after")
        return graph

    return built


@pytest.mark.parametrize("frequency", [None, 2, 1_000])
def test_interrupts_and_resumes_are_the_twins(twins: Twins, frequency: int | None) -> None:
    """The sibling's writes wait; each resume replaces the one before; a fork asks anew."""
    twins.compile(asking(frequency))
    twins.invoke({"log": ["u"]})
    twins.invoke(Command(resume="yes"))
    twins.invoke(Command(resume=[]))
    twins.invoke({"log": ["again"]})
    twins.update({"log": ["while asked"]}, as_node="note")
    twins.invoke(None)
    twins.invoke(Command(resume=""))
    twins.invoke(Command(resume=False, update={"log": ["with update"]}))
    twins.invoke(None, place=-2)


def test_a_failing_node_is_retried_alone(twins: Twins) -> None:
    """What ran before it must not run again; the error is a write like any other."""

    def built() -> Any:
        calls = {"good": 0, "bad": 0}

        def count(name: str) -> int:
            calls[name] += 1
            return calls[name]

        graph: Any = StateGraph(state_type(1_000))
        graph.add_node("good", lambda s: {"log": [f"good {count('good')}"]})
        graph.add_node("bad", lambda s: {"log": [f"bad {1 // (count('bad') // 2)}"]})
        graph.add_edge(START, "good")
        graph.add_edge("good", "bad")
        return graph

    twins.compile(built)
    twins.invoke({"log": ["u"]})
    twins.invoke(None)
    twins.invoke({"log": ["v"]})


@pytest.mark.parametrize("frequency", [None, 2, 1_000])
def test_fan_out_keeps_the_order_of_sends(twins: Twins, frequency: int | None) -> None:
    """Twelve workers write one channel; the eleventh sorts after the second, by path."""

    def built() -> Any:
        graph: Any = StateGraph(state_type(frequency))
        graph.add_node("plan", lambda s: {"log": ["plan"]})
        graph.add_node("work", lambda s: {"log": [s["n"]], "files": {str(s["n"]): "w" * s["n"]}})
        graph.add_node("join", lambda s: {"turn": len(s["log"])})
        graph.add_edge(START, "plan")
        graph.add_conditional_edges("plan", lambda s: [Send("work", {"n": n}) for n in range(12)])
        graph.add_edge("work", "join")
        return graph

    twins.compile(built)
    twins.invoke({"log": ["u"]})
    twins.invoke(None, place=-1)
    twins.invoke({"log": ["v"]})


@pytest.mark.parametrize("own_history", [None, True])
@pytest.mark.parametrize("frequency", [None, 1_000])
def test_subgraphs_are_the_twins(
    twins: Twins, frequency: int | None, own_history: bool | None
) -> None:
    """Per call, a subgraph starts anew; with a checkpointer of its own it remembers."""

    def inner() -> Any:
        graph: Any = StateGraph(state_type(frequency))
        graph.add_node("step", lambda s: {"log": ["inner"], "turn": s.get("turn", 0) + 1})
        graph.add_node("ask", lambda s: {"log": [interrupt(len(s["log"]))]})
        graph.add_edge(START, "step")
        graph.add_edge("step", "ask")
        return graph

    def outer() -> Any:
        graph: Any = StateGraph(state_type(frequency))
        graph.add_node("first", lambda s: {"log": ["outer"]})
        graph.add_node("sub", inner().compile(checkpointer=own_history))
        graph.add_edge(START, "first")
        graph.add_edge("first", "sub")
        return graph

    twins.compile(outer)
    twins.invoke({"log": ["u"]})
    twins.invoke(Command(resume="one"))
    twins.invoke({"log": ["v"]})
    twins.invoke(Command(resume="two"))
    twins.invoke(None, place=-2)
    twins.update({"log": ["edited"]}, place=1)
    twins.invoke({"log": ["w"]})


def test_messages_edited_in_place_are_the_twins(twins: Twins) -> None:
    """Messages are replaced by id and removed: a value is not only ever longer."""

    def answer(state: Any) -> Any:
        turn = len(state["messages"])
        return {"messages": [AIMessage(f"answer {turn} " * 20, id=f"ai{turn}")]}

    def built() -> Any:
        graph: Any = StateGraph(MessagesState)
        graph.add_node("answer", answer)
        graph.add_edge(START, "answer")
        return graph

    twins.compile(built)
    for turn in range(4):
        twins.invoke({"messages": [HumanMessage(f"ask {turn}", id=f"h{turn}")]})
    twins.update({"messages": [HumanMessage("asked otherwise", id="h1")]})
    twins.update({"messages": [RemoveMessage(id="h0")]})
    twins.invoke({"messages": [HumanMessage("more", id="h9")]})


def test_a_saver_that_loses_one_write_is_no_twin(tmp_path: Path) -> None:
    """The comparison is worth its time only if it can fail."""

    class Forgetful(InMemorySaver):
        def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            super().put_writes(config, writes, task_id, "")

    twins = Twins(tmp_path, asynchronous=False, durability="sync")
    twins.savers[1] = Forgetful()
    twins.compile(pair(1_000))
    with pytest.raises(AssertionError):
        for turn in range(8):
            twins.invoke({"log": [f"u{turn}"], "files": {}})
    twins.close()
