"""What `prune` and `delete` show of their plans: what goes, namespace by namespace, and the sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from deltastore.cli.output import show, table
from deltastore.plans import PrunePlan

_COLUMNS = ("dropped", "kept", "anchors", "writes", "records", "bytes", "thread_id", "namespace")


@contextmanager
def shown_plans(*, dry_run: bool, as_json: bool) -> Iterator[list[PrunePlan]]:
    """Give the block a list for its plans and show them at its end.

    A block that fails or is interrupted has done what is in the list: that is shown all the same.
    """
    plans: list[PrunePlan] = []
    try:
        yield plans
    except BaseException:
        if plans:
            _show(plans, dry_run, as_json)
        raise
    _show(plans, dry_run, as_json)


def _show(plans: Sequence[PrunePlan], dry_run: bool, as_json: bool) -> None:
    records = [
        {
            "dropped": len(stream.dropped),
            "kept": stream.kept,
            "anchors": len(stream.anchors),
            "writes": stream.writes,
            "records": stream.records,
            "bytes": stream.bytes,
            "thread_id": plan.thread_id,
            "namespace": stream.checkpoint_ns,
        }
        for plan in plans
        if not plan.is_empty
        for stream in plan.streams
    ]
    checkpoints = sum(plan.checkpoints for plan in plans)
    size = sum(plan.bytes for plan in plans)
    stored = sum(plan.records for plan in plans)
    verb = "would go" if dry_run else "gone"
    line = f"{checkpoints} checkpoints {verb}, {size} bytes in {stored} records"
    parts = [table(records, *_COLUMNS)] if records else []
    document = {
        "dry_run": dry_run,
        "threads": [_document(plan) for plan in plans],
        "checkpoints": checkpoints,
        "records": stored,
        "bytes": size,
    }
    show(document, *parts, f"dry run: {line}" if dry_run else line, as_json=as_json)


def _document(plan: PrunePlan) -> dict[str, Any]:
    return {
        "thread_id": plan.thread_id,
        "deletes": plan.deletes,
        "namespaces": [
            {
                "namespace": stream.checkpoint_ns,
                "kept": stream.kept,
                "dropped": list(stream.dropped),
                "anchors": list(stream.anchors),
                "writes": stream.writes,
                "records": stream.records,
                "bytes": stream.bytes,
            }
            for stream in plan.streams
        ],
    }
