"""`deltastore check-reducer PKG.MOD:REDUCER`: is a reducer right for a delta channel?"""

from __future__ import annotations

import argparse
import builtins
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from deltastore.cli import exits
from deltastore.cli.arguments import Verbs, positive
from deltastore.cli.output import show
from deltastore.errors import InvalidArgumentError


@contextmanager
def kit() -> Iterator[None]:
    """Import the kit in a block; it needs what a store does not.

    Raises:
        InvalidArgumentError: LangGraph or the extra `testing` is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise InvalidArgumentError(
            f"this verb needs langgraph and the extra `testing`: {error}"
        ) from error


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    does = "test a reducer against the laws of a delta channel"
    parser: argparse.ArgumentParser = verbs.add_parser(
        "check-reducer", help=does, description=f"{does[:1].upper()}{does[1:]}.", allow_abbrev=False
    )
    parser.add_argument("reducer", metavar="PKG.MOD:REDUCER", help="the function, importable")
    parser.add_argument(
        "--folded", action="store_true", help="it takes one write at a time, not a list of them"
    )
    for name, what in (
        ("typ", "the channel's type: builtin, or PKG.MOD:TYPE (its first annotation, or list)"),
        ("values", "PKG.MOD:STRATEGY that draws states (by the type)"),
        ("writes", "PKG.MOD:STRATEGY that draws single writes (by the type)"),
    ):
        parser.add_argument(f"--{name}", metavar=name.upper(), help=what)
    for name, what in (("claim", "test this law too"), ("waive", "do not test this law")):
        parser.add_argument(
            f"--{name}", action="append", default=[], metavar="LAW", help=f"{what}; again for more"
        )
    parser.add_argument(
        "--examples", type=positive, default=300, metavar="N", help="cases drawn (300)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which cases (0)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Do it and show the table.

    Raises:
        SystemExit: With code 1, a law failed or could not be judged.
    """
    with kit():
        from deltastore.testing.reducer_laws import check_reducer, folded
        from deltastore.testing.reducer_references import load_reference
    reducer = load_reference(args.reducer)
    given = {"typ": args.typ, "values": args.values, "writes": args.writes}
    typ = getattr(builtins, args.typ or "", None)
    named = {
        name: load_reference(text)
        for name, text in given.items()
        if text is not None and not (name == "typ" and typ is not None)
    }
    report = check_reducer(
        folded(reducer) if args.folded else reducer,
        **{"typ": typ, **named},
        claims=args.claim,
        waives=args.waive,
        max_examples=args.examples,
        seed=args.seed,
    )
    show(report.document(), str(report), as_json=args.json)
    if not report.is_proven:
        sys.stdout.flush()  # the program's own comes after `run` returns
        raise SystemExit(exits.FAILED)
