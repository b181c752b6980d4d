"""Fixtures of the commit queue's tests; a module with an engine of its own overrides `engine`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deltastore.commit import CommitQueue
from tests.unit.commit_fakes import Callers, DictEngine, join_callers, open_queue


@pytest.fixture
def engine() -> DictEngine:
    return DictEngine()


@pytest.fixture
def queue(engine: DictEngine) -> Iterator[CommitQueue]:
    with open_queue(engine) as queue:
        yield queue


@pytest.fixture
def callers() -> Iterator[Callers]:
    with join_callers() as callers:
        yield callers
