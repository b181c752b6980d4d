"""`deltastore doctor STORE`: what surrounds a store, and what is to be done about it."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from deltastore.cli.arguments import Verbs, add_verb
from deltastore.cli.output import fields, note, show
from deltastore.diagnosis import doctor


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    add_verb(verbs, "doctor", "show disk, readers, map and versions, and what to do", run)


def run(args: argparse.Namespace) -> None:
    """Show it; what is to be done goes to standard error."""
    found = doctor(args.store)
    files, at = found.files, found.map
    record = {
        "store": args.store,
        "file_system": files.file_system,
        "network": files.is_network,
        "sparse_files": files.is_sparse,
        "disk_free_bytes": files.free_bytes,
        "directory_mode": f"{files.mode:o}",
        "file_mode": f"{files.data_mode:o}",
        "owned": files.is_owned,
        "generation": files.generation,
        "leftovers": list(files.leftovers),
        "vacuum_running": files.is_vacuuming,
        "file_bytes": files.file_bytes,
        "on_disk_bytes": files.disk_bytes,
        "map": None if at is None else asdict(at),
        "checksum": found.checksum,
        "versions": found.versions,
        "warnings": list(found.warnings),
    }
    rows = {name: _text(value) for name, value in record.items() if name not in _PARTS}
    if at is not None:
        rows |= {
            "map_bytes": at.map_bytes,
            "free_bytes": at.free_bytes,
            "entries": at.entries,
            "readers": f"{at.readers} of {at.readers_max}, {at.stale_readers} stale",
            "oldest_view": _text(at.oldest_read),
        }
    rows |= found.versions
    show(record, fields(rows, *rows), as_json=args.json)
    for warning in found.warnings:
        note(f"warning: {warning}")


_PARTS = ("map", "versions", "warnings")


def _text(value: object) -> object:
    if isinstance(value, list):
        return ", ".join(value) or None
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value
