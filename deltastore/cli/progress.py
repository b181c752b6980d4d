"""Show how far long work is: a bar on standard error, if that is a terminal, and else nothing.

With rich its bar, without it one line that is drawn again at each per cent. Gone when the work is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from deltastore.cli.output import has_rich
from deltastore.plans import Progress, no_progress

_WIDTH: Final = 30


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """Give the block a callback that draws what it is told."""
    if not sys.stderr.isatty():
        yield no_progress
    elif has_rich():
        with _rich_bar(title) as bar:
            yield bar
    else:
        plain = _PlainBar(title)
        try:
            yield plain
        finally:
            plain.clear()


class _PlainBar:
    def __init__(self, title: str) -> None:
        self._title = title
        self._drawn = ""

    def __call__(self, done: int, total: int) -> None:
        percent = 100 * min(done, total) // total if total > 0 else 0
        filled = _WIDTH * percent // 100
        line = f"{self._title} [{'#' * filled}{'.' * (_WIDTH - filled)}] {percent:3}%"
        if line != self._drawn:
            self._drawn = line
            self._write(f"\r{line}")

    def clear(self) -> None:
        """Take the line away."""
        if self._drawn:
            self._write(f"\r{' ' * len(self._drawn)}\r")
            self._drawn = ""

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


@contextmanager
def _rich_bar(title: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    console = Console(stderr=True)
    with RichProgress(*columns, TimeRemainingColumn(), console=console, transient=True) as bars:
        task = bars.add_task(title, total=None)

        def draw(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total)

        yield draw
