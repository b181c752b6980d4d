"""`deltastore prune STORE THREAD...`: drop checkpoints that are no longer wanted."""

from __future__ import annotations

import argparse

from deltastore.cli.arguments import Verbs, add_dry_run, add_verb, duration, positive
from deltastore.cli.opening import open_store, require_thread, scan_threads
from deltastore.cli.progress import progress_bar
from deltastore.cli.removal import shown_plans
from deltastore.errors import InvalidArgumentError
from deltastore.plans import part_of


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs, "prune", "drop checkpoints but the newest of each namespace of a thread", run
    )
    parser.add_argument("threads", metavar="THREAD", nargs="*", help="id of a thread")
    parser.add_argument("--all-threads", action="store_true", help="every thread of the store")
    parser.add_argument(
        "--keep-last", type=positive, metavar="N", help="keep the newest N of each namespace"
    )
    parser.add_argument(
        "--older-than",
        type=duration,
        metavar="DURATION",
        help="drop only what is older: 30d, 12h, 90m or 45s",
    )
    add_dry_run(parser)


def run(args: argparse.Namespace) -> None:
    """Do it, or plan it, thread after thread, and show what goes."""
    if bool(args.threads) == args.all_threads:
        raise InvalidArgumentError("name the threads to prune, or say --all-threads")
    with (
        open_store(args.store, write=not args.dry_run) as store,
        shown_plans(dry_run=args.dry_run, as_json=args.json) as plans,
        progress_bar("prune") as progress,
    ):
        for thread_id in args.threads:
            require_thread(store, thread_id)
        named = args.threads or (one.thread_id for one in scan_threads(store))
        threads = list(dict.fromkeys(named))
        for index, thread_id in enumerate(threads):
            plan = store.prune(
                thread_id,
                keep_last=args.keep_last,
                older_than=args.older_than,
                dry_run=args.dry_run,
                progress=part_of(progress, index, len(threads)),
            )
            plans.append(plan)
