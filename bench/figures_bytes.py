"""Bytes on disk against new state: figures `plain`, `delta` and `files`.

Each runs a real graph over one long thread, closes the store and adds up its files. *New state* is
what the turns add to the state, serialised; an edited file counts whole. The *breakdown* tells
which records the bytes are in.

Reads the store through its engine and its format; measures no time.
"""

from __future__ import annotations

import mmap
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.conversations import Turn
from bench.figures_table import Figure, Result
from bench.savers import directory_bytes
from bench.workloads import WORKLOADS, Workload
from deltastore import DeltaStoreSaver
from deltastore.engine.api import EngineStat, Pair
from deltastore.engine.lmdb import LmdbEngine
from deltastore.format import frame, header, keys, layout, value

TARGETS: Final = {
    "plain": ("chat_plain", 2.0),
    "delta": ("chat_delta", 1.3),
    "files": ("files", 1.2),
}
_PAGE: Final = 512
_WITHOUT_CIPHER: Final = None


@dataclass(slots=True)
class Kind:
    """Records of one kind: how many, and the bytes of their keys and of themselves."""

    records: int = 0
    key_bytes: int = 0
    record_bytes: int = 0


@dataclass(slots=True)
class Breakdown:
    """What a store's bytes are.

    Attributes:
        kinds: By name of the kind.
        stat: Sizes as the engine tells them.
    """

    stat: EngineStat
    kinds: dict[str, Kind] = field(default_factory=dict)


def measure_bytes(name: str, turns: Sequence[Turn], seed: int) -> Result:
    """Run the figure `name`, one of `TARGETS`; return its ratio, and where the bytes are."""
    workload_name, target = TARGETS[name]
    workload = WORKLOADS[workload_name](turns, seed)
    with tempfile.TemporaryDirectory(prefix="figures-") as scratch:
        directory = Path(scratch) / "store"
        _run_graph(workload, directory, seed)
        disk_bytes = directory_bytes(directory)
        breakdown = scan_store(directory)
    new_bytes = sum(step.new_bytes for step in workload.steps)
    data_bytes = breakdown.stat.file_bytes
    what = f"bytes on disk / new state, {workload_name}, {len(turns)} turns"
    return Result(
        [
            Figure(name, what, disk_bytes / new_bytes, "x", target),
            Figure(name, "the data file alone / new state", data_bytes / new_bytes, "x", None),
        ],
        [f"new state {new_bytes} B, all files {disk_bytes} B", *_lines(breakdown, new_bytes)],
        {
            "new_bytes": new_bytes,
            "disk_bytes": disk_bytes,
            "data_bytes": data_bytes,
            "free_bytes": breakdown.stat.free_bytes,
            "kinds": {
                kind: [found.records, found.key_bytes, found.record_bytes]
                for kind, found in breakdown.kinds.items()
            },
        },
    )


def _run_graph(workload: Workload, directory: Path, seed: int) -> None:
    # Ids and versions are drawn from here, so that a second run stores what the first did; only
    # times differ. "normal" durability leaves out one sync a commit and not a byte.
    random.seed(seed)
    config: Any = {"configurable": {"thread_id": "conversation"}, "recursion_limit": 1_000}
    with DeltaStoreSaver(directory, durability="normal") as saver:
        graph = workload.compile(saver)
        for step in workload.steps:
            graph.invoke(step.values, config, context=step.script(), durability="sync")
        if dict(graph.get_state(config).values) != dict(workload.final):
            raise AssertionError(f"{workload.name} ended in another state than was put in")


def scan_store(directory: Path) -> Breakdown:
    """Return what the records of a closed, unencrypted store are."""
    engine = LmdbEngine(directory, read_only=True)
    try:
        breakdown = Breakdown(engine.stat())
        last, stop = b"\x00", bytes([layout.TAG_LOG + 1])
        while True:
            with engine.begin(write=False) as txn:
                page = txn.scan(last, stop, limit=_PAGE)
            for pair in page:
                kind = breakdown.kinds.setdefault(_kind(pair), Kind())
                kind.records += 1
                kind.key_bytes += len(pair[0])
                kind.record_bytes += len(pair[1])
            if len(page) < _PAGE:
                return breakdown
            last = page[-1][0] + b"\x00"
    finally:
        engine.close()


def _kind(pair: Pair) -> str:
    key, record = pair
    if key[0] != layout.TAG_LOG:
        return "directory"
    kind = keys.split(key).kind
    if kind == layout.KIND_HEADER:
        clear = header.parent_of(frame.peek(key, record, kind))
        return "header difference" if clear.is_difference else "header whole"
    if kind == layout.KIND_VALUE:
        stored = value.decode(frame.unseal(key, record, kind, _WITHOUT_CIPHER).payload)
        return "value whole" if stored.base is None else "value delta"
    return "writes" if kind == layout.KIND_WRITES else f"kind {kind}"


def _lines(breakdown: Breakdown, new_bytes: int) -> list[str]:
    stat = breakdown.stat
    lines = [f"{'':20}{'records':>9}{'key B':>11}{'record B':>11}{'B each':>8}{'/ new':>7}"]
    for name, kind in sorted(breakdown.kinds.items()):
        size = kind.key_bytes + kind.record_bytes
        lines.append(
            f"{name:20}{kind.records:9}{kind.key_bytes:11}{kind.record_bytes:11}"
            f"{size / kind.records:8.0f}{size / new_bytes:7.2f}"
        )
    records = sum(kind.key_bytes + kind.record_bytes for kind in breakdown.kinds.values())
    used = stat.file_bytes - stat.free_bytes
    lines += [
        _pages("in use", used, f"{used - records} B beside records", used - records, new_bytes),
        _pages("free", stat.free_bytes, f"{stat.free_bytes} B", stat.free_bytes, new_bytes),
    ]
    return lines


def _pages(which: str, size: int, told: str, part: int, new_bytes: int) -> str:
    return f"{'pages ' + which:20}{size // mmap.PAGESIZE:9}{told:>30}{part / new_bytes:7.2f}"
