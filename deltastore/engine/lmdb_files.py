"""Where an LMDB store's files are, how they are made, and whether they may be mapped.

    PATH/CURRENT            the generation in use: its number and a newline; replaced atomically
    PATH/LOCK               flock: shared while an environment is open, exclusive to create or check
    PATH/000001/data.mdb    the environment of generation 1
    PATH/000001/lock.mdb    its reader table

A *generation* is one environment directory. CURRENT is written last, so a store without it has
never acknowledged anything. Files are 0600 and directories made here 0700,
whatever the umask. Files of a vacuum are in `lmdb_generations`.

Opens no environment but to create one, and never maps a file that was not checked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final

import lmdb
from lmdb import verify as lmdb_verify

from deltastore.errors import CorruptionError, StorePathError

CURRENT: Final = "CURRENT"
LOCK: Final = "LOCK"
DATA: Final = "data.mdb"
READERS: Final = "lock.mdb"
_FIRST: Final = 1
_GENERATION: Final = re.compile(r"[0-9]{6}")
_NUMBER: Final = re.compile(rb"([1-9][0-9]{0,5})\n")
_PAGE_BYTES_MAX: Final = 1 << 15
_FINDINGS_SHOWN: Final = 3
# A meta page of LMDB 0.9 on a 64-bit machine: page number, pad, flags, bounds; then magic, data
# version, address, map size; two trees of 48 bytes, the first starting with the page size; then the
# last page and the transaction that wrote it.
_META: Final = struct.Struct("=QHHI IIQQ I44x48x QQ")
_META_FLAG: Final = 0x08
_MAGIC: Final = 0xBEEFC0DE
_DATA_VERSION: Final = 1
_NETWORK_TYPES: Final = frozenset(
    "9p afs beegfs ceph cifs fuse.ceph fuse.glusterfs fuse.gcsfuse fuse.rclone fuse.s3fs "
    "fuse.sshfs glusterfs gpfs lustre ncpfs nfs nfs4 orangefs smb2 smb3 smbfs".split()
)


def find_file_system(path: Path, *, mountinfo: str | None = None) -> str | None:
    """Return the type of the file system that holds `path`, None where that is not told.

    Args:
        mountinfo: Text of Linux's /proc/self/mountinfo; read from there if None.
    """
    if mountinfo is None:
        try:
            mountinfo = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        except OSError:
            return None
    here = f"{path}/"
    best, found = "", None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, kinds = left.split(" "), right.split(" ")
        if len(fields) < 5:
            continue
        mount = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4])
        if here.startswith(mount.rstrip("/") + "/") and len(mount) >= len(best):
            best, found = mount, kinds[0]
    return found


def is_network(file_system: str | None) -> bool:
    """Return whether a type of file systems is known to be one over a network."""
    return file_system in _NETWORK_TYPES


def warn_network(path: Path, *, mountinfo: str | None = None, stacklevel: int = 2) -> None:
    """Warn (`UserWarning`) if `path` lies on a network file system, as far as that is known."""
    found = find_file_system(path, mountinfo=mountinfo)
    if is_network(found):
        warnings.warn(
            f"{path} is on a network file system ({found}). LMDB needs a memory map and POSIX "
            "locks that all its users see at once; processes on two hosts can damage the "
            "store. Use a local disk.",
            UserWarning,
            stacklevel=stacklevel + 1,
        )


def make_directories(path: Path) -> None:
    """Create the store's directory and its missing parents, each synced into its own parent."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        try:
            directory.mkdir(0o700)
        except FileExistsError:
            continue  # another process was faster
        directory.chmod(0o700)
        sync_directory(directory.parent)


def take_lock(path: Path, *, read_only: bool) -> tuple[int | None, bool]:
    """Take the store's lock, exclusive if nobody has it, else shared; may wait for a check.

    Returns:
        The descriptor that holds it, None if a read-only opening has to go without, and whether no
        other environment is open.
    """
    file = path / LOCK
    try:
        lock = open_private(file, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        if not read_only or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        try:
            lock = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None, True  # whoever opens it for writing makes the file first
        except OSError:
            return None, False
    try:
        return lock, _lock_first(lock)
    except BaseException:
        os.close(lock)
        raise


def _lock_first(lock: int) -> bool:
    """Lock exclusively unless others have the store open; return whether nobody has.

    Who waited for another opener asks again: that one may have found damage, or died.
    """
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            pass
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_SH)


def share_lock(lock: int) -> None:
    """Turn an exclusive lock into a shared one; another opener may check in between."""
    fcntl.flock(lock, fcntl.LOCK_SH)


def read_current(path: Path) -> Path | None:
    """Return the directory of the generation in use, None if the store was never finished.

    Raises:
        CorruptionError: CURRENT is damaged, or lost beside generations that hold data.
    """
    file = path / CURRENT
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        for entry in sorted(path.iterdir()):
            data = entry / DATA
            if data.exists() and _holds_data(data):
                raise CorruptionError(
                    f"{file} is missing, but {data} holds data; if no backup has it, write the "
                    f"number of the newest generation and a newline to it"
                ) from None
        return None
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise CorruptionError(
            f"{file} is damaged: expected a generation number and a newline, found {text[:40]!r}"
        )
    return get_directory(path, int(match[1]))


def get_directory(path: Path, number: int) -> Path:
    """Return the directory of a generation."""
    return path / f"{number:06d}"


def is_generation(name: str) -> bool:
    """Return whether a name is that of a generation's directory."""
    return _GENERATION.fullmatch(name) is not None


def _holds_data(file: Path) -> bool:
    """Return whether anything was ever committed to a data file."""
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    if file.stat().st_size <= 2 * page_bytes:
        return False  # the meta pages of a creation, whole or not: it ended before it synced them
    return measure_claim(file) > 2 * page_bytes


def create(path: Path, make_environment: Callable[[Path], lmdb.Environment]) -> None:
    """Make the first generation and then CURRENT, all synced; the lock must be held exclusively.

    What a killed creation left behind is replaced: without CURRENT it held nothing.
    """
    directory = get_directory(path, _FIRST)
    make_files(directory)
    make_environment(directory).close()
    sync_files(directory)
    write_current(path, _FIRST)


def make_files(directory: Path) -> None:
    """Make a generation's directory and empty files, in place of what is there."""
    make_directories(directory)
    for name in (DATA, READERS):
        (directory / name).unlink(missing_ok=True)
        os.close(open_private(directory / name, os.O_RDWR | os.O_CREAT))


def sync_files(directory: Path) -> None:
    """Make a generation's files and their names durable."""
    for name in (DATA, READERS):
        with (directory / name).open("rb") as file:
            os.fsync(file.fileno())
    sync_directory(directory)


def write_current(path: Path, generation: int) -> None:
    """Replace CURRENT atomically and durably."""
    fresh = path / f".{CURRENT}.{os.getpid()}"
    descriptor = open_private(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(descriptor, b"%d\n" % generation)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    fresh.replace(path / CURRENT)
    sync_directory(path)


def open_private(file: Path, flags: int) -> int:
    """Open a file, made 0600 if need be; return its descriptor."""
    descriptor = os.open(file, flags | os.O_CLOEXEC, 0o600)
    try:
        info = os.fstat(descriptor)
        if info.st_mode & 0o777 != 0o600 and info.st_uid == os.geteuid():
            os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def measure_claim(file: Path) -> int:
    """Return how many bytes the meta pages say the data file has.

    Raises:
        CorruptionError: The file is missing, or a meta page is not one; LMDB needs both.
    """
    try:
        with file.open("rb") as data:
            first = _read_meta(file, data.read(_META.size), 0)
            page_bytes = first[8]
            data.seek(page_bytes)
            second = _read_meta(file, data.read(_META.size), 1)
    except FileNotFoundError:
        raise CorruptionError(
            f"{file} is missing although {CURRENT} names its generation; restore it from a backup"
        ) from None
    return int(max(first[9], second[9]) + 1) * int(page_bytes)


def _read_meta(file: Path, raw: bytes, number: int) -> tuple[int, ...]:
    if len(raw) == _META.size:
        meta = _META.unpack(raw)
        page_bytes = meta[8]
        if (
            meta[0] == number
            and meta[2] & _META_FLAG
            and meta[4] == _MAGIC
            and meta[5] == _DATA_VERSION
            and 256 <= page_bytes <= _PAGE_BYTES_MAX
            and page_bytes & (page_bytes - 1) == 0
        ):
            return meta
    raise CorruptionError(
        f"{file}: meta page {number} is damaged or cut off ({len(raw)} of {_META.size} bytes); "
        "restore the store from a backup"
    )


def check_data_file(file: Path, *, verify_bytes_max: int, read_only: bool) -> None:
    """Check a data file that no environment has open, before it is mapped.

    The structure is walked if the file has at most `verify_bytes_max` bytes, and also if it is
    shorter than its meta pages say. A short file may be sound: LMDB does not write pages at the end
    that a transaction took and gave back. The walk tells the two apart; a sound file is then made
    as long as it claims, so that this is not asked again.

    Raises:
        CorruptionError: The structure is damaged, with the first findings.

    Cost: the walk reads the whole file, about 20 ms per MB.
    """
    if sys.maxsize < 1 << 32:
        return  # the layout read here is that of 64-bit machines
    claimed = measure_claim(file)
    size = file.stat().st_size
    if size > verify_bytes_max and size >= claimed:
        return
    findings = walk_pages(file)
    if findings:
        cut = f"it has {size} bytes where its meta pages say {claimed}; " if size < claimed else ""
        more = len(findings) - _FINDINGS_SHOWN
        raise CorruptionError(
            f"{file} is damaged: {cut}{'; '.join(findings[:_FINDINGS_SHOWN])}"
            + (f"; and {more} more findings" if more > 0 else "")
            + ". Restore it from a backup; if there is none, verify_bytes_max=0 maps it unchecked, "
            "and reading it may then end the process"
        )
    if size < claimed and not read_only:
        os.truncate(file, claimed)


def walk_pages(file: Path) -> list[str]:
    """Return what is wrong with the structure of a data file that nobody writes to; maps nothing.

    Cost: reads the whole file, about 20 ms per MB.
    """
    try:
        findings: list[str] = lmdb_verify.verify(  # type: ignore[no-untyped-call]  # has no stubs
            str(file), subdir=False
        )
    except lmdb_verify.VerifyError as error:
        findings = [str(error)]
    return findings


def find_generation(path: Path) -> Path:
    """Return the directory that CURRENT names, of a store that must be finished.

    Raises:
        StorePathError: There is no store.
    """
    directory = read_current(path)
    if directory is None:
        raise StorePathError(f"{path}: no store there to open read-only; open it for writing once")
    return directory
