"""Read ancestors ahead, for hosts that walk a history with `aget_tuple` alone.

LangGraph's Agent Server asks for a checkpoint, then its parent, and so on, one call each. A call
for the parent of what was returned last is taken for a *walk*: several ancestors are then read in
one view, and the next calls are answered from them without leaving the event loop. What was read is
served only while the engine's version shows that nobody has committed since.

Only small checkpoints are read ahead, as they are decoded on the loop.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from deltastore.reconstruct import StoredCheckpoint
from deltastore.types import Cipher

CHECKPOINTS_MAX: Final = 32
BYTES_MAX: Final = 64 << 10  # of serialized values and writes, for all that is read ahead at once
_WALKS_MAX: Final = 256


class WalkKey(NamedTuple):
    """Where somebody walks."""

    thread_id: str
    checkpoint_ns: str


@dataclass(slots=True)
class _Walk:
    cipher: Cipher | None
    following: str | None = None
    version: int | None = None
    ahead: dict[str, StoredCheckpoint] = field(default_factory=dict)


class ReadAhead:
    """What was read ahead for up to `_WALKS_MAX` walks, the least recently used forgotten first."""

    def __init__(self) -> None:
        self._walks: OrderedDict[WalkKey, _Walk] = OrderedDict()
        self._lock = threading.Lock()

    def take(
        self, key: WalkKey, cipher: Cipher | None, checkpoint_id: str, version: int | None
    ) -> StoredCheckpoint | None:
        """Return a checkpoint read ahead with this cipher, if nothing was committed since."""
        with self._lock:
            walk = self._walks.get(key)
            if walk is None or walk.cipher is not cipher:
                return None
            if version is None or walk.version != version:
                return None
            found = walk.ahead.pop(checkpoint_id, None)
            if found is not None:
                walk.following = found.parent_id
            return found

    def is_walk(self, key: WalkKey, checkpoint_id: str) -> bool:
        """Whether a call asks for the parent of what was returned last."""
        with self._lock:
            walk = self._walks.get(key)
            return walk is not None and walk.following == checkpoint_id

    def note(
        self,
        key: WalkKey,
        cipher: Cipher | None,
        found: Sequence[StoredCheckpoint],
        version: int | None,
    ) -> None:
        """Remember what was read at `version`: the first is returned now, the others later."""
        ahead = {one.checkpoint_id: one for one in found[1:]}
        with self._lock:
            self._walks[key] = _Walk(cipher, found[0].parent_id, version, ahead)
            self._walks.move_to_end(key)
            if len(self._walks) > _WALKS_MAX:
                self._walks.popitem(last=False)
