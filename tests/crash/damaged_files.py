"""Data files with damage in bytes that are in use, and what a reader is then told.

*Live* bytes are those of nodes in pages that the newest meta page leads to, of the values in pages
of their own, and of the headers and offsets of these pages. What lies in free space is no one's.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from deltastore import DeltaStoreError, DeltaStoreSaver

PAGE = 4096
KINDS = ("bit", "bits", "garbage", "zeros", "page")


def live_ranges(data: bytes) -> list[tuple[int, int]]:
    """Return where bytes are in use, of a sound file, as (offset, length)."""
    metas = [struct.unpack_from("=Q", data, PAGE * n + 144)[0] for n in (0, 1)]
    at = PAGE * metas.index(max(metas))
    (root,) = struct.unpack_from("=Q", data, at + 128)
    return list(_live_page(data, root))


def _live_page(data: bytes, number: int) -> Iterator[tuple[int, int]]:
    start = number * PAGE
    _, _, flags, lower, _ = struct.unpack_from("=QHHHH", data, start)
    yield start, lower
    for place in range(16, lower, 2):
        (offset,) = struct.unpack_from("=H", data, start + place)
        low, high, node, size = struct.unpack_from("=HHHH", data, start + offset)
        if flags & 1:
            yield start + offset, 8 + size
            yield from _live_page(data, low | high << 16 | node << 32)
        elif node & 1:
            yield start + offset, 8 + size + 8
            (page,) = struct.unpack_from("=Q", data, start + offset + 8 + size)
            yield page * PAGE, 16 + (low | high << 16)
        else:
            yield start + offset, 8 + size + (low | high << 16)


def damage(data: bytes, live: list[tuple[int, int]], rng: random.Random) -> tuple[str, bytes]:
    """Return a kind of damage and the file with it: at least one live byte is another."""
    kind = rng.choice(KINDS)
    while True:
        out = bytearray(data)
        start, length = rng.choices(live, [one[1] for one in live])[0]
        at = start + rng.randrange(length)
        if kind == "bit":
            out[at] ^= 1 << rng.randrange(8)
        elif kind == "bits":
            for _ in range(8):
                start, length = rng.choices(live, [one[1] for one in live])[0]
                out[start + rng.randrange(length)] ^= 1 << rng.randrange(8)
        elif kind == "garbage":
            out[at : at + 64] = rng.randbytes(64)
        elif kind == "zeros":
            out[at : at + 64] = bytes(64)
        else:
            page = at // PAGE * PAGE
            out[page : page + PAGE] = bytes(PAGE)
        del out[len(data) :]
        if any(out[a : a + n] != data[a : a + n] for a, n in live):
            return kind, bytes(out)


def read_list(saver: DeltaStoreSaver, config: Any) -> list[Any]:
    return list(saver.list(config))


Answers = dict[tuple[str, ...], str]


def ask(path: Path) -> tuple[Answers, list[str]]:
    """Read everything in a store; return the answers by question, and the errors."""
    answers: Answers = {}
    errors: list[str] = []

    def note(question: tuple[str, ...], read: Any) -> None:
        try:
            answers[question] = repr(read())
        except DeltaStoreError as error:
            errors.append(f"{type(error).__name__}: {error}")

    with DeltaStoreSaver(path, read_only=True) as saver:
        note(("open",), lambda: saver.store.stat().entries)
        if errors:
            return answers, errors  # every question would be answered by the same
        for thread, namespace, ids in STREAMS:
            config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": namespace}}
            note(("list", thread, namespace), partial(read_list, saver, config))
            note(("newest", thread, namespace), partial(saver.get_tuple, config))
            for one in ids:
                at: Any = {"configurable": {**config["configurable"], "checkpoint_id": one}}
                note(("get", thread, namespace, one), partial(saver.get_tuple, at))
                history = partial(saver.get_delta_channel_history, config=at, channels=["log"])
                note(("history", thread, namespace, one), history)
    return answers, errors


STREAMS: list[tuple[str, str, list[str]]] = []  # what `ask` asks for; filled by who makes the store
