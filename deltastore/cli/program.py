"""The program: read the arguments, run the verb, and say in one line what went wrong."""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from deltastore.cli import (
    backup,
    check_graph,
    check_reducer,
    compact,
    copy,
    delete,
    doctor,
    exits,
    history,
    info,
    prune,
    repair,
    restore,
    threads,
    vacuum,
    verify,
)
from deltastore.cli.exits import MissingError, exit_code_of, line_of
from deltastore.cli.output import note
from deltastore.errors import DeltaStoreError

_VERBS = (
    *(info, threads, history, compact, vacuum, prune, copy, delete),
    *(verify, repair, backup, restore, doctor),
    *(check_reducer, check_graph),  # of reducers: they open no store
)


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with the arguments."""

    def error(self, message: str) -> NoReturn:
        self.exit(exits.REFUSED, f"deltastore: error: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code, see docs/cli.md.

    Args:
        argv: Arguments without the program's name; those of the process if None.

    Raises:
        SystemExit: The arguments are wrong (2), or help was asked for (0).
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an id may be any text
    args = _make_parser().parse_args(argv)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            args.run(args)
            sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered has no reader; the interpreter would try again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.UNREAD
    except KeyboardInterrupt:
        note("interrupted")
        return exits.INTERRUPTED
    except (DeltaStoreError, MissingError, OSError) as error:
        note(f"error: {line_of(error)}")
        return exit_code_of(error)
    return 0


def _make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="deltastore",
        description="Look into a store of LangGraph checkpoints, keep it small and keep it safe.",
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for verb in _VERBS:
        verb.add(verbs)
    return parser


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Stand in for `warnings.showwarning`."""
    note(f"warning: {message}")
