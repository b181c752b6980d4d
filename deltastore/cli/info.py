"""`deltastore info STORE`: how large the store is and when it was last used."""

from __future__ import annotations

import argparse

from deltastore.cli.arguments import Verbs, add_verb
from deltastore.cli.opening import open_store, scan_threads
from deltastore.cli.output import fields, iso_time, show
from deltastore.format.layout import FORMAT_VERSION


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    add_verb(verbs, "info", "show the format, sizes, number of threads and last activity", run)


def run(args: argparse.Namespace) -> None:
    """Show it."""
    with open_store(args.store) as store:
        threads = scan_threads(store)
        newest = next(threads, None)  # first of all: it checks the format
        count = 0 if newest is None else 1 + sum(1 for _ in threads)
        sizes = store.stat()
    record = {
        "store": args.store,
        "format": FORMAT_VERSION,
        "threads": count,
        "newest_activity": iso_time(newest.active_ms) if newest else None,
        "entries": sizes.entries,
        "file_bytes": sizes.file_bytes,
        "free_bytes": sizes.free_bytes,
    }
    show(record, fields(record, *record), as_json=args.json)
