"""What a vacuum keeps in an environment beside the pairs: the environment's state and a journal.

    FF * 8, 00               the state; absent: nothing special
                               'A' token   a vacuum is active: writers keep the journal
                               'D'         a journal that nobody needs waits to be deleted
                               'S' u32     superseded by the generation of that number
    FF * 8, 01, u64          journal: the keys that the write transaction of that id put or deleted,
                             each after its length as u16

These keys sort after `KEYS_END` of `deltastore.engine.api`, so no caller's transaction reaches
them. Numbers are big endian. The state changes in write transactions only, so a writer that read it
at its beginning may rely on it to its end.

Functions on LMDB's own transactions; they raise `lmdb.Error` and decide nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import lmdb

from deltastore.engine.api import KEYS_END

STATE: Final = KEYS_END + b"\x00"
RECORDS_MAX: Final = 1_000  # in one transaction of a vacuum, so that no writer waits for long
_JOURNAL: Final = KEYS_END + b"\x01"
_JOURNAL_END: Final = KEYS_END + b"\x02"
_ACTIVE: Final = b"A"
_DRAINING: Final = b"D"
_SUPERSEDED: Final = b"S"


def get_successor(state: bytes | None) -> int:
    """Return the number of the generation that supersedes this one, 0 if none does."""
    if state is None or not state.startswith(_SUPERSEDED):
        return 0
    return int.from_bytes(state[1:], "big")


def is_active(state: bytes | None) -> bool:
    """Return whether the state is that of a vacuum, alive or dead."""
    return state is not None and state.startswith(_ACTIVE)


def activate(txn: lmdb.Transaction[bytes], token: bytes) -> bytes:
    """Make later write transactions keep the journal; return the state that says so."""
    state = _ACTIVE + token
    txn.put(STATE, state)
    return state


def supersede(txn: lmdb.Transaction[bytes], number: int) -> None:
    """Say that generation `number` holds everything from this transaction on."""
    txn.put(STATE, _SUPERSEDED + number.to_bytes(4, "big"))


def drain(txn: lmdb.Transaction[bytes]) -> bool:
    """Delete up to `RECORDS_MAX` entries; return whether state and journal are gone with them.

    After the first call no vacuum finds its own state any more, so none can take a journal for
    whole that was not kept.
    """
    with txn.cursor() as cursor:
        is_left = cursor.set_range(_JOURNAL)
        for _ in range(RECORDS_MAX):
            if not is_left or cursor.key() >= _JOURNAL_END:
                txn.delete(STATE)
                return True
            is_left = cursor.delete()
    txn.put(STATE, _DRAINING)
    return False


def write(txn: lmdb.Transaction[bytes], keys: Collection[bytes]) -> None:
    """Store which keys a write transaction put or deleted; called once, before its commit."""
    entry = b"".join([len(key).to_bytes(2, "big") + key for key in keys])
    txn.put(_JOURNAL + txn.id().to_bytes(8, "big"), entry)


def read(
    txn: lmdb.Transaction[bytes], after: int, keys_max: int | None
) -> tuple[set[bytes], int, int]:
    """Return keys of the entries after that of transaction `after`, oldest first.

    Args:
        keys_max: No further entry is read once there are so many; None reads all.

    Returns:
        The keys, the id of the last entry read (`after` if none was), and how many were read.
    """
    keys: set[bytes] = set()
    entries = 0
    with txn.cursor() as cursor:
        is_left = cursor.set_range(_JOURNAL + (after + 1).to_bytes(8, "big"))
        while is_left and cursor.key() < _JOURNAL_END:
            if keys_max is not None and len(keys) >= keys_max:
                break
            after = int.from_bytes(cursor.key()[len(_JOURNAL) :], "big")
            entries += 1
            keys.update(_split(cursor.value()))
            is_left = cursor.next()
    return keys, after, entries


def _split(entry: bytes) -> list[bytes]:
    keys = []
    at = 0
    while at < len(entry):
        end = at + 2 + int.from_bytes(entry[at : at + 2], "big")
        keys.append(entry[at + 2 : end])
        at = end
    return keys


def count(txn: lmdb.Transaction[bytes]) -> int:
    """Return how many records of this module there are; cost: a step for each."""
    with txn.cursor() as cursor:
        if not cursor.set_range(KEYS_END):
            return 0
        return sum(1 for _ in cursor.iternext(values=False))
