"""The laws of `Engine.vacuum`, E11 of `deltastore.engine.api`; part of the engine suite.

What others do meanwhile is done in two ways: from the call of `progress`, where an engine that
calls it is certainly in the middle, and by threads, for the moments between.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from deltastore.engine.api import KEYS_END, Engine
from deltastore.errors import InvalidArgumentError, RetryTransactionError, StoreClosedError
from deltastore.testing.engine_calls import SECONDS_MAX, BlockError, fill, in_thread, read_all
from deltastore.testing.engine_machine import EngineMachine

_PAIRS: Final = {b"%05d" % number: b"%d" % number * 20 for number in range(2_500)}


def _guarded(work: Callable[[int], None], number: int, problems: list[BaseException]) -> None:
    try:
        work(number)
    except BaseException as error:  # noqa: BLE001 - collected for the assertion
        problems.append(error)


class VacuumLaws:
    """Tests of the suite; see `deltastore.testing.engine_suite`."""

    def test_e1_keys_beyond_the_end_are_refused(self, engine: Engine) -> None:
        """They are the engine's own: a caller who reached them could end a vacuum, or fake one."""
        last = b"\xff" * 7 + b"\xfe" * 100
        fill(engine, {last: b"1"})
        with engine.begin(write=True) as transaction:
            for key in (KEYS_END, KEYS_END + b"\x00"):
                with pytest.raises(InvalidArgumentError):
                    transaction.put(key, b"")
                with pytest.raises(InvalidArgumentError):
                    transaction.delete(key)
                with pytest.raises(InvalidArgumentError):
                    transaction.get_many([b"a", key])
        assert {last: b"1"} == read_all(engine)

    @pytest.mark.parametrize("secure", [False, True])
    def test_e11_a_vacuum_changes_no_pair(self, engine: Engine, secure: bool) -> None:
        """P4: maintenance never changes a value, and a second one is as good as the first."""
        fill(engine, _PAIRS)
        with engine.begin(write=True) as transaction:
            transaction.delete_range(b"00100", b"01900", limit=5_000)
        expected = read_all(engine)
        for _ in range(2):
            report = engine.vacuum(secure=secure)
            assert report.bytes_after <= report.bytes_before
            assert expected == read_all(engine)
            assert len(expected) == engine.stat().entries
        fill(engine, {b"after": b"1"})
        assert expected | {b"after": b"1"} == read_all(engine)

    def test_e11_an_empty_engine_is_vacuumed(self, engine: Engine) -> None:
        """Somebody's first command."""
        engine.vacuum()
        assert {} == read_all(engine)

    def test_e11_what_is_written_between_two_chunks_counts(self, engine: Engine) -> None:
        """Before and behind the place it has come to: put, replaced, deleted, put again."""
        fill(engine, _PAIRS)
        model = dict(_PAIRS)
        generator = random.Random(11)

        def progress(done: int, total: int) -> None:
            assert 0 <= done <= total
            with engine.begin(write=True) as transaction:
                for _ in range(30):
                    key = b"%05d" % generator.randrange(2_600)
                    if generator.random() < 0.5:
                        assert (model.pop(key, None) is not None) == transaction.delete(key)
                    else:
                        model[key] = generator.randbytes(generator.choice((0, 20, 6_000)))
                        transaction.put(key, model[key])
                doomed = [key for key in sorted(model) if b"00500" <= key < b"00600"][:5]
                assert len(doomed) == transaction.delete_range(b"00500", b"00600", limit=5)
                for key in doomed:
                    del model[key]

        engine.vacuum(progress=progress)
        assert model == read_all(engine)

    def test_e11_threads_lose_nothing_and_see_one_state(self, engine: Engine) -> None:
        """Each writer's counter ascends and none of its puts is lost; pairs stay together."""
        fill(engine, {**_PAIRS, b"x": b"0", b"y": b"0"})
        stop = threading.Event()
        written: dict[int, int] = {}
        problems: list[BaseException] = []

        def write(number: int) -> None:
            while not stop.is_set() or written.get(number, 0) < 5:
                at = written.get(number, 0)
                try:
                    with engine.begin(write=True) as transaction:
                        assert at == 0 or b"%d" % at == transaction.get(b"n%d" % number)
                        transaction.put(b"n%d" % number, b"%d" % (at + 1))
                        transaction.put(b"w%d-%06d" % (number, at), b"v" * 50)
                        transaction.delete(b"%05d" % (at % 2_500))
                        for key in (b"x", b"y"):
                            transaction.put(key, b"%d-%d" % (number, at))
                except RetryTransactionError:
                    continue
                written[number] = at + 1

        def read(_: int) -> None:
            while not stop.is_set():
                with engine.begin(write=False) as transaction:
                    assert 1 == len(set(transaction.get_many([b"x", b"y"])))

        threads = [
            threading.Thread(target=_guarded, args=(work, number, problems), daemon=True)
            for number, work in enumerate((write, write, read, read))
        ]
        for thread in threads:
            thread.start()
        for _ in range(3):
            engine.vacuum()
        stop.set()
        for thread in threads:
            thread.join(SECONDS_MAX)
        assert [] == problems
        found = read_all(engine)
        for number, count in written.items():
            assert b"%d" % count == found[b"n%d" % number]
            assert count == sum(key.startswith(b"w%d-" % number) for key in found)

    def test_e11_a_transaction_begun_before_keeps_its_state(self, engine: Engine) -> None:
        """A long `verify` must neither break nor hold up the vacuum, nor a later reader."""
        fill(engine, {b"a": b"1", b"b": b"2"})
        with engine.begin(write=False) as reader:
            in_thread(engine.vacuum)
            in_thread(lambda: fill(engine, {b"a": b"9", b"c": b"9"}))
            assert {b"a": b"9", b"b": b"2", b"c": b"9"} == in_thread(lambda: read_all(engine))
            assert [(b"a", b"1"), (b"b", b"2")] == reader.scan(b"", b"z")
        assert {b"a": b"9", b"b": b"2", b"c": b"9"} == read_all(engine)

    def test_e11_what_progress_raises_ends_it_without_harm(self, engine: Engine) -> None:
        """Ctrl-C at any of its calls; the next vacuum goes through."""
        fill(engine, _PAIRS)
        for fail_at in range(1, 10):
            calls = 0

            def progress(_done: int, _total: int, fail_at: int = fail_at) -> None:
                nonlocal calls
                calls += 1
                if calls == fail_at:
                    raise BlockError

            try:
                engine.vacuum(progress=progress)
            except BlockError:
                assert fail_at == calls
            else:
                assert calls < fail_at
            assert _PAIRS == read_all(engine)
            assert len(_PAIRS) == engine.stat().entries
            fill(engine, {b"00000": _PAIRS[b"00000"]})

    def test_e11_versions_stay_apart_across_a_vacuum(self, engine: Engine) -> None:
        """A cache that knows a version from before must not take a later one for it."""
        seen = []
        for number in range(4):
            fill(engine, {b"a": b"%d" % number})
            seen.append(engine.version())
            engine.vacuum()
        assert {None} == set(seen) or 4 == len(set(seen))

    def test_e11_a_closed_engine_is_not_vacuumed(self, engine: Engine) -> None:
        """As with every other call."""
        engine.close()
        with pytest.raises(StoreClosedError):
            engine.vacuum()


class VacuumMachine(EngineMachine):
    """The random work of the suite, with vacuums in between and work in the middle of them."""

    @rule(
        secure=st.booleans(),
        key=st.sampled_from([b"\x00", b"\xff\xff", b"new"]),
        value=st.none() | st.binary(max_size=3),
    )
    def vacuum(self, secure: bool, key: bytes, value: bytes | None) -> None:
        """Changes nothing, and what changes meanwhile is there."""

        def progress(_done: int, _total: int) -> None:
            with self._engine.begin(write=True) as transaction:
                if value is None:
                    transaction.delete(key)
                    self._model.pop(key, None)
                else:
                    transaction.put(key, value)
                    self._model[key] = value

        self._engine.vacuum(secure=secure, progress=progress)
