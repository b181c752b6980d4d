"""`deltastore compact STORE [THREAD]`: bring chains that grew too long back within bounds."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from deltastore.cli.arguments import Verbs, add_dry_run, add_verb, bound
from deltastore.cli.opening import open_store, require_thread
from deltastore.cli.output import show, table
from deltastore.cli.progress import progress_bar
from deltastore.options import SnapshotBounds


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = add_verb(verbs, "compact", "store values of long chains in fewer pieces", run)
    parser.add_argument("thread", metavar="THREAD", nargs="?", help="only this one (all)")
    defaults = SnapshotBounds()
    for name, kind, metavar, what in (
        ("updates", bound, "N", "deltas between two snapshot points"),
        ("supersteps", bound, "N", "checkpoints a chain may span"),
        ("ratio", float, "R", "superseded bytes a read may fetch, over the value's size"),
    ):
        default = getattr(defaults, name)
        unless = ", or none" if kind is bound else ""
        parser.add_argument(
            f"--{name}",
            type=kind,
            default=default,
            metavar=metavar,
            help=f"{what}{unless} ({default})",
        )
    add_dry_run(parser)


def run(args: argparse.Namespace) -> None:
    """Do it, or plan it, and show each channel that exceeds the bounds."""
    bounds = SnapshotBounds(updates=args.updates, supersteps=args.supersteps, ratio=args.ratio)
    with open_store(args.store, write=not args.dry_run) as store:
        if args.thread is not None:
            require_thread(store, args.thread)
        with progress_bar("compact") as progress:
            plan = store.compact(args.thread, bounds, dry_run=args.dry_run, progress=progress)
    records = [
        {
            "chain_max": one.chain_max,
            "snapshots": one.snapshots,
            "folded": one.folded,
            "bytes": one.bytes,
            "skipped": one.skipped or None,
            "thread_id": one.thread_id,
            "namespace": one.checkpoint_ns,
            "channel": one.channel,
        }
        for one in plan.channels
    ]
    document = {
        "dry_run": args.dry_run,
        "bounds": asdict(bounds),
        "channels": records,
        "snapshots": plan.snapshots,
        "bytes": plan.bytes,
    }
    parts = [table(records, *records[0])] if records else []
    show(document, *parts, ("dry run: " if args.dry_run else "") + str(plan), as_json=args.json)
