"""Values coded against those of other channels: a tool call that carries the whole state."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from deltastore import DeltaStoreSaver, SnapshotBounds
from deltastore.engine.memory import MemoryEngine
from deltastore.store import Store
from deltastore.testing import Caller, Lane

# Not to be compressed to nothing: 9,600 hexadecimal digits.
LINES = [random.Random(n).randbytes(240).hex() for n in range(20)]
STEPS = 12


class Sent(Lane):
    """A lane on the memory engine whose state is sent with a call at every second superstep."""

    def __init__(self) -> None:
        self.engine = MemoryEngine()
        self.saver = DeltaStoreSaver.on_store(Store(self.engine))
        super().__init__(Caller(lambda: self.saver))
        self.shown: dict[str, dict[str, Any]] = {}

    def step(self, n: int, parent: int | None) -> None:
        """Put a superstep: a message more, the state sent or nothing sent."""
        messages = [*LINES, *(f"turn {k} " * 12 for k in range(n))]
        sent = [] if n % 2 else [{"state": messages, "call": n}]
        values = {"messages": messages, "sends": sent}
        place = None if parent is None else f"{parent:03}"
        self.put(f"{n:03}", place, new=dict.fromkeys(values, n + 1), values=values)
        self.shown[f"{n:03}"] = values

    def check(self, *cids: str) -> None:
        """Check what checkpoints show, all of them unless some are named, by a cold reader too."""
        cold = DeltaStoreSaver.on_store(Store(self.engine))
        for lane in (self, Lane(Caller(lambda: cold))):
            for cid in cids or self.shown:
                assert self.shown[cid] == lane.values(cid)
        assert [] == self.saver.store.verify().damage


@pytest.fixture
def sent() -> Sent:
    """A line of supersteps."""
    made = Sent()
    for n in range(STEPS):
        made.step(n, n - 1 if n else None)
    return made


def test_a_call_that_carries_the_state_costs_what_it_adds(sent: Sent) -> None:
    """Its channel was emptied in between, so it has no predecessor that it resembles."""
    (stats,) = sent.saver.store.thread_stats("t").namespaces
    (channel,) = [one for one in stats.channels if one.channel == "sends"]
    # The first has nothing to be coded against; each of the others is a record and what is new.
    state = sum(len(line) for line in LINES) // 2
    assert state < channel.value_bytes < 1.2 * state + STEPS // 2 * 200
    sent.check()


def again(sent: Sent) -> None:
    """Put a checkpoint again, with other content, whose messages calls are coded against."""
    sent.put("005", "004", new={"messages": 6, "sends": 6}, values={"messages": ["short"]})
    sent.shown["005"] = {"messages": ["short"]}


@pytest.mark.parametrize(
    ("act", "kept"),
    [
        (lambda one: one.saver.prune(["t"]), 1),
        (lambda one: one.saver.prune(["t"], keep_last=3), 3),
        (lambda one: one.saver.compact("t", bounds=SnapshotBounds(updates=2)), STEPS),
        (again, STEPS),
        (lambda one: one.saver.vacuum(), STEPS),
    ],
    ids=["prune", "prune to three", "compact", "put again", "vacuum"],
)
def test_maintenance_changes_none(sent: Sent, act: Callable[[Sent], Any], kept: int) -> None:
    """What it is coded against may be of a checkpoint that goes; afterwards it goes on."""
    act(sent)
    left = sorted(sent.shown)[-kept:]
    sent.check(*left)
    for n in range(STEPS, STEPS + 4):
        sent.step(n, n - 1)
    sent.check(*left, *(f"{n:03}" for n in range(STEPS, STEPS + 4)))


def test_copies_have_them_too(sent: Sent) -> None:
    """Whole and heads only; then the source may go."""
    sent.saver.copy_thread("t", "whole")
    sent.saver.copy_thread("t", "heads", heads_only=True)
    sent.saver.delete_thread("t")
    for thread_id, cids in (("whole", sorted(sent.shown)), ("heads", [f"{STEPS - 1:03}"])):
        lane = Lane(sent.caller, thread_id)
        for cid in cids:
            assert sent.shown[cid] == lane.values(cid)
    assert [] == sent.saver.store.verify().damage


def test_a_fork_goes_on_from_where_it_left(sent: Sent) -> None:
    """Its parent's messages are those of another line by then."""
    sent.shown = {cid: values for cid, values in sent.shown.items() if cid <= "003"}
    sent.step(40, 3)
    sent.step(42, 40)
    sent.check()
