"""Figures of the running store: what they count, and that they add up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from deltastore import DecryptionError, DeltaStoreSaver, ForkRefusedError, Store, StoreOptions
from deltastore.engine.counting import CountingEngine
from deltastore.engine.memory import MemoryEngine
from deltastore.format import keys, layout
from deltastore.options import SnapshotBounds
from deltastore.survey import measure
from deltastore.testing import Caller, Lane
from deltastore.testing.strategies import checkpoint_id

ITEMS = [f"message {n}: " + "text of some length " * 8 for n in range(12)]


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def lane(request: pytest.FixtureRequest) -> Iterator[Lane]:
    store = Store(MemoryEngine(), StoreOptions(refuse_forks=True))
    caller = Caller(lambda: DeltaStoreSaver.on_store(store), asynchronous=request.param)
    yield Lane(caller)
    caller.close()


def store_of(lane: Lane) -> Store:
    assert isinstance(lane.caller.saver, DeltaStoreSaver)
    return lane.caller.saver.store


def fill(lane: Lane, count: int = 12, first: int = 0) -> None:
    """Store a growing list, a small value, and a task's writes at each checkpoint."""
    for n in range(first, count):
        parent = checkpoint_id(n - 1) if n else None
        lane.put(
            checkpoint_id(n),
            parent,
            new={"log": n + 1, "small": n + 1},
            values={"log": [*ITEMS, *(f"{k} " * 100 for k in range(n))], "small": n},
        )
        lane.write(checkpoint_id(n), [("log", [f"{n} " * 100]), ("small", n + 1)], f"task {n}")


def test_an_opening_begins_at_nothing(lane: Lane) -> None:
    """Ratios of nothing are none, not errors: a monitor polls before the first put."""
    found = store_of(lane).stats()
    assert (0, None, 0) == (found.threads_given, found.write_amplification, found.given_bytes)
    assert (0, 0) == (found.queued, found.ops_max if found.commits == 0 else 0)


def test_counts_are_those_of_the_engine(lane: Lane) -> None:
    """What is counted on the way must be what arrives."""
    counting = CountingEngine(MemoryEngine())
    saver = DeltaStoreSaver.on_store(Store(counting))
    lane = Lane(Caller(lambda: saver))
    fill(lane)
    saver.delete_thread("t")
    found, asked = saver.store.stats(), counting.counts()
    assert (asked.puts, asked.put_bytes) == (found.records_stored, found.stored_bytes)
    assert asked.write_transactions == found.commits == sum(found.ops_histogram)
    assert found.ops >= 24


def test_what_was_handed_in_is_the_serialized_values(lane: Lane) -> None:
    """Amplification below 1 is the point of the package; it must not be an artefact."""
    fill(lane)
    found = store_of(lane).stats()
    dumps = lane.caller.saver.serde.dumps_typed
    given = 0
    for n in range(12):
        given += len(dumps([*ITEMS, *(f"{k} " * 100 for k in range(n))])[1]) + len(dumps(n)[1])
        given += len(dumps([f"{n} " * 100])[1]) + len(dumps(n + 1)[1])
    assert given == found.given_bytes
    assert found.write_amplification is not None
    assert 0 < found.write_amplification == found.stored_bytes / given < 1


def test_what_is_refused_is_not_counted(lane: Lane) -> None:
    """A refused put stored nothing, so nothing was handed in for it."""
    fill(lane)
    before = store_of(lane).stats()
    with pytest.raises(ForkRefusedError):
        lane.put(checkpoint_id(40), checkpoint_id(2), new={"log": 99}, values={"log": ITEMS})
    after = store_of(lane).stats()
    assert (before.given_bytes, before.stored_bytes) == (after.given_bytes, after.stored_bytes)


def test_the_histogram_counts_ops_of_commits() -> None:
    """Whether callers share commits shows here alone."""
    store = Store(MemoryEngine())
    store.setup()
    saver = DeltaStoreSaver.on_store(store)
    entered, go = threading.Event(), threading.Event()
    store._session.queue.submit(lambda _: (entered.set(), go.wait()), lambda *_: None)
    entered.wait()

    def put(number: int) -> None:
        Lane(Caller(lambda: saver), f"t{number}").put("1", new={"x": 1}, values={"x": 1})

    before = store.stats()
    threads = [threading.Thread(target=put, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    while store.stats().queued < 6:
        pass
    go.set()
    for thread in threads:
        thread.join()
    after = store.stats()
    grown = [now - was for was, now in zip(before.ops_histogram, after.ops_histogram, strict=True)]
    assert [1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0] == grown
    assert (5, 6, 0) == (after.ops_max, after.ops - before.ops, after.queued)
    assert after.ops_mean == after.ops / after.commits


def test_sizes_follow_the_file(tmp_path: Path) -> None:
    """Free pages that grow are what a vacuum is for."""
    with DeltaStoreSaver(tmp_path / "s", max_bytes=1 << 24) as saver:
        lane = Lane(Caller(lambda: saver))
        fill(lane, 30)
        full = saver.store.stats()
        saver.delete_thread("t")
        empty = saver.store.stats()
    assert (1, 1 << 24) == (full.threads_given, full.max_bytes)
    assert empty.entries < full.entries
    assert empty.used_bytes < full.used_bytes <= full.file_bytes
    assert empty.free_bytes > full.free_bytes
    assert empty.file_bytes - empty.free_bytes == empty.used_bytes


def test_caches_tell_their_size_and_use(lane: Lane) -> None:
    """A cache that is too small shows as misses; one that is not used as nothing."""
    fill(lane)
    before = store_of(lane).stats()
    for _ in range(3):
        lane.read(checkpoint_id(11))
    after = store_of(lane).stats()
    for was, now in (
        (before.values, after.values),
        (before.headers, after.headers),
        (before.writes, after.writes),
    ):
        assert now.hits > was.hits
        assert 0 < now.entries
        assert 0 < now.bytes <= now.bytes_max


def test_figures_may_be_asked_for_by_any_thread_at_any_time(lane: Lane) -> None:
    """A monitor polls while workers write; no figure ever goes back."""
    seen: list[int] = []
    over = threading.Event()

    def poll() -> None:
        while not over.is_set():
            found = store_of(lane).stats()
            assert sum(found.ops_histogram) == found.commits
            seen.append(found.ops)

    thread = threading.Thread(target=poll)
    thread.start()
    fill(lane, 30)
    over.set()
    thread.join()
    assert sorted(seen) == seen


# -- one thread -----------------------------------------------------------------------------


def check_sums(store: Store, thread_id: str, **options: Any) -> Any:
    """Return a thread's figures, checked against what is stored."""
    found = store.thread_stats(thread_id, **options)
    assert store.thread_bytes(thread_id) == (
        sum(one.records for one in found.namespaces),
        sum(one.bytes for one in found.namespaces),
    )
    for one in found.namespaces:
        kinds = {kind.kind: kind for kind in one.kinds}
        assert (one.records, one.bytes) == (
            sum(kind.records for kind in one.kinds),
            sum(kind.bytes for kind in one.kinds),
        )
        values = kinds.get("values")
        assert (values.records if values else 0, values.bytes if values else 0) == (
            sum(channel.values for channel in one.channels),
            sum(channel.value_bytes for channel in one.channels),
        )
        written = [kinds[name].bytes for name in ("writes", "folded") if name in kinds]
        assert sum(written) == sum(channel.write_bytes for channel in one.channels)
    return found


def test_a_threads_bytes_add_up_by_kind_and_by_channel(lane: Lane) -> None:
    """Figures that do not add up leave whoever asks with less than before."""
    fill(lane)
    fill(Lane(lane.caller, "t", "sub"), 4)
    found = check_sums(store_of(lane), "t")
    assert ["", "sub"] == [one.checkpoint_ns for one in found.namespaces]
    root = found.namespaces[0]
    assert (12, 11) == (root.checkpoints, root.depth_max)
    assert {"headers": 12, "values": 12, "writes": 12} == {k.kind: k.records for k in root.kinds}
    log, small = root.channels
    assert ("log", 12, 0, 12) == (log.channel, log.values, log.inline, log.writes)
    assert ("small", 0, 12, 12) == (small.channel, small.values, small.inline, small.writes)
    assert log.write_bytes > small.write_bytes > 0
    assert found.records == found.other_records + sum(one.records for one in found.namespaces)
    assert found.other_records > 0


def test_anchors_and_folded_writes_are_kinds_of_their_own(lane: Lane) -> None:
    """Whoever prunes wants to see what pruning left."""
    fill(lane)
    store_of(lane).prune("t", keep_last=3)
    found = check_sums(store_of(lane), "t")
    (root,) = found.namespaces
    assert 3 == root.checkpoints
    assert {"headers", "anchors", "values", "writes"} <= {one.kind for one in root.kinds}


@pytest.mark.parametrize("updates", [4, 50])
def test_chains_are_as_long_as_their_bound_allows(updates: int) -> None:
    """It is what tells whether a thread is worth compacting."""
    store = Store(MemoryEngine(), StoreOptions(bounds=SnapshotBounds(updates=updates)))
    lane = Lane(Caller(lambda: DeltaStoreSaver.on_store(store)))
    fill(lane, 20)
    channels = {one.channel: one for one in check_sums(store, "t").namespaces[0].channels}
    assert 0 == channels["small"].chain_max
    assert min(updates - 1, 15) <= channels["log"].chain_max <= min(updates, 19)


def test_progress_counts_every_record_once(lane: Lane) -> None:
    """A bar that stops at half is taken for a hang."""
    fill(lane)
    fill(Lane(lane.caller, "t", "sub"), 4)
    told: list[tuple[int, int]] = []
    found = store_of(lane).thread_stats("t", progress=lambda *now: told.append(now))
    records = sum(one.records for one in found.namespaces)
    assert (records, records) == told[-1]
    assert sorted(told) == told


def test_an_absent_thread_is_empty(lane: Lane) -> None:
    """As for every other reading call."""
    assert () == store_of(lane).thread_stats("nobody").namespaces
    fill(lane)
    lane.caller.delete_thread("t")
    assert 0 == store_of(lane).thread_stats("t").records


def test_an_encrypted_thread_needs_its_cipher() -> None:
    """Channel names are encrypted, so figures by channel are too."""
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
    saver = DeltaStoreSaver.ephemeral(serde=serde)
    lane = Lane(Caller(lambda: saver))
    fill(lane)
    assert {"log", "small"} == {
        one.channel
        for one in check_sums(saver.store, "t", cipher=serde.cipher).namespaces[0].channels
    }
    with pytest.raises(DecryptionError):
        saver.store.thread_stats("t")


def test_what_lies_outside_the_log_is_counted_too(lane: Lane) -> None:
    """Names and marks are few, but they are the thread's."""
    fill(lane)
    store = store_of(lane)
    with store._session.view() as txn:
        sizes = [
            measure(txn, keys.thread_prefix(tag, 1))
            for tag in (layout.TAG_NAMESPACE, layout.TAG_NAMES)
        ]
    found = store.thread_stats("t")
    assert found.other_records >= sum(records for records, _ in sizes)
    assert found.other_bytes >= sum(size for _, size in sizes)
