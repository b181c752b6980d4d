"""LangGraph's public conformance suite on this package's saver.

It notices few faults; it is here because hosts ask for it by name.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.report import CapabilityResult
from langgraph.checkpoint.memory import InMemorySaver

from deltastore import DeltaStoreSaver
from deltastore.testing import Saver
from tests.conformance.broken_savers import CAUGHT_BY, Shelved

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "saver-suite.md"
ALL = sorted(capability.value for capability in Capability)


@pytest.fixture(scope="module", params=["lmdb", "memory"])
def results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, CapabilityResult]:
    """The report of one run over all capabilities, by capability."""

    def opened() -> DeltaStoreSaver:
        if request.param == "memory":
            return DeltaStoreSaver.ephemeral()
        return DeltaStoreSaver(Path(tmp_path_factory.mktemp("store")) / "store")

    @checkpointer_test(name=f"deltastore-{request.param}")
    async def registered() -> AsyncGenerator[Saver, None]:
        async with opened() as saver:
            yield saver

    report = asyncio.run(validate(registered, capabilities={*ALL}))
    return report.results


@pytest.mark.parametrize("capability", ALL)
def test_public_suite_passes(results: dict[str, CapabilityResult], capability: str) -> None:
    """A capability that is not detected, or has no tests, has not passed."""
    result = results[capability]
    assert [] == result.failures
    assert (True, True, 0) == (result.detected, result.passed, result.tests_failed)
    assert result.tests_passed > 0


def test_the_guide_says_how_many_broken_savers_it_passes() -> None:
    """What is said of another's suite has to be so, of the release it names."""
    savers: Any = [
        saver
        for saver in dict.fromkeys(saver for saver, _, _ in CAUGHT_BY)
        if issubclass(saver, InMemorySaver) and not issubclass(saver, Shelved)
    ]
    passed = [saver for saver in savers if passes(saver)]
    told = " ".join(GUIDE.read_text("utf-8").split())
    claim = re.search(
        r"Of (\d+) savers made from InMemorySaver .*? release (\S+) passes (\d+)", told
    )
    assert claim is not None
    release = version("langgraph-checkpoint-conformance")
    assert (str(len(savers)), release, str(len(passed))) == claim.groups()
    assert passes(InMemorySaver)


def passes(saver: type[InMemorySaver]) -> bool:
    """Return whether the public suite finds no fault."""

    @checkpointer_test(name=saver.__name__)
    async def registered() -> AsyncGenerator[Saver, None]:
        yield saver()

    results = asyncio.run(validate(registered)).results.values()
    return all(result.passed for result in results if result.detected)
