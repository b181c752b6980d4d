"""The bounds of keys and values (E1, E8 of `deltastore.engine.api`), checked before any effect.

Pure functions, shared by the engines; nothing here knows a store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deltastore.engine.api import KEYS_END, VALUE_BYTES_MAX
from deltastore.errors import InvalidArgumentError

KEY_BYTES_MAX: Final = 511  # what LMDB 0.9 was built with
_MARGIN_BYTES_LEAST: Final = 16 << 20
_FILE_UNIT: Final = 1 << 16  # a multiple of every page size


def file_bytes_max(max_bytes: int, file_bytes: int) -> int:
    """Return how long a bounded store's file may get that has a length now.

    That is the bound and a margin of a quarter, or 16 MiB if that is more: a commit writes changed
    pages to new places before it frees the old ones, and so does a deletion. A file that is longer
    already, since it was not bounded, may grow by the margin.
    """
    margin = max(_MARGIN_BYTES_LEAST, max_bytes // 4)
    most = max_bytes + margin
    if file_bytes > most:
        most = file_bytes + margin
    return most // _FILE_UNIT * _FILE_UNIT


def check_key(key: bytes) -> None:
    """Check that a key has 1 to 511 bytes and sorts before `KEYS_END`.

    Raises:
        InvalidArgumentError: It does not.
    """
    if not 0 < len(key) <= KEY_BYTES_MAX:
        raise InvalidArgumentError(
            f"key must be 1 to {KEY_BYTES_MAX} bytes (got {len(key)}: {bytes(key[:24]).hex()}...); "
            "shorten or hash the id it is made of"
        )
    if key >= KEYS_END:
        raise InvalidArgumentError(
            f"key must sort before eight bytes ff (got {bytes(key[:24]).hex()}...), since keys "
            "beyond are the engine's own; begin it with another byte"
        )


def check_keys(keys: Sequence[bytes]) -> None:
    """Check every key as `check_key` does; cost: three passes in C."""
    if keys and not (
        0 < min(map(len, keys)) <= max(map(len, keys)) <= KEY_BYTES_MAX and max(keys) < KEYS_END
    ):
        for key in keys:
            check_key(key)


def check_pair(key: bytes, value: bytes) -> None:
    """Check a key as `check_key` does, and that its value has at most `VALUE_BYTES_MAX` bytes.

    Raises:
        InvalidArgumentError: One of them is out of bounds.
    """
    check_key(key)
    if len(value) > VALUE_BYTES_MAX:
        raise InvalidArgumentError(
            f"value must be at most {VALUE_BYTES_MAX} bytes (got {len(value)}, key {key.hex()}); "
            "store it in parts"
        )


def check_limit(limit: int | None) -> None:
    """Check that a bound on a number of pairs is none or at least 0.

    Raises:
        InvalidArgumentError: It is negative.
    """
    if limit is not None and limit < 0:
        raise InvalidArgumentError(f"limit must be at least 0 (got {limit}); use None for no bound")
