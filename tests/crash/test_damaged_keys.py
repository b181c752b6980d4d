"""A record under a damaged key is missed where it was: the store must say so, and never read on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from deltastore import DeltaStoreError, DeltaStoreSaver, Store
from deltastore.engine.memory import MemoryEngine

pytestmark = pytest.mark.damaged

SEED = 20_261_130
PROBES = 400
IDS = [f"1f1ecb42-a12{digit}-6876-bfff-421a31cae801" for digit in "0123456789"]


def config(checkpoint_id: str | None = None, thread: str = "t") -> dict[str, Any]:
    named = {} if checkpoint_id is None else {"checkpoint_id": checkpoint_id}
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **named}}


def fill(saver: DeltaStoreSaver) -> None:
    """Two threads; a line with whole values, deltas and writes, one of them late."""
    parent = None
    for number, checkpoint_id in enumerate(IDS):
        checkpoint = {
            "v": 4,
            "id": checkpoint_id,
            "ts": "2026-01-02T03:04:05.000006+00:00",
            "channel_values": {"log": [f"{n} " * 300 for n in range(number + 1)], "n": number},
            "channel_versions": {"log": number + 1, "n": number + 1},
            "versions_seen": {},
            "updated_channels": None,
        }
        meta = {"source": "loop", "step": number, "parents": {}}
        saver.put(config(parent), checkpoint, meta, {"log": number + 1, "n": number + 1})
        for task in "ab":
            saver.put_writes(config(checkpoint_id), [("d", number)], f"{task}{number}", task)
        parent = checkpoint_id
    saver.put_writes(config(IDS[2]), [("d", "late")], "z", "z")
    root = {**checkpoint, "id": IDS[0]}
    saver.put(config(thread="u"), root, meta, {"log": 10, "n": 10})


def answers(saver: DeltaStoreSaver) -> dict[str, Callable[[], Any]]:
    """Everything a reader may ask; each answer must be right or an error."""
    asked: dict[str, Callable[[], Any]] = {
        "newest": lambda: saver.get_tuple(config()),
        "other": lambda: saver.get_tuple(config(thread="u")),
        "list": lambda: list(saver.list(config())),
        "history": lambda: saver.get_delta_channel_history(config=config(), channels=["d"]),
    }
    for checkpoint_id in IDS:
        asked[checkpoint_id] = lambda one=checkpoint_id: saver.get_tuple(config(one))
    return asked


def moved(rng: random.Random, names: list[bytes], at: int) -> bytes | None:
    """Return a key with flipped bits that keeps its place in the order, or None."""
    name = bytearray(names[at])
    for _ in range(rng.choice((1, 1, 8))):
        name[rng.randrange(len(name))] ^= 1 << rng.randrange(8)
    low = names[at - 1] if at else b""
    high = names[at + 1] if at + 1 < len(names) else b"\xff"
    return bytes(name) if low < name < high and bytes(name) != names[at] else None


def test_no_answer_is_silently_short_of_a_record_whose_key_is_damaged() -> None:
    """Lost without a word is what a store may never do; the structure is sound all the while."""
    engine = MemoryEngine()
    saver = DeltaStoreSaver.on_store(Store(engine))
    fill(saver)
    right = {name: ask() for name, ask in answers(saver).items()}
    with engine.begin(write=False) as txn:
        pairs = txn.scan(b"\0", b"\xff")
    names = [name for name, _ in pairs]
    rng = random.Random(SEED)
    told = probes = 0
    while probes < PROBES:
        at = rng.randrange(len(names))
        key = moved(rng, names, at)
        if key is None:
            continue
        probes += 1
        with engine.begin(write=True) as txn:
            txn.delete(names[at])
            txn.put(key, pairs[at][1])
        fresh = DeltaStoreSaver.on_store(Store(engine))
        for name, ask in answers(fresh).items():
            try:
                answer = ask()
            except DeltaStoreError:
                told += 1
                continue
            assert right[name] == answer, (SEED, names[at].hex(), key.hex(), name)
        with engine.begin(write=True) as txn:
            txn.delete(key)
            txn.put(*pairs[at])
    assert told > PROBES
