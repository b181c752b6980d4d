"""Two hundred random graphs, maintained midway, go on as their untouched twins.

The *twins* are one graph on two savers that see the same acts; one of the two is pruned, copied,
compacted, or has a run deleted. Ids and versions are made equal (`random_graphs`), so that every
state a survivor tells, of subgraphs and waiting tasks too, must be equal to the last id. A run
deleted from the end was never seen by the twin at all: it must be as if it had not been.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command, StateSnapshot

from deltastore import DeltaStoreSaver
from deltastore.options import SnapshotBounds
from deltastore.testing import Saver, listed_ids, shape
from deltastore.testing.maintained_model import MaintainedModel
from tests.conformance.random_graphs import REDUCERS, Clock, build, given, ticking

GRAPHS = 200
SPEAKS = 2391  # a node is updated as a task that waits: its writes come under two paths
BOUNDS = SnapshotBounds(updates=2, supersteps=3)
KINDS = ["latest", "last", "copy", "heads", "run", "rollback", "compact", "compact and prune"]
ACTS = ["run", "run", "run", "go on", "update", "node", "copy"]
Act = Callable[[Any, Any], Any]


class Twins:
    """One graph on a saver that is maintained and on one that is not."""

    def __init__(self, seed: int, clock: Clock, maintained: Any) -> None:
        self.seed = seed
        self.draw = random.Random(f"acts of {seed}")
        self.clock = clock
        self.untouched = MaintainedModel()
        self.savers: list[Saver] = [maintained, self.untouched]
        for saver in self.savers:
            saver.get_next_version = clock.next_version  # type: ignore[method-assign]
        graph, self.remembers = build(seed)
        self.graphs = [graph.compile(checkpointer=saver) for saver in self.savers]
        self.threads = ["t", "t"]
        self.runs = 0
        self.only_head = self.ended = False
        self.of_deleted: set[str] = set()

    def config(self, twin: int, checkpoint_id: str | None = None) -> Any:
        """Return a config of the thread, or of one of its checkpoints, in the present run."""
        place = {"thread_id": self.threads[twin]}
        if checkpoint_id is not None:
            place["checkpoint_id"] = checkpoint_id
        return {"configurable": place, "metadata": {"run_id": f"run {self.runs}"}}

    def survivors(self) -> list[str]:
        """Return the ids the maintained thread lists, newest first."""
        place = {"thread_id": self.threads[0], "checkpoint_ns": ""}
        return listed_ids([*self.savers[0].list({"configurable": place})])

    def act(self, twins: Sequence[int] = (0, 1), kinds: Sequence[str] = ACTS) -> None:
        """Do something drawn at random; on both twins it must come out the same."""
        if self.ended:
            return
        self.runs += 1
        act = self._drawn(kinds)
        begin, results, ends = self.clock.tick, [], []
        for twin in twins:
            self.clock.tick = begin
            results.append(_outcome(act, self.graphs[twin], twin))
            ends.append(self.clock.tick)
        self.clock.tick = max(ends)
        assert results[0] == results[-1]

    def _drawn(self, kinds: Sequence[str]) -> Act:
        draw, ids = self.draw, self.survivors()
        old = draw.choice(ids) if ids and not self.only_head and draw.random() < 0.3 else None
        waits = bool(ids) and bool(self.graphs[0].get_state(self.config(0)).interrupts)
        how: dict[str, Any] = {"durability": draw.choice(["sync", "async", "exit"])}
        name, values = ("ainvoke" if draw.random() < 0.15 else "invoke"), given(draw)
        answer = Command(resume=draw.choice(["yes", "", 0]))
        kind = draw.choice(kinds)
        if waits and draw.random() < 0.7:
            return lambda graph, twin: _call(graph, name, answer, self.config(twin), **how)
        if kind == "run" or not ids:
            return lambda graph, twin: _call(graph, name, values, self.config(twin, old), **how)
        if kind == "go on":
            return lambda graph, twin: _call(graph, name, None, self.config(twin, old), **how)
        node: Any = {"copy": "__copy__", "update": None}.get(kind)
        if kind == "node":
            node = draw.choice([n for n in sorted(self.graphs[0].nodes) if n != "__start__"])
        made = None if kind == "copy" else values
        return lambda graph, twin: graph.update_state(self.config(twin, old), made, as_node=node)

    def maintain(self, kind: str) -> None:
        """Do one kind of maintenance to the first twin."""
        saver: Any = self.savers[0]
        if "compact" in kind:
            saver.compact(self.threads[0], BOUNDS)
        if kind in {"latest", "compact and prune"}:
            saver.prune([self.threads[0]])
        elif kind == "last":
            saver.prune([self.threads[0]], keep_last=self.draw.randint(2, 5))
        elif kind in {"copy", "heads"}:
            source, self.threads[0] = self.threads[0], f"copy of {self.threads[0]}"
            saver.copy_thread(source, self.threads[0], heads_only=kind == "heads")
            saver.delete_thread(source)
        elif kind == "run":
            self._delete_a_run(saver)
        elif kind == "rollback":
            self.only_head = True
            self.act([0], [kind for kind in ACTS if kind != "copy"])  # which has no run id
            saver.delete_for_runs([f"run {self.runs}"])

    def _delete_a_run(self, saver: Any) -> None:
        """Delete a run that is not the head's, or the twin would go on from another head.

        What it wrote elsewhere is on the twin's checkpoints still, so these are not compared, and
        both go on from the head if it is none of them. A subgraph that remembers has lost what it
        did in that run, rightly: the lives end there.
        """
        head = self.graphs[0].get_state(self.config(0)).metadata or {}
        names = [f"run {number}" for number in range(1, self.runs + 1)]
        names = [name for name in names if name != head.get("run_id")]
        gone = [self.draw.choice(names)] if names else []
        saver.delete_for_runs(gone)
        self.of_deleted |= {key[1] for key, run in self.untouched.run_of.items() if run in gone}
        self.only_head = True
        self.ended = self.remembers or {*self.survivors()[:1]} <= self.of_deleted

    def check(self) -> None:
        """Compare what every survivor tells, and that the head is the same."""
        ids = [cid for cid in self.survivors() if cid not in self.of_deleted]
        if ids and not self.ended:
            assert self._told(1, None) == self._told(0, None)
        for cid in ids[:8]:
            assert self._told(1, cid) == self._told(0, cid)

    def _told(self, twin: int, checkpoint_id: str | None) -> Any:
        config = self.config(twin, checkpoint_id)
        return _state(self.graphs[twin].get_state(config, subgraphs=True))


def _call(graph: Any, name: str, *arguments: Any, **named: Any) -> Any:
    if name == "invoke":
        return graph.invoke(*arguments, **named)
    return asyncio.run(graph.ainvoke(*arguments, **named))


def _outcome(act: Act, graph: Any, twin: int) -> Any:
    try:
        result = act(graph, twin)
    except Exception as error:  # noqa: BLE001 (whatever it is, the twin must raise it too)
        return type(error).__name__, str(error)
    if isinstance(result, dict) and "configurable" in result:
        return result["configurable"]["checkpoint_id"]
    if isinstance(result, dict) and "__interrupt__" in result:
        # Tasks that ask side by side are told in the order in which they came to it.
        asked = sorted(result["__interrupt__"], key=lambda one: str(one.value))
        result = {**result, "__interrupt__": asked}
    return shape(result)


def _state(state: Any) -> Any:
    """Return what a state tells but the thread's name and the time."""
    if not isinstance(state, StateSnapshot):
        return type(state).__name__
    parent = (state.parent_config or {"configurable": {}})["configurable"]
    config = state.config["configurable"]
    return {
        "id": config.get("checkpoint_id"),
        "parent": parent.get("checkpoint_id"),
        "values": shape(state.values),
        "next": state.next,
        "metadata": shape({**(state.metadata or {})}),
        "interrupts": [shape(item.value) for item in state.interrupts],
        "tasks": [
            (
                *(task.id, task.name, task.path, repr(task.error), shape(task.result)),
                *([shape(item.value) for item in task.interrupts], _state(task.state)),
            )
            for task in state.tasks
        ],
    }


def live(seed: int, maintained: Any, kind: str | None = None) -> None:
    """Act, maintain, compare, act on, compare; one in three is maintained twice."""
    with ticking() as clock:
        twins = Twins(seed, clock, maintained)
        for _ in range(1 + (seed % 3 == 0)):
            for _ in range(twins.draw.randint(2, 4)):
                twins.act()
            twins.maintain(kind or twins.draw.choice(KINDS))
            twins.check()
        for _ in range(2):
            twins.act()
        twins.check()


@pytest.mark.parametrize("seed", [*range(GRAPHS), SPEAKS])
def test_maintained_graphs_go_on_as_their_twins(tmp_path: Path, seed: int) -> None:
    """One in ten on disk; the seed is in the name."""
    reducers = {name: reducer for name, (_, reducer) in REDUCERS.items()}
    if seed % 10 == 0:
        saver = DeltaStoreSaver(tmp_path / "store", reducers=reducers)
    else:
        saver = DeltaStoreSaver.ephemeral(reducers=reducers)
    with saver:
        live(seed, saver)


@pytest.mark.parametrize("seed", range(1_000, 1_020))
def test_the_maintained_model_goes_on_as_its_twin(seed: int) -> None:
    """The comparison holds for what is right."""
    live(seed, MaintainedModel())


class NaivePrune(MaintainedModel):
    """Drops ancestors without anchors."""

    def _anchors_for(self, stream: Any, kept: Any) -> Any:
        return {}


class NoSeeds(MaintainedModel):
    """Folds writes and forgets what they began with."""

    def _fold(self, *arguments: Any) -> Any:
        made = super()._fold(*arguments)
        made.seeds.clear()
        return made


class RunsWritesStay(MaintainedModel):
    """Leaves what a deleted run wrote to the new head."""

    def _goes(self, *arguments: Any) -> bool:
        return False


class AllPutsOnAnchorsRefused(MaintainedModel):
    """Refuses `__copy__` of a survivor."""

    def _check_put_on_anchor(self, *arguments: Any) -> None:
        raise AssertionError("refused")


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        (NaivePrune, "latest"),
        (NaivePrune, "heads"),
        (NoSeeds, "latest"),
        (RunsWritesStay, "rollback"),
        (AllPutsOnAnchorsRefused, "latest"),
    ],
)
def test_a_broken_saver_is_no_twin(broken: type[MaintainedModel], kind: str) -> None:
    """The comparison is worth its time only if it can fail."""
    with pytest.raises(AssertionError):
        for seed in range(100):
            live(seed, broken(), kind)
