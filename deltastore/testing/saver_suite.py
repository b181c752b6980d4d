"""Laws any LangGraph checkpoint saver can be held to, sync and async, as one pytest class.

    class TestMine(SaverSuite):
        def open(self, where: Path) -> Saver:
            return MySaver(where / "checkpoints.db")

A *law* is a test method; it knows the saver only through its caller. A *known fault* is a law a
saver is documented to break: it must fail, or the listing is out of date. Where savers differ, the
laws take the side of LangGraph's documentation and of what its own graphs need.

Nothing here knows deltastore: no law asks for more than `BaseCheckpointSaver` promises. The laws of
history, names, deletion and restart are in `history_laws`.
"""

from __future__ import annotations

import copy
import functools
import inspect
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from langgraph.checkpoint.base import ChannelVersions
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, _DeltaSnapshot

from deltastore.testing import (
    FALSY,
    Caller,
    Lane,
    Saver,
    listed_ids,
    make_checkpoint,
    make_config,
    shape,
)
from deltastore.testing.history_laws import HistoryLaws


class SaverSuite(HistoryLaws):
    """Subclass it as `Test...`, define `open`, and list what is known to fail.

    Attributes:
        known_faults: Law name to reason. A law listed must fail.
    """

    known_faults: ClassVar[Mapping[str, str]] = {}

    def open(self, where: Path) -> Saver:
        """Return a saver on the directory `where`, made with the async caller's loop running."""
        raise NotImplementedError

    def close(self, saver: Saver) -> None:
        """Close a saver; by default its `close()`, if it has one."""
        getattr(saver, "close", lambda: None)()

    def reopen(self, saver: Saver, where: Path) -> Saver:
        """Return the saver after a restart. A saver that keeps nothing returns itself."""
        self.close(saver)
        return self.open(where)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, reason in cls.known_faults.items():
            setattr(cls, name, _must_fail(getattr(cls, name), reason))

    @pytest.fixture(params=["sync", "async"])
    def caller(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Caller]:
        """A caller on a saver of its own."""
        with self.calling(tmp_path, asynchronous=request.param == "async") as caller:
            yield caller

    @contextmanager
    def calling(self, where: Path, *, asynchronous: bool = False) -> Iterator[Caller]:
        """Open a caller on `where`, close it at the end."""
        caller = Caller(
            lambda: self.open(where),
            close_saver=self.close,
            reopen_saver=lambda saver: self.reopen(saver, where),
            asynchronous=asynchronous,
        )
        try:
            yield caller
        finally:
            caller.close()

    # Put and read back.

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
        lane.put("2", "1", carried={"x": 1})
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

    # Writes.

    def test_writes_are_ordered_by_path_task_and_index(self, caller: Caller) -> None:
        """Live execution applies tasks in this order; arrival and task id order differ from it."""
        lane = Lane(caller)
        lane.put("1")
        lane.put("2", "1")
        lane.write("1", [("x", "pb")], "a", "~b")
        lane.write("1", [("x", "pa-z")], "z", "~a")
        lane.write("1", [("x", f"none-{i}") for i in range(12)], "m")
        lane.write("1", [("x", "pa-b")], "b", "~a")
        expected = [*(f"none-{i}" for i in range(12)), "pa-b", "pa-z", "pb"]
        listed = [item for item in caller.list(lane.config()) if item.pending_writes]
        assert expected == [w[2] for w in lane.pending("1")]
        assert expected == [w[2] for w in listed[0].pending_writes or ()]
        assert expected == [w[2] for w in lane.history("2", "x")["writes"]]

    def test_first_regular_write_stays(self, caller: Caller) -> None:
        """A retried task must not change what its first attempt was acknowledged for."""
        lane = Lane(caller)
        lane.put("1")
        lane.write("1", [("x", "first"), ("y", 1)])
        lane.write("1", [("x", "second"), ("y", 2), ("z", 3)])
        assert [("x", "first"), ("y", 1), ("z", 3)] == [w[1:] for w in lane.pending("1")]

    def test_last_special_write_stays(self, caller: Caller) -> None:
        """A second resume replaces the first, write by write, and goes before regular ones."""
        lane = Lane(caller)
        lane.put("1")
        lane.write("1", [("x", 1), (ERROR, "e1"), (INTERRUPT, "i1")])
        lane.write("1", [("x", 2), (ERROR, "e2"), (RESUME, "r1"), (RESUME, "r2")])
        expected = [(RESUME, "r2"), (INTERRUPT, "i1"), (ERROR, "e2"), ("x", 1)]
        assert expected == [w[1:] for w in lane.pending("1")]

    def test_writes_may_come_before_their_checkpoint(self, caller: Caller) -> None:
        """LangGraph waits for neither; an early write shows as no checkpoint and is not lost."""
        lane = Lane(caller)
        lane.write("2", [("x", "early")])
        assert (None, []) == (caller.get_tuple(lane.config()), caller.list(None))
        assert caller.get_tuple(lane.config("2")) is None
        lane.put("2")
        assert [("task", "x", "early")] == lane.pending("2")

    def test_late_writes_reach_an_old_checkpoint_only(self, caller: Caller) -> None:
        """A plain graph's writes may arrive after the child is stored."""
        lane = Lane(caller)
        lane.put("1")
        lane.put("2", "1")
        lane.write("1", [("x", "late")])
        lane.write("1", [])
        assert ([("task", "x", "late")], []) == (lane.pending("1"), lane.pending("2"))
        assert ["late"] == [w[2] for w in lane.history("2", "x")["writes"]]

    def test_task_path_is_a_parameter_by_name(self, caller: Caller) -> None:
        """LangGraph inspects the signature and passes no path where it finds none."""
        for method in (caller.saver.put_writes, caller.saver.aput_writes):
            assert "task_path" in inspect.signature(method).parameters

    # Reading and listing.

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


def broken_laws(suite: SaverSuite, *, asynchronous: bool = False) -> dict[str, BaseException]:
    """Run every law of a suite outside pytest, each on a fresh saver; return those that failed.

    Known faults count as they are listed: one that fails as told is no failure here.
    """
    failed: dict[str, BaseException] = {}
    for name in sorted(name for name in dir(suite) if name.startswith("test_")):
        with tempfile.TemporaryDirectory() as where:
            try:
                with suite.calling(Path(where), asynchronous=asynchronous) as caller:
                    getattr(suite, name)(caller)
            except Exception as error:  # noqa: BLE001 (whatever a saver raises is a failed law)
                failed[name] = error
    return failed


def _must_fail(law: Callable[..., None], reason: str) -> Callable[..., None]:
    """Return the law turned round: it passes exactly if the law fails."""

    @functools.wraps(law)
    def turned(self: SaverSuite, caller: Caller) -> None:
        try:
            law(self, caller)
        except Exception:  # noqa: BLE001 (whatever a saver raises is a failed law)
            return
        pytest.fail(f"{law.__name__} passes, but is listed as a known fault: {reason}")

    return turned
