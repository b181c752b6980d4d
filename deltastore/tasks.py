"""Find records by hashes of a task's or a run's id.

Where records are encrypted the hashes are keyed, so that an id cannot be told from them: task ids
by a secret of the thread, run ids by one of the store. A secret is made in the write transaction
that first needs it, and is itself stored encrypted.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final, NamedTuple

from deltastore.engine.api import Transaction
from deltastore.errors import CorruptionError, DecryptionError
from deltastore.format import entries, frame, keys, layout
from deltastore.format.writes import WritesRecord
from deltastore.log import StreamReader
from deltastore.types import Cipher

_PROBES_MAX: Final = 1_024
_SECRETS_MAX: Final = 64
_STORE: Final = 0  # no thread has this number: the secret is the store's


class TaskRecord(NamedTuple):
    """Where one task's writes are, or will be, and what is there now."""

    key: bytes
    record: WritesRecord | None


def find_task(reader: StreamReader, cid: bytes, task_id: str, *, make_secret: bool) -> TaskRecord:
    """Find one task's writes record at a checkpoint, or the key it will have.

    Args:
        make_secret: In a write transaction, give the thread a secret if it needs one.
    """
    raw = task_id.encode()
    if reader.cipher is None:
        return _probe(reader, cid, task_id, entries.text_hash(raw))
    # It may have written before the serializer was given its cipher.
    earlier = _probe(reader, cid, task_id, entries.text_hash(raw))
    if earlier.record is not None:
        return earlier
    secret = _secret(reader.txn, reader.cipher, reader.stream.thread, make=make_secret)
    if secret is None:
        raise reader.locate(CorruptionError("the secret that task ids are found by is gone"), cid)
    return _probe(reader, cid, task_id, _keyed(raw, secret))


def _probe(reader: StreamReader, cid: bytes, task_id: str, number: int) -> TaskRecord:
    for probe in range(_PROBES_MAX):
        key = keys.writes_key(reader.stream.prefix, cid, (number + probe) % (1 << 64))
        record = reader.txn.get(key)
        if record is None:
            return TaskRecord(key, None)
        found = reader.decode_writes(key, record, cid)
        if found.task_id == task_id:
            return TaskRecord(key, found)
    raise CorruptionError(f"no place for task {task_id!r} within {_PROBES_MAX} probes")


def run_hashes(
    txn: Transaction, run_id: str, cipher: Cipher | None, *, make_secret: bool
) -> list[int]:
    """Return the hashes a run may be found under; it is noted under the last of them.

    Args:
        make_secret: In a write transaction, give the store a secret if it needs one.

    Raises:
        DecryptionError: Without `make_secret`: runs are noted under keys, and the cipher opens none
            of them, so that a run that is not found may still be there.
    """
    raw = run_id.encode()
    found = [entries.text_hash(raw)]
    secret = None
    if cipher is not None:
        secret = _secret(txn, cipher, _STORE, make=make_secret)
        if secret is not None:
            found.append(_keyed(raw, secret))
    if secret is None and not make_secret and txn.get(keys.secret_key(_STORE, 0)) is not None:
        raise DecryptionError(
            "the ids of runs are encrypted, and the serializer has no key or another one; open the "
            "store with the serializer that wrote it"
        )
    return found


def _keyed(raw: bytes, secret: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8, key=secret).digest(), "big")


def _secret(txn: Transaction, cipher: Cipher, thread: int, *, make: bool) -> bytes | None:
    """Return a thread's secret under a cipher, None if it has none and none is made."""
    for ordinal in range(_SECRETS_MAX):
        key = keys.secret_key(thread, ordinal)
        record = txn.get(key)
        if record is None:
            if not make:
                return None
            secret = secrets.token_bytes(32)
            txn.put(key, frame.seal(key, layout.KIND_SECRET, b"", secret, cipher))
            return secret
        try:
            return frame.unseal(key, record, layout.KIND_SECRET, cipher).payload
        except DecryptionError:
            continue  # made under a key used before
    raise DecryptionError(
        f"{_SECRETS_MAX} keys were used on thread number {thread} and this one is not among them"
    )
