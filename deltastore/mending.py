"""Take out of one stream what does not rebuild, so that what is left is sound.

For a repair, on a copy of the store: a checkpoint stays if its header decodes, every value it shows
rebuilds, and none of its writes may be missing. Where one goes on which another stands, a *gap*
takes its place. What others need of one that goes stays behind: values as remains, writes that
values are coded against. Nothing is made up: a lost value is not replaced by an older one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from deltastore import ancestry, log, run_index
from deltastore.errors import CorruptionError, DecryptionError
from deltastore.findings import RECORDS, Finding, finding_of
from deltastore.format import keys, layout
from deltastore.format.entries import DeletedMark
from deltastore.format.value import ValueRecord
from deltastore.ids import id_from_cid
from deltastore.log import StreamReader
from deltastore.losses import Losses
from deltastore.reconstruct import whole_rows
from deltastore.run_index import run_of
from deltastore.survey import Node, survey
from deltastore.values import Values


@dataclass(slots=True)
class Mended:
    """What was taken out of a stream.

    Attributes:
        lost: By cid, why.
        mark: What counts as deleted from now on, so that nothing is put on what is lost.
        is_vague: Whether checkpoints of unknown ids may be lost as well.
    """

    lost: dict[bytes, Finding] = field(default_factory=dict)
    mark: DeletedMark = field(default_factory=DeletedMark)
    is_vague: bool = False


def mend_stream(
    reader: StreamReader, values: Values, losses: Losses, forced: Mapping[bytes, Finding]
) -> Mended:
    """Take out what does not rebuild, in a write transaction.

    Args:
        losses: Of the whole store.
        forced: Checkpoints that go whatever is found.

    Cost: every value is rebuilt. Memory: about 300 bytes a checkpoint.
    """
    nodes = survey(reader)
    named = {*nodes, *(node.parent for node in nodes.values() if node.parent is not None)}
    mending = _Mending(reader, values, nodes, losses.in_stream(reader.stream.prefix, named))
    mending.lost.update(forced)
    mending.judge()
    mending.free_children()
    mending.free_sources()
    mending.drop()
    mending.put_gaps()
    mending.note_runs()
    if mending.lost or mending.losses.found:
        # A mark may be gone, or what it was about: hints are not relied on here any more.
        ancestry.mark_unhinted(reader)
        ancestry.mark_crossed(reader)
    mark = DeletedMark()
    for cid in sorted(mending.lost):
        mark = mark.with_deleted(cid)
    is_vague = any(not loss.is_single() for loss in mending.losses.found)
    return Mended(mending.lost, mark, is_vague)


@dataclass(slots=True)
class _Mending:
    reader: StreamReader
    values: Values
    nodes: dict[bytes, Node]
    losses: Losses
    lost: dict[bytes, Finding] = field(default_factory=dict)
    sources: set[tuple[bytes, int]] = field(default_factory=set)
    dead: list[bytes] = field(default_factory=list)  # keys of values that do not rebuild

    def judge(self) -> None:
        """Find out what goes: parents before children."""
        prefix = self.reader.stream.prefix
        for cid, node in sorted(self.nodes.items(), key=lambda item: item[1].depth):
            if cid in self.lost or node.is_gap:
                continue
            reason = self.losses.reason_at(prefix, cid, is_stored=bool(node.kind))
            if reason is not None and (node.kind or self._has_header_lost(cid)):
                self._lose(cid, reason)
            elif node.kind:
                self._judge(cid)
            else:
                self._judge_writes(cid)
        for cid, node in self.nodes.items():
            for ordinal in node.values:
                self._judge_value(cid, ordinal)
        for node in self.nodes.values():
            parent = node.parent
            if node.kind and parent and node.parent_stored and self._is_absent(parent):
                self._lose(parent, "its record is gone")

    def _has_header_lost(self, cid: bytes) -> bool:
        at = keys.header_key(self.reader.stream.prefix, cid)
        return self.losses.meet(at, at + b"\x00")

    def _is_absent(self, cid: bytes) -> bool:
        node = self.nodes.get(cid)
        return cid not in self.lost and (node is None or (not node.kind and not node.is_gap))

    def _lose(self, cid: bytes, why: str) -> None:
        self._lose_for(cid, CorruptionError(why))

    def _lose_for(self, cid: bytes, error: CorruptionError, channel: str | None = None) -> None:
        if cid not in self.lost:
            self.reader.locate(error, cid)
            at = id_from_cid(cid)
            self.lost[cid] = finding_of(error, RECORDS, channel=channel, checkpoint_id=at)

    def _judge(self, cid: bytes) -> None:
        reader = self.reader
        channel: str | None = None
        try:
            entry = reader.entry(cid)
            assert entry is not None  # it was surveyed in this transaction
            header = entry.header
            for channel in (*header.versions, *header.slots):
                slot = header.slots.get(channel)
                if slot is None:
                    raise CorruptionError("the channel has no slot")
                if slot.value is not None:
                    self.values.load(reader, slot.value)
            channel = None
            for _, record in reader.writes(cid):
                whole_rows(reader, self.values, cid, record)
        except CorruptionError as error:
            self._lose_for(cid, error, channel)
        except DecryptionError:
            self._judge_undecoded(cid)

    def _judge_undecoded(self, cid: bytes) -> None:
        """Keep what another cipher wrote, unless it is coded against what goes."""
        node = self.nodes[cid]
        if node.is_difference and node.parent is not None:
            above = self.nodes.get(node.parent)
            if node.parent in self.lost or above is None or not above.kind:
                self._lose(cid, "it is coded against a checkpoint that is lost, and encrypted")

    def _judge_writes(self, cid: bytes) -> None:
        try:
            for _, record in self.reader.writes(cid):
                whole_rows(self.reader, self.values, cid, record)
        except CorruptionError as error:
            self._lose_for(cid, error)
        except DecryptionError:
            pass

    def _judge_value(self, cid: bytes, ordinal: int) -> None:
        try:
            base = self.reader.value(cid, ordinal).base
            self.values.rebuild(self.reader, cid, ordinal)
        except CorruptionError:
            self.dead.append(keys.value_key(self.reader.stream.prefix, cid, ordinal))
            return
        except DecryptionError:
            return
        if base is not None:
            self.sources.update((source.cid, source.suffix) for source in base.sources)

    def free_children(self) -> None:
        """Code whole what is coded against what goes, and give its inline values records."""
        reader = self.reader
        for cid, node in self.nodes.items():
            if (
                node.kind
                and cid not in self.lost
                and node.is_difference
                and node.parent in self.lost
            ):
                entry = reader.entry(cid)
                assert entry is not None  # it was judged
                log.put_header(reader, cid, entry.header, None)
        for cid in self.lost:
            node = self.nodes.get(cid, Node())
            if not node.kind:
                continue
            try:
                entry = reader.entry(cid)
            except (CorruptionError, DecryptionError):
                continue
            assert entry is not None
            for ordinal, typed in entry.header.inline.items():
                if ordinal not in node.values:
                    record = ValueRecord(typed.type, node.depth, None, typed.data)
                    log.put_value(reader, cid, ordinal, record)

    def free_sources(self) -> None:
        """Store whole what stays of the writes of what goes, and is coded against its values."""
        for cid, suffix in sorted(self.sources):
            key = keys.writes_key(self.reader.stream.prefix, cid, suffix)
            record = self.reader.txn.get(key) if cid in self.lost else None
            if record is not None:
                found = self.reader.decode_writes(key, record, cid)
                if any(row.base is not None for row in found.rows):
                    rows = whole_rows(self.reader, self.values, cid, found)
                    log.put_writes(self.reader, key, found._replace(rows=rows))

    def drop(self) -> None:
        """Delete what goes."""
        txn, prefix = self.reader.txn, self.reader.stream.prefix
        for cid in self.lost:
            at = prefix + cid
            for key in txn.scan_keys(at, keys.after(at)):
                place = keys.split(key)
                suffix = int.from_bytes(place.suffix, "big")
                stays = place.kind == layout.KIND_VALUE or (
                    place.kind == layout.KIND_WRITES and (cid, suffix) in self.sources
                )
                if not stays:
                    txn.delete(key)
        for key in self.dead:
            txn.delete(key)

    def put_gaps(self) -> None:
        """Put a gap in the place of each that goes and has a child that stays."""
        for cid, node in self.nodes.items():
            parent = node.parent
            if node.kind and cid not in self.lost and parent in self.lost and parent is not None:
                ancestry.put_gap(self.reader, parent, max(node.depth - 1, 0))

    def note_runs(self) -> None:
        """Name what stays in the index of runs."""
        reader = self.reader
        for cid, node in self.nodes.items():
            if cid in self.lost:
                continue
            try:
                runs = {run for one in reader.writes(cid) for run in one.record.runs()}
                entry = reader.entry(cid) if node.kind == layout.KIND_HEADER else None
            except DecryptionError:
                continue
            if entry is not None:
                runs.add(run_of(entry.header.metadata))
            for run_id in runs:
                run_index.note(reader.txn, reader.stream.thread, run_id, reader.cipher)
