"""A transaction that is never committed: what a write would do to the size of what is stored.

Holds what was put and deleted in memory, so it is for small writes; ends with the view it reads.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from deltastore.engine.api import Pair, Transaction
from deltastore.format.keys import after


class Rehearsal:
    """Reads a view; keeps what is put and deleted to itself."""

    def __init__(self, view: Transaction) -> None:
        self._view = view
        self._own: dict[bytes, bytes | None] = {}  # None: deleted
        self._keys: list[bytes] = []  # of `_own`, in order

    def growth(self, prefix: bytes) -> int:
        """Return by how many bytes the records whose keys have a prefix have grown."""
        return self._growth(self._span(prefix, after(prefix)))

    def _growth(self, changed: Sequence[bytes]) -> int:
        size = 0
        for key in changed:
            was, now = self._view.get(key), self._own[key]
            size += (0 if now is None else len(key) + len(now)) - (
                0 if was is None else len(key) + len(was)
            )
        return size

    def _span(self, start: bytes, stop: bytes) -> list[bytes]:
        return self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, stop)]

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None."""
        return self._own[key] if key in self._own else self._view.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of `keys`, in their order, None for each that is absent."""
        return [self.get(key) for key in keys]

    def scan(
        self, start: bytes, stop: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[Pair]:
        """As `Transaction.scan`, with what was put and without what was deleted here."""
        found = self.scan_keys(start, stop, reverse=reverse, limit=limit)
        pairs = zip(found, self.get_many(found), strict=True)
        return [(key, record) for key, record in pairs if record is not None]

    def scan_keys(
        self, start: bytes, stop: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[bytes]:
        """As `scan`, keys only."""
        own = self._span(start, stop)
        # As many more as may be deleted here, so that enough are left.
        more = None if limit is None else limit + len(own)
        found = set(self._view.scan_keys(start, stop, reverse=reverse, limit=more))
        found.update(own)
        left = (key for key in found if self._own.get(key, b"") is not None)
        return sorted(left, reverse=reverse)[:limit]

    def put(self, key: bytes, value: bytes) -> None:
        """Store `value` under `key`, here alone."""
        self._set(key, value)

    def delete(self, key: bytes) -> bool:
        """Remove `key`, here alone; return whether it was there."""
        was = self.get(key) is not None
        if was:
            self._set(key, None)
        return was

    def delete_range(self, start: bytes, stop: bytes, *, limit: int) -> int:
        """Remove up to `limit` pairs, here alone, lowest first; return how many."""
        found = self.scan_keys(start, stop, limit=limit)
        for key in found:
            self._set(key, None)
        return len(found)

    def used_bytes(self) -> int:
        """Return what the view's pairs take, and the bytes by which they have grown here."""
        return self._view.used_bytes() + self._growth(self._keys)

    def _set(self, key: bytes, value: bytes | None) -> None:
        if key not in self._own:
            insort(self._keys, key)
        self._own[key] = value
