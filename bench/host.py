"""What a run depends on: machine, versions, load; and what this process wrote, used and holds.

Bytes handed to the operating system are `wchar` of /proc/PID/io: the sum of what was given to
write, pwrite, writev and their like, whether or not it has reached a disk. `check_written` proves
it on a known write before anything is measured.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from deltastore.format.crc import IMPLEMENTATION

PACKAGES: Final = (
    "aiosqlite",
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-deltastore",
    "langgraph-checkpoint-lmdb",
    "langgraph-checkpoint-postgres",
    "langgraph-checkpoint-sqlite",
    "lmdb",
    "ormsgpack",
    "psycopg",
    "zstandard",
)
_KNOWN_BYTES: Final = 3_000_000


def describe_host() -> dict[str, Any]:
    """Return machine, versions and load, as they go into every file of results."""
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": _cpu(),
        "cpus": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "file_system": _file_system(tempfile.gettempdir()),
        "fdatasync_ms": round(_fdatasync_ms(), 3),
        "load": list(os.getloadavg()),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "crc": IMPLEMENTATION,
        "packages": {package: version_of(package) for package in PACKAGES},
    }


def version_of(package: str) -> str | None:
    """Return the version of an installed distribution, None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def written_bytes(pid: int | str = "self") -> int:
    """Return bytes a process handed to write calls since it began; 0 where this is not told."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar:"))


def check_written(directory: Path) -> float:
    """Write a known number of bytes; return what is counted over it, 1.0 if all is well."""
    file = directory / "known"
    before = written_bytes()
    handle = os.open(file, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        half = _KNOWN_BYTES // 2
        os.pwrite(handle, bytes(half), 0)
        os.writev(handle, [bytes(half // 2), bytes(half // 2)])
        os.fdatasync(handle)
    finally:
        os.close(handle)
    counted = written_bytes() - before
    file.unlink()
    return counted / _KNOWN_BYTES


def peak_rss_bytes() -> int:
    """Return the most this process held in memory at once, maps of files included."""
    return _status("VmHWM")


def anonymous_bytes() -> int:
    """Return what this process holds in memory that no file is behind."""
    return _status("RssAnon")


def _status(name: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":")), 0)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")


def _file_system(path: str) -> str:
    found, longest = "", 0
    try:
        lines = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return found
    for line in lines:
        _, place, kind, *_ = line.split()
        if path.startswith(place) and len(place) >= longest:
            found, longest = kind, len(place)
    return found


def _fdatasync_ms() -> float:
    """Return the least of 20 times of appending 4 KB and syncing it."""
    taken = []
    with tempfile.TemporaryFile() as file:
        for _ in range(20):
            file.write(bytes(4096))
            file.flush()
            begun = perf_counter()
            os.fdatasync(file.fileno())
            taken.append((perf_counter() - begun) * 1e3)
    return min(taken)
