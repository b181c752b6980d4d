"""The suite of retention on this package's saver, on the maintained model and on broken stand-ins.

A *stand-in* is the model with one rule of maintenance broken, in a way real savers or earlier
versions broke it. Each must be caught by the law named beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from deltastore import DeltaStoreSaver
from deltastore.testing import Saver
from deltastore.testing.maintained_model import MaintainedModel
from deltastore.testing.retention_calls import REDUCERS
from deltastore.testing.retention_laws import RetentionSuite, broken_retention_laws


class TestLmdb(RetentionSuite):
    """On disk."""

    def open(self, where: Path) -> Saver:
        return DeltaStoreSaver(where / "store")

    def open_folding(self, where: Path) -> Saver:
        return DeltaStoreSaver(where / "store", reducers=REDUCERS)


class KeepsNothing(RetentionSuite):
    """A suite for savers that end with their process."""

    def reopen(self, saver: Saver, where: Path) -> Saver:
        return saver


class TestMemoryEngine(KeepsNothing):
    """The same saver without a file."""

    def open(self, where: Path) -> Saver:
        return DeltaStoreSaver.ephemeral()

    def open_folding(self, where: Path) -> Saver:
        return DeltaStoreSaver.ephemeral(reducers=REDUCERS)


class TestModel(KeepsNothing):
    """The oracle of the property tests must keep the laws itself."""

    def open(self, where: Path) -> Saver:
        return MaintainedModel()

    def open_folding(self, where: Path) -> Saver:
        return MaintainedModel(reducers=REDUCERS)


class NaivePrune(MaintainedModel):
    """Drops ancestors and leaves nothing in their place."""

    def _anchors_for(self, stream: Any, kept: Any) -> Any:
        return {}


class WritesWithoutSeeds(MaintainedModel):
    def _fold(self, *arguments: Any) -> Any:
        made = super()._fold(*arguments)
        made.seeds.clear()
        return made


class SeedUnderTheParentsVersion(MaintainedModel):
    """Stores a seed where survivors that share the parent's version find it."""

    def _apply(self, stream: Any, dropped: Any, anchors: Any, freed: Any) -> None:
        stored = self.streams[stream]
        for cid, anchor in anchors.items():
            versions = stored[cid].versions if cid in stored else {}
            for one in stored.values():
                for channel, seed in anchor.seeds.items():
                    if channel in versions and one.versions.get(channel) == versions[channel]:
                        one.values.setdefault(channel, seed)
        super()._apply(stream, dropped, anchors, freed)


class FoldedByTheirOwnKeys(MaintainedModel):
    """Merges folded writes into the parent's by (task_id, idx); sorted by path, they mix."""

    def _fold(self, *arguments: Any) -> Any:
        made = super()._fold(*arguments)
        made.older = self._order({(w.task_id, w.idx): w for w in made.older}.values())
        return made


class SortedByPath(MaintainedModel):
    def _fold(self, *arguments: Any) -> Any:
        made = super()._fold(*arguments)
        made.older = self._order(made.older)
        return made


class RenumbersAfter(MaintainedModel):
    """Puts what was folded before behind what is folded now."""

    def _fold(self, stream: Any, cid: str, *arguments: Any) -> Any:
        made = super()._fold(stream, cid, *arguments)
        old = {id(w) for one in self.anchors.get(stream, {}).values() for w in one.older}
        made.older.sort(key=lambda w: id(w) in old)
        return made


class OlderAfterOwn(MaintainedModel):
    """Shows the parent's own writes before those of its ancestors."""

    def _pending(self, stream: Any, cid: str) -> Any:
        found = [*super()._pending(stream, cid)]
        anchor = self.anchors.get(stream, {}).get(cid)
        split = len(anchor.older) if anchor is not None else 0
        return [*found[split:], *found[:split]]


class FoldsForTheFirstChild(MaintainedModel):
    def _names_skipped(self, shown: Any) -> Any:
        return shown[0]


class FoldsWhatIsTruthy(MaintainedModel):
    """Takes a falsy value of a kept child for none."""

    def _fold(self, stream: Any, cid: str, kept: Any, children: Any) -> Any:
        self.children = [self.streams[stream][child].values for child in children]
        return super()._fold(stream, cid, kept, children)

    def _names_skipped(self, shown: Any) -> Any:
        load = self.serde.loads_typed
        return set.intersection(*({c for c, v in one.items() if load(v)} for one in self.children))


class FoldsTheRuntimesOwn(MaintainedModel):
    def _anchors_for(self, stream: Any, kept: Any) -> Any:
        from deltastore.testing import retention_model

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(retention_model, "LANGGRAPHS_OWN", set())
            return super()._anchors_for(stream, kept)

    def _apply(self, *arguments: Any) -> None:
        from deltastore.testing import retention_model

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(retention_model, "LANGGRAPHS_OWN", set())
            super()._apply(*arguments)


class AllPutsOnAnchorsRefused(MaintainedModel):
    def _check_put_on_anchor(self, *arguments: Any) -> None:
        from deltastore.errors import PrunedCheckpointError

        raise PrunedCheckpointError("stands on a pruned one")


class NoPutOnAnchorsRefused(MaintainedModel):
    def _check_put_on_anchor(self, *arguments: Any) -> None:
        pass


class ForgetsWhatWasLeftOut(MaintainedModel):
    """Keeps no list over re-anchoring."""

    def _fold(self, stream: Any, *arguments: Any) -> Any:
        for anchor in self.anchors.get(stream, {}).values():
            anchor.left_out = set()
        return super()._fold(stream, *arguments)


class AnchorsPileUp(MaintainedModel):
    def _anchors_for(self, stream: Any, kept: Any) -> Any:
        return {**self.anchors.get(stream, {}), **super()._anchors_for(stream, kept)}


class AnchorsAreRoots(MaintainedModel):
    """Cuts at the anchor although an ancestor was kept."""

    def _fold(self, *arguments: Any) -> Any:
        made = super()._fold(*arguments)
        made.parent = None
        return made


class AnchorShowsVersions(MaintainedModel):
    def get_tuple(self, config: Any) -> Any:
        found = super().get_tuple(config)
        if found is not None and found.metadata.get("deltastore_anchor"):
            found.checkpoint["channel_versions"] = {"log": 1}
        return found


class AnchorsAreListed(MaintainedModel):
    def list(self, config: Any, **how: Any) -> Any:
        yield from super().list(config, **how)
        for stream, anchors in self.anchors.items():
            if config is None or config["configurable"]["thread_id"] == stream[0]:
                yield from (self.get_tuple(self._config(stream, cid)) for cid in anchors)


class AnchorsAreCounted(MaintainedModel):
    def _kept(self, streams: Any, keep_last: Any, older_than: Any) -> Any:
        if keep_last is None:
            return super()._kept(streams, keep_last, older_than)
        every = {s: [*ids, *self.anchors.get(s, {})] for s, ids in streams.items()}
        kept = {s: {*sorted(ids)[-keep_last:]} & {*streams[s]} for s, ids in every.items()}
        return {s: {*sorted(kept[s])[-max(1, keep_last - 1) :]} for s in kept}


class LatestSubgraphOnly(MaintainedModel):
    def _keep_subgraph(self, *arguments: Any) -> None:
        pass


class SubgraphWithoutTheParentsBound(MaintainedModel):
    def _keep_subgraph(self, stream: Any, ids: Any, kept: Any, roots: Any) -> None:
        before = {max((cid for cid in ids if cid < root), default="") for root in roots}
        kept[stream] |= before - {""}


class RunsWritesStay(MaintainedModel):
    """Leaves a deleted run's writes on the new head."""

    def _goes(self, *arguments: Any) -> bool:
        return False


class RunsWritesGoEverywhere(MaintainedModel):
    """Takes a run's writes although living checkpoints were built of them."""

    def _goes(self, cid: str, kept: Any, needed: Any) -> bool:
        return cid in kept


class RunOfTheTasksFirstWrite(MaintainedModel):
    """Keeps one run per task: what another run added goes with the first one's, or not at all."""

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        place = self._stream(config), config["configurable"]["checkpoint_id"]
        known = [run for key, run in self.run_of.items() if key[:3] == (*place, task_id)]
        if known:
            config = {**config, "metadata": {"run_id": known[0]}}
        super().put_writes(config, writes, task_id, task_path)


class RefusesNothing(MaintainedModel):
    def delete_for_runs(self, run_ids: Any, *, refuse: bool = False, dry_run: bool = False) -> Any:
        return super().delete_for_runs(run_ids, dry_run=dry_run)


class DryRunDoesIt(MaintainedModel):
    def prune(self, thread_ids: Any, *, dry_run: bool = False, **how: Any) -> Any:
        return super().prune(thread_ids, **how)


class HeadOnlyCopy(MaintainedModel):
    """Copies the newest checkpoint of each namespace and none of its ancestors."""

    def copy_thread(self, source: str, target: str, *, heads_only: bool = False) -> Any:
        report = super().copy_thread(source, target)
        for stream in [s for s in self.streams if s[0] == target]:
            for cid in sorted(self.streams[stream])[:-1]:
                self.streams[stream].pop(cid)
        return report


class CopySharesItsWrites(MaintainedModel):
    def copy_thread(self, source: str, target: str, *, heads_only: bool = False) -> Any:
        report = super().copy_thread(source, target, heads_only=heads_only)
        for stream, cid in [*self.writes]:
            if stream[0] == target and ((source, stream[1]), cid) in self.writes:
                self.writes[stream, cid] = self.writes[(source, stream[1]), cid]
        return report


class CopyReplaces(MaintainedModel):
    def copy_thread(self, source: str, target: str, *, heads_only: bool = False) -> Any:
        if source != target:
            self.delete_thread(target)
        return super().copy_thread(source, target, heads_only=heads_only)


class GhostsComeBack(MaintainedModel):
    """A late write makes a checkpoint of what was dropped."""

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        stream, cid = self._stream(config), config["configurable"]["checkpoint_id"]
        super().put_writes(config, writes, task_id, task_path)
        if cid in self.deleted.get(stream, ()) and cid not in self.anchors.get(stream, {}):
            from deltastore.testing import make_checkpoint, make_config

            self.deleted[stream].discard(cid)
            super().put(make_config(*stream), make_checkpoint(cid, {}, {}), {}, {})


class FoldsWithoutOverwrites(MaintainedModel):
    """Compaction gives an overwriting write to the reducer like any other."""

    def _folded(self, stream: Any, channel: str, reducer: Any, most: int) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("deltastore.testing.maintained_model.replayed", lambda b, w, r: r(b, w))
            return super()._folded(stream, channel, reducer, most)


class FoldsItsOwnWrites(MaintainedModel):
    """Folds a checkpoint's own writes into the value it shows: they count twice."""

    def _show(self, stream: Any, cid: str, channel: str, value: Any) -> None:
        from langgraph.checkpoint.serde.types import _DeltaSnapshot

        found = self.serde.loads_typed(value).value
        own = [w[2] for w in self._pending(stream, cid) if w[1] == channel]
        value = self.serde.dumps_typed(_DeltaSnapshot(self.reducers[channel](found, own)))
        super()._show(stream, cid, channel, value)


CAUGHT_BY: list[tuple[type[MaintainedModel], str]] = [
    (NaivePrune, "test_prune_never_changes_a_survivor"),
    (NaivePrune, "test_a_parent_resolves_where_nothing_is_folded_too"),
    (WritesWithoutSeeds, "test_a_seed_ends_what_is_folded"),
    (SeedUnderTheParentsVersion, "test_a_seed_is_not_shown_under_the_parents_version"),
    (FoldedByTheirOwnKeys, "test_folded_writes_do_not_merge_by_their_keys"),
    (SortedByPath, "test_writes_keep_their_order_over_supersteps"),
    (RenumbersAfter, "test_reanchoring_never_renumbers_old_writes_after_new_ones"),
    (OlderAfterOwn, "test_late_write_on_an_anchor_is_seen"),
    (FoldsForTheFirstChild, "test_kept_children_get_the_union_of_what_they_lack"),
    (FoldsWhatIsTruthy, "test_what_every_kept_child_shows_is_not_folded"),
    (FoldsTheRuntimesOwn, "test_every_channel_is_folded_but_langgraphs_own"),
    (AllPutsOnAnchorsRefused, "test_copy_of_a_survivor_may_be_put_on_its_anchor"),
    (AllPutsOnAnchorsRefused, "test_an_in_flight_put_that_reads_is_as_the_twins"),
    (NoPutOnAnchorsRefused, "test_an_in_flight_put_that_carries_what_went_is_refused"),
    (NoPutOnAnchorsRefused, "test_a_put_that_asks_for_what_an_anchor_left_out_is_refused"),
    (ForgetsWhatWasLeftOut, "test_a_put_that_asks_for_what_an_anchor_left_out_is_refused"),
    (AnchorsPileUp, "test_an_anchor_without_a_kept_child_goes"),
    (AnchorsAreRoots, "test_an_anchor_hangs_on_the_nearest_kept_ancestor"),
    (AnchorsAreRoots, "test_a_lower_anchor_goes_on_at_the_upper_one"),
    (AnchorShowsVersions, "test_an_anchor_shows_what_it_stands_for"),
    (AnchorsAreListed, "test_exactly_the_survivors_are_listed_and_limits_count_them"),
    (AnchorsAreCounted, "test_keep_last_counts_checkpoints_not_anchors"),
    (LatestSubgraphOnly, "test_subgraph_state_before_a_kept_checkpoint_stays"),
    (SubgraphWithoutTheParentsBound, "test_subgraph_state_before_a_kept_checkpoint_stays"),
    (RunsWritesStay, "test_a_deleted_runs_write_leaves_its_place_on_the_new_head"),
    (RunsWritesGoEverywhere, "test_writes_a_living_fork_stands_on_stay"),
    (RunOfTheTasksFirstWrite, "test_a_resumed_task_waits_again_when_its_resume_is_deleted"),
    (RefusesNothing, "test_refusing_changes_nothing_where_the_living_need_a_run"),
    (DryRunDoesIt, "test_a_dry_run_tells_what_is_then_done"),
    (HeadOnlyCopy, "test_a_copy_is_whole_and_reads_as_its_source"),
    (HeadOnlyCopy, "test_copied_heads_are_what_pruning_would_keep"),
    (CopySharesItsWrites, "test_a_copy_and_its_source_are_apart"),
    (CopyReplaces, "test_a_copy_replaces_nothing"),
    (GhostsComeBack, "test_deleting_leaves_nothing_and_no_ghost"),
    (GhostsComeBack, "test_late_write_for_a_dropped_checkpoint_makes_no_ghost"),
    (FoldsWithoutOverwrites, "test_compaction_never_changes_what_is_rebuilt"),
    (FoldsItsOwnWrites, "test_compaction_never_changes_what_is_rebuilt"),
]


def laws_broken_by(
    saver: type[MaintainedModel], law: str = "test_", *, asynchronous: bool = False
) -> Iterable[str]:
    """Return the names of the laws a saver breaks, of those whose name begins with `law`."""

    class Suite(KeepsNothing):
        def open(self, where: Path) -> Saver:
            return saver()

        def open_folding(self, where: Path) -> Saver:
            return saver(reducers=REDUCERS)

    return broken_retention_laws(Suite(), law, asynchronous=asynchronous).keys()


@pytest.mark.parametrize(
    ("broken", "law"), CAUGHT_BY, ids=lambda item: getattr(item, "__name__", "")
)
def test_every_stand_in_is_caught(broken: type[MaintainedModel], law: str) -> None:
    """By the law meant for it."""
    assert law in laws_broken_by(broken, law)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_sound_saver_breaks_no_law(asynchronous: bool) -> None:
    """Else the tests above would pass for any reason."""
    assert [] == [*laws_broken_by(MaintainedModel, asynchronous=asynchronous)]
