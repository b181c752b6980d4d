"""LangGraph's public conformance suite on this package's saver.

It notices few faults; it is here because hosts ask for it by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.report import CapabilityResult

from deltastore import DeltaStoreSaver
from deltastore.testing import Saver

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
