"""The suite's command: `python -m bench run`, `report`, `publish` and `compare`."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from rich.console import Console

from bench import compare, publish, summary
from bench.kinds import SaverUnavailableError
from bench.runner import Plan, run_plan
from bench.savers import SAVERS, get_kind
from bench.workloads import CATALOGUE

DEFAULT_SAVERS = ("deltastore", "memory", "sqlite", "postgres", "lmdb")


class Progress:
    """Prints a line for each cell that is done, and where a terminal shows it, how far one is."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = monotonic()

    def __call__(self, cell: Any, message: Any) -> None:
        """Show one message of the runner."""
        name = f"{cell.workload} {cell.turns} {cell.saver} #{cell.repeat + 1}"
        if "status" not in message:
            if self._console.is_terminal:
                line = f"{name}: {message['done']} of {message['of']}"
                self._console.print(line, end="\r", highlight=False)
            return
        text = f"{monotonic() - self._begun:6.0f} s  {name}: {summary.in_short(message)}"
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(given)
    return int(options.run(options, f"python -m bench {shlex.join(given)}"))


def _run(options: argparse.Namespace, command: str) -> int:
    try:
        for name in options.savers:
            get_kind(name)
    except SaverUnavailableError as error:
        print(error, file=sys.stderr)
        return 2
    plan = Plan(
        savers=options.savers,
        workloads=options.workloads,
        turns=options.turns,
        repeats=options.repeats,
        seed=options.seed,
        data=str(options.data) if options.data else None,
        cap_seconds=options.cap_seconds,
        cap_memory_bytes=int(options.cap_memory_gb * 1e9),
        cap_disk_bytes=int(options.cap_disk_gb * 1e9),
    )
    report = run_plan(plan, options.out, command, Progress(Console()))
    print(summary.as_text(report))
    print(f"results in {options.out}")
    return 1 if any(cell["status"] == "wrong" for cell in report["cells"]) else 0


def _publish(options: argparse.Namespace, _command: str) -> int:
    return publish.run(options.only, options.results, Progress(Console()))


def _report(options: argparse.Namespace, _command: str) -> int:
    from bench import report  # needs matplotlib, which running does not

    return report.run(options.results, options.page, options.plots)


def _compare(options: argparse.Namespace, _command: str) -> int:
    print("\n".join(compare.lines_of(options.base, options.new)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    run = verbs.add_parser("run", help="measure savers at workloads", description=_SAVERS_HELP)
    run.add_argument("--savers", type=_list(SAVERS, also="import:"), default=[*DEFAULT_SAVERS])
    run.add_argument("--workloads", type=_list(CATALOGUE), default=["chat_plain", "chat_delta"])
    run.add_argument("--turns", type=_numbers, default=[100], help="lengths, as 100,1000")
    run.add_argument("--repeats", type=_positive, default=1)
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--data", type=Path, help="gzip file of one recorded conversation a line")
    run.add_argument("--cap-seconds", type=float, default=300.0, help="of driving, for each cell")
    run.add_argument("--cap-memory-gb", type=float, default=4.0)
    run.add_argument("--cap-disk-gb", type=float, default=4.0)
    run.add_argument("--out", type=Path, default=Path("bench-results.json"))
    run.set_defaults(run=_run)
    again = verbs.add_parser("publish", help="measure what docs/benchmarks.md shows, then report")
    again.add_argument("--only", type=_list(publish.SETS), default=[*publish.SETS])
    again.add_argument("--results", type=Path, default=publish.RESULTS)
    again.set_defaults(run=_publish)
    report = verbs.add_parser("report", help="make the tables and plots of docs/benchmarks.md")
    report.add_argument("--results", type=Path, default=publish.RESULTS)
    report.add_argument("--page", type=Path, default=publish.PAGE)
    report.add_argument("--plots", type=Path, default=publish.PLOTS)
    report.set_defaults(run=_report)
    against = verbs.add_parser("compare", help="two files of --benchmark-json, side by side")
    against.add_argument("base", type=Path)
    against.add_argument("new", type=Path)
    against.set_defaults(run=_compare)
    return parser


_SAVERS_HELP = (
    f"Savers: {', '.join(SAVERS)}, import:MODULE:CALLABLE. "
    f"Workloads: {', '.join(CATALOGUE)}. Stores are made below TMPDIR and removed."
)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1 (got {number})")
    return number


def _numbers(text: str) -> list[int]:
    return [_positive(one) for one in text.split(",")]


def _list(known: Collection[str], also: str = "\0") -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = list(dict.fromkeys(text.split(",")))
        for name in names:
            if name not in known and not name.startswith(also):
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return parse


if __name__ == "__main__":
    sys.exit(main())
