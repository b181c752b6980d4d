"""Random lives with maintenance in them, held against an untouched twin.

The lives are `deltastore.testing.retention_machine`'s; the savers here are ours on each engine, the
maintained model, which must live, and broken stand-ins, which must not.

DELTASTORE_PROFILE=thorough runs more than ten times the lives, three times as long.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore import DeltaStoreSaver
from deltastore.testing import Saver
from deltastore.testing.maintained_model import MaintainedModel
from deltastore.testing.retention_calls import REDUCERS
from deltastore.testing.retention_machine import RetainedLife

THOROUGH = os.environ.get("DELTASTORE_PROFILE") == "thorough"
LIVES = settings(
    max_examples=400 if THOROUGH else 30,
    stateful_step_count=40 if THOROUGH else 14,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class MemoryLife(RetainedLife):
    """A store on the memory engine; it cannot be opened again."""

    def open_saver(self, folding: bool) -> Saver:
        return DeltaStoreSaver.ephemeral(reducers=REDUCERS if folding else {})

    def close_saver(self) -> None:
        saver: Any = self.keeper.saver
        try:
            assert [] == list(saver.store.verify().damage)
        finally:
            saver.close()


class LmdbLife(MemoryLife):
    """A store in a directory of its own."""

    def open_saver(self, folding: bool) -> Saver:
        self.where = tempfile.mkdtemp()
        return DeltaStoreSaver(Path(self.where) / "s", reducers=REDUCERS if folding else {})

    def reopen_saver(self) -> None:
        saver: Any = self.keeper.saver
        saver.close()
        reducers = REDUCERS if self.folding else {}
        self.keeper.saver = DeltaStoreSaver(Path(self.where) / "s", reducers=reducers)

    def close_saver(self) -> None:
        try:
            super().close_saver()
        finally:
            shutil.rmtree(self.where)


def life_of(saver: type[MaintainedModel]) -> type[RetainedLife]:
    """Return the life of a model, or of a stand-in made of it."""

    class ModelLife(RetainedLife):
        def open_saver(self, folding: bool) -> Saver:
            return saver(reducers=REDUCERS if folding else {})

    return ModelLife


@pytest.mark.parametrize("life", [life_of(MaintainedModel), MemoryLife, LmdbLife])
def test_survivors_of_every_life_read_as_the_untouched_twin(life: type[RetainedLife]) -> None:
    """Whatever maintenance came in whatever order, between whatever puts."""
    run_state_machine_as_test(life, settings=LIVES)


class NaivePrune(MaintainedModel):
    """Drops ancestors without anchors, as a saver that knows no delta channel does."""

    def _anchors_for(self, stream: Any, kept: Any) -> Any:
        return {}


class HeadOnlyCopy(MaintainedModel):
    """Copies the newest checkpoint of each namespace alone."""

    def copy_thread(self, source: str, target: str, *, heads_only: bool = False) -> Any:
        report = super().copy_thread(source, target, heads_only=True)
        for stream in [s for s in self.anchors if s[0] == target]:
            self.anchors[stream] = {}
        return report


class SortedByPath(MaintainedModel):
    """Mixes supersteps."""

    def _fold(self, *arguments: Any) -> Any:
        made = super()._fold(*arguments)
        made.older = self._order(made.older)
        return made


class RunsWritesStay(MaintainedModel):
    """Leaves what a deleted run wrote to the new head."""

    def _goes(self, *arguments: Any) -> bool:
        return False


class PutsOnAnchorsUnchecked(MaintainedModel):
    """Takes what a run in flight puts, whether it still reads or not."""

    def _check_put_on_anchor(self, *arguments: Any) -> None:
        pass


class FoldsItsOwnWrites(MaintainedModel):
    """Compaction counts a checkpoint's own writes into the value before them."""

    def _show(self, stream: Any, cid: str, channel: str, value: Any) -> None:
        found = self.serde.loads_typed(value).value
        own = [w[2] for w in self._pending(stream, cid) if w[1] == channel]
        made = _DeltaSnapshot(self.reducers[channel](found, own))
        super()._show(stream, cid, channel, self.serde.dumps_typed(made))


@pytest.mark.parametrize(
    "broken",
    [
        *(NaivePrune, HeadOnlyCopy, SortedByPath, RunsWritesStay, PutsOnAnchorsUnchecked),
        FoldsItsOwnWrites,
    ],
)
def test_a_broken_saver_does_not_live(broken: type[MaintainedModel]) -> None:
    """The lives are worth their time only if they can fail."""
    once = settings(
        LIVES,
        max_examples=100,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        report_multiple_bugs=False,
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(life_of(broken), settings=once)
