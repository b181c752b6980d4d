"""What a compiled graph meets on a pruned thread: the cases that careless versions got wrong.

Each is told once for our saver and once for the maintained model; where a stand-in of the model
shows that the case can fail, it is beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels import DeltaChannel
from langgraph.errors import EmptyInputError
from langgraph.graph import START, StateGraph

from deltastore import DeltaStoreSaver
from deltastore.errors import PrunedCheckpointError
from deltastore.testing.maintained_model import MaintainedModel

THREAD: Any = {"configurable": {"thread_id": "t"}}


def _append(held: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    return [*held, *(item for write in writes for item in write)]


class State(TypedDict, total=False):
    """A delta channel and a plain one."""

    log: Annotated[list[Any], DeltaChannel(_append, list, snapshot_frequency=1_000)]
    turn: int


@pytest.fixture(params=["store", "model"])
def saver(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A saver that prunes."""
    made: Any = MaintainedModel() if request.param == "model" else DeltaStoreSaver.ephemeral()
    yield made
    getattr(made, "close", lambda: None)()


def talking(saver: Any, ran: list[str] | None = None) -> Any:
    """Return a graph of one node, which notes that it ran."""

    def answer(state: Any) -> Any:
        (ran if ran is not None else []).append("answer")
        return {"log": [f"answer {len(state['log'])}"], "turn": state.get("turn", 0) + 1}

    graph: Any = StateGraph(State)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    return graph.compile(checkpointer=saver)


def pruned(saver: Any, ran: list[str] | None = None) -> tuple[Any, Any, Any]:
    """Return a graph three turns old and pruned, its head's state, and a pruned id's config."""
    graph = talking(saver, ran)
    for turn in range(3):
        graph.invoke({"log": [f"ask {turn}"]}, THREAD)
    head = graph.get_state(THREAD)
    saver.prune(["t"])
    return graph, head, head.parent_config


def test_the_heads_state_is_what_it_was(saver: Any) -> None:
    """And it is all there is of the thread's history."""
    graph, head, _ = pruned(saver)
    assert [head] == [*graph.get_state_history(THREAD)]
    assert head == graph.get_state(THREAD)
    assert 6 == len(head.values["log"])


def test_nothing_is_due_on_a_pruned_id(saver: Any) -> None:
    """With the seeds' versions shown, nodes would run on a state that is none."""
    ran: list[str] = []
    graph, head, gone = pruned(saver, ran)
    ran.clear()
    state = graph.get_state(gone)
    assert ((), True) == (state.next, state.metadata["deltastore_anchor"])
    with pytest.raises(EmptyInputError):
        graph.invoke(None, gone)
    assert ([], head) == (ran, graph.get_state(THREAD))


@pytest.mark.parametrize("act", ["update", "copy", "invoke", "clear"])
def test_building_on_a_pruned_id_is_refused(saver: Any, act: str) -> None:
    """A near-empty checkpoint would become the thread's head without a word."""
    graph, head, gone = pruned(saver)
    with pytest.raises(PrunedCheckpointError):
        if act == "update":
            graph.update_state(gone, {"log": ["edited"]}, as_node="answer")
        elif act == "copy":
            graph.update_state(gone, None, as_node="__copy__")
        elif act == "clear":
            graph.update_state(gone, None, as_node="__end__")
        else:
            graph.invoke({"log": ["ask"]}, gone, durability="sync")
    assert head == graph.get_state(THREAD)


def test_a_pruned_head_is_copied_forked_and_gone_on_from(saver: Any) -> None:
    """`__copy__` puts its checkpoint on the head's parent, which is an anchor now."""
    graph, head, _ = pruned(saver)
    graph.update_state(THREAD, None, as_node="__copy__")
    copied = graph.get_state(THREAD)
    assert (head.values, head.parent_config) == (copied.values, copied.parent_config)
    graph.invoke({"log": ["more"]}, THREAD)
    graph.update_state(head.config, {"log": ["fork"]})
    assert [*head.values["log"], "fork"] == graph.get_state(THREAD).values["log"]


def test_an_update_after_a_deleted_run_is_not_lost(saver: Any) -> None:
    """Its task id is the deleted update's; had that one's write stayed, it would win."""
    graph = talking(saver)
    graph.invoke({"log": ["ask"]}, THREAD)
    head = graph.get_state(THREAD)
    graph.update_state({**THREAD, "metadata": {"run_id": "gone"}}, {"log": ["x"]})
    saver.delete_for_runs(["gone"])
    assert head == graph.get_state(THREAD)
    graph.update_state(THREAD, {"log": ["z"]})
    assert [*head.values["log"], "z"] == graph.get_state(THREAD).values["log"]


class Memory(TypedDict, total=False):
    """What the subgraph keeps to itself, and how long it is, which all can see."""

    memory: Annotated[list[Any], DeltaChannel(_append, list, snapshot_frequency=1_000)]
    turn: int
    length: int


def remembering(saver: Any) -> Any:
    """Return a graph whose subgraph remembers something over calls."""

    def note(state: Any) -> Any:
        return {"memory": [state["turn"]], "length": len(state["memory"]) + 1}

    inner: Any = StateGraph(Memory)
    inner.add_node("note", note)
    inner.add_edge(START, "note")
    graph: Any = StateGraph(TypedDict("Outer", {"turn": int, "length": int}, total=False))
    graph.add_node("call", inner.compile(checkpointer=True))
    graph.add_edge(START, "call")
    return graph.compile(checkpointer=saver)


def replayed(saver: Any, durability: Any, *, prune: bool = True) -> Any:
    """Return how long the memory is when an old checkpoint is run again, after a prune."""
    graph = remembering(saver)
    for turn in range(3):
        graph.invoke({"turn": turn}, THREAD, durability=durability)
    due = next(state.config for state in graph.get_state_history(THREAD) if state.next)
    if prune:
        saver.prune(["t"], keep_last=2)
    return graph.invoke(None, due, durability=durability)["length"]


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_replay_finds_its_subgraph_where_it_was(saver: Any, durability: str) -> None:
    """The subgraph's newest checkpoint before the replayed one must be there still."""
    assert 3 == replayed(MaintainedModel(), durability, prune=False)
    assert 3 == replayed(saver, durability)


class LatestSubgraphOnly(MaintainedModel):
    """Keeps the newest checkpoint of a subgraph and no other."""

    def _keep_subgraph(self, stream: Any, ids: Any, kept: Any, roots: Any) -> None:
        kept[stream] = {max(ids)}


def test_a_subgraph_kept_by_its_newest_alone_starts_empty() -> None:
    """The case above can fail."""
    assert 1 == replayed(LatestSubgraphOnly(), "sync")
