"""Sync calls of one thread over encoding and bare LMDB transactions: figure `alone`.

One conversation in a delta channel, its calls made one after another by one thread, in durability
"full", beside other records. Wall times of three things:

- *calls*: the calls, on a store on LMDB.
- *encoding*: the very same calls on a store of the same records in memory: all but LMDB.
- *bare*: what the calls put and deleted, in the same transactions and order, done with py-lmdb
  alone, each transaction synced by its commit, in an environment opened as the store opens it.

The figure is calls / (encoding + bare). Syncs of a disk in use get slower and faster within
seconds, so the three go in turns, a block of turns each, and whatever else the machine does falls
on all of them alike. All is done `ROUNDS` times, each time from a copy of the same store, and of
each block the best round counts. What the calls put and delete is recorded before, untimed.

Within a block, encoding and bare transactions each run in a loop of their own, and both are faster
so than where one follows the other, as in the calls: that counts against the calls.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

from bench.conversations import Turn
from bench.figures_puts import Chat, Put, apply_call
from bench.figures_table import Figure, Result
from bench.figures_written import fill_store
from deltastore import DeltaStoreSaver
from deltastore.engine.api import KEYS_END, Engine, Pair, Transaction
from deltastore.engine.counting import CountingEngine
from deltastore.engine.lmdb import LmdbEngine
from deltastore.engine.lmdb_files import find_generation
from deltastore.engine.lmdb_shared import MAP_BYTES, SharedEnvironment
from deltastore.engine.memory import MemoryEngine
from deltastore.store import Store

ROUNDS = 5
_BLOCK_TURNS: Final = 10
_FREQUENCY: Final = 100
_TARGET: Final = 1.2

Changes = list[tuple[bytes, bytes | None]]
"""What a transaction put and deleted, in order: keys, and their values or None."""


class _Seconds(NamedTuple):
    """Wall seconds of the same calls, done in three ways."""

    calls: float
    encoding: float
    bare: float

    def ratio(self) -> float:
        return self.calls / (self.encoding + self.bare)


class Recording(CountingEngine):
    """Notes what each write transaction of the engine inside changed, once it is committed."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self._transactions: list[Changes] = []

    def take(self) -> list[Changes]:
        taken, self._transactions = self._transactions, []
        return taken

    @contextmanager
    def begin(self, *, write: bool, scope: bytes = b"") -> Iterator[Transaction]:
        changes: Changes = []
        with super().begin(write=write, scope=scope) as transaction:
            yield _RecordedTransaction(transaction, changes)
        if write:
            self._transactions.append(changes)


class _RecordedTransaction:
    """Notes puts and deletes; everything else is the transaction's inside."""

    def __init__(self, inner: Transaction, changes: Changes) -> None:
        self._inner = inner
        self._changes = changes
        self.get, self.get_many = inner.get, inner.get_many
        self.scan, self.scan_keys = inner.scan, inner.scan_keys
        self.used_bytes = inner.used_bytes

    def put(self, key: bytes, value: bytes) -> None:
        self._inner.put(key, value)
        self._changes.append((key, value))

    def delete(self, key: bytes) -> bool:
        was_there = self._inner.delete(key)
        self._changes.append((key, None))
        return was_there

    def delete_range(self, start: bytes, stop: bytes, *, limit: int) -> int:
        keys = self.scan_keys(start, stop, limit=limit)
        return sum(map(self.delete, keys))


class _Conversation:
    """The conversation that is measured, on one saver."""

    def __init__(self, saver: DeltaStoreSaver) -> None:
        saver.setup()
        self._saver = saver
        self._chat = Chat("alone", snapshot_frequency=_FREQUENCY)
        self.supersteps = 0

    def play(self, turns: Sequence[Turn]) -> float:
        """Make the calls of the next turns; return the seconds they took.

        What makes the calls up is not counted.
        """
        taken_s = 0.0
        for call in self._chat.calls(turns):
            begun = perf_counter()
            apply_call(self._saver, call)
            taken_s += perf_counter() - begun
            self.supersteps += not isinstance(call, Put)
        return taken_s

    def commits(self) -> int:
        return self._saver.store.stats().commits


class Recorded(NamedTuple):
    """The conversation that is measured.

    Attributes:
        blocks: Of its turns.
        transactions: Of each block, those of its calls.
        supersteps: Of all blocks.
    """

    blocks: list[Sequence[Turn]]
    transactions: list[list[Changes]]
    supersteps: int


def record_conversation(directory: Path, turns: Sequence[Turn]) -> Recorded:
    """Play the conversation into a store, noting what is put and deleted."""
    blocks = [turns[at : at + _BLOCK_TURNS] for at in range(0, len(turns), _BLOCK_TURNS)]
    transactions = []
    engine = Recording(LmdbEngine(directory))
    with DeltaStoreSaver.on_store(Store(engine)) as saver:
        conversation = _Conversation(saver)
        engine.take()
        for block in blocks:
            conversation.play(block)
            transactions.append(engine.take())
    return Recorded(blocks, transactions, conversation.supersteps)


def open_bare(directory: Path) -> Any:
    """Open the LMDB environment of a store, as the store does in durability "full"."""
    shared = SharedEnvironment(
        directory, durability="full", read_only=False, verify_bytes_max=0, map_bytes=MAP_BYTES
    )
    return shared.map(find_generation(directory), MAP_BYTES)


def apply_bare(environment: Any, transactions: Sequence[Changes]) -> float:
    """Do the same transactions with py-lmdb alone; return the seconds they took."""
    begun = perf_counter()
    for changes in transactions:
        with environment.begin(write=True) as transaction:
            for key, value in changes:
                if value is None:
                    transaction.delete(key)
                else:
                    transaction.put(key, value)
    return perf_counter() - begun


def scan_store(directory: Path) -> list[Pair]:
    """Return all pairs of a store, in the order of their keys."""
    engine = LmdbEngine(directory, read_only=True)
    try:
        with engine.begin(write=False) as transaction:
            return transaction.scan(b"", KEYS_END)
    finally:
        engine.close()


def measure_alone(turns: Sequence[Turn], records: int) -> Result:
    """Measure the calls of one conversation of `turns` beside at least `records` records."""
    with tempfile.TemporaryDirectory(prefix="figures-") as scratch:
        filled = Path(scratch) / "filled"
        held = fill_store(filled, turns, records)
        with _copied(filled, "recorded") as directory:
            recorded = record_conversation(directory, turns)
        rounds = [_measure_round(filled, recorded) for _ in range(ROUNDS)]
    best = _sum(
        _Seconds(*map(min, zip(*block, strict=True))) for block in zip(*rounds, strict=True)
    )
    calls, encoding, bare = (seconds / recorded.supersteps * 1e3 for seconds in best)
    commits = sum(map(len, recorded.transactions))
    what = f"sync calls / (encoding + bare LMDB), beside {held:,} records"
    every = ", ".join(f"{_sum(one).ratio():.2f}" for one in rounds)
    return Result(
        [Figure("alone", what, best.ratio(), "x", _TARGET)],
        [
            f"{recorded.supersteps} supersteps in {commits} commits",
            f"of each block of {_BLOCK_TURNS} turns the best of {ROUNDS} rounds",
            f"ms per superstep: calls {calls:.3f}, encoding {encoding:.3f}, bare LMDB {bare:.3f}",
            f"every round: {every}",
        ],
        {
            "supersteps": recorded.supersteps,
            "commits": commits,
            "rounds_s": [_sum(one)._asdict() for one in rounds],
        },
    )


def _sum(blocks: Iterator[_Seconds] | Sequence[_Seconds]) -> _Seconds:
    return _Seconds(*map(sum, zip(*blocks, strict=True)))


def _measure_round(filled: Path, recorded: Recorded) -> list[_Seconds]:
    """Return the seconds of each block."""
    with ExitStack() as stack:
        directory = stack.enter_context(_copied(filled, "store"))
        played = _Conversation(stack.enter_context(DeltaStoreSaver(directory)))
        store = Store(_copy_to_memory(filled))
        encoded = _Conversation(stack.enter_context(DeltaStoreSaver.on_store(store)))
        bare = stack.enter_context(open_bare(stack.enter_context(_copied(filled, "bare"))))
        gc.collect()
        seconds = []
        for block, transactions in zip(recorded.blocks, recorded.transactions, strict=True):
            before = played.commits(), encoded.commits()
            seconds.append(
                _Seconds(played.play(block), encoded.play(block), apply_bare(bare, transactions))
            )
            made = played.commits() - before[0], encoded.commits() - before[1]
            if made != (len(transactions),) * 2:
                raise AssertionError(f"{made} commits where {len(transactions)} were recorded")
    return seconds


@contextmanager
def _copied(filled: Path, name: str) -> Iterator[Path]:
    """Have a copy of a store's files beside it meanwhile."""
    place = filled.with_name(name)
    shutil.copytree(filled, place)
    try:
        yield place
    finally:
        shutil.rmtree(place)


def _copy_to_memory(filled: Path) -> MemoryEngine:
    engine = MemoryEngine()
    with engine.begin(write=True) as transaction:
        for key, value in scan_store(filled):
            transaction.put(key, value)
    return engine
