"""The laws of `RetentionSuite` about compaction and vacuum: rewriting that must not be noticed.

Compaction may let a checkpoint, or an anchor, show a value it did not show before: that of a delta
channel whose reducer is known, as its history rebuilds it. Nothing else may change.

Part of `RetentionSuite` only for the length of a module: not to be subclassed alone.
"""

from __future__ import annotations

import pytest

from deltastore.options import SnapshotBounds
from deltastore.testing.retention_calls import (
    OVERWRITE,
    Keeper,
    Thread,
    lived,
    read_all,
    values_only,
)

BOUNDS = SnapshotBounds(updates=3, supersteps=5)


def a_long_life(thread: Thread) -> None:
    """Two dozen steps with a value that grows, an overwrite on the way, and a fork."""
    thread.superstep(1, doc=["d" * 40])
    for minute in range(2, 20):
        doc = ["d" * 40] * minute if minute % 3 == 0 else None
        log = {OVERWRITE: [minute]} if minute == 9 else [minute]
        thread.superstep(minute, minute - 1, log=log, doc=doc)
    for minute in range(20, 26):
        thread.superstep(minute, 11 if minute == 20 else minute - 1, log=[minute])
    thread.task(25, ["pending"], "task")


class CompactionLaws:
    """A part of `RetentionSuite`; see there."""

    @pytest.mark.parametrize("bounds", [None, BOUNDS, SnapshotBounds(updates=1, supersteps=1)])
    def test_compaction_without_reducers_changes_nothing_told(
        self, keeper: Keeper, bounds: SnapshotBounds | None
    ) -> None:
        """Values are stored in fewer pieces; not a byte of what is read may differ."""
        lived(keeper, a_long_life)
        before = read_all(keeper)
        keeper.compact("t", bounds)
        assert before == read_all(keeper)
        keeper.compact(None, bounds)
        assert before == read_all(keeper)
        keeper.reopen()
        assert before == read_all(keeper)

    def test_compaction_never_changes_what_is_rebuilt(self, folder: Keeper) -> None:
        """Folded by the channel's own reducer and its overwrite rule, both walks read it."""
        lived(folder, a_long_life)
        before = read_all(folder, "twin")
        folder.compact("t", BOUNDS)
        assert values_only(before) == values_only(read_all(folder, "t"))
        assert before == read_all(folder, "twin")

    def test_compaction_of_a_pruned_thread_never_changes_it(self, folder: Keeper) -> None:
        """Pruned first or last, and compacted twice: what is rebuilt is the twin's."""
        thread, twin = lived(folder, a_long_life)
        for keep_last in (12, 3):
            folder.compact("t", BOUNDS)
            folder.prune(["t"], keep_last=keep_last)
            folder.compact("t", BOUNDS)
            left = read_all(folder, "t")
            expected = {key: one for key, one in read_all(folder, "twin").items() if key in left}
            assert keep_last == len(left)
            assert values_only(expected) == values_only(left)
        for one in (thread, twin):
            one.steps([26, 27], 25)
        assert twin.log() == thread.log()

    def test_a_dry_compaction_tells_what_is_then_done(self, folder: Keeper) -> None:
        """And changes nothing; done again, there is nothing to do."""
        lived(folder, a_long_life)
        before = read_all(folder)
        planned = folder.compact("t", BOUNDS, dry_run=True)
        assert before == read_all(folder)
        assert not planned.is_empty
        assert planned == folder.compact("t", BOUNDS)
        after = read_all(folder)
        assert folder.compact("t", BOUNDS).is_empty
        assert after == read_all(folder)

    def test_vacuum_changes_nothing_told(self, keeper: Keeper) -> None:
        """After whatever went before; the store goes on where it was."""
        thread, twin = lived(keeper, a_long_life)
        keeper.vacuum()
        keeper.prune(["t"], keep_last=3)
        keeper.copy_thread("t", "copy")
        before = read_all(keeper)
        keeper.vacuum()
        assert before == read_all(keeper)
        for one in (thread, twin):
            one.steps([26], 25)
        assert twin.log() == thread.log()
        before = read_all(keeper)
        keeper.reopen()
        keeper.vacuum()
        keeper.reopen()
        assert before == read_all(keeper)
