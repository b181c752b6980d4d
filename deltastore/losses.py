"""What a repair found damaged or missing, and which records that may have been.

A *loss* is a range of keys in which something is not there any more: a single key, where a record
is damaged and its key can be relied on; else all between the keys before and behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from deltastore.errors import CorruptionError
from deltastore.findings import RECORDS, STRUCTURE, Finding
from deltastore.format import keys, layout
from deltastore.format.keys import LogKey
from deltastore.ids import id_from_cid

_SINGLE: Final = (layout.KIND_HEADER, layout.KIND_ANCHOR, layout.KIND_WRITES, layout.KIND_FOLDED)


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that is not there any more.

    Attributes:
        low, high: The first key it may have had, and the first it cannot have had.
        key: The one under which damaged bytes were found; None where pages cannot be read.
        why: For the report.
    """

    low: bytes
    high: bytes
    key: bytes | None
    why: str

    def is_single(self) -> bool:
        """Whether it is the loss of one record whose key is relied on."""
        return self.key == self.low

    def meets(self, low: bytes, high: bytes) -> bool:
        """Whether a range of keys may lack something."""
        return self.low < high and low < self.high


@dataclass(slots=True)
class Losses:
    """All losses of a store."""

    found: list[Loss] = field(default_factory=list)

    def meet(self, low: bytes, high: bytes) -> bool:
        """Whether a range of keys may lack something."""
        return any(loss.meets(low, high) for loss in self.found)

    def in_stream(self, prefix: bytes, named: Iterable[bytes]) -> Losses:
        """Return the losses of one stream.

        A damaged record's key is relied on where other records name the checkpoint that it names:
        then it is a loss at that checkpoint alone.

        Args:
            named: Ids that sound records are at or refer to.
        """
        known, found = frozenset(named), []
        for loss in self.found:
            if not loss.meets(prefix, keys.after(prefix)):
                continue
            key = loss.key
            place = place_of(key) if key is not None and key.startswith(prefix) else None
            is_known = place is not None and place.cid in known
            found.append(single(key, loss.why) if key is not None and is_known else loss)
        return Losses(found)

    def reason_at(self, prefix: bytes, cid: bytes, *, is_stored: bool) -> str | None:
        """Return why a checkpoint cannot be relied on; None if nothing of it may be missing.

        A value that is missing does not count: whoever refers to it tells.
        """
        at = prefix + cid
        kinds = _SINGLE if not is_stored else _SINGLE[2:]
        for loss in self.found:
            for kind in kinds:
                if loss.meets(at + bytes([kind]), at + bytes([kind + 1])):
                    return loss.why
        return None


def place_of(key: bytes) -> LogKey | None:
    """Take a key of the log apart; None if it is none."""
    try:
        return keys.split(key)
    except CorruptionError:
        return None


def single(key: bytes, why: str) -> Loss:
    """Return the loss of one record whose key is relied on."""
    return Loss(key, key + b"\x00", key, why)


def between(before: bytes, key: bytes, following: bytes, why: str) -> Loss:
    """Return the loss of a record whose damaged bytes lay under `key`, between two sound ones.

    Where one of these is of the same checkpoint, the key is relied on: damage does not make it so.
    """
    place = place_of(key)
    if place is not None:
        start = key[: 9 + len(place.cid)]
        if before.startswith(start) or following.startswith(start):
            return single(key, why)
    return Loss(before + b"\x00", max(following, before + b"\x00\x00"), key, why)


def told(loss: Loss, thread_id: str | None, checkpoint_ns: str | None) -> Finding:
    """Return what the report says of a loss."""
    if loss.key is not None:
        checkpoint_id = None
        with suppress(CorruptionError):
            checkpoint_id = id_from_cid(keys.split(loss.key).cid)
        return Finding(
            RECORDS, loss.why, thread_id, checkpoint_ns, checkpoint_id, key=loss.key.hex()
        )
    return Finding(
        STRUCTURE,
        f"{loss.why}: any number of records from key {loss.low.hex()} on, before {loss.high.hex()}",
        thread_id,
        checkpoint_ns,
    )
