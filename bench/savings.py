"""What one saving that remains would give: messages compressed with those before them at hand.

    python -m bench.savings [--turns 1000]

A writes record is compressed alone, with the dictionary the package ships. Here the same messages
are compressed with the serialised messages before them as a dictionary, of several sizes: what a
codec "with the parent's writes" could reach, before its own references. Measures sizes and the
CPU of compressing; stores nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from time import thread_time
from typing import Final

import zstandard

from bench.conversations import get_turns
from bench.graphs import all_messages, serialised
from deltastore.format import frame
from deltastore.format.layout import KIND_WRITES

_CONTEXTS: Final = (0, 2_048, 8_192, 32_768)
_KEY: Final = b"\x10" + bytes(30)
_LEVEL: Final = 3


def measure(turns: int) -> list[str]:
    """Return the sizes as lines of text."""
    given, source = get_turns(turns, path=None, seed=1)
    messages = [serialised([message]) for message in all_messages(given)]
    total = sum(map(len, messages))
    begun = thread_time()
    sealed = sum(len(frame.seal(_KEY, KIND_WRITES, b"", message)) for message in messages)
    lines = [
        f"{len(messages)} messages of {source}, {total} B serialised",
        f"sealed as they are now: {sealed / total:.3f}x, {_us(begun, len(messages)):.0f} us each",
    ]
    for size in _CONTEXTS:
        begun = thread_time()
        packed = _with_context(messages, size)
        lines.append(
            f"with the last {size} B before them as dictionary: {packed / total:.3f}x, "
            f"{_us(begun, len(messages)):.0f} us each"
        )
    return lines


def _with_context(messages: Sequence[bytes], size: int) -> int:
    packed = 0
    before = b""
    for message in messages:
        context = None
        if before:
            context = zstandard.ZstdCompressionDict(
                before, dict_type=zstandard.DICT_TYPE_RAWCONTENT
            )
        compressor = zstandard.ZstdCompressor(level=_LEVEL, dict_data=context)
        packed += len(compressor.compress(message))
        before = (before + message)[-size:] if size else b""
    return packed


def _us(begun: float, count: int) -> float:
    return (thread_time() - begun) / count * 1e6


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.savings", description=__doc__)
    parser.add_argument("--turns", type=int, default=1_000)
    print("\n".join(measure(parser.parse_args(argv).turns)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
