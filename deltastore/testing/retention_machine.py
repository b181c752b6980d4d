"""Random lives with maintenance in them, as a Hypothesis state machine.

After each maintenance, and at the end, every survivor must read as the checkpoint of its id on the
untouched twin (`retention_twins`): tuple, histories by both walks, the delta channel's value.
"""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any, Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from deltastore.errors import InvalidArgumentError
from deltastore.options import SnapshotBounds
from deltastore.testing import listed_ids, make_config
from deltastore.testing.retention_calls import minute_id, minutes_now
from deltastore.testing.retention_twins import (
    TASK_PATHS,
    MaintainedTwins,
    batches,
    log_writes,
    runs,
)

some_runs: st.SearchStrategy[str] = st.sampled_from(["r1", "r2", "x"])
BOUNDS: Final = SnapshotBounds(updates=2, supersteps=3)


def _has_lived(life: RetainedLife) -> bool:
    return any(life.alive.values())


class RetainedLife(MaintainedTwins):
    """One life of a saver and of its twin. Subclasses say how the saver is opened and closed."""

    # -- life -------------------------------------------------------------------------------

    @rule(data=st.data(), supersteps=st.integers(1, 5), run=runs)
    def grow(self, data: st.DataObject, supersteps: int, run: str) -> None:
        """Go on from the head, or fork from an old checkpoint, or begin anew."""
        stream = self._draw_stream(data)
        ids = sorted(self.alive.get(stream, ()))
        parent = data.draw(st.sampled_from([*ids[-1:] * 5, *ids, *([] if ids else [None])]))
        for _ in range(supersteps):
            parent = self._superstep(data, stream, parent, run)

    @rule(data=st.data(), supersteps=st.integers(2, 4), run=runs)
    def go_on(self, data: st.DataObject, supersteps: int, run: str) -> None:
        """What happens most."""
        self.grow(data, supersteps, run)

    @rule(data=st.data(), run=runs)
    def run_and_exit(self, data: st.DataObject, run: str) -> None:
        """Exit durability: a stub, all writes of the run on it, then the end as its child."""
        stream = self._draw_stream(data)
        ids = sorted(self.alive.get(stream, ()))
        under = ids[-1] if ids else self._new_id(data, stream)
        if not ids:
            self._put(stream, under, None, {}, {}, {}, {"step": -2}, run)
        for step in range(data.draw(st.integers(1, 3))):
            writes = [("log", data.draw(log_writes))]
            self._write(stream, under, writes, f"ffffffff-0-{step}", f"~~{step:010}~a", run)
        self._put_child(data, stream, self._new_id(data, stream), under, run)

    @rule(data=st.data(), run=runs)
    def write_late(self, data: st.DataObject, run: str) -> None:
        """A write of a task that arrives after its checkpoint's children, or after its pruning."""
        stream = self._draw_stream(data)
        places = [*self.alive.get(stream, ()), *self._anchors(stream, alone=True)]
        if places:
            task = data.draw(st.sampled_from([*TASK_PATHS]))
            cid = data.draw(st.sampled_from(sorted(places)))
            self._write(stream, cid, data.draw(batches), task, TASK_PATHS[task], run)

    @rule(data=st.data())
    def write_early(self, data: st.DataObject) -> None:
        """A write that arrives before its checkpoint."""
        stream = self._draw_stream(data)
        self.minute += 1
        cid = minute_id(self.minute)
        self.early.setdefault(stream, []).append(cid)
        self._write(stream, cid, data.draw(batches), "t1", TASK_PATHS["t1"], "")

    @precondition(_has_lived)
    @rule(data=st.data())
    def put_again(self, data: st.DataObject) -> None:
        """The same id again, with the same content or other values under new versions."""
        stream = self._draw_stream(data)
        ids = [cid for cid in sorted(self.alive.get(stream, ())) if (stream, cid) in self.puts]
        if not ids:
            return
        cid = data.draw(st.sampled_from(ids))
        config, checkpoint, metadata, new = copy.deepcopy(self.puts[stream, cid])
        if data.draw(st.booleans()):
            self.minute += 0.001
            new = dict.fromkeys(new, self._version())
            checkpoint["channel_versions"] |= new
            checkpoint["channel_values"] = {
                c: v for c, v in checkpoint["channel_values"].items() if data.draw(st.booleans())
            }
        self._try_put(stream, cid, (config, checkpoint, metadata, new))

    @precondition(lambda self: any(self.dropped.values()))
    @rule(data=st.data(), run=runs)
    def put_in_flight(self, data: st.DataObject, run: str) -> None:
        """The put of a run that began on a checkpoint that is gone."""
        stream = self._draw_stream(data)
        anchors = [*self._anchors(stream, alone=False)]
        gone = sorted(self.dropped.get(stream, set()) - set(anchors))
        places = [*anchors, *gone[-2:]]
        if places:
            parent = data.draw(st.sampled_from(places))
            self._put_child(data, stream, self._new_id(data, stream), parent, run, sure=False)

    @precondition(_has_lived)
    @rule(data=st.data())
    def copy_checkpoint(self, data: st.DataObject) -> None:
        """`update_state(as_node="__copy__")`: on the survivor's parent, and never refused."""
        stream = self._draw_stream(data)
        ids = sorted(self.alive.get(stream, ()))
        if not ids:
            return
        found = self.twin.get_tuple(make_config(*stream, data.draw(st.sampled_from(ids))))
        assert found is not None
        cid = self._new_id(data, stream)
        checkpoint = {**found.checkpoint, "id": cid}
        config = found.parent_config or make_config(*stream)
        self._try_put(stream, cid, (config, checkpoint, {"source": "fork"}, {}), sure=True)

    # -- maintenance ------------------------------------------------------------------------

    @precondition(_has_lived)
    @rule(data=st.data())
    def prune(self, data: st.DataObject) -> None:
        """All but the newest, the last few, or the young."""
        thread_id = self._draw_stream(data)[0]
        how: dict[str, Any] = data.draw(
            st.sampled_from([{}, {"keep_last": 1}, {"keep_last": 2}, {"keep_last": 4}, {"age": 3}])
        )
        root = self.alive.get((thread_id, ""), set())
        kept = set(sorted(root)[-how.get("keep_last", 1) :])
        if "age" in how:
            minute = self.minute - data.draw(st.integers(0, 9)) - 0.5
            how = {"older_than": timedelta(minutes=minutes_now() - minute)}
            kept |= {cid for cid in root if cid >= minute_id(minute) or len(cid) != 36}
        before = {s: set(ids) for s, ids in self.alive.items()}
        self._planned(data, "prune", [thread_id], **how)
        for stream in [s for s in before if s[0] == thread_id]:
            left = self.alive[stream]
            assert max(before[stream], default="") in {*left, ""} or ":" in stream[1]
            assert stream[1] or left == kept or ("older_than" in how and left <= kept)
        self.check()

    @precondition(_has_lived)
    @rule(data=st.data())
    def prune_again(self, data: st.DataObject) -> None:
        """After every turn, as applications do."""
        self.prune(data)

    @precondition(_has_lived)
    @rule(data=st.data(), strategy=st.sampled_from(["delete", "delete_all"]))
    def delete(self, data: st.DataObject, strategy: str) -> None:
        """The thread goes; one of its name may begin anew."""
        thread_id = self._draw_stream(data)[0]
        if data.draw(st.integers(0, 3)) == 0:
            self._planned(data, "prune", [thread_id], strategy=strategy)
            self.twin.delete_thread(thread_id)
            for stream in [s for s in self.alive if s[0] == thread_id]:
                assert not self.alive.pop(stream)
                self.early.pop(stream, None)
                self.dropped.pop(stream, None)
            self.check()

    @precondition(_has_lived)
    @rule(data=st.data(), run_ids=st.lists(some_runs, max_size=2))
    def delete_for_runs(self, data: st.DataObject, run_ids: list[str]) -> None:
        """Exactly the checkpoints of the runs go, and what they wrote if nothing stands on it."""
        kept = {
            s: {cid for cid in ids if self._run_of(s, cid) not in run_ids}
            for s, ids in self.alive.items()
        }
        self._planned(data, "delete_for_runs", run_ids)
        assert all(ids == kept.get(stream, set()) for stream, ids in self.alive.items())
        for (stream, cid, task, idx), run in [*self.twin.run_of.items()]:
            if run in run_ids and cid in kept.get(stream, ()):
                self._forget_write(stream, cid, (task, idx))
        self.check()

    @precondition(_has_lived)
    @rule(data=st.data(), heads_only=st.booleans())
    def copy_thread(self, data: st.DataObject, heads_only: bool) -> None:
        """To a new name, or to one that is taken, which is refused."""
        source = self._draw_stream(data)[0]
        taken = [s[0] for s, ids in self.alive.items() if ids]
        if data.draw(st.booleans()) and taken:
            with pytest.raises(InvalidArgumentError):
                target = data.draw(st.sampled_from(taken))
                self.keeper.copy_thread(source, target, heads_only=heads_only)
        elif self.copies < 3:
            self.copies += 1
            target = f"copy {self.copies}"
            self.keeper.copy_thread(source, target, heads_only=heads_only)
            for stream in [s for s in self.alive if s[0] == source]:
                self._copy_twin(stream, (target, stream[1]))
                listed = {*listed_ids(self.keeper.list(make_config(target, stream[1])))}
                assert listed <= self.alive[stream]
                assert heads_only or listed == self.alive[stream]
                assert max(self.alive[stream], default="") in {*listed, ""} or ":" in stream[1]
                self.alive[target, stream[1]] = listed
        self.check()

    @precondition(_has_lived)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        """Of one thread or of all; done twice, the second time there is nothing to do."""
        if not hasattr(self.keeper.saver, "compact"):
            return
        thread_id = data.draw(st.sampled_from([None, self._draw_stream(data)[0]]))
        planned = self.keeper.compact(thread_id, BOUNDS, dry_run=True)
        assert planned == self.keeper.compact(thread_id, BOUNDS)
        assert self.keeper.compact(thread_id, BOUNDS).is_empty
        self.check()

    @precondition(_has_lived)
    @rule()
    def vacuum(self) -> None:
        """Rewrite the store, where it can be."""
        store: Any = getattr(self.keeper.saver, "store", None)
        if hasattr(store, "vacuum"):
            store.vacuum()
            self.check()

    @precondition(_has_lived)
    @rule()
    def reopen(self) -> None:
        """Close and open again; nothing changes."""
        self.reopen_saver()
        self.check()

    def teardown(self) -> None:
        """Compare everything once more, then verify and close."""
        try:
            self.check()
        finally:
            self.close_saver()
