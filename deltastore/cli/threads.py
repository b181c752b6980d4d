"""`deltastore threads STORE`: the threads, newest activity first, and what each takes."""

from __future__ import annotations

import argparse

from deltastore.cli.arguments import Verbs, add_verb, positive
from deltastore.cli.opening import open_store
from deltastore.cli.output import iso_time, note, show, table
from deltastore.cli.progress import progress_bar


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = add_verb(verbs, "threads", "list threads with their sizes, newest first", run)
    parser.add_argument("--prefix", default="", metavar="P", help="only ids that begin with P")
    parser.add_argument(
        "--limit", type=positive, default=100, metavar="N", help="at most N threads (100)"
    )


def run(args: argparse.Namespace) -> None:
    """Show them; sizes are those of the log's records, keys included, read off without values."""
    records = []
    with open_store(args.store) as store, progress_bar("threads") as progress:
        page = store.threads(prefix=args.prefix, limit=args.limit)
        for done, one in enumerate(page.threads):
            progress(done, len(page.threads))
            stored, size = store.thread_bytes(one.thread_id)
            records.append(
                {
                    "active": iso_time(one.active_ms),
                    "namespaces": one.namespaces,
                    "records": stored,
                    "bytes": size,
                    "thread_id": one.thread_id,
                    "checkpoint_ns": one.checkpoint_ns,
                    "checkpoint_id": one.checkpoint_id,
                }
            )
    more = page.cursor is not None
    listed = table(records, "active", "namespaces", "records", "bytes", "thread_id")
    show({"threads": records, "more": more}, listed, as_json=args.json)
    if more:
        note(f"there are more than {args.limit} threads; --limit N lists N")
