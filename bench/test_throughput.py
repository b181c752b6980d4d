"""Supersteps per second of many conversations at once, and the lag of the event loop beside them.

    pytest bench/test_throughput.py

Each conversation makes the calls of a chat, `put_writes` and `put` a superstep, one after the other
as fast as they return, every commit on disk. Groups: async conversations on one loop, and threads.
The lag (by how much a sleep of 1 ms overslept) is kept beside the times. Nothing is asserted of
either. `python -m bench run --workloads many_threads_64` measures the same on more savers, each in
a process of its own.
"""

from __future__ import annotations

import gc
import itertools
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from bench.conversations import get_turns
from bench.drives import ManyThreadsTask
from bench.kinds import Place
from bench.savers import get_kind
from bench.stage import Stage, run_to_end

TURNS_EACH = 2
ROUNDS = 3
HOUR_S = 3_600


def measure(benchmark: Any, directory: Path, saver: str, conversations: int) -> None:
    """Benchmark one round of all conversations, each round in a store of its own."""
    turns, _ = get_turns(conversations * TURNS_EACH, path=None, seed=1)
    kind = get_kind(saver)
    numbers = itertools.count()
    supersteps: list[int] = []
    lags: list[dict[str, float]] = []

    async def converse() -> None:
        place = Place(directory / str(next(numbers)), counted=ManyThreadsTask.counted)
        place.directory.mkdir()
        stage = Stage(kind, place, monotonic() + HOUR_S)
        await stage.open()
        task = ManyThreadsTask(turns, conversations=conversations, seed=1)
        async for _ in task.drive(stage):
            pass
        supersteps.append(stage.saver.times.supersteps)
        lags.append(stage.notes.get("lag_ms", {}))
        assert task.final == await task.load(stage)
        await stage.close()

    def freeze() -> None:
        gc.collect()
        gc.freeze()  # as servers do: else each full collection walks all that imports left

    benchmark.pedantic(
        lambda: run_to_end(converse(), is_async=kind.is_async), setup=freeze, rounds=ROUNDS
    )
    benchmark.extra_info["supersteps_per_s"] = round(supersteps[0] / benchmark.stats.stats.min)
    for name, value in min(lags, key=lambda lag: lag.get("p99", 0)).items():
        benchmark.extra_info[f"lag_{name}"] = round(value, 2)


@pytest.mark.benchmark(group="async conversations on one loop")
@pytest.mark.parametrize("conversations", [1, 8, 64])
@pytest.mark.parametrize("saver", ["deltastore-async", "sqlite-async"])
def test_async(benchmark: Any, tmp_path: Path, saver: str, conversations: int) -> None:
    """Async conversations: one loop, `aput_writes` and `aput`."""
    measure(benchmark, tmp_path, saver, conversations)


@pytest.mark.benchmark(group="threads")
@pytest.mark.parametrize("threads", [1, 16])
@pytest.mark.parametrize("saver", ["deltastore", "sqlite"])
def test_threads(benchmark: Any, tmp_path: Path, saver: str, threads: int) -> None:
    """As many threads as conversations."""
    measure(benchmark, tmp_path, saver, threads)
