"""The laws of `RetentionSuite` about the namespaces of subgraphs (rule 12).

A namespace *per call* ends in the id of a task of the root checkpoint it was called from.

Part of `RetentionSuite` only for the length of a module: not to be subclassed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from deltastore.testing.retention_calls import Keeper, Thread, minute_id, read_all, survivors


class SubgraphLaws:
    """A part of `RetentionSuite`; see there."""

    @pytest.mark.parametrize("parent", [2, 6])
    def test_subgraph_state_before_a_kept_checkpoint_stays(
        self, keeper: Keeper, parent: float
    ) -> None:
        """A replay of the head starts the subgraph where it was before the head, or before its
        parent in exit durability: it would start empty otherwise (rule 12)."""
        subgraph = Thread(keeper, "t", "sub")
        thread = Thread(keeper)
        thread.steps([2, 6])
        subgraph.steps([1.0, 3, 5, 7, 9])
        thread.superstep(8, parent)
        before = read_all(keeper, "t", "sub")
        keeper.prune(["t"])
        kept = read_all(keeper, "t", "sub")
        needed: Sequence[float] = (9, 7, 5 if parent == 6 else 1)
        assert {minute_id(minute) for minute in needed} <= {key[2] for key in kept}
        assert kept.items() <= before.items()

    def test_a_per_call_namespace_goes_whole_or_stays(self, keeper: Keeper) -> None:
        """It may go only if no root checkpoint it was called from is kept (rule 12)."""
        thread = Thread(keeper)
        thread.steps([1, 4, 7])
        for ns, root, minute in (("sub:a", 1, 2.0), ("sub:b", 4, 5.0), ("sub:c", 7, 8.0)):
            calls = Thread(keeper, "t", ns)
            calls.steps([minute, minute + 0.5], parents={"": minute_id(root)})
        before = {ns: read_all(keeper, "t", ns) for ns in ("sub:a", "sub:b", "sub:c")}
        keeper.prune(["t"])
        for ns, newest in (("sub:a", 2.5), ("sub:b", 5.5)):
            found = read_all(keeper, "t", ns)
            assert found == {} or ("", ns, minute_id(newest)) in found
            assert found.items() <= before[ns].items()
        assert ("", "sub:c", minute_id(8.5)) in read_all(keeper, "t", "sub:c")

    @pytest.mark.parametrize("head", [None, 1])
    def test_a_call_from_a_checkpoint_to_come_stays(self, keeper: Keeper, head: Any) -> None:
        """Its root checkpoint is on its way: no run may lose what it is just about to need."""
        thread, call = Thread(keeper), Thread(keeper, "t", "sub:1")
        if head is not None:
            thread.superstep(head)
        thread.task(2, ["early"], "task")
        call.steps([3, 4], parents={"": minute_id(2)})
        before = survivors(call, [4])
        keeper.prune(["t"])
        assert before.items() <= read_all(keeper, "t", "sub:1").items()
        thread.superstep(2, head)
        assert [["early"]] == [write[2] for write in thread.pending(minute_id(2))]
