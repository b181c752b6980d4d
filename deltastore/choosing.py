"""Choose which checkpoints of a thread stay; what that means for the others is `dropping`'s.

A *choice* is made over the surveys of all of a thread's namespaces, as a subgraph's checkpoints
belong to those of the graph above it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Final, NamedTuple

from deltastore import ancestry, directory
from deltastore.anchors import OWN_CHANNELS, shown_channels
from deltastore.dropping import plan_drop
from deltastore.drops import StreamDrop
from deltastore.engine.api import Transaction
from deltastore.errors import InvalidArgumentError
from deltastore.format import layout
from deltastore.format.entries import DeletedMark
from deltastore.format.header import Header
from deltastore.format.writes import WritesRecord
from deltastore.ids import by_id, cid_from_id, cid_time_ms, id_from_cid
from deltastore.log import StreamReader
from deltastore.run_index import run_of
from deltastore.session import Session
from deltastore.survey import Node, survey
from deltastore.types import Cipher


class _Everything:
    """Contains whatever it is asked for."""

    def __contains__(self, _: object) -> bool:
        return True


_EVERYTHING: Final = _Everything()
ROOT: Final = ""  # the namespace of the graph itself


class Surveyed(NamedTuple):
    """A namespace's reader, what it holds, and what is known of what was deleted from it."""

    reader: StreamReader
    nodes: Mapping[bytes, Node]
    deleted: DeletedMark = DeletedMark()

    def cids(self) -> list[bytes]:
        """Return the checkpoints in the order of their ids."""
        found = [cid for cid, node in self.nodes.items() if node.kind == layout.KIND_HEADER]
        return by_id(found)

    def header(self, cid: bytes) -> Header:
        """Return a surveyed checkpoint's header."""
        entry = self.reader.entry(cid)
        assert entry is not None  # it was surveyed in this view
        return entry.header


@dataclass(slots=True)
class Choice:
    """What stays of one namespace.

    Attributes:
        keep: Checkpoints.
        writes: Writes of these that change; None for those that go.
        held: Checkpoints among these where writes stay that were to go, as others need them.
    """

    keep: set[bytes]
    writes: dict[tuple[bytes, int], WritesRecord | None] = field(default_factory=dict)
    held: set[bytes] = field(default_factory=set)


Choose = Callable[[Sequence[Surveyed]], list[Choice]]


def nothing(streams: Sequence[Surveyed]) -> list[Choice]:
    """Choose that nothing stays."""
    return [Choice(set()) for _ in streams]


def keep_newest(count: int, younger_than_ms: int | None) -> Choose:
    """Return a choice of the `count` newest checkpoints of each namespace, and of younger ones.

    The newest of a namespace always stays, but for namespaces of calls that no checkpoint that
    stays has made. Subgraphs also keep what a replay of a checkpoint that stays begins from.

    Args:
        younger_than_ms: Unix time in milliseconds; None keeps none for its age.
    """

    def choose(streams: Sequence[Surveyed]) -> list[Choice]:
        root: Surveyed | None = None
        kept: set[bytes] = set()
        for stream in streams:
            if stream.reader.stream.checkpoint_ns == ROOT:
                root, kept = stream, _newest(stream, stream.cids(), count, younger_than_ms)
        bounds = [] if root is None else _bounds(root, kept)
        chosen = []
        for stream in streams:
            cids = stream.cids()
            if stream is root:
                keep = kept
            elif root is not None and _is_over(stream, cids, root, kept):
                keep = set()
            else:
                keep = _newest(stream, cids, count, younger_than_ms) | _before(cids, bounds)
            chosen.append(Choice(keep))
        return chosen

    return choose


def _newest(
    stream: Surveyed, cids: Sequence[bytes], count: int, younger_than_ms: int | None
) -> set[bytes]:
    found = set(cids[-count:])
    if younger_than_ms is not None:
        for cid in cids:
            ms = _time_ms(stream, cid)
            if ms is None or ms >= younger_than_ms:
                found.add(cid)
    return found


def _time_ms(stream: Surveyed, cid: bytes) -> int | None:
    """Return when a checkpoint was made; None where neither its id nor its `ts` tells."""
    ms = cid_time_ms(cid)
    if ms is not None:
        return ms
    ts = str(stream.header(cid).fields.get("ts")).replace("Z", "+00:00")  # as Python 3.10 wants it
    try:
        at = datetime.fromisoformat(ts)
    except ValueError:
        return None
    return int((at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp() * 1_000)


def _bounds(stream: Surveyed, kept: Iterable[bytes]) -> list[str]:
    """Return the ids that subgraphs' checkpoints were before: of those that stay and their parents.

    A stateful subgraph goes on from its newest checkpoint before the one that calls it; with
    durability "exit" before that one's parent.
    """
    found: set[bytes] = set()
    for cid in kept:
        parent = stream.nodes[cid].parent
        found.update((cid, parent or cid))
    return [id_from_cid(cid) for cid in found]


def _before(cids: Sequence[bytes], bounds: Sequence[str]) -> set[bytes]:
    """Return the checkpoint of the greatest id below each bound."""
    places = (bisect_left(cids, bound, key=id_from_cid) for bound in bounds)
    return {cids[place - 1] for place in places if place > 0}


def _is_over(stream: Surveyed, cids: Sequence[bytes], root: Surveyed, kept: set[bytes]) -> bool:
    """Whether a namespace is of a single call, made by checkpoints that go or went.

    A caller that is not stored yet may still come.
    """
    if ":" not in stream.reader.stream.checkpoint_ns.rsplit("|", 1)[-1]:
        return False
    for cid in cids:
        parents = stream.header(cid).metadata.get("parents")
        caller = parents.get(ROOT) if isinstance(parents, dict) else None
        if not isinstance(caller, str):
            return False
        try:
            at = cid_from_id(caller)
        except InvalidArgumentError:
            return False
        is_stored = at in root.nodes and root.nodes[at].kind != 0
        if at in kept or not (is_stored or root.deleted.covers(at)):
            return False
    return True


def without_runs(run_ids: frozenset[str]) -> Choose:
    """Return a choice of everything that some runs did not put, without what they wrote elsewhere.

    Of a run's writes at checkpoints that stay, those stay that a child which stays is rebuilt from.
    """

    def choose(streams: Sequence[Surveyed]) -> list[Choice]:
        chosen = []
        for stream in streams:
            keep = {
                cid
                for cid, node in stream.nodes.items()
                if node.kind == layout.KIND_HEADER
                and run_of(stream.header(cid).metadata) not in run_ids
            }
            choice = Choice(keep)
            _choose_writes(stream, choice, run_ids)
            chosen.append(choice)
        return chosen

    return choose


def _choose_writes(stream: Surveyed, choice: Choice, run_ids: frozenset[str]) -> None:
    """Choose which of the runs' writes go from the checkpoints that stay."""
    keep = choice.keep
    children: dict[bytes, list[bytes]] = {}
    for cid in keep:
        parent = stream.nodes[cid].parent
        if parent in keep:
            children.setdefault(parent, []).append(cid)
    relied_on = _below_which_anchors_stand(stream, keep)
    for cid in keep:
        for suffix, record in stream.reader.own_writes(cid):
            if not record.runs() & run_ids:
                continue
            needless: Container[str] = _EVERYTHING
            if cid in relied_on:
                needless = ()
            elif cid in children:
                shown = [shown_channels(stream.header(child)) for child in children[cid]]
                needless = set.intersection(*shown) | OWN_CHANNELS
            of_runs = [row for row in record.rows if record.run_of(row) in run_ids]
            goes = [row for row in of_runs if row.channel in needless]
            if len(goes) < len(of_runs):
                choice.held.add(cid)
            if goes:
                rows = tuple(row for row in record.rows if row not in goes)
                choice.writes[cid, suffix] = record._replace(rows=rows) if rows else None


def _below_which_anchors_stand(stream: Surveyed, keep: set[bytes]) -> set[bytes]:
    """Return the checkpoints that stay and are the nearest such ancestor of an anchor."""
    found = set()
    for cid in keep:
        at, seen = stream.nodes[cid].parent, {cid}
        if at in keep:
            continue
        while at is not None and at not in keep and at not in seen and at in stream.nodes:
            seen.add(at)
            at = stream.nodes[at].parent
        if at in keep:
            found.add(at)
    return found


def plan_thread(
    session: Session,
    txn: Transaction,
    thread_id: str,
    choose: Choose,
    cipher: Cipher | None,
    *,
    recast: bool = False,
) -> list[StreamDrop]:
    """Plan what goes from each namespace of a thread; nothing of a thread that is not there.

    Args:
        recast: Make anchors anew even where no checkpoint goes.
    """
    entry = directory.find_thread(txn, thread_id)
    surveyed = []
    for stream in directory.streams(txn, thread_id):
        reader = session.reader(txn, stream, cipher)
        mark = None if entry is None else entry.mark_of(stream.checkpoint_ns)
        surveyed.append(Surveyed(reader, survey(reader), mark or DeletedMark()))
    return [
        plan_drop(
            reader,
            session.values,
            nodes,
            choice.keep,
            choice.writes,
            choice.held,
            is_crossed=ancestry.is_crossed(reader),
            recast=recast,
        )
        for (reader, nodes, _), choice in zip(surveyed, choose(surveyed), strict=True)
    ]
