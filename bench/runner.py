"""Run cells one after the other, each in a process of its own, and keep what they tell.

The savers take turns at the same workload and length, in an order that rotates, and all of it is
repeated: A B C, B C A, C A B. What else the machine does then falls on all of them alike. The file
of results is written anew after each cell, so that an interrupted run leaves what it had.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from bench.cell import LIMIT, Cell
from bench.host import describe_host
from bench.server import stop_left_over

FORMAT: Final = 1
_GRACE_S: Final = 300.0  # for closing, resuming and a vacuum after a cap was reached
_END_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run.

    Attributes:
        turns: Lengths; every workload is run at each.
        repeats: How often each cell is run, at least 1.
    """

    savers: Sequence[str]
    workloads: Sequence[str]
    turns: Sequence[int]
    repeats: int = 1
    seed: int = 1
    data: str | None = None
    cap_seconds: float = 300.0
    cap_memory_bytes: int = 4_000_000_000
    cap_disk_bytes: int = 4_000_000_000

    def cells(self) -> Iterator[Cell]:
        """Yield the cells in the order they are run in; `scratch` is still empty."""
        for repeat in range(self.repeats):
            number = repeat
            for turns in self.turns:
                for workload in self.workloads:
                    shift = number % len(self.savers)
                    order = [*self.savers[shift:], *self.savers[:shift]]
                    for saver in ([LIMIT] if repeat == 0 else []) + order:
                        yield Cell(
                            workload,
                            saver,
                            turns,
                            repeat,
                            self.seed,
                            self.data,
                            "",
                            self.cap_seconds,
                            self.cap_memory_bytes,
                            self.cap_disk_bytes,
                        )
                    number += 1


Shown = Callable[[Cell, Mapping[str, Any]], None]


def run_plan(plan: Plan, out: Path, command: str, shown: Shown) -> dict[str, Any]:
    """Run all cells of a plan and return the report, which is also in `out`.

    Args:
        shown: Called with a cell and how far it is, and with its result when it is done.
    """
    report: dict[str, Any] = {
        "format": FORMAT,
        "command": command,
        "begun": _now(),
        "host": describe_host(),
        "plan": {**asdict(plan), "savers": list(plan.savers)},
        "cells": [],
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        Path(scratch).chmod(0o711)  # a server that runs as another user must get in
        for number, cell in enumerate(plan.cells()):
            placed = Cell(**{**asdict(cell), "scratch": str(Path(scratch) / str(number))})
            load = os.getloadavg()[0]
            result = run_cell(placed, shown)
            shown(placed, result)
            report["cells"].append(
                {
                    "workload": cell.workload,
                    "saver": cell.saver,
                    "turns": cell.turns,
                    "repeat": cell.repeat,
                    "load": round(load, 2),
                    **result,
                }
            )
            report["ended"] = _now()
            out.write_text(json.dumps(report, separators=(",", ":")) + "\n", encoding="utf-8")
    return report


def run_cell(cell: Cell, shown: Shown) -> dict[str, Any]:
    """Run one cell in a child process; return its result, whatever became of the child."""
    last: dict[str, Any] = {}
    result: dict[str, Any] | None = None
    killed = threading.Event()
    with (
        tempfile.TemporaryFile() as complaints,
        subprocess.Popen(
            [sys.executable, "-m", "bench.cell"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
        ) as child,
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(asdict(cell)))
        child.stdin.close()

        def kill() -> None:
            killed.set()
            child.kill()

        timer = threading.Timer(cell.cap_seconds + _GRACE_S, kill)
        timer.start()
        try:
            for line in child.stdout:
                message = json.loads(line)
                result = message.get("result")
                if result is None:
                    last = message
                    shown(cell, message)
        finally:
            timer.cancel()
            _end(child)
            timer.join()
            stop_left_over(Path(cell.scratch))
        complaints.seek(0)
        said = complaints.read().decode(errors="replace").strip().splitlines()[-1:]
    if result is not None:
        return result
    reason = "killed after its time and grace" if killed.is_set() else f"died: {said}"
    return {
        "status": "capped" if killed.is_set() else "failed",
        "reason": reason,
        "done": last.get("done", 0),
        "units": last.get("of"),
    }


def _end(child: subprocess.Popen[str]) -> None:
    """End a child that has not ended by itself, in order if it can still do so."""
    child.terminate()
    try:
        child.wait(_END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
