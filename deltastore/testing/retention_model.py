"""The oracle with anchors: a full-value saver that prunes and forgets runs.

What survives keeps its own copy of each value it shows, so only histories and late puts can be hurt
by dropping checkpoints; anchors are for these. Every rule is a small method, so that a broken
stand-in overrides one. As plain as its base, and as slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
)

from deltastore.errors import InvalidArgumentError, NeededRunError, PrunedCheckpointError
from deltastore.ids import cid_from_id, cid_time_ms
from deltastore.plans import PrunePlan, StreamPlan
from deltastore.testing.model import ModelSaver, StoredWrite, Stream, Typed

LANGGRAPHS_OWN: Final = {
    *("__start__", "__input__", "__pregel_tasks", "__error__", "__error_source_node__"),
    *("__interrupt__", "__resume__", "__scheduled__", "__no_writes__", "__return__"),
    "__previous__",
}


@dataclass(slots=True)
class Anchor:
    """What stands for a checkpoint that went; its own writes stay where all writes are."""

    parent: str | None
    header: Mapping[str, Any]
    metadata: Mapping[str, Any]
    seeds: dict[str, Typed] = field(default_factory=dict)
    older: list[StoredWrite] = field(default_factory=list)
    skipped: set[str] = field(default_factory=set)
    left_out: set[str] = field(default_factory=set)


def _is_folded(anchor: Anchor, channel: str) -> bool:
    return channel not in LANGGRAPHS_OWN and channel not in anchor.skipped


class RetentionModel(ModelSaver):
    """The full-value oracle, maintained. Not for use."""

    def __init__(self, *, serde: Any = None) -> None:
        super().__init__(serde=serde)
        self.anchors: dict[Stream, dict[str, Anchor]] = {}
        self.run_of: dict[tuple[Stream, str, str, int], str] = {}

    # -- what savers do ---------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As the base; also refuse what is built on dropped checkpoints and does not read."""
        stream = self._stream(config)
        parent = config["configurable"].get("checkpoint_id") or None
        anchors = self.anchors.get(stream, {})
        if checkpoint["id"] in anchors or "__pruned__" in checkpoint["versions_seen"]:
            raise PrunedCheckpointError(f"checkpoint {checkpoint['id']!r} stands on a pruned one")
        if parent in anchors:
            self._check_put_on_anchor(stream, anchors[parent], checkpoint, new_versions)
            gone = self.deleted.get(stream, set())
            gone.discard(parent)
            try:
                return super().put(config, checkpoint, metadata, new_versions)
            finally:
                gone.add(parent)
        return super().put(config, checkpoint, metadata, new_versions)

    def _check_put_on_anchor(
        self, stream: Stream, anchor: Anchor, checkpoint: Checkpoint, new_versions: ChannelVersions
    ) -> None:
        """Raise unless all the checkpoint carries over reads, and all it asks history for."""
        values = checkpoint["channel_values"]
        held = [stored.versions for stored in self.streams.get(stream, {}).values()]
        for channel, version in checkpoint["channel_versions"].items():
            known = any(versions.get(channel) == version for versions in held)
            if channel not in new_versions and channel not in values and not known:
                raise PrunedCheckpointError(f"channel {channel!r} carries a version that went")
        for channel in anchor.left_out:
            if channel not in values:
                raise PrunedCheckpointError(f"channel {channel!r} is no longer in the history")

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """As the base; also note whose run they are."""
        stream, cid = self._stream(config), config["configurable"]["checkpoint_id"]
        before = dict(self.writes.get((stream, cid), {}))
        super().put_writes(config, writes, task_id, task_path)
        told: Mapping[str, Any] = {**config["configurable"], **(config.get("metadata") or {})}
        for key, write in self.writes.get((stream, cid), {}).items():
            # Said again, it is still the first one's: an interrupt must outlive a run that met it.
            if key not in before or before[key].value != write.value:
                place = (stream, cid, *key)
                self.run_of[place] = str(told.get("run_id", ""))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As the base; an anchor shows its seeds, its folded writes and no versions."""
        stream, cid = self._stream(config), config["configurable"].get("checkpoint_id")
        anchor = self.anchors.get(stream, {}).get(cid) if cid else None
        if anchor is None or cid is None:
            return super().get_tuple(config)
        checkpoint: Any = {
            **anchor.header,
            "channel_values": {c: self.serde.loads_typed(v) for c, v in anchor.seeds.items()},
            "channel_versions": {},
            "versions_seen": {"__pruned__": {"id": cid}},
        }
        metadata: Any = {**anchor.metadata, "parents": {}, "deltastore_anchor": True}
        parent = None if anchor.parent is None else self._config(stream, anchor.parent)
        pending = [*self._pending(stream, cid)]
        return CheckpointTuple(self._config(stream, cid), checkpoint, metadata, parent, pending)

    def _pending(self, stream: Stream, cid: str) -> Sequence[PendingWrite]:
        own = super()._pending(stream, cid)
        anchor = self.anchors.get(stream, {}).get(cid)
        older = anchor.older if anchor is not None else []
        return [*((w.task_id, w.channel, self.serde.loads_typed(w.value)) for w in older), *own]

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """As the base class: anchors are read like checkpoints."""
        return BaseCheckpointSaver.get_delta_channel_history(self, config=config, channels=channels)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """As `get_delta_channel_history`."""
        return self.get_delta_channel_history(config=config, channels=channels)

    def delete_thread(self, thread_id: str) -> None:
        """As the base, anchors included."""
        super().delete_thread(thread_id)
        for stream in [s for s in self.anchors if s[0] == str(thread_id)]:
            self.deleted.setdefault(stream, set()).update(self.anchors.pop(stream))

    # -- maintenance ------------------------------------------------------------------------

    def prune(
        self,
        thread_ids: Sequence[str],
        *,
        strategy: str = "keep_latest",
        keep_last: int | None = None,
        older_than: timedelta | None = None,
        dry_run: bool = False,
    ) -> Any:
        """Drop all but the newest checkpoints; what the kept ones need becomes anchors."""
        if strategy not in {"keep_latest", "delete", "delete_all"}:
            raise InvalidArgumentError(f"strategy {strategy!r}")
        if older_than is not None and older_than < timedelta(0):
            raise InvalidArgumentError(f"older_than {older_than}")
        if keep_last is not None and keep_last < 1:
            raise InvalidArgumentError(f"keep_last {keep_last}")
        plans = []
        for thread_id in dict.fromkeys(thread_ids):
            streams = {s: [*stored] for s, stored in self.streams.items() if s[0] == thread_id}
            deletes = strategy != "keep_latest"
            kept = {} if deletes else self._kept(streams, keep_last, older_than)
            rows = self._drop({s: kept.get(s, set()) for s in streams}, dry_run=dry_run)
            plans.append(PrunePlan(thread_id, deletes and bool(streams), rows))
            if deletes and not dry_run:
                self.delete_thread(thread_id)
        return plans

    def _kept(
        self,
        streams: Mapping[Stream, Sequence[str]],
        keep_last: int | None,
        older_than: timedelta | None,
    ) -> dict[Stream, set[str]]:
        """Return the ids that stay, by stream."""
        kept: dict[Stream, set[str]] = {}
        now = datetime.now(tz=timezone.utc).timestamp() * 1000
        for stream, ids in streams.items():
            newest = sorted(ids)[-keep_last if keep_last else -1 :]
            if older_than is not None and keep_last is None:
                newest = sorted(ids)[-1:]
            kept[stream] = set(newest)
            if older_than is not None:
                born = {cid: cid_time_ms(cid_from_id(cid)) or now for cid in ids}
                bound = now - older_than.total_seconds() * 1000
                kept[stream] |= {cid for cid in ids if born[cid] >= bound}
        for (thread_id, ns), ids in streams.items():
            root = thread_id, ""
            if ns and root in streams:
                self._keep_subgraph((thread_id, ns), ids, kept, kept[root])
        return kept

    def _keep_subgraph(
        self, stream: Stream, ids: Sequence[str], kept: dict[Stream, set[str]], roots: set[str]
    ) -> None:
        """Keep what the subgraph had before each kept root checkpoint and before its parent."""
        called_by = {self._metadata(stream, cid).get("parents", {}).get("") for cid in ids}
        above = stream[0], ""
        called_by -= {*self.streams.get(above, {}), *self.deleted.get(above, ())} - roots
        if ":" in stream[1] and not called_by:
            kept[stream] = set()
            return
        for root in roots:
            parent = self.streams[stream[0], ""][root].parent
            for bound in (root, parent):
                before = [cid for cid in ids if bound is not None and cid < bound]
                kept[stream] |= {max(before)} if before else set()

    def _metadata(self, stream: Stream, cid: str) -> dict[str, Any]:
        return dict(self.serde.loads_typed(self.streams[stream][cid].metadata))

    def delete_for_runs(
        self, run_ids: Sequence[str], *, refuse: bool = False, dry_run: bool = False
    ) -> Any:
        """Drop the checkpoints of runs, and their writes where no living checkpoint needs them."""
        runs = {*run_ids}
        kept: dict[Stream, set[str]] = {}
        for stream, stored in self.streams.items():
            kept[stream] = {
                cid for cid in stored if self._metadata(stream, cid).get("run_id") not in runs
            }
        plans, writes = [], {w for w, run in self.run_of.items() if run in runs}
        for thread_id in dict.fromkeys(stream[0] for stream in self.streams):
            mine = {s: ids for s, ids in kept.items() if s[0] == thread_id}
            rows = self._drop(mine, dry_run=True, writes=writes)
            plans.append(PrunePlan(thread_id, not any(mine.values()), rows))
        if refuse and any({*s.anchors} & {*s.dropped} for plan in plans for s in plan.streams):
            raise NeededRunError("living checkpoints need writes of these runs")
        if not dry_run:
            self._drop(kept, dry_run=False, writes=writes)
        return [plan for plan in plans if not plan.is_empty]

    def _drop(
        self,
        kept: Mapping[Stream, set[str]],
        *,
        dry_run: bool,
        writes: Iterable[tuple[Stream, str, str, int]] = (),
    ) -> tuple[StreamPlan, ...]:
        """Drop all that is not kept, with anchors in place of what kept checkpoints stand on."""
        rows = []
        for stream, ids in sorted(kept.items()):
            stored = self.streams.get(stream, {})
            dropped = sorted(stored.keys() - ids, reverse=True)
            anchors = self._anchors_for(stream, ids)
            needed = {stored[cid].parent for cid in ids} | {a.parent for a in anchors.values()}
            freed = [w for w in writes if w[0] == stream and self._goes(w[1], ids, needed)]
            standing = tuple(sorted(anchors, reverse=True))
            rows.append(StreamPlan(stream[1], len(ids), tuple(dropped), standing, len(freed), 0, 0))
            if not dry_run:
                self._apply(stream, dropped, anchors, freed)
        return tuple(row for row in rows if row.dropped or row.kept or row.writes)

    def _goes(self, cid: str, kept: set[str], needed: set[str | None]) -> bool:
        """Return whether a deleted run's writes go from a checkpoint."""
        return cid in kept and cid not in needed

    def _apply(
        self,
        stream: Stream,
        dropped: Sequence[str],
        anchors: dict[str, Anchor],
        freed: Sequence[tuple[Stream, str, str, int]],
    ) -> None:
        for _, cid, task_id, idx in freed:
            self.writes.get((stream, cid), {}).pop((task_id, idx), None)
        gone = {*dropped, *self.anchors.get(stream, {})}
        for cid in gone:
            self.streams[stream].pop(cid, None)
            own = self.writes.pop((stream, cid), {})
            if cid in anchors:
                kept = {k: w for k, w in own.items() if _is_folded(anchors[cid], w.channel)}
                self.writes[stream, cid] = kept
        self.deleted.setdefault(stream, set()).update(gone)
        self.anchors[stream] = anchors

    def _anchors_for(self, stream: Stream, kept: set[str]) -> dict[str, Anchor]:
        """Return the anchors that stand under the kept checkpoints, folded anew."""
        stored, old = self.streams.get(stream, {}), self.anchors.get(stream, {})
        children: dict[str, list[str]] = {}
        for cid in sorted(kept):
            parent = stored[cid].parent
            if parent is not None and parent not in kept and (parent in stored or parent in old):
                children.setdefault(parent, []).append(cid)
        return {cid: self._fold(stream, cid, kept, own) for cid, own in children.items()}

    def _fold(self, stream: Stream, cid: str, kept: set[str], children: Sequence[str]) -> Anchor:
        """Walk up over what goes: per channel the writes, oldest first, and where they begin."""
        stored, old = self.streams.get(stream, {}), self.anchors.get(stream, {})
        made = self._bare_anchor(stream, cid)
        made.skipped = self._names_skipped([{*stored[child].values} for child in children])
        here, visited, seen, found = cid, set[str](), set[str](), made.seeds
        while here not in visited and here not in kept and (here in stored or here in old):
            visited.add(here)
            above = old.get(here)
            own = self._order(self.writes.get((stream, here), {}).values())
            chain = [*(above.older if above is not None else []), *(own if here != cid else [])]
            made.older[:0] = [
                w for w in chain if _is_folded(made, w.channel) and w.channel not in found
            ]
            values = above.seeds if above is not None else stored[here].values
            seen |= {*values, *(write.channel for write in chain)}
            made.left_out |= (above.left_out if above is not None else set()) - found.keys()
            for channel in values.keys() - found.keys():
                if _is_folded(made, channel):
                    found[channel] = values[channel]
            here = (above.parent if above is not None else stored[here].parent) or ""
        made.left_out |= made.skipped & seen
        made.parent = here if here in kept else None
        return made

    def _names_skipped(self, shown: Sequence[set[str]]) -> set[str]:
        """Return the channels not folded: those every kept child shows itself."""
        return set.intersection(*shown)

    def _bare_anchor(self, stream: Stream, cid: str) -> Anchor:
        old = self.anchors.get(stream, {}).get(cid)
        if old is not None:
            return Anchor(None, old.header, old.metadata)
        header = self.serde.loads_typed(self.streams[stream][cid].header)
        told = self._metadata(stream, cid)
        kept: dict[str, Any] = {key: told[key] for key in ("source", "step") if key in told}
        return Anchor(None, {key: header[key] for key in ("v", "ts", "id")}, kept)

    async def aprune(self, *arguments: Any, **how: Any) -> Any:
        """As `prune`."""
        return self.prune(*arguments, **how)

    async def adelete_for_runs(self, *arguments: Any, **how: Any) -> Any:
        """As `delete_for_runs`."""
        return self.delete_for_runs(*arguments, **how)
