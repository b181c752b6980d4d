"""Laws of pending writes: which write of a repeated call stays, and how large ones are coded."""

from __future__ import annotations

import itertools
import random
import threading
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, SCHEDULED

from deltastore import DeltaStoreSaver
from deltastore.engine.counting import CountingEngine
from deltastore.engine.memory import MemoryEngine
from deltastore.store import Store
from deltastore.testing import Caller, Lane
from deltastore.testing.strategies import checkpoint_id

# Random letters: compression alone must not make a write small.
STATE = ["".join(random.Random(n).choices("abcdefghijkl ", k=200)) for n in range(40)]


class Open:
    """A saver on a counted engine, and one stream of it."""

    def __init__(self) -> None:
        self.engine = MemoryEngine()
        self.counting = CountingEngine(self.engine)
        self.store = Store(self.counting)
        self.saver = DeltaStoreSaver.on_store(self.store)
        self.lane = Lane(Caller(lambda: self.saver))

    def cold(self) -> Lane:
        """Return the stream through a store that has cached nothing."""
        other = DeltaStoreSaver.on_store(Store(self.engine))
        return Lane(Caller(lambda: other))

    def put_bytes(self, cid: str, writes: list[tuple[str, Any]], task: str = "task") -> int:
        """Write, and return the bytes that went to the engine."""
        before = self.counting.counts()
        self.lane.write(cid, writes, task)
        return (self.counting.counts() - before).put_bytes


def told(lane: Lane, cid: str) -> list[tuple[str, Any]]:
    return [write[1:] for write in lane.pending(cid)]


# --- which write stays ---


def test_first_regular_and_last_special_write_stay() -> None:
    """Also in mixed batches, where other savers decide by the batch."""
    lane = Open().lane
    lane.put("1")
    lane.write("1", [("x", 1), (ERROR, "e1"), ("y", 1)])
    lane.write("1", [("x", 2), (ERROR, "e2"), ("y", 2), ("z", 2)])
    assert [(ERROR, "e2"), ("x", 1), ("y", 1), ("z", 2)] == told(lane, "1")


def test_special_writes_have_one_place_each() -> None:
    """The last of a batch counts; they sort by LangGraph's numbers, before regular ones."""
    lane = Open().lane
    lane.put("1")
    batch = [(RESUME, 1), (INTERRUPT, 1), (SCHEDULED, 1), (ERROR, 1), ("x", 1), (RESUME, 2)]
    lane.write("1", batch)
    expected = [(RESUME, 2), (INTERRUPT, 1), (SCHEDULED, 1), (ERROR, 1), ("x", 1)]
    assert expected == told(lane, "1")


def test_repeated_call_writes_nothing() -> None:
    """A retry of what was stored is acknowledged without a page being touched."""
    opened = Open()
    opened.lane.put("1", new={"x": 1}, values={"x": STATE})
    writes = [("x", ["m"]), ("y", STATE)]
    assert 0 < opened.put_bytes("1", writes)
    before = opened.counting.counts().puts
    opened.lane.write("1", writes)
    assert before == opened.counting.counts().puts


def test_empty_batch_stores_nothing() -> None:
    """Not even a thread: a task without writes is the usual case."""
    opened = Open()
    opened.lane.write("1", [])
    assert 0 == opened.engine.stat().entries


def test_write_keeps_the_path_of_its_first_call() -> None:
    """The order of replay must not change with a retry, but for what is new in it."""
    lane = Open().lane
    lane.put("1")
    lane.write("1", [("x", "b")], "b", "~1")
    lane.write("1", [("x", "a")], "a", "~2")
    lane.write("1", [("x", "-"), ("y", "b2")], "b", "~3")
    assert [("x", "b"), ("x", "a"), ("y", "b2")] == told(lane, "1")


@pytest.mark.parametrize("ids", [["", "\0", "\0\0"], ["a" * 600, "a" * 601], ["t", "T", "t "]])
def test_task_ids_never_meet(ids: list[str]) -> None:
    """They are hashed into the key: the full id decides."""
    lane = Open().lane
    lane.put("1")
    for task in ids:
        lane.write("1", [("x", task)], task)
    assert sorted(ids) == [write[0] for write in lane.pending("1")]


@pytest.mark.damaged  # the hash is replaced, and verify uses the real one
def test_tasks_whose_hashes_collide_keep_their_own_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 bits collide one day; the second task goes to the next place, and is found there again."""
    monkeypatch.setattr("deltastore.format.entries.text_hash", lambda raw: (1 << 64) - 1)
    opened = Open()
    opened.lane.put("1")
    for _ in range(2):
        for task in ("a", "b", "c"):
            opened.lane.write("1", [("x", task)], task)
    expected = [(task, "x", task) for task in ("a", "b", "c")]
    assert expected == opened.lane.pending("1") == opened.cold().pending("1")
    assert [] == opened.store.verify().damage


# --- early writes ---


def test_early_writes_show_nowhere_until_their_checkpoint_comes() -> None:
    """Neither as a checkpoint nor as a thread."""
    opened = Open()
    opened.lane.write("1", [("x", "early")])
    assert ([], None) == (opened.lane.ids(), opened.saver.get_tuple(opened.lane.config()))
    assert [] == opened.store.threads().threads
    opened.lane.put("1")
    assert [("x", "early")] == told(opened.lane, "1")
    assert ["t"] == [one.thread_id for one in opened.store.threads().threads]


# --- large writes ---


def test_write_that_carries_the_state_is_stored_as_a_difference() -> None:
    """Tool calls sent to tasks carry the whole state; a fifth of a store was such writes."""
    opened = Open()
    opened.lane.put("1", new={"x": 1}, values={"x": STATE})
    assert 500 > opened.put_bytes("1", [("__pregel_tasks", [*STATE, "call"])])
    for lane in (opened.lane, opened.cold()):
        assert [("__pregel_tasks", [*STATE, "call"])] == told(lane, "1")


def test_write_coded_against_an_inline_value_comes_back() -> None:
    """Small values lie in the header itself."""
    opened = Open()
    opened.lane.put("1", new={"x": 1}, values={"x": STATE[:3]})
    opened.lane.write("1", [("y", [*STATE[:3], "call"])])
    for lane in (opened.lane, opened.cold()):
        assert [("y", [*STATE[:3], "call"])] == told(lane, "1")


def test_write_is_coded_against_the_largest_value_like_it() -> None:
    """Not against one that is far larger, nor of another type; whichever it is, it comes back."""
    opened = Open()
    values = {"x": STATE, "y": STATE[:12], "z": b"raw" * 900, "n": None}
    opened.lane.put("1", new=dict.fromkeys(values, 1), values=values)
    writes = [("y", [*STATE[:12], "more"]), ("z", b"raw" * 900 + b"!"), ("x", STATE[5:])]
    opened.lane.write("1", writes)
    for lane in (opened.lane, opened.cold()):
        assert writes == told(lane, "1")


def test_write_survives_its_checkpoint_being_put_again() -> None:
    """The value it was coded against is gone then; it must have been made whole before."""
    opened = Open()
    opened.lane.put("1", new={"x": 1}, values={"x": STATE})
    opened.lane.write("1", [("y", [*STATE, "call"])])
    opened.lane.put("1", new={"x": 1}, values={"x": ["other"]})
    opened.lane.write("1", [("y", "not this"), ("z", ["other", "z"])])
    for lane in (opened.lane, opened.cold()):
        assert [("y", [*STATE, "call"]), ("z", ["other", "z"])] == told(lane, "1")
    assert [] == opened.store.verify().damage


# --- marks for walks ---


def test_timely_writes_leave_no_mark() -> None:
    """A conversation that runs in order pays nothing for those that do not."""
    opened = Open()
    for n in range(1, 30):
        opened.lane.put(checkpoint_id(n), checkpoint_id(n - 1) if n > 1 else None)
        opened.lane.write(checkpoint_id(n), [("x", n)])
    with opened.engine.begin(write=False) as txn:
        assert [] == txn.scan_keys(b"\x06", b"\x07")


def test_writes_from_many_threads_all_arrive() -> None:
    """Parallel tasks write at once; each call is whole."""
    opened = Open()
    opened.lane.put("1", new={"x": 1}, values={"x": STATE})

    def work(task: str) -> None:
        for repeat in range(3):
            opened.lane.write("1", [("x", task), ("y", [*STATE, task, repeat])], task)

    tasks = [f"task {n}" for n in range(8)]
    threads = [threading.Thread(target=work, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [[("x", task), ("y", [*STATE, task, 0])] for task in tasks]
    assert [*itertools.chain(*expected)] == told(opened.lane, "1")
