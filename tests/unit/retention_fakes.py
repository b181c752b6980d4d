"""What tests of retention share: a clock they set, a store whose threads live by it, uses of it.

Ids and activity are told in minutes from the one that `minute_id(0)` was made in. A *use* is one
call of a saver that reads or writes; `settle` waits for what it began.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from deltastore import directory
from deltastore.engine.api import Engine
from deltastore.engine.memory import MemoryEngine
from deltastore.format import layout
from deltastore.ids import cid_from_id, cid_time_ms
from deltastore.langgraph.saver import DeltaStoreSaver
from deltastore.options import StoreOptions, TimeToLive
from deltastore.store import Store
from deltastore.testing import Caller, Lane, make_config
from deltastore.testing.retention_calls import Keeper, Thread, minute_id

_FIRST = (cid_time_ms(cid_from_id(minute_id(0))) or 0) // 60_000


class Clock:
    """Stands in for the module `time` where the store asks what minute it is."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.minute = 0
        for name in ("deltastore.session.time", "deltastore.retention.time"):
            patch.setattr(name, self)

    def time(self) -> float:
        """Return Unix time."""
        return (_FIRST + self.minute) * 60 + 30.0


class Bench:
    """An engine filled through a saver without a time to live; `open` gives stores with one."""

    def __init__(self, clock: Clock, engine: Engine | None = None) -> None:
        self.clock = clock
        self.engine = MemoryEngine() if engine is None else engine
        self.plain = Store(self.engine)
        self.keeper = Keeper(lambda: DeltaStoreSaver.on_store(self.plain))
        self.lives: dict[str, Thread] = {}

    def open(self, **options: Any) -> Store:
        """Return another store on the engine."""
        return Store(self.engine, StoreOptions(**options))

    def live(self, thread_id: str, *minutes: int, ns: str = "", size: int = 300) -> None:
        """Put a checkpoint in each of some minutes, each with a document that does not compress."""
        life = self.lives.setdefault(thread_id + ns, Thread(self.keeper, thread_id, ns))
        for minute in minutes:
            self.clock.minute = minute
            parent = max(life.minutes(limit=1), default=None)
            rng = random.Random(f"{thread_id} {ns} {minute}")
            log = None if parent is None else [f"{minute}"]
            life.superstep(minute, parent, log=log, doc=rng.randbytes(size).hex())

    def threads(self) -> set[str]:
        """Return the threads that are listed."""
        return {one.thread_id for one in self.plain.threads(limit=10_000).threads}

    def bytes(self, *thread_ids: str) -> int:
        """Return the bytes of threads."""
        return sum(self.plain.thread_bytes(one)[1] for one in thread_ids)

    def records(self) -> list[tuple[bytes, bytes]]:
        """Return every record of the store but those that show that there is one."""
        with self.engine.begin(write=False) as txn:
            return txn.scan(bytes([layout.TAG_THREAD]), b"\xff")

    def active(self) -> dict[str, int]:
        """Return the minute of each thread's last activity, oldest first."""
        with self.engine.begin(write=False) as txn:
            found = directory.scan_active(txn, b"", 10_000)[::-1]
            return {directory.thread_id_of(txn, one): minute - _FIRST for _, minute, one in found}


IDLE = TimeToLive(10)
REFRESH = TimeToLive(10, refresh_on_read=True)
Use = Callable[[DeltaStoreSaver], object]


def filled(bench: Bench) -> Bench:
    """Make the threads `old` and `t`, last active in minutes 1 and 5."""
    bench.live("old", 0, 1)
    bench.live("t", 4, 5)
    return bench


def saver_of(bench: Bench, ttl: TimeToLive = IDLE, **options: Any) -> DeltaStoreSaver:
    """Return a saver with a time to live."""
    return DeltaStoreSaver.on_store(bench.open(ttl=ttl, **options))


def settle(saver: DeltaStoreSaver) -> None:
    """Wait for the async calls, for the sweep begun last and for what is queued."""
    executor, saver._core._executor = saver._core._executor, None
    if executor is not None:
        executor.shutdown()
    saver.store._sweeper.wait()
    saver.store._session.queue.flush()


def put(saver: DeltaStoreSaver, minute: int = 20) -> None:
    """Put a checkpoint into the thread `new`."""
    Lane(Caller(lambda: saver), "new").put(minute_id(minute))


def get(saver: DeltaStoreSaver, thread_id: str = "t") -> object:
    """Read a thread's newest checkpoint."""
    return saver.get_tuple(make_config(thread_id))


def list_thread(saver: DeltaStoreSaver) -> object:
    """List the thread `t`."""
    return list(saver.list(make_config("t")))


def list_all(saver: DeltaStoreSaver) -> object:
    """List every thread."""
    return list(saver.list(None))


def history(saver: DeltaStoreSaver) -> object:
    """Read a history of the thread `t`."""
    return saver.get_delta_channel_history(config=make_config("t"), channels=["log"])


def put_writes(saver: DeltaStoreSaver) -> None:
    """Write to the thread `t`."""
    saver.put_writes(make_config("t", "", minute_id(5)), [("log", ["w"])], "task")


def running(use: Callable[[DeltaStoreSaver], Coroutine[Any, Any, object]]) -> Use:
    """Return an async use as a sync one."""
    return lambda saver: asyncio.run(use(saver))


async def _alist(saver: DeltaStoreSaver) -> object:
    return [one async for one in saver.alist(make_config("t"))]


READS: dict[str, Use] = {
    "get": get,
    "list": list_thread,
    "history": history,
    "aget": running(lambda saver: saver.aget_tuple(make_config("t"))),
    "alist": running(_alist),
    "ahistory": running(
        lambda saver: saver.aget_delta_channel_history(config=make_config("t"), channels=["log"])
    ),
}
WRITES: dict[str, Use] = {
    "put": put,
    "put_writes": put_writes,
    "aput_writes": running(
        lambda saver: saver.aput_writes(
            make_config("t", "", minute_id(5)), [("log", ["w"])], "task"
        )
    ),
}


def hooked(step: int, hook: Callable[[], None]) -> Callable[[int, int], None]:
    """Return a progress callback that calls `hook` at its `step`-th call."""
    calls = 0

    def progress(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls == step:
            hook()

    return progress


def fill(bench: Bench) -> None:
    """Make five threads, `a` longest idle and `e` active now."""
    for place, thread_id in enumerate("cabed"):
        bench.live(thread_id, 1, size=200 * (place + 1))
    for minute, thread_id in enumerate("abcde", 2):
        bench.live(thread_id, minute)
