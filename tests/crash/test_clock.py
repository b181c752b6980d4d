"""A clock that jumps: back by a day, and forward again when it is set right."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pytest

from deltastore import DeltaStoreSaver
from deltastore.langgraph.configs import Ttl
from deltastore.testing import Caller, Lane

DAY_SECONDS = 86_400
TTL: Ttl = {"default_ttl": 60, "refresh_on_read": True}


class Clock:
    """The wall clock, put forward or back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offset = 0
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + self.offset)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that is right until it is told otherwise."""
    return Clock(monkeypatch)


def ids(lane: Lane) -> list[str]:
    return [one.checkpoint["id"] for one in lane.caller.list(lane.config())]


def test_a_thread_does_not_expire_because_the_clock_was_put_back(
    clock: Clock, tmp_path: Path
) -> None:
    """Nor when it is set right again: what was noted before it jumped still counts."""
    with DeltaStoreSaver(tmp_path / "store", ttl=TTL) as saver:
        lane = Lane(Caller(lambda: saver))
        lane.put("1")
        clock.offset = -DAY_SECONDS
        lane.put("2", "1")
        lane.read("2")
        assert () == saver.apply_retention(dry_run=True).expired
        clock.offset = 0
        assert () == saver.apply_retention().expired
        assert ["2", "1"] == ids(lane)
        clock.offset = 2 * 3_600
        assert ("t",) == saver.apply_retention().expired


def test_a_store_goes_on_under_a_clock_that_was_put_back(clock: Clock, tmp_path: Path) -> None:
    """Opened again, too: nothing is refused, lost, dropped for its age, or listed twice."""
    where = tmp_path / "store"
    with DeltaStoreSaver(where) as saver:
        Lane(Caller(lambda: saver)).put("1", new={"x": 1}, values={"x": 1})
        Lane(Caller(lambda: saver), "u").put("1")
    clock.offset = -DAY_SECONDS
    with DeltaStoreSaver(where) as saver:
        lane = Lane(Caller(lambda: saver))
        lane.put("2", "1", new={"x": 2}, values={"x": 2})
        lane.write("2", [("x", "w")])
        saver.prune(["t"], older_than=timedelta(hours=1), dry_run=True)
        assert (["2", "1"], {"x": 2}) == (ids(lane), lane.values("2"))
        saver.copy_thread("t", "c")
        saver.prune(["t"], keep_last=1)
        assert ["2"] == ids(lane)
        assert ["c", "t", "u"] == sorted(one.thread_id for one in saver.store.threads().threads)
        assert [] == saver.store.verify().damage
    clock.offset = 0
    with DeltaStoreSaver(where) as saver:
        assert ["2"] == ids(Lane(Caller(lambda: saver)))
        assert [] == saver.store.verify().damage
