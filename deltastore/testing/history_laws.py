"""The laws of `SaverSuite` about history, names, deletion, clones and restarts.

A *walk* follows parent links from a checkpoint; a *seed* is the nearest value present on it. A walk
that never ends is caught by counting calls (`ends`): a faulty saver fails instead of hanging.

Part of `SaverSuite` only for the length of a module: not to be subclassed alone.
"""

from __future__ import annotations

import copy
import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from langgraph.checkpoint.base import DeltaChannelHistory
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore.testing import FALSY, Caller, Lane, history_shape, listed_ids, make_config, shape

CALLS_MAX: Final = 200_000
_LONG: Final = "long-" * 400


@contextmanager
def ends() -> Iterator[None]:
    """Raise `TimeoutError` once the block has made `CALLS_MAX` calls, whatever time they take."""
    calls = 0

    def count(*_event: object) -> None:
        nonlocal calls
        calls += 1
        if calls > CALLS_MAX:
            raise TimeoutError(f"no end after {CALLS_MAX} calls")

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


class HistoryLaws:
    """Half of `SaverSuite`; see there."""

    def test_history_follows_parents_not_ids(self, caller: Caller) -> None:
        """Ids are monotonic within a process only; a fork's writes are no one else's."""
        lane = Lane(caller)
        for cid, parent in (("9", None), ("5", "9"), ("7", "9"), ("1", "5")):
            lane.put(cid, parent)
            lane.write(cid, [("x", f"w{cid}"), ("other", 0)])
        expected: DeltaChannelHistory = {"writes": [("task", "x", "w9"), ("task", "x", "w5")]}
        assert history_shape({"x": expected}) == history_shape({"x": lane.history("1", "x")})

    def test_seed_brings_its_own_writes_and_ends_the_walk(self, caller: Caller) -> None:
        """A value is older than the writes stored beside it; what lies before it is in it."""
        lane = Lane(caller)
        lane.put("1")
        lane.put("2", "1", new={"x": 1}, values={"x": _DeltaSnapshot(["s"])})
        lane.put("3", "2", new={"x": 2})
        for cid in ("1", "2", "3"):
            lane.write(cid, [("x", f"w{cid}")])
        lane.put("4", "3", carried={"x": 2})
        lane.write("4", [("x", "pending")])
        expected: DeltaChannelHistory = {
            "seed": _DeltaSnapshot(["s"]),
            "writes": [("task", "x", "w2"), ("task", "x", "w3")],
        }
        assert history_shape({"x": expected}) == history_shape({"x": lane.history("4", "x")})

    def test_falsy_seeds_end_the_walk_and_emptied_channels_do_not(self, caller: Caller) -> None:
        """Present, not truthy: otherwise a cleared list comes back to life."""
        lane = Lane(caller)
        lane.put("1", new=dict.fromkeys(FALSY, 1), values=dict.fromkeys(FALSY, "old"))
        lane.write("1", [(channel, "older") for channel in FALSY])
        lane.put("2", "1", new=dict.fromkeys(FALSY, 2), values=FALSY)
        lane.put("3", "2", new=dict.fromkeys(FALSY, 3))
        lane.put("4", "3", carried=dict.fromkeys(FALSY, 3))
        found = caller.history(lane.config("4"), [*FALSY])
        assert history_shape({c: {"seed": v, "writes": []} for c, v in FALSY.items()}) == (
            history_shape(found)
        )

    def test_channels_end_their_walks_one_by_one(self, caller: Caller) -> None:
        """One call serves all delta channels of a graph; without a value there is no seed key."""
        lane = Lane(caller)
        lane.put("1", new={"x": 1}, values={"x": "X"})
        lane.put("2", "1", carried={"x": 1}, new={"y": 1}, values={"x": "X", "y": "Y"})
        lane.put("3", "2", new={"x": 2, "y": 2})
        for cid in ("1", "2"):
            lane.write(cid, [("x", cid), ("y", cid), ("z", cid)])
        found = caller.history(lane.config(), ["x", "y", "z", "none"])
        seeds = {channel: entry.get("seed", "no seed") for channel, entry in found.items()}
        assert {"x": "X", "y": "Y", "z": "no seed", "none": "no seed"} == seeds
        writes = {channel: [w[2] for w in entry["writes"]] for channel, entry in found.items()}
        assert {"x": ["2"], "y": ["2"], "z": ["1", "2"], "none": []} == writes

    def test_history_of_an_absent_checkpoint_is_empty(self, caller: Caller) -> None:
        """Asking is no error, and no channels are no answer."""
        lane = Lane(caller)
        assert {"writes": []} == lane.history("9", "x")
        assert {} == dict(caller.history(lane.config("9"), []))

    def test_history_equals_the_walk_of_the_base_class(self, caller: Caller) -> None:
        """Hosts walk with get_tuple alone; an override must not know better."""
        lane = Lane(caller)
        lane.put("1", new={"x": 1}, values={"x": [0]})
        for n in range(2, 9):
            value = {"x": _DeltaSnapshot([n])} if n == 5 else {}
            lane.put(str(n), str(n - 1 - n % 2), new={"x": n}, values=value)
        for n in range(1, 9):
            lane.write(str(n), [("x", n), ("y", n)], f"task{9 - n}", f"~{n % 3}")
        for n in range(1, 9):
            config = lane.config(str(n))
            expected = caller.history_of_base_class(config, ["x", "y"])
            assert history_shape(expected) == history_shape(caller.history(config, ["x", "y"]))

    def test_walks_of_a_loop_end(self, caller: Caller) -> None:
        """An id put again under its descendant makes a loop; a read must not hang in it."""
        lane = Lane(caller)
        lane.put("1")
        lane.put("2", "1")
        lane.put("1", "2")
        with ends():
            assert {"x", "y"} == set(caller.history(lane.config("2"), ["x", "y"]))
            lane.put("3", "2", carried={"x": 4})
            assert ["3", "2", "1"] == lane.ids()

    # Names.

    def test_names_never_reach_a_neighbour(self, caller: Caller) -> None:
        """Ids are arbitrary text: no separator may move a border between two of them."""
        places = [("a", "b"), ("a\0b", ""), ("a", "b\0"), ("ab", ""), ("", "ab"), ("a|b", "a/b")]
        for thread, ns in places:
            lane = Lane(caller, thread, ns)
            lane.put("1", new={"x": 1}, values={"x": [thread, ns]})
            lane.write("1", [("x", [ns, thread])])
        for thread, ns in places:
            lane = Lane(caller, thread, ns)
            assert {"x": [thread, ns]} == lane.values()
            assert [("task", "x", [ns, thread])] == lane.pending("1")
            assert ["1"] == lane.ids()

    def test_names_may_be_long_and_odd(self, caller: Caller) -> None:
        """Nested namespaces pass 511 bytes; the tail of a name must count."""
        for tail in ("x", "y", "\0", "\U0001f409"):
            lane = Lane(caller, _LONG + tail, _LONG + tail)
            lane.put("ID-Z|" + tail, new={_LONG + tail: 1}, values={_LONG + tail: tail})
            for end in ("1", "2"):
                lane.write("ID-Z|" + tail, [(_LONG + tail, end)], _LONG + end, _LONG + end)
        for tail in ("x", "y", "\0", "\U0001f409"):
            lane = Lane(caller, _LONG + tail, _LONG + tail)
            assert {_LONG + tail: tail} == lane.values()
            assert [(_LONG + end, _LONG + tail, end) for end in "12"] == lane.pending(
                "ID-Z|" + tail
            )

    def test_thread_id_may_be_a_number(self, caller: Caller) -> None:
        """Callers pass database keys as they are."""
        lane = Lane(caller, 7)
        lane.put("1", new={"x": 1}, values={"x": "X"})
        assert ({"x": "X"}, ["1"]) == (lane.values(), lane.ids())

    # Deleting.

    def test_deleted_thread_is_gone_in_every_namespace(self, caller: Caller) -> None:
        """And only that thread: "1" leaves "10" alone."""
        for thread, ns in (("1", ""), ("1", "n"), ("10", ""), ("", "1")):
            Lane(caller, thread, ns).put("1")
        caller.delete_thread("1")
        caller.delete_thread("absent")
        assert [None, None] == [caller.get_tuple(make_config("1", ns)) for ns in ("", "n")]
        left = {t.config["configurable"]["thread_id"] for t in caller.list(None)}
        assert {"10", ""} == left

    def test_thread_made_anew_finds_nothing_of_the_old(self, caller: Caller) -> None:
        """Neither writes, nor early writes, nor values under versions used before."""
        lane = Lane(caller)
        lane.put("1", new={"x": 1}, values={"x": "old"})
        lane.write("1", [("x", "old")])
        lane.write("2", [("x", "early")])
        caller.delete_thread("t")
        lane.put("1", carried={"x": 1})
        lane.put("2", "1", carried={"x": 1})
        assert [({}, []), ({}, [])] == [(lane.values(c), lane.pending(c)) for c in ("1", "2")]

    # The object.

    def test_versions_grow_and_branches_do_not_collide(self, caller: Caller) -> None:
        """Two forks count on from one version; a thread of an older saver has ints."""
        draw = caller.saver.get_next_version
        first = draw(None, None)
        grown = [first]
        for _ in range(12):
            grown.append(draw(grown[-1], None))
        assert sorted({*grown}) == grown
        assert draw(first, None) != draw(first, None)
        assert 6 == int(str(draw(5, None)).split(".")[0])

    def test_clone_shares_the_store_and_may_go_first(self, caller: Caller) -> None:
        """compile() clones a saver with copy.copy to set its serializer, then drops it."""
        lane = Lane(caller)
        lane.put("1", new={"x": 1}, values={"x": "X"})
        original, clone = caller.saver, copy.copy(caller.saver)
        clone.serde = copy.copy(original.serde)
        caller.saver = clone
        lane.put("2", "1", carried={"x": 1}, values={"x": "X"})
        caller.saver = original
        del clone
        gc.collect()
        lane.put("3", "2", carried={"x": 1}, values={"x": "X"})
        assert ({"x": "X"}, ["3", "2", "1"]) == (lane.values("2"), lane.ids())
        assert [] == original.config_specs

    def test_restart_keeps_everything(self, caller: Caller) -> None:
        """What was acknowledged is on disk: values, writes, early writes, metadata and order."""
        lane = Lane(caller, "t\0", "n|1")
        lane.put("1", new={"x": "1"}, values={"x": [1]}, metadata={"step": 1})
        held = {"x": [1], "y": None}
        lane.put("2", "1", carried={"x": "1"}, new={"y": 2.5}, values=held)
        lane.write("1", [("x", "b")], "b", "~b")
        lane.write("1", [("x", "a")], "z", "~a")
        lane.write("3", [("x", "early")])
        before = [shape(tuple(item)) for item in caller.list(None)]
        caller.reopen()
        assert before == [shape(tuple(item)) for item in caller.list(None)]
        assert ["a", "b"] == [w[2] for w in lane.history("2", "x")["writes"]]
        lane.put("3", "2", carried={"x": "1", "y": 2.5}, values=held)
        assert ["3", "2", "1"] == listed_ids(caller.list(lane.config()))
        assert (held, ["early"]) == (
            lane.values("3"),
            [w[2] for w in lane.pending("3")],
        )
