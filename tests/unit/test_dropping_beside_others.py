from __future__ import annotations

from dataclasses import asdict

import pytest

from deltastore import retention, retire
from deltastore.engine.counting import CountingEngine, EngineCounts
from deltastore.engine.memory import MemoryEngine
from deltastore.errors import DeletedParentError, PrunedCheckpointError
from deltastore.testing import Lane
from deltastore.testing.strategies import checkpoint_id as cid
from tests.unit.open_lane import LARGE, HookedEngine, Open

# --- storing a checkpoint again beside maintenance -------------------------------------------


def test_put_again_elsewhere_then_prune_keeps_what_its_descendants_show() -> None:
    """3 refers to the value of 0, which is no ancestor of it any more: nothing said so."""
    lane = Open()
    lane.put(cid(0), new={"x": 1}, values={"x": LARGE})
    for n in (1, 2, 3):
        lane.put(cid(n), cid(n - 1), carried={"x": 1})
    lane.put(cid(2), None, new={"x": 5}, values={"x": "other"})
    lane.saver.prune(["t"], keep_last=2)
    assert [] == lane.damage()
    assert {"x": LARGE} == lane.values(cid(3))


def test_value_moved_to_a_sibling_stays_when_the_sibling_goes() -> None:
    """Putting 0 again moved its old value to one child; the other one refers to it there."""
    lane = Open()
    lane.put(cid(0), new={"x": 1}, values={"x": LARGE})
    lane.put(cid(1), cid(0), carried={"x": 1})
    lane.run("r", cid(2), cid(0), carried={"x": 1})
    lane.put(cid(0), new={"x": 1}, values={"x": "other"})
    lane.saver.delete_for_runs(["r"])
    assert [] == lane.damage()
    assert {"x": LARGE} == lane.values(cid(1))


def test_put_again_moves_the_seeds_of_anchors() -> None:
    """The anchor of 1 shows a value of 0, which stays and is then put again."""
    lane = Open()
    lane.put(cid(0), new={"x": 1}, values={"x": LARGE})
    lane.run("r", cid(1), cid(0), carried={"x": 1})
    lane.put(cid(2), cid(1), new={"x": 2})
    lane.saver.delete_for_runs(["r"])
    lane.put(cid(0), new={"x": 1}, values={"x": "other"})
    assert [] == lane.damage()
    assert LARGE == lane.history(cid(2), "x").get("seed")


def test_put_again_moves_what_remains_are_coded_against() -> None:
    """The value of 1 stayed behind for 2; it is a delta to that of 0, which is then put again."""
    lane = Open()
    lane.put(cid(0), new={"x": 1}, values={"x": LARGE})
    lane.run("r", cid(1), cid(0), new={"x": 2}, values={"x": [*LARGE, "more"]})
    lane.put(cid(2), cid(1), carried={"x": 2})
    lane.saver.delete_for_runs(["r"])
    lane.put(cid(0), new={"x": 1}, values={"x": "other"})
    assert [] == lane.damage()
    assert {"x": [*LARGE, "more"]} == lane.values(cid(2))


def test_children_go_before_parents_that_were_put_again_deeper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The order goes by depth, and a checkpoint that was put again may be deeper than its child."""
    monkeypatch.setattr(retention, "RECORDS_MAX", 1)
    lane = Open()
    for n in range(4):
        lane.put(cid(n), cid(n - 1) if n else None)
    for n in range(10, 22):
        lane.put(cid(n), cid(n - 1) if n > 10 else None)
    lane.put(cid(1), cid(21), new={"x": 1}, values={"x": "deep"})
    lane.put(cid(99))
    lane.store.prune("t", progress=lambda done, total: _check_sound(lane))
    assert [] == lane.damage()


def _check_sound(lane: Open) -> None:
    assert [] == lane.damage()


def test_put_again_between_two_transactions_of_a_prune_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After it was coded whole: `check_drop` lets any change of what is coded whole pass."""
    monkeypatch.setattr(retention, "RECORDS_MAX", 1)
    for place in range(1, 8):
        lane = Open()
        lane.put(cid(0), new={"x": 1}, values={"x": LARGE})
        lane.put(cid(1), cid(0), new={"x": 2}, values={"x": [*LARGE, 1]})
        lane.put(cid(2), cid(1), new={"x": 3}, values={"x": [*LARGE, 1, 2]})
        calls: list[int] = []

        def progress(
            done: int, total: int, lane: Open = lane, calls: list[int] = calls, place: int = place
        ) -> None:
            calls.append(done)
            if len(calls) == place:
                try:
                    lane.put(cid(2), cid(1), carried={"x": 2})
                except PrunedCheckpointError:
                    pass  # its parent's value is gone already

        lane.store.prune("t", progress=progress)
        assert [] == lane.damage(), f"put again after call {place}"


# --- races ------------------------------------------------------------------------------------


def test_child_put_on_a_head_whose_writes_go_keeps_them() -> None:
    """`check_drop` looks whether the parent goes, and not whether its writes do."""
    engine = HookedEngine()
    lane, other = Open(engine), Open(engine)
    lane.put(cid(0))
    lane.run_writes("r", cid(0), [("log", ["w"])])
    other.store.setup()
    engine.before(2, lambda: other.put(cid(1), cid(0), new={"log": 1}))
    lane.saver.delete_for_runs(["r"])
    assert [("task", "log", ["w"])] == lane.history(cid(1), "log")["writes"]


def test_value_that_shares_writes_that_go_is_stored_whole() -> None:
    """The new child's value takes its elements from its parent's writes."""
    engine = HookedEngine()
    lane, other = Open(engine), Open(engine)
    message = "a long write " * 40
    lane.put(cid(0), new={"x": 1}, values={"x": LARGE})
    lane.run_writes("r", cid(0), [("x", [message])])
    other.store.setup()
    engine.before(
        2, lambda: other.put(cid(1), cid(0), new={"x": 2}, values={"x": [*LARGE, message]})
    )
    lane.saver.delete_for_runs(["r"])
    assert [] == lane.damage()
    assert {"x": [*LARGE, message]} == lane.values(cid(1))


def test_thread_that_started_anew_is_not_deleted_with_the_old_one() -> None:
    """Planned for one number, the deletion takes effect on whatever has the name by then."""
    engine = HookedEngine()
    lane, other = Open(engine), Open(engine)
    lane.run("r", cid(0), None)
    other.store.setup()

    def start_anew() -> None:
        with engine.begin(write=True) as txn:  # as `delete_thread`, before it reclaims
            retire.retire_thread(txn, "t", other.store._session.reader)
        other.put(cid(50))

    engine.before(2, start_anew)
    lane.saver.delete_for_runs(["r"])
    assert [cid(50)] == lane.ids()


class StopError(BaseException):
    pass


def test_value_prepared_against_remains_that_wait_to_be_reclaimed_reads() -> None:
    """They are still there when it is stored, though out of sight, and go afterwards."""
    engine = HookedEngine()
    lane, other = Open(engine, updates=3), Open(engine, updates=3)
    lane.put(cid(0), new={"x": 1}, values={"x": LARGE})
    lane.put(cid(1), cid(0), carried={"x": 1})
    lane.put(cid(2), cid(1), carried={"x": 1})
    lane.put(cid(3), cid(1), new={"x": 3}, values={"x": [*LARGE, 3]})
    lane.put(cid(4), cid(3), new={"x": 4}, values={"x": [*LARGE, 3, 4]})
    lane.saver.prune(["t"], keep_last=3)

    def interrupted() -> None:
        def progress(done: int, total: int) -> None:
            raise StopError

        with pytest.raises(StopError):
            other.store.prune("t", keep_last=2, progress=progress)

    engine.before(1, interrupted)
    lane.put(cid(5), cid(4), new={"x": 5}, values={"x": [*LARGE, 3, 4, 5]})
    assert [] == lane.damage()
    lane.store._session.reclaim()
    assert [] == lane.damage()
    assert {"x": [*LARGE, 3, 4, 5]} == lane.values(cid(5))


# --- what is refused --------------------------------------------------------------------------


def test_put_that_empties_what_an_anchor_left_out_is_refused() -> None:
    """A delta channel's step brings a version without a value: its history would be empty."""
    lane = Open()
    lane.put(cid(0), new={"log": 1})
    lane.write(cid(0), [("log", ["a"])])
    lane.put(cid(1), cid(0), new={"log": 2})
    lane.write(cid(1), [("log", ["b"])])
    lane.put(cid(2), cid(1), new={"log": 3}, values={"log": ["a", "b"]})
    before = lane.history(cid(2), "log")
    lane.saver.prune(["t"])
    with pytest.raises(PrunedCheckpointError, match="log"):
        lane.put(cid(3), cid(1), new={"log": 4})
    assert before != {"writes": []}


def test_put_of_an_anchors_id_is_refused_beyond_the_ids_remembered() -> None:
    """Ids without time are remembered up to 1 024; those that were dropped first are forgotten."""
    lane = Open()
    ids = [f"id {n:05}" for n in range(1_100)]
    for n, one in enumerate(ids):
        lane.put(one, ids[n - 1] if n else None)
    lane.saver.prune(["t"])
    with pytest.raises(PrunedCheckpointError):
        lane.put(ids[-2])
    with pytest.raises(DeletedParentError):  # or no anchor has a child yet: it is the newest gone
        lane.put("new", ids[-3])
    assert [] == lane.damage()


def test_a_prune_tells_all_that_went(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was planned again after some of it was applied: what went before is told too."""
    monkeypatch.setattr(retention, "RECORDS_MAX", 1)
    lane = Open()
    for n in range(8):
        lane.put(cid(n), cid(n - 1) if n else None)
    calls: list[int] = []

    def progress(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) == 3:
            lane.write(cid(0), [("log", ["late"])], "late")

    plan = lane.store.prune("t", progress=progress)
    assert 7 == plan.checkpoints


def test_a_thread_of_many_calls_is_pruned_in_proportion() -> None:
    """Per namespace that goes, the thread's entry with all their names is not written again."""
    spent: dict[int, EngineCounts] = {}
    for count in (150, 600):
        engine = CountingEngine(MemoryEngine())
        lane = Open(engine)
        lane.put(cid(0))
        for n in range(count):
            call = Lane(lane.caller, "t", f"sub:{n}")
            call.put(cid(n + 1), metadata={"parents": {"": cid(0)}})
        lane.put(cid(9_999), cid(0))
        before = engine.counts()
        lane.store.prune("t")
        spent[count] = engine.counts() - before
    few, many = asdict(spent[150]), asdict(spent[600])
    assert [] == [name for name in few if many[name] > 5 * few[name]], spent
