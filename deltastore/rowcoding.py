"""Code writes against values that their checkpoint shows.

LangGraph hands the input of a graph over twice, as the value of a channel and as the write of a
task at the same checkpoint; and a task that returns the whole state writes again what is there. A
write is stored as a delta to such a value where that halves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from deltastore.errors import CorruptionError, DecryptionError
from deltastore.format import delta
from deltastore.format.header import Header, Slot, ValueRef
from deltastore.format.value import ValueRecord, digest
from deltastore.format.writes import Row, RowBase
from deltastore.log import StreamReader
from deltastore.types import Typed
from deltastore.values import AtHand, Loaded, Values, largest_like

_BYTES_MIN: Final = 160
_LARGE_BYTES_MIN: Final = 1_024  # worth a look at other records than the header
_VERY_LARGE_BYTES_MIN: Final = 16_384
_OVERHEAD: Final = 16


def is_worth_it(rows: Iterable[Row]) -> bool:
    """Whether one of some writes is worth a look at the header of its checkpoint."""
    return any(len(row.data) >= _BYTES_MIN for row in rows)


def is_base(typed: Typed, record: ValueRecord | None) -> bool:
    """Whether writes may be coded against a value by `code_on_own`; no record: it lies inline."""
    return len(typed.data) >= _BYTES_MIN and (record is None or record.base is None)


def code_on_own(
    reader: StreamReader, cid: bytes, header: Header, rows: Sequence[Row]
) -> tuple[Row, ...]:
    """Code writes at a checkpoint against the values that it stores itself, and whole."""
    own = _stored_whole(reader, cid, header, are_large=_are_large(rows))
    return tuple(_coded(row, own) for row in rows)


def code_on_shown(
    reader: StreamReader,
    values: Values,
    cid: bytes,
    slots: Mapping[str, Slot],
    rows: Sequence[Row],
) -> tuple[Row, ...]:
    """Code large writes at a checkpoint against any values that it shows and that are at hand.

    For a very large one, also against those it brought: what it costs to rebuild them is less than
    what it costs to store the write.
    """
    if not _are_large(rows):
        return tuple(rows)
    found = values.at_hand_of(reader, slots)
    if any(row.base is None and len(row.data) >= _VERY_LARGE_BYTES_MIN for row in rows):
        known = {one.channel for one in found}
        others = {channel: slot for channel, slot in slots.items() if channel not in known}
        found += _brought(reader, values, cid, others)
    return tuple(_coded(row, found) for row in rows)


def row_data(reader: StreamReader, cid: bytes, header: Header, row: Row) -> bytes | None:
    """Return a write's bytes, to code a value against; None if that makes rebuilding it nest.

    It does not where the write's base is stored whole at its checkpoint. Also None where the base
    cannot be read: what is stored then needs it for nothing.
    """
    if row.base is None:
        return row.data
    for own in _stored_whole(reader, cid, header, are_large=True, only=row.base.channel):
        if own.loaded.digest == row.base.digest:
            return delta.apply(own.loaded.typed.data, [row.data])
    return None


def _are_large(rows: Iterable[Row]) -> bool:
    return any(len(row.data) >= _LARGE_BYTES_MIN for row in rows)


def _brought_refs(cid: bytes, slots: Mapping[str, Slot]) -> list[tuple[str, ValueRef]]:
    refs = ((channel, slot.value) for channel, slot in slots.items())
    return [(channel, ref) for channel, ref in refs if ref is not None and ref.cid == cid]


def _stored_whole(
    reader: StreamReader, cid: bytes, header: Header, *, are_large: bool, only: str | None = None
) -> list[AtHand]:
    """Return the values a checkpoint stores itself and whole; only inline ones if not large."""
    found = []
    for channel, ref in _brought_refs(cid, header.slots):
        if only not in (None, channel):
            continue
        typed: Typed | None = None
        if ref.digest is None:
            typed = header.inline.get(ref.ordinal)
        elif are_large:
            typed = _whole(reader, cid, ref.ordinal)
        if typed is not None:
            own = digest(typed.data) if ref.digest is None else ref.digest
            found.append(AtHand(channel, ref, Loaded(typed, own, 0, len(typed.data), 0)))
    return found


def _brought(
    reader: StreamReader, values: Values, cid: bytes, slots: Mapping[str, Slot]
) -> list[AtHand]:
    """Return the values with records of their own that came with a checkpoint."""
    found = []
    for channel, ref in _brought_refs(cid, slots):
        if ref.digest is None:
            continue
        try:
            found.append(AtHand(channel, ref, values.load(reader, ref)))
        except (CorruptionError, DecryptionError):
            continue  # as in `_whole`
    return found


def _whole(reader: StreamReader, cid: bytes, ordinal: int) -> Typed | None:
    try:
        record = reader.value(cid, ordinal)
    except (CorruptionError, DecryptionError):
        return None  # of another key, or damaged, which it still is for whoever reads it
    return Typed(record.type, record.body) if record.base is None else None


def _coded(row: Row, found: Sequence[AtHand]) -> Row:
    """Return a write as a delta to the largest value it resembles, as it is if that is no half."""
    if row.base is not None or len(row.data) < _BYTES_MIN:
        return row
    base = largest_like(Typed(row.type, row.data), found)
    if base is None:
        return row
    body = delta.diff(base.loaded.typed.data, row.data)
    if len(body) + len(base.channel) + _OVERHEAD > len(row.data) // 2:
        return row
    return row._replace(base=RowBase(base.channel, base.loaded.digest), data=body)
