"""Bytes on disk against new state: figures `plain`, `delta` and `files`.

Each runs a real graph over one long thread, closes the store and adds up its files. *New state* is
what the turns add to the state, serialised; an edited file counts whole. The *breakdown* tells
which records the bytes are in; measures no time.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.breakdown import lines_of_breakdown, scan_store
from bench.conversations import Turn
from bench.figures_table import Figure, Result
from bench.kinds import directory_bytes
from bench.workloads import WORKLOADS, Workload
from deltastore import DeltaStoreSaver

TARGETS: Final = {
    "plain": ("chat_plain", 2.0),
    "delta": ("chat_delta", 1.3),
    "files": ("files", 1.2),
}


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
        [
            f"new state {new_bytes} B, all files {disk_bytes} B",
            *lines_of_breakdown(breakdown, new_bytes),
        ],
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
