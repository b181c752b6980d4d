"""One LMDB environment per path and process: who has it open, and what a fork makes of that.

An *opening* is what one engine asked for; the *registry* holds the shared environments of this
process by real path. LMDB forbids opening a file twice in one process, and an environment must not
be used in a forked child at all.

Order of locks: the gate of an environment, then the registry's lock. A forked child gets a new
registry lock, and no gate of its parent's is ever touched in it.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deltastore.engine.lmdb_shared import SharedEnvironment
from deltastore.errors import ForkedStoreError, StoreClosedError, StorePathError
from deltastore.options import EngineDurability


@dataclass(slots=True)
class Opening:
    """What one engine asked for, and the environment it was given at its first use."""

    path: Path
    durability: EngineDurability
    read_only: bool
    verify_bytes_max: int
    map_bytes: int
    max_bytes: int | None = None
    shared: SharedEnvironment | None = None
    closed: bool = False

    def check(self) -> None:
        """Raise `ForkedStoreError` or `StoreClosedError` if nothing may begin; takes no lock."""
        shared = self.shared
        if shared is None:
            shared = registry.find(self.path)
        if shared is not None and shared.pid != os.getpid():
            raise ForkedStoreError(
                f"{self.path} was open in process {shared.pid} when it forked, and LMDB cannot be "
                "used in the child; open the store after the fork, or start children with "
                "the 'spawn' method"
            )
        if self.closed:
            raise StoreClosedError(f"{self.path} is closed; open it again")


class _Registry:
    """The shared environments of this process, by real path."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._entries: dict[Path, SharedEnvironment] = {}

    def find(self, path: Path) -> SharedEnvironment | None:
        """Return the entry of a path; takes no lock."""
        return self._entries.get(path)

    def attach(self, opening: Opening) -> SharedEnvironment:
        """Give an opening its environment, made if there is none; called after `Opening.check`.

        Raises:
            StorePathError: The path is open in this process in a way that cannot be shared.
        """
        with self._mutex:
            opening.check()
            if opening.shared is not None:
                return opening.shared
            shared = self._entries.get(opening.path)
            if shared is None or shared.is_replaced():
                shared = self._entries[opening.path] = SharedEnvironment(
                    opening.path,
                    durability=opening.durability,
                    read_only=opening.read_only,
                    verify_bytes_max=opening.verify_bytes_max,
                    map_bytes=opening.map_bytes,
                    max_bytes=opening.max_bytes,
                )
            elif not opening.read_only and shared.read_only:
                raise StorePathError(
                    f"{opening.path} is open read-only in this process; close that opening first, "
                    "or open it for writing before"
                )
            elif not opening.read_only and shared.durability != opening.durability:
                raise StorePathError(
                    f"{opening.path} is open in this process with durability="
                    f"{shared.durability!r}; use the same, or close that opening first "
                    f"(asked: {opening.durability!r})"
                )
            elif not opening.read_only and shared.max_bytes != opening.max_bytes:
                raise StorePathError(
                    f"{opening.path} is open in this process with max_bytes={shared.max_bytes}; "
                    f"use the same, or close that opening first (asked: {opening.max_bytes})"
                )
            shared.references += 1
            opening.shared = shared
            return shared

    def detach(self, opening: Opening) -> None:
        """Close an opening: wait for running transactions; the last one closes the environment."""
        shared = opening.shared
        if shared is not None and shared.pid != os.getpid():
            opening.closed = True
            return
        if shared is not None and shared.gate.is_inside():
            raise AssertionError("an engine was closed inside a transaction of the same thread")
        with self._mutex:
            if opening.closed:
                return
            opening.closed = True
            shared = opening.shared
        if shared is None:
            return
        with shared.gate.alone(), self._mutex:
            shared.references -= 1
            if shared.references == 0:
                if self._entries.get(shared.path) is shared:
                    del self._entries[shared.path]
                shared.close_env()

    def forget_parent(self) -> None:
        """Make the registry of a forked child usable; what was mapped stays known as unusable."""
        self._mutex = threading.Lock()
        for path, shared in list(self._entries.items()):
            shared.abandon()
            if not shared.was_mapped and shared.pid != os.getpid():
                del self._entries[path]


registry: Final = _Registry()
os.register_at_fork(after_in_child=registry.forget_parent)
