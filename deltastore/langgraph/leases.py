"""Leases of threads, as methods of `DeltaStoreSaver`; see `deltastore.leases`."""

from __future__ import annotations

from datetime import timedelta

from langgraph.checkpoint.base import BaseCheckpointSaver

from deltastore.langgraph import configs
from deltastore.langgraph.core import Core
from deltastore.leases import Lease


class LeaseMixin(BaseCheckpointSaver[str]):
    """A saver's leases, sync and async."""

    _core: Core

    def claim(self, thread_id: str, owner: str, ttl: timedelta) -> Lease:
        """Take a thread's lease, or renew it if `owner` holds it; see `Store.claim`.

        Raises:
            LeaseHeldError: Another owner holds it.
        """
        return self._core.store.claim(configs.thread_id_of(thread_id), owner, ttl)

    async def aclaim(self, thread_id: str, owner: str, ttl: timedelta) -> Lease:
        """As `claim`."""
        return await self._core.work(lambda: self.claim(thread_id, owner, ttl))

    def renew(self, lease: Lease) -> Lease:
        """Let a lease last for its ttl from now on; see `Store.renew`.

        Raises:
            LeaseLostError: It is no longer the one that stands.
        """
        return self._core.store.renew(lease)

    async def arenew(self, lease: Lease) -> Lease:
        """As `renew`."""
        return await self._core.work(lambda: self.renew(lease))

    def release(self, lease: Lease) -> None:
        """End a lease; see `Store.release`.

        Raises:
            LeaseLostError: It is no longer the one that stands.
        """
        self._core.store.release(lease)

    async def arelease(self, lease: Lease) -> None:
        """As `release`."""
        await self._core.work(lambda: self.release(lease))
