"""Laws of the async methods: they do what their sync twins do, off the loop, whoever gives up.

A *gate* is an engine that holds transactions back until it is opened, so that a test decides what
is under way when something else happens; nothing waits for time to pass.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deltastore import DeltaStoreSaver, StoreClosedError
from deltastore.engine.lmdb import LmdbEngine
from deltastore.engine.memory import MemoryEngine, MemoryTransaction
from deltastore.store import Store
from deltastore.testing import (
    Caller,
    Lane,
    history_shape,
    make_checkpoint,
    make_config,
    shape,
    tuple_shape,
)

T = TypeVar("T")
HANGS_AFTER_SECONDS = 60
# More than is prepared in the transaction that stores it, so that it is planned in a view.
STATE = [f"message {n}: " + "text of some length " * 200 for n in range(20)]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, or fail if there is none."""
    return asyncio.run(asyncio.wait_for(work, HANGS_AFTER_SECONDS))


def lane_of(saver: DeltaStoreSaver) -> Lane:
    return Lane(Caller(lambda: saver))


async def aput(saver: DeltaStoreSaver, thread: str, n: int, parent: int | None) -> Any:
    checkpoint = make_checkpoint(f"{n:03}", {"x": n + 1}, {"x": [*STATE, n]})
    config = make_config(thread, "", None if parent is None else f"{parent:03}")
    return await saver.aput(config, checkpoint, {"step": n}, {"x": n + 1})


async def aconversation(saver: DeltaStoreSaver, thread: str, count: int) -> None:
    for n in range(count):
        await aput(saver, thread, n, n - 1 if n else None)
        config = make_config(thread, "", f"{n:03}")
        await asyncio.gather(
            *(saver.aput_writes(config, [("x", [n, k])], f"task {k}", f"~{k}") for k in range(3))
        )


def conversation(saver: DeltaStoreSaver, thread: str, count: int) -> None:
    for n in range(count):
        checkpoint = make_checkpoint(f"{n:03}", {"x": n + 1}, {"x": [*STATE, n]})
        config = make_config(thread, "", f"{n - 1:03}" if n else None)
        saver.put(config, checkpoint, {"step": n}, {"x": n + 1})
        for k in range(3):
            config = make_config(thread, "", f"{n:03}")
            saver.put_writes(config, [("x", [n, k])], f"task {k}", f"~{k}")


def seen(saver: DeltaStoreSaver, thread: str) -> Any:
    return [tuple_shape(found) for found in saver.list(make_config(thread))]


# --- twins ---


def test_async_methods_store_what_sync_ones_store() -> None:
    """One class, two faces: whichever wrote, both read the same."""
    one, other = DeltaStoreSaver.ephemeral(), DeltaStoreSaver.ephemeral()
    conversation(one, "t", 8)
    run(aconversation(other, "t", 8))
    assert seen(one, "t") == seen(other, "t")
    assert one.store.verify() == other.store.verify()


def test_async_methods_read_what_sync_ones_read() -> None:
    """Tuples, listings with every argument, histories; absent things are absent."""
    saver = DeltaStoreSaver.ephemeral()
    conversation(saver, "t", 8)
    configs = [
        make_config("t"),
        make_config("t", "", "003"),
        make_config("t", "", "9"),
        make_config("u"),
    ]
    listings: list[dict[str, Any]] = [
        {},
        {"limit": 3},
        {"filter": {"step": 4}},
        {"before": make_config("t", "", "005"), "limit": 2},
    ]

    async def read() -> list[Any]:
        tuples = [tuple_shape(await saver.aget_tuple(config)) for config in configs]
        lists = []
        for arguments in listings:
            rows = saver.alist(make_config("t"), **arguments)
            lists.append([tuple_shape(found) async for found in rows])
        told = [
            history_shape(await saver.aget_delta_channel_history(config=c, channels=["x", "y"]))
            for c in configs
        ]
        return [tuples, lists, told]

    history = saver.get_delta_channel_history
    expected = [
        [tuple_shape(saver.get_tuple(config)) for config in configs],
        [[tuple_shape(f) for f in saver.list(make_config("t"), **a)] for a in listings],
        [history_shape(history(config=c, channels=["x", "y"])) for c in configs],
    ]
    assert expected == run(read())


def test_async_walk_by_tuples_reads_what_sync_ones_read() -> None:
    """Hosts walk a history with `aget_tuple` alone, parent by parent, also while it grows."""
    saver = DeltaStoreSaver.ephemeral()
    conversation(saver, "t", 40)

    async def walk() -> list[Any]:
        found = []
        config: Any = make_config("t", "", "030")
        while config is not None:
            at = await saver.aget_tuple(config)
            assert at is not None
            found.append(tuple_shape(at))
            at.checkpoint["channel_values"].clear()
            config = at.parent_config
            number = 31 - len(found)
            if number % 5 == 0:
                late = make_config("t", "", f"{number - 3:03}")
                await saver.aput_writes(late, [("x", "late")], "late task")
        return found

    found = run(walk())
    assert 31 == len(found)
    again = [
        tuple_shape(saver.get_tuple(make_config("t", "", f"{n:03}"))) for n in range(30, -1, -1)
    ]
    assert again[4:] == found[4:]


def test_async_errors_are_those_of_sync_methods() -> None:
    """They cross two threads and keep their type and text."""
    saver = DeltaStoreSaver.ephemeral()
    odd: Any = make_config("t", "", "1")
    odd["configurable"]["thread_id"] = 1.5
    checkpoint = make_checkpoint("1", {}, {})
    calls: list[tuple[Callable[[], object], Callable[[], Awaitable[object]]]] = [
        (lambda: saver.get_tuple(odd), lambda: saver.aget_tuple(odd)),
        (lambda: saver.put(odd, checkpoint, {}, {}), lambda: saver.aput(odd, checkpoint, {}, {})),
        (lambda: saver.put_writes(odd, [], "t"), lambda: saver.aput_writes(odd, [], "t")),
        (lambda: saver.delete_thread(1.5), lambda: saver.adelete_thread(1.5)),  # type: ignore[arg-type]
        (lambda: [*saver.list(odd)], lambda: anext(aiter(saver.alist(odd)))),
    ]

    async def caught(call: Callable[[], Awaitable[object]]) -> BaseException:
        with pytest.raises(Exception) as error:
            await call()
        return error.value

    for call, acall in calls:
        with pytest.raises(Exception) as expected:
            call()
        found = run(caught(acall))
        assert (type(expected.value), str(expected.value)) == (type(found), str(found))


# --- the loop does no work ---


class RecordingEngine(MemoryEngine):
    """Remembers which threads began transactions, looked, or closed it."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def begin(self, *, write: bool, scope: bytes = b"") -> MemoryTransaction:
        self.threads.add(threading.get_ident())
        return super().begin(write=write, scope=scope)

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        super().close()


class RecordingSerializer(JsonPlusSerializer):
    """Remembers which threads serialized a value."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        self.threads.add(threading.get_ident())
        return super().dumps_typed(obj)


def test_nothing_runs_on_the_loops_thread() -> None:
    """A commit, or a value of some megabytes, would stop every other task of a server."""
    engine, serde = RecordingEngine(), RecordingSerializer()

    async def everything() -> int:
        async with DeltaStoreSaver.on_store(Store(engine), serde=serde) as saver:
            await aconversation(saver, "t", 3)
            config = make_config("t", "", "001")
            await saver.aget_tuple(config)
            await saver.aget_delta_channel_history(config=config, channels=["x"])
            assert 3 == len([found async for found in saver.alist(make_config("t"))])
            await saver.adelete_thread("t")
        return threading.get_ident()

    loop_thread = run(everything())
    assert loop_thread not in engine.threads
    assert loop_thread not in serde.threads
    assert engine.threads
    assert serde.threads


# --- giving up ---


class GatedEngine(MemoryEngine):
    """Holds back the next transaction of one kind until it is let through."""

    def __init__(self) -> None:
        super().__init__()
        self.holds: bool | None = None  # the `write` of what is held back
        self.held = threading.Event()
        self.opened = threading.Event()

    def begin(self, *, write: bool, scope: bytes = b"") -> MemoryTransaction:
        if self.holds is write:
            self.holds = None
            self.held.set()
            assert self.opened.wait(HANGS_AFTER_SECONDS)
        return super().begin(write=write, scope=scope)


async def wait_for(event: threading.Event) -> None:
    """Wait without occupying the loop or the default executor, which shuts down with the loop."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(event.wait, HANGS_AFTER_SECONDS)
        assert await asyncio.wrap_future(waiting)


@pytest.mark.parametrize("stage", ["before it began", "while planned", "while committed"])
@pytest.mark.parametrize("what", ["put", "writes", "again", "delete"])
def test_cancelled_call_is_done_or_not_and_may_be_repeated(stage: str, what: str) -> None:
    """A client that went away must leave neither half a checkpoint nor a stuck store."""
    engine = GatedEngine()
    saver = DeltaStoreSaver.on_store(Store(engine))
    conversation(saver, "t", 3)

    async def call() -> None:
        if what == "put":
            await aput(saver, "t", 3, 2)
        elif what == "again":
            await aput(saver, "t", 1, None)
        elif what == "writes":
            config = make_config("t", "", "001")
            await saver.aput_writes(config, [("x", STATE), ("y", 1)], "more")
        else:
            await saver.adelete_thread("t")

    async def cancelled() -> None:
        engine.holds = None if stage == "before it began" else stage == "while committed"
        task = asyncio.ensure_future(call())
        if engine.holds is not None and (what, stage) != ("delete", "while planned"):
            await wait_for(engine.held)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        engine.holds = None
        engine.opened.set()

    before = seen(saver, "t")
    run(cancelled())
    # Its op is in the queue, or never will be once the threads of async calls are done.
    executor = saver._core._executor
    if executor is not None:
        saver._core._executor = None
        executor.shutdown(wait=True)
    saver.store._session.queue.flush()
    left = seen(saver, "t")
    run(call())
    after = seen(saver, "t")
    assert left in (before, after)
    assert before != after
    assert [] == saver.store.verify().damage
    run(call())
    assert after == seen(saver, "t")


def test_cancelled_listing_leaves_the_saver_usable() -> None:
    """The page it asked for is read to its end by nobody."""
    engine = GatedEngine()
    saver = DeltaStoreSaver.on_store(Store(engine))
    conversation(saver, "t", 5)

    async def cancelled() -> int:
        engine.holds = False

        async def listed() -> list[Any]:
            return [found async for found in saver.alist(make_config("t"))]

        task = asyncio.ensure_future(listed())
        await wait_for(engine.held)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        engine.opened.set()
        return len([found async for found in saver.alist(make_config("t"))])

    assert 5 == run(cancelled())
    saver.close()


def test_loop_that_ends_before_its_commit_disturbs_nobody() -> None:
    """The answer finds no loop to go to; the write is stored, the next loop works."""
    engine = GatedEngine()
    saver = DeltaStoreSaver.on_store(Store(engine))
    conversation(saver, "t", 1)
    engine.holds = True

    async def leave() -> None:
        task = asyncio.ensure_future(aput(saver, "t", 1, 0))
        await wait_for(engine.held)
        task.cancel()

    run(leave())
    engine.opened.set()
    run(aput(saver, "t", 2, 1))
    assert ["002", "001", "000"] == lane_of(saver).ids()
    saver.close()


# --- sharing ---


def test_many_loops_and_threads_share_one_saver(tmp_path: Path) -> None:
    """Servers run a loop a thread on one saver, beside sync callers."""
    alone = DeltaStoreSaver.ephemeral()
    conversation(alone, "t", 6)
    expected = shape([one["checkpoint"] for one in seen(alone, "t")])
    errors: list[BaseException] = []
    with DeltaStoreSaver(tmp_path / "store", durability="normal") as saver:

        async def several(name: str) -> None:
            await asyncio.gather(*(aconversation(saver, f"{name}.{k}", 6) for k in range(4)))

        def work(name: str) -> None:
            try:
                if name.startswith("loop"):
                    run(several(name))
                else:
                    conversation(saver, name, 6)
            except BaseException as error:  # noqa: BLE001 - told to the main thread
                errors.append(error)

        names = [f"loop {k}" for k in range(4)] + ["sync 0", "sync 1"]
        threads = [threading.Thread(target=work, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANGS_AFTER_SECONDS)
            assert not thread.is_alive()
        assert [] == errors
        made = [f"loop {k}.{n}" for k in range(4) for n in range(4)] + names[4:]
        for name in made:
            assert expected == shape([one["checkpoint"] for one in seen(saver, name)])
        assert sorted(made) == sorted(one.thread_id for one in saver.store.threads().threads)
        assert [] == saver.store.verify().damage


def test_one_checkpoint_from_many_tasks_is_stored_once() -> None:
    """Retries meet their first attempts; each answers as if it had been alone."""
    saver = DeltaStoreSaver.ephemeral()
    conversation(saver, "t", 2)

    async def together() -> list[Any]:
        puts = [aput(saver, "t", 2, 1) for _ in range(20)]
        writes = [
            saver.aput_writes(make_config("t", "", "002"), [("x", k % 2)], f"task {k % 4}")
            for k in range(20)
        ]
        return await asyncio.gather(*puts, *writes)

    answers = run(together())
    assert [make_config("t", "", "002")] * 20 + [None] * 20 == answers
    assert ["task 0", "task 1", "task 2", "task 3"] == [w[0] for w in lane_of(saver).pending("002")]
    assert [] == saver.store.verify().damage


# --- closing ---


def test_close_waits_for_calls_under_way_and_refuses_later_ones(tmp_path: Path) -> None:
    """What was acknowledged is there after a restart; nothing hangs; the rest is told."""

    class Gated(LmdbEngine):
        held, opened = threading.Event(), threading.Event()

        def begin(self, *, write: bool, scope: bytes = b"") -> Any:
            if write and self.armed:
                self.held.set()
                assert self.opened.wait(HANGS_AFTER_SECONDS)
            return super().begin(write=write, scope=scope)

        armed = False

    engine = Gated(tmp_path / "store")
    saver = DeltaStoreSaver.on_store(Store(engine))
    conversation(saver, "t", 1)

    async def closing() -> list[Any]:
        engine.armed = True
        calls = [asyncio.ensure_future(aput(saver, "t", n, 0)) for n in range(1, 9)]
        await wait_for(engine.held)
        closer = ThreadPoolExecutor(1)
        closed = asyncio.wrap_future(closer.submit(saver.close))
        while not saver._core._closed:  # noqa: ASYNC110 - close() tells nobody that it began
            await asyncio.sleep(0)
        with pytest.raises(StoreClosedError):
            await aput(saver, "t", 99, 0)
        engine.opened.set()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        await closed
        closer.shutdown()
        with pytest.raises(StoreClosedError):
            await saver.aget_tuple(make_config("t"))
        return answers

    answers = run(closing())
    stored = {a["configurable"]["checkpoint_id"] for a in answers if isinstance(a, dict)}
    refused = [a for a in answers if not isinstance(a, dict)]
    assert 1 <= len(stored)
    assert all(isinstance(error, StoreClosedError) for error in refused)
    with DeltaStoreSaver(tmp_path / "store") as again:
        assert sorted({*stored, "000"}, reverse=True) == lane_of(again).ids()
        assert [] == again.store.verify().damage


@pytest.mark.parametrize(("call", "checks"), [("put", 1), ("put", 2), ("get", 1)])
def test_close_at_any_moment_finishes_or_refuses(
    call: str, checks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also just before the call is handed to its thread: an error by name, and no other."""
    saver = DeltaStoreSaver.ephemeral()
    conversation(saver, "t", 1)
    check, left = saver.store.check, [None] * checks

    def check_then_close() -> None:
        check()
        left.pop()
        if left:
            return
        monkeypatch.setattr(saver.store, "check", check)
        saver.close()

    monkeypatch.setattr(saver.store, "check", check_then_close)
    with pytest.raises(StoreClosedError):
        run(aput(saver, "t", 1, 0) if call == "put" else saver.aget_tuple(make_config("t")))


def test_call_is_handed_over_under_the_lock_that_closes() -> None:
    """Else the threads could end in between, and the call die with an error nobody documented."""
    saver = DeltaStoreSaver.ephemeral()
    conversation(saver, "t", 1)
    run(aput(saver, "t", 1, 0))
    executor = saver._core._executor
    assert executor is not None
    submit, locked = executor.submit, []

    def watched(*arguments: Any) -> Any:
        locked.append(saver._core._lock.locked())
        return submit(*arguments)

    executor.submit = watched  # type: ignore[method-assign, assignment]
    run(aput(saver, "t", 2, 1))
    run(saver.aget_tuple(make_config("t")))
    assert [True, True] == locked
    saver.close()


def test_closing_twice_and_from_many_threads_is_no_error() -> None:
    """A server's shutdown hooks do not know of each other."""
    saver = DeltaStoreSaver.ephemeral()
    run(aconversation(saver, "t", 2))
    with ThreadPoolExecutor(8) as pool:
        closings = [pool.submit(saver.close) for _ in range(8)]
        assert [None] * 8 == [closing.result(HANGS_AFTER_SECONDS) for closing in closings]
    with pytest.raises(StoreClosedError):
        saver.get_tuple(make_config("t"))
