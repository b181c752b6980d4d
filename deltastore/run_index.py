"""The index of runs: which threads a run put checkpoints or writes into.

A run is noted once per thread, in the transaction that stores its first record there, so that
deleting it reads no header of any other thread; and by thread, so that a copy of it is noted too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from deltastore import directory
from deltastore.engine.api import Transaction
from deltastore.format import keys, layout
from deltastore.tasks import run_hashes
from deltastore.types import Cipher


def run_of(metadata: Mapping[str, Any]) -> str:
    """Return the run a checkpoint belongs to, empty when its metadata names none."""
    run_id = metadata.get("run_id")
    return str(run_id) if isinstance(run_id, (str, int)) else ""


def note(txn: Transaction, thread: int, run_id: str, cipher: Cipher | None) -> None:
    """Note that a run touched a thread. Cost: one look-up when it is noted already."""
    if run_id:
        _note(txn, thread, run_hashes(txn, run_id, cipher, make_secret=True)[-1])


def _note(txn: Transaction, thread: int, run_hash: int) -> None:
    key = keys.run_key(run_hash, thread)
    if txn.get(key) is None:
        directory.put_mark(txn, key)
        directory.put_mark(txn, keys.thread_run_key(thread, run_hash))


def threads_of(txn: Transaction, run_id: str, cipher: Cipher | None) -> list[int]:
    """Return the numbers of the threads a run touched."""
    found: set[int] = set()
    for run_hash in run_hashes(txn, run_id, cipher, make_secret=False):
        prefix = keys.run_prefix(run_hash)
        found.update(keys.number_at(key, 9) for key in txn.scan_keys(prefix, keys.after(prefix)))
    return sorted(found)


def scan(txn: Transaction, thread: int, after: int, limit: int) -> list[int]:
    """Return up to `limit` hashes of runs that touched a thread, ascending, above `after`.

    -1 starts at the first.
    """
    start = keys.thread_run_key(thread, after) + b"\x00" if after >= 0 else b""
    prefix = keys.thread_prefix(layout.TAG_THREAD_RUNS, thread)
    found = txn.scan_keys(start or prefix, keys.after(prefix), limit=limit)
    return [int.from_bytes(key[5:13], "big") for key in found]


def note_hashes(txn: Transaction, thread: int, hashes: Iterable[int]) -> None:
    """Note that runs touched a thread, as they are noted for another."""
    for run_hash in hashes:
        _note(txn, thread, run_hash)


def forget(txn: Transaction, thread: int, hashes: Iterable[int]) -> None:
    """Forget that runs touched a thread."""
    for run_hash in hashes:
        txn.delete(keys.run_key(run_hash, thread))
        txn.delete(keys.thread_run_key(thread, run_hash))
