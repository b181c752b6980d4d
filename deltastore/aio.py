"""`AsyncDeltaStoreSaver`: the same class, under the name people look for."""

from __future__ import annotations

from deltastore.langgraph.saver import DeltaStoreSaver as AsyncDeltaStoreSaver

__all__ = ["AsyncDeltaStoreSaver"]
