"""What an async write does on the loop's own thread, and how often the loop is woken."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deltastore import DeltaStoreSaver
from deltastore.engine.memory import MemoryEngine, MemoryTransaction
from deltastore.langgraph.light import is_light
from deltastore.langgraph.mailbox import Mailbox
from deltastore.store import Store
from deltastore.testing import make_checkpoint, make_config


class RecordingEngine(MemoryEngine):
    """Notes the threads that begin transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def begin(self, *, write: bool, scope: bytes = b"") -> MemoryTransaction:
        self.threads.add(threading.get_ident())
        return super().begin(write=write, scope=scope)


class Changing:
    """As a value that another thread changes while it is looked into."""

    __dataclass_fields__: ClassVar[dict[str, Any]] = {}

    def __init__(self, owner: dict[str, Any]) -> None:
        self._owner = owner

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":
            owner = object.__getattribute__(self, "_owner")
            owner[str(len(owner))] = None
            return {}
        return object.__getattribute__(self, name)


def test_what_another_thread_changes_is_not_light() -> None:
    """Looking into it must not be what fails."""
    owner: dict[str, Any] = {}
    owner["changing"] = Changing(owner)
    owner["other"] = None
    assert not is_light([owner])
    assert 3 == len(owner)


@pytest.mark.parametrize("kind", ["light", "chat", "long", "many", "unknown"])
def test_what_is_light_is_serialized_on_the_loop(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """To hand it to a thread takes longer. The engine is on no account used there."""
    values: dict[str, Any] = {
        "light": [HumanMessage("hi", id="1"), {"a": (1, None, b"x")}],
        "chat": [HumanMessage("about a sentence of words", id=str(n)) for n in range(40)],
        "long": "x" * 300_000,
        "many": [[]] * 20_000,
        "unknown": uuid4(),
    }
    engine, threads = RecordingEngine(), []
    dumps = JsonPlusSerializer.dumps_typed

    def recorded(self: Any, value: Any) -> Any:
        threads.append(threading.get_ident())
        return dumps(self, value)

    async def everything() -> int:
        async with DeltaStoreSaver.on_store(Store(engine)) as saver:
            saver.setup()
            engine.threads.clear()
            monkeypatch.setattr(JsonPlusSerializer, "dumps_typed", recorded)
            made = make_checkpoint("1", {"x": 1}, {"x": values[kind], "y": "not new " * 100_000})
            config = await saver.aput(make_config("t"), made, {}, {"x": 1})
            await saver.aput_writes(config, deque([("x", values[kind])]), "task")
        return threading.get_ident()

    loop_thread = asyncio.run(everything())
    assert {kind in ("light", "chat")} == {thread == loop_thread for thread in threads}
    assert loop_thread not in engine.threads


def test_one_commit_wakes_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waking it takes a system call, and lets it take the interpreter from who tells others."""
    wakes = []

    async def everything() -> None:
        loop = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe
        monkeypatch.setattr(
            loop, "call_soon_threadsafe", lambda *call: wakes.append(call) or wake(*call)
        )
        mailbox, futures = Mailbox(), [loop.create_future() for _ in range(5)]
        for number, future in enumerate(futures):
            mailbox.put(future, number, None)()
        assert [*range(5)] == await asyncio.gather(*futures)
        late = loop.create_future()
        mailbox.put(late, None, ValueError("late"))()
        late.cancel()
        last = loop.create_future()
        mailbox.put(last, "last", None)()
        assert "last" == await last

    asyncio.run(everything())
    assert 2 == len(wakes)
