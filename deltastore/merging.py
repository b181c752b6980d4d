"""Shorten chains of deltas: which stored values are to be written again as snapshot points.

A value's identity is the digest of its bytes, so a record may be written again in its place and
nothing that refers to it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from deltastore.format.value import ValueRecord
from deltastore.log import StreamReader
from deltastore.options import SnapshotBounds
from deltastore.survey import Node

Place = tuple[bytes, int]  # cid and ordinal


@dataclass(slots=True)
class ChainPlan:
    """Values to be written again, bases first, and the longest chain there is now."""

    places: list[Place] = field(default_factory=list)
    chain_max: int = 0


@dataclass(frozen=True, slots=True)
class _Standing:
    """Where a value stands: deltas since the last point, before and after, and that one's depth."""

    before: int
    after: int
    point_depth: int


def plan_chains(
    reader: StreamReader, nodes: Mapping[bytes, Node], bounds: SnapshotBounds
) -> dict[str, ChainPlan]:
    """Return, by channel, which values exceed the bounds; only channels with such are there.

    Cost: every value's record and every header of the stream is decoded once, no value rebuilt.
    """
    plans = measure_chains(reader, nodes, bounds, channels_of(reader, nodes))
    return {channel: plan for channel, plan in plans.items() if plan.places}


def measure_chains(
    reader: StreamReader,
    nodes: Mapping[bytes, Node],
    bounds: SnapshotBounds,
    channels: Mapping[Place, str],
) -> dict[str, ChainPlan]:
    """Return the chains of every channel, "" for values that no header names any more.

    Cost: every value's record is decoded once.
    """
    standing: dict[Place, _Standing] = {}
    plans: dict[str, ChainPlan] = {}
    for cid, node in nodes.items():
        for ordinal in node.values:
            for place, record in _chain(reader, (cid, ordinal), standing):
                depth = nodes[place[0]].depth if place[0] in nodes else 0
                one = _stand(record, depth, standing, bounds)
                standing[place] = one
                plan = plans.setdefault(channels.get(place, ""), ChainPlan())
                plan.chain_max = max(plan.chain_max, one.before)
                if one.after == 0 and one.before:
                    plan.places.append(place)
    return plans


def channels_of(reader: StreamReader, nodes: Mapping[bytes, Node]) -> dict[Place, str]:
    """Return which channel each stored value was stored for."""
    found: dict[Place, str] = {}
    for cid, node in nodes.items():
        entry = reader.entry(cid) if node.kind else None
        if entry is not None:
            for channel, slot in entry.header.slots.items():
                if slot.value is not None:
                    found.setdefault((slot.value.cid, slot.value.ordinal), channel)
    return found


def _chain(
    reader: StreamReader, place: Place, known: Mapping[Place, _Standing]
) -> Iterable[tuple[Place, ValueRecord]]:
    """Return a value's record and those of its bases that are not known yet, bases first."""
    chain: list[tuple[Place, ValueRecord]] = []
    at: Place | None = place
    while at is not None and at not in known:
        record = reader.value(*at)
        chain.append((at, record))
        at = None if record.base is None else (record.base.cid, record.base.ordinal)
    return reversed(chain)


def _stand(
    record: ValueRecord, depth: int, known: Mapping[Place, _Standing], bounds: SnapshotBounds
) -> _Standing:
    base = record.base
    if base is None or base.updates == 0:
        return _Standing(0, 0, depth)
    below = known[base.cid, base.ordinal]
    before, after = below.before + 1, below.after + 1
    is_due = (bounds.updates is not None and after >= bounds.updates) or (
        bounds.supersteps is not None and depth - below.point_depth >= bounds.supersteps
    )
    return _Standing(before, 0, depth) if is_due else _Standing(before, after, below.point_depth)
