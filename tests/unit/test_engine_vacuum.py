"""The vacuum of the LMDB engine within one process: its journal, its limits, what it leaves.

What every engine promises is in `deltastore.testing.engine_vacuum_laws`; kills, full disks and
other processes are in tests/crash/test_vacuum.py.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import lmdb
import lmdb.verify
import pytest

from deltastore.engine import lmdb_generations as generations
from deltastore.engine import lmdb_journal as journal
from deltastore.engine.counting import CountingEngine
from deltastore.engine.limits import KEY_BYTES_MAX
from deltastore.engine.lmdb import LmdbEngine
from deltastore.engine.lmdb_transaction import LmdbTransaction
from deltastore.engine.lmdb_unfinished import UnfinishedGeneration
from deltastore.engine.memory import MemoryEngine
from deltastore.errors import CorruptionError, EngineError, ReadOnlyError
from deltastore.plans import VacuumReport
from deltastore.testing.engine_calls import BlockError, fill, in_thread, read_all
from deltastore.testing.faults import FailingEngine

PAIRS = {b"%05d" % number: b"v" * (number % 3_000) for number in range(2_500)}


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def engine(where: Path) -> Iterator[LmdbEngine]:
    engine = LmdbEngine(where)
    fill(engine, PAIRS)
    yield engine
    engine.close()


def private(engine: LmdbEngine) -> dict[bytes, bytes]:
    """Return what a vacuum keeps beside the pairs."""
    with LmdbTransaction(engine._opening, False) as transaction:
        pairs = transaction.run_private(lambda txn: list(txn.cursor()))
    return {key: value for key, value in pairs if key >= journal.KEYS_END}


def names(where: Path) -> set[str]:
    return {entry.name for entry in where.iterdir()}


# The journal


def test_a_journal_returns_the_keys_that_were_written(tmp_path: Path) -> None:
    """Of any length, each once, and from any place on."""
    longest = b"k" * KEY_BYTES_MAX
    written = [{b"a", longest}, {b"b"}, {b"a", b"\x00"}]
    ids = []
    with lmdb.Environment(str(tmp_path / "e"), map_size=1 << 24) as environment:
        for keys in written:
            with environment.begin(write=True) as txn:
                ids.append(txn.id())
                journal.write(txn, keys)
        with environment.begin() as txn:
            assert ({b"a", longest, b"b", b"\x00"}, ids[2], 3) == journal.read(txn, 0, None)
            assert ({b"a", longest, b"b"}, ids[1], 2) == journal.read(txn, 0, 3)
            assert (written[2], ids[2], 1) == journal.read(txn, ids[1], 1)
            assert (set(), ids[2], 0) == journal.read(txn, ids[2], 1)
            assert 3 == journal.count(txn)


def test_a_journal_is_drained_in_pieces(tmp_path: Path) -> None:
    """No transaction deletes more than 1,000 records, and the state goes last."""
    with lmdb.Environment(str(tmp_path / "e"), map_size=1 << 24) as environment:
        with environment.begin(write=True) as txn:
            state = journal.activate(txn, b"token")
            for number in range(2_300):
                txn.put(journal.KEYS_END + b"\x01" + number.to_bytes(8, "big"), b"")
            txn.put(b"a", b"1")
        assert journal.is_active(state)
        left = []
        for _ in range(3):
            with environment.begin(write=True) as txn:
                left.append((journal.drain(txn), journal.count(txn)))
                assert not journal.is_active(txn.get(journal.STATE))
        assert [(False, 1_301), (False, 301), (True, 0)] == left
        with environment.begin() as txn:
            assert b"1" == txn.get(b"a")


def test_writers_keep_no_journal_without_a_vacuum(engine: LmdbEngine) -> None:
    """It would cost every commit."""
    fill(engine, {b"a": b"1"})
    assert {} == private(engine)
    engine.vacuum()
    fill(engine, {b"a": b"2"})
    assert {} == private(engine)


def test_what_a_vacuum_keeps_is_not_seen(engine: LmdbEngine) -> None:
    """Neither in scans nor in counts while it runs; all of it goes with a vacuum that fails."""
    seen = []

    def progress(_done: int, _total: int) -> None:
        fill(engine, {b"a": b"1"})
        seen.append((len(private(engine)), engine.stat().entries))
        with engine.begin(write=False) as transaction:
            assert b"a" == transaction.scan_keys(b"", b"\xff" * 600, reverse=True, limit=1)[0]
            assert [] == transaction.scan_keys(b"\xff" * 8, b"\xff" * 600)
        if len(seen) == 2:
            raise BlockError

    with pytest.raises(BlockError):
        engine.vacuum(progress=progress)
    assert [(2, 2_501), (3, 2_501)] == seen
    assert {} == private(engine)


def test_a_dead_vacuum_costs_writers_no_journal(engine: LmdbEngine, where: Path) -> None:
    """A killed process must not make all others work for it until somebody notices."""
    with LmdbTransaction(engine._opening, True) as transaction:
        transaction.run_private(lambda txn: journal.activate(txn, b"dead"))
        for number in range(1_500):
            transaction.run_private(
                lambda txn, number=number: txn.put(  # type: ignore[misc]
                    journal.KEYS_END + b"\x01" + number.to_bytes(8, "big"), b"\x00\x01a"
                )
            )
    left = []
    for _ in range(3):
        left.append(len(private(engine)))
        fill(engine, {b"a": b"1"})
    assert [1_501, 501, 0] == left
    assert PAIRS | {b"a": b"1"} == read_all(engine)


def test_a_vacuum_taken_for_dead_gives_up(engine: LmdbEngine, where: Path) -> None:
    """Somebody removed its lock: the journal has a hole, and going on would lose that write."""

    def progress(_done: int, _total: int) -> None:
        (where / generations.VACUUM).unlink(missing_ok=True)
        fill(engine, {b"00001": b"new"})

    with pytest.raises(EngineError, match="VACUUM"):
        engine.vacuum(progress=progress)
    assert PAIRS | {b"00001": b"new"} == read_all(engine)
    engine.vacuum()
    assert PAIRS | {b"00001": b"new"} == read_all(engine)


# Chunks


def test_no_transaction_of_a_vacuum_has_more_than_1000_records(
    engine: LmdbEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers wait for the last one; a writer's own long transaction must not lengthen it."""
    appended: list[int] = []
    applied: list[tuple[bool, int]] = []
    append, apply = UnfinishedGeneration.append, UnfinishedGeneration.apply
    shared = engine._opening.shared
    assert shared is not None

    def note_append(self: UnfinishedGeneration, pairs: Collection[Any]) -> None:
        appended.append(len(pairs))
        append(self, pairs)

    def note_apply(self: UnfinishedGeneration, keys: Collection[bytes], get: Any) -> None:
        holder = shared.gate.get_holders()[0]
        assert isinstance(holder, LmdbTransaction)
        applied.append((holder._write, len(keys)))
        apply(self, keys, get)

    monkeypatch.setattr(UnfinishedGeneration, "append", note_append)
    monkeypatch.setattr(UnfinishedGeneration, "apply", note_apply)
    calls = 0

    def progress(_done: int, _total: int) -> None:
        nonlocal calls
        calls += 1
        if calls < 8:
            fill(engine, {b"%05d" % number: b"%d" % calls for number in range(2_100)})

    engine.vacuum(progress=progress)
    assert [1_000, 1_000, 500] == appended
    assert (False, 2_100) in applied
    assert 1 == sum(is_write for is_write, _ in applied)
    assert all(keys <= 1_000 for is_write, keys in applied if is_write)
    assert {b"%05d" % number: b"7" for number in range(2_100)}.items() <= read_all(engine).items()


def test_chunks_are_bounded_in_bytes(where: Path) -> None:
    """A thousand values of a megabyte each would be a gigabyte of memory."""
    engine = LmdbEngine(where)
    pairs = {b"%d" % number: bytes([number]) * (3 << 20) for number in range(8)}
    fill(engine, pairs)
    done: list[int] = []
    engine.vacuum(progress=lambda at, _: done.append(at))
    assert [3, 6, 8] == done[:3]
    assert pairs == read_all(engine)
    engine.close()


def test_a_copy_that_misses_a_key_is_noticed(
    engine: LmdbEngine, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage in a branch page hides keys; a vacuum must not make that final."""
    real = LmdbTransaction.scan_some
    monkeypatch.setattr(
        LmdbTransaction, "scan_some", lambda self, *bounds: real(self, *bounds)[:-1]
    )
    with pytest.raises(CorruptionError, match=r"keys were reached"):
        engine.vacuum()
    assert PAIRS == read_all(engine)
    assert "000002" not in names(where)


def test_a_small_map_grows_on_the_way(where: Path) -> None:
    """P5: the new environment's map, and the old one's if the journal fills it."""
    engine = LmdbEngine(where, _map_size=256 << 10)
    fill(engine, {b"%03d" % number: b"v" * 1_000 for number in range(100)})
    engine.vacuum(progress=lambda *_: fill(engine, {b"k" * 500: b"1"}))
    with engine.begin(write=True) as transaction:
        transaction.delete(b"k" * 500)
    small = engine._opening.shared
    assert small is not None
    small.map_bytes = 64 << 10
    engine.vacuum()
    assert 100 == engine.stat().entries
    engine.close()


# What is left


def test_a_vacuum_gives_space_back(engine: LmdbEngine, where: Path) -> None:
    """What it is for."""
    with engine.begin(write=True) as transaction:
        transaction.delete_range(b"00100", b"99999", limit=9_999)
    before = engine.stat()
    report = engine.vacuum()
    after = engine.stat()
    assert VacuumReport(2, before.file_bytes, after.file_bytes, before.free_bytes) == report
    assert 10 * report.bytes_after < report.bytes_before
    assert before.entries == after.entries == 100
    data = where / "000002" / "data.mdb"
    assert [] == lmdb.verify.verify(str(data), subdir=False)
    assert data.stat().st_size == after.file_bytes
    assert {"CURRENT", "LOCK", "VACUUM", "000002"} == names(where)


def test_files_of_a_vacuum_are_private(engine: LmdbEngine, where: Path) -> None:
    """Conversations are, whatever the umask."""
    before = os.umask(0)
    engine.vacuum(secure=True)
    os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in where.rglob("*")}
    assert 0o700 == modes.pop("000002")
    assert {0o600} == set(modes.values())


def test_secure_leaves_no_trace_of_what_was_deleted(engine: LmdbEngine, where: Path) -> None:
    """Long and short values, keys, and what a vacuum that failed has copied."""
    marker = b"to be forgotten: " + b"q" * 40
    fill(engine, {marker: b"1", b"short": marker, b"long": marker * 900})

    def give_up(done: int, _total: int) -> None:
        with engine.begin(write=True) as transaction:
            transaction.delete(marker)
        if done > 2_000:
            raise BlockError

    with pytest.raises(BlockError):
        engine.vacuum(progress=give_up)
    with engine.begin(write=True) as transaction:
        for key in (b"short", b"long"):
            transaction.delete(key)
    files = [path for path in where.rglob("*") if path.is_file()]
    assert any(marker in path.read_bytes() for path in files)
    old = (where / "000001" / "data.mdb").open("rb")
    engine.vacuum(secure=True)
    files = [path for path in where.rglob("*") if path.is_file()]
    assert not any(marker in path.read_bytes() for path in files)
    with old:
        assert not any(old.read())  # the blocks, not only the name
    assert {"CURRENT", "LOCK", "VACUUM", "000002"} == names(where)


def test_secure_says_if_the_old_file_is_still_in_use(
    engine: LmdbEngine, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who relies on it must know; the last reader's end erases the file all the same."""
    monkeypatch.setattr("deltastore.engine.lmdb_vacuum._SECONDS_MAX", 0.0)
    with (where / "000001" / "data.mdb").open("rb") as old:
        with engine.begin(write=False) as reader:
            with pytest.warns(UserWarning, match="still in use"):
                in_thread(lambda: engine.vacuum(secure=True))
            assert PAIRS[b"00007"] == reader.get(b"00007")
            assert {"000001", "000002"} < names(where)
        assert "000001" not in names(where)
        assert not any(old.read())


def test_the_last_reader_of_the_old_file_removes_it(engine: LmdbEngine, where: Path) -> None:
    """Nobody waits for it, and the space comes back all the same."""
    with engine.begin(write=False) as reader:
        for number in range(3):
            in_thread(engine.vacuum)
            in_thread(lambda number=number: fill(engine, {b"00000": b"%d" % number}))
        assert PAIRS[b"00000"] == reader.get(b"00000")
        assert [1, 4] == generations.list_numbers(where)
    assert [4] == generations.list_numbers(where)
    assert b"2" == read_all(engine)[b"00000"]


def test_engines_that_share_move_together(engine: LmdbEngine, where: Path) -> None:
    """Two savers on one path, one of them idle: the old file must not wait for it."""
    other = LmdbEngine(where)
    assert PAIRS == read_all(other)
    engine.vacuum()
    assert [2] == generations.list_numbers(where)
    fill(engine, {b"a": b"1"})
    assert PAIRS | {b"a": b"1"} == read_all(other)
    assert engine.version() == other.version()
    other.close()


def test_closing_and_opening_finds_the_new_generation(engine: LmdbEngine, where: Path) -> None:
    """Nothing but CURRENT tells."""
    engine.vacuum()
    fill(engine, {b"a": b"1"})
    version = engine.version()
    engine.close()
    (where / "CURRENT").rename(where / ".aside")
    again = LmdbEngine(where, verify_bytes_max=1 << 40)
    with pytest.raises(CorruptionError, match="CURRENT"):
        again.stat()
    (where / ".aside").rename(where / "CURRENT")
    assert PAIRS | {b"a": b"1"} == read_all(again)
    assert version == again.version()
    again.close()


# Refusals


def test_a_second_vacuum_is_refused(engine: LmdbEngine) -> None:
    """Waiting for hours, only to do it all again, helps nobody."""
    refused = []

    def progress(_done: int, _total: int) -> None:
        for run in (engine.vacuum, lambda: in_thread(engine.vacuum)):
            with pytest.raises(EngineError, match="running already"):
                run()
            refused.append(1)

    assert 2 == engine.vacuum(progress=progress).generation
    assert len(refused) >= 6
    assert PAIRS == read_all(engine)


def test_read_only_and_nested_vacuums_are_refused(engine: LmdbEngine, where: Path) -> None:
    """The first by its promise, the second because it would wait for itself."""
    reader = LmdbEngine(where, read_only=True)
    with pytest.raises(ReadOnlyError):
        reader.vacuum()
    reader.close()
    with engine.begin(write=False), pytest.raises(AssertionError):
        engine.vacuum()
    assert "VACUUM" not in names(where)


def test_generations_end_with_an_error() -> None:
    """A number with seven digits would not be read back."""
    with pytest.raises(EngineError, match="999999"):
        generations.get_next_number(999_999)


# Other engines


def test_wrappers_pass_a_vacuum_on(engine: LmdbEngine) -> None:
    """Benchmarks and fault loops run on them."""
    done: list[int] = []
    counting = CountingEngine(engine)
    assert 2 == counting.vacuum(progress=lambda at, _: done.append(at)).generation
    assert done
    failing = FailingEngine(engine, 1)
    with pytest.raises(EngineError, match="vacuum"):
        failing.vacuum()
    assert 3 == failing.vacuum(secure=True).generation
    assert VacuumReport(0, 0, 0, 0) == MemoryEngine().vacuum(secure=True)
