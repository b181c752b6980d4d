"""Options a caller may set, each checked when it is made. Defaults fit a chat application.

`SnapshotBounds` is about behaviour (what a read may cost); the byte sizes are about memory;
`RetentionPolicy` and `TimeToLive` say what may be deleted, and nothing is by default.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, get_args

from deltastore.errors import InvalidArgumentError, InvalidTypeError

Durability = Literal["full", "normal", "relaxed"]
DURABILITIES: Final = get_args(Durability)
EngineDurability = Literal["full", "normal"]
ENGINE_DURABILITIES: Final = get_args(EngineDurability)
MAX_BYTES_LEAST: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotBounds:
    """How long a chain of deltas may get before a value is stored in fewer pieces.

    Attributes:
        updates: Deltas between two snapshot points of a channel, at least 1; None for no bound.
        supersteps: Checkpoints a chain may span at a write of its channel, at least 1; None for no
            bound.
        ratio: A whole value is stored once the bytes stored along the chain exceed `1 + ratio`
            times the value, that is once more than `ratio` of what a read fetches is superseded.
            Above 0.
    """

    updates: int | None = 200
    supersteps: int | None = 5_000
    ratio: float = 1.0

    def __post_init__(self) -> None:
        for name in ("updates", "supersteps"):
            value = getattr(self, name)
            if value is None:
                continue
            if type(value) is not int:
                raise InvalidTypeError(
                    f"SnapshotBounds({name}={value!r}): {name} must be an int or None "
                    f"(got {type(value).__name__})"
                )
            if value < 1:
                raise InvalidArgumentError(
                    f"SnapshotBounds({name}={value}): {name} must be at least 1; "
                    f"use {name}=None to disable the bound"
                )
        if type(self.ratio) not in (int, float):
            raise InvalidTypeError(
                f"SnapshotBounds(ratio={self.ratio!r}): ratio must be a number "
                f"(got {type(self.ratio).__name__})"
            )
        if not 0 < self.ratio < float("inf"):
            raise InvalidArgumentError(
                f"SnapshotBounds(ratio={self.ratio}): ratio must be above 0 and finite"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """What `Store.apply_retention` leaves; a bound that is None deletes nothing.

    Attributes:
        keep_last: Newest checkpoints of each namespace that stay, at least 1.
        max_age: Checkpoints older than this go, but never the newest of a namespace; above 0. With
            `keep_last`, what is within either stays.
        max_bytes: Bytes of the records of all threads, keys included, at least 1. Whole threads go,
            the one longest without activity first, until the rest is within it.
        protect: Ids of threads that are never touched, neither by this policy nor by a time to
            live; kept as a frozenset. They count towards `max_bytes`.
    """

    keep_last: int | None = None
    max_age: timedelta | None = None
    max_bytes: int | None = None
    protect: Collection[str] = frozenset()

    def __post_init__(self) -> None:
        for name in ("keep_last", "max_bytes"):
            value = getattr(self, name)
            if value is None:
                continue
            if type(value) is not int:
                raise InvalidTypeError(
                    f"RetentionPolicy({name}={value!r:.60}): {name} must be an int or None "
                    f"(got {type(value).__name__})"
                )
            if value < 1:
                raise InvalidArgumentError(
                    f"RetentionPolicy({name}={value}): {name} must be at least 1; "
                    f"use {name}=None to disable the bound"
                )
        self._check_age()
        # Frozen, so that what is protected cannot change under a policy that is being applied.
        object.__setattr__(self, "protect", self._protected())

    def _check_age(self) -> None:
        if self.max_age is None:
            return
        if not isinstance(self.max_age, timedelta):
            raise InvalidTypeError(
                f"RetentionPolicy(max_age={self.max_age!r:.60}): max_age must be a timedelta or "
                f"None (got {type(self.max_age).__name__})"
            )
        if self.max_age <= timedelta(0):
            raise InvalidArgumentError(
                f"RetentionPolicy(max_age={self.max_age}): max_age must be above 0; use "
                "keep_last=1 to keep the newest alone, max_age=None to disable the bound"
            )

    def _protected(self) -> frozenset[str]:
        given = self.protect
        if isinstance(given, (str, bytes)) or not isinstance(given, Collection):
            raise InvalidTypeError(
                f"RetentionPolicy(protect={given!r:.60}): protect must be a collection of thread "
                f"ids (got {type(given).__name__}); for one thread pass {{thread_id}}"
            )
        for one in given:
            if not isinstance(one, str):
                raise InvalidTypeError(
                    f"RetentionPolicy(protect=...): a thread id must be a str "
                    f"(got {type(one).__name__} {one!r:.60})"
                )
        return frozenset(given)


@dataclass(frozen=True, slots=True)
class TimeToLive:
    """How long a thread stays that nobody uses.

    Attributes:
        minutes: Whole minutes without activity after which a thread goes with everything in it, at
            least 1. Activity is noted to the minute, so it goes up to a minute late, never early;
            one that is due and not gone yet reads as before, and stays if it becomes active. One
            that was read in this minute or the last is left to a later sweep.
        refresh_on_read: Whether a read of a thread counts as activity; a write always does.
    """

    minutes: int
    refresh_on_read: bool = False

    def __post_init__(self) -> None:
        if type(self.minutes) is not int:
            raise InvalidTypeError(
                f"TimeToLive(minutes={self.minutes!r:.60}): minutes must be an int "
                f"(got {type(self.minutes).__name__})"
            )
        if self.minutes < 1:
            raise InvalidArgumentError(
                f"TimeToLive(minutes={self.minutes}): minutes must be at least 1; "
                "use ttl=None to keep threads for ever"
            )
        if type(self.refresh_on_read) is not bool:
            raise InvalidTypeError(
                f"TimeToLive(refresh_on_read={self.refresh_on_read!r:.60}): refresh_on_read must "
                f"be a bool (got {type(self.refresh_on_read).__name__})"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Everything about an opening but its path.

    Attributes:
        bounds: See `SnapshotBounds`.
        durability: "full": a call returns when its commit is on disk. "normal": the same for a
            killed process; after an operating system crash the last commit may be undone.
            "relaxed": a write returns before its commit, which follows within milliseconds and is
            on disk then; see `deltastore.backlog`. Whoever reads through this opening sees it.
        read_only: Open beside a live writer; every write raises `ReadOnlyError`.
        refuse_forks: A put whose parent is not the newest checkpoint of its namespace raises
            `ForkRefusedError`. Checked at the commit, so of two writers that saw the same newest
            one, in any threads or processes, one gets through. It holds for puts of this opening
            alone, and refuses deliberate time travel too.
        value_cache_bytes: Bytes of serialized values kept to diff against, at least 0.
        header_cache_bytes: Bytes of decoded headers kept, at least 0; about 6 000 each in a chat.
        writes_cache_bytes: Bytes of decoded writes kept, at least 0.
        verify_bytes_max: Check the structure of a store file of up to this size before mapping it.
        max_bytes: What the store may take, at least 1 MiB: pages in use, or keys and values in
            memory; None for no bound. A put, a copy or a compaction that would take it beyond
            raises `QuotaExceededError` and stores nothing; the rest goes on. The data file exceeds
            the bound by a quarter or 16 MiB at most, whichever is more; a vacuum needs as much
            again while it runs. It holds for what this opening stores; openings of one path in one
            process must agree on it.
        slow_seconds: Operations that take as long are logged, at WARNING by `deltastore.slow`, at
            least 0; None for none.
        ttl: Threads that nobody uses for so long go by themselves, beside reads and writes of
            others; None keeps them. Of no effect in a read-only store.
        retention: What `Store.apply_retention` applies if it is given no policy. Nothing else
            applies it, but what it protects is protected from `ttl` too.
    """

    bounds: SnapshotBounds = SnapshotBounds()
    durability: Durability = "full"
    read_only: bool = False
    refuse_forks: bool = False
    value_cache_bytes: int = 64 << 20
    header_cache_bytes: int = 16 << 20
    writes_cache_bytes: int = 4 << 20
    verify_bytes_max: int = 16 << 20
    max_bytes: int | None = None
    slow_seconds: float | None = None
    ttl: TimeToLive | None = None
    retention: RetentionPolicy | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.bounds, SnapshotBounds):
            raise InvalidTypeError(
                f"bounds must be a SnapshotBounds (got {type(self.bounds).__name__})"
            )
        if self.durability not in DURABILITIES:
            raise InvalidArgumentError(
                f"durability must be one of {', '.join(DURABILITIES)} (got {self.durability!r})"
            )
        for name in ("read_only", "refuse_forks"):
            value = getattr(self, name)
            if type(value) is not bool:
                raise InvalidTypeError(f"{name} must be a bool (got {type(value).__name__})")
        if self.refuse_forks and self.durability == "relaxed":
            raise InvalidArgumentError(
                'refuse_forks needs durability "full" or "normal" (got "relaxed"): a put that is '
                "acknowledged before it is stored cannot be refused any more"
            )
        for name, least in (
            ("value_cache_bytes", 0),
            ("header_cache_bytes", 0),
            ("writes_cache_bytes", 0),
            ("verify_bytes_max", 0),
            ("max_bytes", MAX_BYTES_LEAST),
        ):
            value = getattr(self, name)
            if value is None and name == "max_bytes":
                continue
            if type(value) is not int:
                raise InvalidTypeError(f"{name} must be an int (got {type(value).__name__})")
            if value < least:
                raise InvalidArgumentError(f"{name} must be at least {least} (got {value})")
        self._check_slow()
        if self.ttl is not None and not isinstance(self.ttl, TimeToLive):
            raise InvalidTypeError(
                f"ttl must be a TimeToLive or None (got {type(self.ttl).__name__})"
            )
        if self.retention is not None and not isinstance(self.retention, RetentionPolicy):
            raise InvalidTypeError(
                f"retention must be a RetentionPolicy or None (got {type(self.retention).__name__})"
            )

    def _check_slow(self) -> None:
        seconds = self.slow_seconds
        if seconds is None:
            return
        if type(seconds) not in (int, float):
            raise InvalidTypeError(
                f"slow_seconds must be a number or None (got {type(seconds).__name__})"
            )
        if not 0 <= seconds < float("inf"):
            raise InvalidArgumentError(
                f"slow_seconds must be at least 0 and finite (got {seconds}); use None to log none"
            )

    @property
    def engine_durability(self) -> EngineDurability:
        """How durable the end of a transaction is; what was acknowledged is the backlog's."""
        return "full" if self.durability == "relaxed" else self.durability
