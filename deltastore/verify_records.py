"""Level one of a check: each record by itself, its key's shape, checksum, kind and decoding.

One scan over everything, no look-ups; nothing is rebuilt. What records say of one another is level
two (`verify_references`).
"""

from __future__ import annotations

from typing import Final, NoReturn

from deltastore.errors import CorruptionError
from deltastore.format import entries, frame, keys, layout
from deltastore.format import header as header_format
from deltastore.format import value as value_format
from deltastore.format import writes as writes_format
from deltastore.format.clear import parent_of
from deltastore.ids import id_from_cid
from deltastore.types import Cipher

_SECRET_BYTES: Final = 32
_KINDS: Final = {
    layout.TAG_STORE: layout.KIND_STORE,
    layout.TAG_THREAD: layout.KIND_THREAD,
    layout.TAG_NAMESPACE: layout.KIND_NAME,
    layout.TAG_NAMES: layout.KIND_NAME,
    layout.TAG_ACTIVITY: layout.KIND_MARK,
    layout.TAG_SECRET: layout.KIND_SECRET,
    layout.TAG_LATE: layout.KIND_MARK,
    layout.TAG_RUN: layout.KIND_MARK,
    layout.TAG_THREAD_RUNS: layout.KIND_MARK,
    layout.TAG_LEASE: layout.KIND_LEASE,
}
# Bytes of a key without a cid at its end; and with one, where that begins.
_LENGTHS: Final = {
    layout.TAG_NAMES: (5, 9),
    layout.TAG_ACTIVITY: (9,),
    layout.TAG_SECRET: (7,),
    layout.TAG_LATE: (13,),
    layout.TAG_RECLAIM: (5,),
    layout.TAG_RUN: (13,),
    layout.TAG_WATCH: (5,),
    layout.TAG_THREAD_RUNS: (13,),
}
_CID_AT: Final = {layout.TAG_LATE: 13, layout.TAG_RECLAIM: 9, layout.TAG_WATCH: 9}
_TEXT_AT: Final = {layout.TAG_THREAD: 1, layout.TAG_NAMESPACE: 5, layout.TAG_LEASE: 1}
_OWN_NAMES: Final = (b"store", b"threads", b"leases")


def kind_at(key: bytes) -> int | None:
    """Return the kind of record that belongs under a key; None where nothing is looked for.

    Raises:
        CorruptionError: The key has a keyspace's first byte and not its shape.
    """
    tag = key[0] if key else -1
    if tag == layout.TAG_LOG:
        place = keys.split(key)
        id_from_cid(place.cid)
        return place.kind
    if tag == layout.TAG_STORE:
        return layout.KIND_STORE if key[1:] in _OWN_NAMES else None
    if tag in _TEXT_AT:
        _check_text(key, _TEXT_AT[tag])
        return _KINDS[tag]
    if tag not in _LENGTHS:
        return None
    has_cid = len(key) not in _LENGTHS[tag]
    if has_cid:
        at = _CID_AT.get(tag, len(key))
        if len(key) <= at:
            _refuse(key)
        id_from_cid(key[at:])
    if tag == layout.TAG_RECLAIM:
        return layout.KIND_DROPPED if has_cid else layout.KIND_MARK
    if tag == layout.TAG_WATCH:
        return layout.KIND_MARK if has_cid else layout.KIND_WATCH
    return _KINDS[tag]


def _check_text(key: bytes, at: int) -> None:
    size = len(key) - at - 1
    form = key[at] if size >= 0 else -1
    if not (form == 0 and size <= keys.TEXT_BYTES_MAX) and not (
        form == 1 and size == keys.TEXT_BYTES_MAX + 16
    ):
        _refuse(key)


def _refuse(key: bytes) -> NoReturn:
    raise CorruptionError("key has not the shape of its keyspace", record=key.hex())


def check_record(key: bytes, record: bytes, cipher: Cipher | None) -> None:
    """Check one record of any keyspace.

    Raises:
        CorruptionError: It is not what was stored under the key.
        DecryptionError: Its checksum is right; the cipher does not open it.

    Cost: a checksum and decoding; no look-up.
    """
    frame.check(key, record)
    kind = kind_at(key)
    if kind is None:
        return
    try:
        found = frame.unseal(key, record, kind, cipher)
        _decode(key, found)
    except CorruptionError as error:
        error.record = error.record or key.hex()
        raise


def _decode(key: bytes, record: frame.Record) -> None:
    kind, clear, payload = record
    if kind in (layout.KIND_HEADER, layout.KIND_ANCHOR):
        told = parent_of(clear)
        if not told.is_difference and not told.is_lost:
            header_format.decode(clear, payload, keys.split(key).cid, None)
    elif kind == layout.KIND_STORE:
        (entries.decode_store if key.endswith(b"store") else entries.decode_number)(payload)
    elif kind == layout.KIND_NAME and key[0] == layout.TAG_NAMESPACE:
        entries.decode_named_number(payload)
    elif kind == layout.KIND_SECRET and len(payload) != _SECRET_BYTES:
        raise CorruptionError(f"secret of {len(payload)} bytes; it has {_SECRET_BYTES}")
    elif kind == layout.KIND_MARK and payload:
        raise CorruptionError(f"mark with a payload of {len(payload)} bytes")
    elif kind in _DECODERS:
        _DECODERS[kind](payload)


_DECODERS: Final = {
    layout.KIND_VALUE: value_format.decode,
    layout.KIND_WRITES: writes_format.decode,
    layout.KIND_FOLDED: writes_format.decode_folded,
    layout.KIND_THREAD: entries.decode_thread,
    layout.KIND_NAME: entries.decode_name,
    layout.KIND_DROPPED: entries.decode_dropped,
    layout.KIND_WATCH: entries.decode_watch,
    layout.KIND_LEASE: entries.decode_lease,
}
