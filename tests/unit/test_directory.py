"""The directory inside transactions of a memory engine: numbers, names, activity, deletion."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from deltastore import directory
from deltastore.decoded import Caches
from deltastore.directory import Stream
from deltastore.engine.api import Transaction
from deltastore.engine.memory import MemoryEngine
from deltastore.errors import CorruptionError, FormatVersionError
from deltastore.format import entries, frame, keys, layout
from deltastore.format.entries import StoreEntry, ThreadEntry
from deltastore.log import StreamReader
from deltastore.reclaim import RECORDS_MAX, reclaim_some
from deltastore.retire import retire_thread

LONG = "n" * 10_000
NAMES = ["", "t", "t0", "t\0", "T", LONG, LONG + "a", LONG + "b", LONG[:-1], LONG[:400]]


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    engine = MemoryEngine()
    yield engine
    engine.close()


@contextmanager
def writing(engine: MemoryEngine) -> Iterator[Transaction]:
    with engine.begin(write=True) as txn:
        yield txn


def intern(engine: MemoryEngine, thread_id: str, checkpoint_ns: str = "") -> Stream:
    with writing(engine) as txn:
        return directory.intern_stream(txn, thread_id, checkpoint_ns)[1]


def retire(engine: MemoryEngine, thread_id: str) -> bool:
    make_reader = partial(StreamReader, caches=Caches(64, 0))
    with writing(engine) as txn:
        return retire_thread(txn, thread_id, make_reader)


def touch(engine: MemoryEngine, thread_id: str, minute: int) -> None:
    with writing(engine) as txn:
        entry, _ = directory.intern_stream(txn, thread_id, "")
        directory.touch(txn, entry, minute)


def active(engine: MemoryEngine) -> list[tuple[int, str]]:
    """Return (minute, thread id), newest activity first."""
    with engine.begin(write=False) as txn:
        found = directory.scan_active(txn, b"", 100)
        return [(minute, directory.thread_id_of(txn, number)) for _, minute, number in found]


def all_pairs(engine: MemoryEngine) -> list[tuple[bytes, bytes]]:
    with engine.begin(write=False) as txn:
        return txn.scan(b"\0", b"\xff")


def test_numbers_are_dense_and_given_once(engine: MemoryEngine) -> None:
    """They are four bytes in every key; the first user of a thread gives it its number."""
    streams = [intern(engine, name) for name in NAMES]
    assert [*range(1, len(NAMES) + 1)] == [stream.thread for stream in streams]
    assert streams == [intern(engine, name) for name in NAMES]
    assert len(streams) == len({stream.prefix for stream in streams})


def test_namespaces_are_numbered_per_thread(engine: MemoryEngine) -> None:
    """Each thread has its own from 1, in the order they were first used."""
    for thread_id in ("t", "u"):
        streams = [intern(engine, thread_id, name) for name in NAMES]
        assert [*range(1, len(NAMES) + 1)] == [stream.namespace for stream in streams]
        assert streams == [intern(engine, thread_id, name) for name in NAMES]
        with engine.begin(write=False) as txn:
            assert streams == directory.streams(txn, thread_id)
            for stream in streams:
                assert stream == directory.find_stream(txn, thread_id, stream.checkpoint_ns)


def test_looking_up_stores_nothing(engine: MemoryEngine) -> None:
    """A read of an unknown thread must not make it one."""
    with engine.begin(write=False) as txn:
        assert directory.find_thread(txn, "t") is None
        assert directory.find_stream(txn, "t", "") is None
        assert [] == directory.streams(txn, "t")
        assert [] == directory.scan_thread_ids(txn, None, 1_000)
    assert [] == all_pairs(engine)


def test_a_number_is_given_by_the_transaction_that_needs_it(engine: MemoryEngine) -> None:
    """One that is undone gave none: the next one gets the same, and nothing is left behind."""
    with pytest.raises(KeyError), writing(engine) as txn:
        directory.intern_stream(txn, "undone", "")
        raise KeyError
    assert [] == all_pairs(engine)
    assert 1 == intern(engine, "t").thread


def test_a_number_is_never_reused(engine: MemoryEngine) -> None:
    """Caches outlive a deletion: a number that came to mean something else would be served it."""
    first = intern(engine, "t", "a")
    intern(engine, "u")
    assert retire(engine, "t")
    with engine.begin(write=False) as txn:
        entry = directory.find_thread(txn, "t")
        assert entry is not None
        assert 0 == entry.number
        assert directory.find_stream(txn, "t", "a") is None
        assert [] == directory.streams(txn, "t")
    assert (3, 1) == intern(engine, "t", "b")[2:4]
    assert 1 == first.thread
    with engine.begin(write=False) as txn:
        assert 3 == directory.threads_given(txn)


def test_retiring_what_is_not_there_changes_nothing(engine: MemoryEngine) -> None:
    """Deleting twice, or an unknown thread, is no error."""
    intern(engine, "t")
    assert retire(engine, "t")
    before = all_pairs(engine)
    assert not retire(engine, "t")
    assert not retire(engine, "unknown")
    assert before == all_pairs(engine)


def test_reclaiming_leaves_the_entry_alone_and_the_neighbours(engine: MemoryEngine) -> None:
    """A thread's number is a prefix in every keyspace; nothing of it may stay, nothing else go."""
    for thread_id in ("before", "t", "after"):
        stream = intern(engine, thread_id, "ns")
        with writing(engine) as txn:
            for i in range(RECORDS_MAX + 10):
                key = keys.header_key(stream.prefix, b"\x02" + b"%d" % i + b"\0")
                directory.put_mark(txn, key)
            directory.put_mark(txn, keys.late_key(stream.thread, stream.namespace, 1, b"c"))
            directory.put_mark(txn, keys.secret_key(stream.thread, 0))
        touch(engine, thread_id, 10)
    kept = [key for key, _ in all_pairs(engine) if not is_of(key, 2)]
    assert retire(engine, "t")
    rounds = 0
    while True:
        size = len(all_pairs(engine))
        with writing(engine) as txn:
            if not reclaim_some(txn):
                break
        assert size - len(all_pairs(engine)) <= RECORDS_MAX + 1
        rounds += 1
    assert rounds >= 2
    assert kept == [key for key, _ in all_pairs(engine)]


def is_of(key: bytes, number: int) -> bool:
    """Whether a key belongs to a thread's number, in whichever keyspace."""
    if key[0] == layout.TAG_ACTIVITY:
        return keys.number_at(key, 5) == number
    return key[0] > layout.TAG_THREAD and keys.number_at(key, 1) == number


def test_activity_is_noted_once_a_minute(engine: MemoryEngine) -> None:
    """A put within the minute of the last one costs no write; a new one moves the mark."""
    touch(engine, "t", 100)
    touch(engine, "u", 100)
    assert [(100, "t"), (100, "u")] == active(engine)
    before = all_pairs(engine)
    touch(engine, "t", 100)
    assert before == all_pairs(engine)
    touch(engine, "u", 101)
    assert [(101, "u"), (100, "t")] == active(engine)
    touch(engine, "t", 99)  # a clock set back
    assert [(101, "u"), (100, "t")] == active(engine)


def test_a_thread_that_was_never_touched_is_not_active(engine: MemoryEngine) -> None:
    """Early writes give it a number; it has no checkpoint yet."""
    intern(engine, "t")
    assert [] == active(engine)
    with engine.begin(write=False) as txn:
        assert ["t"] == directory.scan_thread_ids(txn, None, 1_000)


def test_a_retired_thread_is_active_again_only_when_touched(engine: MemoryEngine) -> None:
    """Its old mark is gone with it, and the minute noted then does not hide the new one."""
    touch(engine, "t", 100)
    assert retire(engine, "t")
    assert [] == active(engine)
    intern(engine, "t")
    assert [] == active(engine)
    touch(engine, "t", 100)
    assert [(100, "t")] == active(engine)


def test_active_threads_are_paged(engine: MemoryEngine) -> None:
    """Each page goes on behind the last key, and may begin within a minute."""
    for i in range(7):
        touch(engine, f"t{i}", 100 + i // 3)
    with engine.begin(write=False) as txn:
        at, found = b"", []
        while page := directory.scan_active(txn, at, 2):
            assert len(page) <= 2
            found += [(minute, number) for _, minute, number in page]
            at = page[-1][0]
            assert len(found) <= 7
        assert [(102, 7), (101, 4), (101, 5), (101, 6), (100, 1), (100, 2), (100, 3)] == found
        later = directory.scan_active(txn, directory.before_minute(101), 100)
        assert found[1:] == [(minute, number) for _, minute, number in later]


def test_thread_ids_are_paged_without_the_deleted(engine: MemoryEngine) -> None:
    """A listing of everything goes through them; each is given once, whatever the page."""
    for name in NAMES:
        intern(engine, name)
        intern(engine, name, "sub")
    for name in ("t", NAMES[-1]):
        retire(engine, name)
    wanted = {*NAMES} - {"t", NAMES[-1]}
    with engine.begin(write=False) as txn:
        everything = directory.scan_thread_ids(txn, None, 100)
        assert sorted(wanted) == sorted(everything)
        for limit in (1, 2, 7, 8, 9):
            pages: list[list[str]] = [directory.scan_thread_ids(txn, None, limit)]
            while len(pages[-1]) == limit:
                pages.append(directory.scan_thread_ids(txn, pages[-1][-1], limit))
                assert len(pages) <= len(NAMES)
            assert everything == [name for page in pages for name in page]


def test_an_entry_under_anothers_key_is_damage(engine: MemoryEngine) -> None:
    """Of long texts the key holds a hash only: the text is compared, for a hash may collide."""
    intern(engine, "t", "ns")
    wrong = ThreadEntry("other", 1, 1)
    key = keys.thread_key(b"x")
    namespace_key = keys.namespace_key(1, b"x")
    payload = entries.encode_named_number("other", 1)
    with writing(engine) as txn:
        txn.put(key, frame.seal(key, layout.KIND_THREAD, b"", entries.encode_thread(wrong)))
        txn.put(namespace_key, frame.seal(namespace_key, layout.KIND_NAME, b"", payload))
        with pytest.raises(CorruptionError, match=r"'other'.*thread 'x'"):
            directory.find_thread(txn, "x")
        with pytest.raises(CorruptionError, match=r"'other'.*namespace 'x'"):
            directory.find_stream(txn, "t", "x")


def test_a_number_without_a_name_is_damage(engine: MemoryEngine) -> None:
    """It is in use by somebody."""
    with writing(engine) as txn, pytest.raises(CorruptionError, match="number 9 has no name"):
        directory.thread_id_of(txn, 9)


def test_a_store_is_made_once(engine: MemoryEngine) -> None:
    """Its identity must not change with the next opening."""
    with writing(engine) as txn:
        assert directory.store_identity(txn) is None
        directory.make_store(txn)
        identity = directory.store_identity(txn)
        directory.make_store(txn)
        assert identity == directory.store_identity(txn)
        assert identity is not None
        assert 16 == len(identity)


def test_a_store_of_a_newer_format_is_refused(engine: MemoryEngine) -> None:
    """Reading it as ours would be guessing; the message says what to do."""
    key = keys.store_key(b"store")
    payload = entries.encode_store(StoreEntry(layout.FORMAT_VERSION + 1, b"i" * 40))
    with writing(engine) as txn:
        txn.put(key, frame.seal(key, layout.KIND_STORE, b"", payload))
        with pytest.raises(FormatVersionError, match="upgrade"):
            directory.store_identity(txn)
