"""The laws of `RetentionSuite` about anchors: each rule as far as a saver's caller can see it.

Every one stands on a case in which a careless version lost or invented state. An *in-flight* put is
one by a run that began before its parent was pruned.

Part of `RetentionSuite` only for the length of a module: not to be subclassed alone.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from langgraph.checkpoint.serde.types import (
    ERROR,
    INTERRUPT,
    RESUME,
    SCHEDULED,
    TASKS,
    _DeltaSnapshot,
)

from deltastore.errors import DeletedParentError, PrunedCheckpointError
from deltastore.testing import FALSY, make_checkpoint, shape
from deltastore.testing.retention_calls import (
    Keeper,
    Thread,
    is_anchor,
    lived,
    minute_id,
    read_all,
    survivors,
)

REFUSED: Final = (DeletedParentError, PrunedCheckpointError)


def _written(found: Any) -> list[Any]:
    """Return the values of a tuple's pending writes."""
    return [write[2] for write in found.pending_writes or ()]


class AnchorLaws:
    """A part of `RetentionSuite`; see there."""

    def test_a_parent_resolves_where_nothing_is_folded_too(self, keeper: Keeper) -> None:
        """Survivors keep their parent, so it must be there for whoever walks (rule 1)."""

        def life(thread: Thread) -> None:
            for cid, parent in ((1, None), (2, 1), (3, 2)):
                place = None if parent is None else minute_id(parent)
                thread.put(minute_id(cid), place, new={"x": cid}, values={"x": cid})

        thread, twin = lived(keeper, life)
        keeper.prune(["t"])
        assert survivors(twin, [3]) == read_all(keeper, "t")
        assert {} == thread.anchor(2).checkpoint["channel_values"]

    def test_an_anchor_without_a_kept_child_goes(self, keeper: Keeper) -> None:
        """Anchors are made anew at each prune, or they would pile up (rule 1)."""
        thread, twin = lived(keeper, lambda one: one.steps([1, 2, 3]))
        keeper.prune(["t"])
        assert is_anchor(thread.anchor(2))
        for one in (thread, twin):
            one.steps([4, 5], 3)
        keeper.prune(["t"])
        assert survivors(twin, [5]) == read_all(keeper, "t")
        assert [None, None] == [keeper.get_tuple(thread.config(minute_id(m))) for m in (2, 3)]
        assert thread.anchor(4).parent_config is None

    def test_an_anchor_hangs_on_the_nearest_kept_ancestor(self, keeper: Keeper) -> None:
        """Only what goes is copied; what stays is read where it is (rule 2)."""

        def life(thread: Thread) -> None:
            thread.steps([1, 2])
            thread.steps([3, 4], 2, run="gone")
            thread.steps([5], 4)

        thread = Thread(keeper)
        life(thread)
        before = survivors(thread, [1, 2, 5])
        for _ in range(2):
            keeper.delete_for_runs(["gone"])
            assert before == read_all(keeper, "t")
        stands = thread.anchor(4)
        assert thread.config(minute_id(2)) == stands.parent_config
        assert [[4], [5]] == _written(stands)
        keeper.prune(["t"])
        assert thread.anchor(4).parent_config is None
        assert [2, 3, 4, 5] == thread.log()

    @pytest.mark.parametrize("value", [*FALSY])
    def test_what_every_kept_child_shows_is_not_folded(self, keeper: Keeper, value: str) -> None:
        """Present, not truthy: None is a value and ends the walk (rule 3)."""
        thread = Thread(keeper)
        thread.put(minute_id(1), new={"x": 1}, values={"x": "old"})
        thread.write(minute_id(1), [("x", "w")])
        thread.put(minute_id(2), minute_id(1), new={"x": 2}, values={"x": FALSY[value]})
        keeper.prune(["t"])
        stands = thread.anchor(1)
        assert ({}, []) == (stands.checkpoint["channel_values"], _written(stands))
        assert shape({"x": FALSY[value]}) == shape(thread.values())

    def test_kept_children_get_the_union_of_what_they_lack(self, keeper: Keeper) -> None:
        """One child has a snapshot, its sibling needs the history (rule 3)."""

        def life(thread: Thread) -> None:
            thread.steps([1, 2, 3])
            thread.superstep(4, 3, log=["four"], snapshot=["all"])
            thread.superstep(5, 3, log=["five"])

        thread, twin = lived(keeper, life)
        keeper.prune(["t"], keep_last=2)
        assert survivors(twin, [4, 5]) == read_all(keeper, "t")
        assert [2, 3, "four", "five"] == thread.log(5)

    def test_a_lower_anchor_goes_on_at_the_upper_one(self, keeper: Keeper) -> None:
        """A fork with a kept sibling between two dropped stretches: no channel may end early."""

        def life(thread: Thread) -> None:
            thread.steps([1, 2], run="gone")
            thread.steps([3], 2)
            thread.steps([4, 5], 3, run="gone")
            thread.steps([6], 5)
            thread.steps([7], 3)
            thread.steps([8], 5)

        thread = Thread(keeper)
        life(thread)
        before = survivors(thread, [3, 6, 7, 8])
        keeper.delete_for_runs(["gone"])
        assert before == read_all(keeper, "t")
        before = survivors(thread, [7, 8])
        keeper.prune(["t"], keep_last=2)
        assert before == read_all(keeper, "t")

    def test_a_seed_is_not_shown_under_the_parents_version(self, keeper: Keeper) -> None:
        """Kept checkpoints share that version and would show a channel the twin lacks (rule 4)."""

        def life(thread: Thread) -> None:
            thread.superstep(1, snapshot=["seed"])
            thread.steps([2, 3], 1)
            thread.superstep(4, 3)
            thread.superstep(5, 3)

        thread, twin = lived(keeper, life)
        keeper.prune(["t"], keep_last=2)
        for one in (thread, twin):
            one.superstep(6, 4)
        assert survivors(twin, [4, 5, 6]) == read_all(keeper, "t")
        assert ["log"] == [*thread.anchor(3).checkpoint["channel_values"]]
        assert "log" not in thread.values(minute_id(6))

    def test_a_seed_ends_what_is_folded(self, keeper: Keeper) -> None:
        """Writes above the seed are in it already (rule 4)."""

        def life(thread: Thread) -> None:
            thread.steps([1, 2])
            thread.superstep(3, 2, log=["three"], snapshot=[2, "three"])
            thread.steps([4, 5, 6], 3)

        thread, twin = lived(keeper, life)
        keeper.prune(["t"])
        assert survivors(twin, [6]) == read_all(keeper, "t")
        stands = thread.anchor(5)
        assert shape({"log": _DeltaSnapshot([2, "three"])}) == shape(
            stands.checkpoint["channel_values"]
        )
        assert [[4], [5], [6]] == _written(stands)

    def test_every_channel_is_folded_but_langgraphs_own(self, keeper: Keeper) -> None:
        """Nobody says which channels are delta channels; the runtime's are of no age (rule 5)."""
        own = ["__start__", TASKS, ERROR, INTERRUPT, RESUME, SCHEDULED, "__no_writes__"]
        named = ["log", "branch:to:a", "", "a\0b"]

        def life(thread: Thread) -> None:
            for minute in (1, 2, 3):
                parent = minute_id(minute - 1) if minute > 1 else None
                thread.put(minute_id(minute), parent, new={"n": minute})
                thread.write(minute_id(minute), [(name, minute) for name in own + named])

        thread, twin = lived(keeper, life)
        keeper.prune(["t"])
        config, other = (one.config(minute_id(3)) for one in (thread, twin))
        assert keeper.history(other, named) == keeper.history(config, named)
        written = [write[1] for write in thread.anchor(2).pending_writes or ()]
        assert named * 2 == written

    def test_late_write_on_an_anchor_is_seen(self, keeper: Keeper) -> None:
        """Its empty path sorts before its siblings and must not sort before all history (6, 10)."""
        thread, twin = lived(keeper, lambda one: one.steps([1, 2, 3, 4]))
        keeper.prune(["t"])
        for one in (thread, twin):
            one.task(3, ["no path"], "0", "")
            one.task(3, ["last"], "zz", "~z")
            one.task(3, ["again"], "task-4")
        assert survivors(twin, [4]) == read_all(keeper, "t")
        assert [2, 3, "no path", 4, "last"] == thread.log()

    def test_writes_of_a_task_under_two_paths_stay_apart(self, keeper: Keeper) -> None:
        """The second is what `update_state` adds for an interrupted task; both are folded (6)."""

        def life(thread: Thread) -> None:
            thread.steps([1])
            thread.steps([2, 3, 4], 1)
            for minute in (1, 3):
                thread.write(minute_id(minute), [("log", ["-"])] * 2, f"task-{minute + 1}", "")

        thread, twin = lived(keeper, life)
        keeper.prune(["t"])
        assert survivors(twin, [4]) == read_all(keeper, "t")
        assert ["-", 2, 3, "-", 4] == thread.log()

    def test_folded_writes_do_not_merge_by_their_keys(self, keeper: Keeper) -> None:
        """Task ids come again in other supersteps: none may take another's place (rule 6)."""

        def life(thread: Thread) -> None:
            thread.superstep(1)
            for minute in range(2, 7):
                thread.task(minute - 1, [minute], "same", f"~{9 - minute}")
                thread.superstep(minute, minute - 1)

        thread, twin = lived(keeper, life)
        keeper.prune(["t"])
        assert survivors(twin, [6]) == read_all(keeper, "t")
        assert [2, 3, 4, 5, 6] == thread.log()

    def test_reanchoring_never_renumbers_old_writes_after_new_ones(self, keeper: Keeper) -> None:
        """Prune, one more step, prune: what was folded before is older than all (rule 7)."""

        def life(thread: Thread) -> None:
            thread.superstep(1)
            for minute in (2, 3, 4):
                thread.task(minute - 1, [minute], "same", "~p")
                thread.superstep(minute, minute - 1)

        thread, twin = lived(keeper, life)
        for minute in range(5, 12):
            keeper.prune(["t"], keep_last=1 + minute % 2)
            for one in (thread, twin):
                one.task(minute - 1, [minute], "same", "~p" if minute % 3 else "")
                one.superstep(minute, minute - 1)
        keeper.prune(["t"])
        assert survivors(twin, [11]) == read_all(keeper, "t")
        assert [*range(2, 12)] == thread.log()

    def test_an_anchor_shows_what_it_stands_for(self, keeper: Keeper) -> None:
        """No versions, so that nothing is due on it; a mark that what is built on it keeps (8)."""
        thread, twin = lived(keeper, lambda one: one.steps([1, 2, 3], run="r", extra="x"))
        was = twin.read(minute_id(2)).checkpoint
        keeper.prune(["t"])
        found = thread.anchor(2)
        checkpoint, metadata = found.checkpoint, dict(found.metadata)
        assert ({}, {"__pruned__": {"id": minute_id(2)}}) == (
            checkpoint["channel_versions"],
            checkpoint["versions_seen"],
        )
        assert (was["v"], was["ts"], was["id"]) == tuple(checkpoint[k] for k in ("v", "ts", "id"))
        expected = {"source": "loop", "step": 2, "parents": {}, "deltastore_anchor": True}
        assert expected == metadata
        assert thread.config(minute_id(2)) == found.config

    def test_an_anchor_is_never_listed_nor_the_latest(self, keeper: Keeper) -> None:
        """Ids of another host may sort below their parent's (rule 8)."""
        thread = Thread(keeper)
        thread.superstep(9, run="gone")
        thread.superstep(5, 9, log=["five"])
        keeper.delete_for_runs(["gone"])
        assert minute_id(9) == thread.anchor(9).config["configurable"]["checkpoint_id"]
        assert ([5], []) == (thread.minutes(), keeper.list(thread.config(minute_id(9))))
        assert minute_id(5) == thread.read().config["configurable"]["checkpoint_id"]
        assert ["five"] == thread.log()

    def test_anchors_are_copied_and_deleted_with_their_thread(self, keeper: Keeper) -> None:
        """The copy's survivors stand on them as well; a deleted thread leaves none (rule 8)."""
        thread, twin = lived(keeper, lambda one: one.steps([1, 2, 3]))
        keeper.prune(["t"])
        keeper.copy_thread("t", "copy")
        copy = Thread(keeper, "copy")
        assert survivors(twin, [3]) == read_all(keeper, "copy")
        assert shape(thread.anchor(2).checkpoint) == shape(copy.anchor(2).checkpoint)
        keeper.delete_thread("t")
        assert keeper.get_tuple(thread.config(minute_id(2))) is None
        assert survivors(twin, [3]) == read_all(keeper, "copy")

    def test_put_built_on_a_pruned_tuple_is_refused(self, keeper: Keeper) -> None:
        """`update_state` and `__copy__` of a pruned id would make a near-empty head (rule 9)."""
        thread, twin = lived(keeper, lambda one: one.steps([1, 2, 3]))
        keeper.prune(["t"])
        stands = thread.anchor(2)
        for parent in (minute_id(2), None):
            built: Any = {**stands.checkpoint, "id": minute_id(4)}
            with pytest.raises(PrunedCheckpointError):
                keeper.put(thread.config(parent), built, {"step": 3}, {})
        assert survivors(twin, [3]) == read_all(keeper, "t")

    def test_put_of_an_anchors_own_id_is_refused(self, keeper: Keeper) -> None:
        """It would replace what survivors stand on (rule 9)."""
        thread, twin = lived(keeper, lambda one: one.steps([1, 2, 3]))
        keeper.prune(["t"])
        with pytest.raises(REFUSED):
            thread.put(minute_id(2), new={"n": 1}, values={"n": 1})
        assert survivors(twin, [3]) == read_all(keeper, "t")
        assert thread.anchor(2)

    @pytest.mark.parametrize("snapshot", [None, ["whole"]])
    def test_copy_of_a_survivor_may_be_put_on_its_anchor(
        self, keeper: Keeper, snapshot: Any
    ) -> None:
        """`__copy__` takes the survivor's parent for its own and brings no version (rule 10)."""

        def life(thread: Thread) -> None:
            thread.superstep(1, doc=["d"])
            thread.steps([2], 1)
            thread.superstep(3, 2, log=["three"], snapshot=snapshot)

        thread, twin = lived(keeper, life)
        keeper.prune(["t"])
        for one in (thread, twin):
            found = one.read().checkpoint
            copied: Any = {**found, "id": minute_id(4)}
            metadata: Any = {"source": "fork", "step": 3}
            keeper.put(one.config(minute_id(2)), copied, metadata, {})
            one.versions[minute_id(4)] = found["channel_versions"]
            one.superstep(5, 4, log=["five"])
        assert survivors(twin, [3, 4, 5]) == read_all(keeper, "t")

    def test_an_in_flight_put_that_reads_is_as_the_twins(self, keeper: Keeper) -> None:
        """The run that was on it ends as if nothing had been pruned (rule 10)."""
        thread, twin = lived(keeper, lambda one: one.steps([1, 2, 3, 4]))
        keeper.prune(["t"])
        for one in (thread, twin):
            one.superstep(5, 3, log=["five"])
        assert survivors(twin, [4, 5]) == read_all(keeper, "t")

    def test_an_in_flight_put_that_carries_what_went_is_refused(self, keeper: Keeper) -> None:
        """A plain channel's value is gone: refused by name, not shown as absent (rule 10)."""

        def life(thread: Thread) -> None:
            thread.superstep(1, doc=["d"])
            thread.superstep(2, 1)
            thread.superstep(3, 2, doc=["e"])

        thread, twin = lived(keeper, life)
        keeper.prune(["t"])
        with pytest.raises(PrunedCheckpointError, match="doc"):
            thread.superstep(4, 2)
        assert survivors(twin, [3]) == read_all(keeper, "t")

    @pytest.mark.parametrize("again", [0, 2])
    def test_a_put_that_asks_for_what_an_anchor_left_out_is_refused(
        self, keeper: Keeper, again: int
    ) -> None:
        """Its delta channel would come back shorter; re-anchoring must not forget it (rule 10)."""
        thread = Thread(keeper)
        thread.steps([1, 2])
        thread.superstep(3, 2, log=["three"], snapshot=["all"])
        for _ in range(1 + again):
            keeper.prune(["t"])
        before = read_all(keeper, "t")
        checkpoint = make_checkpoint(minute_id(4), {"n": 4}, {"n": 4})
        with pytest.raises(PrunedCheckpointError, match="log"):
            keeper.put(thread.config(minute_id(2)), checkpoint, {"step": 4}, {"n": 4})
        assert before == read_all(keeper, "t")

    def test_values_named_by_a_survivors_version_stay(self, keeper: Keeper) -> None:
        """Set once, inherited by all: the value's own checkpoint is long gone (rule 11)."""

        def life(thread: Thread) -> None:
            thread.superstep(1, doc=["set once" * 99])
            counters = {"log": (3, 4)}
            thread.steps([*range(2, 40)], 1, counters_since_delta_snapshot=counters)

        thread, twin = lived(keeper, life)
        keeper.prune(["t"], keep_last=2)
        assert survivors(twin, [38, 39]) == read_all(keeper, "t")
        assert ["set once" * 99] == thread.values()["doc"]
        assert {"log": [3, 4]} == dict(thread.read().metadata)["counters_since_delta_snapshot"]
