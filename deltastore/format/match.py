"""Find what two byte strings have in common: at their ends, and in runs of equal elements.

Comparisons go at memcmp speed, on slices found by doubling and bisection. Pure functions of bytes;
which splices are made of what is found is decided in `deltastore.format.delta`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import pairwise, product
from typing import Final

# Elements of both sides that are equal: number in base, number in new, how many; may be none.
Match = tuple[int, int, int]
# How many elements of either side may be stepped over to find where they go on alike; near first.
_STEPS: Final = sorted(product(range(7), repeat=2), key=lambda n: (max(n), abs(n[0] - n[1])))[1:]
_LOOK_BYTES: Final = 4 << 10


def runs(base: bytes, old: list[int], new: bytes, fresh: list[int]) -> list[Match]:
    """Return runs of equal elements, by the bounds given, ascending on both sides.

    Walks both together while one step over what differs finds the way back, as after a few edits;
    only what is behind the point where it gets lost is looked up element by element.
    """
    matches: list[Match] = []
    i = j = 0
    while i < len(old) - 1 and j < len(fresh) - 1:
        limit = min(old[-1] - old[i], fresh[-1] - fresh[j])
        same = prefix(base, old[i], new, fresh[j], limit)
        kept = bisect_right(old, old[i] + same, i) - 1 - i
        matches.append((i, j, kept))
        i += kept
        j += kept
        way = _way_back(base, old, i, new, fresh, j)
        if way is None:
            break
        i, j = way
    rest = _longest_common(base, old[i:], new, fresh[j:])
    return matches + [(i + p, j + q, 1) for p, q in rest]


def _way_back(
    base: bytes, old: list[int], i: int, new: bytes, fresh: list[int], j: int
) -> tuple[int, int] | None:
    """Return the numbers a few elements on from where both agree longest, or None."""
    way, best = None, 0
    for over_old, over_new in _STEPS:
        p, q = i + over_old, j + over_new
        if p < len(old) - 1 and q < len(fresh) - 1:
            # One element alone may be equal by chance: lists hold the same one many times.
            enough = old[min(p + 2, len(old) - 1)] - old[p]
            limit = min(enough + _LOOK_BYTES, old[-1] - old[p], fresh[-1] - fresh[q])
            same = prefix(base, old[p], new, fresh[q], limit)
            if same >= enough and same > best:
                way, best = (p, q), same
                if same == limit:
                    break
    return way


def _longest_common(
    base: bytes, old: list[int], new: bytes, fresh: list[int]
) -> list[tuple[int, int]]:
    """Return the most pairs of numbers of equal elements that ascend on both sides.

    Exactly the most if no two elements of a side are equal; of several, the next one behind the
    last match is taken. Cost: 1.4 us per element.
    """
    first: dict[bytes, int] = {}
    places: dict[bytes, list[int]] = {}  # of elements there is more than one of
    for number, (start, stop) in enumerate(pairwise(old)):
        element = base[start:stop]
        if first.setdefault(element, number) != number:
            places.setdefault(element, [first[element]]).append(number)
    # Flat lists of numbers: a tuple per match would set off the garbage collector.
    lowest: list[int] = []  # lowest[n]: lowest old number that a run of n + 1 matches can end with
    tips: list[int] = []  # tips[n]: the match that run ends with
    pairs: list[int] = []  # old number, new number, the match in front in its run (-1: none)
    last = -1
    for number, (start, stop) in enumerate(pairwise(fresh)):
        element = new[start:stop]
        place = first.get(element, -1)
        if place < 0:
            continue
        if place <= last and element in places:
            others = places[element]
            place = others[bisect_right(others, last) % len(others)]
        last = place
        length = bisect_left(lowest, place)
        lowest[length : length + 1] = [place]
        before = tips[length - 1] if length else -1
        tips[length : length + 1] = [len(pairs)]
        pairs += (place, number, before)
    matches: list[tuple[int, int]] = []
    tip = tips[-1] if tips else -1
    while tip >= 0:
        matches.append((pairs[tip], pairs[tip + 1]))
        tip = pairs[tip + 2]
    matches.reverse()
    return matches


def prefix(one: bytes, at: int, other: bytes, start: int, limit: int) -> int:
    """Return how many of at most `limit` bytes from `at` and `start` on agree."""
    view = memoryview(other)  # comparing slices of it copies nothing
    return _agreeing(lambda k, n: one.startswith(view[start + k : start + k + n], at + k), limit)


def suffix(one: bytes, at: int, other: bytes, stop: int, limit: int) -> int:
    """Return how many of at most `limit` bytes in front of `at` and `stop` agree."""
    view = memoryview(other)
    return _agreeing(lambda k, n: one.startswith(view[stop - k - n : stop - k], at - k - n), limit)


def _agreeing(agree: Callable[[int, int], bool], limit: int) -> int:
    """Return how many bytes agree, where `agree(k, n)` compares the `n` after the first `k`.

    Compares runs of double the length until one differs, then halves that one.
    """
    same, size = 0, 256
    while same < limit:
        size = min(size, limit - same)
        if not agree(same, size):
            break
        same += size
        size *= 2
    else:
        return limit
    while size > 1:
        half = size >> 1
        if agree(same, half):
            same += half
            size -= half
        else:
            size = half
    return same
