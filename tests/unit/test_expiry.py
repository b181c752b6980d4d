"""Laws of retention policies and of the time to live: what goes, in which order, and what stays."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from deltastore import expiry
from deltastore.engine.counting import CountingEngine
from deltastore.engine.memory import MemoryEngine
from deltastore.errors import InvalidArgumentError, InvalidTypeError, ReadOnlyError
from deltastore.format import layout
from deltastore.langgraph.saver import DeltaStoreSaver
from deltastore.options import RetentionPolicy, TimeToLive
from deltastore.plans import RetentionReport
from deltastore.store import Store
from deltastore.testing.retention_calls import Keeper, Thread, read_all, survivors
from tests.unit.retention_fakes import Bench, Clock, fill, hooked

NOTHING = RetentionReport((), (), (), 0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def bench(clock: Clock) -> Bench:
    return Bench(clock)


def idle_for_10(bench: Bench, **options: Any) -> Store:
    """Return a store whose threads go after ten minutes."""
    return bench.open(ttl=TimeToLive(10), **options)


# --- time to live ---


def test_a_thread_goes_once_it_was_idle_for_longer_and_not_before(bench: Bench) -> None:
    """Activity is noted to the minute, so the minute after the last whole one is the first."""
    bench.live("t", 1, 2)
    store = idle_for_10(bench)
    bench.clock.minute = 12
    assert store.apply_retention() == NOTHING
    bench.clock.minute = 13
    assert ("t",) == store.apply_retention().expired
    assert (set(), {}) == (bench.threads(), bench.active())
    assert [] == [key for key, _ in bench.records() if key[0] != layout.TAG_THREAD]


@pytest.mark.parametrize("what", ["put", "put_writes"])
def test_every_write_is_activity(bench: Bench, what: str) -> None:
    """A thread in use must not go because it is old."""
    bench.live("t", 1, 2)
    bench.clock.minute = 9
    if what == "put":
        bench.live("t", 9)
    else:
        bench.lives["t"].task(2, ["late"], "late")
    store = idle_for_10(bench)
    bench.clock.minute = 19
    assert store.apply_retention() == NOTHING
    bench.clock.minute = 20
    assert ("t",) == store.apply_retention().expired


def test_the_expired_go_longest_idle_first_and_no_other(bench: Bench) -> None:
    """Whatever order they were made in; the order is that of the report."""
    for thread_id, minute in {"c": 5, "a": 3, "d": 6, "b": 4, "new": 7}.items():
        bench.live(thread_id, 1, minute)
    bench.clock.minute = 17
    store = idle_for_10(bench)
    assert ("a", "b", "c", "d") == store.apply_retention(dry_run=True).expired
    assert ("a", "b", "c", "d") == store.apply_retention().expired
    assert {"new"} == bench.threads()


def test_more_threads_than_a_page_expire(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scan goes on behind the last key of a page."""
    monkeypatch.setattr(expiry, "_PAGE", 3)
    for number in range(10):
        bench.live(f"t{number}", number // 4)
    bench.clock.minute = 12
    assert tuple(f"t{n}" for n in range(8)) == idle_for_10(bench).apply_retention().expired


def test_a_store_younger_than_its_time_to_live_expires_nothing(bench: Bench) -> None:
    """A time to live that reaches back before 1970 is none that has passed."""
    bench.live("t", 1)
    bench.clock.minute = 10**6
    assert bench.open(ttl=TimeToLive(10**9)).apply_retention() == NOTHING


@pytest.mark.parametrize("step", [1, 2])
def test_a_thread_that_becomes_active_before_its_deletion_stays(bench: Bench, step: int) -> None:
    """It was chosen in a view; in the transaction that deletes it is asked again."""
    bench.live("a", 1)
    bench.live("b", 2)
    bench.clock.minute = 20
    store = idle_for_10(bench)
    report = store.apply_retention(progress=hooked(step, lambda: bench.live("b", 20)))
    assert (("a",), {"b"}) == (report.expired, bench.threads())
    assert [20, 2] == bench.lives["b"].minutes()


def test_a_thread_that_starts_anew_before_its_deletion_stays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the same id it is another thread; its number tells."""
    bench.live("t", 1)
    bench.clock.minute = 20
    retire = expiry._retire

    def anew(*args: Any) -> bool:
        bench.plain.delete_thread("t")
        bench.live("t", 3)  # long ago, as clocks may be set back
        return retire(*args)

    monkeypatch.setattr(expiry, "_retire", anew)
    store = idle_for_10(bench)
    bench.clock.minute = 20
    assert () == store.apply_retention().expired
    assert [3] == bench.lives["t"].minutes()


# --- policies ---


def test_neither_policy_nor_time_to_live_is_an_error(bench: Bench) -> None:
    """A call that can do nothing is a mistake; the message says how to give one."""
    with pytest.raises(InvalidArgumentError, match=r"RetentionPolicy\(.*retention=.*ttl="):
        bench.plain.apply_retention()
    policy: Any = {"keep_last": 1}
    with pytest.raises(InvalidTypeError, match=r"RetentionPolicy.*dict"):
        bench.plain.apply_retention(policy)


@pytest.mark.parametrize(
    "policy",
    [
        RetentionPolicy(keep_last=2),
        RetentionPolicy(max_age=timedelta(minutes=5)),
        RetentionPolicy(keep_last=2, max_age=timedelta(minutes=5)),
        RetentionPolicy(keep_last=5, max_age=timedelta(minutes=3)),
        RetentionPolicy(max_age=timedelta(minutes=1)),
    ],
    ids=str,
)
def test_a_policy_prunes_each_thread_as_prune_does(bench: Bench, policy: RetentionPolicy) -> None:
    """One meaning for one word: `keep_last` and `older_than` of prune, in every thread."""
    other = Bench(bench.clock)
    plans = []
    for one in (bench, other):
        for thread_id, minutes in {"a": range(1, 9), "b": [2, 9, 10], "c": [4]}.items():
            one.live(thread_id, *minutes)
        one.live("a", 3, 4, 5, ns="sub")
    bench.clock.minute = 10
    for thread_id in "abc":
        how: Any = {"keep_last": policy.keep_last, "older_than": policy.max_age}
        plan = other.plain.prune(thread_id, **how)
        plans += [] if plan.is_empty else [plan]
    report = bench.plain.apply_retention(policy)
    assert sorted(plans, key=str) == sorted(report.pruned, key=str)
    assert read_all(other.keeper) == read_all(bench.keeper)
    assert bench.plain.apply_retention(policy) == NOTHING


def test_the_policy_of_the_options_is_applied_when_none_is_given(bench: Bench) -> None:
    """One that is given takes its place."""
    bench.live("t", *range(1, 9))
    store = bench.open(retention=RetentionPolicy(keep_last=3))
    store.apply_retention(RetentionPolicy(keep_last=5))
    assert [8, 7, 6, 5, 4] == bench.lives["t"].minutes()
    store.apply_retention()
    assert [8, 7, 6] == bench.lives["t"].minutes()


def test_a_policy_that_keeps_all_commits_nothing(clock: Clock) -> None:
    """It runs every night over every thread; most nights most threads are as they were."""
    engine = CountingEngine(MemoryEngine())
    bench = Bench(clock, engine)
    for number in range(5):
        bench.live(f"t{number}", 1, 2)
    before = engine.counts()
    policy = RetentionPolicy(keep_last=2, max_bytes=10**9, max_age=timedelta(days=1))
    assert NOTHING == bench.plain.apply_retention(policy)
    assert 0 == (engine.counts() - before).write_transactions


# --- protect ---


def test_protected_threads_are_counted_and_never_touched(bench: Bench) -> None:
    """By none of the bounds; their bytes still count."""
    fill(bench)
    bench.clock.minute = 30
    before = {one: read_all(bench.keeper, one) for one in "ab"}
    policy = RetentionPolicy(
        keep_last=1, max_age=timedelta(minutes=1), max_bytes=1, protect=["a", "b", "absent"]
    )
    report = idle_for_10(bench).apply_retention(policy)
    assert (tuple("cde"), 2) == (report.expired + report.evicted, report.protected)
    assert before == {one: read_all(bench.keeper, one) for one in "ab"}
    assert set("ab") == bench.threads()


def test_bytes_of_protected_threads_count(bench: Bench) -> None:
    """The bound is on the store."""
    fill(bench)
    policy = RetentionPolicy(max_bytes=bench.bytes(*"ade"), protect={"a"})
    assert tuple("bc") == bench.plain.apply_retention(policy).evicted


def test_what_the_options_protect_is_protected_from_every_policy(bench: Bench) -> None:
    """Never touched is never: a policy made for one call need not repeat it."""
    fill(bench)
    bench.clock.minute = 30
    store = idle_for_10(bench, retention=RetentionPolicy(protect={"a"}))
    report = store.apply_retention(RetentionPolicy(max_bytes=1, protect={"b"}))
    assert (2, set("ab")) == (report.protected, bench.threads())


# --- dry runs, repetition, interruption ---


def lives(bench: Bench, rng: random.Random) -> None:
    for minute in sorted(rng.choices(range(1, 30), k=25)):
        thread_id = rng.choice("abcdef")
        bench.live(thread_id, minute, size=rng.randrange(500))


def a_policy(bench: Bench, rng: random.Random) -> RetentionPolicy:
    everything = bench.bytes(*"abcdef")
    return RetentionPolicy(
        keep_last=rng.choice([None, 1, 2, 4]),
        max_age=rng.choice([None, timedelta(minutes=rng.randrange(1, 30))]),
        max_bytes=rng.choice([None, 1 + rng.randrange(everything)]),
        protect=rng.sample("abcdef", rng.randrange(3)),
    )


@pytest.mark.parametrize("seed", range(25))
def test_a_dry_run_changes_nothing_and_tells_what_is_then_done(bench: Bench, seed: int) -> None:
    """An operator decides by it. Applied again, nothing is left to do."""
    rng = random.Random(seed)
    lives(bench, rng)
    bench.clock.minute = 30
    store = bench.open(ttl=TimeToLive(rng.randrange(5, 30)))
    policy = a_policy(bench, rng)
    before, had = bench.records(), bench.threads()
    planned = store.apply_retention(policy, dry_run=True)
    assert before == bench.records()
    assert planned == store.apply_retention(policy)
    assert had - {*planned.expired, *planned.evicted} == bench.threads()
    assert (
        policy.max_bytes is None
        or {*policy.protect} >= bench.threads()
        or (bench.bytes(*"abcdef") <= policy.max_bytes)
    )
    again = store.apply_retention(policy)
    assert ((), (), ()) == (again.expired, again.evicted, again.pruned)


class _Interrupted(Exception):  # noqa: N818 - what a progress callback raises is no error
    pass


def test_what_is_interrupted_is_whole_and_goes_on(clock: Clock) -> None:
    """At every call of the callback; the store is verified at the end of this test."""
    rng = random.Random(7)
    whole = Bench(clock)
    lives(whole, rng)
    clock.minute = 30
    policy = RetentionPolicy(keep_last=2, max_bytes=whole.bytes(*"cdef") // 2)
    steps: list[tuple[int, int]] = []
    idle_for_10(whole).apply_retention(policy, progress=lambda *step: steps.append(step))
    assert steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1] > 0

    def stop() -> None:
        raise _Interrupted

    for step in range(1, len(steps) + 1):
        bench = Bench(clock)
        lives(bench, random.Random(7))
        clock.minute = 30
        store = idle_for_10(bench)
        with pytest.raises(_Interrupted):
            store.apply_retention(policy, progress=hooked(step, stop))
        store.apply_retention(policy)
        assert read_all(whole.keeper) == read_all(bench.keeper)


def test_a_read_only_store_plans_and_does_nothing(tmp_path: Path, clock: Clock) -> None:
    """What would go may be asked anywhere."""
    policy = RetentionPolicy(keep_last=1, max_bytes=10**6)
    with DeltaStoreSaver(tmp_path / "store") as saver:
        thread = Thread(Keeper(lambda: saver))
        thread.steps([1, 2, 3])
        with DeltaStoreSaver(tmp_path / "store", read_only=True) as reader:
            planned = reader.apply_retention(policy, dry_run=True)
            with pytest.raises(ReadOnlyError):
                reader.apply_retention(policy)
        assert [3, 2, 1] == thread.minutes()
        assert planned == saver.apply_retention(policy)


def test_the_async_twin_does_the_same(clock: Clock) -> None:
    """One class, two faces."""
    reports = []
    for asynchronous in (False, True):
        bench = Bench(clock)
        fill(bench)
        policy = RetentionPolicy(keep_last=1, max_bytes=bench.bytes(*"de"))
        saver = DeltaStoreSaver.on_store(bench.plain)
        for how in ({"dry_run": True}, {}):
            if asynchronous:
                reports.append(asyncio.run(saver.aapply_retention(policy, **how)))
            else:
                reports.append(saver.apply_retention(policy, **how))
        saver.close()
    assert reports[:2] == reports[2:]
    assert reports[0] == reports[1]
    assert reports[0].evicted


def test_survivors_read_as_before(bench: Bench) -> None:
    """A policy prunes, it does not rewrite history."""
    twin = Bench(bench.clock)
    for one in (bench, twin):
        one.live("t", *range(1, 12))
    bench.plain.apply_retention(RetentionPolicy(keep_last=3))
    assert survivors(twin.lives["t"], [9, 10, 11]) == read_all(bench.keeper, "t")
