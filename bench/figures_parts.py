"""What single parts cost that README and guides speak of: figure `parts`. No targets.

- The structural check at opening, per MB of file, and the whole opening of a small store.
- The checksum of a record of 600 bytes, by the implementation in use; crcmod's over it, with its C
  extension and without.
- A full collection of Python's cyclic collector, before and after `gc.freeze()`: it walks what
  importing LangChain left, with the interpreter's lock held.

CPU of the process, best of some rounds.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from time import process_time
from typing import Final

from bench.conversations import Turn
from bench.figures_puts import Chat, apply_call
from bench.figures_table import Figure, Result
from deltastore import DeltaStoreSaver, StoreOptions
from deltastore.format.crc import IMPLEMENTATION, extend
from deltastore.store import Store

_ROUNDS: Final = 5
_FREQUENCY: Final = 100
_SUMMED: Final = bytes(range(200)) * 3
_SUMS: Final = 200
_POLYNOMIAL: Final = 0x11EDC6F41


def measure_parts(turns: Sequence[Turn]) -> Result:
    """Measure each part; the store that is opened holds one chat of `turns`."""
    check_ms, megabytes, opening_ms = _measure_opening(turns)
    fast, extension, pure = _measure_sums()
    before_ms, after_ms, walked = _measure_collections()
    return Result(
        [
            Figure("parts", "structural check at opening, per MB of file", check_ms, "ms", None),
            Figure("parts", "opening without it", opening_ms, "ms", None),
            Figure("parts", f"crcmod's C extension over {IMPLEMENTATION}", extension, "x", None),
            Figure("parts", f"crcmod in pure Python over {IMPLEMENTATION}", pure, "x", None),
            Figure("parts", "full collection after imports", before_ms, "ms", None),
            Figure("parts", "the same after gc.freeze()", after_ms, "ms", None),
        ],
        [
            f"the file checked has {megabytes:.1f} MB",
            f"{IMPLEMENTATION} takes {fast * 1e6:.2f} us for a record of {len(_SUMMED)} bytes",
            f"the collections walk {walked:,} objects, and none of them",
        ],
    )


def _best(call: Callable[[], object]) -> float:
    taken = []
    for _ in range(_ROUNDS):
        begun = process_time()
        call()
        taken.append(process_time() - begun)
    return min(taken)


def _measure_opening(turns: Sequence[Turn]) -> tuple[float, float, float]:
    """Return ms of the check for each MB, the file's MB, and ms of an opening without the check."""
    with tempfile.TemporaryDirectory(prefix="figures-") as scratch:
        directory = Path(scratch) / "store"
        with DeltaStoreSaver(directory, durability="normal") as saver:
            for call in Chat("conversation", snapshot_frequency=_FREQUENCY).calls(turns):
                apply_call(saver, call)
            megabytes = saver.store.stat().file_bytes / 1e6

        def open_store(verify_bytes_max: int) -> None:
            with Store.open(directory, StoreOptions(verify_bytes_max=verify_bytes_max)) as store:
                store.setup()

        unchecked = _best(lambda: open_store(0))
        checked = _best(lambda: open_store(1 << 30))
    return (checked - unchecked) * 1e3 / megabytes, megabytes, unchecked * 1e3


def _measure_sums() -> tuple[float, float, float]:
    """Return seconds of a sum by what is in use, and how many times as long crcmod's two take."""
    update = import_module("crcmod.predefined").mkPredefinedCrcFun("crc-32c")
    pure = import_module("crcmod._crcfunpy")._crc32r
    table = import_module("crcmod.crcmod")._mkTable_r(_POLYNOMIAL, 32)

    def seconds(sum_once: Callable[[], object]) -> float:
        return _best(lambda: [sum_once() for _ in range(_SUMS)]) / _SUMS

    fast = seconds(lambda: extend(0, _SUMMED))
    extension_s = seconds(lambda: update(_SUMMED, 0))
    return fast, extension_s / fast, seconds(lambda: pure(_SUMMED, 0, table)) / fast


def _measure_collections() -> tuple[float, float, int]:
    """Return ms of a full collection as it is, of one after freezing, and the objects walked."""
    gc.collect()
    walked = len(gc.get_objects())
    before = _best(gc.collect)
    gc.freeze()
    try:
        after = _best(gc.collect)
    finally:
        gc.unfreeze()
    return before * 1e3, after * 1e3, walked
