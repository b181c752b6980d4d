"""What goes from one stream: the plan that `dropping` makes and applies.

A *place* is where a value or a task's writes are: a cid, and an ordinal or the suffix of a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from deltastore.anchors import AnchorPlan
from deltastore.directory import Stream
from deltastore.format import layout
from deltastore.format.entries import DELETED_TEXT_IDS_MAX, DeletedMark, text_hash
from deltastore.format.header import ValueRef
from deltastore.format.value import ValueRecord
from deltastore.format.writes import WritesRecord
from deltastore.ids import FORM_ULID, by_id, id_from_cid
from deltastore.plans import StreamPlan
from deltastore.survey import Node

Place = tuple[bytes, int]


class Step(NamedTuple):
    """One thing to do.

    Attributes:
        kind: See `dropping`.
        cid, number: At which id, and the ordinal or suffix.
        records: How many records that writes or deletes, at most.
        ends: Whether nothing is to be done at the id afterwards.
    """

    kind: int
    cid: bytes
    number: int
    records: int
    ends: bool


@dataclass(slots=True)
class StreamDrop:
    """What goes from one stream, and what is written so that it can go.

    Attributes:
        nodes: The stream as it was surveyed.
        keep: Checkpoints that stay.
        order: Headers and older anchors that go, children before parents.
        anchors: By cid.
        values: Values to be stored anew, with the checksum of the record they take the place of,
            None for one that lay inline.
        moved: By cid, ordinals of values that lay inline and get records of their own.
        whole: Checkpoints that stay and are to be coded whole.
        recoded: Checksums of those that were, once they are.
        writes: Writes of checkpoints that stay which change; None for those that go.
        needed: Values in the place of what goes which others refer to.
        remains: Ids without a checkpoint where values were left earlier.
        early: Ids without a checkpoint whose writes go, as none came for them.
        held: Checkpoints where something stays that was to go, as others need it.
        is_crossed: Whether what goes may refer to values of what goes before it.
    """

    stream: Stream
    nodes: Mapping[bytes, Node]
    keep: frozenset[bytes]
    order: list[bytes] = field(default_factory=list)
    anchors: dict[bytes, AnchorPlan] = field(default_factory=dict)
    values: dict[Place, tuple[ValueRecord, int | None]] = field(default_factory=dict)
    moved: dict[bytes, list[int]] = field(default_factory=dict)
    whole: list[bytes] = field(default_factory=list)
    recoded: dict[bytes, int] = field(default_factory=dict)
    writes: dict[Place, WritesRecord | None] = field(default_factory=dict)
    needed: dict[Place, ValueRef] = field(default_factory=dict)
    remains: list[bytes] = field(default_factory=list)
    early: list[bytes] = field(default_factory=list)
    held: set[bytes] = field(default_factory=set)
    is_crossed: bool = False

    @property
    def dropped(self) -> list[bytes]:
        """Checkpoints that go, greatest id first."""
        gone = [cid for cid in self.order if self.nodes[cid].kind == layout.KIND_HEADER]
        return by_id(gone)[::-1]

    def mark(self) -> DeletedMark:
        """Return what is known of the checkpoints that go, once they are gone."""
        gone = [cid for cid in self.order if self.nodes[cid].kind == layout.KIND_HEADER]
        greatest = max((cid for cid in gone if cid[0] == FORM_ULID), default=b"")
        # Children come first: the newest are kept where there are too many.
        texts = [cid for cid in gone if cid[0] != FORM_ULID][:DELETED_TEXT_IDS_MAX]
        return DeletedMark(greatest, tuple(text_hash(cid) for cid in reversed(texts)))

    def pending(self) -> set[bytes]:
        """Return the ids at which others must store nothing before the plan is applied."""
        return {*self.order, *self.early, *(cid for cid, _ in self.writes)}

    def holds_early(self) -> bool:
        """Whether writes stay whose checkpoint may still come."""
        left = {
            cid
            for cid, node in self.nodes.items()
            if not node.kind and not node.values and not node.is_gap
        }
        return bool(left.difference(self.early))

    @property
    def is_empty(self) -> bool:
        """Whether nothing goes."""
        return not self.order and not self.writes and not self.early

    def summary(self) -> StreamPlan:
        """Return what is told of it."""
        records = size = 0
        for cid in {*self.order, *self.remains, *self.early}:
            node = self.nodes[cid]
            records += node.records
            size += node.bytes
        for cid, ordinal in self.needed:
            if cid in self.nodes and ordinal in self.nodes[cid].values:
                records -= 1
                size -= self.nodes[cid].values[ordinal]
        standing = sorted(map(id_from_cid, self.anchors), reverse=True)
        return StreamPlan(
            self.stream.checkpoint_ns,
            len(self.keep),
            tuple(map(id_from_cid, self.dropped)),
            tuple(standing),
            len(self.writes) + sum(self.nodes[cid].records for cid in self.early),
            records,
            size,
            tuple(map(id_from_cid, by_id(list(self.held))[::-1])),
        )
