"""Read what can be read of a damaged data file: every leaf that the newest meta page leads to.

The file is read page by page and never mapped, so no damage ends the process. Only pages that are
in use are looked at: what freed pages hold was deleted or replaced, and is not to come back.

Nothing is judged here but structure: a pair whose bytes are damaged is returned as it is found.
Where pages cannot be read, the range of keys they may have held is told.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from deltastore.engine import lmdb_files as files
from deltastore.engine import lmdb_generations as generations
from deltastore.engine import lmdb_journal as journal
from deltastore.engine.api import KEYS_END, Pair
from deltastore.engine.lmdb_errors import convert
from deltastore.errors import CorruptionError, EngineError

# LMDB 0.9 on a 64-bit machine. A page: number, pad, flags, bounds of the free space (or, of an
# overflow page, how many pages the value takes); then offsets of nodes, which lie from the upper
# bound to the end. A node: three u16 that are a size or a child's page, the key's size, the key.
_PAGE: Final = struct.Struct("=QHHHH")
_COUNT: Final = struct.Struct("=12xI")
_NODE: Final = struct.Struct("=HHHH")
_NUMBER: Final = struct.Struct("=Q")
_OFFSET: Final = struct.Struct("=H")
# A meta page, as in `lmdb_files`, with the main tree: its depth, entries and root.
_META: Final = struct.Struct("=QHHI IIQQ I44x 6xH24xQQ QQ")
_META_FLAG: Final = 0x08
_BRANCH: Final = 0x01
_LEAF: Final = 0x02
_OVERFLOW: Final = 0x04
_BIG: Final = 0x01
_MAGIC: Final = 0xBEEFC0DE
_EMPTY: Final = (1 << 64) - 1
_DEPTH_MAX: Final = 32
_PAGE_SIZES: Final = tuple(1 << bits for bits in range(12, 16))
FIRST_KEY: Final = b"\x00"
Range = tuple[bytes, bytes]


class _Meta(NamedTuple):
    page_bytes: int
    depth: int
    entries: int
    root: int
    last_page: int
    transaction: int


@dataclass(slots=True)
class Salvage:
    """What is left of a store's data file, and what is not.

    Attributes:
        findings: What is wrong with the structure, complete once all pairs were taken.
        lost: Ranges of keys, the first included and the last not, that pages which cannot be read
            may have held; complete once all pairs were taken.
        entries: Pairs there should be; engine's own not counted apart.
    """

    path: Path
    findings: list[str] = field(default_factory=list)
    lost: list[Range] = field(default_factory=list)
    entries: int = 0
    _lock: int | None = None
    _file: int = -1
    _pages: int = 0
    _meta: _Meta | None = None
    _seen: set[int] = field(default_factory=set)

    def __enter__(self) -> Salvage:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for descriptor in (self._file, -1 if self._lock is None else self._lock):
            if descriptor >= 0:
                os.close(descriptor)

    def pairs(self) -> Iterator[Pair]:
        """Yield every pair that is reached, roughly in key order; called once."""
        meta, found = self._meta, 0
        assert meta is not None
        if meta.root != _EMPTY:
            for pair in self._walk(meta.root, FIRST_KEY, KEYS_END, 1):
                found += 1
                if pair[0] < KEYS_END:
                    yield pair
        if found != meta.entries:
            self.findings.append(f"{found} of {meta.entries} records were reached")

    def _page(self, number: int) -> bytes | None:
        """Return a page that may be trusted to be the one asked for, or None."""
        meta = self._meta
        assert meta is not None
        if not 2 <= number < self._pages or number in self._seen:
            self.findings.append(f"page {number} is beyond the file, or is reached twice")
            return None
        self._seen.add(number)
        raw = os.pread(self._file, meta.page_bytes, number * meta.page_bytes)
        if len(raw) < meta.page_bytes or _PAGE.unpack_from(raw)[0] != number:
            self.findings.append(f"page {number} is cut off, overwritten or another's")
            return None
        return raw

    def _walk(self, number: int, low: bytes, high: bytes, depth: int) -> Iterator[Pair]:
        raw = self._page(number) if depth <= _DEPTH_MAX else None
        if raw is None:
            self.lost.append((low, high))
            return
        _, _, flags, lower, upper = _PAGE.unpack_from(raw)
        if flags not in (_BRANCH, _LEAF) or not _PAGE.size <= lower <= upper <= len(raw):
            self.findings.append(f"page {number} is no page of a tree")
            self.lost.append((low, high))
            return
        nodes = list(_nodes(raw, lower, upper, is_leaf=flags == _LEAF))
        used = sum(node.size for node in nodes if node is not None)
        if None in nodes or used != len(raw) - upper:
            self.findings.append(f"page {number} has damaged or missing entries")
            self.lost.append((low, high))
        if flags == _LEAF:
            yield from self._leaf(raw, nodes)
            return
        ends = [node.key if node is not None else None for node in nodes]
        for place, node in enumerate(nodes):
            if node is None:
                continue
            first = low if place == 0 else ends[place]
            last = ends[place + 1] if place + 1 < len(ends) else high
            if first is None or last is None or not low <= first < last <= high:
                first, last = low, high  # a key in the page is damaged
            yield from self._walk(node.child, first, last, depth + 1)

    def _leaf(self, raw: bytes, nodes: list[_Node | None]) -> Iterator[Pair]:
        for node in nodes:
            if node is None or not node.key:
                continue
            if not node.is_big:
                yield node.key, raw[node.data_at : node.data_at + node.data_bytes]
                continue
            yield node.key, self._overflow(_NUMBER.unpack_from(raw, node.data_at)[0], node)

    def _overflow(self, number: int, node: _Node) -> bytes:
        """Return a value that has pages of its own; empty, which is no record, if it is gone."""
        head = self._page(number)
        assert self._meta is not None
        page_bytes = self._meta.page_bytes
        size = _PAGE.size + node.data_bytes
        count = -(-size // page_bytes)
        if (
            head is None
            or _PAGE.unpack_from(head)[2] != _OVERFLOW
            or _COUNT.unpack_from(head)[0] != count
            or number + count > self._pages
        ):
            self.findings.append(f"pages of the value under key {node.key.hex()} are damaged")
            return b""
        self._seen.update(range(number, number + count))
        return os.pread(self._file, size, number * page_bytes)[_PAGE.size :]


class _Node(NamedTuple):
    key: bytes
    child: int
    data_at: int
    data_bytes: int
    is_big: bool
    size: int


def _nodes(raw: bytes, lower: int, upper: int, *, is_leaf: bool) -> Iterator[_Node | None]:
    """Yield the nodes of a page, None for each that does not lie within it."""
    for at in range(_PAGE.size, lower - 1, 2):
        start = _OFFSET.unpack_from(raw, at)[0]
        if not upper <= start <= len(raw) - _NODE.size:
            yield None
            continue
        low, high, flags, key_bytes = _NODE.unpack_from(raw, start)
        key_at = start + _NODE.size
        data_at = key_at + key_bytes
        data_bytes = low | high << 16 if is_leaf else 0
        is_big = is_leaf and flags == _BIG
        stored = _NUMBER.size if is_big else data_bytes
        if data_at + stored > len(raw) or (is_leaf and flags not in (0, _BIG)):
            yield None
            continue
        size = _NODE.size + key_bytes + stored
        key = raw[key_at:data_at]
        child = low | high << 16 | flags << 32
        yield _Node(key, child, data_at, data_bytes, is_big, size + (size & 1))


def open_salvage(path: Path) -> Salvage:
    """Open what is left of the store at a real path; nobody else may have it open.

    Raises:
        CorruptionError: Neither meta page can be read, or no generation has a data file.
        EngineError: A process has the store open, or the file system refuses.
    """
    found = Salvage(path)
    try:
        found._lock, alone = files.take_lock(path, read_only=True)
        if not alone:
            raise EngineError(
                f"{path} is in use; its file can only be read by itself: stop what has it open"
            )
        directory = _find_generation(found)
        while True:
            _open_file(found, directory / files.DATA)
            successor = _successor(found)
            if not successor or not (files.get_directory(path, successor) / files.DATA).exists():
                return found
            # A vacuum was killed before CURRENT named its generation.
            directory = files.get_directory(path, successor)
            os.close(found._file)
    except OSError as error:
        found.__exit__(None, None, None)
        raise convert(error, path, "reading what is left") from error
    except BaseException:
        found.__exit__(None, None, None)
        raise


def _find_generation(found: Salvage) -> Path:
    try:
        directory = files.read_current(found.path)
    except CorruptionError as error:
        found.findings.append(error.message)
        directory = None
    if directory is not None and (directory / files.DATA).exists():
        return directory
    if directory is not None:
        found.findings.append(f"{files.CURRENT} names {directory.name}, which is missing")
    # The lowest one is in use, or names the one that is: a higher one may be unfinished.
    for number in generations.list_numbers(found.path):
        directory = files.get_directory(found.path, number)
        if (directory / files.DATA).exists():
            return directory
    raise CorruptionError(f"{found.path}: no generation has a data file; restore it from a backup")


def _open_file(found: Salvage, file: Path) -> None:
    found._file = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    first = _read_meta(found._file, 0, 0)
    sizes = _PAGE_SIZES if first is None else (first.page_bytes,)
    second = next(
        (one for one in (_read_meta(found._file, size, 1) for size in sizes) if one), None
    )
    metas = [meta for meta in (first, second) if meta is not None]
    if not metas:
        raise CorruptionError(
            f"{file}: both meta pages are damaged, and nothing else tells what is in use; restore "
            "the store from a backup"
        )
    meta = max(metas, key=lambda one: one.transaction)
    numbers = [one.transaction for one in metas]
    if len(metas) == 1 or (any(numbers) and abs(numbers[0] - numbers[-1]) != 1):
        found.findings.append(
            "a meta page is damaged: what the last commit stored may be missing (the one that is "
            f"left is of commit {meta.transaction})"
        )
    size = os.fstat(found._file).st_size
    found._meta = meta
    found._pages = size // meta.page_bytes
    found.entries = meta.entries
    if meta.last_page >= found._pages:
        found.findings.append(
            f"the file has {size} bytes, and may have had {(meta.last_page + 1) * meta.page_bytes}"
        )


def _read_meta(file: int, at: int, number: int) -> _Meta | None:
    raw = os.pread(file, _META.size, at)
    if len(raw) < _META.size:
        return None
    meta = _META.unpack(raw)
    page_bytes, depth, entries, root, last_page, transaction = meta[8:]
    is_sound = (
        meta[0] == number
        and meta[2] & _META_FLAG
        and meta[4] == _MAGIC
        and page_bytes in _PAGE_SIZES
        and (not number or at == page_bytes)
        and (transaction & 1 == number or transaction == 0)
        and depth <= _DEPTH_MAX
    )
    return _Meta(page_bytes, depth, entries, root, last_page, transaction) if is_sound else None


def _successor(found: Salvage) -> int:
    """Return the generation that the one in use has been superseded by, 0 for none."""
    meta, findings = found._meta, list(found.findings)
    assert meta is not None
    if meta.root == _EMPTY:
        return 0
    state = dict(_last_pairs(found, meta.root, 1)).get(journal.STATE)
    found.findings[:] = findings  # the walk over everything comes upon the same
    found._seen.clear()
    return journal.get_successor(state)


def _last_pairs(found: Salvage, number: int, depth: int) -> Iterator[Pair]:
    """Yield the pairs of the last leaf, where an engine's own are."""
    raw = found._page(number) if depth <= _DEPTH_MAX else None
    if raw is None:
        return
    _, _, flags, lower, upper = _PAGE.unpack_from(raw)
    if flags not in (_BRANCH, _LEAF) or not _PAGE.size <= lower <= upper <= len(raw):
        return
    nodes = [node for node in _nodes(raw, lower, upper, is_leaf=flags == _LEAF) if node is not None]
    if flags == _LEAF:
        yield from found._leaf(raw, [node for node in nodes if not node.is_big])
    elif nodes:
        yield from _last_pairs(found, nodes[-1].child, depth + 1)
