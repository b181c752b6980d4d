"""`deltastore repair STORE TARGET`: a new store of what is left of a damaged one."""

from __future__ import annotations

import argparse
import sys

from deltastore.cli import exits
from deltastore.cli.arguments import Verbs, add_verb
from deltastore.cli.output import show
from deltastore.cli.progress import progress_bar
from deltastore.cli.verify import document_of, lines_of
from deltastore.repairing import repair


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = add_verb(verbs, "repair", "make a new store of what is left of a damaged one", run)
    parser.add_argument("target", metavar="TARGET", help="directory to make; absent or empty")


def run(args: argparse.Namespace) -> None:
    """Do it and show what was lost.

    Raises:
        SystemExit: With code 5, something was.
    """
    with progress_bar("repair") as progress:
        report = repair(args.store, args.target, progress=progress)
    document = {
        "target": args.target,
        "threads": report.threads,
        "checkpoints": report.checkpoints,
        "records": report.records,
        "gaps": report.gaps,
        "lost": list(map(document_of, report.lost)),
    }
    report.target = args.target
    show(document, *lines_of(report.lost), str(report), as_json=args.json)
    if report.lost:
        sys.stdout.flush()  # the program's own comes after `run` returns
        raise SystemExit(exits.DAMAGED)
