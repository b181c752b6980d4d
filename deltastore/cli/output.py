"""Show an answer: one JSON document, a table for a terminal, or aligned text for a pipe.

A *record* is one row of an answer by name; the same records make the document and the table, so
that the two cannot differ. Text of the user's (ids, names) is shown with its control characters
escaped, so that none reaches a terminal; JSON has it exactly.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Final

Record = Mapping[str, Any]
Cell = str | int | None

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_GAP: Final = "  "


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells. A column with a number in it stands to the right; None is shown as `-`.

    Attributes:
        titles: One for each column; None for a list of names and values, which needs none.
    """

    titles: tuple[str, ...] | None
    rows: list[tuple[Cell, ...]]


def table(records: Sequence[Record], *names: str) -> Table:
    """Return a table of the named parts of records, in this order."""
    rows = [tuple(record[name] for name in names) for record in records]
    return Table(tuple(name.replace("_", " ") for name in names), rows)


def fields(record: Record, *names: str) -> Table:
    """Return the named parts of one record, one a line."""
    return Table(None, [(name.replace("_", " "), record[name]) for name in names])


def show(document: Record, *parts: Table | str, as_json: bool) -> None:
    """Print the document, or else the parts, to standard output."""
    if as_json:
        print(json.dumps(document, indent=2))
    elif sys.stdout.isatty() and has_rich():
        _show_rich(parts)
    else:
        for part in parts:
            for line in [part] if isinstance(part, str) else _lines(part):
                print(line)


def note(text: str) -> None:
    """Print a line beside the answer to standard error, so that a pipe gets the answer alone."""
    print(f"deltastore: {printable(text)}", file=sys.stderr)


def has_rich() -> bool:
    """Return whether rich is installed (extra `cli`)."""
    try:
        import rich  # noqa: F401 - whether it is there is the question
    except ImportError:
        return False
    return True


def iso_time(ms: int | None) -> str | None:
    """Return a Unix time in milliseconds as UTC in ISO 8601; None for None."""
    if ms is None:
        return None
    text = (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def printable(text: str) -> str:
    """Return text with what is not printable escaped as in a Python literal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _text(cell: Cell) -> str:
    return "-" if cell is None else printable(str(cell))


def _numeric_columns(rows: Sequence[tuple[Cell, ...]]) -> list[bool]:
    return [any(type(cell) is int for cell in column) for column in zip(*rows, strict=True)]


def _lines(part: Table) -> list[str]:
    cells = [tuple(map(_text, row)) for row in part.rows]
    titles = [] if part.titles is None else [part.titles]
    # A list of names and values is read line by line; numbers among the values stay at the left.
    numeric = _numeric_columns(part.rows) if titles else []
    widths = [max(map(len, column)) for column in zip(*titles, *cells, strict=True)]
    lines = []
    for row in [*titles, *cells]:
        padded = [
            cell.rjust(width) if at < len(numeric) and numeric[at] else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(_GAP.join(padded).rstrip())
    return lines


def _show_rich(parts: Sequence[Table | str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable

    console = Console(highlight=False, markup=False, emoji=False)  # ids are no markup
    for part in parts:
        if isinstance(part, str):
            console.print(part, soft_wrap=True)
            continue
        made = RichTable(box=box.SIMPLE_HEAD, show_header=part.titles is not None)
        numeric = _numeric_columns(part.rows)
        for at, title in enumerate(part.titles or ("", "")):
            right = part.titles is not None and at < len(numeric) and numeric[at]
            made.add_column(title, justify="right" if right else "left", overflow="fold")
        for row in part.rows:
            made.add_row(*map(_text, row))
        console.print(made)
