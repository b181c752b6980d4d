"""Figures beside their targets, and how they are printed. Numbers in, text out; no measuring."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of one measurement.

    Attributes:
        name: Of the measurement; what `--only` takes.
        unit: "x" for a ratio, else of `measured` and `target` both.
        target: The greatest value that is good enough; None for a number given beside another.
    """

    name: str
    what: str
    measured: float
    unit: str
    target: float | None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        return None if self.target is None else self.measured <= self.target


@dataclass(frozen=True, slots=True)
class Result:
    """What one measurement gave.

    Attributes:
        notes: Lines to print below its figures.
        counts: What the notes tell in numbers, for programs.
    """

    figures: list[Figure]
    notes: list[str] = field(default_factory=list)
    counts: dict[str, Any] = field(default_factory=dict)


def lines_of(result: Result) -> list[str]:
    """Return a result as lines of text: its figures, then its notes, indented."""
    lines = []
    for figure in result.figures:
        target = "" if figure.target is None else f"{figure.target:g} {figure.unit}"
        verdict = {None: "", True: "met", False: "MISSED"}[figure.met]
        measured = f"{figure.measured:.2f} {figure.unit}"
        lines.append(f"{figure.name:10} {figure.what:62} {measured:>12} {target:>8}  {verdict}")
    return lines + [f"           | {note}" for note in result.notes]


HEADING = f"{'figure':10} {'what':62} {'measured':>12} {'at most':>8}"
