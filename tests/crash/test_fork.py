"""A saver that is open when the process forks: the child is told, and can always let go."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from langgraph.checkpoint.base.id import uuid6

from deltastore import DeltaStoreSaver, ForkedStoreError

CONFIG = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
META = {"source": "loop", "step": 0, "parents": {}}


def checkpoint() -> dict[str, object]:
    return {
        "v": 4,
        "id": str(uuid6()),
        "ts": "2026-01-02T03:04:05.000006+00:00",
        "channel_values": {"x": 1},
        "channel_versions": {"x": 1},
        "versions_seen": {},
        "updated_channels": None,
    }


def in_child(body: Callable[[], None]) -> int:
    """Run `body` in a forked child that an alarm ends; return its exit code, -14 for a hang."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(20)
            body()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def saver(tmp_path: Path) -> DeltaStoreSaver:
    saver = DeltaStoreSaver(tmp_path / "store")
    saver.put(CONFIG, checkpoint(), META, {"x": 1})
    return saver


def test_a_child_is_refused_and_may_close(saver: DeltaStoreSaver) -> None:
    """`with` blocks end in children too: closing must neither raise, hang nor touch the parent."""

    def body() -> None:
        for call in (
            lambda: saver.get_tuple(CONFIG),
            lambda: saver.put(CONFIG, checkpoint(), META, {"x": 1}),
            lambda: asyncio.run(saver.aget_tuple(CONFIG)),
        ):
            with pytest.raises(ForkedStoreError):
                call()
        saver.close()
        saver.close()

    with saver:
        assert 0 == in_child(body)
        saver.put(CONFIG, checkpoint(), META, {"x": 1})
        assert 2 == len(list(saver.list(CONFIG)))


def test_a_child_forked_under_load_may_close(saver: DeltaStoreSaver) -> None:
    """Other threads may hold every lock at that moment; the child's copies are never released."""
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            saver.put(CONFIG, checkpoint(), META, {"x": 1})

    threads = [threading.Thread(target=write) for _ in range(4)]
    with saver:
        for thread in threads:
            thread.start()
        codes = [in_child(saver.close) for _ in range(10)]
        stop.set()
        for thread in threads:
            thread.join()
        assert [0] * 10 == codes
        assert saver.get_tuple(CONFIG) is not None
