"""The laws of `SaverSuite` about what a restart must not change, `test_restart_keeps_everything`
aside.

They are not applicable to a saver that ends with its process.

Part of `SaverSuite` only for the length of a module: not to be subclassed alone.
"""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.serde.types import RESUME, _DeltaSnapshot

from deltastore.testing import Caller, Lane, history_shape, make_config


class RestartLaws:
    """Part of `SaverSuite`; see there."""

    def test_restart_undoes_no_deletion(self, caller: Caller) -> None:
        """Nor does it bring anything back to a thread made anew."""
        for thread in ("t", "u"):
            lane = Lane(caller, thread)
            lane.put("1", new={"x": 1}, values={"x": thread})
            lane.write("1", [("x", thread)])
        caller.delete_thread("t")
        caller.reopen()
        assert (None, []) == (caller.get_tuple(make_config("t")), caller.list(make_config("t")))
        assert {"x": "u"} == Lane(caller, "u").values()
        lane = Lane(caller, "t")
        lane.put("1", carried={"x": 1})
        assert ({}, []) == (lane.values(), lane.pending("1"))

    def test_retries_after_a_restart_keep_the_rules(self, caller: Caller) -> None:
        """A crashed run is run again: what its tasks had written stays, a resume is replaced."""
        lane = Lane(caller)
        lane.put("1", new={"x": 1}, values={"x": "one"})
        lane.write("1", [("x", "first"), (RESUME, "r1")])
        caller.reopen()
        lane.write("1", [("x", "second"), (RESUME, "r2"), ("y", "more")])
        lane.write("1", [(RESUME, "r3")])
        lane.put("1", new={"x": 2}, values={"x": "two"})
        assert {"x": "two"} == lane.values()
        found = [write[1:] for write in lane.pending("1")]
        assert [(RESUME, "r3"), ("x", "first"), ("y", "more")] == found

    def test_history_is_the_same_after_a_restart(self, caller: Caller) -> None:
        """Forks, seeds and the order of writes, by the saver's walk and by the base class's."""
        lane = Lane(caller)
        lane.put("1", new={"x": 1}, values={"x": [0]})
        for n in range(2, 8):
            value = {"x": _DeltaSnapshot([n])} if n == 4 else {}
            lane.put(str(n), str(n - 1 - n % 2), new={"x": n}, values=value)
            for task_id, path in (("a", "~b"), ("b", "~a"), ("c", "")):
                lane.write(str(n), [("x", f"{n}{task_id}"), ("y", n)], task_id, path)

        def histories() -> list[Any]:
            configs = [lane.config(str(n)) for n in range(1, 8)]
            both = (caller.history, caller.history_of_base_class)
            return [history_shape(walk(config, ["x", "y"])) for walk in both for config in configs]

        before = histories()
        caller.reopen()
        assert before == histories()

    def test_versions_grow_over_a_restart(self, caller: Caller) -> None:
        """A version that comes again would show an old value."""
        version = None
        for _ in range(3):
            version = caller.saver.get_next_version(version, None)
        caller.reopen()
        assert caller.saver.get_next_version(version, None) > version
