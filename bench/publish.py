"""What docs/benchmarks.md shows: the runs it is made of, and where they are kept.

    python -m bench publish

Every run has the same caps for all savers. A run that is not finished within them is shown with
how far it came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.runner import Plan, Shown, run_plan

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "bench" / "results"
PAGE: Final = ROOT / "docs" / "benchmarks.md"
PLOTS: Final = ROOT / "docs" / "plots"

_EVERY: Final = ("deltastore", "sqlite", "postgres", "lmdb", "memory")
_ASYNC: Final = ("deltastore-async", "sqlite-async", "postgres-async", "lmdb-async", "memory")

SETS: Final[Mapping[str, Plan]] = {
    "graphs": Plan(
        _EVERY,
        (
            "chat_plain",
            "chat_delta",
            "agent_tools",
            "files",
            "deep_agent_files",
            "fan_out",
            "long_idle",
            "fork_heavy",
            "images",
        ),
        (100,),
        cap_seconds=300,
    ),
    "growth-100": Plan(_EVERY, ("calls_plain", "calls_delta"), (100,), cap_seconds=600),
    "growth-1000": Plan(_EVERY, ("calls_delta", "calls_plain"), (1_000,), cap_seconds=900),
    "growth-5000-delta": Plan(_EVERY, ("calls_delta",), (5_000,), cap_seconds=1_500),
    "growth-5000-plain": Plan(_EVERY, ("calls_plain",), (5_000,), cap_seconds=600),
    "threads-async": Plan(
        _ASYNC,
        ("many_threads_1", "many_threads_8", "many_threads_64"),
        (128,),
        repeats=2,
        cap_seconds=120,
    ),
    "threads-1000": Plan(_ASYNC, ("many_threads_1000",), (1_000,), cap_seconds=120),
    "threads-sync": Plan(
        _EVERY, ("many_threads_1", "many_threads_16"), (128,), repeats=2, cap_seconds=120
    ),
    "durability": Plan(
        ("deltastore", "deltastore-normal", "deltastore-relaxed"),
        ("chat_delta",),
        (100,),
        repeats=2,
        cap_seconds=120,
    ),
    "looking-back": Plan(_EVERY, ("resume", "history", "prune_copy"), (1_000,), cap_seconds=600),
    "graphs-1000": Plan(_EVERY, ("chat_delta", "chat_plain"), (1_000,), cap_seconds=600),
    "agent-tools-1000": Plan(_EVERY, ("agent_tools",), (1_000,), cap_seconds=600),
}
"""The published runs by name, which is also the name of their file."""


def run(names: Sequence[str], results: Path, shown: Shown) -> int:
    """Run the named sets and keep each in a file of its own; return an exit code."""
    wrong = False
    for name in names:
        command = f"python -m bench publish --only {name}"
        report = run_plan(SETS[name], results / f"{name}.json", command, shown)
        wrong |= any(cell["status"] == "wrong" for cell in report["cells"])
    return int(wrong)
