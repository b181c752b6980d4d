"""Whether a path can hold an LMDB store; decided by looking, nothing is touched or opened."""

from __future__ import annotations

import os
from pathlib import Path

from deltastore.engine import lmdb_files as files
from deltastore.engine import lmdb_generations as generations
from deltastore.errors import InvalidTypeError, StorePathError


def check_path(path: str | os.PathLike[str], *, read_only: bool) -> Path:
    """Return the real path of a store that could be opened there; touches nothing.

    Raises:
        InvalidTypeError: `path` is no path.
        StorePathError: It is a file, holds something else, is absent (with `read_only`), or cannot
            be created, read or written.
    """
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise InvalidTypeError(
            f"path must be a str or a path object (got {type(path).__name__})"
        ) from None
    if not text:
        raise StorePathError("path is empty; name a directory for the store")
    try:
        real = Path(os.path.realpath(text))
        names = sorted(entry.name for entry in real.iterdir())
    except FileNotFoundError:
        if read_only:
            raise StorePathError(
                f"{text}: no store there to open read-only; open it for writing once"
            ) from None
        _check_parent(real)
        return real
    except NotADirectoryError:
        raise StorePathError(f"{text} is not a directory; name one, or a path not in use") from None
    except (OSError, ValueError) as error:
        raise StorePathError(f"{text!r} cannot hold a store: {error}") from error
    _check_names(real, names, read_only)
    mode = os.R_OK | os.X_OK if read_only else os.R_OK | os.W_OK | os.X_OK
    if not _can_access(real, mode):
        raise StorePathError(
            f"{real}: this user may not {'read' if read_only else 'write'} there; "
            + ("" if read_only else "open it with read_only=True, or ")
            + "change its permissions"
        )
    return real


def check_damaged_path(path: str | os.PathLike[str]) -> Path:
    """Return the real path of what may be a store with files missing; touches nothing.

    Raises:
        InvalidTypeError: `path` is no path.
        StorePathError: It is no directory, or has no generation's directory.
    """
    try:
        return check_path(path, read_only=True)
    except StorePathError:
        real = Path(os.path.realpath(os.fsdecode(path)))
        if real.is_dir() and any(files.is_generation(entry.name) for entry in real.iterdir()):
            return real
        raise


def _check_names(path: Path, names: list[str], read_only: bool) -> None:
    seen = [name for name in names if not name.startswith(".")]
    if files.CURRENT in seen:
        return
    locks = (files.LOCK, generations.VACUUM)
    strange = [name for name in seen if name not in locks and not files.is_generation(name)]
    if strange:
        raise StorePathError(
            f"{path} holds something else than a store ({', '.join(strange[:3])}); "
            "name an empty directory or a path not in use"
        )
    if read_only:
        raise StorePathError(f"{path}: no store there to open read-only; open it for writing once")


def _check_parent(path: Path) -> None:
    parent = path.parent
    while not os.path.lexists(parent):
        parent = parent.parent
    if not parent.is_dir():
        raise StorePathError(f"{path}: {parent} is not a directory")
    if not _can_access(parent, os.W_OK | os.X_OK):
        raise StorePathError(f"{path} cannot be created: this user may not write in {parent}")


def _can_access(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)
