"""Refusing forks: of two writers that saw the same newest checkpoint, exactly one gets through."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from deltastore import DeltaStoreSaver, ForkRefusedError
from deltastore.testing import Caller, Lane
from deltastore.testing.strategies import checkpoint_id
from tests.conformance.two_workers import ENGINES, Workers, open_two

each_engine = pytest.mark.parametrize("kind", ENGINES)
NAMESPACES = ("", "sub", "sub:0f|inner:1e")
Pair = tuple[DeltaStoreSaver, DeltaStoreSaver]


@pytest.fixture(params=ENGINES)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    savers = open_two(request.param, tmp_path, refuse_forks=True)
    yield savers
    for saver in savers:
        saver.close()


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def lane(request: pytest.FixtureRequest, pair: Pair) -> Iterator[Lane]:
    caller = Caller(lambda: pair[0], asynchronous=request.param)
    yield Lane(caller)
    caller.close()


def put(lane: Lane, n: int, parent: int | None) -> None:
    parent_id = None if parent is None else checkpoint_id(parent)
    lane.put(checkpoint_id(n), parent_id, new={"x": n + 1}, values={"x": f"value {n} " * 300})


@pytest.mark.parametrize("ns", NAMESPACES)
def test_a_put_on_any_but_the_newest_is_refused_and_stores_nothing(lane: Lane, ns: str) -> None:
    """Subgraphs have heads of their own, which two workers may see as well."""
    lane = Lane(lane.caller, "t", ns)
    put(lane, 0, None)
    put(lane, 1, 0)
    with pytest.raises(ForkRefusedError, match="another writer was faster") as refused:
        put(lane, 2, 0)
    error = refused.value
    assert ("t", ns, checkpoint_id(0), checkpoint_id(1)) == (
        error.thread_id,
        error.checkpoint_ns,
        error.parent_id,
        error.newest_id,
    )
    assert [checkpoint_id(1), checkpoint_id(0)] == lane.ids()
    put(lane, 2, 1)
    assert checkpoint_id(2) == lane.ids()[0]


def test_a_put_without_a_parent_forks_all_but_an_empty_stream(lane: Lane) -> None:
    """Two workers that both find a thread empty must not both begin it."""
    put(lane, 0, None)
    with pytest.raises(ForkRefusedError, match="without a parent") as refused:
        put(lane, 1, None)
    assert refused.value.parent_id is None
    put(Lane(lane.caller, "t", "another namespace"), 1, None)
    put(Lane(lane.caller, "another thread"), 1, None)
    lane.caller.delete_thread("t")
    put(lane, 1, None)


def test_a_checkpoint_stored_again_forks_nothing(lane: Lane) -> None:
    """A put is repeated when its answer was lost."""
    for n in range(3):
        put(lane, n, n - 1 if n else None)
    for n in range(3):
        put(lane, n, n - 1 if n else None)
    lane.put(checkpoint_id(1), checkpoint_id(0), new={"x": 2}, values={"x": "other"})
    assert 3 == len(lane.ids())


def test_ids_of_every_form_have_one_newest(lane: Lane) -> None:
    """The newest is that of the greatest id as text, as for readers.

    An id below it would leave its parent the newest for the next put, with clocks that disagree.
    """
    put(lane, 0, None)
    lane.put("b", checkpoint_id(0), new={"x": 2}, values={"x": 1})
    for cid, parent in ((checkpoint_id(1), "b"), ("a", "b"), (checkpoint_id(1), checkpoint_id(0))):
        with pytest.raises(ForkRefusedError):
            lane.put(cid, parent, new={"x": 3}, values={"x": 1})
    lane.put("c", "b", new={"x": 3}, values={"x": 1})
    assert ["c", "b", checkpoint_id(0)] == lane.ids()


def test_without_the_option_forks_are_stored(tmp_path: Path) -> None:
    """Time travel is LangGraph's own feature; refusing it must be asked for."""
    with DeltaStoreSaver(tmp_path / "s") as saver:
        lane = Lane(Caller(lambda: saver))
        for n, parent in ((0, None), (1, 0), (2, 0)):
            put(lane, n, parent)
        assert 3 == len(lane.ids())


def test_of_racing_threads_one_wins_each_round(pair: Pair) -> None:
    """The check is in the transaction that stores: no moment lies between the two."""
    lanes = [Lane(Caller(lambda one=one: one)) for one in pair]
    put(lanes[0], 0, None)
    rounds = 25
    won: list[tuple[int, int]] = []
    refused: list[int] = []
    barrier = threading.Barrier(4)

    def work(place: int) -> None:
        for number in range(rounds):
            barrier.wait()
            newest = lanes[0].ids(limit=1)[0]
            barrier.wait()
            try:
                lanes[place % 2].put(
                    checkpoint_id(1 + number * 4 + place),
                    newest,
                    new={"x": 2 + number},
                    values={"x": f"{number} {place} " * (1 if place < 2 else 400)},
                )
                won.append((number, place))
            except ForkRefusedError:
                refused.append(place)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(range(rounds)) == sorted(number for number, _ in won)
    assert 3 * rounds == len(refused)
    assert rounds + 1 == len(lanes[0].ids())


WORKER = """
import sys
from deltastore import DeltaStoreSaver, ForkRefusedError
from deltastore.testing import Caller, Lane
from deltastore.testing.strategies import checkpoint_id

path, place, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def newest_of(lane):
    found = lane.caller.get_tuple(lane.config())
    return found.config["configurable"]["checkpoint_id"], found.checkpoint["channel_versions"]["x"]

with DeltaStoreSaver(path, refuse_forks=True) as saver:
    lane = Lane(Caller(lambda: saver))
    lane.ids()
    print("ready", flush=True)
    sys.stdin.readline()
    won = 0
    for n in range(rounds):
        newest, number = newest_of(lane)
        new = {"x": number + 1}
        try:
            lane.put(checkpoint_id(2 * number + 2 + place), newest, new=new, values={"x": place})
            won += 1
        except ForkRefusedError:
            pass
    print(won)
"""


def test_of_racing_processes_none_ever_forks(tmp_path: Path) -> None:
    """Two hosts' workers are two processes: whatever was put hangs on what was newest before it."""
    with DeltaStoreSaver(tmp_path / "s") as saver:
        put(Lane(Caller(lambda: saver)), 0, None)
    rounds = 60
    workers = Workers(WORKER, [[str(tmp_path / "s"), str(n), str(rounds)] for n in range(2)])
    workers.wait_ready()
    won = [int(said) for said in workers.go()]
    with DeltaStoreSaver(tmp_path / "s") as saver:
        found = list(saver.list({"configurable": {"thread_id": "t"}}))
        assert sum(won) + 1 == len(found)
        assert min(won) > 0
        ids = [one.config["configurable"]["checkpoint_id"] for one in found]
        parents = [one.parent_config["configurable"]["checkpoint_id"] for one in found[:-1]]
        assert ids[1:] == parents  # one line, no branch


# -- real graphs ----------------------------------------------------------------------------


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def build(saver: DeltaStoreSaver, meet: Any = lambda: None) -> Any:
    """Return a graph that asks, then works; `meet` is called in the work."""

    def ask(state: State) -> dict[str, list[str]]:
        return {"log": [interrupt("go on?")]}

    def work(state: State) -> dict[str, list[str]]:
        meet()
        return {"log": [f"worked on {len(state['log'])}"]}

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_node("work", work)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "work")
    graph.add_edge("work", END)
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_of_two_workers_that_resume_a_graph_one_wins(pair: Pair, durability: str) -> None:
    """A queue that delivers a job twice, or a user who clicks twice, must not make two futures."""
    config: Any = {"configurable": {"thread_id": "t"}}
    barrier = threading.Barrier(2)
    meet = barrier.wait if durability == "exit" else (lambda: None)
    build(pair[0]).invoke({"log": ["hello"]}, config, durability=durability)
    before = len(list(pair[0].list(config)))
    ended: list[Any] = []
    at_the_start = threading.Barrier(2)

    def resume(saver: DeltaStoreSaver) -> None:
        graph = build(saver, meet)
        seen = graph.get_state(config)
        at_the_start.wait()
        # Pinned to what it saw, as a worker does that looked at the thread first.
        pinned: Any = {"configurable": {**seen.config["configurable"]}}
        try:
            ended.append(graph.invoke(Command(resume="yes"), pinned, durability=durability))
        except ForkRefusedError as error:
            ended.append(error)

    threads = [threading.Thread(target=resume, args=(saver,)) for saver in pair]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [one for one in ended if not isinstance(one, ForkRefusedError)]
    assert [{"log": ["hello", "yes", "worked on 2"]}] == won
    assert 2 == len(ended)
    assert won[0] == build(pair[0]).get_state(config).values
    parents = [
        one.parent_config["configurable"]["checkpoint_id"]
        for one in pair[0].list(config)
        if one.parent_config is not None
    ]
    assert len(parents) == len(set(parents)) >= before - 1


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("own_history", [None, True])
def test_a_graph_with_subgraphs_alone_on_its_thread_is_never_refused(
    pair: Pair, durability: str, own_history: bool | None
) -> None:
    """The option costs a user who does not fork nothing, whatever the graph is made of."""
    inner = StateGraph(State)
    inner.add_node("step", lambda s: {"log": ["inner"]})
    inner.add_node("ask", lambda s: {"log": [interrupt("sure?")]})
    inner.add_edge(START, "step")
    inner.add_edge("step", "ask")
    outer = StateGraph(State)
    outer.add_node("sub", inner.compile(checkpointer=own_history))
    outer.add_node("after", lambda s: {"log": ["after"]})
    outer.add_edge(START, "sub")
    outer.add_edge("sub", "after")
    graph: Any = outer.compile(checkpointer=pair[0])
    config: Any = {"configurable": {"thread_id": "t"}}
    for turn in range(3):
        graph.invoke({"log": [f"turn {turn}"]}, config, durability=durability)
        graph.invoke(Command(resume="yes"), config, durability=durability)
    graph.update_state(config, {"log": ["edited"]})
    graph.invoke({"log": ["more"]}, config, durability=durability)
    assert "edited" in graph.get_state(config).values["log"]


def test_an_async_graph_gets_the_error(pair: Pair) -> None:
    """LangGraph puts in the background there; the error must reach the caller all the same."""
    config: Any = {"configurable": {"thread_id": "t"}}

    async def scene() -> None:
        graph = build(pair[0])
        await graph.ainvoke({"log": ["hello"]}, config)
        seen = (await graph.aget_state(config)).config
        await graph.ainvoke(Command(resume="first"), config)
        with pytest.raises(ForkRefusedError):
            await graph.ainvoke(Command(resume="second"), seen)
        assert "first" in (await graph.aget_state(config)).values["log"]

    asyncio.run(scene())


def test_time_travel_needs_an_opening_without_the_option(tmp_path: Path) -> None:
    """Forking on purpose stays possible beside workers that refuse it."""
    config: Any = {"configurable": {"thread_id": "t"}}
    strict = DeltaStoreSaver(tmp_path / "s", refuse_forks=True)
    loose = DeltaStoreSaver(tmp_path / "s")
    with strict, loose:
        build(strict).invoke({"log": ["hello"]}, config)
        build(strict).invoke(Command(resume="yes"), config)
        past = list(build(strict).get_state_history(config))[-1].config
        with pytest.raises(ForkRefusedError):
            build(strict).update_state(past, {"log": ["another past"]})
        build(loose).update_state(past, {"log": ["another past"]})
        assert "another past" in build(strict).get_state(config).values["log"]
