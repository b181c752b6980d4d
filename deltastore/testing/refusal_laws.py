"""Laws about what a saver cannot store: it refuses it, and then it is as it was.

LangGraph does not ask for this, so `SaverSuite` does not either; `StrictSaverSuite` does. State is
lost without it all the same: a batch stored by half, a write that vanishes though the call
returned, an id that can be put and then breaks every listing.

A call is *refused* if it raises. One that returns has stored what it was given, and it can be read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn
from uuid import UUID

from langgraph.checkpoint.base import CheckpointMetadata

from deltastore.testing import Caller, Lane, make_checkpoint, make_config

SURROGATE: Final = "\ud800"
"""Text that no encoding of Unicode has a place for."""
LOOP: Final[CheckpointMetadata] = {"source": "loop", "step": 0}
ODD_IDS: Final[tuple[Any, ...]] = (None, True, 1.5, b"b", 10**30, UUID(int=1), SURROGATE)


class Unstorable:
    """No serializer takes it, nor does pickle."""

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot be stored")


def refused(call: Callable[[], object]) -> bool:
    """Make a call; return whether it raised."""
    try:
        call()
    except Exception:  # noqa: BLE001 (with what a saver refuses is its own affair)
        return True
    return False


def start(caller: Caller) -> Lane:
    """Return a stream with one checkpoint and one write, that no refusal may change."""
    lane = Lane(caller)
    lane.put("1", new={"x": "1"}, values={"x": "kept"})
    lane.write("1", [("x", "kept")], "kept")
    return lane


def check_unharmed(lane: Lane) -> None:
    """Assert that the stream of `start` is as it was, and that the saver goes on."""
    assert ({"x": "kept"}, [("kept", "x", "kept")]) == (lane.values("1"), lane.pending("1"))
    lane.put("2", "1", carried={"x": "1"}, values={"x": "kept"})
    assert {"x": "kept"} == lane.values("2")
    assert ["2", "1"] == [cid for cid in lane.ids() if cid in {"1", "2"}]
    assert ["kept"] == [write[2] for write in lane.history("2", "x")["writes"]]
    assert {"t"} <= {item.config["configurable"]["thread_id"] for item in lane.caller.list(None)}


class RefusalLaws:
    """What `StrictSaverSuite` adds; see there."""

    def test_batch_with_an_unstorable_value_leaves_nothing(self, caller: Caller) -> None:
        """The task is run again, and its first writes would be taken for those of the retry."""
        lane = start(caller)
        batch = [("x", "half"), ("y", Unstorable())]
        if refused(lambda: lane.write("1", batch)):
            check_unharmed(lane)
        else:
            assert 3 == len(lane.pending("1"))

    def test_batch_with_an_unstorable_channel_leaves_nothing(self, caller: Caller) -> None:
        """As above, where the name and not the value cannot be stored."""
        lane = start(caller)
        batch: list[Any] = [("x", "half"), (SURROGATE, "odd"), ("y", "after")]
        if refused(lambda: lane.write("1", batch)):
            check_unharmed(lane)
        else:
            assert batch == [write[1:] for write in lane.pending("1") if write[0] == "task"]

    def test_checkpoint_with_an_unstorable_value_leaves_nothing(self, caller: Caller) -> None:
        """Neither the checkpoint nor the values that came before the bad one."""
        lane = start(caller)
        values = {"x": "half", "y": Unstorable()}
        if not refused(lambda: lane.put("5", "1", new={"x": "5", "y": "5"}, values=values)):
            assert {"x", "y"} == {*lane.values("5")}
            return
        assert caller.get_tuple(lane.config("5")) is None
        check_unharmed(lane)
        lane.put("6", carried={"x": "5"})
        assert {} == lane.values("6")

    def test_metadata_that_cannot_be_stored_leaves_nothing(self, caller: Caller) -> None:
        """The checkpoint goes with its metadata."""
        lane = start(caller)
        new, values = {"x": "5"}, {"x": "half"}
        odd = {"odd": Unstorable()}
        if not refused(lambda: lane.put("5", "1", new=new, values=values, metadata=odd)):
            assert "odd" in lane.read("5").metadata
            return
        assert caller.get_tuple(lane.config("5")) is None
        check_unharmed(lane)

    def test_thread_ids_of_other_types_are_refused_or_found(self, caller: Caller) -> None:
        """What can be put under an id can be read and listed under it."""
        lane = start(caller)
        Lane(caller, 1).put("1", new={"x": "1"}, values={"x": "one"})
        for odd in ODD_IDS:
            other = Lane(caller, odd)
            if refused(partial(other.put, "1", new={"x": "1"}, values={"x": "odd"})):
                continue
            assert ({"x": "odd"}, ["1"]) == (other.values(), other.ids()), repr(odd)
        assert {"x": "one"} == Lane(caller, 1).values()
        check_unharmed(lane)

    def test_checkpoint_ids_of_other_types_are_refused_or_found(self, caller: Caller) -> None:
        """And the thread's latest can be told as before."""
        lane = start(caller)
        for odd in ODD_IDS[1:]:
            if not refused(partial(lane.put, odd)):
                found = caller.get_tuple(make_config("t", "", odd))
                assert found is not None, repr(odd)
                assert odd == found.checkpoint["id"]
            assert caller.get_tuple(lane.config()) is not None, repr(odd)
        check_unharmed(lane)

    def test_odd_tasks_are_refused_or_kept(self, caller: Caller) -> None:
        """A write that was acknowledged is there, and the others can be read beside it."""
        lane = start(caller)
        kept = [("kept", "x", "kept")]
        for odd in (None, 5, 1.5, b"b", SURROGATE):
            for task_id, path in ((odd, ""), (f"of path {odd!r}", odd)):
                given: Any = task_id, path
                if not refused(partial(lane.write, "1", [("y", repr(odd))], *given)):
                    kept.append((given[0], "y", repr(odd)))
                assert len(kept) == len(lane.pending("1")), f"task {task_id!r}, path {path!r}"
        assert {repr(write) for write in kept} == {repr(write) for write in lane.pending("1")}

    def test_checkpoint_without_its_parts_is_refused_or_harmless(self, caller: Caller) -> None:
        """One that was taken must not break the listing of all threads."""
        lane = start(caller)
        for missing in ("channel_versions", "channel_values", "versions_seen", "ts", "v"):
            checkpoint: Any = make_checkpoint("5", {"x": "5"}, {"x": "five"})
            del checkpoint[missing]
            config = make_config(f"without {missing}")
            if not refused(partial(caller.put, config, checkpoint, LOOP, {"x": "5"})):
                assert caller.get_tuple(config) is not None, missing
        check_unharmed(lane)
