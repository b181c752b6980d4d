from __future__ import annotations

from typing import Any

import pytest

from deltastore import copying
from deltastore.errors import DeletedParentError, PrunedCheckpointError
from deltastore.testing import Lane
from deltastore.testing.strategies import checkpoint_id as cid
from tests.unit.open_lane import LARGE, Open


def test_heads_of_a_pruned_thread_are_copied_with_their_anchors() -> None:
    """Where nothing but anchors would go, the plan is empty, and so the copy lacks them."""
    lane = Open()
    for n in range(5):
        new, carried = ({"x": n}, {}) if n < 3 else ({}, {"x": 2})
        lane.put(cid(n), cid(n - 1) if n else None, new=new, carried=carried, values={"x": LARGE})
        lane.write(cid(n), [("log", [n])])
    lane.saver.prune(["t"])
    lane.store.copy_thread("t", "u", heads_only=True)
    assert [] == lane.damage()
    copy = Lane(lane.caller, "u")
    assert lane.values() == copy.values()
    assert lane.history(cid(4), "log") == copy.history(cid(4), "log")


def test_copied_heads_know_what_was_left_behind() -> None:
    """Else an anchor's id may be put, and a put on what was left behind starts a cut history."""
    lane = Open()
    for n in range(5):
        lane.put(cid(n), cid(n - 1) if n else None)
    lane.store.copy_thread("t", "u", heads_only=True)
    copy = Lane(lane.caller, "u")
    with pytest.raises(PrunedCheckpointError):
        copy.put(cid(3))
    with pytest.raises(DeletedParentError):
        copy.put(cid(9), cid(1))
    assert [] == lane.damage()


def test_copy_has_the_marks_made_while_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child with a smaller id marks its parent, which nobody touched: later writes to the parent
    are not known to be late in the copy."""
    lane = Open()
    for n in range(20, 23):
        lane.put(cid(n), cid(n - 1) if n > 20 else None, new={"log": n})
    touched = copying._Copy._touched

    def meanwhile(work: Any) -> Any:
        if cid(5) not in lane.ids():
            lane.put(cid(5), cid(22), new={"log": 50})
        return touched(work)

    monkeypatch.setattr(copying._Copy, "_touched", meanwhile)
    lane.store.copy_thread("t", "u")
    copy = Lane(lane.caller, "u")
    for one in (lane, copy):
        one.write(cid(22), [("log", ["late"])])
        one.put(cid(6), cid(5), new={"log": 60})
    assert lane.history(cid(6), "log") == copy.history(cid(6), "log")


def test_heads_are_copied_at_any_moment_of_a_threads_life() -> None:
    """Right after a prune nothing but anchors would go."""
    lane = Open()
    for n in range(6):
        lane.put(cid(n), cid(n - 1) if n else None, new={"log": n})
        lane.write(cid(n), [("log", [n])])
        lane.store.prune("t")
        lane.store.copy_thread("t", f"copy {n}", heads_only=True)
        copy = Lane(lane.caller, f"copy {n}")
        assert lane.history(cid(n), "log") == copy.history(cid(n), "log")
