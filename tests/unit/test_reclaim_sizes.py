from __future__ import annotations

import pytest

from deltastore.engine.memory import MemoryEngine, MemoryTransaction
from deltastore.testing.strategies import checkpoint_id as cid
from tests.unit.open_lane import LARGE, Open


class Sizes(MemoryEngine):
    """Remembers how many keys each commit touched."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def begin(self, *, write: bool, scope: bytes = b"") -> MemoryTransaction:
        txn = super().begin(write=write, scope=scope)
        sizes = self.sizes

        class Sized(MemoryTransaction):
            def _commit(self) -> None:
                sizes.append(len(self._own))
                super()._commit()

        txn.__class__ = Sized
        return txn


def fanned_out(engine: MemoryEngine, ids: tuple[int, int]) -> Open:
    """Return a thread whose first checkpoint has the writes of 3,000 tasks."""
    lane = Open(engine)
    lane.put(cid(ids[0]))
    for n in range(3_000):
        lane.write(cid(ids[0]), [("log", [n])], f"task {n}")
    return lane


def test_every_record_of_a_dropped_checkpoint_is_reclaimed() -> None:
    """However many: those beyond the first thousand would stay for good."""
    engine = MemoryEngine()
    lane = fanned_out(engine, (1, 2))
    lane.put(cid(2))
    lane.saver.prune(["t"])
    assert 1 == lane.store.thread_bytes("t")[0]


@pytest.mark.parametrize("how", ["prune", "copy", "delete"])
def test_no_transaction_of_maintenance_is_larger_than_promised(how: str) -> None:
    """A checkpoint with 3,000 tasks: writers wait for the whole transaction.

    Where it becomes an anchor, or is a head that is copied, its own records are not split.
    """
    engine = Sizes()
    lane = fanned_out(engine, (1, 2))
    lane.put(cid(2), None if how == "prune" else cid(1), new={"log": 2})
    engine.sizes.clear()
    if how == "prune":
        lane.saver.prune(["t"])
    elif how == "delete":
        lane.caller.delete_thread("t")
    else:
        lane.saver.copy_thread("t", "u")
    assert max(engine.sizes) <= 1_010


@pytest.mark.parametrize("most", [2])
def test_reclaiming_goes_on_inside_a_checkpoint(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint with more records than one transaction deletes: the rest stays for good."""
    from deltastore import reclaim

    monkeypatch.setattr(reclaim, "RECORDS_MAX", most)
    lane = Open()
    lane.put(cid(0), new={"x": 1}, values={"x": LARGE})
    lane.write(cid(0), [("log", [1])], "a")
    lane.write(cid(0), [("log", [1])], "b")
    lane.put(cid(1))
    lane.store.prune("t")
    assert 1 == lane.store.thread_bytes("t")[0]


def test_no_transaction_of_deleting_runs_is_larger_than_promised() -> None:
    """An ordinary thread of two runs in turn: 500 steps, each with an anchor, are 1,450 records."""
    engine = Sizes()
    lane = Open(engine)
    text = "text that is no small value " * 12
    for n in range(1_000):
        values = {"x": f"{n} {text}", "y": f"{text} {n}"}
        new = dict.fromkeys(values, n + 1)
        lane.run(f"run {n % 2}", cid(n), cid(n - 1) if n else None, new=new, values=values)
    engine.sizes.clear()
    lane.store.delete_for_runs(["run 1"])
    assert max(engine.sizes) <= 1_010


def test_a_store_that_waits_to_reclaim_an_old_anchor_is_sound() -> None:
    """`verify` beside a prune, or after one that was interrupted, reports folded writes."""
    lane = Open()
    for n in range(4):
        lane.put(cid(n), cid(n - 1) if n else None, new={"log": n})
        lane.write(cid(n), [("log", [n])])
    lane.saver.prune(["t"])
    lane.put(cid(9), cid(3))

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lane.store.prune("t", progress=stop)
    assert [] == lane.damage()
