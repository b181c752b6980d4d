"""deltastore: a LangGraph checkpointer that stores what changed.

    from deltastore import DeltaStoreSaver

    with DeltaStoreSaver("./state") as saver:
        graph = builder.compile(checkpointer=saver)

`DeltaStoreSaver` is the saver; `Store`, at its `.store`, lists, sizes and verifies what it holds.
"""

from __future__ import annotations

from deltastore.errors import (
    BrokenChainError,
    CorruptionError,
    DecryptionError,
    DeletedParentError,
    DeltaStoreError,
    EngineError,
    ForkedStoreError,
    FormatVersionError,
    InvalidArgumentError,
    InvalidTypeError,
    NeededRunError,
    PrunedCheckpointError,
    ReadOnlyError,
    StoreClosedError,
    StoreFullError,
    StorePathError,
)
from deltastore.langgraph.saver import DeltaStoreSaver
from deltastore.options import RetentionPolicy, SnapshotBounds, StoreOptions, TimeToLive
from deltastore.store import Store

__all__ = [
    "BrokenChainError",
    "CorruptionError",
    "DecryptionError",
    "DeletedParentError",
    "DeltaStoreError",
    "DeltaStoreSaver",
    "EngineError",
    "ForkedStoreError",
    "FormatVersionError",
    "InvalidArgumentError",
    "InvalidTypeError",
    "NeededRunError",
    "PrunedCheckpointError",
    "ReadOnlyError",
    "RetentionPolicy",
    "SnapshotBounds",
    "Store",
    "StoreClosedError",
    "StoreFullError",
    "StoreOptions",
    "StorePathError",
    "TimeToLive",
]
