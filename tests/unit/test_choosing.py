"""Which checkpoints stay: by count, by age, for subgraphs, without a run's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from deltastore import DeltaStoreSaver, choosing, directory
from deltastore.choosing import Choose, Surveyed
from deltastore.engine.counting import CountingEngine
from deltastore.engine.memory import MemoryEngine
from deltastore.ids import cid_from_id, cid_time_ms, id_from_cid
from deltastore.store import Store
from deltastore.survey import survey
from deltastore.testing import make_checkpoint, make_config
from deltastore.testing.retention_calls import Keeper, Thread, minute_id, minute_of

TS = "2026-01-01T00:00:00+00:00"
TS_MS = int(datetime.fromisoformat(TS).timestamp() * 1_000)


class Open:
    """A store, its root stream, and what a choice would keep of each namespace."""

    def __init__(self) -> None:
        self.engine = CountingEngine(MemoryEngine())
        self.store = Store(self.engine)
        self.saver = DeltaStoreSaver.on_store(self.store)
        self.keeper = Keeper(lambda: self.saver)

    def stream(self, ns: str = "") -> Thread:
        return Thread(self.keeper, "t", ns)

    def with_streams(self, work: Callable[[list[Surveyed]], Any]) -> Any:
        session = self.store._session
        with session.view() as txn:
            readers = [session.reader(txn, s, None) for s in directory.streams(txn, "t")]
            return work([Surveyed(reader, survey(reader)) for reader in readers])

    def kept(self, choose: Choose) -> dict[str, list[str]]:
        """Return the ids that stay, by namespace."""

        def work(streams: list[Surveyed]) -> Any:
            chosen = choose(streams)
            return {
                stream.reader.stream.checkpoint_ns: sorted(map(id_from_cid, choice.keep))
                for stream, choice in zip(streams, chosen, strict=True)
            }

        found: dict[str, list[str]] = self.with_streams(work)
        return found

    def minutes(self, choose: Choose) -> dict[str, list[float]]:
        return {ns: [minute_of(one) for one in ids] for ns, ids in self.kept(choose).items()}

    def writes(self, *run_ids: str) -> dict[tuple[str, str], list[str] | None]:
        """Return the channels left of each record that deleting runs changes, None if it goes."""

        def work(streams: list[Surveyed]) -> Any:
            (choice,) = choosing.without_runs(frozenset(run_ids))(streams)
            found = {}
            for (cid, suffix), record in choice.writes.items():
                (stored,) = [
                    one.record for one in streams[0].reader.writes(cid) if one.suffix == suffix
                ]
                left = None if record is None else [row.channel for row in record.rows]
                found[id_from_cid(cid), stored.task_id] = left
            return found

        changed: dict[tuple[str, str], list[str] | None] = self.with_streams(work)
        return changed


@pytest.fixture
def opened() -> Open:
    return Open()


# --- by count and age ------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 10**9])
def test_the_newest_by_id_stay_whatever_their_place_in_the_tree(opened: Open, count: int) -> None:
    """A fork made last is newest; one made first is not, though nothing stands on it."""
    root = opened.stream()
    root.steps([1, 5, 2, 6, 3, 4])
    expected = [1, 2, 3, 4, 5, 6][-count:]
    assert {"": expected} == opened.minutes(choosing.keep_newest(count, None))


def test_ids_of_all_forms_are_compared_as_text(opened: Open) -> None:
    """That is how LangGraph compares them; keys of the two forms sort apart."""
    names = ["0", "1e", minute_id(1), minute_id(2), "1g", "a", "\U0001f409"]
    for name in names:
        opened.stream().put(name)
    for count in range(1, 8):
        assert {"": names[-count:]} == opened.kept(choosing.keep_newest(count, None))


def test_anchors_early_writes_and_remains_do_not_count(opened: Open) -> None:
    """The newest checkpoint must not go because something unlisted has a greater id."""
    root = opened.stream()
    root.superstep(8, doc=["text " * 500], run="gone")
    root.superstep(9, 8, run="gone")
    root.superstep(5, 9)
    opened.keeper.delete_for_runs(["gone"])
    root.task(99, ["early"], "task")
    assert {"": [5.0]} == opened.minutes(choosing.keep_newest(1, None))


def test_what_is_younger_stays_beside_the_newest(opened: Open) -> None:
    """Age is the id's: nothing is decoded where it tells."""
    root = opened.stream()
    root.steps([1, 2, 3, 4, 5])
    epoch_ms = (minutes_to_ms(3.5), minutes_to_ms(3.0), minutes_to_ms(99), minutes_to_ms(-99))
    before = opened.engine.counts()
    for bound, expected in zip(epoch_ms, ([4, 5], [3, 4, 5], [5], [1, 2, 3, 4, 5]), strict=True):
        assert {"": expected} == opened.minutes(choosing.keep_newest(1, bound))
    assert len(epoch_ms) == (opened.engine.counts() - before).gets  # the thread's entry


def minutes_to_ms(minute: float) -> int:
    ms = cid_time_ms(cid_from_id(minute_id(minute)))
    assert ms is not None
    return ms


@pytest.mark.parametrize(
    ("ts", "is_young"),
    [(TS, False), ("2027-01-01T00:00:00+00:00", True), ("no time", True), (None, True), (7, True)],
)
def test_where_the_id_tells_no_time_the_checkpoint_does(
    opened: Open, ts: Any, is_young: bool
) -> None:
    """What tells none at all is kept: nobody knows that it is old."""
    for name in ("a", "b"):
        checkpoint: Any = {**make_checkpoint(name, {}, {}), "ts": ts if name == "a" else TS}
        opened.keeper.put(make_config("t"), checkpoint, {}, {})
    expected = ["a", "b"] if is_young else ["b"]
    assert {"": expected} == opened.kept(choosing.keep_newest(1, TS_MS + 1))


# --- subgraphs -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_stateful_subgraph_keeps_what_a_replay_begins_from(opened: Open, count: int) -> None:
    """The greatest before each root that stays, and before that one's parent (rule 12)."""
    root, sub = opened.stream(), opened.stream("sub")
    root.steps([10, 20, 30, 40])
    sub.steps([5, 15, 25, 26, 35, 36, 45, 46])
    before = {10: 5, 20: 15, 30: 26, 40: 36}
    kept = opened.minutes(choosing.keep_newest(count, None))
    roots = [10, 20, 30, 40][-count:]
    bounds = {*roots, *(minute - 10 for minute in roots if minute > 10)}
    expected = {before[bound] for bound in bounds} | {*[26, 35, 36, 45, 46][-count:]}
    assert {"": roots, "sub": sorted(expected)} == kept


def test_a_bound_is_no_checkpoint_of_the_subgraph_itself(opened: Open) -> None:
    """Strictly before: one with the root's own id is of the call, not what the call began from."""
    opened.stream().steps([10, 20])
    opened.stream("sub").steps([5, 10, 20, 21])
    kept = opened.minutes(choosing.keep_newest(1, None))
    assert [5, 10, 21] == kept["sub"]


def test_namespaces_of_calls_go_with_the_calls_that_made_them(opened: Open) -> None:
    """Also nested ones, which name the root's checkpoint too; those that name none stay."""
    root = opened.stream()
    root.steps([10, 20, 30])
    calls = {
        "sub:1": [10],
        "sub:1|deep:2": [10],
        "sub:3": [30],
        "sub:4": [10, 30],
        "sub": [10],  # of no single call
        "sub:5|plain": [10],
        "sub:6": [None],
        "sub:7": [10, None],
    }
    for ns, roots in calls.items():
        for place, minute in enumerate(roots):
            parents = {} if minute is None else {"": minute_id(minute)}
            opened.stream(ns).superstep(11 + place, parents=parents)
    kept = opened.minutes(choosing.keep_newest(1, None))
    assert {"sub:1", "sub:1|deep:2"} == {ns for ns, minutes in kept.items() if not minutes}


def test_without_a_root_every_namespace_keeps_its_newest(opened: Open) -> None:
    """A thread may hold subgraphs alone: nobody can say that their calls are over."""
    opened.stream("sub:1").superstep(1, parents={"": minute_id(0)})
    opened.stream("sub").steps([1, 2])
    assert {"sub:1": [1.0], "sub": [2.0]} == opened.minutes(choosing.keep_newest(1, None))


def test_the_root_may_come_last(opened: Open) -> None:
    """Namespaces are in the order of their first writes, not that of the graph."""
    sub = opened.stream("sub")
    sub.steps([5, 15, 25])
    opened.stream().steps([10, 20])
    kept = opened.minutes(choosing.keep_newest(1, None))
    assert {"sub": [5.0, 15.0, 25.0], "": [20.0]} == kept


def test_nothing_keeps_nothing(opened: Open) -> None:
    opened.stream().steps([1, 2])
    opened.stream("sub").steps([1])
    assert {"": [], "sub": []} == opened.minutes(choosing.nothing)


# --- without runs ----------------------------------------------------------------------------


def test_checkpoints_of_other_runs_stay(opened: Open) -> None:
    """Those of none, too."""
    root = opened.stream()
    for minute, run in ((1, "a"), (2, "b"), (3, None), (4, "a"), (5, "c")):
        root.superstep(minute, run=run)
    assert {"": [2.0, 3.0]} == opened.minutes(choosing.without_runs(frozenset("ac")))
    assert {"": [1, 2, 3, 4, 5]} == opened.minutes(choosing.without_runs(frozenset()))


def test_writes_nobody_is_rebuilt_from_go(opened: Open) -> None:
    """On a head all of the run's; of other runs and of what goes itself none are named."""
    root = opened.stream()
    root.superstep(1, run="a")
    root.superstep(2, 1, run="r")
    root.superstep(3, 1, run="a")
    root.task(3, ["w"], "of r", run="r")
    root.task(3, ["w"], "of a", run="a")
    root.task(2, ["w"], "on what goes", run="r")
    assert {(minute_id(3), "of r"): None} == opened.writes("r")
    assert {} == opened.writes("unknown")


def test_of_writes_with_children_what_no_child_needs_goes(opened: Open) -> None:
    """Channels that every child shows, and LangGraph's own; the rest is history."""
    root = opened.stream()
    root.put("1")
    config = make_config("t", "", "1")
    config["metadata"] = {"run_id": "r"}
    rows = [("shown", 1), ("one shows", 1), ("needed", 1), ("__interrupt__", 1)]
    opened.saver.put_writes(config, rows, "both")
    opened.saver.put_writes(config, rows[:1], "none")
    opened.saver.put_writes(config, rows[2:3], "all")
    root.put("2", "1", new={"shown": 1, "one shows": 1}, values={"shown": 1, "one shows": None})
    root.put("3", "1", new={"shown": 1}, values={"shown": None})
    expected = {("1", "both"): ["one shows", "needed"], ("1", "none"): None}
    assert expected == opened.writes("r")


def test_writes_above_an_anchor_stay(opened: Open) -> None:
    """What stands below the anchor is rebuilt from them, whatever the children that stay show."""
    root = opened.stream()
    root.superstep(1, run="a")
    root.task(1, ["w"], "of r", run="r")
    root.superstep(2, 1, run="r")
    root.superstep(3, 2, run="a")
    root.superstep(4, 1, snapshot=["all"], run="a")
    assert {} == opened.writes("r")
    opened.keeper.delete_for_runs(["r"])
    assert (["w"], ["all"]) == (root.log(3), root.log(4))
    assert {} == opened.writes("r")


@pytest.mark.parametrize("younger", [timedelta(0), timedelta(days=400_000)])
def test_extreme_ages_are_ages(opened: Open, younger: timedelta) -> None:
    """From the store's own method: nothing is older than all time, everything than none."""
    opened.stream().steps([1, 2, 3])
    opened.store.prune("t", older_than=younger)
    assert [3, 2, 1][: 3 if younger else 1] == opened.stream().minutes()
