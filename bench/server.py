"""A throw-away PostgreSQL server: made, started, measured, stopped and removed by one process.

The server listens on a socket in its own directory and nowhere else, with the settings it comes
with (every commit is flushed). It refuses to run as root, so it then runs as the user `postgres`.
Where the programs `initdb` and `postgres` are not found, `why_unavailable` says so.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from bench.host import written_bytes

_SYSTEM_USER: Final = "postgres"
_START_S: Final = 60.0
_STOP_S: Final = 60.0
_WHERE: Final = "/usr/lib/postgresql/*/bin"


def find_program(name: str) -> str | None:
    """Return the path of a server program, on the PATH or where Debian keeps it; None if absent."""
    installed = sorted(Path("/").glob(f"{_WHERE[1:]}/{name}"), reverse=True)
    return shutil.which(name) or (str(installed[0]) if installed else None)


def why_unavailable() -> str | None:
    """Return why no server can be started here, None if one can."""
    for name in ("initdb", "postgres"):
        if find_program(name) is None:
            return f"not available: {name} of PostgreSQL is not installed"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam(_SYSTEM_USER)
        except KeyError:
            return f"not available: PostgreSQL refuses root, and there is no user {_SYSTEM_USER}"
    return None


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    directory: Path
    process: psutil.Process

    @property
    def dsn(self) -> str:
        """Connection string of its one database."""
        return f"host={self.directory} dbname=postgres user={_SYSTEM_USER}"

    @property
    def url(self) -> str:
        """The same as a URL."""
        return f"postgresql://{_SYSTEM_USER}@/postgres?host={self.directory}"

    def written(self) -> int:
        """Return bytes its processes, those that ended too, handed to write calls."""
        # The kernel adds what a child that was waited for wrote to its parent's account.
        return sum(written_bytes(process.pid) for process in self._living())

    def cpu_s(self) -> float:
        """Return CPU seconds of its processes, those that ended too."""
        total = 0.0
        for process in self._living():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        ended = self.process.cpu_times()
        return total + ended.children_user + ended.children_system

    def rss(self) -> int:
        """Return resident bytes that no other process shares, of all its processes."""
        total = 0
        for process in self._living():
            with suppress(psutil.NoSuchProcess):
                total += process.memory_full_info().uss
        return total

    def _living(self) -> list[psutil.Process]:
        # The server starts and ends workers of its own: one may be gone when it is asked.
        return [self.process, *self.process.children(recursive=True)]


@contextmanager
def running_server(directory: Path) -> Iterator[Server]:
    """Make a cluster in a new directory, start it, and stop it at the end of the block."""
    as_user = _user()
    directory.mkdir()
    if as_user is not None:
        os.chown(directory, as_user, -1)
    cluster = directory / "cluster"
    _run_as(as_user, "initdb", "-D", str(cluster), "-U", _SYSTEM_USER, "-A", "trust", "-N")
    log = (directory / "log").open("wb")
    with log:
        process = subprocess.Popen(
            [_program("postgres"), "-D", str(cluster), "-k", str(directory), "-h", ""],
            stdout=log,
            stderr=log,
            cwd=directory,
            user=as_user,
            start_new_session=True,  # an interrupt is for the child, which then stops it in order
        )
    (directory / "pid").write_text(str(process.pid))
    try:
        _wait_until_ready(process, directory)
        yield Server(directory, psutil.Process(process.pid))
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def stop_left_over(scratch: Path) -> None:
    """Stop servers below `scratch` whose process was killed before it could stop them."""
    for file in scratch.glob("**/pid"):
        try:
            process = psutil.Process(int(file.read_text()))
            if str(file.parent) in " ".join(process.cmdline()):
                process.send_signal(signal.SIGINT)
                process.wait(_STOP_S)
        except (psutil.Error, ValueError):
            continue


def _wait_until_ready(process: subprocess.Popen[bytes], directory: Path) -> None:
    deadline = time.monotonic() + _START_S
    ready = _program("pg_isready")
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(
                f"PostgreSQL did not start: {(directory / 'log').read_text()[-500:]}"
            )
        if subprocess.run([ready, "-q", "-h", str(directory)], check=False).returncode == 0:
            return
        time.sleep(0.05)


def _user() -> int | None:
    return pwd.getpwnam(_SYSTEM_USER).pw_uid if os.geteuid() == 0 else None


def _program(name: str) -> str:
    found = find_program(name)
    if found is None:
        raise RuntimeError(f"{name} of PostgreSQL is not installed")
    return found


def _run_as(as_user: int | None, name: str, *arguments: str) -> None:
    subprocess.run(
        [_program(name), *arguments], check=True, capture_output=True, user=as_user, cwd="/"
    )
