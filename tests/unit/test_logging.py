"""What is logged: slow operations and events, by name and size; nothing of the user's values."""

from __future__ import annotations

import logging
import random
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from deltastore import (
    DeltaStoreError,
    DeltaStoreSaver,
    InvalidArgumentError,
    InvalidTypeError,
    Store,
    StoreOptions,
    TimeToLive,
    sweeper,
)
from deltastore.engine import lmdb_events
from deltastore.engine.lmdb import LmdbEngine
from deltastore.engine.memory import MemoryEngine
from deltastore.testing import Caller, Lane
from deltastore.testing.faults import FailingEngine
from deltastore.testing.strategies import checkpoint_id

MARKER = "c0ffee-secret"


def use(saver: DeltaStoreSaver, *, asynchronous: bool = False) -> None:
    """Make every kind of call, with a marker in all that is the user's; some calls are refused."""
    caller = Caller(lambda: saver, asynchronous=asynchronous)
    lane = Lane(caller)

    def attempt(call: Callable[[], object]) -> None:
        with suppress(DeltaStoreError):
            call()

    for n in range(6):
        values = {"x": [f"{MARKER} {k}" * 40 for k in range(n)], "y": MARKER}
        attempt(
            lambda n=n, values=values: lane.put(
                checkpoint_id(n),
                checkpoint_id(n - 1) if n else None,
                new={"x": n + 1, "y": n + 1},
                values=values,
                metadata={"note": MARKER, "run_id": "run"},
            )
        )
        attempt(lambda n=n: lane.write(checkpoint_id(n), [("x", [MARKER * 30]), ("y", MARKER)]))
    config = lane.config(checkpoint_id(5))
    refused: list[Callable[[], object]] = [
        lambda: lane.put(checkpoint_id(9), checkpoint_id(1), new={"x": 9}, values={"x": MARKER}),
        lambda: lane.put(checkpoint_id(9), "p", new={"x": object()}, values={"x": MARKER}),
        lambda: lane.put(checkpoint_id(9), "p", new={"x": 1}, values={"x": lambda: MARKER}),
        lambda: caller.put_writes(config, [("x", lambda: MARKER)], "task"),
        lambda: caller.put_writes(config, MARKER, "task"),  # type: ignore[arg-type]  # on purpose
        lambda: lane.caller.saver.get_next_version(MARKER, None),
    ]
    reads: list[Callable[[], object]] = [
        lambda: lane.ids(filter={"note": MARKER}),
        lambda: lane.read(checkpoint_id(4)),
        lambda: caller.history(config, ["x", "y"]),
        saver.store.threads,
        lambda: saver.store.thread_bytes("t"),
        lambda: saver.store.thread_stats("t"),
        saver.store.verify,
        saver.store.stats,
    ]
    upkeep: list[Callable[[], object]] = [
        lambda: saver.copy_thread("t", "copy"),
        saver.compact,
        lambda: saver.prune(["t"], keep_last=2),
        lambda: saver.delete_for_runs(["run"]),
        saver.apply_retention,
        lambda: saver.delete_thread("copy"),
        saver.vacuum,
    ]
    for call in (*refused, *reads, *upkeep):
        with suppress(TypeError, ValueError):
            attempt(call)
    caller.close()


def everything(caplog: pytest.LogCaptureFixture) -> str:
    """Return all that any handler could print of the records."""
    formatter = logging.Formatter("%(name)s %(levelname)s %(message)s")
    lines = [formatter.format(record) for record in caplog.records]
    return "\n".join([*lines, *(repr(vars(record)) for record in caplog.records)])


@pytest.mark.damaged  # code under the store is replaced
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("kind", ["lmdb", "memory"])
def test_no_value_metadata_or_write_is_ever_logged(
    kind: str, asynchronous: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Logs go to places that conversations must not go to, under errors as well."""
    caplog.set_level(logging.DEBUG)
    options = StoreOptions(slow_seconds=0, ttl=TimeToLive(minutes=1))
    for fail_at in (0, 5, 40, 80, 160, 320, 640):
        engine: Any = MemoryEngine() if kind == "memory" else LmdbEngine(tmp_path / str(fail_at))
        store = Store(FailingEngine(engine, fail_at), options)
        saver = DeltaStoreSaver.on_store(store)
        use(saver, asynchronous=asynchronous)
        saver.close()
    text = everything(caplog)
    for operation in (
        "put", "put_writes", "get", "history", "threads", "thread_bytes", "thread_stats", "verify",
        "copy_thread", "compact", "prune", "delete_for_runs", "apply_retention", "delete_thread",
        "vacuum", "commit",
    ):  # fmt: skip
        assert f"slow {operation}: " in text
    assert "failed=EngineError" in text
    assert MARKER not in text
    assert MARKER.encode().hex() not in text


def test_a_slow_operation_is_told_with_thread_duration_and_sizes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is what an operator has when a user says that it hung yesterday."""
    store = Store(MemoryEngine(), StoreOptions(slow_seconds=0))
    lane = Lane(Caller(lambda: DeltaStoreSaver.on_store(store)), "a thread")
    with caplog.at_level(logging.WARNING, "deltastore"):
        lane.put("1", new={"x": 1}, values={"x": "x" * 500})
        lane.read("1")
    told = [one.getMessage() for one in caplog.records]
    assert {("deltastore.slow", logging.WARNING)} == {(r.name, r.levelno) for r in caplog.records}
    assert any(
        re.fullmatch(r"slow put: \d+\.\d{3} s thread='a thread' bytes=50\d", one) for one in told
    )
    assert any(re.fullmatch(r"slow commit: \S+ s ops=1 records=\d+ bytes=\d+", one) for one in told)
    assert any(
        re.fullmatch(r"slow get: \S+ s thread='a thread' checkpoints=1", one) for one in told
    )


def test_an_async_operation_is_timed_to_its_commit(caplog: pytest.LogCaptureFixture) -> None:
    """It is handed over to another thread, and slow all the same."""
    store = Store(MemoryEngine(), StoreOptions(slow_seconds=0))
    caller = Caller(lambda: DeltaStoreSaver.on_store(store), asynchronous=True)
    with caplog.at_level(logging.WARNING, "deltastore"):
        Lane(caller).put("1", new={"x": 1}, values={"x": 1})
        Lane(caller).write("1", [("x", 1)])
    caller.close()
    told = " ".join(one.getMessage() for one in caplog.records)
    assert "slow put: " in told
    assert "slow put_writes: " in told


@pytest.mark.parametrize("seconds", [None, 3_600, 1e9])
def test_nothing_quick_is_told(seconds: float | None, caplog: pytest.LogCaptureFixture) -> None:
    """A log of everything is read by nobody."""
    store = Store(MemoryEngine(), StoreOptions(slow_seconds=seconds))
    lane = Lane(Caller(lambda: DeltaStoreSaver.on_store(store)))
    with caplog.at_level(logging.WARNING):
        lane.put("1", new={"x": 1}, values={"x": 1})
        lane.read("1")
    assert "" == caplog.text


@pytest.mark.parametrize("value", [-1, -0.1, float("inf"), float("nan")])
def test_slow_seconds_are_a_duration(value: float) -> None:
    """None is how the log is turned off."""
    with pytest.raises(InvalidArgumentError, match="slow_seconds must be at least 0"):
        StoreOptions(slow_seconds=value)


@pytest.mark.parametrize("value", [True, "1", [1]])
def test_slow_seconds_are_a_number(value: Any) -> None:
    """As for every other option."""
    with pytest.raises(InvalidTypeError, match="slow_seconds must be a number"):
        StoreOptions(slow_seconds=value)


def test_events_are_told_once_each(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Opened, map grown, deleted, moved: what one looks for when a graph of sizes has a step."""
    caplog.set_level(logging.INFO, "deltastore")
    engine = LmdbEngine(tmp_path / "s", _map_size=1 << 20)
    saver = DeltaStoreSaver.on_store(Store(engine))
    lane = Lane(Caller(lambda: saver))
    rng = random.Random(1)
    for n in range(6):
        lane.put(
            str(n), str(n - 1) if n else None, new={"x": n}, values={"x": rng.randbytes(300_000)}
        )
    saver.delete_thread("t")
    saver.vacuum()
    saver.close()
    told = [one.getMessage() for one in caplog.records]
    for what, least in (
        ("opened generation 1", 1),
        ("map grown to", 1),
        ("reclaimed what was deleted, in", 1),
        ("moved from generation 1 to 2", 1),
        ("vacuum: ", 1),
    ):
        assert least <= sum(what in one for one in told), what
    assert 1 == sum("opened generation 1" in one for one in told)


def test_expired_threads_are_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Threads that go by themselves must leave a trace."""
    caplog.set_level(logging.INFO, "deltastore")
    minute = 1_000_000
    monkeypatch.setattr("time.time", lambda: minute * 60.0)
    store = Store(MemoryEngine(), StoreOptions(ttl=TimeToLive(minutes=5)))
    saver = DeltaStoreSaver.on_store(store)
    for name in ("a", "b"):
        Lane(Caller(lambda: saver), name).put("1", new={"x": 1}, values={"x": 1})
    store._sweeper.wait()
    minute += 30
    Lane(Caller(lambda: saver), "c").put("1", new={"x": 1}, values={"x": 1})
    store._sweeper.wait()
    assert "2 expired threads deleted" in caplog.text
    assert sweeper._logger.name in {one.name for one in caplog.records}


def test_a_library_prints_nothing_by_itself(tmp_path: Path) -> None:
    """Without a handler Python prints warnings to stderr; the package brings one that does not."""
    program = (
        "import sys; from deltastore import DeltaStoreSaver\n"
        "with DeltaStoreSaver(sys.argv[1], slow_seconds=0) as saver: saver.setup(); "
        "saver.delete_thread('t')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "s")],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        timeout=120,
    )
    assert (0, "", "") == (ran.returncode, ran.stdout, ran.stderr)


def test_cleared_readers_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """Killed processes show here; none is no line."""
    caplog.set_level(logging.INFO, "deltastore")
    lmdb_events.cleared(Path("s"), 0)
    assert "" == caplog.text
    lmdb_events.cleared(Path("s"), 3)
    assert "cleared 3 stale readers" in caplog.text
