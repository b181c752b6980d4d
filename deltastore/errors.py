"""Every exception deltastore raises on purpose, in one tree.

    DeltaStoreError
    ├── InvalidArgumentError (also ValueError)     a value the store cannot take
    ├── InvalidTypeError (also TypeError)          an argument of the wrong type
    ├── StoreClosedError                           a call after close()
    ├── ForkedStoreError                           an open store carried through fork()
    ├── StorePathError                             the path cannot hold, or does not hold, a store
    ├── FormatVersionError                         written by a newer release
    ├── DeletedParentError                         a put on a checkpoint that was deleted
    ├── PrunedCheckpointError                      a put that needs what was pruned
    ├── NeededRunError                             living checkpoints need what a run left
    ├── ForkRefusedError                           a put on a parent that is no longer the newest
    ├── LeaseHeldError                             another owner holds a thread's lease
    ├── LeaseLostError                             a lease is no longer what its holder believes
    ├── DecryptionError                            the cipher does not open a record
    ├── CorruptionError                            stored bytes are not what was written
    │   └── BrokenChainError                       an ancestor that was stored is gone
    └── EngineError                                the engine underneath failed
        ├── LostWriteError                         an acknowledged write could not be stored
        ├── StoreFullError                         no room left on the disk or in the map
        │   └── QuotaExceededError                 a write would take the store beyond `max_bytes`
        ├── RetryTransactionError                  no effect; the transaction may be run again
        └── ReadOnlyError                          a write through a read-only opening

Messages say what is wrong, where, with which value, and the way out. Attributes carry the same for
programs. A bug in deltastore itself is an `AssertionError`, never one of these.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Final

_NEVER: Final = datetime.min.replace(tzinfo=timezone.utc)


class DeltaStoreError(Exception):
    """Base of the tree; never raised itself."""


class InvalidArgumentError(DeltaStoreError, ValueError):
    """An argument has a value the store cannot take; nothing was stored."""


class InvalidTypeError(DeltaStoreError, TypeError):
    """An argument has the wrong type; nothing was stored."""


class StoreClosedError(DeltaStoreError):
    """The store was closed before this call, or while it waited."""


class ForkedStoreError(DeltaStoreError):
    """The store was open when the process forked; the child must open one of its own path."""


class StorePathError(DeltaStoreError):
    """The path cannot hold a store, or holds something else."""


class FormatVersionError(DeltaStoreError):
    """The store or a record was written in a format this release does not know."""


class DeletedParentError(DeltaStoreError):
    """A checkpoint was put on a parent that has been deleted; storing it would cut its history."""


class PrunedCheckpointError(DeltaStoreError):
    """A put of a pruned checkpoint, or one that carries over what pruning has dropped."""


class NeededRunError(DeltaStoreError):
    """Checkpoints that stay need what a run to be deleted left; nothing was deleted."""


class ForkRefusedError(DeltaStoreError):
    """A checkpoint was put on a parent that is not the newest of its namespace; nothing was stored.

    Attributes:
        thread_id, checkpoint_ns: Where.
        parent_id: What it was put on; None for a put without a parent.
        newest_id: What it would have had to be put on.
    """

    def __init__(
        self,
        message: str,
        *,
        thread_id: str = "",
        checkpoint_ns: str = "",
        parent_id: str | None = None,
        newest_id: str = "",
    ) -> None:
        super().__init__(message)
        self.thread_id = thread_id
        self.checkpoint_ns = checkpoint_ns
        self.parent_id = parent_id
        self.newest_id = newest_id


class LeaseHeldError(DeltaStoreError):
    """A thread was claimed while another owner's lease of it stands; nothing was changed.

    Attributes:
        thread_id: Which.
        owner: Who holds it.
        expires: When it ends if it is not renewed, by the clock of its holder.
    """

    def __init__(
        self, message: str, *, thread_id: str = "", owner: str = "", expires: datetime = _NEVER
    ) -> None:
        super().__init__(message)
        self.thread_id = thread_id
        self.owner = owner
        self.expires = expires


class LeaseLostError(DeltaStoreError):
    """A lease to be renewed or released is not the one that stands; nothing was changed.

    Attributes:
        thread_id: Which.
        token: Of the lease that was lost.
        owner: Who holds the thread, or did last, since; None if nobody.
    """

    def __init__(
        self, message: str, *, thread_id: str = "", token: int = 0, owner: str | None = None
    ) -> None:
        super().__init__(message)
        self.thread_id = thread_id
        self.token = token
        self.owner = owner


class DecryptionError(DeltaStoreError):
    """A record is encrypted and the serializer's cipher does not open it."""


class CorruptionError(DeltaStoreError):
    """Stored bytes are not what was written.

    Attributes:
        thread_id, checkpoint_ns, checkpoint_id: Where, as far as it is known; None where not.
        record: The record's key in hexadecimal, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        thread_id: str | None = None,
        checkpoint_ns: str | None = None,
        checkpoint_id: str | None = None,
        record: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.thread_id = thread_id
        self.checkpoint_ns = checkpoint_ns
        self.checkpoint_id = checkpoint_id
        self.record = record

    def locate(
        self,
        thread_id: str | None = None,
        checkpoint_ns: str | None = None,
        checkpoint_id: str | None = None,
    ) -> CorruptionError:
        """Fill in what a caller further up knows about the place; keeps what is already set."""
        self.thread_id = self.thread_id if self.thread_id is not None else thread_id
        self.checkpoint_ns = self.checkpoint_ns if self.checkpoint_ns is not None else checkpoint_ns
        self.checkpoint_id = self.checkpoint_id if self.checkpoint_id is not None else checkpoint_id
        return self

    def __str__(self) -> str:
        place = [
            f"{name} {value!r}"
            for name, value in (
                ("thread", self.thread_id),
                ("namespace", self.checkpoint_ns),
                ("checkpoint", self.checkpoint_id),
                ("record", self.record),
            )
            if value is not None
        ]
        return f"{self.message} ({', '.join(place)})" if place else self.message


class BrokenChainError(CorruptionError):
    """An ancestor that was stored is gone, so history cannot be told from an empty one."""


class EngineError(DeltaStoreError):
    """The engine failed; the transaction had no effect."""


class LostWriteError(EngineError):
    """A write that durability "relaxed" had acknowledged could not be stored; see the cause.

    Attributes:
        thread_id, checkpoint_id: Of the first that could not be.
        writes: How many went with it: all that was acknowledged after it on the same thread.
    """

    def __init__(self, message: str, *, thread_id: str, checkpoint_id: str, writes: int) -> None:
        super().__init__(message)
        self.thread_id = thread_id
        self.checkpoint_id = checkpoint_id
        self.writes = writes


class StoreFullError(EngineError):
    """No room left on the disk or in the map; what was stored before stays readable."""


class QuotaExceededError(StoreFullError):
    """A write would take the store beyond the `max_bytes` it was opened with; nothing was stored.

    Reading, deleting, pruning and vacuum go on.

    Attributes:
        used_bytes: What the store would have taken.
        max_bytes: The bound.
    """

    def __init__(self, message: str, *, used_bytes: int = 0, max_bytes: int = 0) -> None:
        super().__init__(message)
        self.used_bytes = used_bytes
        self.max_bytes = max_bytes


class RetryTransactionError(EngineError):
    """The transaction had no effect and may be run again: the engine has made room meanwhile."""


class ReadOnlyError(EngineError):
    """A write was asked of a store opened read-only."""
