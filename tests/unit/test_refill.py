"""Laws of what a checkpoint shows for each channel (the refill rule), one line of it at a time.

The rule: the value that comes with a new version; else what the parent shows under the same
version; else a value given all the same; else what the nearest checkpoint with that version shows;
else nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore import DeltaStoreSaver, InvalidTypeError
from deltastore.testing import FALSY, Caller, Lane, make_checkpoint, make_config, shape
from deltastore.testing.strategies import checkpoint_id

LARGE = ["a long message " * 20, "and another one " * 20] * 10


@pytest.fixture
def lane() -> Iterator[Lane]:
    """One stream of a store that verifies at the end."""
    saver = DeltaStoreSaver.ephemeral()
    yield Lane(Caller(lambda: saver))
    assert [] == saver.store.verify().damage
    saver.close()


# --- a new version ---


@pytest.mark.parametrize("value", [*FALSY.values(), LARGE, _DeltaSnapshot([])])
def test_new_version_shows_the_value_that_comes_with_it(lane: Lane, value: Any) -> None:
    """Falsy ones too: presence decides, not truth."""
    lane.put("1", new={"x": 1}, values={"x": "old"})
    lane.put("2", "1", new={"x": 2}, values={"x": value})
    assert shape({"x": value}) == shape(lane.values("2"))


def test_new_version_without_a_value_empties_the_channel(lane: Lane) -> None:
    """Every step of a delta channel does this; the old value must not shine through."""
    lane.put("1", new={"x": 1}, values={"x": "old"})
    lane.put("2", "1", new={"x": 2})
    lane.put("3", "2", carried={"x": 2})
    assert [{}, {}] == [lane.values("2"), lane.values("3")]


def test_emptied_channel_is_no_seed_and_no_end_of_the_walk(lane: Lane) -> None:
    """Otherwise the writes before it are lost."""
    lane.put("1", new={"x": 1}, values={"x": [0]})
    for n in (1, 2, 3):
        lane.write(str(n), [("x", n)])
        lane.put(str(n + 1), str(n), new={"x": n + 1})
    found = lane.history("4", "x")
    assert ([0], [1, 2, 3]) == (found["seed"], [write[2] for write in found["writes"]])


def test_new_version_equal_to_the_parents_takes_the_new_value(lane: Lane) -> None:
    """`new_versions` says that it is new, whatever its number; the parent keeps its own."""
    lane.put("1", new={"x": 1}, values={"x": "old"})
    lane.put("2", "1", new={"x": 1}, values={"x": "new"})
    lane.put("3", "2", carried={"x": 1})
    lane.put("4", "2", new={"x": 1})
    shown = [lane.values(cid) for cid in "1234"]
    assert [{"x": "old"}, {"x": "new"}, {"x": "new"}, {}] == shown


def test_new_version_of_a_channel_without_a_version_is_no_part_of_the_checkpoint(
    lane: Lane,
) -> None:
    """What is shown goes by `channel_versions`."""
    checkpoint = make_checkpoint("1", {"x": 1}, {"x": "X", "y": "Y"})
    lane.caller.put(lane.config(), checkpoint, {}, {"x": 1, "y": 1})
    assert {"x": "X"} == lane.values("1")


# --- an old version ---


def test_same_version_shows_what_the_parent_shows(lane: Lane) -> None:
    """Whether or not the caller repeats the value, and through many generations."""
    lane.put("1", new={"x": 1, "y": 1}, values={"x": LARGE, "y": None})
    for n in range(2, 40):
        repeated = {"x": LARGE} if n % 3 else {}
        lane.put(
            f"{n:03}", "1" if n == 2 else f"{n - 1:03}", carried={"x": 1, "y": 1}, values=repeated
        )
    assert {"x": LARGE, "y": None} == lane.values("039")


def test_value_given_under_an_inherited_version_does_not_change_it(lane: Lane) -> None:
    """What a version of a channel holds never changes within a line of descent."""
    lane.put("1", new={"x": 1}, values={"x": "one"})
    lane.put("2", "1", carried={"x": 1}, values={"x": "other"})
    assert [{"x": "one"}, {"x": "one"}] == [lane.values("1"), lane.values("2")]


def test_inherited_emptiness_stays_though_a_value_is_given(lane: Lane) -> None:
    """The parent's pointer counts, emptied included."""
    lane.put("1", new={"x": 1})
    lane.put("2", "1", carried={"x": 1}, values={"x": "other"})
    assert {} == lane.values("2")


def test_copy_of_a_checkpoint_shows_its_values(lane: Lane) -> None:
    """`update_state(as_node="__copy__")` puts everything under the source's versions, none new."""
    lane.put("1", new={"x": 1, "y": 1}, values={"x": "one", "y": LARGE})
    lane.put("2", "1", carried={"y": 1}, new={"x": 2}, values={"x": "two"})
    for source, cid in (("1", "3"), ("2", "4")):
        found = lane.read(source)
        checkpoint = copy.deepcopy(found.checkpoint)
        checkpoint["id"] = cid
        parent = (found.parent_config or make_config("t"))["configurable"].get("checkpoint_id")
        lane.caller.put(lane.config(parent), checkpoint, {"source": "fork"}, {})
        assert lane.values(source) == lane.values(cid)


def test_value_under_a_version_nobody_has_is_kept(lane: Lane) -> None:
    """The only place it can come from is the put itself; also without a parent."""
    lane.put("1", carried={"x": 7}, values={"x": LARGE})
    lane.put("2", "1", carried={"x": 9}, values={"x": [*LARGE, "nine"]})
    lane.put("3", "2", carried={"x": 9})
    shown = [lane.values(cid)["x"] for cid in "123"]
    assert [LARGE, [*LARGE, "nine"], [*LARGE, "nine"]] == shown


def test_version_of_an_ancestor_is_found(lane: Lane) -> None:
    """Going back to a version shows what it held; the nearest ancestor counts."""
    lane.put("1", new={"x": 1}, values={"x": "one"})
    lane.put("2", "1", new={"x": 1}, values={"x": "nearer"})
    lane.put("3", "2", new={"x": 2}, values={"x": "two"})
    lane.put("4", "3", new={"x": 3})
    lane.put("5", "4", carried={"x": 1})
    assert {"x": "nearer"} == lane.values("5")


@pytest.mark.parametrize("text_id", ["other", "zz", checkpoint_id(5)])
def test_version_elsewhere_in_the_stream_is_found(lane: Lane, text_id: str) -> None:
    """A fork may be put with a version of another branch; ids of both forms are looked through."""
    lane.put(text_id, new={"x": 5}, values={"x": LARGE})
    lane.put(checkpoint_id(9), new={"x": 1}, values={"x": "one"})
    lane.put(checkpoint_id(10), checkpoint_id(9), carried={"x": 5})
    assert {"x": LARGE} == lane.values(checkpoint_id(10))


def test_version_of_another_stream_is_not_found(lane: Lane) -> None:
    """Versions are a stream's own; a neighbour's values must not leak in."""
    for thread, ns in (("t", "n"), ("u", "")):
        Lane(lane.caller, thread, ns).put("1", new={"x": 5}, values={"x": "secret"})
    lane.put("1", new={"x": 1}, values={"x": "one"})
    lane.put("2", "1", carried={"x": 5})
    assert {} == lane.values("2")


def test_emptied_version_elsewhere_is_emptied_here(lane: Lane) -> None:
    """Found and empty is not the same as unknown to those who inherit; both show nothing."""
    lane.put("1", new={"x": 1}, values={"x": "one"})
    lane.put("2", "1", new={"x": 2})
    lane.put("3", "1", carried={"x": 2})
    lane.put("4", "3", carried={"x": 2}, values={"x": "given"})
    assert [{}, {}] == [lane.values("3"), lane.values("4")]
    assert "one" == lane.history("4", "x")["seed"]


# --- dropped channels ---


def test_channel_without_a_version_shows_nothing(lane: Lane) -> None:
    """A value alone is not enough: reading goes by `channel_versions`."""
    lane.put("1", new={"x": 1, "y": 1}, values={"x": "X", "y": "Y"})
    lane.put("2", "1", carried={"x": 1}, values={"x": "X", "y": "Y"})
    assert {"x": "X"} == lane.values("2")


def test_dropped_channel_comes_back_with_its_version(lane: Lane) -> None:
    """A graph changed its channels and was changed back; its history is all there as well."""
    lane.put("1", new={"x": 1}, values={"x": LARGE})
    lane.write("1", [("x", "w1")])
    for n in range(2, 30):
        lane.put(f"{n:03}", "1" if n == 2 else f"{n - 1:03}")
    lane.write("029", [("x", "w29")])
    lane.put("030", "029", carried={"x": 1})
    assert {"x": LARGE} == lane.values("030")
    found = lane.history("030", "x")
    assert (LARGE, ["w1", "w29"]) == (found["seed"], [write[2] for write in found["writes"]])


def test_dropped_channel_comes_back_with_another_version(lane: Lane) -> None:
    """Its old value serves to code the new one against, no more."""
    lane.put("1", new={"x": 1}, values={"x": LARGE})
    lane.put("2", "1")
    lane.put("3", "2", new={"x": 2}, values={"x": [*LARGE, "more"]})
    lane.put("4", "3")
    lane.put("5", "4", new={"x": 3})
    assert [{}, {"x": [*LARGE, "more"]}, {}] == [lane.values(cid) for cid in "235"]


# --- versions count with their type ---


@pytest.mark.parametrize("version", [1, "1", 1.0])
@pytest.mark.parametrize("other", [1, "1", 1.0])
def test_versions_of_another_type_are_other_versions(lane: Lane, version: Any, other: Any) -> None:
    """LangGraph compares them with `>`, where 1 and "1" do not even compare."""
    lane.put("1", new={"x": version}, values={"x": "one"})
    lane.put("2", "1", carried={"x": other})
    same = type(version) is type(other)
    assert ({"x": "one"} if same else {}) == lane.values("2")
    assert shape({"x": other}) == shape(lane.read("2").checkpoint["channel_versions"])


@pytest.mark.parametrize("version", [True, False, None, 1 << 63, -(1 << 63), b"1", (1,)])
def test_versions_of_odd_types_are_refused(lane: Lane, version: Any) -> None:
    """True equals 1 in Python: taken, it would inherit what it should not."""
    lane.put("1", new={"x": 1}, values={"x": "one"})
    before = lane.caller.saver.store.stat()  # type: ignore[attr-defined]
    with pytest.raises(InvalidTypeError, match=r"channel_versions.*'x'.* must be"):
        lane.put("2", "1", carried={"x": version})
    assert before == lane.caller.saver.store.stat()  # type: ignore[attr-defined]


# --- parents that are not there, ids put again ---


def test_without_a_stored_parent_only_the_put_itself_counts(lane: Lane) -> None:
    """A subgraph's first checkpoint may name a parent that was never stored."""
    lane.put("2", "1", carried={"x": 1}, new={"y": 2, "z": 1}, values={"x": "X", "y": "Y"})
    assert {"x": "X", "y": "Y"} == lane.values("2")


def test_parent_stored_later_changes_nothing_that_was_stored(lane: Lane) -> None:
    """What a checkpoint shows is settled when it is put."""
    lane.put("2", "1", carried={"x": 1})
    lane.put("1", new={"x": 1}, values={"x": "late"})
    lane.put("3", "2", carried={"x": 1})
    assert [{}, {}] == [lane.values("2"), lane.values("3")]


def test_checkpoint_put_on_itself_shows_what_comes_with_it(lane: Lane) -> None:
    """A parent that is oneself must neither hang nor be coded against."""
    for _ in range(2):
        lane.put("1", "1", new={"x": 1}, values={"x": LARGE})
        assert {"x": LARGE} == lane.values("1")
        assert {"writes": []} == lane.history("1", "x")
