"""`deltastore vacuum STORE`: give free space back to the file system."""

from __future__ import annotations

import argparse

from deltastore.cli.arguments import Verbs, add_verb
from deltastore.cli.opening import open_store
from deltastore.cli.output import fields, show
from deltastore.cli.progress import progress_bar


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = add_verb(verbs, "vacuum", "rewrite the store's file without free space", run)
    parser.add_argument(
        "--secure", action="store_true", help="leave nothing on disk of what was deleted"
    )


def run(args: argparse.Namespace) -> None:
    """Do it and show the sizes."""
    with open_store(args.store, write=True) as store, progress_bar("vacuum") as progress:
        report = store.vacuum(secure=args.secure, progress=progress)
    record = {
        "generation": report.generation,
        "bytes_before": report.bytes_before,
        "free_bytes_before": report.free_bytes_before,
        "bytes_after": report.bytes_after,
    }
    show(record, fields(record, *record), as_json=args.json)
