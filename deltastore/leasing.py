"""Leases of threads: the part of `Store` that workers ask before they work on one."""

from __future__ import annotations

from datetime import timedelta

from deltastore import leases
from deltastore.leases import Lease
from deltastore.session import Session


class Leasing:
    """Leases of a store; `Store` is one."""

    _session: Session

    def claim(self, thread_id: str, owner: str, ttl: timedelta) -> Lease:
        """Take a thread's lease, or renew it if `owner` holds it; the thread need not exist.

        Keeps away who claims as well, and nobody else; see docs/guides/operations.md.

        Args:
            owner: Names the worker, 1 to 400 bytes of UTF-8; no two may share a name.
            ttl: How long the lease lasts unless it is renewed, 1 ms to 366 days.

        Raises:
            LeaseHeldError: Another owner holds it.
        """
        leases.check_claim(thread_id, owner, ttl)
        self._session.begin_write()
        return self._session.queue.run(lambda txn: leases.claim(txn, thread_id, owner, ttl))

    def renew(self, lease: Lease) -> Lease:
        """Let a lease last for its ttl from now on, also if it has ended and nobody took it.

        Raises:
            LeaseLostError: It was taken over or released, or its thread was deleted.
        """
        leases.check_lease(lease)
        self._session.begin_write()
        return self._session.queue.run(lambda txn: leases.renew(txn, lease))

    def release(self, lease: Lease) -> None:
        """End a lease, so that others need not wait for it to expire.

        Raises:
            LeaseLostError: It was taken over or released, or its thread was deleted.
        """
        leases.check_lease(lease)
        self._session.begin_write()
        self._session.queue.run(lambda txn: leases.release(txn, lease))
