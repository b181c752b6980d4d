"""Opening and closing leaves nothing behind in the process: no descriptor, no thread, no map."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import pytest

from deltastore import DeltaStoreSaver
from deltastore.testing import Caller, Lane

STORES = 200


def held(where: Path, others: set[threading.Thread]) -> tuple[int, list[str], int]:
    """Return the descriptors and maps of files in a directory, and the threads, that there are.

    Args:
        others: Threads that are not counted: those of earlier tests may end meanwhile.
    """
    gc.collect()
    files = [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    threads = sorted(one.name for one in {*threading.enumerate()} - others)
    maps = Path("/proc/self/maps").read_text("utf-8").count(str(where))
    return sum(one.startswith(str(where)) for one in files), threads, maps


def use(saver: DeltaStoreSaver, *, asynchronous: bool) -> None:
    caller = Caller(lambda: saver, asynchronous=asynchronous)
    lane = Lane(caller)
    lane.put("1", new={"x": 1}, values={"x": "value " * 300})
    lane.write("1", [("x", 2)])
    lane.put("2", "1", new={"x": 2}, values={"x": "value " * 301})
    assert ["2", "1"] == lane.ids()
    lane.history("2", "x")
    caller.close()


@pytest.mark.damaged  # 200 stores need not be verified each
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_opening_and_closing_many_stores_leaks_nothing(tmp_path: Path, asynchronous: bool) -> None:
    """A server that opens a store per tenant runs for months; one descriptor each would end it."""
    others = {*threading.enumerate()}
    for number in range(STORES):
        # A few paths again and again, and new ones: both are a server's life.
        where = tmp_path / (f"again {number % 3}" if number % 2 else f"new {number}")
        saver = DeltaStoreSaver(where, ttl={"default_ttl": 60}, slow_seconds=5, max_bytes=1 << 26)
        use(saver, asynchronous=asynchronous)
        if number % 20 == 0:
            saver.vacuum()
        assert 0 < held(tmp_path, others)[0]
        saver.close()
    assert (0, [], 0) == held(tmp_path, others)
