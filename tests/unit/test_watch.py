"""Laws of watching a thread: a token, marks of what was stored since, and an end to all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from deltastore import DeltaStoreSaver, directory, session, watch
from deltastore.engine.api import Transaction
from deltastore.engine.counting import CountingEngine
from deltastore.engine.memory import MemoryEngine
from deltastore.errors import DeletedParentError
from deltastore.format import keys, layout
from deltastore.format.entries import DeletedMark, ThreadEntry, with_deleted
from deltastore.ids import cid_from_id
from deltastore.store import Store
from deltastore.testing import Caller, Lane

T = TypeVar("T")


class Watched:
    """A store with threads `t` (number 1) and `u` (number 2)."""

    def __init__(self) -> None:
        self.engine = CountingEngine(MemoryEngine())
        self.store = Store(self.engine)
        saver = DeltaStoreSaver.on_store(self.store)
        self.lane, self.other = (Lane(Caller(lambda: saver), name) for name in "tu")
        for lane in (self.lane, self.other):
            lane.put("1")

    def do(self, op: Callable[[Transaction], T]) -> T:
        return self.store._session.queue.run(op)

    def begin(self, number: int = 1, minute: int = 1_000) -> bytes:
        return self.do(lambda txn: watch.begin(txn, number, minute))

    def holds(self, token: bytes, number: int = 1) -> bool:
        return self.do(lambda txn: watch.holds(txn, number, token))

    def touched(self, number: int = 1) -> list[tuple[int, bytes]]:
        return self.do(lambda txn: watch.touched(txn, number))

    def keys(self, tag: int = layout.TAG_WATCH) -> list[bytes]:
        return self.do(lambda txn: txn.scan_keys(bytes([tag]), bytes([tag + 1])))


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_the_last_to_begin_is_the_one_who_watches(watched: Watched) -> None:
    """The one before it cannot tell which marks were taken away: it must start again."""
    first = watched.begin()
    assert watched.holds(first)
    second = watched.begin()
    assert (False, True) == (watched.holds(first), watched.holds(second))
    assert not watched.holds(second, 2)
    watched.do(lambda txn: watch.end(txn, 1))
    assert not watched.holds(second)


def test_what_is_stored_is_marked_with_its_namespace_and_id(watched: Watched) -> None:
    """Puts, writes, early writes and puts again; in new namespaces too, and nowhere else."""
    watched.begin()
    watched.lane.put("2", "1")
    watched.lane.write("1", [("x", 1)])
    watched.lane.write("early", [("x", 1)])
    Lane(watched.lane.caller, "t", "sub").put("1")
    watched.other.put("2", "1")
    expected = [(1, "1"), (1, "2"), (1, "early"), (2, "1")]
    assert sorted((n, cid_from_id(one)) for n, one in expected) == watched.touched()
    assert [] == watched.touched(2)


def test_marks_begin_with_the_watch(watched: Watched) -> None:
    """What was stored before is in the view of whoever watches."""
    watched.begin()
    watched.lane.put("2", "1")
    watched.begin()
    assert [] == watched.touched()
    watched.lane.put("3", "2")
    assert [(1, cid_from_id("3"))] == watched.touched()


def test_a_put_that_fails_leaves_no_mark(watched: Watched) -> None:
    """It stored nothing; the mark goes with its transaction."""
    watched.lane.put("text", "1")
    watched.store.prune("t")
    watched.begin()
    watched.do(lambda txn: directory.save_thread(txn, _with_deleted(txn)))
    with pytest.raises(DeletedParentError):
        watched.lane.put("2", "gone")
    assert [] == watched.touched()


def _with_deleted(txn: Transaction) -> ThreadEntry:
    entry = directory.find_thread(txn, "t")
    assert entry is not None
    return with_deleted(entry, "", DeletedMark().with_deleted(cid_from_id("gone")))


def test_checkpoints_rewritten_by_another_put_are_marked(watched: Watched) -> None:
    """A put again moves values into others, whose headers are then not what was planned with."""
    large = ["text " * 400]
    watched.lane.put("a", new={"x": 1}, values={"x": large})
    watched.lane.put("b", "a", carried={"x": 1})
    watched.lane.put("c", "b")
    watched.begin()
    watched.lane.put("a", new={"x": 1}, values={"x": "other"})
    assert {cid_from_id("a"), cid_from_id("b")} <= {cid for _, cid in watched.touched()}


def test_nothing_is_written_where_nothing_is_watched(watched: Watched) -> None:
    """A graph pays for maintenance with one look-up."""
    spent = []
    for number, begin in ((2, False), (3, True)):
        if begin:
            watched.begin()
        before = watched.engine.counts()
        watched.lane.put(str(number), str(number - 1))
        spent.append(watched.engine.counts() - before)
    assert 1 == spent[1].puts - spent[0].puts
    watched.do(lambda txn: watch.end(txn, 1))
    assert [] == watched.keys()


def test_marks_are_ended_a_thousand_at_a_time(watched: Watched) -> None:
    """A watch that was left behind may have any number of them."""
    watched.begin()
    stream = watched.do(lambda txn: directory.find_stream(txn, "t", ""))
    assert stream is not None

    def note_many(txn: Transaction) -> None:
        for n in range(2_500):
            watch.note(txn, stream, cid_from_id(f"id {n}"))

    watched.do(note_many)
    ends = [watched.do(lambda txn: watch.end(txn, 1)) for _ in range(3)]
    assert [True, True, False] == ends
    assert [] == watched.keys()


def test_watched_numbers_are_told_once_each(watched: Watched) -> None:
    """Marks count: an end that was interrupted left them without their watch."""
    assert [] == watched.do(watch.watched)
    for number in (1, 2, 700):
        watched.begin(number)
    watched.lane.put("2", "1")
    watched.lane.put("3", "2")
    assert [1, 2, 700] == watched.do(watch.watched)
    watched.do(lambda txn: txn.delete(keys.watch_key(1)))
    assert [1, 2, 700] == watched.do(watch.watched)


@pytest.mark.parametrize("away", [-61, -60, 0, 60, 61])
def test_a_watch_is_stale_after_an_hour_by_either_clock(watched: Watched, away: int) -> None:
    """Clocks of two hosts differ, and are put back: a watch of the future must not stay either."""
    token = watched.begin(minute=1_000)
    is_stale = abs(away) > watch.STALE_MINUTES
    assert is_stale == watched.do(lambda txn: watch.end_stale(txn, 1_000 + away))
    assert is_stale != watched.holds(token)


def test_stale_watches_are_ended_beside_living_ones(watched: Watched) -> None:
    """One a call; a thread that is there is not reclaimed, a number without a name is."""
    for number, minute in ((1, 100), (2, 1_000), (900, 100), (901, 1_000)):
        watched.begin(number, minute)
    calls = 0
    while watched.do(lambda txn: watch.end_stale(txn, 1_001)):
        calls += 1
    assert (2, [2, 901]) == (calls, watched.do(watch.watched))
    assert [keys.reclaim_key(900)] == watched.keys(layout.TAG_RECLAIM)


def test_marks_without_a_watch_are_ended_whatever_their_age(watched: Watched) -> None:
    """Nobody will end them otherwise: they would cost every opening a look."""
    watched.begin()
    watched.lane.put("2", "1")
    watched.do(lambda txn: txn.delete(keys.watch_key(1)))
    assert watched.do(lambda txn: watch.end_stale(txn, 1_000))
    assert [] == watched.keys()


def test_an_opening_ends_what_was_left_behind(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an hour and not before: the process that watches may be alive."""
    token = watched.begin(minute=session.this_minute())
    Store(watched.engine).setup()
    assert watched.holds(token)
    now = session.this_minute()
    monkeypatch.setattr(session, "this_minute", lambda: now + watch.STALE_MINUTES + 1)
    Store(watched.engine).setup()
    assert not watched.holds(token)
    assert [] == watched.store.verify().damage


def test_watches_of_a_deleted_thread_go_with_it(watched: Watched) -> None:
    """Its number is never given again: nobody else would end them."""
    watched.begin()
    watched.lane.put("2", "1")
    watched.store.delete_thread("t")
    assert [] == watched.keys()
