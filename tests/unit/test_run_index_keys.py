from __future__ import annotations

from typing import Any

import pytest

from deltastore import DeltaStoreSaver
from deltastore.testing.strategies import checkpoint_id as cid
from tests.unit.open_lane import Open


@pytest.mark.parametrize("key", [None, 2])
def test_deleting_runs_without_the_key_says_so(key: int | None) -> None:
    """Nothing was found is not nothing is there: who must erase a run would take it for done."""
    from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

    from deltastore.errors import DecryptionError

    def aes(number: int) -> Any:
        return EncryptedSerializer.from_pycryptodome_aes(key=bytes([number]) * 16)

    lane = Open()
    lane.saver.serde = aes(1)
    lane.run("r", cid(0), None)
    lane.run("q", cid(1), cid(0))
    without = DeltaStoreSaver.on_store(lane.store, serde=None if key is None else aes(key))
    with pytest.raises(DecryptionError):
        without.delete_for_runs(["r"])
