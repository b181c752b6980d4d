"""Walk the pages of a store's data file while nobody has it open; maps nothing, changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

from deltastore.engine import lmdb_files as files
from deltastore.engine.lmdb_errors import convert
from deltastore.errors import CorruptionError


def walk_structure(path: Path) -> list[str] | None:
    """Return what is wrong with the file of the generation in use; None while it is open somewhere.

    Args:
        path: The real path of a store.

    Raises:
        StorePathError: There is no store.

    Cost: reads the whole file, about 20 ms per MB.
    """
    try:
        lock, alone = files.take_lock(path, read_only=True)
        try:
            if not alone:
                return None
            data = files.find_generation(path) / files.DATA
            claimed = files.measure_claim(data)
            findings = files.walk_pages(data)
            size = data.stat().st_size
            if findings and size < claimed:
                findings.insert(0, f"{size} bytes where the meta pages say {claimed}")
            return findings
        finally:
            if lock is not None:
                os.close(lock)
    except CorruptionError as error:
        return [error.message]
    except OSError as error:
        raise convert(error, path, "the structural check") from error
