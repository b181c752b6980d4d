"""Every engine meets the seam's obligations, and engines that break one are caught.

The obligations are in `deltastore.testing.engine_suite`; here they are adopted, and each of the
broken stand-ins below breaks exactly one.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase

from deltastore.engine.api import Engine, Pair
from deltastore.engine.counting import CountingEngine, EngineCounts
from deltastore.engine.lmdb import LmdbEngine
from deltastore.engine.memory import MemoryEngine, MemoryTransaction
from deltastore.errors import EngineError
from deltastore.testing.engine_calls import fill, read_all
from deltastore.testing.engine_suite import EngineSuite
from deltastore.testing.faults import FailingEngine


class TestMemory(EngineSuite):
    """The oracle's engine."""

    def make_engine(self, where: Path) -> Engine:
        return MemoryEngine()


class TestLmdb(EngineSuite):
    """The embedded engine."""

    def make_engine(self, where: Path) -> Engine:
        return LmdbEngine(where)

    def reopen(self, engine: Engine, where: Path) -> Engine:
        engine.close()
        return LmdbEngine(where)


class TestCounting(EngineSuite):
    """The counter changes no answer."""

    def make_engine(self, where: Path) -> Engine:
        return CountingEngine(MemoryEngine())


class TestFailingNever(EngineSuite):
    """The fault injector changes no answer until it fails."""

    def make_engine(self, where: Path) -> Engine:
        return FailingEngine(MemoryEngine(), 0)


class MemoryWith(MemoryEngine):
    """A memory engine whose transactions are of a broken kind."""

    kind: type[MemoryTransaction]

    def begin(self, *, write: bool, scope: bytes = b"") -> MemoryTransaction:
        self.check()
        return self.kind(self, write)


class KeepsAborted(MemoryWith):
    """Breaks E2: an error in the block is taken for its end."""

    class kind(MemoryTransaction):  # noqa: N801 - a class attribute by use
        def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
            super().__exit__(None, None, None)


class ScansOneTooMany(MemoryWith):
    """Breaks E7: the end of a range counts as inside."""

    class kind(MemoryTransaction):  # noqa: N801 - a class attribute by use
        def scan(
            self, start: bytes, stop: bytes, *, reverse: bool = False, limit: int | None = None
        ) -> list[Pair]:
            return super().scan(start, stop + b"\x00", reverse=reverse, limit=limit)


class IgnoresOwnPuts(MemoryWith):
    """Breaks E4: reads the state of the beginning only."""

    class kind(MemoryTransaction):  # noqa: N801 - a class attribute by use
        def get(self, key: bytes) -> bytes | None:
            return self._state.values.get(key)


class ReadsTheLatest(MemoryWith):
    """Breaks E4: a reader sees what is committed while it runs."""

    class kind(MemoryTransaction):  # noqa: N801 - a class attribute by use
        def get(self, key: bytes) -> bytes | None:
            return self._own.get(key, self._engine._state.values.get(key))


class LimitsAfterTheFact(MemoryWith):
    """Breaks E8: stores first, complains then."""

    class kind(MemoryTransaction):  # noqa: N801 - a class attribute by use
        def put(self, key: bytes, value: bytes) -> None:
            self._set(key, value)
            super().put(key, value)


class SwallowsErrors(MemoryWith):
    """Breaks E9: the caller's error does not pass."""

    class kind(MemoryTransaction):  # noqa: N801 - a class attribute by use
        def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:  # type: ignore[override]
            super().__exit__(kind, error, trace)
            return True


class CountsWhatItDeletes(MemoryWith):
    """Breaks E13: what is used never shrinks."""

    class kind(MemoryTransaction):  # noqa: N801 - a class attribute by use
        def _set(self, key: bytes, value: bytes | None) -> None:
            before = self._growth
            super()._set(key, value)
            self._growth = max(before, self._growth)


class ForgetsWhatIsUsed(MemoryWith):
    """Breaks E13: own puts are not counted."""

    class kind(MemoryTransaction):  # noqa: N801 - a class attribute by use
        def used_bytes(self) -> int:
            return self._state.size


SUITE = TestMemory()


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (KeepsAborted, SUITE.test_e2_an_error_in_the_block_undoes_everything),
        (IgnoresOwnPuts, SUITE.test_e4_a_transaction_reads_its_own_puts_and_deletes),
        (ReadsTheLatest, SUITE.test_e4_a_reader_keeps_the_state_of_its_beginning),
        (ScansOneTooMany, lambda e: SUITE.test_e7_scan_returns_exactly_the_range(e, False)),
        (LimitsAfterTheFact, SUITE.test_e8_limits_are_refused_before_any_effect),
        (SwallowsErrors, SUITE.test_e9_an_error_of_the_block_passes_unchanged),
        (CountsWhatItDeletes, SUITE.test_e12_what_is_used_follows_what_is_stored),
        (ForgetsWhatIsUsed, SUITE.test_e12_what_is_used_follows_what_is_stored),
    ],
)
def test_a_broken_engine_fails_the_test_of_its_obligation(
    broken: type[MemoryWith], test: Callable[[Engine], None]
) -> None:
    """A suite that cannot fail proves nothing."""
    test(MemoryEngine())
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test(broken())


@pytest.mark.parametrize("broken", [KeepsAborted, ScansOneTooMany])
def test_random_work_catches_a_broken_engine(broken: type[MemoryWith], tmp_path: Path) -> None:
    """The comparison with a dict must notice without being told where to look."""

    class Suite(EngineSuite):
        phases = (Phase.generate,)  # finding the fault is enough, nobody reads the smallest case

        def make_engine(self, where: Path) -> Engine:
            return broken()

    with pytest.raises(AssertionError):
        Suite().test_random_work_equals_a_dict(tmp_path)


def test_counts_say_what_was_asked_for() -> None:
    """Benchmarks report round trips and bytes from these numbers."""
    engine = CountingEngine(MemoryEngine())
    with engine.begin(write=True) as transaction:
        transaction.put(b"a", b"12")
        transaction.put(b"bb", b"3")
        transaction.delete(b"a")
        transaction.delete(b"absent")
    before = engine.counts()
    with engine.begin(write=False) as transaction:
        transaction.get(b"a")
        transaction.get_many([b"a", b"bb"])
        transaction.scan(b"", b"z")
        transaction.scan_keys(b"", b"z")
    assert EngineCounts(write_transactions=1, puts=2, put_bytes=6, deletes=1) == before
    assert (
        EngineCounts(read_transactions=1, gets=3, round_trips=4, scans=2, scanned=2)
        == engine.counts() - before
    )


def test_failing_at_each_call_leaves_all_or_nothing() -> None:
    """The loop over n that the store's own tests run: before, an error; after, all of it."""
    outcomes = []
    for fail_at in range(1, 20):
        inner = MemoryEngine()
        engine = FailingEngine(inner, fail_at)
        try:
            with engine.begin(write=True) as transaction:
                transaction.put(b"a", b"1")
                transaction.get(b"a")
                transaction.put(b"b", b"2")
        except EngineError:
            outcomes.append(read_all(inner))
        if not engine.has_failed:
            assert {b"a": b"1", b"b": b"2"} == read_all(inner)
            break
    assert [{}] * 5 == outcomes


def test_a_swallowed_failure_does_not_save_its_transaction() -> None:
    """A real engine takes nothing more in a transaction that failed, nor does the stand-in."""
    inner = MemoryEngine()
    engine = FailingEngine(inner, 3)
    with pytest.raises(EngineError), engine.begin(write=True) as transaction:
        transaction.put(b"a", b"1")
        with pytest.raises(EngineError):
            transaction.put(b"b", b"2")
    assert {} == read_all(inner)


def test_a_commit_in_memory_costs_what_it_stores() -> None:
    """Property tests put thousands of records; copying all of them at each commit takes minutes."""
    engine = MemoryEngine()
    fill(engine, {b"%08d" % number: b"v" for number in range(20_000)})
    taken = []
    tracemalloc.start()
    for number in range(50):
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        fill(engine, {b"%08d new" % number: b"v"})
        taken.append(tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    assert 20_050 == engine.stat().entries
    # Now and then the dict or the list grows, which copies it: not at most commits.
    assert sorted(taken)[len(taken) // 2] < 10_000
