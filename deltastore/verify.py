"""Check a store: every record, then every reference between records. Reads only.

Level 1, records: structure, checksum, decoding. Level 2, references: parents, value pointers, delta
bases and digests, bases of writes, directory numbers. Damage is collected and not raised, so that
one report names all of it. Cost: the whole store is read and every value rebuilt once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from deltastore import directory, tasks, watch
from deltastore.directory import Stream
from deltastore.engine.api import Transaction
from deltastore.errors import CorruptionError, DecryptionError
from deltastore.format import entries, frame, keys, layout
from deltastore.format.entries import Dropped
from deltastore.format.header import Header
from deltastore.log import StreamReader
from deltastore.reclaim import is_listed_thread, stays, waiting_in
from deltastore.reconstruct import whole_rows
from deltastore.values import Values

OpenReader = Callable[[Transaction, Stream], StreamReader]
Progress = Callable[[int], None]

_PAGE: Final = 1_000
_RETIRED: Final = -1  # stands for every namespace of a thread being reclaimed


@dataclass(slots=True)
class Report:
    """What a check found.

    Attributes:
        records: Records of the log read.
        checkpoints: Checkpoints among them.
        damage: One error for each thing that is not as it was written; empty for a sound store.
        undecodable: Records that only another cipher opens; they are not damage.
    """

    records: int = 0
    checkpoints: int = 0
    damage: list[CorruptionError] = field(default_factory=list)
    undecodable: int = 0


def verify_store(
    txn: Transaction,
    open_reader: OpenReader,
    values: Values,
    progress: Progress = lambda _: None,
) -> Report:
    """Check everything one view shows; `progress` is called with the records read so far."""
    report = Report()
    known: dict[tuple[int, int], Stream] = {}
    _check_directory(txn, report, known)
    waiting = waiting_in(txn)
    start = bytes([layout.TAG_LOG])
    stop = keys.after(start)
    while page := txn.scan(start, stop, limit=_PAGE):
        for key, record in page:
            report.records += 1
            if waiting and _is_waiting(waiting, key):
                _guard(report, partial(frame.check, key, record))
                continue
            check = partial(_check, txn, open_reader, values, report, known, key, record)
            _guard(report, check)
        start = page[-1][0] + b"\x00"
        progress(report.records)
    return report


def _is_waiting(waiting: Mapping[tuple[int, int, bytes], Dropped], key: bytes) -> bool:
    """Whether a record is about to be deleted; what it refers to may be gone already."""
    try:
        place = keys.split(key)
    except CorruptionError:
        return False  # it is told of where it is checked
    one = waiting.get((place.thread, place.namespace, place.cid))
    if one is None or place.kind == layout.KIND_HEADER:
        return False
    return not stays(one, place)


def _guard(report: Report, check: Callable[[], None]) -> None:
    try:
        check()
    except CorruptionError as error:
        report.damage.append(error)
    except DecryptionError:
        report.undecodable += 1


def _check_directory(
    txn: Transaction, report: Report, known: dict[tuple[int, int], Stream]
) -> None:
    waiting = txn.scan_keys(bytes([layout.TAG_RECLAIM]), bytes([layout.TAG_RECLAIM + 1]))
    retired = {keys.number_at(key, 1) for key in waiting if is_listed_thread(key)}
    _guard(report, partial(_check_store, txn))
    start, stop = b"\0", bytes([layout.TAG_LOG])
    while page := txn.scan(start, stop, limit=_PAGE):
        for key, record in page:
            _guard(report, partial(frame.check, key, record))
        start = page[-1][0] + b"\x00"
    start, stop = bytes([layout.TAG_THREAD]), bytes([layout.TAG_NAMESPACE])
    while page := txn.scan(start, stop, limit=_PAGE):
        for key, record in page:
            _guard(report, partial(_check_thread, txn, key, record, retired, known))
        start = page[-1][0] + b"\x00"
    # A copy that is being made has a number, and no name yet.
    unnamed = [n for n in watch.watched(txn) if directory.find_thread_id(txn, n) is None]
    for number in (*retired, *unnamed):
        known[number, _RETIRED] = Stream("", "", number, _RETIRED, b"")


def _check_store(txn: Transaction) -> None:
    everything = txn.scan_keys(b"\0", bytes([layout.TAG_LOG + 1]), limit=1)
    if directory.store_identity(txn) is None and everything:
        raise CorruptionError("the store's own record is gone")
    given = directory.threads_given(txn)
    start = bytes([layout.TAG_NAMES])
    last = txn.scan_keys(start, keys.after(start), reverse=True, limit=1)
    if last and keys.number_at(last[0], 1) > given:
        raise CorruptionError(f"thread numbers are in use beyond {given}, the last one given")


def _check_thread(
    txn: Transaction,
    key: bytes,
    record: bytes,
    retired: set[int],
    known: dict[tuple[int, int], Stream],
) -> None:
    entry = entries.decode_thread(frame.unseal(key, record, layout.KIND_THREAD).payload)
    thread_id = entry.thread_id
    if key != keys.thread_key(thread_id.encode()):
        raise CorruptionError("thread entry under another id's key", record=key.hex())
    if entry.number == 0:
        return
    if entry.number in retired:
        raise CorruptionError("thread has a number that is being reclaimed", thread_id=thread_id)
    if directory.thread_id_of(txn, entry.number) != thread_id:
        raise CorruptionError(f"number {entry.number} names another", thread_id=thread_id)
    if entry.minute and txn.get(keys.activity_key(entry.minute, entry.number)) is None:
        raise CorruptionError("thread is missing from the index of activity", thread_id=thread_id)
    for stream in directory.streams(txn, thread_id):
        known[stream.thread, stream.namespace] = stream
        if directory.find_stream(txn, thread_id, stream.checkpoint_ns) != stream:
            raise CorruptionError(
                "namespace and its number disagree",
                thread_id=thread_id,
                checkpoint_ns=stream.checkpoint_ns,
            )


def _check(
    txn: Transaction,
    open_reader: OpenReader,
    values: Values,
    report: Report,
    known: dict[tuple[int, int], Stream],
    key: bytes,
    record: bytes,
) -> None:
    place = keys.split(key)
    if (place.thread, _RETIRED) in known:
        return  # waits to be reclaimed
    stream = known.get((place.thread, place.namespace))
    if stream is None:
        raise CorruptionError(
            f"no thread has number {place.thread} and namespace {place.namespace}",
            record=key.hex(),
        )
    reader = open_reader(txn, stream)
    if place.kind == layout.KIND_HEADER:
        report.checkpoints += 1
        _check_header(reader, values, place.cid, record)
    elif place.kind == layout.KIND_ANCHOR:
        _check_anchor(reader, values, place.cid, record)
    elif place.kind == layout.KIND_VALUE:
        values.rebuild(reader, place.cid, int.from_bytes(place.suffix, "big"))
    elif place.kind == layout.KIND_FOLDED:
        reader.decode_folded(key, record, place.cid)
        if reader.raw_anchor(place.cid) is None:
            error = CorruptionError("folded writes without an anchor", record=key.hex())
            raise reader.locate(error, place.cid)
    else:
        found = reader.decode_writes(key, record, place.cid)
        if tasks.find_task(reader, place.cid, found.task_id, make_secret=False).key != key:
            error = CorruptionError(f"task {found.task_id!r} has two records", record=key.hex())
            raise reader.locate(error, place.cid)
        if any(row.base is not None for row in found.rows):
            whole_rows(reader, values, place.cid, found)


def _check_anchor(reader: StreamReader, values: Values, cid: bytes, record: bytes) -> None:
    header = reader.decode_anchor(cid, record).header
    if reader.raw_header(cid) is not None:
        raise reader.locate(CorruptionError("an anchor beside what it stands for"), cid)
    _check_references(reader, values, cid, header)


def _check_header(reader: StreamReader, values: Values, cid: bytes, record: bytes) -> None:
    header = reader.decode(cid, record).header
    for channel in header.versions:
        if channel not in header.slots:
            raise reader.locate(CorruptionError(f"channel {channel!r} has no slot"), cid)
    _check_references(reader, values, cid, header)


def _check_references(reader: StreamReader, values: Values, cid: bytes, header: Header) -> None:
    if header.parent is not None and header.parent_stored and reader.link(header.parent) is None:
        raise reader.locate(CorruptionError("its parent was stored and is gone"), cid)
    for slot in header.slots.values():
        if slot.value is not None:
            values.load(reader, slot.value)
