"""How many light calls go on in one pass of a loop, in which order, and who waits in vain."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections import Counter
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deltastore import DeltaStoreSaver, StoreClosedError
from deltastore.langgraph.pace import CALLS_MAX, Pace
from deltastore.testing import make_checkpoint, make_config

CALLS = 100
CONFIG = make_config("t", "", "1")


def ready_saver() -> DeltaStoreSaver:
    saver = DeltaStoreSaver.ephemeral()
    saver.put(make_config("t"), make_checkpoint("1", {}, {}), {}, {})
    return saver


def store(saver: DeltaStoreSaver, numbers: range) -> list[asyncio.Task[None]]:
    """Begin a small call for each number, all in one pass; a task's id is its number."""
    return [asyncio.create_task(saver.aput_writes(CONFIG, [("x", n)], f"{n:03}")) for n in numbers]


def stored(saver: DeltaStoreSaver) -> list[int]:
    found = saver.get_tuple(CONFIG)
    assert found is not None
    return [value for _, _, value in found.pending_writes or ()]


class Passes:
    """Counts the passes of a running loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.number = 0
        self._loop = loop
        loop.call_soon(self._next)

    def _next(self) -> None:
        self.number += 1
        self._handle = self._loop.call_soon(self._next)

    def stop(self) -> None:
        self._handle.cancel()


def test_few_calls_are_serialized_in_a_pass_and_first_come_is_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else all that one commit wakes keep the loop from its timers, one after the other."""
    saver, dumps = ready_saver(), JsonPlusSerializer.dumps_typed
    made: list[tuple[int, Any]] = []

    async def everything() -> None:
        passes = Passes(asyncio.get_running_loop())

        def recorded(self: Any, value: Any) -> Any:
            made.append((passes.number, value))
            return dumps(self, value)

        monkeypatch.setattr(JsonPlusSerializer, "dumps_typed", recorded)
        await asyncio.gather(*store(saver, range(CALLS)))
        passes.stop()

    asyncio.run(everything())
    assert [*range(CALLS)] == [value for _, value in made]
    assert max(Counter(number for number, _ in made).values()) <= 2 * CALLS_MAX
    assert [*range(CALLS)] == stored(saver)
    saver.close()


def test_call_cancelled_while_it_waits_stores_nothing() -> None:
    """Its caller was told that it may not be done; those behind it go on."""
    saver, gone = ready_saver(), {CALLS_MAX, CALLS_MAX + 1, CALLS - 1}

    async def everything() -> None:
        tasks = store(saver, range(CALLS))
        await asyncio.sleep(0)
        for number in gone:
            tasks[number].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert gone == {n for n, e in enumerate(answers) if isinstance(e, asyncio.CancelledError)}

    asyncio.run(everything())
    assert [n for n in range(CALLS) if n not in gone] == stored(saver)
    saver.close()


def test_call_cancelled_while_it_waits_uses_up_no_turn() -> None:
    """Else a burst of clients that went away would hold up those that are there."""
    went: list[int] = []

    async def everything() -> None:
        loop, pace = asyncio.get_running_loop(), Pace()

        async def call(number: int) -> None:
            await pace.turn(loop)
            went.append(number)

        tasks = [asyncio.create_task(call(number)) for number in range(4 * CALLS_MAX)]
        await asyncio.sleep(0)
        assert [*range(CALLS_MAX)] == went
        for task in tasks[CALLS_MAX : CALLS_MAX + 8]:
            task.cancel()
        while len(went) == CALLS_MAX:  # noqa: ASYNC110 - it looks after each pass
            await asyncio.sleep(0)
        assert [*range(CALLS_MAX + 8, 2 * CALLS_MAX + 8)] == went[CALLS_MAX:]
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(everything())
    assert 4 * CALLS_MAX - 8 == len(went)


def test_saver_closed_while_calls_wait_refuses_them() -> None:
    """Also those that would have nothing to store."""
    saver = ready_saver()

    async def everything() -> list[Any]:
        tasks = store(saver, range(2 * CALLS_MAX))
        tasks.append(asyncio.create_task(saver.aput_writes(CONFIG, [], "none")))
        await asyncio.sleep(0)
        saver.close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(everything())
    assert [None] * CALLS_MAX == answers[:CALLS_MAX]
    assert {StoreClosedError} == {type(error) for error in answers[CALLS_MAX:]}


def ended_loop(saver: DeltaStoreSaver, *, in_peace: bool) -> weakref.ref[Any]:
    """Return a loop that was closed when all was done, or while calls waited."""
    loop = asyncio.new_event_loop()

    async def leave() -> None:
        tasks = store(saver, range(CALLS))
        await (asyncio.gather(*tasks) if in_peace else asyncio.sleep(0))

    loop.run_until_complete(leave())
    loop.close()
    return weakref.ref(loop)


@pytest.mark.parametrize("in_peace", [True, False])
def test_loop_that_ended_is_let_go(in_peace: bool) -> None:
    """A program may run a loop for each request; the saver outlives them all."""
    saver = ready_saver()
    before = threading.enumerate()
    gone = ended_loop(saver, in_peace=in_peace)
    if not in_peace:
        ended_loop(saver, in_peace=True)
    saver.close()
    for thread in threading.enumerate():
        if thread not in before:
            thread.join()  # it refers to what it committed last
    gc.collect()
    assert gone() is None
    assert 0 == len(saver._core._loops)
