"""CRC-32C (Castagnoli), the checksum of every record, by the fastest implementation at hand.

An *implementation* is one of "google-crc32c" (its C code), "crcmod" (its C extension) and
"crcmod-pure" (crcmod without it). All give the same sums; they differ in speed alone, so a store
moves freely between hosts. The choice is made once, at import.

This module knows nothing of records, and never uses google-crc32c's own pure Python code, which
crcmod's C extension outruns.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Final

RESIDUE: Final = 0x48674BC7
"""Sum of any bytes followed by their own sum as four little-endian bytes."""

Extend = Callable[[int, bytes], int]


def select() -> tuple[str, Extend]:
    """Return the name and the function of the fastest implementation that can be imported.

    Warns `RuntimeWarning` when only "crcmod-pure" is left, some 300 times slower than C.
    """
    try:
        google = import_module("google_crc32c")
    except ImportError:
        pass
    else:
        if google.implementation == "c":
            extend: Extend = google.extend
            return "google-crc32c", extend
    update = import_module("crcmod.predefined").mkPredefinedCrcFun("crc-32c")

    def extend_with_crcmod(crc: int, data: bytes) -> int:
        return int(update(data, crc))

    if import_module("crcmod.crcmod")._usingExtension:
        return "crcmod", extend_with_crcmod
    warnings.warn(
        "crcmod was installed without its C extension and google-crc32c is not available: "
        "checksums of deltastore are some 300 times slower than they could be; "
        'run pip install "langgraph-checkpoint-deltastore[fast]"',
        RuntimeWarning,
        stacklevel=2,
    )
    return "crcmod-pure", extend_with_crcmod


_SELECTED: Final = select()
IMPLEMENTATION: Final = _SELECTED[0]
"""Which implementation is in use: "google-crc32c", "crcmod" or "crcmod-pure"."""

extend: Final = _SELECTED[1]
"""Return the sum of `a + data`, given the sum of `a` (0 for none) and `data`.

Cost: about 0.1 us plus 0.05 us per KiB with google-crc32c; some 40 times that per KiB with crcmod.
"""
