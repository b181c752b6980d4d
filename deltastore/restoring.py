"""Make a store of a backup: verified first, then copied to where nothing is."""

from __future__ import annotations

import os
from os import PathLike

from deltastore import directory
from deltastore.checkup import verify_path
from deltastore.engine.lmdb import LmdbEngine
from deltastore.engine.lmdb_partial import check_target
from deltastore.engine.lmdb_paths import check_path
from deltastore.errors import CorruptionError
from deltastore.plans import BackupReport, Progress, no_progress, part_of
from deltastore.types import Cipher


def restore(
    backup: str | PathLike[str],
    target: str | PathLike[str],
    *,
    cipher: Cipher | None = None,
    progress: Progress = no_progress,
) -> BackupReport:
    """Verify a backup and copy it to a new place; the backup is not changed.

    The new store has an identity of its own: from here on it and the store that was backed up, if
    that is still used, are two.

    Args:
        backup: A store; one that `Store.backup` made, or any other.
        target: Absent, or an empty directory; nothing there is overwritten.
        cipher: Without it encrypted records are verified by their checksums alone.
        progress: Called with parts done and parts there are, of verifying and of copying.

    Raises:
        StorePathError: There is no backup, or the target holds something.
        CorruptionError: The backup is damaged; nothing was restored. `repair` makes a store of
            what is left of it.
        StoreFullError: No room; nothing is left of the copy.

    Cost: everything is read twice, each value is rebuilt once, and all is written once.
    """
    source = check_path(backup, read_only=True)
    check_target(target, source)
    report = verify_path(source, cipher=cipher, progress=part_of(progress, 0, 2))
    if report.damage:
        first, more = report.damage[0], len(report.damage) - 1
        others = f", and {more} more" if more else ""
        raise CorruptionError(
            f"{os.fsdecode(backup)} is damaged: {first.message}{others}; nothing was restored. "
            "`deltastore verify` lists all; `deltastore repair` makes a store of what is left",
            thread_id=first.thread_id,
            checkpoint_ns=first.checkpoint_ns,
            checkpoint_id=first.checkpoint_id,
            record=first.key,
        )
    engine = LmdbEngine(source, read_only=True, verify_bytes_max=0)
    try:
        return engine.backup(
            target, instead=directory.new_identity(), progress=part_of(progress, 1, 2)
        )
    finally:
        engine.close()
