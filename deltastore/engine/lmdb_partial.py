"""A directory that is made under another name and put in its place whole, or not at all.

    PARENT/.NAME.partial    0700; flock: exclusive while it is made

Whoever finds one that nobody holds removes it: its maker was killed. It has no CURRENT until it is
whole, so it never opens as a store before.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deltastore.engine import lmdb_files as files
from deltastore.engine import lmdb_paths as paths
from deltastore.engine.lmdb_errors import convert
from deltastore.errors import EngineError, StorePathError


def check_target(target: str | os.PathLike[str], *sources: Path) -> Path:
    """Return the real path of a directory that is to be made; touches nothing.

    Args:
        sources: Stores that are read meanwhile.

    Raises:
        InvalidTypeError: It is no path.
        StorePathError: It exists and is not an empty directory, lies within a source or around it,
            or cannot be made.
    """
    real = paths.check_path(target, read_only=False)
    if real.exists() and any(real.iterdir()):
        raise StorePathError(
            f"{os.fsdecode(target)} is not empty; nothing there is overwritten: name an empty "
            "directory or a path not in use"
        )
    for source in sources:
        if real == source or source in real.parents or real in source.parents:
            raise StorePathError(
                f"{os.fsdecode(target)} and the store {source} lie within each other"
            )
    return real


@contextmanager
def partial_directory(target: Path, what: str) -> Iterator[Path]:
    """Give the block an empty directory that takes the place of `target` at its end, synced.

    An exception of the block removes it and passes.

    Raises:
        EngineError: Another process is making the same; or the file system refuses.
    """
    partial = target.parent / f".{target.name}.partial"
    try:
        held = _make(partial, what)
    except OSError as error:
        raise convert(error, target, what) from error
    try:
        try:
            yield partial
            _sync(partial)
            partial.rename(target)  # an empty directory there is replaced
            files.sync_directory(target.parent)
        except OSError as error:
            raise convert(error, target, what) from error
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        os.close(held)


def _sync(partial: Path) -> None:
    """Make everything in a directory durable."""
    for path in partial.rglob("*"):
        if path.is_dir():
            files.sync_directory(path)
            continue
        with path.open("rb") as file:
            os.fsync(file.fileno())
    files.sync_directory(partial)


def _make(partial: Path, what: str) -> int:
    while True:
        files.make_directories(partial)
        held = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not any(partial.iterdir()) and os.path.samestat(os.fstat(held), partial.stat()):
                return held
            shutil.rmtree(partial)  # its maker was killed
        except BlockingIOError:
            os.close(held)
            raise EngineError(
                f"{partial}: another {what} to the same place is running; wait for its end"
            ) from None
        except FileNotFoundError:
            pass  # put in its place, or removed, just now
        except BaseException:
            os.close(held)
            raise
        os.close(held)
