"""Replay conversations through compiled graphs, several savers on the same turns in the same run.

    python -m bench.replay --turns 100 --workloads chat_plain,files --savers deltastore,sqlite

The savers take turns in blocks, in an order that rotates, so that whatever else the machine does
falls on all of them alike. A *lane* is one saver's store, graph and notes for one workload.

Every number printed comes from the run that prints it. Exits 1 when a saver ends with a state other
than the one that was put in, 2 for arguments it cannot use or a saver that cannot be imported.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.conversations import get_turns
from bench.graphs import Step, Workload
from bench.host import version_of
from bench.kinds import Place, SaverKind, SaverUnavailableError, directory_bytes
from bench.savers import SAVERS
from bench.table import Row, print_rows
from bench.timed import TimedSaver, Times
from bench.workloads import WORKLOADS

BLOCK_TURNS = 10
RESUMES = 5
_CONFIG: Any = {"configurable": {"thread_id": "conversation"}, "recursion_limit": 1_000}
_WORKLOADS = {name: WORKLOADS[name] for name in ("chat_plain", "chat_delta", "files")}
_KINDS = {name: kind for name, kind in SAVERS.items() if not kind.is_async and not kind.on_server}
_PACKAGES = ("langgraph", "langgraph-checkpoint", "langgraph-checkpoint-sqlite", "lmdb")


class Lane:
    """One saver at work on one workload."""

    def __init__(self, workload: Workload, kind: SaverKind, directory: Path) -> None:
        self.workload = workload
        self.kind = kind
        self.directory = directory
        self.turn_times: list[Times] = []
        self._open = ExitStack()
        self._reopen()

    def play(self, step: Step) -> None:
        """Run one turn through the graph."""
        # `sync`: a superstep begins when the last one is stored, so no call hides behind another.
        self.graph.invoke(step.values, _CONFIG, context=step.script(), durability="sync")
        self.turn_times.append(self.saver.take_times())

    def resume_ms(self) -> float:
        """Return what it takes to open the store and load the state, and leave it open."""
        taken = []
        for _ in range(RESUMES):
            if self.kind.persistent:
                self._open.close()
            begun = perf_counter()
            if self.kind.persistent:
                self._reopen()
            self.graph.get_state(_CONFIG)
            taken.append((perf_counter() - begun) * 1e3)
        self.saver.take_times()
        return median(taken)

    def ends_as_planned(self) -> bool:
        """Return whether the stored state is the one the turns should have made."""
        return dict(self.graph.get_state(_CONFIG).values) == dict(self.workload.final)

    def close(self) -> None:
        """Close the saver; twice is no error."""
        self._open.close()

    def _reopen(self) -> None:
        opened = self._open.enter_context(self.kind.open(Place(self.directory)))
        self.saver = TimedSaver(opened.saver)
        self.graph = self.workload.compile(self.saver)


def replay(
    workload: Workload, kinds: Sequence[SaverKind], advance: Callable[[int], None]
) -> list[Row]:
    """Run a workload through fresh stores of the given kinds; return a row for each.

    Args:
        advance: Called with the number of turns that were just played by one saver.
    """
    turns = len(workload.steps)
    tenth = max(1, turns // 10)
    first_ms: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="replay-") as scratch, ExitStack() as open_lanes:
        lanes = []
        for kind in kinds:
            directory = Path(scratch) / kind.name
            directory.mkdir()
            lane = Lane(workload, kind, directory)
            open_lanes.callback(lane.close)
            lanes.append(lane)
        for number, begin in enumerate(range(0, turns, BLOCK_TURNS)):
            block = range(begin, min(begin + BLOCK_TURNS, turns))
            shift = number % len(lanes)
            for lane in lanes[shift:] + lanes[:shift]:
                for turn in block:
                    lane.play(workload.steps[turn])
                    if turn + 1 == tenth:
                        first_ms[lane.kind.name] = lane.resume_ms()
                advance(len(block))
        return [_row(lane, tenth, first_ms[lane.kind.name]) for lane in lanes]


def _row(lane: Lane, tenth: int, resume_ms_first: float) -> Row:
    last_ms = lane.resume_ms()
    equal = lane.ends_as_planned()
    lane.close()
    times = lane.turn_times
    per_checkpoint = [sum(t.writes_s) * 1e3 / t.checkpoints for t in times]
    return Row(
        workload=lane.workload.name,
        saver=lane.kind.name,
        turns=len(times),
        supersteps=sum(t.supersteps for t in times),
        new_bytes=sum(step.new_bytes for step in lane.workload.steps),
        disk_bytes=directory_bytes(lane.directory),
        put_ms_first=median(per_checkpoint[:tenth]),
        put_ms_last=median(per_checkpoint[-tenth:]),
        load_ms_last=median(sum(t.reads_s) * 1e3 for t in times[-tenth:]),
        resume_ms_first=resume_ms_first,
        resume_ms_last=last_ms,
        equal=equal,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parse(argv)
    console = Console()
    if not console.is_terminal:
        console = Console(width=150)
    try:
        turns, source = get_turns(options.turns, path=options.data, seed=options.seed)
    except (OSError, ValueError) as error:
        print(f"cannot read conversations: {error}", file=sys.stderr)
        return 2
    console.print(f"{len(turns)} turns of one long conversation from {source}; seed {options.seed}")
    rows: list[Row] = []
    try:
        for name in options.workloads:
            rows += _replay_shown(console, _WORKLOADS[name](turns, options.seed), options.savers)
    except SaverUnavailableError as error:
        print(f"{error}; leave it out with --savers", file=sys.stderr)
        return 2
    if options.json:
        options.json.write_text(json.dumps(_report(rows, source, options.seed), indent=2) + "\n")
    return 0 if all(row.equal for row in rows) else 1


def _replay_shown(console: Console, workload: Workload, savers: Sequence[str]) -> list[Row]:
    total = len(workload.steps) * len(savers)
    done = 0
    begun = perf_counter()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(workload.name, total=total)

        def advance(turns: int) -> None:
            nonlocal done
            quarters, done = done * 4 // total, done + turns
            progress.advance(task, turns)
            if not console.is_terminal and done * 4 // total > quarters:
                console.print(f"{workload.name}: {done} of {total} turns", highlight=False)

        rows = replay(workload, [_KINDS[name] for name in savers], advance)
    print_rows(console, rows)
    wrong = [row.saver for row in rows if not row.equal]
    verdict = (
        f"NOT the state that was put in: {', '.join(wrong)}"
        if wrong
        else "every saver ends with the state that was put in"
    )
    console.print(f"{verdict}; {perf_counter() - begun:.0f} s\n", highlight=False)
    return rows


def _report(rows: Sequence[Row], source: str, seed: int) -> dict[str, Any]:
    return {
        "source": source,
        "seed": seed,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": {package: version_of(package) for package in _PACKAGES},
        "rows": [{**asdict(row), "amplification": row.amplification} for row in rows],
    }


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/run",
        description="Replay conversations through LangGraph, saver beside saver. Stores are made "
        "and removed below TMPDIR.",
    )
    parser.add_argument(
        "--turns", type=_positive, default=100, help="turns to replay (default 100)"
    )
    parser.add_argument(
        "--workloads",
        type=_names(_WORKLOADS),
        default=list(_WORKLOADS),
        help=f"of {','.join(_WORKLOADS)} (default all)",
    )
    parser.add_argument(
        "--savers",
        type=_names(_KINDS),
        default=["deltastore", "sqlite"],
        help=f"of {','.join(_KINDS)} (default deltastore,sqlite)",
    )
    parser.add_argument("--data", type=Path, help="gzip file of one recorded conversation a line")
    parser.add_argument("--seed", type=int, default=1, help="of made text and edits (default 1)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1 (got {number})")
    return number


def _names(known: Collection[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = list(dict.fromkeys(text.split(",")))
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return parse


if __name__ == "__main__":
    sys.exit(main())
