"""The obligations E1 to E13 of `deltastore.engine.api` as tests, for any engine.

    class TestMine(EngineSuite):
        def make_engine(self, where):
            return MyEngine(where)

        def reopen(self, engine, where):      # leave out for an engine that keeps nothing
            engine.close()
            return MyEngine(where)

Each test is named after its obligation. The last one lets Hypothesis compare the engine with a
plain dict. Threads are joined with a timeout, so an engine that hangs fails; nothing here sleeps.

Knows the seam only: no file, no process, no concrete engine.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from deltastore.engine.api import VALUE_BYTES_MAX, Engine
from deltastore.errors import InvalidArgumentError, StoreClosedError
from deltastore.testing.engine_backup_laws import BackupLaws
from deltastore.testing.engine_calls import (
    SECONDS_MAX,
    TOP,
    BlockError,
    fill,
    in_thread,
    is_refused,
    read_all,
)
from deltastore.testing.engine_size_laws import SizeLaws
from deltastore.testing.engine_vacuum_laws import VacuumLaws, VacuumMachine


class _Huge(bytes):
    """Bytes that claim to be one more than the longest value, without taking 2 GiB."""

    def __len__(self) -> int:
        return VALUE_BYTES_MAX + 1


class EngineSuite(SizeLaws, VacuumLaws, BackupLaws):
    """Adopt by subclassing; see the module's docstring."""

    examples: ClassVar[int] = 30
    phases: ClassVar[tuple[Phase, ...]] = tuple(Phase)

    def make_engine(self, where: Path) -> Engine:
        """Return a fresh engine; `where` is a path not in use, of its own."""
        raise NotImplementedError

    def reopen(self, engine: Engine, where: Path) -> Engine | None:  # noqa: ARG002 - a hook
        """Close `engine` and return one on what it stored; None if it keeps nothing when closed."""
        return None

    @pytest.fixture
    def where(self, tmp_path: Path) -> Path:
        """A path not in use."""
        return tmp_path / "engine"

    @pytest.fixture
    def engine(self, where: Path) -> Iterator[Engine]:
        """A fresh engine."""
        engine = self.make_engine(where)
        yield engine
        engine.close()

    def test_e1_keys_are_ordered_as_bytes(self, engine: Engine) -> None:
        """The log's keys sort by time and length only if the engine compares unsigned bytes."""
        keys = [b"\xff", b"\x80", b"a", b"a\x00", b"aa", b"B", b"\x00", b"\x00\x00", b"\x7f"]
        fill(engine, dict.fromkeys(keys, b""))
        with engine.begin(write=False) as transaction:
            assert sorted(keys) == transaction.scan_keys(b"", TOP)

    def test_e1_longest_key_and_empty_value_come_back(self, engine: Engine) -> None:
        """Ids are cut to fit `key_bytes_max`, so exactly that length must work."""
        longest = b"\x01" * engine.key_bytes_max
        fill(engine, {longest: b"", b"\x00": b"\x00" * 100_000})
        assert engine.key_bytes_max >= 511
        with engine.begin(write=False) as transaction:
            assert [b"", b"\x00" * 100_000] == transaction.get_many([longest, b"\x00"])

    def test_e2_an_error_in_the_block_undoes_everything(self, engine: Engine) -> None:
        """One put is several records; half of them would be a damaged checkpoint (P1)."""
        fill(engine, {b"kept": b"1", b"removed": b"2"})
        with pytest.raises(BlockError), engine.begin(write=True) as transaction:
            transaction.put(b"new", b"3")
            transaction.put(b"kept", b"4")
            transaction.delete(b"removed")
            raise BlockError
        assert {b"kept": b"1", b"removed": b"2"} == read_all(engine)

    def test_e2_a_block_that_ends_well_takes_effect_whole(self, engine: Engine) -> None:
        """Puts, a replacement and a removal of one transaction are seen together."""
        fill(engine, {b"a": b"1", b"b": b"2"})
        with engine.begin(write=True) as transaction:
            transaction.put(b"a", b"3")
            assert transaction.delete(b"b")
            assert not transaction.delete(b"b")
            transaction.put(b"c", b"4")
        assert {b"a": b"3", b"c": b"4"} == read_all(engine)

    def test_e3_what_ended_well_is_there_after_reopening(self, where: Path) -> None:
        """Acknowledged is durable (P1)."""
        engine: Engine | None = self.make_engine(where)
        assert engine is not None
        fill(engine, {b"a": b"1"})
        fill(engine, {b"b": b"2"})
        reopened = self.reopen(engine, where)
        if reopened is None:
            assert {b"a": b"1", b"b": b"2"} == read_all(engine)
            engine.close()
        else:
            assert {b"a": b"1", b"b": b"2"} == read_all(reopened)
            reopened.close()

    def test_e4_a_reader_keeps_the_state_of_its_beginning(self, engine: Engine) -> None:
        """A walk over ancestors must not see half of a prune that commits meanwhile."""
        before = {b"a": b"1", b"b": b"2"}
        fill(engine, before)

        def change() -> None:
            with engine.begin(write=True) as writer:
                writer.put(b"a", b"9")
                writer.delete(b"b")
                writer.put(b"c", b"9")

        with engine.begin(write=False) as reader:
            in_thread(change)
            assert before == dict(reader.scan(b"", TOP))
            assert [b"1", b"2", None] == reader.get_many([b"a", b"b", b"c"])
        assert {b"a": b"9", b"c": b"9"} == read_all(engine)

    def test_e4_nobody_sees_a_transaction_that_has_not_ended(self, engine: Engine) -> None:
        """Half a batch of writes must not show (P1)."""
        fill(engine, {b"a": b"1"})
        with engine.begin(write=True) as writer:
            writer.put(b"a", b"2")
            writer.put(b"b", b"2")
            assert {b"a": b"1"} == in_thread(lambda: read_all(engine))

    def test_e4_a_transaction_reads_its_own_puts_and_deletes(self, engine: Engine) -> None:
        """Ops of one batch build on each other: the second put reads the first one's header."""
        fill(engine, {b"a": b"1", b"b": b"2"})
        with engine.begin(write=True) as transaction:
            transaction.put(b"a", b"3")
            transaction.put(b"c", b"")
            transaction.delete(b"b")
            assert [b"3", None, b""] == transaction.get_many([b"a", b"b", b"c"])
            transaction.put(b"b", b"5")
            assert b"5" == transaction.get(b"b")

    def test_e5_writers_of_one_scope_run_one_after_the_other(self, engine: Engine) -> None:
        """Thread numbers are given by reading and adding one; a lost update repeats a number."""
        rounds, threads = 25, 4
        fill(engine, {b"n": b"\x00" * 8})

        def add() -> None:
            for _ in range(rounds):
                with engine.begin(write=True, scope=b"s") as transaction:
                    number = int.from_bytes(transaction.get(b"n") or b"", "big")
                    transaction.put(b"n", (number + 1).to_bytes(8, "big"))

        with ThreadPoolExecutor(threads) as pool:
            for future in [pool.submit(add) for _ in range(threads)]:
                future.result(SECONDS_MAX)
        assert rounds * threads == int.from_bytes(read_all(engine)[b"n"], "big")

    def test_e6_bytes_outlive_their_transaction(self, engine: Engine) -> None:
        """Records are decoded after the view has ended, while pages are used again."""
        fill(engine, {b"a": b"x" * 5_000, b"b": b"y" * 10})
        with engine.begin(write=False) as transaction:
            one = transaction.get(b"a")
            many = transaction.get_many([b"a", b"b"])
            pairs = transaction.scan(b"", TOP)
            keys = transaction.scan_keys(b"", TOP)
        for fresh in range(5):
            fill(engine, {b"a": bytes([fresh]) * 5_000, b"b": bytes([fresh]) * 10})
        assert b"x" * 5_000 == one
        assert [b"x" * 5_000, b"y" * 10] == many
        assert [(b"a", b"x" * 5_000), (b"b", b"y" * 10)] == pairs
        assert [b"a", b"b"] == keys
        assert {bytes} == {type(item) for item in (one, *many, *pairs[0], *keys)}

    @pytest.mark.parametrize("reverse", [False, True])
    def test_e7_scan_returns_exactly_the_range(self, engine: Engine, reverse: bool) -> None:
        """One pair too many belongs to the next checkpoint."""
        keys = [b"b", b"b\x00", b"c", b"d"]
        fill(engine, {key: b"v" + key for key in keys})
        bounds = [b"", b"a", b"b", b"b\x00", b"bb", b"c", b"d", b"d\x00", TOP, b"\xff" * 600]
        for start in bounds:
            for stop in bounds:
                for limit in (None, 0, 1, 2, 9):
                    expected = [key for key in keys if start <= key < stop]
                    if reverse:
                        expected.reverse()
                    expected = expected[:limit]
                    with engine.begin(write=False) as transaction:
                        found = transaction.scan(start, stop, reverse=reverse, limit=limit)
                        names = transaction.scan_keys(start, stop, reverse=reverse, limit=limit)
                    assert [(key, b"v" + key) for key in expected] == found, (start, stop, limit)
                    assert expected == names, (start, stop, limit)

    def test_e7_scan_of_an_empty_engine_is_empty(self, engine: Engine) -> None:
        """The first call on a new store is a look for the newest checkpoint."""
        with engine.begin(write=False) as transaction:
            assert [] == transaction.scan(b"", TOP, reverse=True, limit=1)
            assert [] == transaction.scan_keys(b"", TOP)
            assert None is transaction.get(b"a")

    @pytest.mark.parametrize("reverse", [False, True])
    def test_e7_scan_sees_own_puts_and_deletes(self, engine: Engine, reverse: bool) -> None:
        """A prune reads in the transaction in which it has just written anchors."""
        fill(engine, {b"a": b"1", b"c": b"3", b"e": b"5"})
        with engine.begin(write=True) as transaction:
            transaction.put(b"b", b"2")
            transaction.put(b"c", b"9")
            transaction.delete(b"e")
            transaction.put(b"f", b"")
            transaction.delete(b"f")
            expected = [(b"a", b"1"), (b"b", b"2"), (b"c", b"9")]
            if reverse:
                expected.reverse()
            assert expected == transaction.scan(b"", TOP, reverse=reverse)
            assert expected[:2] == transaction.scan(b"", TOP, reverse=reverse, limit=2)

    def test_e7_paging_by_the_last_key_returns_each_pair_once(self, engine: Engine) -> None:
        """`list` pages so that a paused listing holds no view (P5)."""
        stored = {b"%03d" % number: b"v" for number in range(25)}
        fill(engine, stored)
        found: list[bytes] = []
        start = b""
        for _ in count():
            with engine.begin(write=False) as transaction:
                page = transaction.scan_keys(start, TOP, limit=4)
            if not page:
                break
            found += page
            start = page[-1] + b"\x00"
        assert list(stored) == found

    def test_e7_delete_range_removes_the_lowest_up_to_its_limit(self, engine: Engine) -> None:
        """Reclaiming runs in bounded transactions and must reach the end."""
        fill(engine, {bytes([letter]): b"" for letter in b"abcdef"})
        with engine.begin(write=True) as transaction:
            assert 2 == transaction.delete_range(b"b", b"f", limit=2)
            assert [b"a", b"d", b"e", b"f"] == transaction.scan_keys(b"", TOP)
            assert 2 == transaction.delete_range(b"b", b"f", limit=9)
            assert 0 == transaction.delete_range(b"b", b"f", limit=9)
        assert [b"a", b"f"] == list(read_all(engine))

    def test_e8_limits_are_refused_before_any_effect(self, engine: Engine) -> None:
        """One bad op of a batch must not cost the others their transaction."""
        too_long = b"k" * (engine.key_bytes_max + 1)
        with engine.begin(write=True) as transaction:
            transaction.put(b"a", b"1")
            for key, value in ((b"", b"v"), (too_long, b"v"), (b"k", _Huge(b"v"))):
                with pytest.raises(InvalidArgumentError):
                    transaction.put(key, value)
            for key in (b"", too_long):
                for call in (transaction.get, transaction.delete):
                    with pytest.raises(InvalidArgumentError):
                        call(key)
                with pytest.raises(InvalidArgumentError):
                    transaction.get_many([b"a", key])
            transaction.put(b"b", b"2")
        assert {b"a": b"1", b"b": b"2"} == read_all(engine)

    def test_e9_an_error_of_the_block_passes_unchanged(self, engine: Engine) -> None:
        """The caller knows its own errors by identity and type."""
        for write in (False, True):
            raised = BlockError()
            with pytest.raises(BlockError) as caught, engine.begin(write=write):
                raise raised
            assert raised is caught.value

    def test_e9_a_closed_engine_says_so(self, engine: Engine) -> None:
        """A call after close must be told from a damaged store."""
        fill(engine, {b"a": b"1"})
        engine.check()
        engine.close()
        engine.close()
        with pytest.raises(StoreClosedError):
            engine.check()
        for write in (False, True):
            with pytest.raises(StoreClosedError), engine.begin(write=write):
                pass

    def test_e9_closing_an_engine_never_used_is_no_error(self, engine: Engine) -> None:
        """A saver that was built and never called is closed all the same."""
        engine.close()
        with pytest.raises(StoreClosedError):
            engine.check()

    def test_e9_close_waits_for_running_transactions(self, engine: Engine) -> None:
        """Closing under a reader would pull its memory away."""
        fill(engine, {b"a": b"1"})
        began, may_end, closed = threading.Event(), threading.Event(), threading.Event()
        found: list[Any] = []

        def read() -> None:
            with engine.begin(write=False) as transaction:
                began.set()
                may_end.wait(SECONDS_MAX)
                found.extend((closed.is_set(), transaction.get(b"a")))

        def close() -> None:
            engine.close()
            closed.set()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        assert began.wait(SECONDS_MAX)
        closer = threading.Thread(target=close, daemon=True)
        closer.start()
        while not is_refused(engine):
            pass  # until the closer has marked the engine closed
        may_end.set()
        closer.join(SECONDS_MAX)
        reader.join(SECONDS_MAX)
        assert [False, b"1"] == found
        assert closed.is_set()

    def test_e10_transactions_may_begin_in_any_thread(self, engine: Engine) -> None:
        """Worker threads share one saver (P6); each read sees a whole state, never a mix of two."""
        fill(engine, {b"a": b"0", b"b": b"0"})

        def write(number: int) -> None:
            fill(engine, dict.fromkeys((b"a", b"b"), b"%d" % number))

        def read(_: int) -> bool:
            with engine.begin(write=False) as transaction:
                return len(set(transaction.get_many([b"a", b"b"]))) == 1

        with ThreadPoolExecutor(8) as pool:
            writes = [pool.submit(write, number) for number in range(40)]
            reads = [pool.submit(read, number) for number in range(200)]
            assert {True} == {future.result(SECONDS_MAX) for future in reads}
            assert {None} == {future.result(SECONDS_MAX) for future in writes}

    def test_e10_a_reader_does_not_wait_for_a_writer(self, engine: Engine) -> None:
        """A long commit must not stop `get_tuple`."""
        fill(engine, {b"a": b"1"})
        with engine.begin(write=True) as writer:
            writer.put(b"a", b"2")
            assert {b"a": b"1"} == in_thread(lambda: read_all(engine))

    def test_version_changes_with_every_commit(self, engine: Engine) -> None:
        """Caches ask it whether another process wrote."""
        seen = []
        for number in range(4):
            fill(engine, {b"a": b"%d" % number})
            seen.append(engine.version())
        assert {None} == set(seen) or 4 == len(set(seen))

    def test_stat_counts_the_keys(self, engine: Engine) -> None:
        """`stats` prints it, and a wrong number hides a leak."""
        assert 0 == engine.stat().entries
        fill(engine, {b"a": b"1", b"b": b"2"})
        assert 2 == engine.stat().entries

    def test_random_work_equals_a_dict(self, tmp_path: Path) -> None:
        """All obligations at once, over sequences nobody thought of."""
        number = count()

        suite = self

        class Machine(VacuumMachine):
            def __init__(self) -> None:
                where = tmp_path / f"machine-{next(number)}"
                super().__init__(suite.make_engine(where), lambda old: suite.reopen(old, where))

        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=self.examples,
                stateful_step_count=25,
                deadline=None,
                phases=self.phases,
                derandomize=True,
                database=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
