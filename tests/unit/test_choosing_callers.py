from __future__ import annotations

from deltastore import DeltaStoreSaver
from deltastore.testing import Caller, Lane
from deltastore.testing.strategies import checkpoint_id as cid


def test_a_call_whose_root_is_not_stored_yet_is_not_over() -> None:
    """With durability "exit" a subgraph ends before the root stores the checkpoint that called it;
    siblings may run for minutes in between."""
    saver = DeltaStoreSaver.ephemeral()
    root = Lane(Caller(lambda: saver))
    call = Lane(root.caller, "t", "sub:1")
    root.put(cid(0))
    call.put(cid(11), metadata={"parents": {"": cid(10)}})
    saver.prune(["t"])
    root.put(cid(10), cid(0))
    assert [cid(11)] == call.ids()
