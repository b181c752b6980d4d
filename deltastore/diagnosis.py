"""Look a store over from outside: files, disk, readers, map, versions; and say what to do about it.

Reads only, and no record but the store's own. Whether what is stored is sound is `verify`'s to say.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import Final

from deltastore.engine.lmdb_facts import (
    FileFacts,
    MapFacts,
    host,
    look_at_files,
    look_at_map,
    versions,
)
from deltastore.engine.lmdb_paths import check_path
from deltastore.errors import CorruptionError
from deltastore.format.crc import IMPLEMENTATION
from deltastore.format.layout import FORMAT_VERSION

_PACKAGE: Final = "langgraph-checkpoint-deltastore"
_LITTLE_BYTES: Final = 256 << 20  # of free disk
_VACUUM_BYTES: Final = 64 << 20  # fewer free ones are not worth it
_COMMITS_MANY: Final = 10_000  # that a view holds pages for
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Facts about a store, and what is to be done.

    Attributes:
        path: The real one.
        files: What the file system tells.
        map: What LMDB tells; None where the file's structure is damaged.
        checksum: The implementation of CRC-32C in use.
        versions: By name: of deltastore, py-lmdb, LMDB, Python, the system, and the format that
            this release writes.
        warnings: Each says what is wrong and the way out; empty where all is well.
    """

    path: Path
    files: FileFacts
    map: MapFacts | None
    checksum: str
    versions: dict[str, str]
    warnings: tuple[str, ...]


def doctor(path: str | PathLike[str]) -> Diagnosis:
    """Look a store over, beside whoever uses it; the process that asks must not have it open.

    Raises:
        StorePathError: There is no store.
        CorruptionError: Files are missing.
        EngineError: The store is open in this process, or the file system refuses.

    Cost: a file of up to 16 MiB that nobody has open is read once.
    """
    real = check_path(path, read_only=True)
    files = look_at_files(real)
    damage, found = "", None
    try:
        found = look_at_map(real)
    except CorruptionError as error:
        damage = error.message
    warnings = (*([damage] if damage else []), *_of_files(files), *_of_map(found), *_of_host())
    return Diagnosis(real, files, found, IMPLEMENTATION, _versions(), warnings)


def _versions() -> dict[str, str]:
    try:
        own = metadata.version(_PACKAGE)
    except metadata.PackageNotFoundError:
        own = "not installed"
    binding, engine = versions()
    return {
        "deltastore": own,
        "format": str(FORMAT_VERSION),
        "py_lmdb": binding,
        "lmdb": engine,
        "python": platform.python_version(),
        "system": host(),
    }


def _of_files(files: FileFacts) -> Iterator[str]:
    if files.is_network:
        yield (
            f"on a network file system ({files.file_system}): processes on two hosts can damage "
            "the store; move it to a local disk"
        )
    if files.free_bytes < _LITTLE_BYTES:
        yield f"{files.free_bytes // _MIB} MiB left on the disk: make room before writes fail"
    elif files.free_bytes < files.file_bytes:
        yield "no room on the disk for a second copy: vacuum needs one, and so does a backup there"
    if (files.mode | files.data_mode) & 0o077:
        yield (
            f"others may look into it (directory {files.mode:o}, data file {files.data_mode:o}): "
            "chmod 700 the directory and 600 the files, unless that is meant"
        )
    if not files.is_owned:
        yield "it belongs to another user: open it as that user, or change its owner"
    if files.is_sparse is False:
        yield f"files of {files.file_system} have no holes: a file that grows is written in full"
    if files.leftovers and not files.is_vacuuming:
        yield (
            f"left behind by a killed process, or in use by one: {', '.join(files.leftovers)}; "
            "generations go at the next opening for writing, *.partial at the next backup, restore "
            "or repair to the same place"
        )


def _of_map(found: MapFacts | None) -> Iterator[str]:
    if found is None:
        return
    free = found.free_bytes
    if free >= _VACUUM_BYTES and 2 * free >= found.file_bytes:
        yield f"{free // _MIB} MiB of the file hold nothing: `deltastore vacuum` gives them back"
    if found.stale_readers:
        yield (
            f"{found.stale_readers} readers of processes that are gone keep pages: the next "
            "opening lets go of them"
        )
    age = 0 if found.oldest_read is None else found.last_commit - found.oldest_read
    if age > _COMMITS_MANY:
        yield (
            f"a view of {age} commits ago is still open, and the file grows until it ends: a "
            "backup or verify that is running, or a stuck process"
        )
    if found.readers > found.readers_max * 3 // 4:
        yield f"{found.readers} of {found.readers_max} reader slots are taken: use fewer threads"


def _of_host() -> Iterator[str]:
    if IMPLEMENTATION == "crcmod-pure":
        yield (
            "checksums are computed in pure Python, some 300 times slower than they could be: "
            f'pip install "{_PACKAGE}[fast]"'
        )
