"""What LMDB's errors and the operating system's mean to a caller.

Decides nothing about transactions: whether one may be run again is the engine's to say.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

import lmdb

from deltastore.errors import (
    CorruptionError,
    DeltaStoreError,
    EngineError,
    QuotaExceededError,
    StoreFullError,
    StorePathError,
)

_FULL: Final = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})
_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_DAMAGE: Final = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
)


def file_full(path: Path, file_bytes: int, max_bytes: int) -> QuotaExceededError:
    """Return the error of a bounded store whose file may not grow any more."""
    return QuotaExceededError(
        f"{path}: the data file of {file_bytes} bytes has no room left under max_bytes={max_bytes} "
        "and its margin; nothing was stored. Delete or prune threads, vacuum, or open the store "
        "with a greater max_bytes",
        used_bytes=file_bytes,
        max_bytes=max_bytes,
    )


def convert(error: lmdb.Error | OSError, path: Path, what: str) -> DeltaStoreError:
    """Return the error of ours that says what `error` means to a caller."""
    code = error.errno if isinstance(error, OSError) else getattr(error, "code", 0)
    if code in _FULL or isinstance(error, (lmdb.DiskError, lmdb.MapFullError)):
        return StoreFullError(f"{path}: no room for {what} ({error}); make room and try again")
    if code in _DENIED:
        return StorePathError(f"{path}: no permission for {what} ({error}); change its permissions")
    if isinstance(error, _DAMAGE):
        return CorruptionError(f"{path}: damage found by {what} ({error}); restore from a backup")
    return EngineError(f"{path}: {what} failed: {error}")
