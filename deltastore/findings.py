"""What checking a store finds: plain records that print as one line and fit in JSON.

A *finding* is one thing that is not as it was written, as close to its place as is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from deltastore.errors import CorruptionError, DecryptionError
from deltastore.format import layout
from deltastore.format.frame import HINT

Level = Literal["records", "references"]
STRUCTURE: Final = "structure"
RECORDS: Final = "records"
REFERENCES: Final = "references"
LEVELS: Final[tuple[Level, ...]] = (RECORDS, REFERENCES)

KIND_NAMES: Final = {
    layout.KIND_HEADER: "header",
    layout.KIND_VALUE: "value",
    layout.KIND_WRITES: "writes",
    layout.KIND_ANCHOR: "anchor",
    layout.KIND_FOLDED: "folded writes",
    layout.KIND_STORE: "store",
    layout.KIND_THREAD: "thread",
    layout.KIND_NAME: "name",
    layout.KIND_SECRET: "secret",
    layout.KIND_MARK: "mark",
    layout.KIND_DROPPED: "dropped",
    layout.KIND_WATCH: "watch",
    layout.KIND_LEASE: "lease",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it was written.

    Attributes:
        level: Which check found it: "structure" walks the pages of the file, "records" looks at
            each record by itself, "references" at what records say of one another.
        message: What is wrong.
        thread_id, checkpoint_ns, checkpoint_id, channel: Where; None where that is not known.
        kind: Of the record that was looked at, a name of `KIND_NAMES`; None for none.
        key: Of the record that is wrong or missing, in hexadecimal; None for none.
    """

    level: Level | Literal["structure"]
    message: str
    thread_id: str | None = None
    checkpoint_ns: str | None = None
    checkpoint_id: str | None = None
    channel: str | None = None
    kind: str | None = None
    key: str | None = None

    def __str__(self) -> str:
        place = [
            f"{name} {value!r}"
            for name, value in (
                ("thread", self.thread_id),
                ("namespace", self.checkpoint_ns),
                ("checkpoint", self.checkpoint_id),
                ("channel", self.channel),
            )
            if value is not None
        ]
        if self.key is not None:
            place.append(f"{self.kind or 'record'} {self.key}")
        return f"{self.message} ({', '.join(place)})" if place else self.message


def finding_of(
    error: CorruptionError,
    level: Level,
    kind: int | None = None,
    *,
    key: bytes | None = None,
    channel: str | None = None,
    checkpoint_id: str | None = None,
) -> Finding:
    """Return what an error tells.

    Args:
        key: Of the record that was looked at, if the error does not name one.
        checkpoint_id: What was looked at; where the error is about another checkpoint, this one
            does not rebuild because of that.
    """
    message = error.message.removesuffix(HINT)
    if checkpoint_id is not None and error.checkpoint_id not in (None, checkpoint_id):
        message = f"it does not rebuild: {message} at checkpoint {error.checkpoint_id!r}"
    return Finding(
        level,
        message,
        error.thread_id,
        error.checkpoint_ns,
        checkpoint_id if checkpoint_id is not None else error.checkpoint_id,
        channel,
        None if kind is None else KIND_NAMES[kind],
        error.record or (None if key is None else key.hex()),
    )


@dataclass(slots=True)
class Report:
    """What a check found.

    Attributes:
        levels: What was checked.
        records: Records of the log read.
        checkpoints: Checkpoints among them.
        damage: Everything that is not as it was written; empty for a sound store.
        undecodable: Records that only another cipher opens; they are not damage.
        is_walked: Whether the structure of the file was walked before it was mapped; it is not
            while a process has the store open.
        gaps: Places of checkpoints that a repair could not keep; reading their history raises
            `BrokenChainError`. They are not damage any more.
    """

    levels: tuple[Level, ...] = LEVELS
    records: int = 0
    checkpoints: int = 0
    damage: list[Finding] = field(default_factory=list)
    undecodable: int = 0
    gaps: int = 0
    is_walked: bool = False

    @property
    def is_sound(self) -> bool:
        """Whether nothing was found."""
        return not self.damage

    def __str__(self) -> str:
        found = f"{len(self.damage)} findings" if self.damage else "sound"
        return (
            f"verify {' and '.join(self.levels)}: {self.checkpoints} checkpoints in {self.records} "
            f"records, {self.undecodable} not decoded, {self.gaps} gaps: {found}"
        )

    @contextmanager
    def noting(
        self,
        level: Level,
        kind: int | None = None,
        *,
        key: bytes | None = None,
        channel: str | None = None,
        checkpoint_id: str | None = None,
    ) -> Iterator[None]:
        """Note the damage that ends the block, and go on after it; see `finding_of`."""
        try:
            yield
        except CorruptionError as error:
            found = finding_of(
                error, level, kind, key=key, channel=channel, checkpoint_id=checkpoint_id
            )
            self.damage.append(found)
        except DecryptionError:
            self.undecodable += 1


@dataclass(slots=True)
class RepairReport:
    """What a repair made, and what it could not keep.

    Attributes:
        target: The new store.
        threads, checkpoints, records: What it holds.
        gaps: Places of lost checkpoints that kept ones stand on: their history raises
            `BrokenChainError` from there on.
        lost: Everything that was not kept, and why: checkpoints by id where that is known, else
            ranges of what unreadable pages may have held.
    """

    target: str
    threads: int = 0
    checkpoints: int = 0
    records: int = 0
    gaps: int = 0
    lost: list[Finding] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"repair into {self.target}: {self.checkpoints} checkpoints of {self.threads} threads "
            f"kept, {self.gaps} gaps, {len(self.lost)} losses"
        )
