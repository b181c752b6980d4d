"""The laws of `RetentionSuite` about deleting runs and copying threads.

A *run* is what checkpoints and writes name in their config's metadata. A checkpoint *needs* a run's
writes if they lie between it and the seed of a channel.

Part of `RetentionSuite` only for the length of a module: not to be subclassed alone.
"""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME

from deltastore.errors import DeletedParentError, InvalidArgumentError, NeededRunError
from deltastore.testing import make_config
from deltastore.testing.retention_calls import (
    Keeper,
    Thread,
    is_anchor,
    lived,
    minute_id,
    read_all,
    survivors,
)


def two_runs(thread: Thread) -> None:
    """Run `a`, then run `b` on its head, then run `c` on the head of `b`; a fork by run `b`."""
    thread.steps([1, 2, 3], run="a")
    thread.steps([4, 5], 3, run="b")
    thread.steps([6, 7], 5, run="c")
    thread.steps([8], 2, run="b")


class RunLaws:
    """A part of `RetentionSuite`; see there."""

    def test_deleting_runs_never_changes_a_survivor(self, keeper: Keeper) -> None:
        """What living checkpoints need of them stays, out of sight."""
        thread = Thread(keeper)
        two_runs(thread)
        before = survivors(thread, [1, 2, 3, 6, 7])
        keeper.delete_for_runs(["b"])
        assert before == read_all(keeper, "t")
        assert is_anchor(thread.anchor(5))

    def test_exactly_the_runs_checkpoints_go_over_all_threads(self, keeper: Keeper) -> None:
        """By the whole id, in every thread and namespace; nothing else is touched."""
        kept: set[tuple[str, str, str]] = set()
        dropped: set[tuple[str, str, str]] = set()
        for thread_id in ("t", "u"):
            for ns in ("", "n", "n:1"):
                for minute, run in ((1, "r"), (2, "r1"), (3, None), (4, "r"), (5, "")):
                    Thread(keeper, thread_id, ns).superstep(minute, run=run)
                    (dropped if run == "r" else kept).add((thread_id, ns, minute_id(minute)))
        before = read_all(keeper)
        assert kept | dropped == {*before}
        plans = keeper.delete_for_runs(["r", "unknown"])
        assert {key: before[key] for key in kept} == read_all(keeper)
        assert dropped == {
            (plan.thread_id, stream.checkpoint_ns, cid)
            for plan in plans
            for stream in plan.streams
            for cid in stream.dropped
        }

    def test_unknown_runs_and_none_are_no_error(self, keeper: Keeper) -> None:
        """Hosts repeat the call, and call it for runs that stored nothing."""
        lived(keeper, two_runs)
        before = read_all(keeper)
        for runs in ([], ["unknown"], ["", "A"]):
            assert all(plan.is_empty for plan in keeper.delete_for_runs(runs))
        assert before == read_all(keeper)

    def test_a_dry_run_of_deleting_runs_tells_what_is_done(self, keeper: Keeper) -> None:
        """And changes nothing; done twice, the second time is empty."""
        lived(keeper, two_runs)
        before = read_all(keeper)
        planned = keeper.delete_for_runs(["b", "a"], dry_run=True)
        assert before == read_all(keeper)
        assert planned == keeper.delete_for_runs(["b", "a"])
        after = read_all(keeper)
        assert all(plan.is_empty for plan in keeper.delete_for_runs(["b", "a"]))
        assert after == read_all(keeper)
        assert {minute_id(6), minute_id(7)} == {key[2] for key in after}

    def test_refusing_changes_nothing_where_the_living_need_a_run(self, keeper: Keeper) -> None:
        """For who must be sure that nothing of a run remains."""
        lived(keeper, two_runs)
        before = read_all(keeper)
        for runs in (["b"], ["a"], ["unknown", "a", "b"]):
            with pytest.raises(NeededRunError):
                keeper.delete_for_runs(runs, refuse=True)
        assert before == read_all(keeper)
        keeper.delete_for_runs(["c", "unknown"], refuse=True)
        assert {1, 2, 3, 4, 5, 8} == {*Thread(keeper, "t").minutes()}

    def test_the_last_run_is_rolled_back(self, keeper: Keeper) -> None:
        """The head before it is the head again, with nothing of the run pending on it."""
        thread, twin = lived(keeper, lambda one: one.steps([1, 2, 3], run="a"))
        expected = read_all(keeper, "twin")
        thread.steps([4, 5], 3, run="b")
        thread.task(5, ["unfinished"], "task", run="b")
        keeper.delete_for_runs(["b"])
        assert expected == read_all(keeper, "t")
        assert minute_id(3) == thread.read().config["configurable"]["checkpoint_id"]
        for one in (thread, twin):
            one.steps([6, 7], 3, run="c")
        assert read_all(keeper, "twin") == read_all(keeper, "t")

    def test_a_deleted_runs_write_leaves_its_place_on_the_new_head(self, keeper: Keeper) -> None:
        """An update reuses the task id, the first write wins: the second one would be lost."""
        thread = Thread(keeper)
        thread.superstep(1, run="a")
        for run, name in (("b", "x"), ("c", "z")):
            thread.task(1, [name], "null", "", run=run)
            thread.superstep(2 if run == "b" else 3, 1, run=run)
            if run == "b":
                keeper.delete_for_runs(["b"])
                assert [] == thread.pending(minute_id(1))
        assert ["z"] == thread.log(3)

    def test_a_resumed_task_waits_again_when_its_resume_is_deleted(self, keeper: Keeper) -> None:
        """The task began under one run and ended under another: only the second one's goes."""
        thread = Thread(keeper)
        thread.superstep(1, run="a")
        for run, writes in (
            ("a", [(INTERRUPT, "sure?")]),
            ("b", [(RESUME, "yes"), ("log", ["done"])]),
        ):
            config = thread.config(minute_id(1))
            config["metadata"] = {"run_id": run}
            keeper.put_writes(config, writes, "task", "~p")
        thread.superstep(2, 1, run="b")
        keeper.delete_for_runs(["b"])
        assert [("task", INTERRUPT, "sure?")] == thread.pending(minute_id(1))

    def test_an_interrupt_asked_again_by_a_deleted_run_still_waits(self, keeper: Keeper) -> None:
        """The run met the interrupt and stopped at it: the task waits as it did before."""
        thread = Thread(keeper)
        thread.superstep(1, run="a")
        for run in ("a", "b"):
            config = thread.config(minute_id(1))
            config["metadata"] = {"run_id": run}
            keeper.put_writes(config, [(INTERRUPT, "sure?")], "task", "~p")
        keeper.delete_for_runs(["b"])
        assert [("task", INTERRUPT, "sure?")] == thread.pending(minute_id(1))

    def test_writes_a_living_fork_stands_on_stay(self, keeper: Keeper) -> None:
        """They are of its history, whoever wrote them."""
        thread = Thread(keeper)
        thread.steps([1, 2], run="a")
        thread.steps([3], 2, run="b")
        thread.superstep(4, 2, run="c")
        before = survivors(thread, [1, 2, 4])
        keeper.delete_for_runs(["b"])
        assert before == read_all(keeper, "t")
        assert [2, 3] == thread.log(4)

    def test_late_calls_of_a_deleted_run_bring_nothing_back(self, keeper: Keeper) -> None:
        """The run may be in flight while it is deleted."""
        thread, _ = lived(keeper, lambda one: one.steps([1, 2], run="a"))
        thread.steps([3, 4], 2, run="b")
        only = Thread(keeper, "only b")
        only.superstep(1, run="b")
        keeper.delete_for_runs(["b"])
        for one, minute in ((thread, 4), (only, 1)):
            one.task(minute, ["late"], "late", run="b")
            with pytest.raises(DeletedParentError):
                one.superstep(9, minute, run="b")
        assert keeper.get_tuple(make_config("only b")) is None
        assert {"t", "twin"} == {key[0] for key in read_all(keeper)}
        assert read_all(keeper, "twin") == read_all(keeper, "t")

    # Copies.

    def test_a_copy_is_whole_and_reads_as_its_source(self, keeper: Keeper) -> None:
        """Every checkpoint of every namespace, ancestors and pending writes included."""
        thread = Thread(keeper)
        two_runs(thread)
        thread.task(8, ["pending"], "task", "~b")
        Thread(keeper, "t", "n:1").steps([1, 2, 3])
        before = read_all(keeper, "t")
        report = keeper.copy_thread("t", "copy")
        assert before == read_all(keeper, "t") == read_all(keeper, "copy")
        told = ("t", "copy", 2, len(before))
        assert told == (report.source, report.target, report.namespaces, report.checkpoints)
        assert [7, 6, 5, 4, 3, 2, 1] == Thread(keeper, "copy").minutes(
            before=make_config("copy", "", minute_id(8))
        )

    @pytest.mark.parametrize("target", ["t", "copy"])
    def test_a_copy_and_its_source_are_apart(self, keeper: Keeper, target: str) -> None:
        """Whichever lives on, is pruned or deleted, the other stays as it was."""
        other = "copy" if target == "t" else "t"
        thread, _ = lived(keeper, two_runs)
        thread.task(8, ["before"], "other")
        keeper.copy_thread("t", "copy")
        before = read_all(keeper, other)
        changed = Thread(keeper, target)
        changed.versions = thread.versions
        changed.task(8, ["pending"], "task")
        changed.steps([9, 10], 8)
        assert before == read_all(keeper, other)
        keeper.prune([target])
        assert before == read_all(keeper, other)
        keeper.delete_thread(target)
        assert before == read_all(keeper, other)
        assert {} == read_all(keeper, target)

    def test_a_copy_replaces_nothing(self, keeper: Keeper) -> None:
        """Onto itself or a thread that is there it is refused, and neither changes."""
        lived(keeper, two_runs)
        Thread(keeper, "only n", "n").steps([1])
        before = read_all(keeper)
        for target in ("t", "twin", "only n"):
            for how in ({}, {"heads_only": True}):
                with pytest.raises(InvalidArgumentError):
                    keeper.copy_thread("t", target, **how)
        assert before == read_all(keeper)

    def test_a_copy_of_nothing_is_nothing(self, keeper: Keeper) -> None:
        """No error, and the target is not there afterwards."""
        lived(keeper, two_runs)
        before = read_all(keeper)
        report: Any = keeper.copy_thread("absent", "copy")
        assert ("absent", "copy") == (report.source, report.target)
        counts = (report.namespaces, report.checkpoints, report.records, report.bytes)
        assert (0, 0, 0, 0) == counts
        assert before == read_all(keeper)

    def test_a_copy_may_take_a_deleted_threads_name(self, keeper: Keeper) -> None:
        """It finds nothing of the old one and is not taken for it."""
        thread, _ = lived(keeper, two_runs)
        old = Thread(keeper, "copy")
        old.steps([1, 2, 3])
        keeper.delete_thread("copy")
        keeper.copy_thread("t", "copy")
        assert read_all(keeper, "t") == read_all(keeper, "copy")
        old.versions = thread.versions
        old.steps([9], 7)
        assert [*thread.log(7), 9] == old.log(9)

    def test_copied_heads_of_a_pruned_thread_stand_on_its_anchors(self, keeper: Keeper) -> None:
        """An anchor of the source is dropped data like any other: it is folded into the copy."""
        thread, twin = lived(keeper, lambda one: one.steps([1, 2, 3, 4]))
        keeper.prune(["t"], keep_last=2)
        keeper.copy_thread("t", "copy", heads_only=True)
        assert survivors(twin, [4]) == read_all(keeper, "copy")
        keeper.prune(["t"])
        keeper.copy_thread("t", "again", heads_only=True)
        assert survivors(twin, [4]) == read_all(keeper, "again")
        assert thread.log() == Thread(keeper, "again").log()

    def test_copied_heads_are_what_pruning_would_keep(self, keeper: Keeper) -> None:
        """A light copy to go on from: rebuilt as in the source, and needing nothing of it."""
        thread, twin = lived(keeper, two_runs)
        thread.task(8, ["pending"], "task", "~b")
        Thread(keeper, "t", "n:1").steps([1, 2, 3])
        before = read_all(keeper, "t")
        keeper.copy_thread("t", "copy", heads_only=True)
        copy, copied = Thread(keeper, "copy"), read_all(keeper, "copy")
        assert ([8], True) == (copy.minutes(), ("", "n:1", minute_id(3)) in copied)
        assert copied.items() <= before.items()
        keeper.prune(["t"])
        assert read_all(keeper, "t") == copied
        copy.versions = thread.versions
        copy.steps([9], 8)
        assert [2, 3, 8, "pending", 9] == copy.log()
        keeper.delete_thread("t")
        assert [2, 3, 8, "pending", 9] == copy.log()
        assert twin.log(8) == copy.log(8)
