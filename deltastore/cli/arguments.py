"""Arguments that several verbs share, and what their texts mean."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

_DURATION: Final = re.compile(r"([0-9]{1,9})([dhms])", re.ASCII)
_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}

Verbs = Any
"""What `add_subparsers` returns; argparse gives its type no public name."""


def add_verb(
    verbs: Verbs, name: str, does: str, run: Callable[[argparse.Namespace], None]
) -> argparse.ArgumentParser:
    """Declare a verb with what every verb takes: the store, and `--json`."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=does, description=f"{does[:1].upper()}{does[1:]}.", allow_abbrev=False
    )
    parser.add_argument("store", metavar="STORE", help="directory of the store")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run)
    return parser


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Declare `--dry-run`."""
    parser.add_argument("--dry-run", action="store_true", help="print the plan, change nothing")


def positive(text: str) -> int:
    """Return a number of at least 1.

    Raises:
        ArgumentTypeError: It is none.
    """
    if re.fullmatch("[0-9]{1,18}", text, re.ASCII) is None or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1 (got {text!r})")
    return int(text)


def bound(text: str) -> int | None:
    """Return a bound: a number of at least 1, or None for the word `none`.

    Raises:
        ArgumentTypeError: It is neither.
    """
    return None if text == "none" else positive(text)


def duration(text: str) -> timedelta:
    """Return a duration: a whole number and one of `d`, `h`, `m`, `s`.

    Raises:
        ArgumentTypeError: It is none, or longer than 999 999 999 days.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"must be a whole number and d, h, m or s, as in 30d or 12h (got {text!r})"
        )
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
