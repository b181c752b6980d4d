"""What a saver to compare is: where it lies, how it is opened, what is asked of it when closed.

A *kind* opens its saver in a *place*: a directory of its own, and a server where it needs one. Its
bytes at rest are asked for when it is closed: files, files after a vacuum, and the records alone.

Knows no saver; `bench.savers` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.server import Server
from bench.tally import Tally
from bench.timed import Saver


class SaverUnavailableError(Exception):
    """A saver was asked for that cannot be had here; the text says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one store lies: a directory that exists and holds nothing else, and its server.

    Attributes:
        counted: Whether bytes are counted between a saver opened here and its engine, which takes
            time.
    """

    directory: Path
    server: Server | None = None
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Opened:
    """A saver that is open, and the tally of what passes between it and its engine."""

    saver: Saver
    tally: Tally = field(default_factory=Tally)


@dataclass(frozen=True, slots=True)
class SaverKind:
    """One saver to compare.

    Attributes:
        open: Opens the saver in a place; closed when the block ends. A plain context manager, or
            for an async saver an async one.
        is_async: Whether its `a` methods are called, on an event loop; else the others, on none.
        persistent: Whether what it stored is there after closing.
        on_server: Whether its place must have a server.
        vacuum: Makes the closed store's files as small as the saver can; None if it cannot.
        at_rest: Bytes the closed store takes; None for the sizes of all its files.
        record_bytes: Bytes of all live keys and values of the closed store; None if unknown.
        note: What a reader must know to judge its figures.
    """

    name: str
    open: Callable[[Place], Any]
    is_async: bool = False
    persistent: bool = True
    on_server: bool = False
    vacuum: Callable[[Place], None] | None = None
    at_rest: Callable[[Place], int] | None = None
    record_bytes: Callable[[Place], int] | None = None
    note: str = ""

    def file_bytes(self, place: Place) -> int:
        """Return what the closed store takes."""
        if not self.persistent:
            return 0
        if self.at_rest is not None:
            return self.at_rest(place)
        return directory_bytes(place.directory)


def directory_bytes(directory: Path) -> int:
    """Return the sum of the sizes of all files below `directory`."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # a server renames and removes its files
            continue
    return total


@contextmanager
def wanted(package: str) -> Iterator[None]:
    """Tell an import that fails inside the block as a saver that cannot be had."""
    try:
        yield
    except ImportError as error:
        raise SaverUnavailableError(f"not available: {package} is not installed") from error
