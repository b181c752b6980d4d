"""A thread-safe cache bounded by weight, least recently used out first.

Knows nothing of what it keeps. Keys must identify content for good: nothing is ever invalidated.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class WeightedCache(Generic[V]):
    """Up to `weight_max` of weight; 0 keeps nothing. A single heavier entry is not kept.

    Attributes:
        hits, misses: Calls of `get` that found something, and those that did not.
    """

    __slots__ = ("_entries", "_lock", "_weight", "hits", "misses", "weight_max")

    def __init__(self, weight_max: int) -> None:
        self.weight_max = weight_max
        self._entries: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()
        self.hits = 0
        self.misses = 0

    def get(self, key: Hashable) -> V | None:
        """Return what is kept under `key`, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self.misses += 1
                return None
            self.hits += 1
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: V, weight: int) -> None:
        """Keep `value`, putting out what was least recently used."""
        with self._lock:
            old = self._entries.pop(key, None)
            if old is not None:
                self._weight -= old[1]
            if weight > self.weight_max:
                return
            self._entries[key] = (value, weight)
            self._weight += weight
            while self._weight > self.weight_max:
                _, (_, gone) = self._entries.popitem(last=False)
                self._weight -= gone

    def drop(self, key: Hashable) -> None:
        """Forget `key` if it is kept."""
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None:
                self._weight -= entry[1]

    def __len__(self) -> int:
        """Entries kept now."""
        return len(self._entries)

    @property
    def weight(self) -> int:
        """Weight kept now."""
        return self._weight
