"""Generations of a store: which is in use, who uses which, and when one may go.

    PATH/VACUUM              flock: exclusive while a vacuum runs
    PATH/000001/data.mdb     flock: shared by every process that has the generation open
    PATH/000001/ERASE        the data file is to be overwritten before it is removed

A generation below the one that CURRENT names is *superseded*: it may go when nobody has it open,
which its flock tells. One above is *unfinished*, or the successor that CURRENT is about to name: it
may go only if no vacuum runs and the one in use does not name it. Numbers are never used
again after they were named, and CURRENT only ever counts up.

Whoever opens a generation locks first and asks CURRENT then: what it still names cannot have been
removed, and nobody removes it while it is locked. Opens no environment.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from deltastore.engine import lmdb_files as files
from deltastore.errors import CorruptionError, EngineError

VACUUM: Final = "VACUUM"
ERASE: Final = "ERASE"
_NUMBER_MAX: Final = 999_999  # six digits
_ZEROS: Final = bytes(1 << 20)


def hold(path: Path, *, least: int, read_only: bool) -> tuple[int, int]:
    """Lock the generation in use for as long as a descriptor is open.

    Args:
        least: The number of a successor that CURRENT may not name yet; 0 if none is known.

    Returns:
        Its number, and a descriptor of its data file that holds the lock.

    Raises:
        CorruptionError: CURRENT is damaged, or names what is not there.
        StorePathError: There is no store.
    """
    access = os.O_RDONLY if read_only else os.O_RDWR
    while True:
        number = max(_read_number(path), least)
        data = files.get_directory(path, number) / files.DATA
        try:
            descriptor = os.open(data, access | os.O_CLOEXEC)
        except FileNotFoundError:
            if number != max(_read_number(path), least):
                continue  # superseded and removed just now
            if not data.parent.is_dir():
                raise CorruptionError(
                    f"{path / files.CURRENT} names {data.parent.name}, which is missing"
                ) from None
            raise CorruptionError(
                f"{data} is missing although {files.CURRENT} names its generation; restore it "
                "from a backup"
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if number == max(_read_number(path), least):
                return number, descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _read_number(path: Path) -> int:
    return int(files.find_generation(path).name)


def get_next_number(number: int) -> int:
    """Return the number of the generation after `number`.

    Raises:
        EngineError: There is none.
    """
    if number >= _NUMBER_MAX:
        raise EngineError(f"generation {number} is the last that can be numbered; copy the store")
    return number + 1


def name_successor(path: Path, number: int, successor: int) -> None:
    """Let CURRENT name the successor of `number`, unless it names a later one already.

    Called inside a write transaction of generation `number`, which keeps others from doing the same
    and is the reason why CURRENT never goes back.
    """
    if _read_number(path) == number:
        files.write_current(path, successor)


# The lock of a vacuum


def take_vacuum_lock(path: Path) -> int:
    """Take the lock of the one vacuum a store may have; return the descriptor that holds it.

    Raises:
        EngineError: Another vacuum is running.
    """
    lock = files.open_private(path / VACUUM, os.O_RDWR | os.O_CREAT)
    try:
        while not _try_lock(lock, fcntl.LOCK_EX):
            # Those that only ask whether a vacuum runs share the lock for a moment.
            if not _try_lock(lock, fcntl.LOCK_SH):
                raise EngineError(f"{path}: a vacuum is running already; wait for its end")
            fcntl.flock(lock, fcntl.LOCK_UN)
    except BaseException:
        os.close(lock)
        raise
    return lock


def is_vacuuming(path: Path) -> bool:
    """Return whether a vacuum is running in any process; cost: a few microseconds.

    True where that cannot be told.
    """
    try:
        lock = os.open(path / VACUUM, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return not _try_lock(lock, fcntl.LOCK_SH)
        finally:
            os.close(lock)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# Removing


def list_numbers(path: Path) -> list[int]:
    """Return the numbers of the generations that are there, ascending."""
    names = [entry.name for entry in path.iterdir()]
    return sorted(int(name) for name in names if files.is_generation(name))


def has_unfinished(path: Path, number: int) -> bool:
    """Return whether there are generations above `number`, the one in use."""
    return any(found > number for found in list_numbers(path))


def remove_unfinished(path: Path, number: int) -> None:
    """Remove generations above `number`, the one in use.

    Called with the vacuum's lock held, after the one in use was seen to have no successor.
    """
    for found in list_numbers(path):
        if found > number:
            _remove(files.get_directory(path, found))


def remove_superseded(path: Path) -> None:
    """Remove the generations below the one in use that no process has open.

    Raises:
        OSError: A file cannot be removed, or CURRENT not be synced.
    """
    number = _read_number(path)
    found = [old for old in list_numbers(path) if old < number]
    if found:
        files.sync_directory(path)  # first CURRENT, then the removal of what it named before
    for old in found:
        directory = files.get_directory(path, old)
        try:
            lock = os.open(directory / files.DATA, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            _remove(directory)  # what a removal that was killed left behind
            continue
        try:
            if _try_lock(lock, fcntl.LOCK_EX):
                _remove(directory)
        finally:
            os.close(lock)


def _remove(directory: Path) -> None:
    """Remove a generation; the mark goes after the data file, so a killed removal is taken up."""
    data = directory / files.DATA
    try:
        if (directory / ERASE).exists():
            _overwrite(data)
        (directory / files.READERS).unlink(missing_ok=True)
        data.unlink(missing_ok=True)
        (directory / ERASE).unlink(missing_ok=True)
        directory.rmdir()
    except FileNotFoundError:
        return  # another process was faster
    files.sync_directory(directory.parent)


def _overwrite(file: Path) -> None:
    """Overwrite a file with zeros, synced; a file that is not there is none to overwrite."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        left = os.fstat(descriptor).st_size
        while left > 0:
            left -= os.write(descriptor, _ZEROS[:left])
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def mark_for_erasure(path: Path) -> None:
    """Have every generation that is there overwritten when it is removed, come what may."""
    for number in list_numbers(path):
        directory = files.get_directory(path, number)
        try:
            os.close(files.open_private(directory / ERASE, os.O_WRONLY | os.O_CREAT))
            files.sync_directory(directory)
        except FileNotFoundError:
            continue  # removed just now
