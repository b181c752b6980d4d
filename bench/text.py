"""Numbers, sizes and tables as text. Numbers in, Markdown out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

NONE: Final = "-"
"""What is shown where there is no number."""


def markdown(heading: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1) -> list[str]:
    """Return a table; its first `texts` columns are text, the others numbers."""
    lines = ["| " + " | ".join(heading) + " |"]
    lines.append("|" + "".join("---|" if at < texts else "--:|" for at in range(len(heading))))
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return lines


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with that many figures that count, thousands apart."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    if whole:
        return f"{value:,.{max(0, digits - whole)}f}"
    return f"{value:.{digits - 1}g}"


def size(value: float | None) -> str:
    """Return bytes with a decimal unit."""
    if value is None:
        return NONE
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= limit:
            return f"{value / limit:,.3g} {unit}" if value < 1000 * limit else f"{value:.0f}"
    return f"{value:.0f} B"
