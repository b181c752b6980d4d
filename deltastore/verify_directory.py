"""Level two of a check outside the log: names, numbers, marks and indexes, against one another.

Functions of a transaction and a key that level one found sound; each raises what it finds.
"""

from __future__ import annotations

from typing import Final

from deltastore import directory, leases
from deltastore.directory import Stream
from deltastore.engine.api import Transaction
from deltastore.errors import CorruptionError
from deltastore.format import entries, frame, keys, layout
from deltastore.format.entries import DELETED_TEXT_IDS_MAX, DeletedMark
from deltastore.ids import FORM_TEXT, id_from_cid

_EVERYTHING_ELSE: Final = b"\x00", bytes([layout.TAG_LOG + 1])


def name_of(txn: Transaction, thread: int, namespace: int) -> tuple[str | None, str | None]:
    """Return the texts that numbers stand for, as far as the directory still tells."""
    found: list[str | None] = []
    for key in (keys.thread_name_key(thread), keys.namespace_name_key(thread, namespace)):
        record = txn.get(key)
        try:
            payload = record and frame.unseal(key, record, layout.KIND_NAME).payload
            found.append(entries.decode_name(payload) if payload else None)
        except CorruptionError:
            found.append(None)
    return found[0], found[1]


def is_passing(txn: Transaction, thread: int) -> bool:
    """Whether a thread number waits to be reclaimed, or is that of a copy that is being made."""
    if txn.get(keys.reclaim_key(thread)) is not None:
        return True
    return (
        txn.get(keys.watch_key(thread)) is not None
        and txn.get(keys.thread_name_key(thread)) is None
    )


def find_stream(txn: Transaction, thread: int, namespace: int) -> Stream | None:
    """Return the stream of two numbers that names and entries agree on, or None."""
    thread_id, checkpoint_ns = name_of(txn, thread, namespace)
    if thread_id is None or checkpoint_ns is None:
        return None
    try:
        found = directory.find_stream(txn, thread_id, checkpoint_ns)
    except CorruptionError:
        return None
    wanted = (thread, namespace)
    return found if found is not None and (found.thread, found.namespace) == wanted else None


def mark_of(txn: Transaction, stream: Stream) -> DeletedMark:
    """Return what is known of the checkpoints deleted from a stream."""
    entry = directory.find_thread(txn, stream.thread_id)
    return (entry and entry.mark_of(stream.checkpoint_ns)) or DeletedMark()


def may_be_dropped(mark: DeletedMark, cid: bytes) -> bool:
    """Whether an id may be that of a dropped checkpoint; not all of them are remembered."""
    is_forgetful = cid[0] == FORM_TEXT and len(mark.hashes) >= DELETED_TEXT_IDS_MAX
    return is_forgetful or mark.covers(cid)


def check_store(txn: Transaction) -> None:
    """Check the store's own records against everything else."""
    is_any = txn.scan_keys(*_EVERYTHING_ELSE, limit=1)
    if directory.store_identity(txn) is None and is_any:
        key = keys.store_key(b"store").hex()
        raise CorruptionError("the store's own record is gone", record=key)
    given = directory.threads_given(txn)
    start = bytes([layout.TAG_NAMES])
    last = txn.scan_keys(start, keys.after(start), reverse=True, limit=1)
    if last and keys.number_at(last[0], 1) > given:
        raise CorruptionError(
            f"thread numbers are in use beyond {given}, the last one given",
            record=keys.store_key(b"threads").hex(),
        )


def check_pair(txn: Transaction, key: bytes, record: bytes) -> None:
    """Check one record outside the log against those it goes with.

    Raises:
        CorruptionError: One of them is missing, or says something else.
    """
    tag = key[0]
    if tag == layout.TAG_THREAD:
        _check_thread(txn, key, record)
        return
    if tag == layout.TAG_LEASE:
        leases.check(txn, key, record)
        return
    if tag not in _CHECKS:
        return
    thread = keys.number_at(key, 9 if tag == layout.TAG_RUN else _THREAD_AT.get(tag, 1))
    if not is_passing(txn, thread):
        _CHECKS[tag](txn, key, record, thread)


def _check_thread(txn: Transaction, key: bytes, record: bytes) -> None:
    entry = entries.decode_thread(frame.unseal(key, record, layout.KIND_THREAD).payload)
    thread_id, number = entry.thread_id, entry.number
    if key != keys.thread_key(thread_id.encode()):
        raise CorruptionError("thread entry under another id's key", record=key.hex())
    if number == 0:
        return
    if txn.get(keys.reclaim_key(number)) is not None:
        raise CorruptionError("thread has a number that is being reclaimed", thread_id=thread_id)
    name_key = keys.thread_name_key(number)
    if directory.thread_id_of(txn, number) != thread_id:
        raise CorruptionError(
            f"number {number} names another", thread_id=thread_id, record=name_key.hex()
        )
    if entry.minute:
        active = keys.activity_key(entry.minute, number)
        if txn.get(active) is None:
            raise CorruptionError(
                "thread is missing from the index of activity",
                thread_id=thread_id,
                record=active.hex(),
            )


def _check_namespace(txn: Transaction, key: bytes, record: bytes, thread: int) -> None:
    payload = frame.unseal(key, record, layout.KIND_NAME).payload
    name, number = entries.decode_named_number(payload)
    if key != keys.namespace_key(thread, name.encode()):
        raise CorruptionError("namespace under another's key", record=key.hex())
    thread_id, other = name_of(txn, thread, number)
    if other != name:
        raise CorruptionError(
            f"number {number} names {'nothing' if other is None else 'another'}",
            thread_id=thread_id,
            checkpoint_ns=name,
            record=keys.namespace_name_key(thread, number).hex(),
        )


def _check_name(txn: Transaction, key: bytes, record: bytes, thread: int) -> None:
    name = entries.decode_name(frame.unseal(key, record, layout.KIND_NAME).payload)
    if len(key) == 5:
        if directory.find_thread_id(txn, thread) != name:
            raise CorruptionError(
                f"thread number {thread} has a name, and no entry",
                thread_id=name,
                record=keys.thread_key(name.encode()).hex(),
            )
        return
    number = keys.number_at(key, 5)
    there = keys.namespace_key(thread, name.encode())
    found = txn.get(there)
    payload = found and frame.unseal(there, found, layout.KIND_NAME).payload
    if not payload or entries.decode_named_number(payload) != (name, number):
        raise CorruptionError(
            "namespace and its number disagree",
            thread_id=name_of(txn, thread, number)[0],
            checkpoint_ns=name,
            record=there.hex(),
        )
    entry = directory.find_thread(txn, name_of(txn, thread, number)[0] or "")
    if entry is not None and entry.number == thread and number > entry.namespaces:
        raise CorruptionError(
            f"namespace numbers are in use beyond {entry.namespaces}, the last one given",
            thread_id=entry.thread_id,
            checkpoint_ns=name,
        )


def _check_activity(txn: Transaction, key: bytes, record: bytes, thread: int) -> None:  # noqa: ARG001 - a check like the others
    thread_id = directory.find_thread_id(txn, thread)
    entry = None if thread_id is None else directory.find_thread(txn, thread_id)
    if entry is None or keys.activity_key(entry.minute, thread) != key:
        raise CorruptionError(
            f"the index of activity names thread number {thread}, which was active at another time "
            "or is not there",
            thread_id=thread_id,
            record=key.hex(),
        )


def _check_secret(txn: Transaction, key: bytes, record: bytes, thread: int) -> None:  # noqa: ARG001 - a check like the others
    ordinal = int.from_bytes(key[5:7], "big")
    before = keys.secret_key(thread, max(ordinal - 1, 0))
    if txn.get(before) is None:
        raise CorruptionError(
            f"secret {ordinal - 1} of thread number {thread} is gone", record=before.hex()
        )


def _check_late(txn: Transaction, key: bytes, record: bytes, thread: int) -> None:  # noqa: ARG001 - a check like the others
    if keys.number_at(key, 9) > keys.DEPTH_MAX:
        return
    namespace, cid = keys.number_at(key, 5), key[13:]
    prefix = keys.log_prefix(thread, namespace)
    if txn.get(keys.header_key(prefix, cid)) or txn.get(keys.anchor_key(prefix, cid)):
        return
    stream = find_stream(txn, thread, namespace)
    if stream is None or may_be_dropped(mark_of(txn, stream), cid):
        return
    raise CorruptionError(
        "a mark of late writes stands, and its checkpoint is gone",
        thread_id=stream.thread_id,
        checkpoint_ns=stream.checkpoint_ns,
        checkpoint_id=id_from_cid(cid),
        record=keys.header_key(prefix, cid).hex(),
    )


def _check_run(txn: Transaction, key: bytes, record: bytes, thread: int) -> None:  # noqa: ARG001 - a check like the others
    at = 1 if key[0] == layout.TAG_RUN else 5
    run_hash = int.from_bytes(key[at : at + 8], "big")
    pair = (keys.run_key(run_hash, thread), keys.thread_run_key(thread, run_hash))
    for other in pair:
        if txn.get(other) is None:
            raise CorruptionError(
                f"the index of runs names thread number {thread} one way only",
                thread_id=name_of(txn, thread, 0)[0],
                record=other.hex(),
            )


_THREAD_AT: Final = {layout.TAG_ACTIVITY: 5}
_CHECKS: Final = {
    layout.TAG_NAMESPACE: _check_namespace,
    layout.TAG_NAMES: _check_name,
    layout.TAG_ACTIVITY: _check_activity,
    layout.TAG_SECRET: _check_secret,
    layout.TAG_LATE: _check_late,
    layout.TAG_RUN: _check_run,
    layout.TAG_THREAD_RUNS: _check_run,
}
