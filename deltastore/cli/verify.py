"""`deltastore verify STORE`: is everything that is stored as it was written?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict

from deltastore.checkup import verify_path
from deltastore.cli import exits
from deltastore.cli.arguments import Verbs, add_verb
from deltastore.cli.output import Record, printable, show
from deltastore.cli.progress import progress_bar
from deltastore.findings import LEVELS, Finding


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = add_verb(verbs, "verify", "check everything that is stored", run)
    parser.add_argument(
        "--level", choices=LEVELS, help="records by themselves, or references between them (both)"
    )


def run(args: argparse.Namespace) -> None:
    """Do it and show what is damaged.

    Raises:
        SystemExit: With code 5, something is.
    """
    with progress_bar("verify") as progress:
        report = verify_path(args.store, level=args.level, progress=progress)
    document = {
        "levels": list(report.levels),
        "walked": report.is_walked,
        "records": report.records,
        "checkpoints": report.checkpoints,
        "undecodable": report.undecodable,
        "gaps": report.gaps,
        "damage": list(map(document_of, report.damage)),
    }
    walked = "" if report.is_walked else "; the file is in use, so its pages were not walked"
    show(document, *lines_of(report.damage), f"{report}{walked}", as_json=args.json)
    if report.damage:
        sys.stdout.flush()  # the program's own comes after `run` returns
        raise SystemExit(exits.DAMAGED)


def document_of(finding: Finding) -> Record:
    """Return a finding as JSON tells it."""
    names = {"checkpoint_ns": "namespace"}
    return {names.get(name, name): value for name, value in asdict(finding).items()}


def lines_of(found: Sequence[Finding]) -> list[str]:
    """Return findings as text tells them."""
    return [printable(str(one)) for one in found]
