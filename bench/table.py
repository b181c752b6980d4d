"""The rows of a replay and how they are printed. Numbers in, text out; measures nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Row:
    """What one saver did with one workload.

    Attributes:
        supersteps: Checkpoints put for a superstep; inputs are not counted.
        new_bytes: Serialised size of what the turns added to the state.
        disk_bytes: Sum of file sizes after closing; 0 for a saver that stores nothing.
        put_ms_first, put_ms_last: Milliseconds of put and put_writes per checkpoint: median over
            the turns of the first and of the last tenth.
        load_ms_last: Milliseconds a turn of the last tenth spent reading when it began: median.
        resume_ms_first, resume_ms_last: Milliseconds to open a saver and load the state after the
            first tenth and at the end, file cache warm: median of several.
        equal: Whether the state at the end is the one that was put in.
    """

    workload: str
    saver: str
    turns: int
    supersteps: int
    new_bytes: int
    disk_bytes: int
    put_ms_first: float
    put_ms_last: float
    load_ms_last: float
    resume_ms_first: float
    resume_ms_last: float
    equal: bool

    @property
    def amplification(self) -> float | None:
        """Bytes on disk per byte of new state; None for a saver that stores nothing."""
        return self.disk_bytes / self.new_bytes if self.disk_bytes else None


def print_rows(console: Console, rows: Sequence[Row]) -> None:
    """Print the rows of one workload, at least one, as a table."""
    table = Table(title=rows[0].workload, title_justify="left")
    table.add_column("saver")
    for heading in (
        "turns",
        "super-\nsteps",
        "new state",
        "on disk",
        "amplifi-\ncation",
        "put ms p50,\nfirst tenth",
        "put ms p50,\nlast tenth",
        "load ms p50,\nlast tenth",
        "resume ms,\nat the start",
        "resume ms,\nat the end",
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        amplification = row.amplification
        table.add_row(
            row.saver,
            str(row.turns),
            str(row.supersteps),
            size_text(row.new_bytes),
            size_text(row.disk_bytes) if row.disk_bytes else "-",
            f"{amplification:.2f}" if amplification is not None else "-",
            f"{row.put_ms_first:.2f}",
            f"{row.put_ms_last:.2f}",
            f"{row.load_ms_last:.2f}",
            f"{row.resume_ms_first:.1f}",
            f"{row.resume_ms_last:.1f}",
        )
    console.print(table)


def size_text(size_bytes: int) -> str:
    """Return a size with a decimal unit, three figures or more."""
    if size_bytes < 10_000:
        return f"{size_bytes} B"
    if size_bytes < 10_000_000:
        return f"{size_bytes / 1e3:.0f} kB"
    return f"{size_bytes / 1e6:.1f} MB"
