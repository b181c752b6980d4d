"""What anchors hold, seen from inside: slots, hints, marks and the records of folded writes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from langgraph import constants
from langgraph._internal import _constants
from langgraph.checkpoint.serde import types as serde_types

from deltastore import DeltaStoreSaver, ancestry
from deltastore.anchors import OWN_CHANNELS
from deltastore.decoded import FOLDED, StoredWrites
from deltastore.engine.counting import CountingEngine
from deltastore.engine.memory import MemoryEngine
from deltastore.errors import PrunedCheckpointError
from deltastore.format import keys, layout
from deltastore.format.header import Header, Slot
from deltastore.ids import cid_from_id, id_from_cid
from deltastore.store import Store
from deltastore.testing.retention_calls import Keeper, Thread, minute_id

LARGE = [f"message {n}: " + "text of some length " * 10 for n in range(20)]


class Inside:
    """A store on a counted engine, its thread `t`, and what lies at its checkpoints."""

    def __init__(self) -> None:
        self.engine = CountingEngine(MemoryEngine())
        self.store = Store(self.engine)
        self.saver = DeltaStoreSaver.on_store(self.store)
        self.keeper = Keeper(lambda: self.saver)
        self.thread = Thread(self.keeper)

    def reader(self, txn: Any) -> Any:
        found = self.store._session.find(txn, "t", "", None)
        assert found is not None
        return found

    def header(self, cid: str, *, anchor: bool = True) -> Header:
        """Return the header of an anchor, or of a checkpoint."""
        with self.store._session.view() as txn:
            entry = self.reader(txn).entry(cid_from_id(cid))
        assert entry is not None
        assert anchor == entry.is_anchor
        header: Header = entry.header
        return header

    def writes(self, cid: str) -> list[StoredWrites]:
        with self.store._session.view() as txn:
            found: list[StoredWrites] = self.reader(txn).writes(cid_from_id(cid))
        return found

    def folded_keys(self, cid: str) -> list[bytes]:
        with self.store._session.view() as txn:
            prefix = self.reader(txn).stream.prefix + cid_from_id(cid)
            start = prefix + bytes([layout.KIND_FOLDED])
            return txn.scan_keys(start, keys.after(start))

    def late(self) -> set[str]:
        with self.store._session.view() as txn:
            return {id_from_cid(cid) for cid in ancestry.late(self.reader(txn))}

    def line(self, names: Sequence[str], **how: Any) -> None:
        """Put a line of checkpoints, each of which brings a version of x and no value."""
        for number, (parent, name) in enumerate(pairwise((None, *names))):
            self.thread.put(name, parent, new={"x": number}, **how)


@pytest.fixture
def inside() -> Inside:
    return Inside()


def test_own_channels_are_those_langgraph_names() -> None:
    """A channel of its own taken for a user's is folded for ever; the other way round it is lost.

    What it may add has to be decided on: this list is all it reserves but keys of configs, the name
    of a node, and keys inside of values and of versions_seen.
    """
    reserved = {
        value
        for module in (_constants, constants, serde_types)
        for name, value in vars(module).items()
        if name.isupper() and not name.startswith(("CONFIG_", "CACHE_"))
        if isinstance(value, str) and value.startswith("__")
    }
    no_channels = {"__pregel_push", "__pregel_pull", "__end__", "__overwrite__"}
    assert OWN_CHANNELS == reserved - no_channels - {"__snapshot_bumps__"}


def test_an_anchor_keeps_depth_version_and_time(inside: Inside) -> None:
    """Marks of late writes go by depth, and children were put at one more."""
    thread = inside.thread
    thread.steps([*range(1, 41)])
    was = inside.header(minute_id(39), anchor=False)
    inside.keeper.prune(["t"])
    header = inside.header(minute_id(39))
    assert (38, was.fields["v"], was.fields["ts"]) == (
        header.depth,
        header.fields["v"],
        header.fields["ts"],
    )
    assert 39 == inside.header(minute_id(40), anchor=False).depth


def test_an_anchor_is_linked_to_what_stays_and_rooted_otherwise(inside: Inside) -> None:
    """Only what was dropped is copied into it; the walk goes on at the nearest that stays."""
    thread = inside.thread
    thread.steps([1, 2], run="kept")
    thread.steps([3, 4, 5], 2, run="gone")
    thread.steps([6], 5, run="kept")
    inside.keeper.delete_for_runs(["gone"])
    linked = inside.header(minute_id(5))
    assert (cid_from_id(minute_id(2)), True, 4) == (
        linked.parent,
        linked.parent_stored,
        linked.depth,
    )
    inside.keeper.prune(["t"])
    rooted = inside.header(minute_id(5))
    assert (None, False, 4) == (rooted.parent, rooted.parent_stored, rooted.depth)


def test_a_channel_left_out_is_a_blank_slot_and_stays_one(inside: Inside) -> None:
    """Else a put on the anchor would take it for a channel without a history (rule 10)."""
    thread = inside.thread
    thread.steps([1, 2, 3])
    thread.superstep(4, 3, log=["four"], snapshot=["all"])
    for keep_last in (1, 1, 2, 1):
        inside.keeper.prune(["t"], keep_last=keep_last)
        slots = inside.header(minute_id(3)).slots
        assert {"log": Slot(), "n": Slot()} == {**slots}
        assert [] == inside.writes(minute_id(3))


def test_left_out_channels_are_inherited_by_the_next_anchor(inside: Inside) -> None:
    """A checkpoint put on an anchor goes, and the anchor in its place knows no more than it did."""
    thread = inside.thread
    thread.steps([1, 2])
    thread.superstep(3, 2, log=["three"], snapshot=["all"])
    inside.keeper.prune(["t"])
    thread.superstep(4, 2, snapshot=["other"])
    thread.put(minute_id(5), minute_id(4), carried=thread.versions[minute_id(4)])
    inside.keeper.prune(["t"])
    assert Slot() == inside.header(minute_id(4)).slots["log"]


def test_a_seed_from_further_up_lies_beside_emptied(inside: Inside) -> None:
    """A child with the anchor's version shows nothing, and finds the seed in its history."""
    thread = inside.thread
    thread.put("1", new={"x": 1}, values={"x": "seed"})
    thread.put("2", "1", new={"x": 2})
    thread.put("3", "2", new={"x": 3})
    inside.keeper.prune(["t"])
    slot = inside.header("2").slots["x"]
    assert slot.emptied
    assert slot.value is not None
    assert cid_from_id("1") == slot.value.cid
    thread.put("4", "2", carried={"x": 2})
    assert {} == thread.values("4")
    assert ("seed", []) == (
        thread.history("4", "x").get("seed"),
        thread.history("4", "x")["writes"],
    )
    child = inside.header("4", anchor=False).slots["x"]
    assert (None, True, cid_from_id("2")) == (child.value, child.emptied, child.seed)


def test_a_value_of_the_dropped_parent_is_inherited_under_its_version(inside: Inside) -> None:
    """It is no seed from further up: a copy of the parent would show it."""
    thread = inside.thread
    thread.put("1", new={"x": 1}, values={"x": "own"})
    thread.put("2", "1", new={"x": 2})
    for _ in range(2):  # an old anchor says the same of itself
        inside.keeper.prune(["t"])
        assert not inside.header("1").slots["x"].emptied
    thread.put("3", "1", carried={"x": 1})
    assert {"x": "own"} == thread.values("3")


def test_emptied_beside_a_seed_survives_a_second_prune(inside: Inside) -> None:
    """The old anchor has a value in its slot, and still showed none."""
    thread = inside.thread
    thread.put("1", new={"x": 1}, values={"x": "seed"})
    thread.put("2", "1", new={"x": 2})
    thread.put("3", "2", new={"x": 3})
    thread.put("4", "2", new={"x": 4})
    inside.keeper.prune(["t"], keep_last=2)
    first = inside.header("2").slots
    inside.keeper.prune(["t"])
    assert first == inside.header("2").slots
    assert first["x"].emptied


def test_folded_writes_come_before_own_and_have_no_suffix(inside: Inside) -> None:
    """Own ones keep their records, which late calls of their tasks merge with."""
    thread = inside.thread
    thread.steps([1, 2, 3, 4])
    own = inside.writes(minute_id(3))
    inside.keeper.prune(["t"])
    found = inside.writes(minute_id(3))
    assert [FOLDED, FOLDED, own[0].suffix] == [one.suffix for one in found]
    assert [["task-2"], ["task-3"], ["task-4"]] == [[one.record.task_id] for one in found]
    thread.task(3, ["late"], "task-4")
    assert found == inside.writes(minute_id(3))  # the first write of an index stays


def test_folded_writes_share_records_of_a_bounded_size(inside: Inside) -> None:
    """Together they compress; all in one, a prune would need memory for the whole history."""
    thread = inside.thread
    large = "of twenty thousand bytes" * 833
    for n in range(1, 13):
        thread.superstep(n, n - 1 if n > 1 else None, log=[f"{n} {large}"])
    inside.keeper.prune(["t"])
    assert 3 == len(inside.folded_keys(minute_id(11)))
    assert 11 == len(inside.writes(minute_id(11)))
    assert [f"{n} {large}" for n in range(2, 13)] == thread.log()


def test_records_of_an_older_anchor_do_not_stay(inside: Inside) -> None:
    """Fewer are folded than before: what was beyond them would be read as well."""
    thread = inside.thread
    large = "of twenty thousand bytes" * 833
    for n in range(1, 13):
        thread.superstep(n, n - 1 if n > 1 else None, log=[f"{n} {large}"])
    thread.superstep(13, 11, snapshot=["whole"])
    inside.keeper.prune(["t"], keep_last=2)
    assert 3 == len(inside.folded_keys(minute_id(11)))
    inside.keeper.prune(["t"])
    assert [] == inside.folded_keys(minute_id(11))
    assert [] == inside.writes(minute_id(11))


def test_own_writes_that_nobody_needs_go_and_what_is_needed_stays_in_its_record(
    inside: Inside,
) -> None:
    """One record of a task holds both: LangGraph's own, and those of channels a child shows."""
    thread = inside.thread
    thread.put("1", new={"x": 1, "y": 1})
    thread.write("1", [("x", "shown below"), ("y", "needed"), ("__interrupt__", "own")], "both")
    thread.write("1", [("x", "shown below")], "none")
    thread.put("2", "1", new={"x": 2}, carried={"y": 1}, values={"x": "value"})
    inside.keeper.prune(["t"])
    found = inside.writes("1")
    assert [("both", ["y"])] == [
        (one.record.task_id, [row.channel for row in one.record.rows]) for one in found
    ]
    assert ["needed"] == [write[2] for write in thread.history("2", "y")["writes"]]


def test_walks_stop_at_an_anchor_the_hints_below_know_nothing_of(inside: Inside) -> None:
    """The child's hints name the writer that went; the writes lie at the anchor now."""
    thread = inside.thread
    names = [f"{n:02}" for n in range(30)]
    inside.line(names)
    thread.write(names[3], [("y", "y of 3")])
    thread.write(names[20], [("y", "late")], "late")
    for parent, name in pairwise(("29", *(f"{n}" for n in range(30, 50)))):
        thread.put(name, parent, new={"x": int(name)})
    twin = thread.history("49", "y")
    below = inside.header("31", anchor=False).slots.get("y")
    inside.keeper.prune(["t"], keep_last=15)
    assert {"34"} == inside.late()
    assert below == inside.header("36", anchor=False).slots.get("y")  # nothing below has changed
    assert twin == thread.history("49", "y")
    assert ["y of 3", "late"] == [write[2] for write in twin["writes"]]


def test_hints_that_name_what_went_are_no_dead_end(inside: Inside) -> None:
    """A rare channel was written long before: the walk steps on to the anchor instead."""
    thread = inside.thread
    names = [f"{n:03}" for n in range(200)]
    inside.line(names[:3])
    thread.write(names[2], [("rare", "rare")])
    for parent, name in pairwise(names[2:]):
        thread.put(name, parent, new={"x": int(name)})
    expected = thread.history(names[-1], "rare")
    inside.keeper.prune(["t"], keep_last=150)
    before = inside.engine.counts()
    assert expected == thread.history(names[-1], "rare")
    spent = inside.engine.counts() - before
    assert spent.round_trips < 10 * 150, spent
    assert [("task", "rare", "rare")] == [*thread.history(names[-1], "rare")["writes"]]


def test_writes_coded_against_what_went_are_whole_in_an_anchor(inside: Inside) -> None:
    """A large write is a delta to a value its checkpoint shows, and that is not there any more."""
    thread = inside.thread
    thread.put("1", new={"x": 1, "y": 1}, values={"x": LARGE})
    thread.write("1", [("y", [*LARGE, "more"])])
    assert any(row.base is not None for one in inside.writes("1") for row in one.record.rows)
    thread.put("2", "1", new={"x": 2, "y": 2}, values={"x": ["another"]})
    inside.keeper.prune(["t"])
    assert all(row.base is None for one in inside.writes("1") for row in one.record.rows)
    assert [[*LARGE, "more"]] == [write[2] for write in thread.history("2", "y")["writes"]]


def test_nothing_new_is_coded_against_an_anchor(inside: Inside) -> None:
    """It is written again at every prune; a header that is a difference to it would break."""
    thread = inside.thread
    thread.steps([1, 2, 3])
    inside.keeper.prune(["t"])
    thread.superstep(4, 2, log=["four"])
    with inside.store._session.view() as txn:
        link = inside.reader(txn).link(cid_from_id(minute_id(4)))
    assert not link.clear.is_difference
    inside.keeper.prune(["t"], keep_last=2)
    assert [3, 4] == sorted(thread.minutes())
    assert [2, 3, "four"] == thread.log(3) == thread.log(4)  # both stand on writes of one parent


def test_late_writes_to_an_anchor_are_folded_into_the_next(inside: Inside) -> None:
    """They are its own then, and older writes when it goes; they never lose their place."""
    thread = inside.thread
    thread.steps([1, 2, 3])
    inside.keeper.prune(["t"])
    thread.task(2, ["late"], "zz")
    thread.steps([4, 5], 3)
    inside.keeper.prune(["t"])
    assert [2, 3, "late", 4, 5] == thread.log()
    assert ["task-2", "task-3", "zz", "task-4", "task-5"] == [
        one.record.task_id for one in inside.writes(minute_id(4))
    ]
    assert [] == inside.writes(minute_id(2))


@pytest.mark.parametrize("given", ["same version", "version nobody has", "value and version"])
def test_a_put_on_an_anchor_may_carry_over_what_is_there(inside: Inside, given: str) -> None:
    """By the version the anchor has, or with the value; anything else is gone."""
    thread = inside.thread
    thread.put("1", new={"x": 1}, values={"x": LARGE})
    thread.put("2", "1", carried={"x": 1})
    thread.put("3", "2", new={"x": 2})
    inside.keeper.prune(["t"])
    version = 1 if given == "same version" else 77
    values = {"x": LARGE[:5]} if given == "value and version" else {}
    if given == "version nobody has":
        with pytest.raises(PrunedCheckpointError, match="'x'"):
            thread.put("4", "2", carried={"x": version})
        assert ["3"] == thread.ids()
    else:
        thread.put("4", "2", carried={"x": version}, values=values)
        assert {"x": LARGE, **values} == thread.values("4")
