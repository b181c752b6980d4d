"""A lane whose store can be looked into, and an engine that others may be let into.

For tests of maintenance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deltastore import DeltaStoreSaver, SnapshotBounds
from deltastore.engine.api import Engine
from deltastore.engine.memory import MemoryEngine, MemoryTransaction
from deltastore.options import StoreOptions
from deltastore.store import Store
from deltastore.testing import Caller, Lane, make_checkpoint

LARGE = [f"message {n}: " + "text of some length " * 10 for n in range(20)]


class HookedEngine(MemoryEngine):
    """Calls `hook` once before the `place`-th write transaction from now on."""

    hook: Callable[[], object] | None = None
    place = 0

    def begin(self, *, write: bool, scope: bytes = b"") -> MemoryTransaction:
        if write and self.hook is not None:
            self.place -= 1
            if self.place == 0:
                hook, self.hook = self.hook, None
                hook()
        return super().begin(write=write, scope=scope)

    def before(self, place: int, hook: Callable[[], object]) -> None:
        self.place, self.hook = place, hook


class Open(Lane):
    """A lane on a store of its own, whose checkpoints and writes may be of a run."""

    def __init__(self, engine: Engine | None = None, **bounds: Any) -> None:
        options = StoreOptions(bounds=SnapshotBounds(**bounds)) if bounds else None
        self.store = Store(engine or MemoryEngine(), options)
        self.saver = DeltaStoreSaver.on_store(self.store)
        super().__init__(Caller(lambda: self.saver))

    def run(self, run_id: str, cid: str, parent: str | None, **how: Any) -> None:
        config = self.config(parent)
        config["metadata"] = {"run_id": run_id}
        new, carried = how.get("new", {}), how.get("carried", {})
        made = make_checkpoint(cid, {**carried, **new}, how.get("values", {}))
        self.saver.put(config, made, {"source": "loop", "step": 0}, new)

    def run_writes(self, run_id: str, cid: str, writes: Any, task: str = "task") -> None:
        config = self.config(cid)
        config["metadata"] = {"run_id": run_id}
        self.saver.put_writes(config, writes, task)

    def damage(self) -> list[Any]:
        return self.store.verify().damage
