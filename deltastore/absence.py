"""Tell what was never stored from what damage has put out of sight.

A checksum covers a record and its key, so a record under a damaged key is found out when it is
read. But a look-up by the undamaged key finds nothing, as if nothing had been stored. The damaged
key is still where it was in the file, that is next to where it is missed, unless it is out of
order, which the structural check at opening finds. So before an absence is believed the two records
beside it are checked.
"""

from __future__ import annotations

from typing import Final

from deltastore.engine.api import Transaction
from deltastore.errors import BrokenChainError, CorruptionError
from deltastore.format import frame

_FIRST: Final = b"\x00"
_LAST: Final = b"\xff"


def check_absent(txn: Transaction, low: bytes, high: bytes | None = None) -> None:
    """Check the records beside a key that was not found, or beside a range that may lack one.

    Args:
        low: The key, or the range's first.
        high: The key above the range; None for a single key.

    Raises:
        CorruptionError: One of them is damaged, so the absence may be damage too.

    Cost: two look-ups and the checksums of what they find.
    """
    for key, record in txn.scan(_FIRST, low, reverse=True, limit=1):
        frame.check(key, record)
    for key, record in txn.scan(high or low, _LAST, limit=1):
        if key == low:
            raise CorruptionError(
                "a scan finds what a look-up does not: the structure of the store is damaged",
                record=key.hex(),
            )
        frame.check(key, record)


def lost() -> BrokenChainError:
    """Return the error that says that a checkpoint is a gap."""
    return BrokenChainError(
        "this checkpoint was lost to damage, and a repair has left its place empty; nothing that "
        "needs it can be rebuilt"
    )
