"""An op that waits to be committed, and what became of it; see `deltastore.commit`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from deltastore.engine.api import Transaction
from deltastore.types import Wake


@dataclass(slots=True, eq=False)
class Queued:
    """An op in the queue, and its outcome. The drain thread has one too, which is never queued."""

    op: Callable[[Transaction], Any]
    after: Callable[[Any], None] | None = None
    done: Callable[[Any, BaseException | None], Wake | None] | None = None  # of an async op, always
    # Held while a sync caller, or the drain thread, has nothing to do.
    lock: threading.Lock = field(default_factory=threading.Lock)
    result: Any = None
    error: BaseException | None = None
    decided: bool = False  # `result` or `error` is final
    told: bool = False  # the caller knows; set last

    def fail(self, error: BaseException) -> None:
        """Decide that it failed."""
        self.result = None
        self.error = error
        self.decided = True

    def wake(self) -> None:
        """Wake a caller or the drain thread, if it was not woken before and has not noticed yet.

        One that was named leader may see so by itself, and lead before it is woken. Called by the
        leader or under the queue's lock: no two threads may release at once.
        """
        if self.lock.locked():
            self.lock.release()
