"""Options a caller may set, each checked when it is made. Defaults fit a chat application.

`SnapshotBounds` is about behaviour (what a read may cost); the byte sizes are about memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from deltastore.errors import InvalidArgumentError, InvalidTypeError

Durability = Literal["full", "normal"]
DURABILITIES: Final = get_args(Durability)


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
class StoreOptions:
    """Everything about an opening but its path.

    Attributes:
        bounds: See `SnapshotBounds`.
        durability: "full": a call returns when its commit is on disk. "normal": the same for a
            killed process; after an operating system crash the last commit may be undone.
        read_only: Open beside a live writer; every write raises `ReadOnlyError`.
        value_cache_bytes: Bytes of serialized values kept to diff against, at least 0.
        header_cache_entries: Decoded headers kept, at least 64.
        writes_cache_bytes: Bytes of decoded writes kept, at least 0.
        verify_bytes_max: Check the structure of a store file of up to this size before mapping it.
    """

    bounds: SnapshotBounds = SnapshotBounds()
    durability: Durability = "full"
    read_only: bool = False
    value_cache_bytes: int = 64 << 20
    header_cache_entries: int = 4_096
    writes_cache_bytes: int = 4 << 20
    verify_bytes_max: int = 16 << 20

    def __post_init__(self) -> None:
        if not isinstance(self.bounds, SnapshotBounds):
            raise InvalidTypeError(
                f"bounds must be a SnapshotBounds (got {type(self.bounds).__name__})"
            )
        if self.durability not in DURABILITIES:
            raise InvalidArgumentError(
                f"durability must be one of {', '.join(DURABILITIES)} (got {self.durability!r})"
            )
        if type(self.read_only) is not bool:
            raise InvalidTypeError(
                f"read_only must be a bool (got {type(self.read_only).__name__})"
            )
        for name, least in (
            ("value_cache_bytes", 0),
            ("header_cache_entries", 64),
            ("writes_cache_bytes", 0),
            ("verify_bytes_max", 0),
        ):
            value = getattr(self, name)
            if type(value) is not int:
                raise InvalidTypeError(f"{name} must be an int (got {type(value).__name__})")
            if value < least:
                raise InvalidArgumentError(f"{name} must be at least {least} (got {value})")
