"""Backup: write the pairs that one view shows into a new store, beside whoever uses the old one.

The copy has no free pages and one generation. It is made under another name (`lmdb_partial`), so
that it is there whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deltastore.engine import lmdb_files as files
from deltastore.engine import lmdb_journal as journal
from deltastore.engine.lmdb_errors import convert
from deltastore.engine.lmdb_partial import partial_directory
from deltastore.engine.lmdb_registry import Opening
from deltastore.engine.lmdb_shared import SharedEnvironment
from deltastore.engine.lmdb_transaction import LmdbTransaction
from deltastore.engine.lmdb_unfinished import UnfinishedGeneration
from deltastore.errors import CorruptionError
from deltastore.plans import BackupReport, Progress

_WHAT = "backup"
_CHUNK_BYTES_MAX = 8 << 20  # of values in a transaction of the copy, but for one that is longer


def backup(
    opening: Opening, target: Path, instead: Mapping[bytes, bytes], progress: Progress
) -> BackupReport:
    """Do it, see `deltastore.engine.api.Engine.backup`; `target` was checked."""
    with partial_directory(target, _WHAT) as path:
        shared = SharedEnvironment(
            path,
            durability="full",
            read_only=False,
            verify_bytes_max=0,
            map_bytes=opening.map_bytes,
        )
        copy = UnfinishedGeneration(shared, 0, _WHAT)
        try:
            copy.create()
            with LmdbTransaction(opening, False) as transaction:
                _copy(opening, transaction, copy, progress)
            copy.apply(sorted(instead), instead.get)
            entries = copy.count()
            copy.finish()
        finally:
            copy.close()
        try:
            files.write_current(path, copy.number)
        except OSError as error:
            raise convert(error, path, _WHAT) from error
        size = (files.get_directory(path, copy.number) / files.DATA).stat().st_size
    return BackupReport(str(target), entries, size)


def _copy(
    opening: Opening,
    transaction: LmdbTransaction,
    copy: UnfinishedGeneration,
    progress: Progress,
) -> None:
    total = transaction.stat().entries
    start, done = b"", 0
    while pairs := transaction.scan_some(start, journal.RECORDS_MAX, _CHUNK_BYTES_MAX):
        copy.append(pairs)
        start = pairs[-1][0] + b"\x00"
        done += len(pairs)
        progress(done, total)
    if done != total:  # damage in a branch page hides keys from scans
        raise CorruptionError(
            f"{opening.path}: {done} of {total} keys were reached; a page is damaged: repair the "
            "store, or restore it from an older backup"
        )
