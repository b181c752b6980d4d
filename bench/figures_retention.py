"""What pruning and copying a long thread cost: figures `prune` and `copy`.

Both work on one long chat with a delta channel. CPU times are of the process, best of `ROUNDS`;
sizes are of files, after a vacuum.
"""

from __future__ import annotations

import gc
import tempfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import Any, Final

import zstandard
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from bench.conversations import Turn
from bench.figures_puts import Chat, apply_call
from bench.figures_table import Figure, Result
from deltastore import DeltaStoreSaver
from deltastore.engine.api import Pair
from deltastore.engine.lmdb import LmdbEngine
from deltastore.format import frame, layout

ROUNDS: Final = 3
_THREAD: Final = "conversation"
_HEAD: Final[Any] = {"configurable": {"thread_id": _THREAD, "checkpoint_ns": ""}}
_FREQUENCY: Final = 100
_CHUNK: Final = 1_000
_ALLOWANCE_BYTES: Final = 64 << 10
_ZSTD_LEVEL: Final = 3


def _build(directory: Path, turns: Sequence[Turn]) -> None:
    with DeltaStoreSaver(directory, durability="normal") as saver:
        for call in Chat(_THREAD, snapshot_frequency=_FREQUENCY).calls(turns):
            apply_call(saver, call)


def measure_prune(turns: Sequence[Turn]) -> Result:
    """Measure pruning a long thread to its newest checkpoint, and the file that is left."""
    with tempfile.TemporaryDirectory(prefix="figures-") as scratch:
        directory = Path(scratch) / "store"
        _build(directory, turns)
        with DeltaStoreSaver(directory, durability="normal") as saver:
            before = saver.store.stat().file_bytes
            planned = []
            for _ in range(ROUNDS):
                gc.collect()
                begun = process_time()
                saver.prune([_THREAD], dry_run=True)
                planned.append(process_time() - begun)
            gc.collect()
            begun = process_time()
            (plan,) = saver.prune([_THREAD])
            taken = process_time() - begun
            saver.store.vacuum()
            values = _head_values(saver)
        after = max(one.stat().st_size for one in directory.rglob("data.mdb"))
    packed = sum(len(zstandard.compress(value, _ZSTD_LEVEL)) for value in values)
    allowed = 1.2 * packed + _ALLOWANCE_BYTES
    what = f"CPU seconds of prune(keep_latest), {len(turns)} turns"
    return Result(
        [
            Figure("prune", what, taken, "s", 0.7),
            Figure(
                "prune",
                "file after vacuum / (1.2 zstd-3 of the head + 64 KB)",
                after / allowed,
                "x",
                1.0,
            ),
        ],
        [
            f"{plan.checkpoints} checkpoints go; planning alone {min(planned):.2f} s",
            f"file {before} B before, {after} B after; the head's values {packed} B in zstd-3",
        ],
        {"before": before, "after": after, "packed": packed, "checkpoints": plan.checkpoints},
    )


def _head_values(saver: DeltaStoreSaver) -> list[bytes]:
    """Return the serialised values of the newest checkpoint, the delta channel's rebuilt."""
    head = saver.get_tuple(_HEAD)
    assert head is not None
    history = saver.get_delta_channel_history(config=head.config, channels=["messages"])["messages"]
    messages = [*history["seed"].value, *(one for _, _, new in history["writes"] for one in new)]
    values = {**head.checkpoint["channel_values"], "messages": messages}
    serde = JsonPlusSerializer()
    return [serde.dumps_typed(value)[1] for value in values.values()]


def measure_copy(turns: Sequence[Turn]) -> Result:
    """Measure copying a long thread, beside writing the same records under other keys."""
    with tempfile.TemporaryDirectory(prefix="figures-") as scratch:
        directory = Path(scratch) / "store"
        _build(directory, turns)
        copying, rewriting = [], []
        with DeltaStoreSaver(directory, durability="normal") as saver:
            for number in range(ROUNDS):
                gc.collect()
                begun = process_time()
                report = saver.copy_thread(_THREAD, f"copy {number}")
                copying.append(process_time() - begun)
            tracemalloc.start()
            saver.copy_thread(_THREAD, "traced")
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        for number in range(ROUNDS):
            gc.collect()
            begun = process_time()
            _rewrite(directory, Path(scratch) / f"rewritten {number}")
            rewriting.append(process_time() - begun)
    copied, rewritten = min(copying), min(rewriting)
    return Result(
        [Figure("copy", "CPU of copy_thread / append rewrite", copied / rewritten, "x", 2.0)],
        [
            f"{report.records} records, {report.bytes} B: {copied:.2f} s against {rewritten:.2f} s",
            f"peak of memory {peak / 1e6:.1f} MB",
        ],
        {"records": report.records, "bytes": report.bytes},
    )


def _rewrite(source: Path, target: Path) -> None:
    """Read a thread's records, verify each, seal it under another key and append it."""
    reading, writing = (
        LmdbEngine(source, durability="normal"),
        LmdbEngine(target, durability="normal"),
    )
    thread = (1).to_bytes(4, "big")
    start, stop = bytes([layout.TAG_LOG]) + thread, bytes([layout.TAG_LOG]) + (2).to_bytes(4, "big")
    try:
        while True:
            with reading.begin(write=False) as txn:
                page = txn.scan(start, stop, limit=_CHUNK)
            if not page:
                return
            moved = [_moved(pair) for pair in page]
            with writing.begin(write=True) as txn:
                for key, record in moved:
                    txn.put(key, record)
            start = page[-1][0] + b"\x00"
    finally:
        reading.close()
        writing.close()


def _moved(pair: Pair) -> Pair:
    key, record = pair
    new_key = key[:1] + (7).to_bytes(4, "big") + key[5:]
    return new_key, frame.move(key, new_key, record)
