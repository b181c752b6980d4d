"""Random lives of a store, held against the full-value model after every step.

A *step* puts, writes, reads, lists, deletes or reopens. After a step that stores, the checkpoint it
touched, that one's children and the head must read as the model's; at the end of a life everything
must, and the store must verify. Histories of looping chains must end; what they say is free.

DELTASTORE_PROFILE=thorough runs ten times the lives, twice as long.
"""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from deltastore import DeltaStoreSaver
from deltastore.errors import DeletedParentError, LostWriteError
from deltastore.testing import (
    Saver,
    history_shape,
    listed_ids,
    make_checkpoint,
    make_config,
    tuple_shape,
)
from deltastore.testing import strategies as draws
from deltastore.testing.history_laws import ends
from deltastore.testing.model import ModelSaver, Stream

THOROUGH = os.environ.get("DELTASTORE_PROFILE") == "thorough"
LIVES = settings(
    max_examples=400 if THOROUGH else 30,
    stateful_step_count=60 if THOROUGH else 30,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
FIRST_NUMBER = 1_000


class StoreLife(RuleBasedStateMachine):
    """One life of a saver. Subclasses say how it is opened, reopened and closed."""

    def __init__(self) -> None:
        super().__init__()
        self.model = ModelSaver()
        self.saver: Any = self.open_saver()
        self.number = FIRST_NUMBER
        self.puts: dict[tuple[Stream, str], tuple[Any, ...]] = {}
        self.early: dict[Stream, list[str]] = {}
        self.streams: list[Stream] = []
        self.sound = True

    def open_saver(self) -> Saver:
        """Open a saver on an empty store."""
        raise NotImplementedError

    def reopen_saver(self) -> None:
        """Close the saver and open its store again."""

    def close_saver(self) -> None:
        """Verify and close the saver."""

    @initialize(data=st.data())
    def choose_streams(self, data: st.DataObject) -> None:
        """Few streams, so that steps meet."""
        stream = st.tuples(draws.thread_ids(), draws.namespaces())
        self.streams = data.draw(st.lists(stream, min_size=1, max_size=3, unique=True))

    @rule(data=st.data())
    def put(self, data: st.DataObject) -> None:
        """Put a new checkpoint: below the head, an old one, none, or one that is not there."""
        stream = data.draw(st.sampled_from(self.streams))
        self.number += 2
        past = st.integers(FIRST_NUMBER - 50, self.number).map(draws.checkpoint_id)
        newest = [draws.checkpoint_id(self.number)]
        known = st.sampled_from(newest * 2 + self.early.get(stream, []))
        cid = data.draw(known | past | draws.odd_checkpoint_ids())
        self._put_drawn(data, stream, cid, self._draw_parent(data, stream))

    @rule(data=st.data(), supersteps=st.integers(1, 4))
    def run(self, data: st.DataObject, supersteps: int) -> None:
        """Go on from the head as a graph does: two tasks write to it, then it has a child."""
        stream = data.draw(st.sampled_from(self.streams))
        for _ in range(supersteps):
            head = max(self.model.streams.get(stream, ()), default=None)
            for task in data.draw(st.lists(draws.task_ids(), unique=True, max_size=2)):
                self._write(data, stream, head or "0", task)
            self.number += 2
            self._put_drawn(data, stream, draws.checkpoint_id(self.number), head)

    @precondition(lambda self: self.puts)
    @rule(data=st.data())
    def put_again(self, data: st.DataObject) -> None:
        """Put an id again: the same, other content, or another parent (even a descendant)."""
        stream, cid = data.draw(st.sampled_from([*self.puts]))
        parent = self.puts[stream, cid][0]["configurable"].get("checkpoint_id")
        how = data.draw(st.sampled_from(["same", "content", "parent"]))
        if how == "parent" or not self._is_sure(stream, parent):
            parent = self._draw_parent(data, stream)
            self._put_drawn(data, stream, cid, parent)
        elif how == "content":
            self._put_drawn(data, stream, cid, parent)
        else:
            self._put(stream, cid, *copy.deepcopy(self.puts[stream, cid]))

    @rule(data=st.data())
    def put_writes(self, data: st.DataObject) -> None:
        """Write to a checkpoint that is there, is gone, or comes later."""
        stream = data.draw(st.sampled_from(self.streams))
        later = draws.checkpoint_id(self.number + data.draw(st.integers(1, 4)))
        stored = [*self.model.streams.get(stream, ())]
        gone = [*self.model.deleted.get(stream, ())]
        cid = data.draw(st.sampled_from([*stored[-3:], *stored, *gone[:1], later]))
        if cid not in stored:
            self.early.setdefault(stream, []).append(cid)
        self._write(data, stream, cid, data.draw(draws.task_ids()))

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        """Read by id, known or not, and read the head."""
        stream = data.draw(st.sampled_from(self.streams))
        known = [*self.model.streams.get(stream, ()), *self.model.deleted.get(stream, ())]
        cid = data.draw(st.sampled_from([*known, "0", draws.checkpoint_id(3)]))
        self._check_tuple(stream, cid)
        self._check_tuple(stream, None)

    @rule(data=st.data())
    def list_some(self, data: st.DataObject) -> None:
        """List with any arguments; across streams only each one's order is promised."""
        stream = data.draw(st.sampled_from(self.streams))
        known = [*self.model.streams.get(stream, ())]
        cids = st.sampled_from([*known, draws.checkpoint_id(self.number - 1), "1"])
        config = make_config(*stream, data.draw(st.none() | st.none() | cids))
        width = data.draw(st.sampled_from(["stream", "thread", "store"]))
        if width == "thread":
            del config["configurable"]["checkpoint_ns"]
        before = make_config(*stream, data.draw(cids)) if data.draw(st.booleans()) else None
        self._check_list(
            None if width == "store" else config,
            data.draw(st.none() | st.integers(0, 4)),
            filter=data.draw(st.none() | draws.filters()),
            before=before,
        )

    @rule(data=st.data())
    def tell_history(self, data: st.DataObject) -> None:
        """Ask the delta history of any channels at any checkpoint."""
        stream = data.draw(st.sampled_from(self.streams))
        known = [*self.model.streams.get(stream, ())]
        cid = data.draw(st.sampled_from([None, "absent", *known]))
        channels = data.draw(st.lists(draws.channel_names(), unique=True, max_size=3))
        self._check_history(stream, cid, channels)

    @rule(data=st.data())
    def delete_thread(self, data: st.DataObject) -> None:
        """Delete a thread; its streams read as empty."""
        stream = data.draw(st.sampled_from(self.streams))
        if data.draw(st.sampled_from([False] * 5 + [True])):
            for saver in (self.model, self.saver):
                saver.delete_thread(stream[0])
            self._check_tuple(stream, None)
            self._check_list(None, None)

    @rule()
    def reopen(self) -> None:
        """Close and open again; nothing changes."""
        self.reopen_saver()
        for stream in self.streams:
            self._check_tuple(stream, None)

    def teardown(self) -> None:
        """Compare everything once, then verify and close."""
        try:
            if self.sound:
                self._check_list(None, None)
                for stream in self.streams:
                    for cid in self.model.streams.get(stream, {}):
                        self._check_tuple(stream, cid)
                        self._check_history(stream, cid, ["messages", "files", "x", "a\0b"])
        finally:
            self.close_saver()

    def _is_sure(self, stream: Stream, parent: str | None) -> bool:
        """Return whether it is laid down if the parent counts as deleted.

        A parent never stored is told from a deleted one by its id alone, where some were deleted.
        """
        gone = self.model.deleted.get(stream, ())
        return not gone or parent in {None, *gone, *self.model.streams.get(stream, ())}

    def _draw_parent(self, data: st.DataObject, stream: Stream) -> str | None:
        stored = [*self.model.streams.get(stream, ())]
        gone = [*self.model.deleted.get(stream, ())][:2]
        never = [draws.checkpoint_id(self.number + 2), draws.checkpoint_id(1)]
        heads = [max(stored)] * 6 if stored else []
        drawn = data.draw(st.sampled_from([*heads, *stored, None, None, *gone, *never]))
        return drawn if self._is_sure(stream, drawn) else None

    def _put_drawn(self, data: st.DataObject, stream: Stream, cid: str, parent: str | None) -> None:
        config = make_config(*stream, parent)
        if data.draw(st.booleans()):
            config["metadata"] = {"run_id": data.draw(draws.odd_texts()), "__x": 1}
        versions, new, values = self._draw_channels(data, stream, parent)
        checkpoint = make_checkpoint(cid, versions, values)
        self._put(stream, cid, config, checkpoint, data.draw(draws.metadata()), new)

    def _draw_channels(
        self, data: st.DataObject, stream: Stream, parent: str | None
    ) -> draws.ChannelStates:
        """Draw channel_versions, new_versions and channel_values against the parent's."""
        stored = self.model.streams.get(stream, {})
        found = self.model.get_tuple(make_config(*stream, parent)) if parent in stored else None
        held: Any = found.checkpoint["channel_versions"] if found else {}
        shown: Any = found.checkpoint["channel_values"] if found else {}
        known: dict[str, list[Any]] = {}
        for record in stored.values():
            for channel, version in record.versions.items():
                known.setdefault(channel, []).append(version)
        self.number += draws.CHANNELS_MAX
        return data.draw(draws.channel_states(held, shown, known, self.number))

    def _write(self, data: st.DataObject, stream: Stream, cid: str, task: str) -> None:
        # A retried task writes twice: its regular writes stay, its special ones are replaced. The
        # second path may be another: `update_state` has its own when it speaks for a task.
        for writes in data.draw(st.lists(draws.write_batches(), min_size=1, max_size=2)):
            path = data.draw(draws.task_paths())
            for saver in (self.model, self.saver):
                saver.put_writes(make_config(*stream, cid), copy.deepcopy(writes), task, path)
        self._check_around(stream, cid)

    def refused_put(self, *arguments: Any) -> None:
        """Make a put that the model refused."""
        self.saver.put(*arguments)

    def _put(self, stream: Stream, cid: str, *arguments: Any) -> None:
        self.puts[stream, cid] = copy.deepcopy(arguments)
        self.sound = False
        try:
            expected = self.model.put(*copy.deepcopy(arguments))
        except DeletedParentError:
            with pytest.raises(DeletedParentError):
                self.refused_put(*arguments)
            del self.puts[stream, cid]
        else:
            assert expected == self.saver.put(*arguments)
        self.sound = True
        self._check_around(stream, cid)

    def _check_around(self, stream: Stream, cid: str) -> None:
        stored = self.model.streams.get(stream, {})
        children = [child for child, record in stored.items() if record.parent == cid]
        for near in (cid, *children, None):
            self._check_tuple(stream, near)

    def _check_tuple(self, stream: Stream, cid: str | None) -> None:
        config = make_config(*stream, cid)
        expected = tuple_shape(self.model.get_tuple(config))
        self._same(expected, tuple_shape(self.saver.get_tuple(config)))

    def _check_history(self, stream: Stream, cid: str | None, channels: list[str]) -> None:
        config = make_config(*stream, cid)
        loop = self._loops(stream, cid)
        with ends() if loop else nullcontext():
            found = self.saver.get_delta_channel_history(config=config, channels=channels)
        if not loop:
            expected = self.model.get_delta_channel_history(config=config, channels=channels)
            self._same(history_shape(expected), history_shape(found))

    def _check_list(self, config: Any, limit: int | None, **arguments: Any) -> None:
        expected = [*self.model.list(config, **arguments)]
        found = [*self.saver.list(config, limit=limit, **arguments)]
        count = len(expected) if limit is None else min(limit, len(expected))
        self._same(count, len(found))
        for stream in {self._stream(item) for item in expected + found}:
            wanted = [item for item in expected if self._stream(item) == stream]
            given = [item for item in found if self._stream(item) == stream]
            self._same(listed_ids(wanted)[: len(given)], listed_ids(given))
            for one, other in zip(wanted, given, strict=False):
                self._same(tuple_shape(one), tuple_shape(other))

    @staticmethod
    def _stream(item: Any) -> Stream:
        place = item.config["configurable"]
        return place["thread_id"], place["checkpoint_ns"]

    def _loops(self, stream: Stream, cid: str | None) -> bool:
        stored = self.model.streams.get(stream, {})
        here, seen = cid or max(stored, default=None), set[str]()
        while here in stored and here not in seen:
            seen.add(here)
            here = stored[here].parent
        return here in seen

    def _same(self, expected: Any, found: Any) -> None:
        self.sound = self.sound and expected == found
        assert expected == found


class MemoryLife(StoreLife):
    """A store on the memory engine; it cannot be opened again."""

    def open_saver(self) -> Saver:
        return DeltaStoreSaver.ephemeral()

    def close_saver(self) -> None:
        try:
            assert [] == list(self.saver.store.verify().damage)
        finally:
            self.saver.close()


class LmdbLife(MemoryLife):
    """A store in a directory of its own."""

    def open_saver(self) -> Saver:
        self.where = tempfile.mkdtemp()
        return DeltaStoreSaver(Path(self.where) / "store")

    def reopen_saver(self) -> None:
        self.saver.close()
        self.saver = DeltaStoreSaver(Path(self.where) / "store")

    def close_saver(self) -> None:
        try:
            super().close_saver()
        finally:
            shutil.rmtree(self.where)


class RelaxedLife(LmdbLife):
    """Writes are acknowledged before they are stored; what cannot be is told by the next flush."""

    def open_saver(self) -> Saver:
        self.where = tempfile.mkdtemp()
        return DeltaStoreSaver(Path(self.where) / "store", durability="relaxed")

    def reopen_saver(self) -> None:
        self.saver.close()
        self.saver = DeltaStoreSaver(Path(self.where) / "store", durability="relaxed")

    def refused_put(self, *arguments: Any) -> None:
        self.saver.put(*arguments)
        try:
            self.saver.flush()
        except LostWriteError as error:
            raise error.__cause__ or error from None


class ModelLife(StoreLife):
    """A second model: a machine that fails everything would catch every stand-in below."""

    def open_saver(self) -> Saver:
        return ModelSaver()


@pytest.mark.parametrize("life", [ModelLife, MemoryLife, LmdbLife, RelaxedLife])
def test_every_life_reads_as_the_full_value_model(life: type[StoreLife]) -> None:
    """Deltas, pointers, caches and merged writes must be invisible from outside."""
    run_state_machine_as_test(life, settings=LIVES)


class OrderedByTask(ModelSaver):
    """Forgets the task path."""

    def _order(self, kept: Any) -> Any:
        return sorted(kept, key=lambda write: (write.task_id, write.idx))


class LatestIsLastPut(ModelSaver):
    """Takes the order of calls for the order of ids."""

    def _latest(self, stored: Any) -> Any:
        return next(reversed(stored), None)


class EmptiedIsInherited(ModelSaver):
    """Shows the parent's value where a new version came without one."""

    def _value_shown(self, stored: Any, parent: Any, checkpoint: Any, new: Any, c: str) -> Any:
        shown = super()._value_shown(stored, parent, checkpoint, new, c)
        if shown is None and c in new and parent in stored:
            return stored[parent].values.get(c)
        return shown


class RetriedWriteWins(ModelSaver):
    """Replaces regular writes too."""

    def _replaces(self, made: Any) -> bool:
        return True


@pytest.mark.parametrize(
    "broken", [OrderedByTask, LatestIsLastPut, EmptiedIsInherited, RetriedWriteWins]
)
def test_a_broken_saver_does_not_live(broken: type[ModelSaver]) -> None:
    """The machine is worth its time only if it can fail; each fault is one real savers had."""

    class BrokenLife(StoreLife):
        def open_saver(self) -> Saver:
            return broken()

    once = settings(LIVES, max_examples=200, phases=[Phase.generate], derandomize=True)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(BrokenLife, settings=settings(once, database=None))
