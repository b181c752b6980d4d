"""The caches of a store are bounded in bytes, whatever checkpoints are made of."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest

from deltastore.decoded import Caches
from deltastore.engine.memory import MemoryEngine
from deltastore.ids import cid_from_id
from deltastore.langgraph.saver import DeltaStoreSaver
from deltastore.options import StoreOptions
from deltastore.store import Store
from deltastore.testing import Caller, Lane, make_checkpoint
from deltastore.testing.strategies import checkpoint_id

CHECKPOINTS = 120
METADATA: dict[str, Any] = {
    "text": lambda n: {"note": f"{n} " * 4_000},
    "numbers": lambda n: {"note": list(range(n * 1_000, n * 1_000 + 1_000))},
    "none": lambda _: {},
}


def filled(options: StoreOptions, metadata: Any) -> tuple[Store, MemoryEngine]:
    engine = MemoryEngine()
    store = Store(engine, options)
    lane = Lane(Caller(lambda: DeltaStoreSaver.on_store(store)))
    for n in range(CHECKPOINTS):
        versions = {"x": n + 1, "y": n + 1}
        values = {"x": f"value {n} " * 200, "y": n}
        checkpoint = make_checkpoint(checkpoint_id(n), versions, values)
        parent = checkpoint_id(n - 1) if n else None
        lane.caller.put(lane.config(parent), checkpoint, metadata(n), dict(versions))
        lane.write(checkpoint_id(n), [("x", f"write {n} " * 200)], "task")
    lane.ids()
    return store, engine


@pytest.mark.parametrize("metadata", METADATA.values(), ids=METADATA.keys())
def test_no_cache_outgrows_its_bytes(metadata: Any) -> None:
    """Metadata is the user's: a bound on entries would let a few large ones take any memory."""
    options = StoreOptions(
        value_cache_bytes=40_000, header_cache_bytes=60_000, writes_cache_bytes=20_000
    )
    store, _ = filled(options, metadata)
    session = store._session
    for cache, most in (
        (session.values.cache, 40_000),
        (session.caches.headers, 60_000),
        (session.caches.writes, 20_000),
    ):
        assert 0 < cache.weight <= most


def test_caches_of_no_bytes_cost_time_and_nothing_else() -> None:
    """Whoever turns all of them off still reads what was written."""
    options = StoreOptions(value_cache_bytes=0, header_cache_bytes=0, writes_cache_bytes=0)
    store, _ = filled(options, METADATA["text"])
    shown = [one.header.metadata for one in store.list("t")]
    assert [METADATA["text"](n) for n in reversed(range(CHECKPOINTS))] == [
        {"note": one["note"]} for one in shown
    ]
    assert 0 == store._session.caches.headers.weight


@pytest.mark.parametrize("metadata", METADATA.values(), ids=METADATA.keys())
def test_the_weight_of_a_header_is_near_what_it_takes(metadata: Any) -> None:
    """A weight that is far too small makes the bound a number without a meaning."""
    _, engine = filled(StoreOptions(), metadata)
    cold = Store(engine)
    with cold._session.view() as txn:
        reader = cold._session.find(txn, "t", "", None)
        assert reader is not None
        reader.caches = Caches(1 << 30, 0)
        gc.collect()
        tracemalloc.start()
        for n in range(CHECKPOINTS):
            reader.entry(cid_from_id(checkpoint_id(n)))
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    assert CHECKPOINTS == len(reader.caches.headers)
    assert taken / 4 <= reader.caches.headers.weight <= 6 * taken
