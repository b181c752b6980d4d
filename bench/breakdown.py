"""What the bytes of a closed deltastore are: records by kind, and the pages that hold them.

Reads the store through its engine and its format; measures no time.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deltastore.engine.api import EngineStat, Pair
from deltastore.engine.lmdb import LmdbEngine
from deltastore.format import frame, header, keys, layout, value

_PAGE: Final = 512
_WITHOUT_CIPHER: Final = None


@dataclass(slots=True)
class Kind:
    """Records of one kind: how many, and the bytes of their keys and of themselves."""

    records: int = 0
    key_bytes: int = 0
    record_bytes: int = 0


@dataclass(slots=True)
class Breakdown:
    """What a store's bytes are.

    Attributes:
        kinds: By name of the kind.
        stat: Sizes as the engine tells them.
    """

    stat: EngineStat
    kinds: dict[str, Kind] = field(default_factory=dict)


def scan_store(directory: Path) -> Breakdown:
    """Return what the records of a closed, unencrypted store are."""
    engine = LmdbEngine(directory, read_only=True)
    try:
        breakdown = Breakdown(engine.stat())
        last, stop = b"\x00", bytes([layout.TAG_LOG + 1])
        while True:
            with engine.begin(write=False) as txn:
                page = txn.scan(last, stop, limit=_PAGE)
            for pair in page:
                kind = breakdown.kinds.setdefault(_kind(pair), Kind())
                kind.records += 1
                kind.key_bytes += len(pair[0])
                kind.record_bytes += len(pair[1])
            if len(page) < _PAGE:
                return breakdown
            last = page[-1][0] + b"\x00"
    finally:
        engine.close()


def _kind(pair: Pair) -> str:
    key, record = pair
    if key[0] != layout.TAG_LOG:
        return "directory"
    kind = keys.split(key).kind
    if kind == layout.KIND_HEADER:
        clear = header.parent_of(frame.peek(key, record, kind))
        return "header difference" if clear.is_difference else "header whole"
    if kind == layout.KIND_VALUE:
        stored = value.decode(frame.unseal(key, record, kind, _WITHOUT_CIPHER).payload)
        return "value whole" if stored.base is None else "value delta"
    return "writes" if kind == layout.KIND_WRITES else f"kind {kind}"


def lines_of_breakdown(breakdown: Breakdown, new_bytes: int) -> list[str]:
    """Return the breakdown as a table, its bytes over those of the new state."""
    stat = breakdown.stat
    lines = [f"{'':20}{'records':>9}{'key B':>11}{'record B':>11}{'B each':>8}{'/ new':>7}"]
    for name, kind in sorted(breakdown.kinds.items()):
        size = kind.key_bytes + kind.record_bytes
        lines.append(
            f"{name:20}{kind.records:9}{kind.key_bytes:11}{kind.record_bytes:11}"
            f"{size / kind.records:8.0f}{size / new_bytes:7.2f}"
        )
    records = sum(kind.key_bytes + kind.record_bytes for kind in breakdown.kinds.values())
    used = stat.file_bytes - stat.free_bytes
    lines += [
        _pages("in use", used, f"{used - records} B beside records", used - records, new_bytes),
        _pages("free", stat.free_bytes, f"{stat.free_bytes} B", stat.free_bytes, new_bytes),
    ]
    return lines


def _pages(which: str, size: int, told: str, part: int, new_bytes: int) -> str:
    return f"{'pages ' + which:20}{size // mmap.PAGESIZE:9}{told:>30}{part / new_bytes:7.2f}"
