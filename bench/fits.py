"""Quantiles, milestones and exponents of growth. Numbers in, numbers out."""

from __future__ import annotations

import math
from collections.abc import Sequence


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the nearest-rank quantile of ascending numbers, of which there is at least one."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def milestones(last: int) -> list[int]:
    """Return 1, 2, 5, 10, 20, 50 ... up to `last`, and `last` itself."""
    found = []
    power = 1
    while power <= last:
        found += [power * step for step in (1, 2, 5) if power * step <= last]
        power *= 10
    return sorted({*found, last})


def exponent(points: Sequence[tuple[float, float]], *, decades: float = 1.0) -> float | None:
    """Return b of the least-squares fit of y = a * x**b, through the logarithms of the points.

    Args:
        points: x and y, x ascending; those that are not positive are left out.
        decades: Points below the greatest x over this many powers of ten are left out: what is
            fitted is how y grows at the end, not what an empty store takes.

    Returns:
        None for fewer than three points.
    """
    positive = [(x, y) for x, y in points if x > 0 and y > 0]
    if not positive:
        return None
    least = positive[-1][0] / 10**decades * (1 - 1e-9)
    logs = [(math.log(x), math.log(y)) for x, y in positive if x >= least]
    if len(logs) < 3:
        return None
    middle_x = sum(x for x, _ in logs) / len(logs)
    middle_y = sum(y for _, y in logs) / len(logs)
    spread = sum((x - middle_x) ** 2 for x, _ in logs)
    if spread == 0:
        return None
    return sum((x - middle_x) * (y - middle_y) for x, y in logs) / spread
