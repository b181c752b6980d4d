"""deltastore: a LangGraph checkpointer that stores what changed.

    from deltastore import DeltaStoreSaver

    with DeltaStoreSaver("./state") as saver:
        graph = builder.compile(checkpointer=saver)

`DeltaStoreSaver` is the saver; `Store`, at its `.store`, lists, sizes, verifies and backs up what
it holds. `verify_path`, `restore`, `repair` and `doctor` take the path of a store.
"""

from __future__ import annotations

import logging

from deltastore.checkup import verify_path
from deltastore.diagnosis import Diagnosis, doctor
from deltastore.errors import (
    BrokenChainError,
    CorruptionError,
    DecryptionError,
    DeletedParentError,
    DeltaStoreError,
    EngineError,
    ForkedStoreError,
    ForkRefusedError,
    FormatVersionError,
    InvalidArgumentError,
    InvalidTypeError,
    LeaseHeldError,
    LeaseLostError,
    NeededRunError,
    PrunedCheckpointError,
    QuotaExceededError,
    ReadOnlyError,
    StoreClosedError,
    StoreFullError,
    StorePathError,
)
from deltastore.findings import Finding, RepairReport, Report
from deltastore.langgraph.saver import DeltaStoreSaver
from deltastore.leases import Lease
from deltastore.options import RetentionPolicy, SnapshotBounds, StoreOptions, TimeToLive
from deltastore.plans import BackupReport
from deltastore.repairing import repair
from deltastore.restoring import restore
from deltastore.stats import StoreStats
from deltastore.store import Store
from deltastore.thread_stats import ThreadStats

__all__ = [
    "BackupReport",
    "BrokenChainError",
    "CorruptionError",
    "DecryptionError",
    "DeletedParentError",
    "DeltaStoreError",
    "DeltaStoreSaver",
    "Diagnosis",
    "EngineError",
    "Finding",
    "ForkRefusedError",
    "ForkedStoreError",
    "FormatVersionError",
    "InvalidArgumentError",
    "InvalidTypeError",
    "Lease",
    "LeaseHeldError",
    "LeaseLostError",
    "NeededRunError",
    "PrunedCheckpointError",
    "QuotaExceededError",
    "ReadOnlyError",
    "RepairReport",
    "Report",
    "RetentionPolicy",
    "SnapshotBounds",
    "Store",
    "StoreClosedError",
    "StoreFullError",
    "StoreOptions",
    "StorePathError",
    "StoreStats",
    "ThreadStats",
    "TimeToLive",
    "doctor",
    "repair",
    "restore",
    "verify_path",
]

# Nothing is printed unless the application asks for it.
logging.getLogger("deltastore").addHandler(logging.NullHandler())
