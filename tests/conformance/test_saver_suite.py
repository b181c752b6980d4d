"""The saver suite on this package's saver, on the model and on LangGraph's own in-memory saver.

A *stand-in* is the model with one rule broken. Each must be caught by the law named beside it: a
suite that cannot fail proves nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver

from deltastore import DeltaStoreSaver
from deltastore.errors import DeletedParentError
from deltastore.testing import Caller, Lane, Saver
from deltastore.testing.model import ModelSaver
from deltastore.testing.saver_suite import SaverSuite, broken_laws

LOOP = "test_walks_of_a_loop_end"
SHARED_VERSION = "test_one_version_put_twice_leaves_the_older_checkpoint_alone"
COPIED_VALUE = "test_value_under_an_unknown_version_is_kept"


class TestLmdb(SaverSuite):
    """On disk."""

    def open(self, where: Path) -> Saver:
        return DeltaStoreSaver(where / "store")


class KeepsNothing(SaverSuite):
    """A suite for savers that end with their process."""

    def reopen(self, saver: Saver, where: Path) -> Saver:
        return saver


class TestMemoryEngine(KeepsNothing):
    """The same saver without a file."""

    def open(self, where: Path) -> Saver:
        return DeltaStoreSaver.ephemeral()


class TestModel(KeepsNothing):
    """The oracle of the property tests must keep the laws itself."""

    def open(self, where: Path) -> Saver:
        return ModelSaver()


class TestInMemorySaver(KeepsNothing):
    """LangGraph's reference saver: what it breaks is known, everything else it keeps."""

    known_faults: ClassVar[dict[str, str]] = {
        LOOP: "the walk follows parents without remembering where it was",
        SHARED_VERSION: "values are kept by version alone, so a second put replaces the first",
        COPIED_VALUE: "a value is stored only if its channel is in new_versions",
    }

    def open(self, where: Path) -> Saver:
        return InMemorySaver()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_put_on_a_deleted_parent_is_refused(asynchronous: bool) -> None:
    """Stored as a root, it would lose its history in silence."""
    saver = DeltaStoreSaver.ephemeral()
    caller = Caller(lambda: saver, close_saver=lambda _: saver.close(), asynchronous=asynchronous)
    try:
        lane = Lane(caller)
        lane.put("1", new={"x": 1}, values={"x": 1})
        caller.delete_thread("t")
        with pytest.raises(DeletedParentError, match="'1'"):
            lane.put("2", "1", carried={"x": 1})
        assert caller.get_tuple(lane.config()) is None
        lane.put("3")
        assert ["3"] == lane.ids()
    finally:
        caller.close()


class ByArrival(ModelSaver):
    def _order(self, kept: Any) -> Any:
        return [*kept]


class ByTask(ModelSaver):
    def _order(self, kept: Any) -> Any:
        return sorted(kept, key=lambda write: (write.task_id, write.idx))


class IndexAsText(ModelSaver):
    def _order(self, kept: Any) -> Any:
        return sorted(kept, key=lambda write: (write.task_path, write.task_id, str(write.idx)))


class RetriedWriteWins(ModelSaver):
    def _replaces(self, made: Any) -> bool:
        return True


class SpecialWriteStays(ModelSaver):
    def _replaces(self, made: Any) -> bool:
        return False


class EarlyWritesLost(ModelSaver):
    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        if self.get_tuple(config) is not None:
            super().put_writes(config, writes, task_id, task_path)


class NullWritesLost(ModelSaver):
    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        kept = [write for write in writes if write[1] is not None]
        super().put_writes(config, kept, task_id, task_path)


class FalsyValuesLost(ModelSaver):
    def _value_shown(self, *arguments: Any) -> Any:
        shown = super()._value_shown(*arguments)
        return shown if shown and self.serde.loads_typed(shown) else None


class NoRefill(ModelSaver):
    def _nearest(self, *arguments: Any) -> Any:
        return None


class EmptiedIsInherited(ModelSaver):
    def _value_shown(self, stored: Any, parent: Any, checkpoint: Any, new: Any, c: str) -> Any:
        shown = super()._value_shown(stored, parent, checkpoint, new, c)
        return stored[parent].values.get(c) if shown is None and parent in stored else shown


class LatestIsLastPut(ModelSaver):
    def _latest(self, stored: Any) -> Any:
        return next(reversed(stored), None)


class BeforeIsInclusive(ModelSaver):
    def _precedes(self, cid: str, bound: str) -> bool:
        return cid <= bound


class FilterByText(ModelSaver):
    def _matches(self, metadata: Any, wanted: Any) -> bool:
        return all(str(metadata.get(key)) == str(value) for key, value in wanted.items())


class LimitZeroIsAll(ModelSaver):
    def list(self, config: Any, **arguments: Any) -> Any:
        return super().list(config, **{**arguments, "limit": arguments.get("limit") or None})


class JoinedNames(ModelSaver):
    def _stream(self, config: Any) -> Any:
        thread, _, ns = "\0".join(super()._stream(config)).partition("\0")
        return thread, ns


class CutNames(ModelSaver):
    def _stream(self, config: Any) -> Any:
        thread, ns = super()._stream(config)
        return thread[:511], ns[:511]


class DeletesByPrefix(ModelSaver):
    def delete_thread(self, thread_id: str) -> None:
        for stream in [*self.streams]:
            if stream[0].startswith(thread_id):
                super().delete_thread(stream[0])


class DeleteKeepsWrites(ModelSaver):
    def delete_thread(self, thread_id: str) -> None:
        kept = dict(self.writes)
        super().delete_thread(thread_id)
        self.writes = kept


class ReplacedLosesWrites(ModelSaver):
    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        stream = self._stream(config)
        if checkpoint["id"] in self.streams.get(stream, ()):
            self.writes.pop((stream, checkpoint["id"]), None)
        return super().put(config, checkpoint, metadata, new_versions)


class ChangesItsArguments(ModelSaver):
    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        returned = super().put(config, checkpoint, metadata, new_versions)
        checkpoint.pop("channel_values")
        return returned


class SharesWhatWasRead(ModelSaver):
    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        found = super().get_tuple(config)
        held: dict[str, CheckpointTuple | None] = self.__dict__.setdefault("held", {})
        return found and held.setdefault(repr(found.config), found)


class HistoryByIdOrder(ModelSaver):
    def _walk(self, stored: Any, start: Any, below: str) -> Any:
        return ((cid, stored[cid]) for cid in sorted(stored, reverse=True) if cid < below)


class SeedWithoutItsWrites(ModelSaver):
    def get_delta_channel_history(self, *, config: Any, channels: Sequence[str]) -> Any:
        found = super().get_delta_channel_history(config=config, channels=channels)
        for entry in found.values():
            if "seed" in entry:
                del entry["writes"][:1]
        return found


class IntVersions(ModelSaver):
    def get_next_version(self, current: Any, channel: None) -> Any:
        return int(str(current or 0).split(".")[0]) + 1


class CloneForgets(ModelSaver):
    def __copy__(self) -> CloneForgets:
        clone = CloneForgets(serde=self.serde)
        clone.streams = copy.deepcopy(self.streams)
        return clone


CAUGHT_BY: list[tuple[type[ModelSaver], str]] = [
    (ByArrival, "test_writes_are_ordered_by_path_task_and_index"),
    (ByTask, "test_writes_are_ordered_by_path_task_and_index"),
    (IndexAsText, "test_writes_are_ordered_by_path_task_and_index"),
    (RetriedWriteWins, "test_first_regular_write_stays"),
    (SpecialWriteStays, "test_last_special_write_stays"),
    (EarlyWritesLost, "test_writes_may_come_before_their_checkpoint"),
    (NullWritesLost, "test_falsy_values_are_values"),
    (FalsyValuesLost, "test_falsy_seeds_end_the_walk_and_emptied_channels_do_not"),
    (NoRefill, "test_version_skipped_by_the_parent_is_refilled"),
    (EmptiedIsInherited, "test_emptied_channel_is_absent_and_stays_absent"),
    (LatestIsLastPut, "test_latest_is_the_greatest_id"),
    (BeforeIsInclusive, "test_listing_is_newest_first_and_before_is_exclusive"),
    (FilterByText, "test_all_keys_of_a_filter_match_by_type"),
    (LimitZeroIsAll, "test_limit_counts_what_the_filter_left"),
    (JoinedNames, "test_names_never_reach_a_neighbour"),
    (CutNames, "test_names_may_be_long_and_odd"),
    (DeletesByPrefix, "test_deleted_thread_is_gone_in_every_namespace"),
    (DeleteKeepsWrites, "test_thread_made_anew_finds_nothing_of_the_old"),
    (ReplacedLosesWrites, "test_same_id_put_again_replaces_and_keeps_its_writes"),
    (ChangesItsArguments, "test_arguments_are_not_changed"),
    (SharesWhatWasRead, "test_nothing_stored_is_shared_with_callers"),
    (HistoryByIdOrder, "test_history_follows_parents_not_ids"),
    (SeedWithoutItsWrites, "test_seed_brings_its_own_writes_and_ends_the_walk"),
    (IntVersions, "test_versions_grow_and_branches_do_not_collide"),
    (CloneForgets, "test_clone_shares_the_store_and_may_go_first"),
]


def laws_broken_by(saver: type[Saver], begin: str = "test_", **face: bool) -> list[str]:
    """Return the names of the laws a saver breaks, of those whose names begin with `begin`."""

    class Suite(KeepsNothing):
        def open(self, where: Path) -> Saver:
            return saver()

    return [*broken_laws(Suite(), begin, **face)]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    ("broken", "law"), CAUGHT_BY, ids=lambda item: getattr(item, "__name__", "")
)
def test_every_stand_in_is_caught(broken: type[ModelSaver], law: str, asynchronous: bool) -> None:
    """By the law meant for it, on both faces."""
    assert [law] == laws_broken_by(broken, law, asynchronous=asynchronous)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_sound_saver_breaks_no_law(asynchronous: bool) -> None:
    """Else the tests above would pass for any reason."""
    assert [] == laws_broken_by(ModelSaver, asynchronous=asynchronous)


class FailsItsOwnWay(KeepsNothing):
    """Its laws fail as pytest has laws fail: by what is no `Exception`."""

    def open(self, where: Path) -> Saver:
        return ModelSaver()

    def test_own_raises(self, caller: Caller) -> None:
        """A refusal that does not come."""
        with pytest.raises(ValueError, match="refused"):
            caller.get_tuple(Lane(caller).config())

    def test_own_fails(self, caller: Caller) -> None:
        """Told to."""
        pytest.fail("as told")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_law_may_fail_by_what_is_no_exception(asynchronous: bool) -> None:
    """`pytest.raises` is how laws ask for a refusal; its failure must not end the run of the rest,
    and counts for a known fault.
    """
    failed = broken_laws(FailsItsOwnWay(), "test_own", asynchronous=asynchronous)
    assert ["test_own_fails", "test_own_raises"] == [*failed]
    assert {pytest.fail.Exception} == {*map(type, failed.values())}

    class Known(FailsItsOwnWay):
        known_faults: ClassVar[dict[str, str]] = dict.fromkeys(failed, "so")

    assert {} == broken_laws(Known(), "test_own", asynchronous=asynchronous)


def test_a_known_fault_that_is_none_is_an_error() -> None:
    """A listing that outlives its fault would hide the next one."""

    class Outdated(KeepsNothing):
        known_faults: ClassVar[dict[str, str]] = {LOOP: "no longer so"}

        def open(self, where: Path) -> Saver:
            return ModelSaver()

    with Outdated().calling(Path()) as caller:
        law = Outdated().test_walks_of_a_loop_end
        with pytest.raises(pytest.fail.Exception, match="no longer so"):
            law(caller)
