"""`deltastore restore BACKUP TARGET`: a store made of a backup, once that is verified."""

from __future__ import annotations

import argparse

from deltastore.cli.arguments import Verbs, add_verb
from deltastore.cli.output import fields, show
from deltastore.cli.progress import progress_bar
from deltastore.restoring import restore


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = add_verb(verbs, "restore", "verify a backup and make a store of it", run)
    parser.add_argument("target", metavar="TARGET", help="directory to make; absent or empty")


def run(args: argparse.Namespace) -> None:
    """Do it and show what was copied."""
    with progress_bar("restore") as progress:
        report = restore(args.store, args.target, progress=progress)
    record = {"target": args.target, "records": report.entries, "bytes": report.bytes}
    show(record, fields(record, *record), as_json=args.json)
