"""Unsigned LEB128 integers, the only variable-length number of the on-disk format.

Nouns: a *varint* is 1 to 10 bytes, seven bits of the number in each, least significant first; the
top bit of a byte says that another follows. Numbers are 0 to 2**64 - 1.

This module must not know what a number means, nor read beyond the varint it was asked for.
"""

from __future__ import annotations

from typing import Final

from deltastore.errors import CorruptionError

NUMBER_MAX: Final = 2**64 - 1
_VARINT_BYTES_MAX: Final = 10


def put(out: bytearray, number: int) -> None:
    """Append `number` (0 to 2**64 - 1) to `out` in the fewest bytes. Cost: under 1 us.

    Raises:
        ValueError: Outside that range: a bug of the caller, nothing stored is wrong.
    """
    if not 0 <= number <= NUMBER_MAX:
        raise ValueError(f"a varint holds 0 to {NUMBER_MAX}, not {number}")
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def get(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at index `at` of `data` and the index after it.

    A longer spelling (padded with zero bits, up to 10 bytes) reads as the same number.

    Raises:
        CorruptionError: `data` ends inside the varint, or it has more than 64 bits.
    """
    if at < len(data) and data[at] < 0x80:  # the usual case
        return data[at], at + 1
    number = 0
    for index in range(at, min(len(data), at + _VARINT_BYTES_MAX)):
        byte = data[index]
        number |= (byte & 0x7F) << 7 * (index - at)
        if byte < 0x80 and number <= NUMBER_MAX:
            return number, index + 1
    if len(data) < at + _VARINT_BYTES_MAX:
        raise CorruptionError(f"varint at byte {at} is cut off: the bytes end at {len(data)}")
    raise CorruptionError(f"varint at byte {at} has more than 64 bits")
