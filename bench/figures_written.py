"""Bytes handed to write calls in durability "full", beside other records: figure `written`.

LMDB writes whole pages, those of the path to each record included, so what a commit costs depends
on what else is there and on what shares the commit. Measures no time.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, cycle, islice
from pathlib import Path
from typing import Final

from bench.conversations import Turn
from bench.figures_puts import Call, Chat, Put, apply_call
from bench.figures_table import Figure, Result
from bench.host import written_bytes
from deltastore import DeltaStoreSaver

CONVERSATIONS: Final = 64
_FREQUENCY: Final = 100
_OTHERS_TURNS: Final = 8  # of each conversation that is there before
_COMMIT_BYTES: Final = 20_000
_ALONE_BYTES: Final = 40_000
_TOGETHER_BYTES: Final = 12_000


def measure_written(turns: Sequence[Turn], records: int) -> Result:
    """Measure one conversation alone, then `CONVERSATIONS` at once, beside `records` records."""
    with tempfile.TemporaryDirectory(prefix="figures-") as scratch:
        directory = Path(scratch) / "store"
        held = fill_store(directory, turns, records)
        with DeltaStoreSaver(directory) as saver:
            alone = _Written(saver)
            asyncio.run(_converse(saver, [_chat("alone", turns, CONVERSATIONS)], alone))
            together = _Written(saver)
            chats = [_chat(f"one of {n}", turns[n:], 4) for n in range(CONVERSATIONS)]
            asyncio.run(_converse(saver, chats, together))
    beside = f"beside {held:,} records"
    return Result(
        [
            Figure("written", f"bytes per commit, alone, {beside}", *alone.per_commit()),
            Figure("written", "bytes per superstep, alone", *alone.per_step(_ALONE_BYTES)),
            Figure(
                "written",
                f"bytes per superstep, {CONVERSATIONS} conversations on one loop",
                *together.per_step(_TOGETHER_BYTES),
            ),
        ],
        [
            f"alone: {alone.supersteps} supersteps in {alone.commits} commits",
            f"together: {together.supersteps} supersteps in {together.commits} commits",
        ],
    )


class _Written:
    """Bytes and commits from its making to `stop`."""

    def __init__(self, saver: DeltaStoreSaver) -> None:
        self._saver = saver
        self._bytes, self._commits = written_bytes(), saver.store.stats().commits
        self.bytes = self.commits = self.supersteps = 0

    def stop(self) -> None:
        self.bytes = written_bytes() - self._bytes
        self.commits = self._saver.store.stats().commits - self._commits

    def per_commit(self) -> tuple[float, str, float]:
        return self.bytes / self.commits, "B", _COMMIT_BYTES

    def per_step(self, target: float) -> tuple[float, str, float]:
        return self.bytes / self.supersteps, "B", target


def _chat(name: str, turns: Sequence[Turn], length: int) -> Iterator[Call]:
    chat = Chat(name, snapshot_frequency=_FREQUENCY)
    return chat.calls(list(islice(cycle(turns), length)))


def fill_store(directory: Path, turns: Sequence[Turn], records: int) -> int:
    """Make a store of short conversations with at least `records` records; return how many."""
    with DeltaStoreSaver(directory, durability="normal") as saver:
        for number in count():
            for call in _chat(f"other {number}", turns[number % len(turns) :], _OTHERS_TURNS):
                apply_call(saver, call)
            held = saver.store.stat().entries
            if held >= records:
                break
    return held


async def _converse(
    saver: DeltaStoreSaver, chats: Sequence[Iterable[Call]], written: _Written
) -> None:
    async def one(calls: Iterable[Call]) -> None:
        for call in calls:
            if isinstance(call, Put):
                new = dict(call.new_versions)
                await saver.aput(call.config, call.checkpoint, call.metadata, new)
            else:
                written.supersteps += 1
                await saver.aput_writes(call.config, call.writes, call.task_id, call.task_path)

    await asyncio.gather(*(one(calls) for calls in chats))
    written.stop()
