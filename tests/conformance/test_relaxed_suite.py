"""The suites on a saver that acknowledges before it stores: whoever reads sees no difference."""

from __future__ import annotations

from pathlib import Path

from deltastore import DeltaStoreSaver
from deltastore.engine.memory import MemoryEngine
from deltastore.options import StoreOptions
from deltastore.store import Store
from deltastore.testing import Saver
from deltastore.testing.retention_calls import REDUCERS
from deltastore.testing.retention_laws import RetentionSuite
from deltastore.testing.saver_suite import SaverSuite


def relaxed_in_memory() -> DeltaStoreSaver:
    """Return a saver on the memory engine."""
    store = Store(MemoryEngine(), StoreOptions(durability="relaxed"))
    return DeltaStoreSaver.on_store(store, reducers=REDUCERS)


class TestLmdb(SaverSuite):
    """On disk."""

    def open(self, where: Path) -> Saver:
        return DeltaStoreSaver(where / "store", durability="relaxed")


class TestMemoryEngine(SaverSuite):
    """The same without a file."""

    def open(self, where: Path) -> Saver:
        return relaxed_in_memory()

    def reopen(self, saver: Saver, where: Path) -> Saver:
        return saver


class TestRetentionLmdb(RetentionSuite):
    """Maintenance sees what was acknowledged."""

    def open(self, where: Path) -> Saver:
        return DeltaStoreSaver(where / "store", durability="relaxed")

    def open_folding(self, where: Path) -> Saver:
        return DeltaStoreSaver(where / "store", reducers=REDUCERS, durability="relaxed")


# Laws of puts that are refused: here the refusal comes with the next call, which is told in
# tests/unit/test_backlog.py.
REFUSE = ("refused", "ghost", "late_calls")
for _name in dir(TestRetentionLmdb):
    if any(word in _name for word in REFUSE):
        setattr(TestRetentionLmdb, _name, None)
