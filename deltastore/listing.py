"""List checkpoints and threads, newest first, in pages; no value is read here.

A *lister* remembers where it is between pages by cids alone, so that it holds neither a lock nor a
view while its caller does something else. What is stored meanwhile with a greater id is not listed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, NamedTuple, TypeVar

from deltastore import directory
from deltastore.decoded import HeaderEntry
from deltastore.directory import Stream
from deltastore.engine.api import Transaction
from deltastore.errors import InvalidArgumentError
from deltastore.format.header import Header
from deltastore.format.keys import MINUTES_MAX
from deltastore.ids import (
    FORM_TEXT,
    FORM_ULID,
    bound_from_id,
    cid_from_id,
    cid_time_ms,
    id_from_cid,
)
from deltastore.log import StreamReader

_Key = tuple[int, int, str]  # minus the minute, minus the time in it, thread id: ascending
OpenReader = Callable[[Transaction, Stream], StreamReader]

T = TypeVar("T")
_ROWS_PAGE_MAX: Final = 16
_THREADS_PAGE: Final = 64
_MINUTE_MS: Final = 60_000
_SKIP_PAGE: Final = 256
_CURSOR: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,20}):(.*)", re.DOTALL)
_FORMS: Final = (FORM_ULID, FORM_TEXT)


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """A thread without its values.

    Attributes:
        thread_id: Its id.
        checkpoint_ns, checkpoint_id: Its newest checkpoint by time.
        active_ms: Unix time of that checkpoint in milliseconds, from its id; of the last activity
            to the minute where the id holds no time.
        namespaces: Namespaces ever used.
    """

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    active_ms: int
    namespaces: int


@dataclass(frozen=True, slots=True)
class ThreadPage:
    """A page of threads; `cursor` asks for the next one, None after the last."""

    threads: list[ThreadInfo]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint without its values. `header` is shared and must not be changed."""

    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    header: Header


class Row(NamedTuple):
    """A listed checkpoint and the reader it came through."""

    reader: StreamReader
    cid: bytes
    checkpoint_id: str
    entry: HeaderEntry


@dataclass(slots=True)
class _Cursor:
    stream: Stream
    form: int
    below: bytes | None
    ended: bool = False


@dataclass(slots=True)
class Lister:
    """Lists one thread's checkpoints by id, greatest first, over one namespace or all.

    Attributes:
        checkpoint_ns: None for every namespace.
        before: Only ids below this one, as text; None for no bound.
        only: Only the checkpoints with this id; None for any.
    """

    thread_id: str
    checkpoint_ns: str | None
    before: str | None
    only: str | None
    _cursors: list[_Cursor] | None = field(default=None, init=False)

    def page(self, txn: Transaction, open_reader: OpenReader, count: int) -> list[Row]:
        """Return the next `count` rows, fewer only at the end."""
        if self.only is not None:
            return self._one(txn, open_reader, self.only)
        if self._cursors is None:
            self._cursors = self._begin(txn, open_reader)
        candidates: list[tuple[str, _Cursor, bytes, StreamReader]] = []
        for cursor in self._cursors:
            if cursor.ended:
                continue
            reader = open_reader(txn, cursor.stream)
            page = reader.page(cursor.form, cursor.below, count)
            candidates += [(id_from_cid(cid), cursor, cid, reader) for cid in page]
        candidates.sort(key=lambda one: one[0], reverse=True)
        rows = []
        for checkpoint_id, cursor, cid, reader in candidates[:count]:
            cursor.below = cid
            entry = reader.entry(cid)
            assert entry is not None  # the view is one state
            rows.append(Row(reader, cid, checkpoint_id, entry))
        if len(candidates) < count:
            for cursor in self._cursors:
                cursor.ended = True
        return rows

    def _one(self, txn: Transaction, open_reader: OpenReader, checkpoint_id: str) -> list[Row]:
        """Return all rows at once: one id, in the namespaces that hold it."""
        if self._cursors is not None or (self.before is not None and checkpoint_id >= self.before):
            return []
        self._cursors = []
        cid = cid_from_id(checkpoint_id)
        rows = []
        for stream in self._streams(txn):
            reader = open_reader(txn, stream)
            entry = reader.entry(cid)
            if entry is None:
                reader.check_absent(cid)
            elif not entry.is_anchor:
                rows.append(Row(reader, cid, checkpoint_id, entry))
        return rows

    def _streams(self, txn: Transaction) -> list[Stream]:
        if self.checkpoint_ns is None:
            return directory.streams(txn, self.thread_id)
        one = directory.find_stream(txn, self.thread_id, self.checkpoint_ns)
        return [] if one is None else [one]

    def _begin(self, txn: Transaction, open_reader: OpenReader) -> list[_Cursor]:
        streams = self._streams(txn)
        cursors = [_Cursor(stream, form, None) for stream in streams for form in _FORMS]
        if self.before is not None:
            for cursor in cursors:
                cursor.below = bound_from_id(self.before, cursor.form)
                if cursor.below is None:
                    self._skip(open_reader(txn, cursor.stream), cursor, self.before)
        return cursors

    def _skip(self, reader: StreamReader, cursor: _Cursor, before: str) -> None:
        """Move a cursor past the ids that are not below `before`."""
        while page := reader.page(cursor.form, cursor.below, _SKIP_PAGE):
            for cid in page:
                if id_from_cid(cid) < before:
                    return
                cursor.below = cid


def rows(
    view: Callable[[], AbstractContextManager[Transaction]],
    open_reader: OpenReader,
    lister: Lister,
    matches: Callable[[Header], bool],
    read: Callable[[Row], T],
) -> Iterator[T]:
    """Yield what `read` makes of each row that matches, in growing pages; holds no view between.

    The first page is one row: LangGraph often takes one and drops the iterator.
    """
    count, full = 1, True
    while full:
        with view() as txn:
            page = lister.page(txn, open_reader, count)
            found = [read(row) for row in page if matches(row.entry.header)]
        full = len(page) == count
        count = min(2 * count, _ROWS_PAGE_MAX)
        yield from found


def info(row: Row) -> CheckpointInfo:
    """Return what a row tells without values."""
    parent = row.entry.header.parent
    return CheckpointInfo(
        row.reader.stream.checkpoint_ns,
        row.checkpoint_id,
        None if parent is None else id_from_cid(parent),
        row.entry.header,
    )


def threads_page(
    txn: Transaction, open_reader: OpenReader, prefix: str, limit: int, cursor: str | None
) -> ThreadPage:
    """Return up to `limit` threads whose id begins with `prefix`, newest activity first.

    Threads active in one minute are read and sorted together, so a page may cost as much as the
    busiest minute. The cursor names the last thread given and its time.

    Raises:
        InvalidArgumentError: The cursor is none that a page gave.
    """
    bound = _parse_cursor(cursor)
    found: list[tuple[_Key, ThreadInfo]] = []
    at = b"" if bound is None else directory.before_minute(-bound[0])
    while True:
        page = directory.scan_active(txn, at, _THREADS_PAGE)
        if not page:
            break
        at = page[-1][0]
        # A minute that the page may have cut in two is read to its end.
        last = page[-1][1]
        while rest := directory.scan_active(txn, at, _THREADS_PAGE):
            same = [one for one in rest if one[1] == last]
            page += same
            if same:
                at = same[-1][0]
            if len(same) < len(rest):
                break
        for _, minute, number in page:
            one = _thread_info(txn, open_reader, number, minute, prefix)
            if one is None:
                continue
            key = (-minute, -one.active_ms, one.thread_id)
            if bound is None or key > bound:
                found.append((key, one))
        if len(found) >= limit + 1:
            break
    found.sort(key=itemgetter(0))
    taken = found[:limit]
    following = None
    if len(found) > limit and taken:
        minute, active_ms, thread_id = taken[-1][0]
        following = f"{-minute}:{-active_ms}:{thread_id}"
    return ThreadPage([one for _, one in taken], following)


def _parse_cursor(cursor: str | None) -> _Key | None:
    if cursor is None:
        return None
    parts = _CURSOR.fullmatch(cursor)
    if parts is None or int(parts[1]) > MINUTES_MAX:
        raise InvalidArgumentError(
            f"cursor {cursor[:60]!r} is none that a page of threads gave; pass page.cursor as it is"
        )
    return -int(parts[1]), -int(parts[2]), parts[3]


def _thread_info(
    txn: Transaction, open_reader: OpenReader, number: int, minute: int, prefix: str
) -> ThreadInfo | None:
    thread_id = directory.thread_id_of(txn, number)
    if not thread_id.startswith(prefix):
        return None
    best: tuple[int, str, str] | None = None
    streams = directory.streams(txn, thread_id)
    for stream in streams:
        cid = open_reader(txn, stream).newest()
        if cid is None:
            continue
        ms = cid_time_ms(cid)
        one = (minute * _MINUTE_MS if ms is None else ms, stream.checkpoint_ns, id_from_cid(cid))
        best = one if best is None else max(best, one, key=lambda item: item[0])
    if best is None:
        return None
    return ThreadInfo(thread_id, best[1], best[2], best[0], len(streams))
