"""A saver that is maintained and its untouched twin: what both are given, and how they compare.

The *twin* is a full-value model that gets the same puts and writes and is never pruned, copied or
compacted; what a deleted run wrote is taken from it where nothing living was built of it, and
threads deleted whole are deleted there too. A put *in flight* is one on a checkpoint that went
meanwhile: it is refused by name, or ends as the twin's.

The rules of a life are in `retention_machine`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS, _DeltaSnapshot

from deltastore.errors import DeletedParentError, PrunedCheckpointError
from deltastore.testing import Caller, Saver, listed_ids, make_checkpoint, make_config
from deltastore.testing.maintained_model import MaintainedModel
from deltastore.testing.model import Stream
from deltastore.testing.retention_calls import (
    OVERWRITE,
    Keeper,
    is_anchor,
    minute_id,
    reading,
    values_only,
)
from deltastore.testing.retention_model import LANGGRAPHS_OWN

STREAMS: Final = [("t", "")] * 9 + [("t", "sub"), ("t", "call:1"), ("t", "sub|in:9"), ("t0", "")]
TASK_PATHS: Final = {
    "t1": "~pull, b",
    "t2": "~pull, a",
    "00000000-0000": "",
    "ffffffff-1": "~~0000000001",
}
REFUSED: Final = (DeletedParentError, PrunedCheckpointError)

lists = st.lists(st.integers(0, 9), max_size=2)
log_writes = st.one_of(lists, lists, lists.map(lambda value: {OVERWRITE: value}))
plain_values: st.SearchStrategy[Any] = st.sampled_from(
    [None, 0, "", [], {}, "text" * 9, [1, 2, 3] * 9]
)
other_writes = st.tuples(
    st.sampled_from(["files", "plain", "branch:to:a", INTERRUPT, RESUME, ERROR, TASKS]),
    plain_values,
)
batches = st.lists(st.tuples(st.just("log"), log_writes) | other_writes, min_size=1, max_size=3)
runs = st.sampled_from(["", "r1", "r2", "r3"])


class MaintainedTwins(RuleBasedStateMachine):
    """A saver and its twin. Subclasses say how the saver is opened and closed."""

    def __init__(self) -> None:
        super().__init__()
        self.twin = MaintainedModel()
        self.untouched = Caller(lambda: self.twin)
        self.minute = 0.0
        self.alive: dict[Stream, set[str]] = {}
        self.dropped: dict[Stream, set[str]] = {}
        self.puts: dict[tuple[Stream, str], tuple[Any, ...]] = {}
        self.early: dict[Stream, list[str]] = {}
        self.copies = 0

    def open_saver(self, folding: bool) -> Saver:
        """Open a saver on an empty store; with the reducer of `log` if it may fold."""
        raise NotImplementedError

    def reopen_saver(self) -> None:
        """Close the saver and open its store again."""

    def close_saver(self) -> None:
        """Verify and close the saver."""

    @initialize(folding=st.booleans())
    def open(self, folding: bool) -> None:
        """Decide whether compaction knows the reducer."""
        self.folding = folding
        self.keeper = Keeper(lambda: self.open_saver(folding))

    def check(self) -> None:
        """Compare every survivor with the twin."""
        for stream, ids in self.alive.items():
            listed = self.keeper.list(make_config(*stream))
            assert sorted(ids, reverse=True) == listed_ids(listed)
            expected, found = {}, {}
            for told in listed:
                cid = told.config["configurable"]["checkpoint_id"]
                whole = self.twin.get_tuple(told.config)
                assert whole is not None
                expected[cid] = reading(self.untouched, whole)
                found[cid] = reading(self.keeper, told)
                parent = self.keeper.get_tuple(told.parent_config) if told.parent_config else None
                assert told.parent_config is None or parent is not None
            if self.folding:
                expected, found = values_only(expected), values_only(found)
            assert expected == found

    def _planned(self, data: st.DataObject, name: str, what: Sequence[str], **how: Any) -> None:
        """Call a method, perhaps dry at first; take from the living what its plans name."""
        call: Callable[..., Any] = getattr(self.keeper, name)
        dry = call(what, **how, dry_run=True) if data.draw(st.booleans()) else None
        if dry is not None:
            self.check()
        plans = call(what, **how)
        assert dry is None or dry == plans or "older_than" in how
        for plan in plans:
            for row in plan.streams:
                stream = plan.thread_id, row.checkpoint_ns
                assert {*row.dropped} <= self.alive.setdefault(stream, set())
                self.alive[stream] -= {*row.dropped}
                self.dropped.setdefault(stream, set()).update(row.dropped)
                assert not {*row.anchors} & self.alive[stream]
                assert row.kept == len(self.alive[stream])
                for cid in row.anchors:
                    found = self.keeper.get_tuple(make_config(*stream, cid))
                    assert found is not None
                    assert is_anchor(found)

    def _draw_stream(self, data: st.DataObject) -> Stream:
        # Few, and one above all: a life is short, and steps should meet.
        return data.draw(st.sampled_from([*STREAMS, *self.alive]))

    def _new_id(self, data: st.DataObject, stream: Stream) -> str:
        self.minute += 1
        odd = f"{data.draw(st.sampled_from(['a', 'Z', '1f', '0']))} {self.minute}"
        early = self.early.get(stream, [])
        kind = data.draw(st.sampled_from(["next"] * 6 + ["odd", "early"]))
        if kind == "early" and early:
            return early.pop()
        return odd if kind == "odd" else minute_id(self.minute)

    def _version(self) -> str:
        return f"{round(self.minute * 1000):032}.0.25"

    def _superstep(self, data: st.DataObject, stream: Stream, parent: str | None, run: str) -> str:
        if parent is not None:
            for task in data.draw(st.lists(st.sampled_from([*TASK_PATHS]), max_size=2)):
                self._write(stream, parent, data.draw(batches), task, TASK_PATHS[task], run)
        cid = self._new_id(data, stream)
        self._put_child(data, stream, cid, parent, run)
        return cid

    def _put_child(
        self,
        data: st.DataObject,
        stream: Stream,
        cid: str,
        parent: str | None,
        run: str,
        *,
        sure: bool = True,
    ) -> None:
        """Put a child of a checkpoint; each channel is set, emptied, left as it is or dropped."""
        found = self.twin.get_tuple(make_config(*stream, parent)) if parent is not None else None
        held: Any = found.checkpoint["channel_versions"] if found else {}
        new: dict[str, Any] = {}
        values: dict[str, Any] = {}
        carried = dict(held)
        for channel, changes in (
            ("log", ["empty", "empty", "empty", "keep", "snapshot"]),
            ("files", ["empty", "keep", "set"]),
            ("plain", ["set", "keep", "keep", "empty", "drop"]),
            ("doc", ["keep", "keep", "keep", "set"]),
        ):
            change = data.draw(st.sampled_from(changes))
            if change == "drop":
                carried.pop(channel, None)
            elif change != "keep":
                new[channel] = self._version()
            if change == "snapshot":
                values[channel] = _DeltaSnapshot(data.draw(lists))
            elif change == "set":
                values[channel] = data.draw(plain_values)
        parents = {"": minute_id(max(1, self.minute - 2))} if ":" in stream[1] else {}
        metadata = {"source": "loop", "step": round(self.minute), "parents": parents}
        self._put(stream, cid, parent, carried, new, values, metadata, run, sure=sure)

    def _put(
        self,
        stream: Stream,
        cid: str,
        parent: str | None,
        carried: dict[str, Any],
        new: dict[str, Any],
        values: dict[str, Any],
        metadata: dict[str, Any],
        run: str,
        *,
        sure: bool = True,
    ) -> None:
        config = make_config(*stream, parent)
        if run:
            config["metadata"] = {"run_id": run}
        checkpoint = make_checkpoint(cid, {**carried, **new}, values)
        self._try_put(stream, cid, (config, checkpoint, metadata, new), sure=sure)

    def _try_put(
        self, stream: Stream, cid: str, arguments: tuple[Any, ...], *, sure: bool = False
    ) -> None:
        """Put on both, or on neither if it is refused; what is `sure` must not be."""
        self.alive.setdefault(stream, set())
        try:
            self.keeper.put(*copy.deepcopy(arguments))
        except REFUSED:
            assert not sure
            return
        self.twin.put(*copy.deepcopy(arguments))
        self.puts[stream, cid] = arguments
        self.alive[stream].add(cid)

    def _write(self, stream: Stream, cid: str, writes: Any, task: str, path: str, run: str) -> None:
        if self.folding and self._children(stream, cid):
            # LangGraph stores a delta channel's writes before the child they make; a folded child
            # shows its value whole and does not look at what comes later, as with any snapshot.
            writes = [write for write in writes if write[0] != "log"]
        for saver in (self.keeper, self.untouched):
            config = make_config(*stream, cid)
            if run:
                config["metadata"] = {"run_id": run}
            saver.put_writes(config, copy.deepcopy(writes), task, path)

    def _run_of(self, stream: Stream, cid: str) -> Any:
        found = self.twin.get_tuple(make_config(*stream, cid))
        assert found is not None
        return {**found.metadata}.get("run_id")

    def _forget_write(self, stream: Stream, cid: str, key: tuple[str, int]) -> None:
        """Take a deleted run's write from the twin if nothing living was built of it.

        Of a checkpoint with living children, those they show and the runtime's own may go or stay.
        """
        written = self.twin.writes.get((stream, cid), {})
        if key not in written:
            return
        channel, living = written[key].channel, self.alive[stream]
        children = self._children(stream, cid)
        if any(c not in living and self._stands(stream, c) for c in children):
            return
        shown = [self.twin.streams[stream][c].values for c in children if c in living]
        if not shown:
            del written[key]
        elif channel in LANGGRAPHS_OWN or all(channel in values for values in shown):
            found = self.keeper.get_tuple(make_config(*stream, cid))
            told = [write[:2] for write in (found and found.pending_writes) or ()]
            if (key[0], channel) not in told:
                del written[key]

    def _children(self, stream: Stream, cid: str) -> list[str]:
        return [
            one for one, stored in self.twin.streams.get(stream, {}).items() if stored.parent == cid
        ]

    def _stands(self, stream: Stream, cid: str) -> bool:
        """Return whether a living checkpoint was built of what lies on this one."""
        alive = self.alive.get(stream, ())
        return any(
            child in alive or self._stands(stream, child) for child in self._children(stream, cid)
        )

    def _anchors(self, stream: Stream, *, alone: bool) -> list[str]:
        """Return the anchors, or those on whose writes nothing but their children stands."""
        found = []
        for cid in sorted(self.dropped.get(stream, ())):
            told = self.keeper.get_tuple(make_config(*stream, cid))
            if told is not None and cid in self.twin.streams.get(stream, {}):
                gone = [c for c in self._children(stream, cid) if c not in self.alive[stream]]
                if not alone or not any(self._stands(stream, child) for child in gone):
                    found.append(cid)
        return found

    def _copy_twin(self, source: Stream, target: Stream) -> None:
        self.twin.streams[target] = dict(self.twin.streams.get(source, {}))
        for cid in self.twin.streams[target]:
            self.twin.writes[target, cid] = dict(self.twin.writes.get((source, cid), {}))
            for task, idx in self.twin.writes[target, cid]:
                run = self.twin.run_of.get((source, cid, task, idx), "")
                self.twin.run_of[target, cid, task, idx] = run
            if (source, cid) in self.puts:
                config, *rest = copy.deepcopy(self.puts[source, cid])
                config["configurable"]["thread_id"] = target[0]
                self.puts[target, cid] = config, *rest
