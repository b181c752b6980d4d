"""Walk a checkpoint's ancestors, and keep what walks rely on true.

A walk follows parent links, nearest ancestor first, until each channel asked for has met its
*seed*: the nearest ancestor that shows a value. Headers carry *hints*: the nearest ancestor that
holds writes of a channel, so that a rarely written one costs a look-up and not a walk. Hints may be
overtaken:

- writes that arrive after a child was stored (*late*) leave a mark with the checkpoint's depth, and
  a walk takes no short cut across a marked depth;
- a checkpoint stored again, or after its child, marks the whole stream *unhinted*.

Which checkpoint is an ancestor is decided here and nowhere else. Values and writes are not decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from deltastore import directory
from deltastore.absence import check_absent, lost
from deltastore.decoded import Link
from deltastore.errors import BrokenChainError
from deltastore.format import clear, frame, keys, layout
from deltastore.format.header import ClearHeader, Header
from deltastore.ids import id_from_cid
from deltastore.log import StreamReader

_IDLE_STEPS: Final = 8  # steps without a write before a header is decoded for its hints

Collect = Callable[[bytes, set[str]], bool]


def is_unhinted(reader: StreamReader) -> bool:
    """Whether no hint of the stream may be relied on."""
    return reader.txn.get(_mark_key(reader, keys.DEPTH_UNHINTED, b"")) is not None


def marked_below(reader: StreamReader, depth: int) -> int | None:
    """Return the greatest depth below `depth` with writes that hints may not know, or None.

    Cost: one look-up, and the checks that what is not there was not put out of sight.
    """
    low, high = _mark_key(reader, 0, b""), _mark_key(reader, depth, b"")
    found = reader.txn.scan(low, high, reverse=True, limit=1)
    check_absent(reader.txn, low, high)
    for key, record in found:
        frame.check(key, record)
        return keys.number_at(key, 9)
    return None


def late(reader: StreamReader) -> set[bytes]:
    """Return the cids of the checkpoints that may hold writes their descendants do not know."""
    low, high = _mark_key(reader, 0, b""), _mark_key(reader, keys.DEPTH_MAX + 1, b"")
    return {key[13:] for key in reader.txn.scan_keys(low, high)}


def _mark_key(reader: StreamReader, depth: int, cid: bytes) -> bytes:
    return keys.late_key(reader.stream.thread, reader.stream.namespace, depth, cid)


def mark_late(reader: StreamReader, depth: int, cid: bytes) -> None:
    """Note that a checkpoint may hold writes its descendants' hints do not know."""
    directory.put_mark(reader.txn, _mark_key(reader, depth, cid))


def mark_unhinted(reader: StreamReader) -> None:
    """Note that no hint of the stream may be relied on."""
    mark_late(reader, keys.DEPTH_UNHINTED, b"")


def mark_crossed(reader: StreamReader) -> None:
    """Note that a checkpoint of the stream refers to values of one that is no ancestor of it."""
    mark_late(reader, keys.DEPTH_CROSSED, b"")


def is_crossed(reader: StreamReader) -> bool:
    """Whether a checkpoint may refer to values of one that is no ancestor of it."""
    return reader.txn.get(_mark_key(reader, keys.DEPTH_CROSSED, b"")) is not None


def mark_orphan(reader: StreamReader, parent: bytes) -> None:
    """Note that a child of an absent checkpoint was stored."""
    mark_late(reader, keys.DEPTH_ORPHANED, parent)


def has_orphans(reader: StreamReader, cid: bytes) -> bool:
    """Whether a child of `cid` was stored while `cid` was absent."""
    return reader.txn.get(_mark_key(reader, keys.DEPTH_ORPHANED, cid)) is not None


def put_gap(reader: StreamReader, cid: bytes, depth: int) -> None:
    """Store a gap: the place of a checkpoint that is lost, on which others stand."""
    key = keys.anchor_key(reader.stream.prefix, cid)
    record = frame.seal(key, layout.KIND_ANCHOR, clear.gap(depth), b"")
    reader.txn.put(key, record)


def walk(
    reader: StreamReader,
    target: bytes,
    first: Link,
    channels: Iterable[str],
    collect: Collect,
    until: Link | None = None,
) -> dict[str, bytes]:
    """Visit the ancestors that a channel's history needs; return the seeds found.

    Args:
        target: Whose history is asked; need not be stored. It ends a walk that comes back to it.
        first: Its parent, the nearest ancestor.
        channels: What to look for.
        collect: Called with an ancestor's cid and the channels still sought, nearest ancestor
            first, the seed's checkpoint included; returns whether it found writes of one of them.
        until: An ancestor that ends the walk before it is visited; None walks to the root.

    Returns:
        For each channel that has one, the cid of its seed's checkpoint.

    Raises:
        BrokenChainError: An ancestor that was stored is gone, or it comes to a gap.

    Cost: two look-ups per checkpoint passed; stretches without writes are jumped over.
    """
    kind = _Unhinted if is_unhinted(reader) else _Hinted
    return kind(reader, first, set(channels), collect, until).run(target)


def parent_link(reader: StreamReader, cid: bytes, own: ClearHeader | Header) -> Link | None:
    """Return a checkpoint's parent, or anchor or gap in its place; None where its history ends.

    It ends at a root, and at a checkpoint whose parent never was stored.

    Raises:
        BrokenChainError: The parent was stored and is gone.
    """
    if own.parent is None:
        return None
    link = reader.link(own.parent)
    if link is not None:
        return link
    if own.parent_stored:
        error = BrokenChainError(
            f"its parent {id_from_cid(own.parent)!r} was stored and is gone; history from here "
            "cannot be rebuilt"
        )
        raise reader.locate(error, cid)
    reader.check_absent(own.parent)
    return None


@dataclass(slots=True)
class _Walk:
    reader: StreamReader
    at: Link
    sought: set[str]
    collect: Collect
    until: Link | None
    seeds: dict[str, bytes] = field(default_factory=dict)

    def run(self, target: bytes) -> dict[str, bytes]:
        visited = {target}
        following: Link | None = self.at
        while following is not None and following.cid not in visited and self.sought:
            if self._ends(following):
                break
            if following.clear.is_lost:
                raise self.reader.locate(lost(), following.cid)
            visited.add(following.cid)
            self.at = following
            self._visit()
            following = self._next() if self.sought else None
        return self.seeds

    def _ends(self, following: Link) -> bool:
        return self.until is not None and following.cid == self.until.cid

    def _next(self) -> Link | None:
        return parent_link(self.reader, self.at.cid, self.at.clear)

    def _visit(self) -> None:
        raise NotImplementedError

    def _header(self) -> Header:
        entry = self.reader.entry(self.at.cid)
        assert entry is not None  # its link was read in this view
        return entry.header

    def _found(self, channels: Iterable[str]) -> None:
        for channel in channels:
            self.seeds[channel] = self.at.cid
            self.sought.discard(channel)


@dataclass(slots=True)
class _Unhinted(_Walk):
    """Decodes every header on the way."""

    def _visit(self) -> None:
        slots = self._header().slots
        self.collect(self.at.cid, self.sought)
        self._found([c for c in self.sought if c in slots and slots[c].value is not None])


@dataclass(slots=True)
class _Hinted(_Walk):
    """Reads parent links alone, and jumps by the hints of a header where nothing was found.

    Depths fall along a chain here, so that a jump past `until` is noticed. What an anchor, or a
    folded checkpoint, says of seeds overrules hints of headers below it, which may name checkpoints
    that are gone, or lie beyond. Both are marked, so that no jump passes them.
    """

    seed_of: dict[str, bytes] | None = None
    idle: int = 0
    jumped: bool = False

    def _ends(self, following: Link) -> bool:
        return self.until is not None and following.clear.depth <= self.until.clear.depth

    def _visit(self) -> None:
        if self.seed_of is None or self.at.is_anchor or self.at.clear.is_folded:
            self.seed_of = self._seeds()
            self.idle = _IDLE_STEPS - 1  # a header is decoded: use its hints if it holds no write
        cid = self.at.cid
        found = self.collect(cid, self.sought)
        if not self.jumped:
            self.idle = 0 if found else self.idle + 1
        self._found([c for c in self.sought if self.seed_of.get(c) == cid])

    def _seeds(self) -> dict[str, bytes]:
        """The first ancestor's header says where every channel's seed is."""
        found = {}
        slots = self._header().slots
        for channel in self.sought:
            slot = slots.get(channel)
            if slot is not None:
                seed = self.at.cid if slot.value is not None else slot.seed
                if seed is not None:
                    found[channel] = seed
        return found

    def _next(self) -> Link | None:
        self.jumped = False
        own = self.at.clear
        if self.idle < _IDLE_STEPS or not own.parent_stored:
            return _Walk._next(self)
        floor = marked_below(self.reader, own.depth)
        stop = self._nearest_stop(self._header(), floor)
        if floor is not None and (stop is None or stop.clear.depth < floor):
            self.idle = _IDLE_STEPS - (own.depth - floor)
            return _Walk._next(self)
        self.jumped = stop is not None and stop.cid != own.parent
        return stop

    def _nearest_stop(self, header: Header, floor: int | None) -> Link | None:
        """Return the nearest ancestor that matters by this header's hints."""
        assert self.seed_of is not None
        stops: set[bytes] = set()
        for channel in list(self.sought):
            slot = header.slots.get(channel)
            ends = (None if slot is None else slot.writer, self.seed_of.get(channel))
            stops.update(end for end in ends if end is not None)
            if ends == (None, None) and floor is None:
                self.sought.discard(channel)
        nearest = None
        for cid in stops:
            link = self.reader.link(cid)
            if link is None:
                return _Walk._next(self)  # a hint overtaken by a deletion
            if nearest is None or link.clear.depth > nearest.clear.depth:
                nearest = link
        return nearest
