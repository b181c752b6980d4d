"""`DeltaStoreSaver`: LangGraph's checkpointer interface over a `Store`.

Thin on purpose: arguments are read in `configs`, values coded in `serde`, everything else is the
store's. One class for sync and async; a method called on an event loop does its work on threads of
the saver's own, and writes join the store's commit queue.

The clone that `with_allowlist` makes shares everything but `serde`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from deltastore.engine.memory import MemoryEngine
from deltastore.errors import InvalidArgumentError, InvalidTypeError
from deltastore.format.header import Header
from deltastore.langgraph import configs
from deltastore.langgraph.core import Core, Made
from deltastore.langgraph.leases import LeaseMixin
from deltastore.langgraph.light import is_light, is_light_put, is_quick
from deltastore.langgraph.puts import new_checkpoint, new_writes
from deltastore.langgraph.serde import Coder
from deltastore.langgraph.tuples import config_of, pending_of, tuple_of
from deltastore.langgraph.upkeep import UpkeepMixin
from deltastore.options import Durability, RetentionPolicy, SnapshotBounds, StoreOptions
from deltastore.store import Store


class DeltaStoreSaver(LeaseMixin, UpkeepMixin):
    """A checkpointer that stores what changed.

    Args:
        path: Directory of the store; made at the first call if it is absent.
        serde: Serializer of values; LangGraph's own by default. An `EncryptedSerializer` encrypts
            everything but thread ids, namespaces, checkpoint ids, sizes and times.
        bounds: When a value is stored in fewer pieces; see `SnapshotBounds`.
        reducers: By channel, reducers or `DeltaChannel`s that `compact` folds writes with;
            `deltastore.langgraph.channels.reducers_of` reads them off a compiled graph.
        durability: "full": on disk when a call returns. "normal": the last commit may be undone
            by an operating system crash. "relaxed": on disk within milliseconds; see `flush`.
        read_only: Open beside a live writer; writes raise `ReadOnlyError`.
        refuse_forks: A `put` on any but the newest checkpoint raises `ForkRefusedError`: of two
            workers that resume one thread, one gets through. See `StoreOptions`.
        max_bytes: What the store may take, at least 1 MiB; None for no bound. A call that would
            take it beyond raises `QuotaExceededError`; see `StoreOptions`.
        slow_seconds: Operations that take as long are logged by `deltastore.slow`, without values.
        ttl: {"default_ttl": minutes, "refresh_on_read": bool}: threads idle for longer go by
            themselves, whole, while the saver is used; until then they read as before. Minutes are
            rounded up. A write is activity, a read if "refresh_on_read" says so.
        retention: What `apply_retention` applies, and which threads nothing deletes by itself.

    Raises:
        StorePathError: The path cannot hold a store, or holds something else.

    Nothing is opened before the first call, so a saver built before a fork works in each child.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        serde: SerializerProtocol | None = None,
        bounds: SnapshotBounds | None = None,
        reducers: Mapping[str, Any] | None = None,
        durability: Durability = "full",
        read_only: bool = False,
        refuse_forks: bool = False,
        max_bytes: int | None = None,
        slow_seconds: float | None = None,
        ttl: configs.Ttl | None = None,
        retention: RetentionPolicy | None = None,
    ) -> None:
        super().__init__(serde=serde)
        if not isinstance(path, (str, PathLike)):
            raise InvalidTypeError(
                f"path must be a str or a path (got {type(path).__name__}); "
                "pass the directory that holds, or is to hold, the store"
            )
        if isinstance(path, str) and "://" in path:
            raise InvalidArgumentError(
                f"no engine for {path.split('://')[0]!r} URLs in this release (got {path!r:.80}); "
                "pass the directory that holds, or is to hold, the store"
            )
        options = StoreOptions(
            bounds=bounds or SnapshotBounds(),
            durability=durability,
            read_only=read_only,
            refuse_forks=refuse_forks,
            max_bytes=max_bytes,
            slow_seconds=slow_seconds,
            ttl=configs.ttl_of(ttl),
            retention=retention,
        )
        self._core = Core(Store.open(path, options), reducers)

    @classmethod
    def ephemeral(
        cls,
        *,
        serde: SerializerProtocol | None = None,
        bounds: SnapshotBounds | None = None,
        reducers: Mapping[str, Any] | None = None,
        ttl: configs.Ttl | None = None,
        retention: RetentionPolicy | None = None,
    ) -> DeltaStoreSaver:
        """Return a saver whose store lives in this process's memory, for tests."""
        options = StoreOptions(
            bounds=bounds or SnapshotBounds(), ttl=configs.ttl_of(ttl), retention=retention
        )
        return cls.on_store(Store(MemoryEngine(), options), serde=serde, reducers=reducers)

    @classmethod
    def on_store(
        cls,
        store: Store,
        *,
        serde: SerializerProtocol | None = None,
        reducers: Mapping[str, Any] | None = None,
    ) -> DeltaStoreSaver:
        """Return a saver on a store opened by the caller; closing the saver closes it."""
        saver = cls.__new__(cls)
        BaseCheckpointSaver.__init__(saver, serde=serde)
        saver._core = Core(store, reducers)
        return saver

    @classmethod
    def from_conn_string(cls, path: str, **options: Any) -> DeltaStoreSaver:
        """As the constructor; to be used in a `with` or `async with`, as other savers' are."""
        return cls(path, **options)

    def setup(self) -> None:
        """Create the store if it is new. Not needed: the first call does it. Idempotent."""
        self.store.setup()

    def close(self) -> None:
        """Finish what is under way and close; later calls raise `StoreClosedError`."""
        self._core.close()

    def __enter__(self) -> DeltaStoreSaver:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> DeltaStoreSaver:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self.close)

    # -- writing ----------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint as a child of the one `config` names.

        Raises:
            InvalidTypeError, InvalidArgumentError: An argument cannot be stored; nothing was.
            DeletedParentError: The parent was deleted.
        """
        new, coder = new_checkpoint(self.serde, config, checkpoint, metadata, new_versions)
        self.store.put(new, coder.cipher)
        return config_of(new.thread_id, new.checkpoint_ns, new.checkpoint_id)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As `put`. Cancelled, it is done or not done; repeating it is safe."""

        def make() -> Made:
            new, coder = new_checkpoint(self.serde, config, checkpoint, metadata, new_versions)
            stored = config_of(new.thread_id, new.checkpoint_ns, new.checkpoint_id)
            return new, coder.cipher, stored

        result: RunnableConfig = await self._core.commit(
            make,
            is_light=lambda: (
                is_quick(self.serde) and is_light_put(checkpoint, metadata, new_versions)
            ),
        )
        return result

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store a task's writes at the checkpoint `config` names, which may come later.

        Raises:
            InvalidTypeError, InvalidArgumentError: An argument cannot be stored; nothing was.
        """
        new, coder = new_writes(self.serde, config, writes, task_id, task_path)
        if new.rows:
            self.store.put(new, coder.cipher)
        else:
            self.store.check()

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """As `put_writes`. Cancelled, it is done or not done; repeating it is safe."""

        def make() -> Made:
            new, coder = new_writes(self.serde, config, writes, task_id, task_path)
            return new if new.rows else None, coder.cipher, None

        await self._core.commit(make, is_light=lambda: is_quick(self.serde) and is_light((writes,)))

    # -- reading ----------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint `config` names, the newest of its namespace without an id."""
        coder = Coder.of(self.serde)
        target = configs.target_of(config)
        stored = self.store.get(
            target.thread_id, target.checkpoint_ns or "", target.checkpoint_id, coder.cipher
        )
        return None if stored is None else tuple_of(stored, coder)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `get_tuple`; a walk from child to parent is read ahead."""
        if type(self).get_tuple is not DeltaStoreSaver.get_tuple:
            # A subclass that reads in its own way means both.
            return await self._core.work(lambda: self.get_tuple(config))
        return await self._core.get_tuple(configs.target_of(config), Coder.of(self.serde))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first by id within a thread.

        Holds no lock and no view between two rows; values are read for rows that are yielded only.
        """
        asked = configs.listing_of(config, filter, before, limit)
        return self._list(asked, Coder.of(self.serde))

    def _list(self, asked: configs.Listing, coder: Coder) -> Iterator[CheckpointTuple]:
        def matches(header: Header) -> bool:
            metadata = header.metadata
            return all(
                coder.unplain(metadata.get(key)) == value for key, value in asked.filter.items()
            )

        target = asked.target
        rows = self.store.list(
            None if target is None else target.thread_id,
            None if target is None else target.checkpoint_ns,
            only=None if target is None else target.checkpoint_id,
            before=asked.before,
            limit=asked.limit,
            matches=matches,
            cipher=coder.cipher,
        )
        for stored in rows:
            yield tuple_of(stored, coder)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As `list`."""
        rows = self.list(config, filter=filter, before=before, limit=limit)
        while (row := await self._core.work(lambda: next(rows, None))) is not None:
            yield row

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return each channel's seed and writes before the checkpoint `config` names.

        Raises:
            BrokenChainError: An ancestor that was stored is gone.
        """
        if not channels:
            self.store.check()
            return {}
        coder = Coder.of(self.serde)
        target = configs.target_of(config)
        names = configs.channels_of(channels)
        found = self.store.history(
            target.thread_id, target.checkpoint_ns or "", target.checkpoint_id, names, coder.cipher
        )
        result: dict[str, DeltaChannelHistory] = {}
        for channel, history in found.items():
            entry: DeltaChannelHistory = {"writes": pending_of(history.writes, coder)}
            if history.seed is not None:
                entry["seed"] = coder.loads(history.seed)
            result[channel] = entry
        return result

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """As `get_delta_channel_history`."""
        return await self._core.work(
            lambda: self.get_delta_channel_history(config=config, channels=channels)
        )

    def get_next_version(self, current: str | int | float | None, channel: None = None) -> str:
        """Return a version above `current`: a counter, and a fraction that keeps forks apart.

        Raises:
            InvalidArgumentError: `current` does not begin with a number.
        """
        try:
            count = int(str(current).split(".")[0]) if current is not None else 0
        except ValueError:
            raise InvalidArgumentError(
                f"version {current!r:.60} does not begin with a number, so there is none above it"
            ) from None
        fraction = random.random()  # noqa: S311 - tells forks apart, guards nothing
        return f"{count + 1:032}.{fraction:016}"
