"""Micro-benchmarks of the frame: seal and unseal a small, a middling and a large payload.

Run with pytest-benchmark: `python -m pytest bench/test_frame.py`. Times are reported, not judged.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from deltastore.format.frame import peek, seal, unseal
from deltastore.format.layout import KIND_VALUE

KEY = b"\x10" + bytes(range(30))
WORDS = (
    b"could you please tell me what the total cost of my order is and when it will be delivered to "
    b"the new address I have asked for the status twice but there was no answer thank you"
).split()
SIZES = [200, 2_000, 200_000]


def make_payload(size: int) -> bytes:
    """Return `size` bytes of seeded text, with a number now and then that does not compress."""
    random = Random(size)
    words: list[bytes] = []
    length = 0
    while length < size:
        word = random.choice(WORDS) if random.random() < 0.85 else b"%d" % random.getrandbits(40)
        words.append(word)
        length += len(word) + 1
    return b" ".join(words)[:size]


@pytest.mark.parametrize("size", SIZES)
def test_seal(benchmark: Any, size: int) -> None:
    """Compress and sum."""
    benchmark(seal, KEY, KIND_VALUE, b"\x01", make_payload(size))


@pytest.mark.parametrize("size", SIZES)
def test_unseal(benchmark: Any, size: int) -> None:
    """Verify and decompress."""
    benchmark(unseal, KEY, seal(KEY, KIND_VALUE, b"\x01", make_payload(size)), KIND_VALUE)


@pytest.mark.parametrize("size", SIZES)
def test_peek(benchmark: Any, size: int) -> None:
    """Verify only."""
    benchmark(peek, KEY, seal(KEY, KIND_VALUE, b"\x01", make_payload(size)), KIND_VALUE)
