"""Laws of a saver's time to live: how it is given, and what a read is to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deltastore.engine.api import Engine
from deltastore.engine.counting import CountingEngine
from deltastore.engine.memory import MemoryEngine
from deltastore.errors import EngineError, InvalidArgumentError, InvalidTypeError
from deltastore.langgraph import configs
from deltastore.langgraph.saver import DeltaStoreSaver
from deltastore.options import RetentionPolicy, StoreOptions, TimeToLive
from deltastore.store import Store
from deltastore.testing import make_config
from deltastore.testing.retention_calls import minute_id
from tests.unit.retention_fakes import (
    IDLE,
    READS,
    REFRESH,
    Bench,
    Clock,
    Use,
    filled,
    get,
    list_all,
    saver_of,
    settle,
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def bench(clock: Clock) -> Bench:
    return filled(Bench(clock))


# --- refresh on read ---


@pytest.mark.parametrize("use", READS.values(), ids=[*READS])
def test_a_read_is_activity_if_that_was_asked_for(bench: Bench, use: Use) -> None:
    """And is none otherwise."""
    bench.clock.minute = 9
    for ttl, minute in ((IDLE, 5), (REFRESH, 9)):
        saver = saver_of(bench, ttl)
        use(saver)
        settle(saver)
        assert {"old": 1, "t": minute} == bench.active()


def test_a_read_keeps_a_thread_that_is_due_and_not_swept_yet(bench: Bench) -> None:
    """The read is noted before the sweep it begins can delete what was read."""
    bench.clock.minute = 100
    saver = saver_of(bench, REFRESH)
    get(saver)
    settle(saver)
    assert ({"t": 100}, {"t"}) == (bench.active(), bench.threads())


def test_reads_write_at_most_once_per_thread_and_minute(clock: Clock) -> None:
    """A read must stay a read."""
    engine = CountingEngine(MemoryEngine())
    bench = filled(Bench(clock, engine))
    saver = saver_of(bench, REFRESH)
    for minute, writes in ((6, 2), (6, 0), (7, 2)):
        clock.minute = minute
        before = engine.counts()
        for _ in range(3):
            for use in READS.values():
                use(saver)
            get(saver, "old")
        settle(saver)
        done = engine.counts() - before
        assert writes == done.deletes  # an old mark for a new one
        assert writes >= done.write_transactions
    assert {"old": 7, "t": 7} == bench.active()


@pytest.mark.parametrize(
    "use",
    [
        list_all,
        lambda saver: get(saver, "absent"),
        lambda saver: saver.get_tuple(make_config("t", "", minute_id(99))),
        lambda saver: list(saver.list(make_config("absent"))),
        lambda saver: list(saver.store.checkpoints("t")),
        lambda saver: saver.store.threads(),
        lambda saver: saver.store.thread_bytes("t"),
    ],
)
def test_what_reads_no_one_thread_is_no_activity(clock: Clock, use: Use) -> None:
    """A dashboard that lists everything must not keep everything, nor write at all."""
    engine = CountingEngine(MemoryEngine())
    bench = filled(Bench(clock, engine))
    clock.minute = 9
    saver = saver_of(bench, REFRESH)
    before = engine.counts()
    use(saver)
    settle(saver)
    assert 0 == (engine.counts() - before).write_transactions
    assert {"old": 1, "t": 5} == bench.active()


class _WritesFail:
    """An engine whose write transactions cannot begin."""

    def __init__(self, inner: Engine) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def begin(self, *, write: bool, scope: bytes = b"") -> Any:
        if write:
            raise EngineError("no room")
        return self._inner.begin(write=write, scope=scope)


def test_a_refresh_that_fails_fails_no_read(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """On a full disk a read still reads; the log says what it means for the thread."""
    engine: Any = _WritesFail(bench.engine)
    saver = DeltaStoreSaver.on_store(Store(engine, StoreOptions(ttl=REFRESH)))
    bench.clock.minute = 9
    for use in READS.values():
        assert use(saver)
    settle_failing(saver)
    assert "a read was not noted as activity" in caplog.text
    assert {"old": 1, "t": 5} == bench.active()


def settle_failing(saver: DeltaStoreSaver) -> None:
    saver.store._sweeper.wait()
    with pytest.raises(EngineError):
        saver.store._session.queue.run(lambda _: None)


def test_a_refresh_that_cannot_be_queued_fails_no_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where no thread can be started to commit it."""

    def refuse(*args: Any) -> None:
        raise EngineError("no thread could be started")

    saver = saver_of(bench, REFRESH)
    bench.clock.minute = 9
    with monkeypatch.context() as patch:
        patch.setattr(saver.store._session.queue, "submit", refuse)
        assert get(saver) is not None
    assert "no thread could be started" in caplog.text
    assert {"old": 1, "t": 5} == bench.active()


def test_a_refresh_never_sets_activity_back(bench: Bench) -> None:
    """It is queued, and a put in a later minute may be committed first."""
    saver = saver_of(bench, REFRESH)
    bench.clock.minute = 3
    get(saver)
    settle(saver)
    assert {"old": 1, "t": 5} == bench.active()


# --- arguments ---


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ({"default_ttl": 60}, TimeToLive(60)),
        ({"default_ttl": 60.0, "refresh_on_read": True}, TimeToLive(60, refresh_on_read=True)),
        ({"default_ttl": 0.5}, TimeToLive(1)),
        ({"default_ttl": 1.01, "refresh_on_read": False}, TimeToLive(2)),
        (TimeToLive(7, refresh_on_read=True), TimeToLive(7, refresh_on_read=True)),
    ],
)
def test_a_ttl_is_read_as_other_savers_take_it(given: Any, expected: TimeToLive | None) -> None:
    """In minutes; a part of one counts whole, so that nothing goes early."""
    assert expected == configs.ttl_of(given)


@pytest.mark.parametrize(
    ("given", "kind", "told"),
    [
        ({"default_ttl": 1, "ttl": 2}, InvalidArgumentError, "'ttl'.*'default_ttl'.*'refresh"),
        ({}, InvalidArgumentError, "default_ttl"),
        ({"refresh_on_read": True}, InvalidArgumentError, "default_ttl"),
        ({"default_ttl": 0}, InvalidArgumentError, r"got 0\).*ttl=None"),
        ({"default_ttl": -1}, InvalidArgumentError, r"got -1\)"),
        ({"default_ttl": float("nan")}, InvalidArgumentError, "nan"),
        ({"default_ttl": float("inf")}, InvalidArgumentError, "inf"),
        ({"default_ttl": "60"}, InvalidTypeError, "str"),
        ({"default_ttl": True}, InvalidTypeError, "bool"),
        ({"default_ttl": None}, InvalidTypeError, "NoneType"),
        ({"default_ttl": 1, "refresh_on_read": 1}, InvalidTypeError, "refresh_on_read.*int"),
        (60, InvalidTypeError, "int"),
    ],
)
def test_a_wrong_ttl_is_refused_at_once(given: Any, kind: type[Exception], told: str) -> None:
    """A typo must not keep threads for ever, nor delete them at once."""
    for make in (DeltaStoreSaver.ephemeral, lambda **how: DeltaStoreSaver("unused", **how)):
        with pytest.raises(kind, match=told):
            make(ttl=given)


def test_savers_hand_on_what_they_are_given(tmp_path: Path) -> None:
    """By every way to make one."""
    policy = RetentionPolicy(keep_last=3)
    how: Any = {"ttl": {"default_ttl": 2.5}, "retention": policy}
    for saver in (
        DeltaStoreSaver(tmp_path / "a", **how),
        DeltaStoreSaver.from_conn_string(str(tmp_path / "b"), **how),
        DeltaStoreSaver.ephemeral(**how),
    ):
        options = saver.store.options
        assert (TimeToLive(3), policy) == (options.ttl, options.retention)
        saver.close()
    with pytest.raises(InvalidTypeError, match="retention must be a RetentionPolicy"):
        DeltaStoreSaver(tmp_path / "c", retention=5)  # type: ignore[arg-type]
