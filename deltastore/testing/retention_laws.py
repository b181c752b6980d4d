"""Laws of maintenance any saver with anchors can be held to, sync and async, as one pytest class.

    class TestMine(RetentionSuite):
        def open(self, where: Path) -> Saver:
            return MySaver(where / "store")

A law builds the same life in two threads, `t` and its *twin*, maintains `t` and compares what is
left of it with the twin: a survivor's tuple and histories, by the saver's own walk and by the base
class's, must be equal to the last task id.

Laws of prune are here; those of anchors, of runs and copies, of subgraphs and of compaction in
`anchor_laws`, `run_laws`, `subgraph_laws` and `compaction_laws`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from deltastore.errors import DeletedParentError
from deltastore.testing import Saver, make_config
from deltastore.testing.anchor_laws import AnchorLaws
from deltastore.testing.compaction_laws import CompactionLaws
from deltastore.testing.retention_calls import (
    OVERWRITE,
    Keeper,
    Thread,
    lived,
    minute_id,
    minutes_now,
    read_all,
    survivors,
)
from deltastore.testing.run_laws import RunLaws
from deltastore.testing.saver_suite import FAILURES
from deltastore.testing.subgraph_laws import SubgraphLaws


def a_life(thread: Thread) -> None:
    """Five steps, a fork from the second, a snapshot, an overwrite, a task still pending."""
    thread.superstep(1, doc=["d"])
    thread.superstep(2, 1, log=["two"])
    thread.superstep(3, 2, log=["three"], snapshot=["two", "three"])
    thread.superstep(4, 3, log={OVERWRITE: ["four"]})
    thread.superstep(5, 4, log=["five"])
    thread.superstep(6, 2, log=["six"], doc=["e"])
    thread.superstep(7, 6, log=["seven"])
    thread.task(7, ["pending"], "z-task", "~a")
    thread.task(7, ["pending"], "a-task", "~b")


class RetentionSuite(AnchorLaws, RunLaws, SubgraphLaws, CompactionLaws):
    """Subclass it as `Test...` and define `open`, and `open_folding` if there is compaction."""

    def open(self, where: Path) -> Saver:
        """Return a saver on the directory `where`, made with the async caller's loop running."""
        raise NotImplementedError

    def open_folding(self, where: Path) -> Saver:
        """Return a saver that compaction may fold the channel `log` of, with `REDUCERS`."""
        return self.open(where)

    def close(self, saver: Saver) -> None:
        """Close a saver; by default its `close()`, if it has one."""
        getattr(saver, "close", lambda: None)()

    def reopen(self, saver: Saver, where: Path) -> Saver:
        """Return the saver after a restart. A saver that keeps nothing returns itself."""
        self.close(saver)
        return self.open(where)

    @pytest.fixture(params=["sync", "async"])
    def keeper(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Keeper]:
        """A keeper on a saver of its own."""
        with self.calling(tmp_path, asynchronous=request.param == "async") as keeper:
            yield keeper

    @pytest.fixture(params=["sync", "async"])
    def folder(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Keeper]:
        """A keeper whose saver knows the reducer of `log`."""
        with self.calling(tmp_path, asynchronous=request.param == "async", folding=True) as keeper:
            yield keeper

    @contextmanager
    def calling(
        self, where: Path, *, asynchronous: bool = False, folding: bool = False
    ) -> Iterator[Keeper]:
        """Open a keeper on `where`, close it at the end."""
        opened = self.open_folding if folding else self.open
        keeper = Keeper(
            lambda: opened(where),
            close_saver=self.close,
            reopen_saver=lambda saver: self.reopen(saver, where),
            asynchronous=asynchronous,
        )
        try:
            yield keeper
        finally:
            keeper.close()

    # Survivors.

    @pytest.mark.parametrize("keep_last", [None, 1, 2, 3, 5, 9])
    def test_prune_never_changes_a_survivor(self, keeper: Keeper, keep_last: int | None) -> None:
        """Neither its values, versions, metadata, parent and writes, nor what they rebuild."""
        _, twin = lived(keeper, a_life)
        keeper.prune(["t"], keep_last=keep_last)
        assert survivors(twin, range(8 - (keep_last or 1), 8)) == read_all(keeper, "t")

    def test_exactly_the_survivors_are_listed_and_limits_count_them(self, keeper: Keeper) -> None:
        """An anchor that were listed, or counted, would be a state the graph never had."""
        thread, _ = lived(keeper, a_life)
        keeper.prune(["t"], keep_last=3)
        assert [7, 6, 5] == thread.minutes()
        assert ([7, 6], []) == (thread.minutes(limit=2), thread.minutes(limit=0))
        assert [5] == thread.minutes(before=thread.config(minute_id(6)), limit=1)
        assert [7, 6, 5] == thread.minutes(filter={"source": "loop"}, limit=9)
        assert minute_id(7) == thread.read().config["configurable"]["checkpoint_id"]

    def test_values_are_rebuilt_from_what_went(self, keeper: Keeper) -> None:
        """The head's state lies in writes of checkpoints that are gone."""
        thread, _ = lived(keeper, a_life)
        keeper.prune(["t"], keep_last=3)
        told = [thread.log(5), thread.log(6), thread.log(7)]
        fork = ["two", "three", "six"]
        assert [["four", "five"], fork, [*fork, "seven"]] == told

    def test_writes_keep_their_order_over_supersteps(self, keeper: Keeper) -> None:
        """Sorted by path once folded, supersteps would mix: a later one may sort first."""

        def life(thread: Thread) -> None:
            thread.superstep(1)
            for minute in range(2, 7):
                for task in ("b", "a"):
                    thread.task(minute - 1, [f"{minute}{task}"], f"{task}{9 - minute}", f"~{task}")
                thread.superstep(minute, minute - 1, log=[f"{minute}"])

        thread, _ = lived(keeper, life)
        expected = thread.log()
        keeper.prune(["t"])
        assert expected == thread.log()
        assert ["2a", "2b", "2"] == expected[:3]

    def test_a_snapshot_on_the_survivor_needs_nothing_else(self, keeper: Keeper) -> None:
        """What is present ends the walk at once; None and empty values are present."""

        def life(thread: Thread) -> None:
            thread.steps([1, 2])
            thread.superstep(3, 2, log=["x"], snapshot=[])

        thread, twin = lived(keeper, life)
        keeper.prune(["t"])
        assert survivors(twin, [3]) == read_all(keeper, "t")
        assert [] == thread.log()

    def test_a_thread_goes_on_as_its_twin(self, keeper: Keeper) -> None:
        """Pruned after every turn, as applications do, it must never drift."""
        thread, twin = lived(keeper, a_life)
        last = 7
        for minute in range(8, 16):
            keeper.prune(["t"], keep_last=1 + minute % 3)
            for one in (thread, twin):
                how: Any = {"snapshot": ["whole"]} if minute == 11 else {}
                one.superstep(minute, last, log=[minute], **how)
            last = minute
            assert survivors(twin, thread.minutes()) == read_all(keeper, "t")

    def test_survivors_read_the_same_after_a_restart(self, keeper: Keeper) -> None:
        """What caches held may have hidden what the file lacks."""
        lived(keeper, a_life)
        keeper.prune(["t"], keep_last=2)
        before = read_all(keeper, "t")
        keeper.reopen()
        assert before == read_all(keeper, "t")

    def test_ids_of_any_form_are_pruned_alike(self, keeper: Keeper) -> None:
        """The newest is the greatest text, whatever an id looks like."""
        for thread_id in ("t", "twin"):
            thread = Thread(keeper, thread_id)
            parent = None
            for cid in ("ID-1", minute_id(3), "ID-2", "\U0001f409", "ID-3"):
                if parent is not None:
                    thread.write(parent, [("log", [cid])], "task")
                thread.put(cid, parent, new={"log": cid})
                parent = cid
        keeper.prune(["t"], keep_last=2)
        expected = read_all(keeper, "twin")
        kept = {key: one for key, one in expected.items() if key[2] in {"ID-3", "\U0001f409"}}
        assert kept == read_all(keeper, "t")

    def test_namespaces_are_pruned_one_by_one(self, keeper: Keeper) -> None:
        """Each has a newest of its own, and anchors of its own under the same ids."""
        for ns in ("", "n", "n|m"):
            for thread_id in ("t", "twin"):
                Thread(keeper, thread_id, ns).steps([1, 2, 3])
        keeper.prune(["t"])
        for ns in ("", "n", "n|m"):
            expected = survivors(Thread(keeper, "twin", ns), [3])
            found = read_all(keeper, "t", ns)
            assert expected.items() <= found.items()
        assert [3] == Thread(keeper, "t").minutes()

    # What is asked.

    def test_pruning_twice_changes_nothing(self, keeper: Keeper) -> None:
        """Anchors count as dropped: folding them again must come out the same."""
        thread, twin = lived(keeper, a_life)
        keeper.prune(["t"], keep_last=2)
        before, stands = read_all(keeper, "t"), thread.anchor(2)
        assert all(plan.is_empty for plan in keeper.prune(["t"], keep_last=2))
        assert before == read_all(keeper, "t") == survivors(twin, [6, 7])
        assert stands == thread.anchor(2)

    @pytest.mark.parametrize("strategy", ["keep_latest", "delete", "delete_all"])
    def test_a_dry_run_tells_what_is_then_done(self, keeper: Keeper, strategy: str) -> None:
        """And does nothing: an operator decides by it."""
        lived(keeper, a_life)
        Thread(keeper, "t", "n").steps([1, 2, 3])
        before = read_all(keeper)
        planned = keeper.prune(["t", "twin"], strategy=strategy, dry_run=True)
        assert before == read_all(keeper)
        done = keeper.prune(["t", "twin"], strategy=strategy)
        assert planned == done
        for plan in done:
            left = read_all(keeper, plan.thread_id)
            assert len(left) == plan.kept
            gone = {(s.checkpoint_ns, cid) for s in plan.streams for cid in s.dropped}
            had = {(ns, cid) for thread, ns, cid in before if thread == plan.thread_id}
            assert had - {(ns, cid) for _, ns, cid in left} == gone
            assert (strategy != "keep_latest") == plan.deletes

    def test_a_plan_names_the_anchors_that_then_stand(self, keeper: Keeper) -> None:
        """Newest first, as the ids that go."""
        thread, _ = lived(keeper, a_life)
        (plan,) = keeper.prune(["t"], keep_last=3)
        (stream,) = plan.streams
        assert ("", 3, 1) == (stream.checkpoint_ns, stream.kept, len(plan.streams))
        assert tuple(map(minute_id, (4, 3, 2, 1))) == stream.dropped
        assert tuple(map(minute_id, (4, 2))) == stream.anchors
        assert [thread.anchor(4), thread.anchor(2)]

    @pytest.mark.parametrize("strategy", ["delete", "delete_all"])
    def test_deleting_leaves_nothing_and_no_ghost(self, keeper: Keeper, strategy: str) -> None:
        """A late write is stored and shows nowhere; a late put must not become a root."""
        thread, twin = lived(keeper, a_life)
        Thread(keeper, "t", "n").steps([1, 2])
        keeper.prune(["t"], strategy=strategy)
        thread.task(7, ["late"], "late")
        thread.task(3, ["late"], "late")
        assert {} == read_all(keeper, "t")
        with pytest.raises(DeletedParentError):
            thread.superstep(8, 7)
        assert ({}, None) == (read_all(keeper, "t"), keeper.get_tuple(make_config("t")))
        assert {"twin"} == {key[0] for key in read_all(keeper)}
        thread.superstep(9)
        assert ([9], [7, 6, 5, 4, 3, 2, 1]) == (thread.minutes(), twin.minutes())

    def test_an_unknown_strategy_changes_nothing(self, keeper: Keeper) -> None:
        """Nor does a count that keeps nothing: that is what deleting is for."""
        lived(keeper, a_life)
        before = read_all(keeper)
        wrong: list[dict[str, Any]] = [
            {"strategy": "keep_all"},
            {"keep_last": 0},
            {"keep_last": -1},
            {"older_than": timedelta(seconds=-1)},
        ]
        for how in wrong:
            with pytest.raises(ValueError):  # noqa: PT011 (LangGraph documents no narrower one)
                keeper.prune(["t"], **how)
        assert before == read_all(keeper)

    def test_other_threads_and_absent_ones_are_left_alone(self, keeper: Keeper) -> None:
        """ "t" is a prefix of "twin"; asking for a thread that is not there makes none."""
        _, twin = lived(keeper, a_life)
        before = read_all(keeper, "twin")
        keeper.prune([])
        keeper.prune(["absent", "t", "t"])
        assert before == read_all(keeper, "twin")
        assert {"t", "twin"} == {key[0] for key in read_all(keeper)}
        assert survivors(twin, [7]) == read_all(keeper, "t")

    def test_age_is_told_by_the_id_and_the_newest_stays(self, keeper: Keeper) -> None:
        """An id carries its time; a thread at rest keeps its head however old it is."""
        thread, twin = lived(keeper, lambda one: one.steps([*range(1, 9)]))
        keeper.prune(["t"], older_than=timedelta(days=3))
        assert [8, 7, 6, 5, 4, 3, 2, 1] == thread.minutes()
        keeper.prune(["t"], older_than=timedelta(minutes=minutes_now() - 5.5))
        assert survivors(twin, [6, 7, 8]) == read_all(keeper, "t")
        keeper.prune(["t"], older_than=timedelta(0))
        assert survivors(twin, [8]) == read_all(keeper, "t")

    def test_keep_last_counts_checkpoints_not_anchors(self, keeper: Keeper) -> None:
        """An anchor in the count would drop a survivor each time."""
        thread, twin = lived(keeper, lambda one: one.steps([1, 2, 3, 4]))
        keeper.prune(["t"], keep_last=2)
        for one in (thread, twin):
            one.superstep(5, 4, log=["five"])
        keeper.prune(["t"], keep_last=3)
        assert survivors(twin, [3, 4, 5]) == read_all(keeper, "t")

    def test_late_write_for_a_dropped_checkpoint_makes_no_ghost(self, keeper: Keeper) -> None:
        """A plain graph's writes arrive when they arrive; a put on what went is refused."""
        thread, twin = lived(keeper, lambda one: one.steps([1, 2, 3, 4]))
        keeper.prune(["t"])
        thread.task(1, ["late"], "late")
        assert keeper.get_tuple(thread.config(minute_id(1))) is None
        with pytest.raises(DeletedParentError):
            thread.superstep(9, 1)
        assert survivors(twin, [4]) == read_all(keeper, "t")


def broken_retention_laws(
    suite: RetentionSuite, begin: str = "test_", *, asynchronous: bool = False
) -> dict[str, BaseException]:
    """Run a suite's laws outside pytest, each on a fresh saver; return those that failed.

    Args:
        begin: Only laws whose names begin so.
    """
    failed: dict[str, BaseException] = {}
    for name in sorted(name for name in dir(suite) if name.startswith(begin)):
        law: Callable[..., None] = getattr(suite, name)
        for arguments in _arguments_of(law):
            folding = "folder" in law.__annotations__
            with tempfile.TemporaryDirectory() as where:
                try:
                    with suite.calling(
                        Path(where), asynchronous=asynchronous, folding=folding
                    ) as keeper:
                        law(keeper, **arguments)
                except FAILURES as error:
                    failed[name] = error
    return failed


def _arguments_of(law: Callable[..., None]) -> list[dict[str, Any]]:
    for mark in getattr(law, "pytestmark", []):
        if mark.name == "parametrize":
            name, values = mark.args
            return [{name: value} for value in values]
    return [{}]
