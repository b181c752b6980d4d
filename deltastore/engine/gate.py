"""A gate that transactions share and that growing or closing takes alone.

A *holder* is whatever a thread entered the gate with: its one running transaction. Whoever wants to
be alone stops newcomers first, so a stream of short readers cannot starve it.

Knows nothing of stores. After a fork no method may be called in the child, since the parent's
threads may have held the lock: owners compare process ids first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Holder = TypeVar("Holder")


class Gate(Generic[Holder]):
    """Shared by any number of threads, once each, or held alone by one that is not inside."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._changed = threading.Condition(self._mutex)
        self._holders: dict[int, Holder] = {}
        self._taken = False

    def enter(self, holder: Holder) -> int:
        """Enter, waiting while the gate is taken alone; return the ticket to leave with.

        Raises:
            AssertionError: This thread is inside already, so it might wait for itself (E10 of
                `deltastore.engine.api`).
        """
        ticket = threading.get_ident()
        with self._mutex:
            if ticket in self._holders:
                raise AssertionError("a transaction was begun inside another of the same thread")
            while self._taken:
                self._changed.wait()
            self._holders[ticket] = holder
        return ticket

    def try_enter(self, holder: Holder) -> int | None:
        """Enter as `enter` does, or return None at once where that would wait."""
        ticket = threading.get_ident()
        if not self._mutex.acquire(blocking=False):
            return None
        try:
            if self._taken or ticket in self._holders:
                return None
            self._holders[ticket] = holder
        finally:
            self._mutex.release()
        return ticket

    def leave(self, ticket: int) -> None:
        """Leave; any thread may hand in the ticket."""
        with self._mutex:
            del self._holders[ticket]
            if self._taken and not self._holders:
                self._changed.notify_all()

    def is_inside(self) -> bool:
        """Return whether this thread is inside."""
        return threading.get_ident() in self._holders

    def get_holders(self) -> list[Holder]:
        """Return who is inside. Takes no lock, so it may be called after a fork."""
        return list(self._holders.values())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the gate alone for a `with` block, once everybody inside has left.

        Raises:
            AssertionError: This thread is inside.
        """
        if self.is_inside():
            raise AssertionError("a thread inside a transaction cannot wait for its end")
        with self._mutex:
            while self._taken:
                self._changed.wait()
            self._taken = True
        try:
            with self._mutex:
                while self._holders:
                    self._changed.wait()
            yield
        finally:
            with self._mutex:
                self._taken = False
                self._changed.notify_all()
