"""Make the directory of a damaged store agree with itself again, from what is stored twice.

For a repair, on a copy of the store. Names and numbers are stored both ways, so that one record of
a pair gives the other. What was deleted from a thread is stored once, in its entry: where that is
lost, every id up to the newest that is known counts as deleted, so that nothing is put on a parent
that may have been.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from deltastore import ancestry, directory
from deltastore.decoded import Caches
from deltastore.engine.api import Pair, Transaction
from deltastore.findings import REFERENCES, Finding
from deltastore.format import entries, frame, keys, layout
from deltastore.format.entries import DeletedMark, ThreadEntry, with_deleted
from deltastore.ids import FORM_ULID
from deltastore.log import StreamReader
from deltastore.losses import Losses

_PAGE: Final = 1_000
_NUMBER_AT: Final = {
    layout.TAG_NAMESPACE: 1,
    layout.TAG_NAMES: 1,
    layout.TAG_ACTIVITY: 5,
    layout.TAG_SECRET: 1,
    layout.TAG_LATE: 1,
    layout.TAG_RECLAIM: 1,
    layout.TAG_RUN: 9,
    layout.TAG_WATCH: 1,
    layout.TAG_THREAD_RUNS: 1,
    layout.TAG_LOG: 1,
}


@dataclass(slots=True)
class _Directory:
    by_id: dict[str, ThreadEntry] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    namespaces: dict[int, dict[int, str]] = field(default_factory=dict)


def mend_directory(txn: Transaction, losses: Losses, minute: int) -> list[Finding]:
    """Put back names, entries and indexes; return what cannot be told any more.

    Args:
        minute: Unix time / 60, for threads whose last activity is not known.

    Memory: about 500 bytes a thread.
    """
    told: list[Finding] = []
    for key, record in directory.new_identity().items():
        txn.put(key, record)
    _end_watches(txn)
    _end_leases(txn)
    found = _read(txn)
    _agree(txn, found, losses, told)
    for thread_id, entry in found.by_id.items():
        if entry.number:
            found.by_id[thread_id] = _name(txn, found, entry, minute)
    _drop_nameless(txn, found)
    _index_activity(txn, found)
    _index_runs(txn, found)
    _set_counter(txn)
    _distrust_marks(txn, found, losses)
    return told


def _scan(txn: Transaction, tag: int) -> Iterator[Pair]:
    at, stop = bytes([tag]), bytes([tag + 1])
    while page := txn.scan(at, stop, limit=_PAGE):
        yield from page
        at = page[-1][0] + b"\x00"


def _end_watches(txn: Transaction) -> None:
    """End all maintenance: nobody is at work on a copy. A thread copy without a name goes."""
    for key, _ in _scan(txn, layout.TAG_WATCH):
        number = keys.number_at(key, 1)
        if len(key) == 5 and txn.get(keys.thread_name_key(number)) is None:
            directory.put_mark(txn, keys.reclaim_key(number))
        txn.delete(key)


def _end_leases(txn: Transaction) -> None:
    """End all leases: whoever holds one works on the store that is copied."""
    for key, _ in _scan(txn, layout.TAG_LEASE):
        txn.delete(key)


def _read(txn: Transaction) -> _Directory:
    found = _Directory()
    for key, record in _scan(txn, layout.TAG_THREAD):
        entry = entries.decode_thread(frame.unseal(key, record, layout.KIND_THREAD).payload)
        found.by_id[entry.thread_id] = entry
    for key, record in _scan(txn, layout.TAG_NAMES):
        name = entries.decode_name(frame.unseal(key, record, layout.KIND_NAME).payload)
        number = keys.number_at(key, 1)
        if len(key) == 5:
            found.ids[number] = name
        else:
            found.namespaces.setdefault(number, {})[keys.number_at(key, 5)] = name
    for key, record in _scan(txn, layout.TAG_NAMESPACE):
        payload = frame.unseal(key, record, layout.KIND_NAME).payload
        name, namespace = entries.decode_named_number(payload)
        of = found.namespaces.setdefault(keys.number_at(key, 1), {})
        of.setdefault(namespace, name)
    return found


def _agree(txn: Transaction, found: _Directory, losses: Losses, told: list[Finding]) -> None:
    """Make threads and the names of their numbers one to one; what is reclaimed has neither."""
    for number, thread_id in list(found.ids.items()):
        entry = found.by_id.get(thread_id)
        if txn.get(keys.reclaim_key(number)) is not None or (
            entry is not None and entry.number != number
        ):
            txn.delete(keys.thread_name_key(number))
            del found.ids[number]
        elif entry is None:
            found.by_id[thread_id] = _remade(txn, found, number, thread_id)
            told.append(
                Finding(
                    REFERENCES,
                    "the thread's entry was lost: what was deleted from it is not known any more, "
                    "and every id up to its newest counts as deleted",
                    thread_id,
                    kind="thread",
                    key=keys.thread_key(thread_id.encode()).hex(),
                )
            )
    for thread_id, entry in list(found.by_id.items()):
        if entry.number and txn.get(keys.reclaim_key(entry.number)) is not None:
            found.by_id[thread_id] = replace(entry, number=0)
            directory.save_thread(txn, found.by_id[thread_id])
        elif entry.number:
            found.ids[entry.number] = thread_id
    at = keys.thread_key(b"")
    if losses.meet(at, bytes([layout.TAG_THREAD + 1])):
        told.append(
            Finding(
                REFERENCES,
                "records of the directory were lost: deleted threads may not be known as deleted "
                "any more",
            )
        )


def _remade(txn: Transaction, found: _Directory, number: int, thread_id: str) -> ThreadEntry:
    """Return an entry in the place of one that is lost."""
    entry = ThreadEntry(thread_id, number)
    for namespace, name in found.namespaces.get(number, {}).items():
        low = keys.log_prefix(number, namespace) + bytes([FORM_ULID])
        high = keys.log_prefix(number, namespace) + bytes([FORM_ULID + 1])
        last = txn.scan_keys(low, high, reverse=True, limit=1)
        if last:
            mark = DeletedMark(keys.split(last[0]).cid)
            entry = with_deleted(entry, name, mark)
    return entry


def _name(txn: Transaction, found: _Directory, entry: ThreadEntry, minute: int) -> ThreadEntry:
    """Store a thread's entry and names, both ways; return the entry."""
    of = found.namespaces.get(entry.number, {})
    active = [
        0xFFFF_FFFF - keys.number_at(key, 1)
        for key, _ in _scan(txn, layout.TAG_ACTIVITY)
        if not entry.minute and keys.number_at(key, 5) == entry.number
    ]
    entry = replace(
        entry,
        namespaces=max([entry.namespaces, *of]),
        minute=entry.minute or max(active, default=minute),
    )
    directory.name_thread(txn, entry)
    for namespace, name in of.items():
        directory.name_namespace(txn, entry.number, name, namespace)
    return entry


def _drop_nameless(txn: Transaction, found: _Directory) -> None:
    """Delete what is about threads that have no name any more; of their log the caller tells."""
    for tag in (layout.TAG_NAMESPACE, layout.TAG_NAMES, layout.TAG_SECRET, layout.TAG_LATE):
        for key, _ in _scan(txn, tag):
            number = keys.number_at(key, 1)
            if number and number not in found.ids:
                txn.delete(key)


def _index_activity(txn: Transaction, found: _Directory) -> None:
    for key, _ in _scan(txn, layout.TAG_ACTIVITY):
        txn.delete(key)
    for entry in found.by_id.values():
        if entry.number:
            directory.put_mark(txn, keys.activity_key(entry.minute, entry.number))


def _index_runs(txn: Transaction, found: _Directory) -> None:
    """Note each run both ways again, where one is left."""
    pairs = {(keys.number_at(k, 9), k[1:9]) for k, _ in _scan(txn, layout.TAG_RUN)}
    pairs |= {(keys.number_at(k, 1), k[5:13]) for k, _ in _scan(txn, layout.TAG_THREAD_RUNS)}
    for tag in (layout.TAG_RUN, layout.TAG_THREAD_RUNS):
        for key, _ in _scan(txn, tag):
            txn.delete(key)
    for thread, raw in pairs:
        if thread in found.ids:
            run_hash = int.from_bytes(raw, "big")
            directory.put_mark(txn, keys.run_key(run_hash, thread))
            directory.put_mark(txn, keys.thread_run_key(thread, run_hash))


def _set_counter(txn: Transaction) -> None:
    """Let the next thread have a number that no key names."""
    greatest = directory.threads_given(txn)
    for tag, at in _NUMBER_AT.items():
        if tag in (layout.TAG_ACTIVITY, layout.TAG_RUN):  # not sorted by it
            numbers = [keys.number_at(key, at) for key, _ in _scan(txn, tag)]
            greatest = max([greatest, *numbers])
            continue
        last = txn.scan_keys(bytes([tag]), bytes([tag + 1]), reverse=True, limit=1)
        if last:
            greatest = max(greatest, keys.number_at(last[0], at))
    directory.set_threads_given(txn, greatest)


def _distrust_marks(txn: Transaction, found: _Directory, losses: Losses) -> None:
    """Rely on no hint in streams whose marks may be lost."""
    for number, of in found.namespaces.items():
        if number not in found.ids:
            continue
        for namespace, name in of.items():
            low = keys.late_key(number, namespace, 0, b"")[:9]
            if losses.meet(low, keys.after(low)):
                entry = found.by_id[found.ids[number]]
                stream = directory.make_stream(entry, name, namespace)
                reader = StreamReader(txn, stream, None, Caches(64, 0))
                ancestry.mark_unhinted(reader)
                ancestry.mark_crossed(reader)
