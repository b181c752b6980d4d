"""Measure the figures the project has set itself targets for, and print them beside the targets.

    python -m bench.figures [--only plain,head] [--turns 1000] [--json FILE]

Every number comes from the run that prints it. Everything but times is the same in every run with
the same arguments: conversations are recorded ones where they are at hand and made from a seed
elsewhere, ids and versions come from a seed. A target missed is printed and is no error; exits 2
for arguments that cannot be used.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any, Final

from bench.conversations import Turn, get_turns
from bench.figures_alone import measure_alone
from bench.figures_bytes import TARGETS, measure_bytes
from bench.figures_cpu import measure_head, measure_list, measure_overhead, measure_walk
from bench.figures_parts import measure_parts
from bench.figures_retention import measure_copy, measure_prune
from bench.figures_table import HEADING, Result, lines_of
from bench.figures_written import measure_written
from deltastore.format.crc import IMPLEMENTATION

SEED: Final = 1
_TIMES: Final = 3  # times --turns: turns of the head's thread, supersteps of the overhead's
_RECORDS: Final = 20  # times --turns: records beside which commits are measured
_PACKAGES: Final = ("lmdb", "zstandard", "ormsgpack", "langgraph", "langgraph-checkpoint")

Measure = Callable[[Sequence[Turn], int], Result]

FIGURES: Final[Mapping[str, Measure]] = {
    **{
        name: partial(lambda name, long, turns: measure_bytes(name, long[:turns], SEED), name)
        for name in TARGETS
    },
    "overhead": lambda long, turns: measure_overhead(long, _TIMES * turns),
    "list": measure_list,
    "head": lambda long, _turns: measure_head(long),
    "walk": lambda long, turns: measure_walk(long[:turns]),
    "prune": lambda long, _turns: measure_prune(long),
    "copy": lambda long, _turns: measure_copy(long),
    "written": lambda long, turns: measure_written(long, _RECORDS * turns),
    "alone": lambda long, turns: measure_alone(long[:turns], _RECORDS * turns),
    "parts": lambda long, turns: measure_parts(long[:turns]),
}
"""Measurements by name; each is given three times as many turns as asked for, and the number."""


def get_machine() -> dict[str, Any]:
    """Return what the figures depend on: machine, Python, packages, checksum in use.

    `loop_ms` is the CPU time of a fixed loop, to compare runs on different machines by.
    """
    return {
        "machine": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "loop_ms": round(min(_loop_ms() for _ in range(9)), 2),
        "python": platform.python_version(),
        "crc": IMPLEMENTATION,
        **{package: version(package) for package in _PACKAGES},
    }


def _loop_ms() -> float:
    begun = thread_time()
    for _ in range(100_000):
        pass
    return (thread_time() - begun) * 1e3


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parse(argv)
    long, source = get_turns(_TIMES * options.turns, path=None, seed=SEED)
    machine = get_machine()
    print("; ".join(f"{key} {value}" for key, value in machine.items()))
    print(f"{options.turns} turns from {source}; seed {SEED}\n\n{HEADING}", flush=True)
    results: dict[str, Result] = {}
    for name in options.only:
        begun = perf_counter()
        results[name] = result = FIGURES[name](long, options.turns)
        print("\n".join(lines_of(result)))
        print(f"           | took {perf_counter() - begun:.0f} s", flush=True)
    judged = [figure.met for result in results.values() for figure in result.figures]
    print(f"\n{judged.count(True)} met, {judged.count(False)} missed")
    if options.json:
        report = {
            "turns": options.turns,
            "source": source,
            "seed": SEED,
            **machine,
            "results": {name: _fields(result) for name, result in results.items()},
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def _fields(result: Result) -> dict[str, Any]:
    figures = [{**asdict(figure), "met": figure.met} for figure in result.figures]
    return {**asdict(result), "figures": figures}


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.figures",
        description="Measure what the project has targets for. Stores are made below TMPDIR.",
    )
    parser.add_argument(
        "--only",
        type=_names,
        default=list(FIGURES),
        metavar="NAME,...",
        help=f"of {','.join(FIGURES)} (default all)",
    )
    parser.add_argument(
        "--turns",
        type=_turns,
        default=1_000,
        help="length of the threads, at least 10 (default 1000, what the targets are about)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    return parser.parse_args(argv)


def _turns(text: str) -> int:
    number = int(text)
    if number < 10:
        raise argparse.ArgumentTypeError(f"must be at least 10 (got {number})")
    return number


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in FIGURES:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(FIGURES)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
