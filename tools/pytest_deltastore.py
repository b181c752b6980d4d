"""pytest's way into deltastore: the option `--deltastore-graph`, and nothing unless it is given.

A module of its own, outside the package: pytest loads it in every project deltastore is installed
in, and a module of the package would load LangGraph and the engine with it.
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("deltastore")
    group.addoption(
        "--deltastore-graph",
        action="append",
        default=[],
        metavar="PKG.MOD:GRAPH",
        help="test the reducer of each DeltaChannel of a graph; may be given again",
    )
    group.addoption(
        "--deltastore-examples", type=int, default=300, metavar="N", help="cases a reducer (300)"
    )
    group.addoption("--deltastore-seed", type=int, default=0, metavar="N", help="which cases (0)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add the tests, before -k and -m choose among all."""
    references = config.getoption("--deltastore-graph")
    if not references:
        return
    try:
        from deltastore.testing.pytest_plugin import make_items
    except ImportError as error:
        raise pytest.UsageError(
            f"--deltastore-graph needs langgraph and the extra `testing`: {error}"
        ) from error
    items += make_items(
        session,
        references,
        max_examples=config.getoption("--deltastore-examples"),
        seed=config.getoption("--deltastore-seed"),
    )
