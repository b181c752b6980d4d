"""The laws of `SaverSuite` about putting a checkpoint and reading it back.

Part of `SaverSuite` only for the length of a module: not to be subclassed alone.
"""

from __future__ import annotations

import copy
from typing import Any

from langgraph.checkpoint.base import ChannelVersions
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore.testing import FALSY, Caller, Lane, make_checkpoint, make_config, shape


class PutLaws:
    """Part of `SaverSuite`; see there."""

    def test_put_returns_exactly_the_three_keys(self, caller: Caller) -> None:
        """LangGraph merges what put returns into the next config: extras would leak into it."""
        config = make_config("t")
        config["configurable"]["extra"] = 1
        returned = caller.put(config, make_checkpoint("1", {}, {}), {}, {})
        assert {"configurable": make_config("t", "", "1")["configurable"]} == returned

    def test_falsy_values_are_values(self, caller: Caller) -> None:
        """Presence, not truth, decides: an empty list is a state like any other."""
        lane = Lane(caller)
        lane.put("1", new=dict.fromkeys(FALSY, 1), values=FALSY)
        lane.write("1", [*FALSY.items()])
        assert shape(FALSY) == shape(lane.values("1"))
        assert shape([*FALSY.values()]) == shape([w[2] for w in lane.pending("1")])

    def test_header_fields_come_back_with_their_types(self, caller: Caller) -> None:
        """Versions are compared with `>`; a number that comes back as text breaks the run."""
        versions: ChannelVersions = {"i": 3, "f": 1.5, "s": f"{7:032}.0.25"}
        checkpoint = make_checkpoint("1", versions, {})
        caller.put(make_config("t"), checkpoint, {"source": "input", "step": -1}, versions)
        assert shape(checkpoint) == shape(Lane(caller).read("1").checkpoint)

    def test_unchanged_channel_shows_the_parents_value(self, caller: Caller) -> None:
        """LangGraph stores only channels in new_versions; the rest are inherited."""
        lane = Lane(caller)
        lane.put("1", new={"x": 1, "y": 1}, values={"x": "X", "y": "Y"})
        lane.put("2", "1", carried={"x": 1}, new={"y": 2}, values={"x": "X", "y": "Z"})
        lane.put("3", "2", carried={"x": 1, "y": 2})
        assert {"x": "X", "y": "Z"} == lane.values("3")

    def test_emptied_channel_is_absent_and_stays_absent(self, caller: Caller) -> None:
        """A new version without a value empties a channel; the old value must not shine through."""
        lane = Lane(caller)
        lane.put("1", new={"x": 1}, values={"x": "old"})
        lane.put("2", "1", new={"x": 2})
        lane.put("3", "2", carried={"x": 2})
        assert [{}, {}] == [lane.values("2"), lane.values("3")]

    def test_inherited_snapshot_is_shown_without_being_put_again(self, caller: Caller) -> None:
        """A delta channel's later checkpoints carry a snapshot's version and no value."""
        lane = Lane(caller)
        lane.put("1", new={"x": 1}, values={"x": _DeltaSnapshot([1, 2])})
        lane.put("2", "1", carried={"x": 1})
        assert shape({"x": _DeltaSnapshot([1, 2])}) == shape(lane.values("2"))

    def test_version_skipped_by_the_parent_is_refilled(self, caller: Caller) -> None:
        """A version names a value, whichever checkpoint of the thread holds it."""
        lane = Lane(caller)
        lane.put("1", new={"x": 1}, values={"x": "one"})
        lane.put("2", "1", new={"x": 2}, values={"x": "two"})
        lane.put("3", "2", carried={"x": 1})
        assert {"x": "one"} == lane.values("3")

    def test_value_under_an_unknown_version_is_kept(self, caller: Caller) -> None:
        """`update_state(as_node="__copy__")` puts its values with new_versions empty."""
        lane = Lane(caller)
        lane.put("1", new={"x": 1}, values={"x": "one"})
        lane.put("2", "1", carried={"x": 9}, values={"x": "nine"})
        assert {"x": "nine"} == lane.values("2")

    def test_one_version_put_twice_leaves_the_older_checkpoint_alone(self, caller: Caller) -> None:
        """Two branches may collide on a version; neither may change what the other shows."""
        lane = Lane(caller)
        lane.put("1", new={"x": 1}, values={"x": "one"})
        lane.put("2", new={"x": 1}, values={"x": "other"})
        assert [{"x": "one"}, {"x": "other"}] == [lane.values("1"), lane.values("2")]

    def test_same_id_put_again_replaces_and_keeps_its_writes(self, caller: Caller) -> None:
        """Exit durability and retries put an id twice; its writes were acknowledged."""
        lane = Lane(caller)
        lane.put("1", new={"x": 1}, values={"x": "one"}, metadata={"step": 1})
        lane.write("1", [("x", "w")])
        lane.put("2", "1", carried={"x": 1}, values={"x": "one"})
        lane.put("1", new={"x": 2}, values={"x": "two"}, metadata={"step": 2})
        assert ({"x": "two"}, 2) == (lane.values("1"), lane.read("1").metadata["step"])
        assert [("task", "x", "w")] == lane.pending("1")
        assert {"x": "one"} == lane.values("2")

    def test_metadata_takes_scalars_of_the_config(self, caller: Caller) -> None:
        """run_id reaches the metadata this way; private and structural keys must not."""
        config = make_config("t")
        config["metadata"] = {"run_id": "r\0", "langgraph_step": 3, "list": [1]}
        config["configurable"] |= {"user": "u", "__private": 1, "flag": True}
        caller.put(config, make_checkpoint("1", {}, {}), {"source": "loop", "step": 4}, {})
        expected = {"source": "loop", "step": 4, "run_id": "r", "user": "u", "flag": True}
        assert expected == Lane(caller).read("1").metadata

    def test_nul_characters_survive_in_values_and_writes(self, caller: Caller) -> None:
        """Only metadata loses them."""
        lane = Lane(caller)
        lane.put("1", new={"x\0": 1}, values={"x\0": "a\0b"})
        lane.write("1", [("x\0", "c\0")], "t\0")
        assert {"x\0": "a\0b"} == lane.values("1")
        assert [("t\0", "x\0", "c\0")] == lane.pending("1")

    def test_parent_need_not_exist(self, caller: Caller) -> None:
        """A subgraph's first checkpoint may name one that was never stored."""
        lane = Lane(caller)
        lane.put("2", "1", new={"x": 1}, values={"x": "X"})
        assert make_config("t", "", "1") == lane.read("2").parent_config
        assert {"writes": []} == lane.history("2", "x")
        lane.put("3", new={"x": 2})
        assert lane.read("3").parent_config is None

    def test_arguments_are_not_changed(self, caller: Caller) -> None:
        """LangGraph goes on using the checkpoint it has handed over."""
        checkpoint = make_checkpoint("1", {"x": 1}, {"x": [1]})
        given: list[Any] = [make_config("t", "", "0"), checkpoint, {"step": 1}, {"x": 1}]
        writes = [("x", [2])]
        before = copy.deepcopy((given, writes))
        caller.put(given[0], given[1], given[2], given[3])
        caller.put_writes(make_config("t", "", "1"), writes, "task")
        assert before == (given, writes)

    def test_nothing_stored_is_shared_with_callers(self, caller: Caller) -> None:
        """Nodes mutate state in place: neither what was put nor what was read may be the store."""
        lane, value, write = Lane(caller), [1], [1]
        lane.put("1", new={"x": 1}, values={"x": value})
        lane.write("1", [("x", write)])
        for held in (value, write, lane.values("1")["x"], lane.pending("1")[0][2]):
            held.append(2)
        lane.read("1").checkpoint["channel_versions"]["y"] = 1
        assert ({"x": [1]}, [("task", "x", [1])]) == (lane.values("1"), lane.pending("1"))
        assert {"x": 1} == lane.read("1").checkpoint["channel_versions"]
