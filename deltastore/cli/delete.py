"""`deltastore delete STORE`: whole threads, or what single runs left."""

from __future__ import annotations

import argparse

from deltastore.cli.arguments import Verbs, add_dry_run, add_verb
from deltastore.cli.exits import MissingError
from deltastore.cli.opening import open_store, require_readable, require_thread
from deltastore.cli.progress import progress_bar
from deltastore.cli.removal import shown_plans
from deltastore.errors import InvalidArgumentError
from deltastore.plans import Progress, PrunePlan, part_of
from deltastore.store import Store


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = add_verb(verbs, "delete", "delete threads, or what single runs left", run)
    what = parser.add_mutually_exclusive_group(required=True)
    for name in ("thread", "run"):
        what.add_argument(
            f"--{name}",
            dest=f"{name}s",
            action="append",
            default=[],
            metavar=name[0].upper(),
            help=f"id of a {name} to delete; may be given again",
        )
    parser.add_argument(
        "--refuse", action="store_true", help="delete no run that other checkpoints need"
    )
    add_dry_run(parser)


def run(args: argparse.Namespace) -> None:
    """Do it, or plan it: threads one by one, runs together; show what goes."""
    if args.refuse and not args.runs:
        raise InvalidArgumentError("--refuse is about runs; give it with --run R")
    with (
        open_store(args.store, write=not args.dry_run) as store,
        shown_plans(dry_run=args.dry_run, as_json=args.json) as plans,
        progress_bar("delete") as progress,
    ):
        for thread_id in args.threads:
            require_thread(store, thread_id)
        threads = list(dict.fromkeys(args.threads))
        for index, thread_id in enumerate(threads):
            plan = store.prune(
                thread_id,
                "delete",
                dry_run=args.dry_run,
                progress=part_of(progress, index, len(threads)),
            )
            plans.append(plan)
        if args.runs:
            plans.extend(_delete_runs(store, args, progress))


def _delete_runs(store: Store, args: argparse.Namespace, progress: Progress) -> list[PrunePlan]:
    plans = store.delete_for_runs(
        args.runs, refuse=args.refuse, dry_run=args.dry_run, progress=progress
    )
    if not plans:
        require_readable(store)
        raise MissingError(f"no thread holds anything of run {', '.join(map(repr, args.runs))}")
    return plans
