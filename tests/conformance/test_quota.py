"""A store with `max_bytes`: full at the bound, with room left to delete; a file not far beyond."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deltastore import (
    DeltaStoreSaver,
    InvalidArgumentError,
    InvalidTypeError,
    QuotaExceededError,
    Store,
    StoreFullError,
    StoreOptions,
    StorePathError,
)
from deltastore.engine.limits import file_bytes_max
from deltastore.engine.memory import MemoryEngine
from deltastore.testing import Caller, Lane, tuple_shape
from deltastore.testing.strategies import checkpoint_id
from tests.conformance.two_workers import Workers

MIB = 1 << 20
BOUND = 4 * MIB
MOST = file_bytes_max(BOUND, 0)


def open_saver(kind: str, where: Path, **options: Any) -> DeltaStoreSaver:
    if kind == "memory":
        return DeltaStoreSaver.on_store(Store(MemoryEngine(), StoreOptions(**options)))
    return DeltaStoreSaver(where / "s", **options)


@pytest.fixture(params=["lmdb", "memory"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DeltaStoreSaver]:
    with open_saver(request.param, tmp_path, max_bytes=BOUND) as saver:
        yield saver


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def caller(request: pytest.FixtureRequest, saver: DeltaStoreSaver) -> Iterator[Caller]:
    caller = Caller(lambda: saver, asynchronous=request.param)
    yield caller
    caller.close()


def text(n: int, size: int = 60_000) -> str:
    """Return text that no other resembles, so that nothing is saved on it."""
    return hashlib.shake_256(n.to_bytes(4, "big")).hexdigest(size // 2)


def put(lane: Lane, n: int) -> None:
    parent = checkpoint_id(n - 1) if n else None
    lane.put(checkpoint_id(n), parent, new={"x": n + 1}, values={"x": text(n)})


def fill(caller: Caller, thread_id: str = "t", first: int = 0) -> int:
    """Put checkpoints of a thread until one is refused; return the number of that one."""
    lane = Lane(caller, thread_id)
    for n in range(first, 5_000):
        try:
            put(lane, n)
        except QuotaExceededError:
            return n
    raise AssertionError("the store never filled")


def used(saver: DeltaStoreSaver) -> int:
    with saver.store._session.view() as txn:
        return txn.used_bytes()


def file_bytes(where: Path) -> int:
    return sum(path.stat().st_size for path in where.rglob("data.mdb"))


def test_a_full_store_refuses_reads_on_and_goes_on_once_something_was_deleted(
    caller: Caller, saver: DeltaStoreSaver
) -> None:
    """The whole story of an operator who set a bound."""
    fill(caller, "other")
    first = fill(caller)
    caller.delete_thread("other")
    refused = fill(caller, "t", first)
    assert refused > first
    lane = Lane(caller)
    shown = tuple_shape(lane.read(checkpoint_id(refused - 1)))
    assert 0.9 * BOUND < used(saver) <= BOUND

    with pytest.raises(QuotaExceededError, match=f"beyond its max_bytes={BOUND}.*Delete") as full:
        put(lane, refused)
    assert (BOUND, True) == (full.value.max_bytes, full.value.used_bytes > BOUND)
    assert isinstance(full.value, StoreFullError)
    with pytest.raises(QuotaExceededError):
        lane.write(checkpoint_id(refused - 1), [("x", text(9_999))])
    with pytest.raises(QuotaExceededError):
        saver.copy_thread("t", "copy")
    assert [checkpoint_id(n) for n in reversed(range(refused))] == lane.ids()
    assert shown == tuple_shape(lane.read(checkpoint_id(refused - 1)))
    assert [] == lane.pending(checkpoint_id(refused - 1))

    saver.prune(["t"], keep_last=5)
    assert used(saver) < BOUND / 2
    put(lane, refused)
    assert refused + 1 < fill(caller, "t", refused + 1)
    saver.delete_thread("t")
    assert used(saver) < BOUND / 10
    assert fill(caller, "third") > 10


def test_a_put_that_changes_nothing_is_not_refused(caller: Caller, saver: DeltaStoreSaver) -> None:
    """Repeating a call whose answer was lost must work in a full store too."""
    refused = fill(caller)
    lane = Lane(caller)
    for size in (4_000, 1_000, 300):
        with pytest.raises(QuotaExceededError):
            for n in range(1_000):
                lane.write(checkpoint_id(refused - 1), [("x", text(n, size))], f"{size} {n}")
    for n in range(refused - 3, refused):
        put(lane, n)


def test_a_small_call_still_fits_where_a_large_one_did_not(
    caller: Caller, saver: DeltaStoreSaver
) -> None:
    """A refused call leaves nothing behind that would count."""
    lane = Lane(caller)
    put(lane, 0)
    with pytest.raises(QuotaExceededError):
        lane.put(checkpoint_id(9), checkpoint_id(0), new={"x": 1}, values={"x": text(1, 3 * BOUND)})
    put(lane, 1)
    with pytest.raises(QuotaExceededError):
        lane.put(checkpoint_id(9), checkpoint_id(0), new={"x": 1}, values={"x": text(1, 40 * MIB)})
    put(lane, 2)
    assert 3 == len(lane.ids())


def test_one_that_does_not_fit_fails_none_beside_it(saver: DeltaStoreSaver) -> None:
    """Commits are shared; a bound must not be."""
    store = saver.store
    store.setup()
    outcomes: dict[str, BaseException | None] = {}
    enough = threading.Barrier(9)

    def work(place: int) -> None:
        name, size = f"thread {place}", 3 * BOUND if place == 4 else 1_000
        enough.wait()
        try:
            Lane(Caller(lambda: saver), name).put(
                checkpoint_id(0), None, new={"x": 1}, values={"x": text(place, size)}
            )
            outcomes[name] = None
        except QuotaExceededError as error:
            outcomes[name] = error

    threads = [threading.Thread(target=work, args=(place,)) for place in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ["thread 4"] == [name for name, error in outcomes.items() if error is not None]
    assert 8 == len(store.threads().threads)


def test_deleting_works_in_a_full_store_whose_file_is_at_its_longest(tmp_path: Path) -> None:
    """LMDB needs pages to delete; a reader that stays keeps it from using freed ones."""
    with DeltaStoreSaver(tmp_path / "s", max_bytes=BOUND) as saver:
        caller = Caller(lambda: saver)
        for round_ in range(4):
            fill(caller, f"t{round_}")
            fill(caller, f"u{round_}")
            assert file_bytes(tmp_path) <= MOST
            saver.prune([f"t{round_}"])
            saver.delete_thread(f"u{round_}")
            assert file_bytes(tmp_path) <= MOST
        for round_ in range(4):
            saver.delete_thread(f"t{round_}")
        assert used(saver) < BOUND / 10
        before = file_bytes(tmp_path)
        saver.vacuum()
        assert file_bytes(tmp_path) < before / 4
        assert fill(caller) > 10


def test_the_file_stays_within_its_margin_beside_a_reader_that_stays(tmp_path: Path) -> None:
    """While a view is open no page is used again, so the file grows with every commit."""
    with DeltaStoreSaver(tmp_path / "s", max_bytes=BOUND) as saver:
        caller = Caller(lambda: saver)
        lane = Lane(caller)
        put(lane, 0)
        opened, over = threading.Event(), threading.Event()

        def read() -> None:
            with saver.store._session.view():
                opened.set()
                over.wait()

        reader = threading.Thread(target=read)
        reader.start()
        opened.wait()
        try:
            with pytest.raises(QuotaExceededError, match="no room left") as full:
                for n in range(1, 5_000):
                    lane.put(checkpoint_id(0), None, new={"x": 1}, values={"x": text(n, 100_000)})
        finally:
            over.set()
            reader.join()
        assert BOUND == full.value.max_bytes
        assert BOUND < file_bytes(tmp_path) <= MOST
        put(lane, 1)  # freed pages are used again


def test_a_store_that_is_longer_than_its_bound_can_still_be_emptied(tmp_path: Path) -> None:
    """A bound is often set when a store has grown too large."""
    with DeltaStoreSaver(tmp_path / "s") as saver:
        for thread_id in ("t", "u"):
            lane = Lane(Caller(lambda: saver), thread_id)
            for n in range(160):
                lane.put(
                    checkpoint_id(n),
                    checkpoint_id(n - 1) if n else None,
                    new={"x": n + 1},
                    values={"x": text(n, 160_000)},
                )
    long = file_bytes(tmp_path)
    assert long > MOST
    with DeltaStoreSaver(tmp_path / "s", max_bytes=BOUND) as saver:
        lane = Lane(Caller(lambda: saver))
        with pytest.raises(QuotaExceededError):
            put(lane, 160)
        assert 160 == len(lane.ids())
        saver.delete_thread("u")
        saver.prune(["t"])
        assert file_bytes(tmp_path) <= file_bytes_max(BOUND, long)
        put(lane, 160)
        saver.vacuum()
        assert file_bytes(tmp_path) <= BOUND


WORKER = """
import sys
from pathlib import Path
from deltastore import DeltaStoreSaver, QuotaExceededError
from deltastore.testing import Caller
from tests.conformance.test_quota import fill, BOUND

path, name = sys.argv[1:]
with DeltaStoreSaver(path, max_bytes=BOUND) as saver:
    caller = Caller(lambda: saver)
    saver.setup()
    print("ready", flush=True)
    sys.stdin.readline()
    put = 0
    for round in range(3):
        put += fill(caller, f"{name} {round}")
        saver.delete_thread(f"{name} {round}")
    put += fill(caller, name)
    print(put)
"""


def test_several_processes_share_one_bound(tmp_path: Path) -> None:
    """Each sees what the others store, in the transaction it stores in."""
    path = tmp_path / "s"
    workers = Workers(WORKER, [[str(path), name] for name in ("a", "b", "c")])
    workers.wait_ready()
    assert min(int(said) for said in workers.go()) > 0
    assert file_bytes(tmp_path) <= MOST
    with DeltaStoreSaver(path, max_bytes=BOUND) as saver:
        assert 0.9 * BOUND < used(saver) <= BOUND


def test_openings_of_one_process_agree_on_the_bound(tmp_path: Path) -> None:
    """They share one map, and there is one length it can have."""
    with DeltaStoreSaver(tmp_path / "s", max_bytes=BOUND) as first:
        first.setup()
        with (
            DeltaStoreSaver(tmp_path / "s") as second,
            pytest.raises(StorePathError, match=f"max_bytes={BOUND}"),
        ):
            second.setup()
        with DeltaStoreSaver(tmp_path / "s", max_bytes=BOUND) as third:
            third.setup()
        with DeltaStoreSaver(tmp_path / "s", read_only=True) as reader:
            assert reader.get_tuple({"configurable": {"thread_id": "t"}}) is None


@pytest.mark.parametrize("value", [0, -1, MIB - 1])
def test_a_bound_has_a_least_value(value: int) -> None:
    """Below that an empty store would be full."""
    with pytest.raises(InvalidArgumentError, match=f"max_bytes must be at least {MIB}"):
        StoreOptions(max_bytes=value)


@pytest.mark.parametrize("value", [True, 1e9, "1GB"])
def test_a_bound_is_an_int(value: Any) -> None:
    """Units are the caller's to compute."""
    with pytest.raises(InvalidTypeError, match="max_bytes must be an int"):
        StoreOptions(max_bytes=value)
