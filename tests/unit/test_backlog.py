"""Durability "relaxed": what is acknowledged, what is committed, what is told of what cannot be.

The window is an hour here, so that only what asks for a commit brings one about.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deltastore import DeltaStoreSaver, backlog
from deltastore.engine.memory import MemoryEngine
from deltastore.errors import (
    DeletedParentError,
    ForkedStoreError,
    LostWriteError,
    StoreClosedError,
    StoreFullError,
)
from deltastore.options import StoreOptions
from deltastore.store import Store
from deltastore.testing import Caller, Lane
from deltastore.testing.faults import FailingEngine

BIG = ["a line of text, the same again and again"] * 2_000  # over 16 KiB: prepared in a view


class Relaxed(Lane):
    """A lane whose writes are acknowledged, and what the engine holds of them."""

    def __init__(self, engine: Any = None, thread_id: str = "t") -> None:
        self.engine = engine or MemoryEngine()
        self.store = Store(self.engine, StoreOptions(durability="relaxed"))
        self.saver = DeltaStoreSaver.on_store(self.store)
        super().__init__(Caller(lambda: self.saver), thread_id)

    def other(self, thread_id: str) -> Lane:
        """Return a lane of another thread of the same store."""
        return Lane(self.caller, thread_id)

    def entries(self) -> int:
        """Return how many keys are committed."""
        return self.engine.stat().entries


@pytest.fixture(autouse=True)
def _long_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "WINDOW_SECONDS", 3_600.0)


@pytest.fixture
def lane() -> Iterator[Relaxed]:
    """A lane on the memory engine, whose store is made."""
    made = Relaxed()
    made.saver.setup()
    yield made
    assert [] == made.store.verify().damage
    made.saver.close()


def test_a_write_is_acknowledged_before_its_commit_and_a_read_brings_it(lane: Relaxed) -> None:
    """Of its thread: whoever reads another does not wait, nor make it wait."""
    before = lane.entries()
    lane.put("1", new={"x": 1}, values={"x": 1})
    lane.write("1", [("x", 2)])
    assert before == lane.entries()
    assert lane.caller.get_tuple(lane.other("u").config()) is None
    assert before == lane.entries()
    assert ({"x": 1}, [("task", "x", 2)]) == (lane.values("1"), lane.pending("1"))
    assert before < lane.entries()


@pytest.mark.parametrize("ask", ["flush", "list", "threads", "prune", "delete"])
def test_who_needs_what_was_acknowledged_gets_it(lane: Relaxed, ask: str) -> None:
    """Maintenance and listings too."""
    before = lane.entries()
    lane.put("1", new={"x": 1}, values={"x": 1})
    if ask == "flush":
        lane.saver.flush()
    elif ask == "list":
        assert 1 == len(lane.caller.list(None))
    elif ask == "threads":
        assert ["t"] == [one.thread_id for one in lane.store.threads().threads]
    elif ask == "prune":
        lane.saver.prune(["t"])
    else:
        lane.saver.delete_thread("t")
        assert lane.caller.get_tuple(lane.config()) is None
    assert before < lane.entries()


def test_a_backup_holds_what_was_acknowledged(tmp_path: Path) -> None:
    """Its one moment is that of the call."""
    with DeltaStoreSaver(tmp_path / "store", durability="relaxed") as saver:
        Lane(Caller(lambda: saver)).put("1")
        saver.backup(tmp_path / "copy")
    with DeltaStoreSaver(tmp_path / "copy") as saver:
        assert 1 == len([*saver.list(None)])


def test_closing_stores_what_was_acknowledged(tmp_path: Path) -> None:
    """The saver's end is an end of the window."""
    with DeltaStoreSaver(tmp_path / "store", durability="relaxed") as saver:
        Lane(Caller(lambda: saver)).put("1")
    with DeltaStoreSaver(tmp_path / "store") as saver:
        assert 1 == len([*saver.list(None)])


def test_the_window_ends_by_itself(lane: Relaxed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to ask: the commit follows."""
    monkeypatch.setattr(backlog, "WINDOW_SECONDS", 0.0)
    committed = threading.Event()
    keep = lane.engine.begin

    def begin(**how: Any) -> Any:
        if how["write"]:
            committed.set()
        return keep(**how)

    monkeypatch.setattr(lane.engine, "begin", begin)
    lane.put("1")
    assert committed.wait(30)


def test_one_round_is_one_transaction(lane: Relaxed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small writes of any thread share it; a large one waits for those it must see."""
    begun = []
    keep = lane.engine.begin
    monkeypatch.setattr(
        lane.engine, "begin", lambda **how: begun.append(how["write"]) or keep(**how)
    )
    for thread_id in ("a", "b"):
        other = lane.other(thread_id)
        for cid, parent in (("1", None), ("2", "1"), ("3", "2")):
            other.put(cid, parent, new={"x": cid}, values={"x": cid})
            other.write(cid, [("x", cid)])
    lane.saver.flush()
    assert 1 == begun.count(True)
    other.put("4", "3", new={"x": "4"}, values={"x": BIG})
    other.put("5", "4", new={"x": "5"}, values={"x": [*BIG, "more"]})
    lane.saver.flush()
    assert 3 == begun.count(True)
    assert [*BIG, "more"] == other.values("5")["x"]


@pytest.mark.parametrize(("name", "bound"), [("WRITES_MAX", 8), ("BYTES_MAX", 20_000)])
def test_the_backlog_is_bounded(
    lane: Relaxed, monkeypatch: pytest.MonkeyPatch, name: str, bound: int
) -> None:
    """In writes and in bytes: a put that finds it full commits it; a larger one goes in alone."""
    monkeypatch.setattr(backlog, name, bound)
    before = lane.entries()
    for number in range(20):
        lane.put(f"{number:02}", new={"x": number}, values={"x": f"{number} " * 1_000})
    assert before < lane.entries()
    lane.put("99", new={"x": 99}, values={"x": "y" * 50_000})
    assert 21 == len(lane.caller.list(lane.config()))


def test_values_are_the_callers_again_after_the_call(lane: Relaxed) -> None:
    """Those that were given beside the new ones are serialized at once, if they will be needed."""
    carried = {"y": 7}
    kept = ["as it was"]
    lane.put("1", "absent", new={"x": 1}, carried=carried, values={"x": 1, "y": kept})
    kept.append("changed since")
    assert ["as it was"] == lane.values("1")["y"]


def lost(lane: Relaxed) -> None:
    """Acknowledge a put that cannot be stored, two calls after it, and one of another thread."""
    lane.put("1")
    lane.saver.delete_thread("t")
    lane.put("0", new={"x": 0}, values={"x": 0})
    lane.put("2", "1")
    lane.write("2", [("x", 2)])
    lane.put("3", "2")
    lane.other("u").put("1")


def test_the_next_call_on_the_thread_is_told_of_a_loss(lane: Relaxed) -> None:
    """What was built on it is not stored either; what came before it is, and other threads are."""
    lost(lane)
    assert ["1"] == [one.checkpoint["id"] for one in lane.caller.list(lane.other("u").config())]
    with pytest.raises(LostWriteError, match="3 acknowledged writes to thread 't'") as told:
        lane.put("4", "3")
    assert isinstance(told.value.__cause__, DeletedParentError)
    assert ("t", "2", 3) == (told.value.thread_id, told.value.checkpoint_id, told.value.writes)
    assert ["0"] == [one.checkpoint["id"] for one in lane.caller.list(lane.config())]
    lane.saver.flush()


@pytest.mark.parametrize("ask", ["read", "flush", "close"])
def test_a_loss_is_told_once(ask: str) -> None:
    """To a read, to flush, or at the latest when the store is closed."""
    lane = Relaxed()
    lost(lane)
    asked = {"read": lambda: lane.read("0"), "flush": lane.saver.flush, "close": lane.saver.close}
    with pytest.raises(LostWriteError):
        asked[ask]()
    if ask != "close":
        lane.saver.flush()
        assert ["0"] == [one.checkpoint["id"] for one in lane.caller.list(lane.config())]
    lane.saver.close()


def test_of_several_losses_flush_tells_one_and_logs_the_others(
    lane: Relaxed, caplog: pytest.LogCaptureFixture
) -> None:
    """None goes without a word."""
    for thread_id in ("a", "b"):
        other = lane.other(thread_id)
        other.put("1")
        lane.saver.delete_thread(thread_id)
        other.put("2", "1")
    with caplog.at_level(logging.ERROR, "deltastore"), pytest.raises(LostWriteError, match="'a'"):
        lane.saver.flush()
    assert "thread 'b'" in caplog.text


class Breaking(FailingEngine):
    """Fails from the chosen call on, until it is mended."""

    lasting = True

    def count(self, what: str) -> None:
        if self.has_failed and self.lasting:
            raise StoreFullError(f"injected failure: {what}")
        super().count(what)


def backlogged(engine: Breaking) -> tuple[Relaxed, list[str]]:
    """Return a lane with six puts in its backlog, and their ids."""
    lane = Relaxed(engine)
    lane.saver.setup()
    ids = [f"{step:02}" for step in range(6)]
    for cid, parent in zip(ids, [None, *ids], strict=False):
        lane.put(cid, parent, new={"x": cid}, values={"x": cid})
    return lane, ids


@pytest.mark.parametrize("lasting", [True, False])
def test_an_engine_that_fails_takes_the_end_of_a_thread_or_nothing(lasting: bool) -> None:
    """At every call of the engine in turn: once is made good, and what lasts is told."""
    clean = Breaking(MemoryEngine(), 0)
    lane, _ = backlogged(clean)
    before = clean.calls
    lane.saver.flush()
    assert before < clean.calls
    for call in range(before + 1, clean.calls):  # the last is the sync of what is committed
        engine = Breaking(MemoryEngine(), call)
        engine.lasting = lasting
        lane, ids = backlogged(engine)
        told = None
        try:
            lane.saver.flush()
        except LostWriteError as error:
            told = error.checkpoint_id
        assert engine.has_failed
        engine.lasting = False
        stored = sorted(one.checkpoint["id"] for one in lane.caller.list(lane.config()))
        assert lasting == (told is not None)
        assert (ids[: ids.index(told)] if told else ids) == stored
        lane.saver.close()


def test_a_closed_store_acknowledges_nothing() -> None:
    """Nor is anything acknowledged while it closes and then not stored."""
    lane = Relaxed()
    lane.put("1")
    lane.saver.close()
    with pytest.raises(StoreClosedError):
        lane.put("2", "1")


def test_a_forked_child_has_nothing_acknowledged(tmp_path: Path) -> None:
    """Its parent's writes are its parent's, and no lock held at the fork stops the child."""
    saver = DeltaStoreSaver(tmp_path / "store", durability="relaxed")
    lane = Lane(Caller(lambda: saver))
    lane.put("1")
    child = os.fork()
    if child == 0:
        try:
            with pytest.raises(ForkedStoreError):
                lane.put("2", "1")
            saver.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ["1"] == [one.checkpoint["id"] for one in lane.caller.list(lane.config())]
    saver.close()


PROGRAM = """
import sys
from deltastore import DeltaStoreSaver, backlog
from deltastore.testing import Caller, Lane
backlog.WINDOW_SECONDS = 3_600.0
saver = DeltaStoreSaver(sys.argv[1], durability="relaxed")
Lane(Caller(lambda: saver)).put("1")
"""


def test_a_program_that_ends_without_closing_loses_nothing(tmp_path: Path) -> None:
    """The interpreter's end is an end of the window."""
    where = tmp_path / "store"
    subprocess.run([sys.executable, "-c", PROGRAM, str(where)], check=True)
    with DeltaStoreSaver(where) as saver:
        assert 1 == len([*saver.list(None)])
