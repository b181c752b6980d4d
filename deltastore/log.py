"""The log: reading and writing the records of one stream inside one transaction.

A *stream reader* resolves cids to headers, values and writes; what it returns was checked against
its checksum and decoded. Headers are coded against their parents' and decoded ones are kept in a
cache keyed by record key and checksum, so that a changed record is never served stale.

Follows the parent links that decoding needs and no others; decides nothing about what is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deltastore.absence import check_absent, lost
from deltastore.decoded import FOLDED, Caches, HeaderEntry, Link, StoredWrites, weight
from deltastore.directory import Stream
from deltastore.engine.api import Transaction
from deltastore.errors import BrokenChainError, CorruptionError, DecryptionError
from deltastore.format import frame, keys, layout
from deltastore.format import header as header_format
from deltastore.format import value as value_format
from deltastore.format import writes as writes_format
from deltastore.format.header import ClearHeader, Header
from deltastore.format.value import Source, ValueRecord
from deltastore.format.writes import Row, WritesRecord
from deltastore.ids import FORM_TEXT, FORM_ULID, cid_length, id_from_cid
from deltastore.types import Cipher

_CHAIN_MAX: Final = 2 * layout.HEADER_WHOLE_EVERY
_HEADER_WEIGHT: Final = 2_000  # bytes a decoded header costs beside three times its packed ones
_LAST_KEY: Final = b"\xff"
_WRITES_PAGE: Final = 32
_HEADER_SUFFIX: Final = bytes([layout.KIND_HEADER])
_WRITES_KIND: Final = bytes([layout.KIND_WRITES])


@dataclass(slots=True)
class StreamReader:
    """Reads one stream in one transaction.

    Attributes:
        txn: Must be live; the reader ends with it.
        stream: What to read.
        cipher: Opens encrypted records; None where the serializer has none.
        caches: Shared with other readers.
    """

    txn: Transaction
    stream: Stream
    cipher: Cipher | None
    caches: Caches

    def raw_header(self, cid: bytes) -> bytes | None:
        """Return a checkpoint's header record as stored, or None."""
        return self.txn.get(keys.header_key(self.stream.prefix, cid))

    def check_absent(self, cid: bytes) -> None:
        """Raise if a checkpoint that is not found may have been put out of sight by damage."""
        try:
            check_absent(self.txn, keys.header_key(self.stream.prefix, cid))
        except CorruptionError as error:
            raise self.locate(error, cid) from None

    def raw_anchor(self, cid: bytes) -> bytes | None:
        """Return the anchor record at a dropped checkpoint's place as stored, or None."""
        return self.txn.get(keys.anchor_key(self.stream.prefix, cid))

    def link(self, cid: bytes) -> Link | None:
        """Return a checkpoint's or anchor's parent link without decoding the rest, or None."""
        key = keys.header_key(self.stream.prefix, cid)
        record = self.txn.get(key)
        kind = layout.KIND_HEADER
        if record is None:
            key = keys.anchor_key(self.stream.prefix, cid)
            record = self.txn.get(key)
            kind = layout.KIND_ANCHOR
            if record is None:
                return None
        try:
            clear = header_format.parent_of(frame.peek(key, record, kind))
        except CorruptionError as error:
            raise self.locate(error, cid) from None
        return Link(cid, clear, kind == layout.KIND_ANCHOR)

    def entry(self, cid: bytes) -> HeaderEntry | None:
        """Return a decoded header, or the anchor in its place; None if neither is stored.

        Cost: one look-up when it was decoded before, else up to 32.

        Raises:
            CorruptionError: It, or a header it is coded against, is damaged.
        """
        raw = self.raw_header(cid)
        if raw is not None:
            return self.decode(cid, raw)
        raw = self.raw_anchor(cid)
        return None if raw is None else self.decode_anchor(cid, raw)

    def decode_anchor(self, cid: bytes, raw: bytes) -> HeaderEntry:
        """As `entry`, for an anchor's record already read."""
        key = keys.anchor_key(self.stream.prefix, cid)
        cache_key = (key, frame.checksum(raw), id(self.cipher))
        hit = self.caches.headers.get(cache_key)
        if hit is not None:
            return hit[0]
        try:
            record = frame.unseal(key, raw, layout.KIND_ANCHOR, self.cipher)
            if header_format.parent_of(record.clear).is_lost:
                raise lost()
            header = header_format.decode(record.clear, record.payload, cid, None)
        except CorruptionError as error:
            raise self.locate(error, cid) from None
        except DecryptionError as error:
            raise DecryptionError(f"{error} ({self.place(cid)})") from None
        return self._keep(cache_key, header, is_anchor=True)

    def decode(self, cid: bytes, raw: bytes) -> HeaderEntry:
        """As `entry`, for a header's record already read."""
        pending: list[tuple[tuple[bytes, int, int], bytes, frame.Record]] = []
        owner = id(self.cipher)
        at = cid
        try:
            while True:
                key = keys.header_key(self.stream.prefix, at)
                cache_key = (key, frame.checksum(raw), owner)
                hit = self.caches.headers.get(cache_key)
                if hit is not None:
                    entry = hit[0]
                    break
                record = frame.unseal(key, raw, layout.KIND_HEADER, self.cipher)
                clear = header_format.parent_of(record.clear)
                if not clear.is_difference:
                    header = header_format.decode(record.clear, record.payload, at, None)
                    entry = self._keep(cache_key, header)
                    break
                pending.append((cache_key, at, record))
                raw, at = self._base(clear, len(pending))
            for cache_key, at, record in reversed(pending):
                header = header_format.decode(
                    record.clear, record.payload, at, entry.header, base_digest=entry.digest
                )
                entry = self._keep(cache_key, header)
        except CorruptionError as error:
            raise self.locate(error, at) from None
        except DecryptionError as error:
            raise DecryptionError(f"{error} ({self.place(at)})") from None
        return entry

    def _base(self, clear: ClearHeader, chained: int) -> tuple[bytes, bytes]:
        if clear.parent is None or chained > _CHAIN_MAX:
            raise CorruptionError("header is a difference without an end to its chain")
        raw = self.raw_header(clear.parent)
        if raw is None:
            raise BrokenChainError(
                f"header is coded against parent {id_from_cid(clear.parent)}, which is gone"
            )
        return raw, clear.parent

    def keep(self, cid: bytes, record: bytes, header: Header) -> None:
        """Cache a header about to be stored; harmless if it then is not, as its key names it."""
        key = keys.header_key(self.stream.prefix, cid)
        self._keep((key, frame.checksum(record), id(self.cipher)), header)

    def _keep(
        self, cache_key: tuple[bytes, int, int], header: Header, *, is_anchor: bool = False
    ) -> HeaderEntry:
        digest, size = header_format.measure(header)
        entry = HeaderEntry(header, digest, cache_key[1], is_anchor)
        self.caches.headers.put(cache_key, (entry, self.cipher), _HEADER_WEIGHT + 3 * size)
        return entry

    def value(self, cid: bytes, ordinal: int) -> ValueRecord:
        """Return one stored value of a checkpoint, inline ones included.

        Raises:
            BrokenChainError: It is not there, though something refers to it.
            CorruptionError: It is damaged.
        """
        key = keys.value_key(self.stream.prefix, cid, ordinal)
        record = self.txn.get(key)
        try:
            if record is not None:
                payload = frame.unseal(key, record, layout.KIND_VALUE, self.cipher).payload
                return value_format.decode(payload)
            entry = self.entry(cid)
            typed = entry.header.inline.get(ordinal) if entry is not None else None
            if entry is None or typed is None:
                raise BrokenChainError(f"value {ordinal} is referred to, but is gone")
            return ValueRecord(typed.type, entry.header.depth, None, typed.data)
        except CorruptionError as error:
            raise self.locate(error, cid) from None

    def writes(self, cid: bytes) -> list[StoredWrites]:
        """Return the writes of a checkpoint in replay order, one record a task and path.

        Of an anchor: first those of dropped ancestors, oldest first, then its own.
        """
        folded, own = self._stored_writes(cid)
        found = [
            StoredWrites(suffix, part)
            for suffix, record in own
            for part in writes_format.by_path(record)
        ]
        if len(found) > 1:
            found.sort(key=lambda one: (one.record.task_path, one.record.task_id))
        return folded + found

    def own_writes(self, cid: bytes) -> list[StoredWrites]:
        """Return the writes that were stored at a checkpoint as they are stored, one record a task.

        Of an anchor: those of what it stands for. In no order that means anything.
        """
        return self._stored_writes(cid)[1]

    def _stored_writes(self, cid: bytes) -> tuple[list[StoredWrites], list[StoredWrites]]:
        """Return an anchor's folded writes, and the records of writes by task."""
        prefix = self.stream.prefix + cid
        own: list[StoredWrites] = []
        folded: list[StoredWrites] = []
        start, limit, more = prefix + _WRITES_KIND, 2, True
        while more:
            page = self.txn.scan(start, _LAST_KEY, limit=limit)
            more = len(page) == limit
            for key, record in page:
                if not key.startswith(prefix):
                    frame.check(key, record)  # it may be of these writes, under a damaged key
                    more = False
                    break
                kind = keys.split(key).kind
                if kind == layout.KIND_WRITES:
                    writes = self.decode_writes(key, record, cid)
                    own.append(StoredWrites(int.from_bytes(key[-8:], "big"), writes))
                elif kind == layout.KIND_FOLDED:
                    folded += self.decode_folded(key, record, cid)
            start, limit = page[-1][0] + b"\x00" if page else start, _WRITES_PAGE
        return folded, own

    def decode_folded(self, key: bytes, record: bytes, cid: bytes) -> list[StoredWrites]:
        """Decode one record of an anchor's folded writes."""
        try:
            payload = frame.unseal(key, record, layout.KIND_FOLDED, self.cipher).payload
            return [StoredWrites(FOLDED, one) for one in writes_format.decode_folded(payload)]
        except CorruptionError as error:
            raise self.locate(error, cid) from None
        except DecryptionError as error:
            raise DecryptionError(f"{error} ({self.place(cid)})") from None

    def source(self, source: Source) -> Row:
        """Return a stored write that a value is coded against.

        Raises:
            BrokenChainError: It is not there.
        """
        key = keys.writes_key(self.stream.prefix, source.cid, source.suffix)
        record = self.txn.get(key)
        if record is not None:
            for row in self.decode_writes(key, record, source.cid).rows:
                if row.idx == source.idx:
                    return row
        raise self.locate(
            BrokenChainError("a write that a value is coded against is gone"), source.cid
        )

    def decode_writes(self, key: bytes, record: bytes, cid: bytes) -> WritesRecord:
        """Decode one writes record, unless it was decoded before."""
        cache_key = (key, frame.checksum(record), id(self.cipher))
        hit = self.caches.writes.get(cache_key)
        if hit is not None:
            return hit[0]
        try:
            payload = frame.unseal(key, record, layout.KIND_WRITES, self.cipher).payload
            found = writes_format.decode(payload)
            self.caches.writes.put(cache_key, (found, self.cipher), weight(found))
            return found
        except CorruptionError as error:
            raise self.locate(error, cid) from None
        except DecryptionError as error:
            raise DecryptionError(f"{error} ({self.place(cid)})") from None

    def check_keys(self, cid: bytes) -> None:
        """Raise if one of a checkpoint's own keys is none: its record would not be looked for."""
        prefix = self.stream.prefix + cid
        try:
            for key in self.txn.scan_keys(prefix, keys.after(prefix)):
                keys.split(key)
        except CorruptionError as error:
            raise self.locate(error, cid) from None

    def page(self, form: int, below: bytes | None, limit: int) -> list[bytes]:
        """Return up to `limit` stored cids of one form, greatest first, below `below` (excluded).

        Writes whose checkpoint is not stored do not count.
        """
        prefix = self.stream.prefix
        low = prefix + bytes([form])
        high = prefix + (bytes([form + 1]) if below is None else below)
        found: list[bytes] = []
        while len(found) < limit:
            last = self.txn.scan_keys(low, high, reverse=True, limit=1)
            if not last:
                break
            # A checkpoint may have any number of writes: seek past them, do not scan them.
            start = len(prefix)
            cid = last[0][start : start + cid_length(last[0], start)]
            high = prefix + cid
            if last[0] == high + _HEADER_SUFFIX or self.raw_header(cid) is not None:
                found.append(cid)
            else:
                keys.split(last[0])
                self.check_absent(cid)  # early writes, or a header under a damaged key
        if len(found) < limit:
            check_absent(self.txn, low, high)
        return found

    def newest(self) -> bytes | None:
        """Return the cid of the stored checkpoint whose id is the greatest text, or None."""
        ends = [*self.page(FORM_ULID, None, 1), *self.page(FORM_TEXT, None, 1)]
        return max(ends, key=id_from_cid, default=None)

    def is_newest(self, cid: bytes) -> bool:
        """Whether no record of the stream lies beyond `cid`'s own within its form."""
        start = keys.after(self.stream.prefix + cid)
        stop = self.stream.prefix + bytes([cid[0] + 1])
        return not self.txn.scan_keys(start, stop, limit=1)

    def locate(self, error: CorruptionError, cid: bytes | None) -> CorruptionError:
        """Tell an error which stream and checkpoint it is about."""
        checkpoint_id = None if cid is None else id_from_cid(cid)
        return error.locate(self.stream.thread_id, self.stream.checkpoint_ns, checkpoint_id)

    def place(self, cid: bytes | None) -> str:
        """Name the stream and checkpoint for a message."""
        text = f"thread {self.stream.thread_id!r}, namespace {self.stream.checkpoint_ns!r}"
        return text if cid is None else f"{text}, checkpoint {id_from_cid(cid)!r}"


def put_header(reader: StreamReader, cid: bytes, header: Header, base: HeaderEntry | None) -> None:
    """Store a header, as a difference to its parent's where `base` is given.

    `header` is cached and must not be changed afterwards.
    """
    key = keys.header_key(reader.stream.prefix, cid)
    if base is None or header.depth % layout.HEADER_WHOLE_EVERY == 0:
        clear, payload = header_format.encode(header, cid, None)
    else:
        clear, payload = header_format.encode(header, cid, base.header, base_digest=base.digest)
    record = frame.seal(key, layout.KIND_HEADER, clear, payload, reader.cipher)
    reader.txn.put(key, record)
    reader.keep(cid, record, header)


def put_anchor(reader: StreamReader, cid: bytes, header: Header) -> None:
    """Store an anchor; always whole, since it is written again at the next prune."""
    key = keys.anchor_key(reader.stream.prefix, cid)
    clear, payload = header_format.encode(header, cid, None)
    reader.txn.put(key, frame.seal(key, layout.KIND_ANCHOR, clear, payload, reader.cipher))


def put_value(reader: StreamReader, cid: bytes, ordinal: int, record: ValueRecord) -> None:
    """Store a value."""
    key = keys.value_key(reader.stream.prefix, cid, ordinal)
    payload = value_format.encode(record)
    reader.txn.put(key, frame.seal(key, layout.KIND_VALUE, b"", payload, reader.cipher))


def put_writes(reader: StreamReader, key: bytes, record: WritesRecord) -> None:
    """Store one task's writes."""
    payload = writes_format.encode(record)
    sealed = frame.seal(key, layout.KIND_WRITES, b"", payload, reader.cipher)
    reader.txn.put(key, sealed)
    cache_key = (key, frame.checksum(sealed), id(reader.cipher))
    reader.caches.writes.put(cache_key, (record, reader.cipher), weight(record))
