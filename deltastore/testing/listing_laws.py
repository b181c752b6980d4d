"""The laws of `SaverSuite` about reading one checkpoint and listing many.

Part of `SaverSuite` only for the length of a module: not to be subclassed alone.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

from langchain_core.runnables import RunnableConfig

from deltastore.testing import (
    Caller,
    Lane,
    listed_ids,
    make_checkpoint,
    make_config,
    tuple_shape,
)


def put_under(caller: Caller, config: RunnableConfig, cid: str) -> RunnableConfig:
    """Put a checkpoint without values under a config as it is."""
    return caller.put(config, make_checkpoint(cid, {}, {}), {"source": "loop", "step": 0}, {})


class ListingLaws:
    """Part of `SaverSuite`; see there."""

    def test_latest_is_the_greatest_id(self, caller: Caller) -> None:
        """Ids order by time over processes; put order does not."""
        lane = Lane(caller)
        for cid in ("2", "3", "1"):
            lane.put(cid)
        configs = [make_config("t"), make_config("t"), make_config("t", "", "")]
        configs[0]["configurable"]["checkpoint_id"] = None
        del configs[1]["configurable"]["checkpoint_ns"]
        assert ["3"] * 3 == listed_ids([t for c in configs if (t := caller.get_tuple(c))])

    def test_absent_checkpoint_is_none(self, caller: Caller) -> None:
        """Neither another checkpoint nor an error."""
        Lane(caller).put("1")
        absent = [make_config("t", "", "0"), make_config("t", "n"), make_config("u")]
        assert [None] * 3 == [caller.get_tuple(config) for config in absent]

    def test_listing_is_newest_first_and_before_is_exclusive(self, caller: Caller) -> None:
        """`before` compares ids; the id itself need not exist."""
        lane = Lane(caller)
        for cid in ("2", "4", "3", "1"):
            lane.put(cid)
        assert ["4", "3", "2", "1"] == lane.ids()
        assert ["2", "1"] == lane.ids(before=lane.config("3"))
        assert ["3", "2", "1"] == lane.ids(before=lane.config("35"))
        assert ["3"] == listed_ids(caller.list(lane.config("3")))

    def test_limit_counts_what_the_filter_left(self, caller: Caller) -> None:
        """Zero is none, not all."""
        lane = Lane(caller)
        for step in range(6):
            lane.put(str(step), metadata={"step": step % 2})
        assert ["5", "3"] == lane.ids(filter={"step": 1}, limit=2)
        assert ([], ["5"]) == (lane.ids(limit=0), lane.ids(limit=1))

    def test_all_keys_of_a_filter_match_by_type(self, caller: Caller) -> None:
        """The number 1 is not the text "1"; an empty filter is none."""
        lane = Lane(caller)
        lane.put("1", metadata={"step": 1, "tag": "1"})
        lane.put("2", metadata={"step": 1, "tag": "2"})
        assert ["1"] == lane.ids(filter={"step": 1, "tag": "1"})
        assert [] == lane.ids(filter={"step": "1"}) + lane.ids(filter={"tag": 1, "step": 1})
        assert ["2", "1"] == lane.ids(filter={})

    def test_missing_namespace_lists_all_and_the_empty_one_is_root(self, caller: Caller) -> None:
        """LangGraph's replay of subgraphs relies on the difference."""
        for cid, thread, ns in (("1", "t", ""), ("2", "t", "n"), ("3", "u", "")):
            Lane(caller, thread, ns).put(cid)
        everywhere = caller.list({"configurable": {"thread_id": "t"}})
        assert ["1", "2"] == sorted(listed_ids(everywhere))
        assert (["1"], ["2"]) == (Lane(caller).ids(), Lane(caller, "t", "n").ids())
        assert ["1", "2", "3"] == sorted(listed_ids(caller.list(None)))

    def test_listing_left_open_blocks_no_write(self, caller: Caller) -> None:
        """LangGraph takes one item, writes and drops the iterator."""
        lane = Lane(caller)
        lane.put("1")
        lane.put("2")
        first = caller.list_first_then(lane.config(), functools.partial(lane.put, "3", "2"))
        assert (["2"], ["3", "2", "1"]) == (listed_ids([first]), lane.ids())

    def test_listing_left_open_blocks_no_read(self, caller: Caller) -> None:
        """Whoever walks the history of a thread looks into its checkpoints on the way."""
        lane = Lane(caller)
        lane.put("1", new={"x": 1}, values={"x": "X"})
        lane.put("2", "1", carried={"x": 1})
        seen: list[Any] = []

        def look() -> None:
            seen.extend((lane.ids(), lane.read("1").checkpoint["id"], lane.history("2", "x")))

        first = caller.list_first_then(lane.config(), look)
        assert (["2"], ["2", "1"], "1") == (listed_ids([first]), seen[0], seen[1])
        assert "X" == seen[2]["seed"]

    def test_listed_tuples_are_as_they_read(self, caller: Caller) -> None:
        """Values, metadata, parents and pending writes; a listing is no lesser reading."""
        for ns in ("", "n"):
            lane = Lane(caller, "t", ns)
            lane.put("1", new={"x": 1}, values={"x": [1]}, metadata={"step": -1})
            lane.put("2", "1", new={"x": 2}, values={"x": [1, 2]}, metadata={"tag": "t"})
            lane.put("3", "2", new={"x": 3})
            for cid in ("1", "3"):
                lane.write(cid, [("x", cid), ("y", None)], "b", "~b")
                lane.write(cid, [("x", cid)], "c", "~a")
        listed = caller.list(make_config("t")) + caller.list(None)
        assert 3 + 6 == len(listed)
        for item in listed:
            assert tuple_shape(caller.get_tuple(item.config)) == tuple_shape(item)

    def test_pages_meet_every_checkpoint_once(self, caller: Caller) -> None:
        """An application pages by the id of the last checkpoint it has shown."""
        lane = Lane(caller)
        ids = [f"{n:02}" for n in range(11)]
        for cid in ids:
            lane.put(cid)
        for size in (1, 3, 11, 99):
            met = lane.ids(limit=size)
            for _ in ids:
                met += lane.ids(before=lane.config(met[-1]), limit=size)
            assert ids[::-1] == met

    def test_filter_before_and_limit_act_together(self, caller: Caller) -> None:
        """In one thread and over the whole store."""
        for thread in ("t", "u"):
            for step in range(8):
                metadata = {"step": step % 2, "thread": thread}
                Lane(caller, thread).put(f"{step}{thread}", metadata=metadata)
        lane = Lane(caller)
        before = lane.config("5t")
        assert ["3t", "1t"] == lane.ids(filter={"step": 1}, before=before, limit=3)
        assert ["3t"] == lane.ids(filter={"step": 1}, before=before, limit=1)
        odd_of_u = caller.list(None, filter={"step": 1, "thread": "u"}, limit=3)
        assert ["7u", "5u", "3u"] == listed_ids(odd_of_u)
        assert (16, 5, 0) == tuple(len(caller.list(None, limit=n)) for n in (99, 5, 0))

    def test_listing_of_what_is_not_there_is_empty(self, caller: Caller) -> None:
        """Neither an error nor another's checkpoints."""
        lane = Lane(caller)
        lane.put("2", metadata={"tag": "t"})
        for place in (make_config("u"), make_config("t", "n"), make_config("t", "", "1")):
            assert [] == caller.list(place)
        assert [] == lane.ids(before=lane.config("2")) + lane.ids(before=lane.config("1"))
        assert [] == lane.ids(filter={"absent": 1}) + lane.ids(filter={"tag": "T"})
        assert ["2"] == lane.ids(filter={"tag": "t", "source": "loop"})

    def test_run_ids_and_config_scalars_can_be_filtered_by(self, caller: Caller) -> None:
        """That is how an application finds the checkpoints of a run."""
        lane = Lane(caller)
        for cid, run in (("1", "a"), ("2", "b"), ("3", "a")):
            config = lane.config()
            config["metadata"] = {"run_id": run}
            config["configurable"]["user"] = f"user {run}"
            put_under(caller, config, cid)
        assert ["3", "1"] == lane.ids(filter={"run_id": "a"})
        assert ["2"] == listed_ids(caller.list(None, filter={"user": "user b"}))

    def test_reading_changes_no_argument(self, caller: Caller) -> None:
        """Configs are shared by all that a run does; one that changes changes another's call."""
        lane = Lane(caller)
        lane.put("1", new={"x": 1}, values={"x": 1})
        lane.put("2", "1", carried={"x": 1})
        config, before, wanted, channels = lane.config("2"), lane.config("3"), {"step": 0}, ["x"]
        config["configurable"]["extra"] = [1]
        config["metadata"] = {"user": "u"}
        given = (config, before, wanted, channels)
        copied = copy.deepcopy(given)
        caller.get_tuple(config)
        caller.list(config, filter=wanted, before=before, limit=1)
        caller.history(config, channels)
        assert copied == given

    def test_changing_a_config_later_changes_nothing(self, caller: Caller) -> None:
        """What was put lies where it was put, whatever becomes of the config."""
        lane = Lane(caller)
        config = lane.config("0")
        returned = put_under(caller, config, "1")
        for given in (config, returned):
            given["configurable"] |= {"thread_id": "u", "checkpoint_ns": "n", "checkpoint_id": "9"}
        found = lane.read()
        assert (lane.config("1"), lane.config("0")) == (found.config, found.parent_config)
        assert ["1"] == listed_ids(caller.list(None))
