"""What maintenance is about to do, or has done: plain records that print as one line or a few.

A plan of a dry run equals the one of the call that then does it, if nothing was stored meanwhile.
Bytes are those of records as stored, keys included; pages are the engine's affair.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_STEPS: Final = 1_000  # what one of several like pieces of work counts for

Progress = Callable[[int, int], None]
"""Called with the work done and the work there is, in records, between two transactions.

What it raises ends the call there, without harm: what is visible stays whole, and reclaiming goes
on at the next opening.
"""


def no_progress(done: int, total: int) -> None:
    """Take no notice of progress."""


def part_of(whole: Progress, index: int, count: int) -> Progress:
    """Return the progress of one of `count` like pieces of work, as a part of the whole."""
    if whole is no_progress:
        return no_progress

    def part(done: int, total: int) -> None:
        share = _STEPS * min(done, total) // total if total > 0 else 0
        whole(index * _STEPS + share, count * _STEPS)

    return part


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """What goes from one namespace.

    Attributes:
        checkpoint_ns: Which.
        kept: Checkpoints that stay.
        dropped: Ids of those that go, newest first.
        anchors: Ids of the anchors that stand afterwards, newest first.
        writes: Records of writes that go from checkpoints that stay, or whose checkpoint did not
            come within a day.
        records, bytes: What is freed, before the anchors' own.
        held: Ids at which something stays that was to go, since others need it, newest first: of
            checkpoints that go the anchors that are new, of others those with writes of a run.
    """

    checkpoint_ns: str
    kept: int
    dropped: tuple[str, ...]
    anchors: tuple[str, ...]
    writes: int
    records: int
    bytes: int
    held: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What goes from one thread; `deletes` if that is the thread itself."""

    thread_id: str
    deletes: bool
    streams: tuple[StreamPlan, ...]

    @property
    def kept(self) -> int:
        """Checkpoints that stay."""
        return sum(stream.kept for stream in self.streams)

    @property
    def checkpoints(self) -> int:
        """Checkpoints that go."""
        return sum(len(stream.dropped) for stream in self.streams)

    @property
    def anchors(self) -> int:
        """Anchors that stay in their place."""
        return sum(len(stream.anchors) for stream in self.streams)

    @property
    def records(self) -> int:
        """Records freed."""
        return sum(stream.records for stream in self.streams)

    @property
    def bytes(self) -> int:
        """Bytes freed."""
        return sum(stream.bytes for stream in self.streams)

    @property
    def is_empty(self) -> bool:
        """Whether nothing goes."""
        return not self.deletes and not any(s.dropped or s.writes for s in self.streams)

    def __str__(self) -> str:
        verb = "delete" if self.deletes else "prune"
        return (
            f"{verb} thread {self.thread_id!r}: {self.checkpoints} checkpoints go, {self.kept} "
            f"stay, {self.anchors} anchors, {self.bytes} bytes in {self.records} records freed"
        )


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What was copied; all zero where the source holds nothing."""

    source: str
    target: str
    namespaces: int = 0
    checkpoints: int = 0
    records: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        return (
            f"copy thread {self.source!r} to {self.target!r}: {self.checkpoints} checkpoints in "
            f"{self.namespaces} namespaces, {self.bytes} bytes in {self.records} records"
        )


@dataclass(frozen=True, slots=True)
class ChannelPlan:
    """What compaction does for one channel of one namespace.

    Attributes:
        thread_id, checkpoint_ns, channel: Which.
        snapshots: Stored values that are written again in fewer pieces.
        folded: Checkpoints and anchors that get a value folded from writes.
        skipped: Why nothing is folded although bounds are exceeded, e.g. no reducer; else empty.
        chain_max: Longest chain that a read of the channel follows before, in records.
        bytes: Bytes of what is written.
    """

    thread_id: str
    checkpoint_ns: str
    channel: str
    snapshots: int
    folded: int
    skipped: str
    chain_max: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What compaction does, channel by channel; only channels that exceed the bounds are listed."""

    channels: tuple[ChannelPlan, ...]

    @property
    def snapshots(self) -> int:
        """Values written again, and values folded."""
        return sum(one.snapshots + one.folded for one in self.channels)

    @property
    def bytes(self) -> int:
        """Bytes written."""
        return sum(one.bytes for one in self.channels)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return self.snapshots == 0

    def __str__(self) -> str:
        skipped = sum(1 for one in self.channels if one.skipped)
        return (
            f"compact {len(self.channels)} channels beyond their bounds: {self.snapshots} "
            f"snapshots, {self.bytes} bytes; {skipped} channels left as they are"
        )


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """Sizes of the data file before and after; `generation` names the new one."""

    generation: int
    bytes_before: int
    bytes_after: int
    free_bytes_before: int

    def __str__(self) -> str:
        return (
            f"vacuum: {self.bytes_before} bytes, {self.free_bytes_before} of them free, became "
            f"{self.bytes_after}"
        )


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What was copied: where to, how many keys of the engine, and the bytes of the new file."""

    target: str
    entries: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.entries} records, {self.bytes} bytes, now in {self.target}"


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What a policy did, or would do.

    Attributes:
        expired: Threads deleted because they were idle for too long.
        evicted: Threads deleted, longest idle first, to come under `max_bytes`.
        pruned: What went from the threads that stay.
        protected: Threads left alone by name.
    """

    expired: tuple[str, ...]
    evicted: tuple[str, ...]
    pruned: tuple[PrunePlan, ...]
    protected: int

    def __str__(self) -> str:
        gone = sum(plan.checkpoints for plan in self.pruned)
        return (
            f"retention: {len(self.expired)} threads expired, {len(self.evicted)} evicted, {gone} "
            f"checkpoints pruned from {len(self.pruned)} threads, {self.protected} protected"
        )
