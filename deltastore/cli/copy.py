"""`deltastore copy STORE SOURCE TARGET`: a thread again, under another id."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from deltastore.cli.arguments import Verbs, add_verb
from deltastore.cli.opening import open_store, require_thread
from deltastore.cli.output import show
from deltastore.cli.progress import progress_bar


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = add_verb(verbs, "copy", "copy a thread to another id of the same store", run)
    parser.add_argument("source", metavar="SOURCE", help="id of the thread to copy")
    parser.add_argument("target", metavar="TARGET", help="id of the copy")
    parser.add_argument(
        "--heads-only",
        action="store_true",
        help="only the newest checkpoint of each namespace and what it needs",
    )


def run(args: argparse.Namespace) -> None:
    """Do it and show what was copied."""
    with open_store(args.store, write=True) as store:
        require_thread(store, args.source)
        with progress_bar("copy") as progress:
            report = store.copy_thread(
                args.source, args.target, heads_only=args.heads_only, progress=progress
            )
    show(asdict(report), str(report), as_json=args.json)
