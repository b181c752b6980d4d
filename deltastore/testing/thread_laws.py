"""The laws of `SaverSuite` about use by many at once: threads on the sync face, tasks on the async.

LangGraph puts writes from the threads of its executor while the loop of the run goes on, and one
saver serves all threads of a process. Nothing here waits or draws: every actor makes a fixed number
of calls, and whatever order they come in, the result is told.

Part of `SaverSuite` only for the length of a module: not to be subclassed alone.
"""

from __future__ import annotations

from typing import Any, Final

from deltastore.testing import Lane, make_checkpoint, make_config
from deltastore.testing.suite_calls import Call, SuiteCaller

STEPS: Final = 8
ACTORS: Final = 4


def steps_of(thread: str, ids: list[str], root: str | None = None) -> list[Call]:
    """Return the calls of one run: each superstep puts a checkpoint and then writes to it."""
    calls: list[Call] = []
    parent = root
    for cid in ids:
        checkpoint = make_checkpoint(cid, {"x": cid, "y": cid}, {"x": [cid], "y": cid})
        told = {"source": "loop", "step": len(calls)}
        versions = {"x": cid, "y": cid}
        calls.append(("put", (make_config(thread, "", parent), checkpoint, told, versions)))
        calls.append(("put_writes", (make_config(thread, "", cid), [("z", cid)], "task", "~p")))
        parent = cid
    return calls


def check(lane: Lane, ids: list[str]) -> None:
    """Assert that the chain of `ids` is whole."""
    for cid in ids:
        assert {"x": [cid], "y": cid} == lane.values(cid)
        assert [("task", "z", cid)] == lane.pending(cid)
    written = [write[2] for write in lane.history(ids[-1], "z")["writes"]]
    assert ids[:-1] == written


class ThreadLaws:
    """Part of `SaverSuite`; see there."""

    def test_threads_filled_at_once_are_whole(self, caller: SuiteCaller) -> None:
        """Conversations run side by side; none may lose a step to another."""
        ids = [f"{step}" for step in range(STEPS)]
        threads = [f"t{actor}" for actor in range(ACTORS)]
        caller.together([steps_of(thread, ids) for thread in threads])
        for thread in threads:
            lane = Lane(caller, thread)
            assert ids[::-1] == lane.ids()
            check(lane, ids)

    def test_branches_grown_at_once_are_whole(self, caller: SuiteCaller) -> None:
        """One thread, several runs from one checkpoint: a put must not take another's back."""
        lane = Lane(caller)
        lane.put("0")
        branches = [[f"{step}{actor}" for step in range(1, STEPS)] for actor in range(ACTORS)]
        caller.together([steps_of("t", ids, "0") for ids in branches])
        every = {"0", *(cid for ids in branches for cid in ids)}
        assert sorted(every, reverse=True) == lane.ids()
        for ids in branches:
            check(lane, ids)

    def test_tasks_that_write_at_once_are_all_kept(self, caller: SuiteCaller) -> None:
        """The parallel tasks of one superstep end when they end; their order is by path."""
        lane = Lane(caller)
        lane.put("1")
        config = lane.config("1")
        actors: list[list[Call]] = [
            [
                ("put_writes", (config, [("x", f"{path}{actor}")], f"{path}{actor}", f"~{path}"))
                for path in range(STEPS)
            ]
            for actor in range(ACTORS)
        ]
        caller.together(actors)
        lane.put("2", "1")
        expected = [f"{path}{actor}" for path in range(STEPS) for actor in range(ACTORS)]
        assert expected == [write[2] for write in lane.pending("1")]
        assert expected == [write[2] for write in lane.history("2", "x")["writes"]]

    def test_readers_beside_a_writer_see_whole_checkpoints(self, caller: SuiteCaller) -> None:
        """A reader polls a thread while a run goes on: never half a checkpoint, never backwards."""
        lane = Lane(caller)
        lane.put("0", new={"x": "0", "y": "0"}, values={"x": ["0"], "y": "0"})
        ids = [f"{step}" for step in range(1, STEPS)]
        reads: list[Call] = [("get_tuple", (lane.config(),))] * (3 * STEPS)
        _, *read = caller.together([steps_of("t", ids, "0"), reads, reads])
        for found in read:
            seen: list[Any] = [item.checkpoint["id"] for item in found]
            assert sorted(seen) == seen
            for item in found:
                cid = item.checkpoint["id"]
                assert {"x": [cid], "y": cid} == item.checkpoint["channel_values"]
        assert ids[-1] == lane.read().checkpoint["id"]
