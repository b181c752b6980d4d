"""Tests made of a graph: one for each `DeltaChannel` of what `--deltastore-graph` names.

pytest loads `pytest_deltastore`, which loads this only if the option is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from deltastore.errors import DeltaStoreError
from deltastore.testing.check_graph import GraphChannel, check_channel, scan_channels
from deltastore.testing.reducer_laws import check_options
from deltastore.testing.reducer_references import load_graph
from deltastore.testing.reducer_report import LawError


class ChannelItem(pytest.Item):
    """The test of one channel's reducer."""

    channel: GraphChannel
    max_examples: int
    seed: int

    def runtest(self) -> None:
        """Check it.

        Raises:
            LawError: It does not hold, or could not be checked.
        """
        result = check_channel(self.channel, max_examples=self.max_examples, seed=self.seed)
        if not result.is_proven:
            raise LawError(str(result.report or result.advice))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the report alone: where in this kit it was raised says nothing."""
        if isinstance(excinfo.value, LawError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, None, str]:
        """Return what pytest shows of it."""
        return self.name, None, self.name


def make_items(
    session: pytest.Session, references: Sequence[str], *, max_examples: int, seed: int
) -> list[pytest.Item]:
    """Return a test for each `DeltaChannel` of each graph.

    Raises:
        UsageError: A reference names no graph, or one without a `DeltaChannel`; or `max_examples`
            is less than 1.
    """
    items: list[pytest.Item] = []
    for reference in references:
        try:
            check_options((), (), max_examples, seed)
            channels = [one for one in scan_channels(load_graph(reference)) if one.kind == "delta"]
        except DeltaStoreError as error:
            raise pytest.UsageError(f"--deltastore-graph: {error}") from error
        if not channels:
            raise pytest.UsageError(f"--deltastore-graph: {reference} has no DeltaChannel")
        for channel in channels:
            name = f"{reference}::{channel.path}"
            item: ChannelItem = ChannelItem.from_parent(session, name=name, nodeid=name)
            item.channel, item.max_examples, item.seed = channel, max_examples, seed
            items.append(item)
    return items
