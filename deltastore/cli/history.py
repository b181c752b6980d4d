"""`deltastore history STORE THREAD`: a thread's checkpoints, newest first."""

from __future__ import annotations

import argparse
from typing import Any

from deltastore.cli.arguments import Verbs, add_verb, positive
from deltastore.cli.exits import MissingError
from deltastore.cli.opening import open_store, require_thread
from deltastore.cli.output import iso_time, note, show, table
from deltastore.ids import cid_from_id, cid_time_ms
from deltastore.listing import CheckpointInfo
from deltastore.store import Store


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = add_verb(verbs, "history", "list the checkpoints of a thread, newest first", run)
    parser.add_argument("thread", metavar="THREAD", help="id of the thread")
    parser.add_argument(
        "--namespace", metavar="NS", help="only this one; '' is the graph's own (all of them)"
    )
    parser.add_argument(
        "--limit", type=positive, default=100, metavar="N", help="at most N checkpoints (100)"
    )
    parser.add_argument("--before", metavar="ID", help="only ids below this one")


def run(args: argparse.Namespace) -> None:
    """Show them; headers are decoded, values are not."""
    with open_store(args.store) as store:
        found = list(
            store.checkpoints(args.thread, args.namespace, before=args.before, limit=args.limit + 1)
        )
        if not found:
            _explain_nothing(store, args.thread, args.namespace)
    records = [_record(one) for one in found[: args.limit]]
    more = len(found) > args.limit
    listed = table(
        records, "checkpoint_id", "time", "step", "source", "run_id", "parent_id", "namespace"
    )
    document = {"thread_id": args.thread, "checkpoints": records, "more": more}
    show(document, listed, as_json=args.json)
    if more:
        note(f"there are older ones; --before {records[-1]['checkpoint_id']} lists them")


def _explain_nothing(store: Store, thread_id: str, namespace: str | None) -> None:
    """Raise `MissingError` unless it is `--before` that left nothing."""
    require_thread(store, thread_id)
    if next(store.checkpoints(thread_id, namespace, limit=1), None) is None:
        where = "" if namespace is None else f" in namespace {namespace!r}"
        raise MissingError(f"thread {thread_id!r} has no checkpoint{where}")


def _record(one: CheckpointInfo) -> dict[str, Any]:
    metadata = one.header.metadata
    return {
        "checkpoint_id": one.checkpoint_id,
        "time": iso_time(cid_time_ms(cid_from_id(one.checkpoint_id))),
        "step": _plain(metadata.get("step")),
        "source": _plain(metadata.get("source")),
        "run_id": _plain(metadata.get("run_id")),
        "parent_id": one.parent_id,
        "namespace": one.checkpoint_ns,
    }


def _plain(value: object) -> str | int | None:
    """Return metadata that a cell can hold; what only a serializer reads is None."""
    return value if isinstance(value, (str, int)) else None
