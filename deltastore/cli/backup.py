"""`deltastore backup STORE TARGET`: a copy of the store as it is now, beside whoever uses it."""

from __future__ import annotations

import argparse

from deltastore.cli.arguments import Verbs, add_verb
from deltastore.cli.opening import open_store
from deltastore.cli.output import fields, show
from deltastore.cli.progress import progress_bar


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = add_verb(verbs, "backup", "copy the store as it is now to a new place", run)
    parser.add_argument("target", metavar="TARGET", help="directory to make; absent or empty")


def run(args: argparse.Namespace) -> None:
    """Do it and show what was copied."""
    with open_store(args.store) as store, progress_bar("backup") as progress:
        report = store.backup(args.target, progress=progress)
    record = {"target": args.target, "records": report.entries, "bytes": report.bytes}
    show(record, fields(record, *record), as_json=args.json)
