"""The oracle with all of maintenance: what `retention_model` does, and copies, folds and vacuums.

Plain on purpose, as its bases are: stand-ins override one rule each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore.errors import InvalidArgumentError
from deltastore.plans import ChannelPlan, CompactionPlan, CopyReport
from deltastore.testing.model import Stream, Typed
from deltastore.testing.retention_calls import Reducer, replayed
from deltastore.testing.retention_model import RetentionModel


class MaintainedModel(RetentionModel):
    """The full-value oracle, maintained. Not for use.

    Args:
        reducers: Reducers of the delta channels that compaction folds.
    """

    def __init__(self, *, serde: Any = None, reducers: Mapping[str, Reducer] | None = None) -> None:
        super().__init__(serde=serde)
        self.reducers = dict(reducers or {})
        self.store = self

    def copy_thread(
        self, source_thread_id: str, target_thread_id: str, *, heads_only: bool = False
    ) -> Any:
        """Copy a thread whole, or the newest checkpoint of each namespace on its anchor."""
        source, target = source_thread_id, target_thread_id
        if source == target or any(stored for s, stored in self.streams.items() if s[0] == target):
            raise InvalidArgumentError(f"thread {target!r} is there already")
        streams = {s: dict(stored) for s, stored in self.streams.items() if s[0] == source}
        for stream, stored in streams.items():
            made = target, stream[1]
            self.streams[made] = stored
            self.anchors[made] = dict(self.anchors.get(stream, {}))
            self.deleted[made] = set(self.deleted.get(stream, ()))
            for cid in [*stored, *self.anchors[made]]:
                self.writes[made, cid] = dict(self.writes.get((stream, cid), {}))
                for key in self.writes[made, cid]:
                    place = (made, cid, *key)
                    self.run_of[place] = self.run_of.get((stream, cid, *key), "")
        if heads_only:
            copied = {(target, s[1]): [*stored] for s, stored in streams.items() if stored}
            self._drop(self._kept(copied, None, None), dry_run=False)
        count = sum(len(self.streams[target, s[1]]) for s in streams)
        return CopyReport(source, target, len(streams), count)

    def compact(
        self, thread_id: str | None = None, bounds: Any = None, *, dry_run: bool = False
    ) -> CompactionPlan:
        """Give each checkpoint with too long a history its folded value."""
        plans = []
        most = getattr(bounds, "updates", None) or 200
        for stream in self.streams:
            if thread_id is not None and stream[0] != thread_id:
                continue
            for channel, reducer in self.reducers.items():
                folded = self._folded(stream, channel, reducer, most)
                if folded and not dry_run:
                    for cid, value in folded.items():
                        self._show(stream, cid, channel, value)
                if folded:
                    plans.append(ChannelPlan(*stream, channel, 0, len(folded), "", most + 1, 0))
        return CompactionPlan(tuple(plans))

    def _folded(
        self, stream: Stream, channel: str, reducer: Reducer, most: int
    ) -> dict[str, Typed]:
        found: dict[str, Typed] = {}
        for cid in self.streams[stream]:
            told = self.get_tuple(self._config(stream, cid))
            if told is None or channel in told.checkpoint["channel_values"]:
                continue
            entry = self.get_delta_channel_history(config=told.config, channels=[channel])[channel]
            writes = [write[2] for write in entry["writes"]]
            if len(writes) >= most:
                seed = entry.get("seed")
                base = seed.value if isinstance(seed, _DeltaSnapshot) else seed
                value = replayed(base, writes, reducer)
                found[cid] = self.serde.dumps_typed(_DeltaSnapshot(value))
        return found

    def _show(self, stream: Stream, cid: str, channel: str, value: Typed) -> None:
        """Let a checkpoint show the value its history gives."""
        self.streams[stream][cid].values[channel] = value

    def vacuum(self) -> None:
        """Nothing is wasted here."""

    async def acopy_thread(self, *arguments: Any, **how: Any) -> Any:
        """As `copy_thread`."""
        return self.copy_thread(*arguments, **how)

    async def acompact(self, *arguments: Any, **how: Any) -> Any:
        """As `compact`."""
        return self.compact(*arguments, **how)
