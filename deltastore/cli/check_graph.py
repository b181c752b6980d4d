"""`deltastore check-graph PKG.MOD:GRAPH`: are the reducers of a graph right for delta channels?"""

from __future__ import annotations

import argparse
import sys

from deltastore.cli import exits
from deltastore.cli.arguments import Verbs, positive
from deltastore.cli.check_reducer import kit
from deltastore.cli.output import show


def add(verbs: Verbs) -> None:
    """Declare the verb."""
    does = "test every reducer of a graph and its subgraphs"
    parser: argparse.ArgumentParser = verbs.add_parser(
        "check-graph", help=does, description=f"{does[:1].upper()}{does[1:]}.", allow_abbrev=False
    )
    parser.add_argument(
        "graph", metavar="PKG.MOD:GRAPH", help="a graph, a state's schema, or what returns one"
    )
    parser.add_argument(
        "--examples", type=positive, default=300, metavar="N", help="cases a reducer (300)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which cases (0)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Do it and show the table.

    Raises:
        SystemExit: With code 1, a `DeltaChannel` has a reducer that is not proven.
    """
    with kit():
        from deltastore.testing.check_graph import check_graph
        from deltastore.testing.reducer_references import load_graph
    report = check_graph(load_graph(args.graph), max_examples=args.examples, seed=args.seed)
    show({"graph": args.graph, **report.document()}, str(report), as_json=args.json)
    if not report.is_proven:
        sys.stdout.flush()  # the program's own comes after `run` returns
        raise SystemExit(exits.FAILED)
