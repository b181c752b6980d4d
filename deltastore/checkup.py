"""Verify a store by its path: first the pages of its file, unmapped, and then what is stored.

A file with damaged pages may end the process that maps it, so where the walk finds damage nothing
is mapped, and the report holds what the walk found.
"""

from __future__ import annotations

from os import PathLike
from typing import Final

from deltastore.engine.lmdb_paths import check_path
from deltastore.engine.lmdb_structure import walk_structure
from deltastore.findings import STRUCTURE, Finding, Report
from deltastore.options import StoreOptions
from deltastore.plans import Progress, no_progress
from deltastore.store import Store
from deltastore.types import Cipher
from deltastore.verify import levels_of

_UNWALKED: Final = StoreOptions(read_only=True, verify_bytes_max=0)  # it was walked just before


def verify_path(
    path: str | PathLike[str],
    *,
    level: str | None = None,
    cipher: Cipher | None = None,
    progress: Progress = no_progress,
) -> Report:
    """Check a store on disk, whatever its size; changes nothing.

    Args:
        level, cipher, progress: As `Store.verify`.

    Raises:
        StorePathError: There is no store.
        InvalidArgumentError: There is no such level.

    Cost: the walk reads the file once, about 20 ms per MB, unless a process has the store open;
        then as `Store.verify`.
    """
    levels = levels_of(level)
    found = walk_structure(check_path(path, read_only=True))
    if found:
        damage = [Finding(STRUCTURE, message) for message in found]
        return Report(levels, damage=damage, is_walked=True)
    with Store.open(path, _UNWALKED) as store:
        report = store.verify(level=level, cipher=cipher, progress=progress)
    report.is_walked = found is not None
    return report
