"""Laws of the sweep: threads expire by themselves, and nobody who uses the store notices.

The clock is the test's, and a sweep is waited for by its thread: nothing waits for time to pass.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deltastore import expiry
from deltastore.errors import EngineError
from deltastore.format import keys
from deltastore.langgraph.saver import DeltaStoreSaver
from deltastore.options import RetentionPolicy
from deltastore.testing import Caller, Lane, make_config
from deltastore.testing.retention_calls import minute_id
from tests.unit.retention_fakes import (
    READS,
    WRITES,
    Bench,
    Clock,
    Use,
    filled,
    get,
    list_all,
    put,
    saver_of,
    settle,
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def bench(clock: Clock) -> Bench:
    return filled(Bench(clock))


# --- the sweep ---


@pytest.mark.parametrize("use", [*READS.values(), *WRITES.values(), list_all])
def test_any_use_of_the_saver_lets_expired_threads_go(bench: Bench, use: Use) -> None:
    """Nobody need call anything for it."""
    bench.clock.minute = 12
    saver = saver_of(bench)
    use(saver)
    settle(saver)
    assert "old" not in bench.threads()
    assert "t" in bench.threads()


def test_a_sweep_begins_at_most_once_a_minute(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However busy the saver is; and each minute again."""
    begun: list[int] = []
    sweep = expiry.expire

    def noted(*args: Any, **named: Any) -> list[str]:
        begun.append(bench.clock.minute)
        return sweep(*args, **named)

    monkeypatch.setattr(expiry, "expire", noted)
    saver = saver_of(bench)
    for minute in (6, 7, 9):
        bench.clock.minute = minute
        for use in (*READS.values(), *WRITES.values()):
            use(saver)
            settle(saver)
    assert [6, 7, 9] == begun


def test_a_sweep_runs_on_a_thread_of_its_own(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on the event loop, and the call that begins it does not wait for it."""
    goes_on, swept_on = threading.Event(), []

    def slow(*args: Any, **named: Any) -> list[str]:
        goes_on.wait(60)
        swept_on.append(threading.current_thread().name)
        return []

    monkeypatch.setattr(expiry, "expire", slow)
    saver = saver_of(bench)

    async def work() -> None:
        for minute in range(6, 9):  # while it runs no other is begun
            bench.clock.minute = minute
            assert await saver.aget_tuple(make_config("t")) is not None

    asyncio.run(asyncio.wait_for(work(), 60))
    get(saver)
    assert [] == swept_on
    goes_on.set()
    settle(saver)
    assert ["deltastore-expiry"] == swept_on


def test_without_a_time_to_live_nothing_goes_by_itself(bench: Bench) -> None:
    """Not even with a policy: that is applied when it is asked for."""
    bench.clock.minute = 10_000
    store = bench.open(retention=RetentionPolicy(keep_last=1, max_bytes=1))
    saver = DeltaStoreSaver.on_store(store)
    for use in READS.values():
        use(saver)
    settle(saver)
    assert [5, 4] == bench.lives["t"].minutes()
    assert {"old", "t"} == bench.threads()


def test_the_sweep_leaves_protected_threads(bench: Bench) -> None:
    """Never touched is never."""
    bench.clock.minute = 100
    saver = saver_of(bench, retention=RetentionPolicy(protect={"old"}))
    put(saver)
    settle(saver)
    assert {"old", "new"} == bench.threads()


def test_an_expired_thread_reads_until_it_is_swept(bench: Bench) -> None:
    """A sweep may be late; what is read is whole or absent, never half."""
    bench.clock.minute = 100
    saver = saver_of(bench)
    assert get(saver) is not None
    put(saver)
    settle(saver)
    assert get(saver, "old") is None


@pytest.mark.parametrize("later", [0, 1])
def test_a_graph_may_go_on_with_a_thread_that_was_due(bench: Bench, later: int) -> None:
    """It reads, which begins a sweep, and then it puts: refused, its work would be lost."""
    bench.clock.minute = 100
    saver = saver_of(bench)
    get(saver)
    settle(saver)
    bench.clock.minute += later
    put(saver)
    settle(saver)
    Lane(Caller(lambda: saver), "t").put(minute_id(100), minute_id(5))
    assert {"t", "new"} == bench.threads()


@pytest.mark.parametrize(
    ("others", "stays"),
    [
        ([("read", 101)], True),
        ([("put", 101)], True),
        ([("read", 101), ("put", 102)], False),
        ([("put", 101), ("put", 102)], False),
        ([("read", 102)], False),
        ([("read", 105)], False),
    ],
)
def test_a_due_thread_is_left_in_the_minute_it_is_read_and_the_next(
    bench: Bench, others: list[tuple[str, int]], stays: bool
) -> None:
    """Whatever else is read and put meanwhile."""
    bench.clock.minute = 100
    saver = saver_of(bench)
    get(saver)
    settle(saver)
    put(saver, 99)
    for what, minute in others:
        bench.clock.minute = minute
        if what == "put":
            put(saver, minute)
        else:
            get(saver, "new")
        settle(saver)
    assert stays == ("t" in bench.threads())


def test_a_due_thread_that_is_read_just_before_its_deletion_is_left(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction that deletes asks again."""
    saver = saver_of(bench)
    retire = expiry._retire

    def read_before(*args: Any) -> bool:
        assert get(saver, args[1]) is not None
        return retire(*args)

    monkeypatch.setattr(expiry, "_retire", read_before)
    bench.clock.minute = 100
    put(saver)
    settle(saver)
    assert {"new", "old", "t"} == bench.threads()


def test_reads_alone_do_not_keep_a_thread(bench: Bench) -> None:
    """It is left for the moment; without `refresh_on_read` no read is activity."""
    bench.clock.minute = 15
    saver = saver_of(bench)
    get(saver)
    for minute in (16, 17):
        bench.clock.minute = minute
        put(saver, minute)
        settle(saver)
    assert {"new"} == bench.threads()


def test_an_error_of_the_sweep_is_logged_and_the_next_minute_tries_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is nobody's call that failed."""

    def fails(*args: Any, **named: Any) -> list[str]:
        raise EngineError("the disk is on fire")

    saver = saver_of(bench)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "deltastore"):
        patch.setattr(expiry, "expire", fails)
        bench.clock.minute = 12
        assert get(saver) is not None
        settle(saver)
    assert "the disk is on fire" in caplog.text
    assert {"old", "t"} == bench.threads()
    bench.clock.minute = 13
    get(saver)
    settle(saver)
    assert {"t"} == bench.threads()


@pytest.mark.damaged
def test_a_damaged_thread_does_not_keep_the_others(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The one longest idle comes first in every sweep; that it cannot go is logged."""
    with bench.engine.begin(write=True) as txn:
        key = keys.thread_name_key(1)
        txn.put(key, b"\x00" * len(txn.get(key) or b""))
    bench.clock.minute = 100
    saver = saver_of(bench)
    list(saver.list(None))
    settle(saver)
    assert "an expired thread stays" in caplog.text
    assert ["old"] == list(bench.plain._thread_ids())


def test_closing_stops_a_sweep_between_two_transactions(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is gone is gone, the rest goes at the next opening; closing leaves no thread behind."""
    inside, goes_on, closing = threading.Event(), threading.Event(), threading.Event()
    sweep = expiry.expire

    def held(session: Any, *args: Any, step: Callable[[int], None], **named: Any) -> list[str]:
        def gated(left: int) -> None:
            if left == 1:
                inside.set()
                goes_on.wait(60)
            step(left)

        return sweep(session, *args, step=gated, **named)

    monkeypatch.setattr(expiry, "expire", held)
    bench.clock.minute = 100
    saver = saver_of(bench)
    put(saver)
    assert inside.wait(60)
    sweeper = saver.store._sweeper
    wait = sweeper.wait

    def told() -> None:
        closing.set()
        goes_on.set()
        wait()

    monkeypatch.setattr(sweeper, "wait", told)
    monkeypatch.setattr(saver.store._session, "close", lambda: None)  # others use the engine
    saver.close()
    assert closing.is_set()
    ended = sweeper._thread
    assert ended is not None
    assert not ended.is_alive()
    assert ({"t", "new"}, "") == (bench.threads(), caplog.text)
    saver.close()
    bench.clock.minute = 101
    sweeper.note_use()
    assert ended is sweeper._thread


def test_a_read_only_saver_sweeps_and_refreshes_nothing(tmp_path: Path, clock: Clock) -> None:
    """It reads beside whoever writes, and expiring is the writer's."""
    with DeltaStoreSaver(tmp_path / "store") as saver:
        clock.minute = 5
        Lane(Caller(lambda: saver), "t").put(minute_id(5))
        clock.minute = 1_000
        ttl = {"default_ttl": 10, "refresh_on_read": True}
        with DeltaStoreSaver(tmp_path / "store", read_only=True, ttl=ttl) as reader:
            for use in READS.values():
                assert use(reader)
            reader.store._sweeper.wait()
            assert reader.store._sweeper._thread is None
        bench = Bench(clock, saver.store._session.engine)
        assert {"t": 5} == bench.active()
