"""What it costs to put the newest state together, by how many turns lie behind it.

    pytest bench/test_rebuild.py

On the memory engine, so that nothing but deltastore and the deserialiser is timed: a plain list
from its deltas, and the history of a delta channel. Each round opens the store anew, its caches
empty. `deserialise` is the floor: the same bytes, in one piece.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from bench.conversations import get_turns
from bench.figures_puts import Chat, apply_call
from bench.graphs import all_messages
from deltastore import DeltaStoreSaver, Store
from deltastore.engine.memory import MemoryEngine

pytestmark = pytest.mark.benchmark(timer=time.thread_time)

HEAD: Any = {"configurable": {"thread_id": "chat", "checkpoint_ns": ""}}
TURNS = [10, 100]
ROUNDS = 10


class Keeping(MemoryEngine):
    """A memory engine that outlives the stores on it."""

    def close(self) -> None:
        """Keep everything."""


def stored(turns: int, frequency: int | None) -> Keeping:
    engine = Keeping()
    given, _ = get_turns(turns, path=None, seed=1)
    with DeltaStoreSaver.on_store(Store(engine)) as saver:
        for call in Chat("chat", snapshot_frequency=frequency).calls(given):
            apply_call(saver, call)
    return engine


@pytest.mark.parametrize("turns", TURNS)
def test_plain_list(benchmark: Any, turns: int) -> None:
    """`get_tuple` of the head."""
    engine = stored(turns, None)

    def load() -> Any:
        with DeltaStoreSaver.on_store(Store(engine)) as saver:
            found = saver.get_tuple(HEAD)
        assert found is not None
        return found.checkpoint["channel_values"]["messages"]

    found = benchmark.pedantic(load, rounds=ROUNDS)
    assert all_messages(get_turns(turns, path=None, seed=1)[0]) == found


@pytest.mark.parametrize("turns", TURNS)
def test_history(benchmark: Any, turns: int) -> None:
    """`get_delta_channel_history` of the head, with no snapshot to begin from."""
    engine = stored(turns, 1_000)

    def load() -> Any:
        with DeltaStoreSaver.on_store(Store(engine)) as saver:
            return saver.get_delta_channel_history(config=HEAD, channels=["messages"])["messages"]

    found = benchmark.pedantic(load, rounds=ROUNDS)
    written = [one for _, _, new in found["writes"] for one in new]
    assert all_messages(get_turns(turns, path=None, seed=1)[0]) == written


@pytest.mark.parametrize("turns", TURNS)
def test_deserialise(benchmark: Any, turns: int) -> None:
    """The floor of both."""
    serde = JsonPlusSerializer()
    typed = serde.dumps_typed(all_messages(get_turns(turns, path=None, seed=1)[0]))
    benchmark.pedantic(lambda: serde.loads_typed(typed), rounds=ROUNDS)
