"""The laws of `SaverSuite` about writes: order, retries, early and late arrival.

Part of `SaverSuite` only for the length of a module: not to be subclassed alone.
"""

from __future__ import annotations

import inspect
from collections import deque
from typing import Any

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME

from deltastore.testing import Caller, Lane


class WriteLaws:
    """Part of `SaverSuite`; see there."""

    def test_writes_are_ordered_by_path_task_and_index(self, caller: Caller) -> None:
        """Live execution applies tasks in this order; arrival and task id order differ from it."""
        lane = Lane(caller)
        lane.put("1")
        lane.put("2", "1")
        lane.write("1", [("x", "pb")], "a", "~b")
        lane.write("1", [("x", "pa-z")], "z", "~a")
        lane.write("1", [("x", f"none-{i}") for i in range(12)], "m")
        lane.write("1", [("x", "pa-b")], "b", "~a")
        expected = [*(f"none-{i}" for i in range(12)), "pa-b", "pa-z", "pb"]
        listed = [item for item in caller.list(lane.config()) if item.pending_writes]
        assert expected == [w[2] for w in lane.pending("1")]
        assert expected == [w[2] for w in listed[0].pending_writes or ()]
        assert expected == [w[2] for w in lane.history("2", "x")["writes"]]

    def test_first_regular_write_stays(self, caller: Caller) -> None:
        """A retried task must not change what its first attempt was acknowledged for."""
        lane = Lane(caller)
        lane.put("1")
        lane.write("1", [("x", "first"), ("y", 1)])
        lane.write("1", [("x", "second"), ("y", 2), ("z", 3)])
        assert [("x", "first"), ("y", 1), ("z", 3)] == [w[1:] for w in lane.pending("1")]

    def test_last_special_write_stays(self, caller: Caller) -> None:
        """A second resume replaces the first, write by write, and goes before regular ones."""
        lane = Lane(caller)
        lane.put("1")
        lane.write("1", [("x", 1), (ERROR, "e1"), (INTERRUPT, "i1")])
        lane.write("1", [("x", 2), (ERROR, "e2"), (RESUME, "r1"), (RESUME, "r2")])
        expected = [(RESUME, "r2"), (INTERRUPT, "i1"), (ERROR, "e2"), ("x", 1)]
        assert expected == [w[1:] for w in lane.pending("1")]

    def test_writes_may_come_before_their_checkpoint(self, caller: Caller) -> None:
        """LangGraph waits for neither; an early write shows as no checkpoint and is not lost."""
        lane = Lane(caller)
        lane.write("2", [("x", "early")])
        assert (None, []) == (caller.get_tuple(lane.config()), caller.list(None))
        assert caller.get_tuple(lane.config("2")) is None
        lane.put("2")
        assert [("task", "x", "early")] == lane.pending("2")

    def test_late_writes_reach_an_old_checkpoint_only(self, caller: Caller) -> None:
        """A plain graph's writes may arrive after the child is stored."""
        lane = Lane(caller)
        lane.put("1")
        lane.put("2", "1")
        lane.write("1", [("x", "late")])
        lane.write("1", [])
        assert ([("task", "x", "late")], []) == (lane.pending("1"), lane.pending("2"))
        assert ["late"] == [w[2] for w in lane.history("2", "x")["writes"]]

    def test_each_write_keeps_the_path_it_came_under(self, caller: Caller) -> None:
        """`update_state` speaks for an interrupted task under a path of its own."""
        lane = Lane(caller)
        lane.put("1")
        lane.write("1", [("x", "a"), ("x", "b"), (INTERRUPT, "i1")], "task", "~__pregel_pull, p")
        lane.write("1", [("x", "m")], "between", "~__pregel_pull, a")
        again = [("x", "a2"), ("x", "b2"), ("x", "c"), (RESUME, "r")]
        lane.write("1", again, "task", "~__interrupt__, 0000000000")
        lane.put("2", "1")
        expected = ["r", "c", "m", "i1", "a", "b"]
        assert expected == [w[2] for w in lane.pending("1")]
        assert ["c", "m", "a", "b"] == [w[2] for w in lane.history("2", "x")["writes"]]

    def test_task_path_is_a_parameter_by_name(self, caller: Caller) -> None:
        """LangGraph inspects the signature and passes no path where it finds none."""
        for method in (caller.saver.put_writes, caller.saver.aput_writes):
            assert "task_path" in inspect.signature(method).parameters

    def test_writes_of_one_batch_keep_order_and_channels(self, caller: Caller) -> None:
        """A task may write one channel several times; LangGraph hands over a deque."""
        lane = Lane(caller)
        lane.put("1")
        batch = [("x", 1), ("y", 2), ("x", 3), ("", 4), ("x", 1)]
        for task_id, given in (("a", deque(batch)), ("b", tuple(batch)), ("c", batch)):
            writes: Any = given
            lane.write("1", writes, task_id)
        expected = [(task_id, *write) for task_id in "abc" for write in batch]
        assert expected == lane.pending("1")

    def test_writes_of_other_tasks_and_checkpoints_are_apart(self, caller: Caller) -> None:
        """Every task counts its writes from zero."""
        lane = Lane(caller)
        for cid in ("1", "2", "11"):
            lane.put(cid)
            for task_id in ("t", "t1", "T"):
                lane.write(cid, [("x", f"{cid} {task_id}")], task_id)
        for cid in ("1", "2", "11"):
            expected = [(task_id, "x", f"{cid} {task_id}") for task_id in ("T", "t", "t1")]
            assert expected == lane.pending(cid)

    def test_early_writes_keep_the_rules_of_others(self, caller: Caller) -> None:
        """Order, and that the first one stays, hold over the arrival of the checkpoint."""
        lane = Lane(caller)
        lane.write("1", [("x", "b")], "b", "~b")
        lane.write("1", [("x", "first")], "a", "~c")
        lane.write("1", [("x", "retried")], "a", "~c")
        lane.put("1")
        lane.write("1", [("x", "again")], "a", "~c")
        lane.write("1", [("x", "a")], "z", "~a")
        lane.put("2", "1")
        assert ["a", "b", "first"] == [w[2] for w in lane.pending("1")]
        assert ["a", "b", "first"] == [w[2] for w in lane.history("2", "x")["writes"]]
