"""What records of the log decode to, and the caches of it that readers share."""

from __future__ import annotations

from typing import Final, NamedTuple

from deltastore.cache import WeightedCache
from deltastore.format.header import ClearHeader, Header
from deltastore.format.writes import WritesRecord
from deltastore.types import Cipher

FOLDED: Final = -1
_WRITES_WEIGHT: Final = 500  # bytes a decoded record costs beside its data


class HeaderEntry(NamedTuple):
    """A decoded header or anchor, the digest children are coded against, the record's checksum."""

    header: Header
    digest: int
    checksum: int
    is_anchor: bool = False


class Link(NamedTuple):
    """A checkpoint, anchor or gap: its cid and what its header tells without being decoded."""

    cid: bytes
    clear: ClearHeader
    is_anchor: bool


class Caches:
    """Decoded records, by key and checksum, so that a changed record is never served stale.

    The cipher is kept in an entry so that its id, which is in the key, is not given to another one
    while the entry lives.
    """

    __slots__ = ("headers", "writes")

    def __init__(self, headers_bytes: int, writes_bytes: int) -> None:
        self.headers = WeightedCache[tuple[HeaderEntry, Cipher | None]](headers_bytes)
        self.writes = WeightedCache[tuple[WritesRecord, Cipher | None]](writes_bytes)


class StoredWrites(NamedTuple):
    """One task's writes and the suffix of their key, FOLDED for those of a dropped ancestor."""

    suffix: int
    record: WritesRecord


def weight(record: WritesRecord) -> int:
    """Return about how many bytes of memory a decoded record takes."""
    return _WRITES_WEIGHT + sum(len(row.data) for row in record.rows)
