"""Facts about a store's files and environment, for diagnosis; nothing of the store is changed.

The reader table is LMDB's own file: as any opening does, the first process to look makes it anew.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import lmdb

from deltastore.engine import lmdb_files as files
from deltastore.engine import lmdb_generations as generations
from deltastore.engine.lmdb_errors import convert
from deltastore.engine.lmdb_registry import registry
from deltastore.errors import CorruptionError, EngineError

_READER: Final = re.compile(r"^\s*(\d+)\s+\S+\s+(\S+)\s*$", re.MULTILINE)
_NOT_SPARSE: Final = frozenset("exfat fat hfs msdos vfat".split())
_LEFT: Final = re.compile(r"\.CURRENT\.\d+")


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What the file system tells.

    Attributes:
        file_system: Its type; None where that is not told.
        is_network: Whether it is known to be over a network.
        is_sparse: Whether files may have holes; None where that is not known.
        free_bytes: Room on the disk for this user.
        mode: Permissions of the directory, as in `0o700`.
        data_mode: Of the data file.
        is_owned: Whether both belong to this user.
        generation: The one in use.
        leftovers: Files and directories that a killed process left: older and unfinished
            generations, names of backups beside the store.
        file_bytes, disk_bytes: Length of the data file, and what it takes on disk.
        is_vacuuming: Whether a vacuum is running.
    """

    file_system: str | None
    is_network: bool
    is_sparse: bool | None
    free_bytes: int
    mode: int
    data_mode: int
    is_owned: bool
    generation: int
    leftovers: tuple[str, ...]
    file_bytes: int
    disk_bytes: int
    is_vacuuming: bool


@dataclass(frozen=True, slots=True)
class MapFacts:
    """What LMDB tells.

    Attributes:
        map_bytes: The largest map that a process has set aside; the file may grow to it, and the
            map with it.
        file_bytes: Length of the data file.
        free_bytes: Bytes of the file in pages that hold nothing.
        entries: Keys stored.
        last_commit: Its number.
        readers: Slots of the reader table that are taken, of `readers_max`.
        stale_readers: Those of processes that are gone; the next opening for writing frees them.
        oldest_read: The commit that the oldest view in use shows; None without any.
    """

    map_bytes: int
    file_bytes: int
    free_bytes: int
    entries: int
    last_commit: int
    readers: int
    readers_max: int
    stale_readers: int
    oldest_read: int | None


def versions() -> tuple[str, str]:
    """Return the versions of py-lmdb and of LMDB."""
    return lmdb.__version__, ".".join(map(str, lmdb.version()))


def look_at_files(path: Path) -> FileFacts:
    """Return what the file system tells of the store at a real path.

    Raises:
        CorruptionError, StorePathError: There is no finished store.
        EngineError: The file system refuses.
    """
    directory = files.find_generation(path)
    data = directory / files.DATA
    try:
        if not data.exists():
            raise CorruptionError(f"{data} is missing although {files.CURRENT} names it")
        info, own = data.stat(), path.stat()
        disk = os.statvfs(path)
        kind = files.find_file_system(path)
        return FileFacts(
            file_system=kind,
            is_network=files.is_network(kind),
            is_sparse=None if kind is None else kind not in _NOT_SPARSE,
            free_bytes=disk.f_bavail * disk.f_frsize,
            mode=own.st_mode & 0o777,
            data_mode=info.st_mode & 0o777,
            is_owned={info.st_uid, own.st_uid} == {os.geteuid()},
            generation=int(directory.name),
            leftovers=tuple(_leftovers(path, int(directory.name))),
            file_bytes=info.st_size,
            disk_bytes=info.st_blocks * 512,
            is_vacuuming=generations.is_vacuuming(path),
        )
    except OSError as error:
        raise convert(error, path, "a look at its files") from error


def _leftovers(path: Path, in_use: int) -> Iterator[str]:
    for number in generations.list_numbers(path):
        if number != in_use:
            yield f"{number:06d}"
    yield from sorted(entry.name for entry in path.iterdir() if _LEFT.fullmatch(entry.name))
    try:
        beside = sorted(path.parent.glob(".*.partial"))
    except OSError:
        beside = []
    yield from (str(one) for one in beside)


def look_at_map(path: Path, *, verify_bytes_max: int = 16 << 20) -> MapFacts:
    """Return what LMDB tells of the store at a real path; the file is checked before it is mapped.

    Raises:
        CorruptionError: The structure is damaged; nothing was mapped.
        EngineError: LMDB or the file system refuses.
    """
    try:
        with _environment(path, verify_bytes_max) as env, env.begin() as txn:
            sizes, info = txn.stat(env.open_db(None, txn)), env.info()
            own = os.getpid()
            found = [(int(pid), seen) for pid, seen in _READER.findall(env.readers())]
            others = [(pid, seen) for pid, seen in found if pid != own]
            pages = 2 + sizes["branch_pages"] + sizes["leaf_pages"] + sizes["overflow_pages"]
            size = (files.find_generation(path) / files.DATA).stat().st_size
            reads = [int(seen) for _, seen in others if seen.isdigit()]
            return MapFacts(
                map_bytes=info["map_size"],
                file_bytes=size,
                free_bytes=max(0, size - pages * sizes["psize"]),
                entries=sizes["entries"],
                last_commit=info["last_txnid"],
                readers=len(others),
                readers_max=info["max_readers"],
                stale_readers=sum(not _is_alive(pid) for pid, _ in others),
                oldest_read=min(reads, default=None),
            )
    except (lmdb.Error, OSError) as error:
        raise convert(error, path, "a look at its map") from error


@contextmanager
def _environment(path: Path, verify_bytes_max: int) -> Iterator[lmdb.Environment]:
    """Give the block an environment of its own.

    Raises:
        EngineError: The store is open in this process.
    """
    shared = registry.find(path)
    if shared is not None and shared.was_mapped:
        raise EngineError(
            f"{path} is open in this process, and LMDB opens a file once; ask from another "
            "process, or close it first"
        )
    lock, alone = files.take_lock(path, read_only=True)
    try:
        directory, data = generations.hold(path, least=0, read_only=True)
        try:
            where = files.get_directory(path, directory)
            if alone:
                files.check_data_file(
                    where / files.DATA, verify_bytes_max=verify_bytes_max, read_only=True
                )
            with lmdb.Environment(
                str(where),
                map_size=0,
                readonly=True,
                create=False,
                max_readers=1_024,
                lib_version=0,
            ) as env:
                yield env
        finally:
            os.close(data)
    finally:
        if lock is not None:
            os.close(lock)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def host() -> str:
    """Return the system and machine, as `Linux x86_64`."""
    return f"{platform.system()} {platform.machine()}"
