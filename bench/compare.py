"""Two files of pytest-benchmark's `--benchmark-json`, side by side. Reports; never fails on noise.

The least time of each benchmark is compared, as the one least disturbed. What changed by less than
the noise of either file (its quartile range over its median, at least a tenth) is called the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

_NOISE_LEAST: Final = 0.1


def lines_of(base: Path, new: Path) -> list[str]:
    """Return the comparison as lines of text."""
    before, after = _read(base), _read(new)
    lines = [
        f"{'benchmark':64}{'base us':>12}{'new us':>12}{'new / base':>12}{'noise':>8}  verdict"
    ]
    for name in sorted(before.keys() | after.keys()):
        if name not in after or name not in before:
            lines.append(f"{name:64}  only in the {'base' if name in before else 'new'} file")
            continue
        old, now = before[name], after[name]
        ratio = now["min"] / old["min"]
        noise = max(_NOISE_LEAST, *(one["iqr"] / one["median"] for one in (old, now)))
        verdict = "same" if abs(ratio - 1) <= noise else "faster" if ratio < 1 else "SLOWER"
        lines.append(
            f"{name:64}{old['min'] * 1e6:12.1f}{now['min'] * 1e6:12.1f}{ratio:12.2f}{noise:8.2f}"
            f"  {verdict}"
        )
    return lines


def _read(path: Path) -> dict[str, Any]:
    told = json.loads(path.read_text(encoding="utf-8"))
    return {one["fullname"]: one["stats"] for one in told["benchmarks"]}
