"""Leases: a worker says that it works on a thread, and for how long others are to keep away.

A *lease* is one record of a thread: its *owner*, a *token*, and a time it lasts, the *ttl*. Tokens
count up over the whole store, so a later lease has a greater one, also after its thread was
deleted. A lease is *held* until it ends, is released, or its thread is deleted.

Times are those of the wall clocks of whoever claims and renews. A lease is taken for held only
where its beginning is no further in the future than its ttl: a clock that was set back makes none
last longer than twice its ttl, and its owner is told at the next renewal. Nothing here stops a
write: leases are for workers that ask.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final

from deltastore.absence import check_absent
from deltastore.engine.api import Transaction
from deltastore.errors import (
    CorruptionError,
    InvalidArgumentError,
    InvalidTypeError,
    LeaseHeldError,
    LeaseLostError,
)
from deltastore.format import entries, frame, keys, layout
from deltastore.format.entries import LeaseEntry
from deltastore.ids import encode_text

OWNER_BYTES_MAX: Final = 400
TTL_MAX: Final = timedelta(days=366)
_TOKENS_KEY: Final = keys.store_key(b"leases")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MS: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as its owner got it.

    Attributes:
        thread_id: The thread it is of.
        owner: Who holds it, as given to `claim`.
        token: Greater than that of any lease of the store given before; a renewal keeps it.
        expires: When it ends unless it is renewed, by the clock of this process.
        ttl: How long it lasts from a claim or renewal.
    """

    thread_id: str
    owner: str
    token: int
    expires: datetime
    ttl: timedelta


def check_claim(thread_id: str, owner: object, ttl: object) -> None:
    """Check what a claim is made with.

    Raises:
        InvalidTypeError, InvalidArgumentError: The owner is no text of 1 to 400 bytes of UTF-8, or
            the ttl no timedelta of 1 ms to 366 days.
    """
    encode_text(thread_id, "thread_id")
    if not isinstance(owner, str):
        raise InvalidTypeError(f"owner must be a str (got {type(owner).__name__})")
    if not 1 <= len(encode_text(owner, "owner")) <= OWNER_BYTES_MAX:
        raise InvalidArgumentError(
            f"owner must be 1 to {OWNER_BYTES_MAX} bytes of UTF-8 (got {owner!r:.60}); name the "
            "worker, each by another name"
        )
    if not isinstance(ttl, timedelta):
        raise InvalidTypeError(f"ttl must be a timedelta (got {type(ttl).__name__} {ttl!r:.60})")
    if not _MS <= ttl <= TTL_MAX:
        raise InvalidArgumentError(
            f"ttl must be 1 ms to {TTL_MAX.days} days (got {ttl}); renew a lease to keep it longer"
        )


def check_lease(lease: object) -> None:
    """Check that a lease is one that `claim` returned.

    Raises:
        InvalidTypeError: It is not.
    """
    if not isinstance(lease, Lease):
        raise InvalidTypeError(
            f"lease must be the Lease that claim or renew returned (got {type(lease).__name__})"
        )


def claim(txn: Transaction, thread_id: str, owner: str, ttl: timedelta) -> Lease:
    """Take a thread's lease, or renew it if `owner` holds it.

    Raises:
        LeaseHeldError: Another owner holds it.
    """
    now = now_ms()
    found = _find(txn, thread_id)
    if found is not None and _stands(found, now):
        if found.owner != owner:
            expires = _expires(found)
            raise LeaseHeldError(
                f"thread {thread_id!r} is held by {found.owner!r} until {expires.isoformat()}; "
                "wait for its release, or claim it again when it has expired",
                thread_id=thread_id,
                owner=found.owner,
                expires=expires,
            )
        token = found.token
    else:
        token = _next_token(txn)
    return _save(txn, LeaseEntry(thread_id, owner, token, now, ttl // _MS))


def renew(txn: Transaction, lease: Lease) -> Lease:
    """Let a lease last for its ttl from now on, also if it has ended and nobody took it.

    Raises:
        LeaseLostError: It was taken over or released, or its thread was deleted.
    """
    found = _own(txn, lease, "renewed")
    return _save(txn, found._replace(since_ms=now_ms(), ttl_ms=lease.ttl // _MS))


def release(txn: Transaction, lease: Lease) -> None:
    """End a lease.

    Raises:
        LeaseLostError: It was taken over or released, or its thread was deleted.
    """
    _own(txn, lease, "released")
    forget(txn, lease.thread_id)


def forget(txn: Transaction, thread_id: str) -> None:
    """Remove a thread's lease, whoever holds it."""
    txn.delete(_key(thread_id))


def is_held(txn: Transaction, thread_id: str) -> bool:
    """Whether anybody holds a thread."""
    found = _find(txn, thread_id)
    return found is not None and _stands(found, now_ms())


def check(txn: Transaction, key: bytes, record: bytes) -> None:
    """Check a lease's record.

    Raises:
        CorruptionError: It is damaged or another thread's, or its token was never given.
    """
    found = _decode(key, record)
    if key != _key(found.thread_id):
        raise CorruptionError(
            "lease under another thread's key", thread_id=found.thread_id, record=key.hex()
        )
    if found.token >= _next_free(txn):
        raise CorruptionError(
            f"lease has token {found.token}, which was never given",
            thread_id=found.thread_id,
            record=key.hex(),
        )


def now_ms() -> int:
    """Return Unix time in milliseconds."""
    return max(0, int(time.time() * 1_000))


def _stands(found: LeaseEntry, now: int) -> bool:
    # A beginning far in the future is that of a clock that was wrong then, or is wrong now.
    return found.since_ms - found.ttl_ms < now < found.since_ms + found.ttl_ms


def _expires(found: LeaseEntry) -> datetime:
    return _EPOCH + (found.since_ms + found.ttl_ms) * _MS


def _key(thread_id: str) -> bytes:
    return keys.lease_key(encode_text(thread_id, "thread_id"))


def _decode(key: bytes, record: bytes) -> LeaseEntry:
    return entries.decode_lease(frame.unseal(key, record, layout.KIND_LEASE).payload)


def _find(txn: Transaction, thread_id: str) -> LeaseEntry | None:
    key = _key(thread_id)
    record = txn.get(key)
    if record is None:
        check_absent(txn, key)
        return None
    found = _decode(key, record)
    if found.thread_id != thread_id:
        raise CorruptionError(
            f"lease belongs to thread {found.thread_id[:60]!r}",
            thread_id=thread_id,
            record=key.hex(),
        )
    return found


def _own(txn: Transaction, lease: Lease, what: str) -> LeaseEntry:
    found = _find(txn, lease.thread_id)
    if found is not None and found.token == lease.token:
        return found
    now = "nobody holds the thread" if found is None else f"{found.owner!r} has taken the thread"
    raise LeaseLostError(
        f"lease {lease.token} of thread {lease.thread_id!r} cannot be {what}: it was lost, and "
        f"{now}; stop work on it, and claim it again before going on",
        thread_id=lease.thread_id,
        token=lease.token,
        owner=None if found is None else found.owner,
    )


def _save(txn: Transaction, entry: LeaseEntry) -> Lease:
    key = _key(entry.thread_id)
    txn.put(key, frame.seal(key, layout.KIND_LEASE, b"", entries.encode_lease(entry)))
    return Lease(entry.thread_id, entry.owner, entry.token, _expires(entry), entry.ttl_ms * _MS)


def _next_free(txn: Transaction) -> int:
    record = txn.get(_TOKENS_KEY)
    if record is None:
        check_absent(txn, _TOKENS_KEY)
        return 1
    return entries.decode_number(frame.unseal(_TOKENS_KEY, record, layout.KIND_STORE).payload)


def _next_token(txn: Transaction) -> int:
    token = _next_free(txn)
    payload = entries.encode_number(token + 1)
    txn.put(_TOKENS_KEY, frame.seal(_TOKENS_KEY, layout.KIND_STORE, b"", payload))
    return token
