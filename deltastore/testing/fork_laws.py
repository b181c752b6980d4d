"""The laws of `SaverSuite` about forks and long threads.

A *branch* is what stands on one child of a checkpoint that has several.

Part of `SaverSuite` only for the length of a module: not to be subclassed alone.
"""

from __future__ import annotations

from typing import Final

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore.testing import Caller, Lane

LONG: Final = 120
"""Supersteps of a long thread: more than savers read at once."""


def written(lane: Lane, cid: str) -> list[str]:
    """Return the values of the delta history of channel x."""
    return [write[2] for write in lane.history(cid, "x")["writes"]]


class ForkLaws:
    """Part of `SaverSuite`; see there."""

    def test_branches_show_their_own_values(self, caller: Caller) -> None:
        """And what they inherit from before the fork."""
        lane = Lane(caller)
        lane.put("1", new={"x": "1", "z": "1"}, values={"x": "root", "z": "Z"})
        for branch in ("a", "b"):
            one, two = f"2{branch}", f"3{branch}"
            values, carried = {"x": branch, "z": "Z"}, {"z": "1"}
            lane.put(one, "1", carried=carried, new={"x": one}, values=values)
            values, carried = {**values, "y": two}, {**carried, "x": one}
            lane.put(two, one, carried=carried, new={"y": two}, values=values)
        for branch in ("a", "b"):
            assert {"x": branch, "z": "Z"} == lane.values(f"2{branch}")
            assert {"x": branch, "y": f"3{branch}", "z": "Z"} == lane.values(f"3{branch}")
        assert {"x": "root", "z": "Z"} == lane.values("1")

    def test_branch_from_the_past_is_the_latest_and_has_that_past(self, caller: Caller) -> None:
        """`update_state` on an old checkpoint: what came after it is not in the new branch."""
        lane = Lane(caller)
        for cid, parent in (("1", None), ("2", "1"), ("3", "2"), ("4", "3")):
            lane.put(cid, parent, new={"x": cid})
            lane.write(cid, [("x", cid)])
        lane.put("5", "2", new={"x": "5"})
        assert (lane.config("5"), lane.config("2")) == (
            lane.read().config,
            lane.read().parent_config,
        )
        assert (["1", "2"], ["1", "2", "3"]) == (written(lane, "5"), written(lane, "4"))
        assert ["5", "4", "3", "2", "1"] == lane.ids()

    def test_writes_of_a_shared_parent_reach_every_branch(self, caller: Caller) -> None:
        """Those of one branch reach the other never; a seed in one ends nothing in the other."""
        lane = Lane(caller)
        lane.put("1")
        lane.write("1", [("x", "shared b")], "b", "~b")
        lane.write("1", [("x", "shared a")], "c", "~a")
        for branch in ("a", "b"):
            snapshot = {"x": _DeltaSnapshot(["s"])} if branch == "b" else {}
            lane.put(f"2{branch}", "1", new={"x": f"2{branch}"}, values=snapshot)
            lane.write(f"2{branch}", [("x", f"own {branch}")])
            lane.put(f"3{branch}", f"2{branch}", new={"x": f"3{branch}"})
        assert ["shared a", "shared b", "own a"] == written(lane, "3a")
        assert ["own b"] == written(lane, "3b")
        assert ["shared a", "shared b"] == written(lane, "2a") == written(lane, "2b")

    def test_same_ids_in_other_streams_are_others(self, caller: Caller) -> None:
        """A subgraph's checkpoints may carry the ids of its graph's; parents stay in the stream."""
        streams = [("t", ""), ("t", "n"), ("t", "n|m"), ("u", "")]
        for thread, ns in streams:
            lane, name = Lane(caller, thread, ns), f"{thread}/{ns}"
            lane.put("1", new={"x": 1}, values={"x": name})
            lane.write("1", [("x", name)])
            if ns != "n":
                values = {"x": name}
                lane.put("2", "1", carried={"x": 1}, values=values, metadata={"name": name})
        for thread, ns in streams:
            lane, name = Lane(caller, thread, ns), f"{thread}/{ns}"
            assert {"x": name} == lane.values("1")
            assert [("task", "x", name)] == lane.pending("1")
            if ns != "n":
                assert {"name": name}.items() <= lane.read().metadata.items()
                found = lane.history("2", "x")
                assert (name, [("task", "x", name)]) == (found["seed"], [*found["writes"]])
        lane = Lane(caller, "t", "n")
        assert (["1"], None) == (lane.ids(), caller.get_tuple(lane.config("2")))

    def test_long_threads_are_read_to_their_beginning(self, caller: Caller) -> None:
        """A page, a depth or a count that ends a walk early loses the oldest state in silence."""
        lane = Lane(caller)
        parent = None
        for n in range(LONG):
            cid = f"{n:04}"
            lane.put(cid, parent, new={"x": n + 1})
            if n % 10 == 0:
                lane.write(cid, [("x", cid)])
            parent = cid
        ids = [f"{n:04}" for n in range(LONG)]
        assert ids[::10] == written(lane, ids[-1])
        assert ids[::-1] == lane.ids()
