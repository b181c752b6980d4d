"""Leases: one holder at a time, tokens that ascend, and clocks that are wrong."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from deltastore import (
    DeltaStoreError,
    DeltaStoreSaver,
    InvalidArgumentError,
    InvalidTypeError,
    Lease,
    LeaseHeldError,
    LeaseLostError,
    ReadOnlyError,
    RetentionPolicy,
    Store,
    StoreOptions,
    TimeToLive,
)
from deltastore.engine.memory import MemoryEngine
from deltastore.format import entries, frame, keys, layout
from deltastore.format.entries import LeaseEntry
from deltastore.testing import Caller, Lane
from deltastore.testing.faults import FailingEngine

TTL = timedelta(minutes=5)
DAY = timedelta(days=1)
LONG = "thread " * 100
BEGIN = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


class Clock:
    """The wall clock of whoever calls next."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> int:
        return round(self.now.timestamp() * 1_000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "time", lambda: clock() / 1_000)
    return clock


class Calls:
    """The calls of a saver, sync or async."""

    def __init__(self, saver: DeltaStoreSaver, *, asynchronous: bool) -> None:
        self.saver = saver
        self._is_async = asynchronous

    def claim(self, thread_id: Any, owner: Any, ttl: Any = TTL) -> Lease:
        if self._is_async:
            return asyncio.run(self.saver.aclaim(thread_id, owner, ttl))
        return self.saver.claim(thread_id, owner, ttl)

    def renew(self, lease: Lease) -> Lease:
        if self._is_async:
            return asyncio.run(self.saver.arenew(lease))
        return self.saver.renew(lease)

    def release(self, lease: Lease) -> None:
        if self._is_async:
            asyncio.run(self.saver.arelease(lease))
        else:
            self.saver.release(lease)


@pytest.fixture(params=["lmdb", "memory", "lmdb async"])
def calls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Calls]:
    kind: str = request.param
    saver = DeltaStoreSaver.ephemeral() if kind == "memory" else DeltaStoreSaver(tmp_path / "store")
    with saver:
        yield Calls(saver, asynchronous="async" in kind)


@pytest.mark.parametrize("thread_id", ["t", "", "a\0b", LONG, "ünï"])
def test_one_owner_holds_a_thread_until_it_lets_go(
    calls: Calls, clock: Clock, thread_id: str
) -> None:
    """That is all a lease is for."""
    lease = calls.claim(thread_id, "anna")
    assert Lease(thread_id, "anna", 1, BEGIN + TTL, TTL) == lease
    with pytest.raises(LeaseHeldError, match="held by 'anna' until 2026-03-01T12:05") as held:
        calls.claim(thread_id, "bert")
    assert (thread_id, "anna", lease.expires) == (
        held.value.thread_id,
        held.value.owner,
        held.value.expires,
    )
    calls.claim(thread_id + "x", "bert")
    calls.release(lease)
    assert "bert" == calls.claim(thread_id, "bert").owner


def test_an_owner_that_claims_again_renews(calls: Calls, clock: Clock) -> None:
    """A worker that does not know any more whether it claimed may just claim."""
    first = calls.claim("t", "anna")
    clock.now += timedelta(minutes=4)
    again = calls.claim("t", "anna", timedelta(minutes=9))
    assert (first.token, BEGIN + timedelta(minutes=13)) == (again.token, again.expires)


def test_a_renewal_lets_a_lease_last_on(calls: Calls, clock: Clock) -> None:
    """Work often takes longer than anybody knew."""
    lease = calls.claim("t", "anna")
    for minutes in (4, 8, 12):
        clock.now = BEGIN + timedelta(minutes=minutes)
        with pytest.raises(LeaseHeldError):
            calls.claim("t", "bert")
        lease = calls.renew(lease)
        assert (1, clock.now + TTL) == (lease.token, lease.expires)


def test_an_expired_lease_may_be_taken_and_its_holder_is_told(calls: Calls, clock: Clock) -> None:
    """A killed worker must not hold its thread for ever; a slow one must learn that it lost it."""
    old = calls.claim("t", "anna")
    clock.now += TTL
    new = calls.claim("t", "bert")
    assert new.token > old.token
    for call in (calls.renew, calls.release):
        with pytest.raises(LeaseLostError, match="'bert' has taken the thread") as lost:
            call(old)
        assert ("t", old.token, "bert") == (
            lost.value.thread_id,
            lost.value.token,
            lost.value.owner,
        )
    assert new == calls.renew(new)


def test_an_expired_lease_that_nobody_took_may_be_renewed(calls: Calls, clock: Clock) -> None:
    """Nobody else has worked on the thread, so nothing was lost."""
    lease = calls.claim("t", "anna")
    clock.now += 3 * TTL
    assert Lease("t", "anna", 1, clock.now + TTL, TTL) == calls.renew(lease)


def test_an_owner_whose_lease_expired_gets_a_greater_token(calls: Calls, clock: Clock) -> None:
    """Its own work from before may still be under way in a thread it forgot."""
    old = calls.claim("t", "anna")
    clock.now += TTL
    assert calls.claim("t", "anna").token > old.token
    with pytest.raises(LeaseLostError):
        calls.renew(old)


def test_a_lease_is_released_once(calls: Calls, clock: Clock) -> None:
    """Whether somebody else has held it in between is not known any more."""
    lease = calls.claim("t", "anna")
    calls.release(lease)
    for call in (calls.release, calls.renew):
        with pytest.raises(LeaseLostError, match="nobody holds") as lost:
            call(lease)
        assert lost.value.owner is None


def test_tokens_ascend_over_deletions(calls: Calls, clock: Clock) -> None:
    """A token that came twice would let the holder of the first end the lease of the second."""
    lane = Lane(Caller(lambda: calls.saver))
    tokens = []
    for n in range(4):
        lane.put(str(n), new={"x": n}, values={"x": n})
        lease = calls.claim("t", "anna")
        tokens.append(lease.token)
        calls.saver.delete_thread("t")
        with pytest.raises(LeaseLostError, match="nobody holds"):
            calls.renew(lease)
    calls.claim("t", "anna")
    calls.saver.delete_thread("t")  # of which nothing but the lease is stored
    tokens.append(calls.claim("t", "bert").token)
    assert sorted(set(tokens)) == tokens


@pytest.mark.parametrize("jump", [DAY, timedelta(days=400), TTL + timedelta(milliseconds=1)])
def test_a_clock_set_back_makes_no_lease_immortal(
    calls: Calls, clock: Clock, jump: timedelta
) -> None:
    """Else the lease of a worker killed before the clock was mended would stand for a day."""
    old = calls.claim("t", "anna")
    clock.now -= jump
    new = calls.claim("t", "bert")
    assert (True, clock.now + TTL) == (new.token > old.token, new.expires)
    with pytest.raises(LeaseLostError):
        calls.renew(old)


def test_a_clock_set_back_by_less_lets_a_lease_last_twice_its_ttl_at_most(
    calls: Calls, clock: Clock
) -> None:
    """Within the ttl clocks may disagree without anybody losing a lease that it holds."""
    calls.claim("t", "anna")
    clock.now -= TTL - timedelta(seconds=1)
    waited = timedelta(0)
    while True:
        try:
            calls.claim("t", "bert")
            break
        except LeaseHeldError:
            waited += timedelta(seconds=30)
            clock.now += timedelta(seconds=30)
    assert TTL < waited <= 2 * TTL


def test_a_holder_that_renews_keeps_its_lease_over_a_jump(calls: Calls, clock: Clock) -> None:
    """A renewal is stamped by the new clock, so no lease is lost for having been claimed before."""
    lease = calls.claim("t", "anna")
    for jump in (-DAY, DAY, -2 * DAY):
        clock.now += jump
        lease = calls.renew(lease)
        assert clock.now + TTL == lease.expires
        with pytest.raises(LeaseHeldError):
            calls.claim("t", "bert")
    calls.release(lease)


@pytest.mark.parametrize("owner", [None, 7, b"anna"])
def test_an_owner_is_text(calls: Calls, owner: Any) -> None:
    """It is read by people, in errors."""
    with pytest.raises(InvalidTypeError, match="owner must be a str"):
        calls.claim("t", owner)


@pytest.mark.parametrize("owner", ["", "x" * 401, "\ud800"])
def test_an_owner_has_a_size(calls: Calls, owner: str) -> None:
    """An empty name names nobody."""
    with pytest.raises(InvalidArgumentError, match="owner"):
        calls.claim("t", owner)


@pytest.mark.parametrize("ttl", [None, 300, 300.0, "5m"])
def test_a_ttl_is_a_timedelta(calls: Calls, ttl: Any) -> None:
    """A number would be seconds to one and minutes to another: LangGraph's own ttl is minutes."""
    with pytest.raises(InvalidTypeError, match="ttl must be a timedelta"):
        calls.claim("t", "anna", ttl)


@pytest.mark.parametrize("ttl", [timedelta(0), -TTL, timedelta(microseconds=999), 367 * DAY])
def test_a_ttl_has_bounds(calls: Calls, ttl: timedelta) -> None:
    """None of these is a lease: they end before they begin, or not in a year."""
    with pytest.raises(InvalidArgumentError, match="ttl must be 1 ms to 366 days"):
        calls.claim("t", "anna", ttl)


def test_what_is_renewed_is_a_lease(calls: Calls) -> None:
    """A token alone does not say of which thread."""
    for call in (calls.renew, calls.release):
        with pytest.raises(InvalidTypeError, match="lease must be the Lease"):
            call(1)  # type: ignore[arg-type]  # on purpose


def test_a_thread_id_may_be_an_int(calls: Calls) -> None:
    """As everywhere on the saver."""
    assert "7" == calls.claim(7, "anna").thread_id


def test_a_read_only_opening_claims_nothing(tmp_path: Path) -> None:
    """A claim is a write."""
    with DeltaStoreSaver(tmp_path / "s") as saver:
        lease = saver.claim("t", "anna", TTL)
    with DeltaStoreSaver(tmp_path / "s", read_only=True) as reader:
        for call in (
            lambda: reader.claim("t", "anna", TTL),
            lambda: reader.renew(lease),
            lambda: reader.release(lease),
        ):
            with pytest.raises(ReadOnlyError):
                call()


def test_a_lease_outlives_closing_and_a_vacuum(tmp_path: Path, clock: Clock) -> None:
    """A restarted worker pool must find the leases of the other one."""
    with DeltaStoreSaver(tmp_path / "s") as saver:
        lease = saver.claim("t", "anna", TTL)
        saver.vacuum()
    with DeltaStoreSaver(tmp_path / "s") as saver:
        with pytest.raises(LeaseHeldError):
            saver.claim("t", "bert", TTL)
        assert lease == saver.renew(lease)


def test_maintenance_leaves_leases_alone_and_copies_none(calls: Calls, clock: Clock) -> None:
    """A copy is another thread, which nobody holds."""
    lane = Lane(Caller(lambda: calls.saver))
    for n in range(4):
        lane.put(str(n), str(n - 1) if n else None, new={"x": n}, values={"x": n})
    lease = calls.claim("t", "anna")
    calls.saver.prune(["t"])
    calls.saver.copy_thread("t", "copy")
    calls.saver.compact("t")
    assert "bert" == calls.claim("copy", "bert").owner
    assert lease == calls.renew(lease)


def test_a_claim_makes_no_thread(calls: Calls, clock: Clock) -> None:
    """Claiming comes before the first run; a thread that holds nothing is not listed."""
    calls.claim("t", "anna")
    assert () == tuple(calls.saver.store.threads().threads)
    assert [] == list(calls.saver.list(None))
    assert calls.saver.get_tuple({"configurable": {"thread_id": "t"}}) is None


def test_a_held_thread_neither_expires_nor_is_evicted(clock: Clock) -> None:
    """Its worker may think for longer than the time to live before it stores anything."""
    ttl = TimeToLive(minutes=10)
    options = StoreOptions(ttl=ttl, retention=RetentionPolicy(max_bytes=1))
    store = Store(MemoryEngine(), options)
    saver = DeltaStoreSaver.on_store(store)
    for thread_id in ("held", "free"):
        Lane(Caller(lambda: saver), thread_id).put("1", new={"x": 1}, values={"x": "x" * 500})
    lease = saver.claim("held", "anna", DAY)
    clock.now += timedelta(minutes=30)
    for dry_run in (True, False):
        report = store.apply_retention(dry_run=dry_run)
        assert (("free",), ()) == (report.expired, report.evicted)
    saver.release(lease)
    assert ("held",) == store.apply_retention().expired


def test_of_racing_claims_one_wins(calls: Calls) -> None:
    """Asking and taking are one transaction."""
    won: list[Lease] = []
    barrier = threading.Barrier(8)

    def work(owner: str) -> None:
        barrier.wait()
        for n in range(20):
            try:
                won.append(calls.claim(f"thread {n}", owner))
            except LeaseHeldError:
                pass

    threads = [threading.Thread(target=work, args=(f"worker {n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(f"thread {n}" for n in range(20)) == sorted(one.thread_id for one in won)
    assert 20 == len({one.token for one in won})


def test_a_failure_at_any_call_leaves_a_lease_or_none(clock: Clock) -> None:
    """A claim that raised may have been taken or not; claiming again settles it."""
    for fail_at in count(1):
        engine = MemoryEngine()
        Store(engine).setup()
        failing = FailingEngine(engine, fail_at)
        store = Store(failing)
        lease = None
        try:
            lease = store.claim("t", "anna", TTL)
            lease = store.renew(lease)
            store.release(lease)
        except DeltaStoreError:
            pass
        again = Store(engine).claim("t", "anna", TTL)
        assert "anna" == again.owner
        if not failing.has_failed:
            break
    assert fail_at > 6


@pytest.mark.damaged
def test_verify_finds_a_damaged_lease(clock: Clock) -> None:
    """A damaged lease reads as none at all to nobody: every call on its thread says so."""
    engine = MemoryEngine()
    store = Store(engine)
    store.claim("t", "anna", TTL)
    assert [] == store.verify().damage
    key = keys.lease_key(b"t")
    with engine.begin(write=True) as txn:
        record = txn.get(key)
        assert record is not None
        txn.put(key, record[:-1] + bytes([record[-1] ^ 1]))
    assert len(store.verify().damage) >= 1
    with pytest.raises(DeltaStoreError, match="CRC-32C"):
        store.claim("t", "bert", TTL)


@pytest.mark.damaged
@pytest.mark.parametrize(
    ("thread_id", "token", "what"), [("u", 1, "another thread"), ("t", 2, "never given")]
)
def test_verify_finds_a_lease_that_cannot_be(
    clock: Clock, thread_id: str, token: int, what: str
) -> None:
    """A record that is whole but wrong was written by a bug, here or elsewhere."""
    engine = MemoryEngine()
    store = Store(engine)
    store.claim("t", "anna", TTL)
    key = keys.lease_key(b"t")
    payload = entries.encode_lease(LeaseEntry(thread_id, "anna", token, clock(), 1_000))
    with engine.begin(write=True) as txn:
        txn.put(key, frame.seal(key, layout.KIND_LEASE, b"", payload))
    (damage,) = store.verify().damage
    assert what in str(damage)
