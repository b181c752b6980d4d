"""Laws of `max_bytes`: which threads go, which are spared, and how that is told beforehand."""

from __future__ import annotations

import random
from typing import Any

import pytest

from deltastore import expiry
from deltastore.engine.memory import MemoryEngine
from deltastore.format import layout
from deltastore.langgraph.saver import DeltaStoreSaver
from deltastore.options import RetentionPolicy, TimeToLive
from deltastore.plans import RetentionReport
from deltastore.rehearsal import Rehearsal
from deltastore.testing.retention_calls import minute_id
from tests.unit.retention_fakes import Bench, Clock, fill, hooked

NOTHING = RetentionReport((), (), (), 0)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(Clock(monkeypatch))


@pytest.mark.parametrize("kept", range(6))
def test_threads_longest_idle_go_until_the_rest_fits(bench: Bench, kept: int) -> None:
    """To the byte: one byte less costs one thread more, even the one that is active now."""
    fill(bench)
    limit = max(1, bench.bytes(*"abcde"[5 - kept :]))
    report = bench.plain.apply_retention(RetentionPolicy(max_bytes=limit))
    assert tuple("abcde"[: 5 - kept]) == report.evicted
    assert set("abcde"[5 - kept :]) == bench.threads()
    assert layout.TAG_RECLAIM not in {key[0] for key, _ in bench.records()}
    if kept:
        report = bench.plain.apply_retention(RetentionPolicy(max_bytes=limit - 1))
        assert ("abcde"[5 - kept],) == report.evicted


def test_what_is_pruned_counts_no_more(bench: Bench) -> None:
    """First checkpoints go, then threads; with both, a thread may be spared."""
    fill(bench)
    twin = Bench(bench.clock)
    fill(twin)
    twin.plain.apply_retention(RetentionPolicy(keep_last=1))
    limit = twin.bytes(*"abcde")
    assert limit < bench.bytes(*"abcde")
    for dry_run in (True, False):
        policy = RetentionPolicy(keep_last=1, max_bytes=limit)
        assert () == bench.plain.apply_retention(policy, dry_run=dry_run).evicted
    assert set("abcde") == bench.threads()


def test_a_dry_run_counts_what_pruning_writes(bench: Bench) -> None:
    """An anchor takes room: forgotten, a dry run would spare a thread that then goes."""
    fill(bench)
    for minute in range(8, 30):
        bench.live("e", minute)
    twin = Bench(bench.clock)
    fill(twin)
    for minute in range(8, 30):
        twin.live("e", minute)
    twin.plain.apply_retention(RetentionPolicy(keep_last=2))
    limit = twin.bytes(*"abcde")
    for less, evicted in ((0, ()), (1, ("a",))):
        policy = RetentionPolicy(keep_last=2, max_bytes=limit - less)
        assert evicted == bench.plain.apply_retention(policy, dry_run=True).evicted


@pytest.mark.parametrize("minute", [6, 7])
def test_a_thread_that_is_used_is_not_evicted(bench: Bench, minute: int) -> None:
    """The next one goes; also if it was used in the very minute of its last activity before."""
    fill(bench)
    policy = RetentionPolicy(max_bytes=1)

    def use() -> None:
        bench.clock.minute = minute
        bench.lives["e"].task(6, ["pending"], "task")

    progress = hooked(7, use)  # five are measured, then they go
    assert tuple("abcd") == bench.plain.apply_retention(policy, progress=progress).evicted
    assert {"e": minute} == bench.active()
    assert layout.TAG_WATCH not in {key[0] for key, _ in bench.records()}
    assert [("task", "log", ["pending"])] == bench.lives["e"].pending(minute_id(6))


@pytest.mark.parametrize("use", ["write", "write and prune", "read"])
def test_a_thread_that_is_used_while_it_is_measured_is_not_evicted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    """After its size was compared the watch tells of what is stored, its minute of a read.

    Maintenance by another process watches the thread too, and that it did is told.
    """
    fill(bench)
    reader = DeltaStoreSaver.on_store(bench.open(ttl=TimeToLive(10, refresh_on_read=True)))
    measured, measure = [], expiry._Work._measure

    def used_then(work: Any, one: Any) -> tuple[int, int]:
        size = measure(work, one)
        measured.append(one.thread_id)
        if one.thread_id == "e" and measured.count("e") == 2:
            if use != "read":
                bench.lives["e"].task(6, ["late"], "late")
            if use == "write and prune":
                reader.prune(["e"])
            if use == "read":
                bench.clock.minute = 7
                reader.get_tuple(bench.lives["e"].config())
                reader.store._session.queue.flush()
        return size

    monkeypatch.setattr(expiry._Work, "_measure", used_then)
    report = bench.plain.apply_retention(RetentionPolicy(max_bytes=1))
    assert (tuple("abcd"), {"e"}) == (report.evicted, bench.threads())
    assert ["e", "e"] == [one for one in measured if one == "e"]


# --- what a dry run rehearses ---


@pytest.mark.parametrize("seed", range(20))
def test_a_rehearsal_reads_as_a_transaction_that_wrote(seed: int) -> None:
    """Pages, both directions, what was put and what was deleted; the engine stays as it was."""
    rng = random.Random(seed)
    engine = MemoryEngine()
    every = [bytes([1, n]) for n in range(40)]
    with engine.begin(write=True) as txn:
        for key in rng.sample(every, 20):
            txn.put(key, bytes(rng.randrange(9)))
    with engine.begin(write=False) as view:
        rehearsal = Rehearsal(view)
        model = dict(view.scan(b"\x01", b"\x02"))
        before = dict(model)
        for _ in range(60):
            key = rng.choice(every)
            low, high = sorted((rng.choice(every), rng.choice(every)))
            limit = rng.choice([None, rng.randrange(1, 9)])
            reverse = rng.random() < 0.5
            inside = sorted((one for one in model if low <= one < high), reverse=reverse)[:limit]
            found = rehearsal.scan(low, high, reverse=reverse, limit=limit)
            assert [(one, model[one]) for one in inside] == found
            assert (model.get(key),) == (rehearsal.get(key),)
            match rng.randrange(3):
                case 0:
                    model[key] = bytes(rng.randrange(9))
                    rehearsal.put(key, model[key])
                case 1:
                    assert (model.pop(key, None) is not None) == rehearsal.delete(key)
                case _:
                    gone = sorted(one for one in model if low <= one < high)[:3]
                    assert len(gone) == rehearsal.delete_range(low, high, limit=3)
                    model = {one: model[one] for one in model if one not in gone}
        size = sum(len(key) + len(model[key]) for key in model)
        was = sum(len(key) + len(before[key]) for key in before)
        assert size - was == rehearsal.growth(b"\x01")
        assert before == dict(view.scan(b"\x01", b"\x02"))
