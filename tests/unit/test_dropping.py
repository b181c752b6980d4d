"""What dropping leaves in the place of checkpoints, and when its plan is out of date."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deltastore import DeltaStoreSaver, SnapshotBounds, dropping, retention, session
from deltastore.append import StaleError
from deltastore.choosing import keep_newest, plan_thread
from deltastore.dropping import StreamDrop
from deltastore.engine.memory import MemoryEngine, MemoryTransaction
from deltastore.errors import DeletedParentError, EngineError
from deltastore.format import keys, layout
from deltastore.format.header import ValueRef
from deltastore.format.value import ValueRecord
from deltastore.ids import cid_from_id
from deltastore.options import StoreOptions
from deltastore.store import Store
from deltastore.survey import survey
from deltastore.testing import Caller, Lane, make_checkpoint
from deltastore.testing.strategies import checkpoint_id

LARGE = [f"message {n}: " + "text of some length " * 10 for n in range(20)]
cid = checkpoint_id


class HookedEngine(MemoryEngine):
    """Calls `hook` once before the `place`-th write transaction from now on."""

    hook: Callable[[], object] | None = None
    place = 0

    def begin(self, *, write: bool, scope: bytes = b"") -> MemoryTransaction:
        if write and self.hook is not None:
            self.place -= 1
            if self.place == 0:
                hook, self.hook = self.hook, None
                hook()
        return super().begin(write=write, scope=scope)

    def between_plan_and_transaction(self, hook: Callable[[], object]) -> None:
        """A prune begins with a transaction that watches; it plans after it."""
        self.place, self.hook = 2, hook


class Open(Lane):
    """A lane on a store of its own, or on another's engine."""

    def __init__(self, engine: MemoryEngine | None = None, **bounds: Any) -> None:
        self.engine = engine or HookedEngine()
        options = StoreOptions(bounds=SnapshotBounds(**bounds)) if bounds else None
        self.store = Store(self.engine, options)
        self.saver = DeltaStoreSaver.on_store(self.store)
        super().__init__(Caller(lambda: self.saver))

    def of_run(self, run_id: str, name: str, parent: str | None, **how: Any) -> None:
        """Put a checkpoint of a run."""
        config = self.config(parent)
        config["metadata"] = {"run_id": run_id}
        new = how.get("new", {})
        made = make_checkpoint(name, {**how.get("carried", {}), **new}, how.get("values", {}))
        self.saver.put(config, made, {"source": "loop", "step": 0}, new)

    def growing(self, count: int, first: int = 0) -> None:
        """Put a line with a list that grows, one write at each."""
        for n in range(first, first + count):
            parent = cid(n - 1) if n else None
            self.put(cid(n), parent, new={"x": n + 1}, values={"x": [*LARGE, *range(n)]})
            self.write(cid(n), [("log", [n])])

    def ref(self, name: str, channel: str = "x") -> ValueRef:
        """Return where a checkpoint's value is."""
        with self.store._session.view() as txn:
            reader = self.store._session.find(txn, "t", "", None)
            assert reader is not None
            entry = reader.entry(cid_from_id(name))
            assert entry is not None
            ref = entry.header.slots[channel].value
            assert ref is not None
            return ref

    def record(self, ref: ValueRef) -> ValueRecord:
        with self.store._session.view() as txn:
            reader = self.store._session.find(txn, "t", "", None)
            assert reader is not None
            return reader.value(ref.cid, ref.ordinal)

    def kinds(self, name: str) -> list[int]:
        """Return the kinds of the records at an id."""
        at = keys.log_prefix(1, 1) + cid_from_id(name)
        with self.store._session.view() as txn:
            return [keys.split(key).kind for key in txn.scan_keys(at, keys.after(at))]

    def plan(self, count: int = 1) -> StreamDrop:
        with self.store._session.view() as txn:
            drops = plan_thread(self.store._session, txn, "t", keep_newest(count, None), None)
        return drops[0]

    def check(self, drop: StreamDrop, name: str) -> None:
        """As a prune that has applied nothing of its plan yet."""
        with self.store._session.view() as txn:
            reader = self.store._session.reader(txn, drop.stream, None)
            dropping.check_drop(reader, drop, set(drop.order), cid_from_id(name))


# --- values ----------------------------------------------------------------------------------


def test_a_value_that_is_needed_stays_where_it_is() -> None:
    """No reference of what stays moves: place and digest are what they were."""
    lane = Open()
    lane.put(cid(0), new={"x": 1, "y": 1}, values={"x": LARGE, "y": LARGE[::-1]})
    lane.put(cid(1), cid(0), carried={"x": 1}, new={"y": 2}, values={"y": 2})
    lane.put(cid(2), cid(1), carried={"x": 1, "y": 2})
    ref = lane.ref(cid(2))
    lane.saver.prune(["t"])
    assert ref == lane.ref(cid(2))
    assert [layout.KIND_VALUE] == lane.kinds(cid(0))  # the one of x, and nothing else
    assert {"x": LARGE, "y": 2} == lane.values(cid(2))


def test_an_inline_value_gets_a_record_of_its_own() -> None:
    """Its header goes; the reference has no digest, and needs none."""
    lane = Open()
    lane.put(cid(0), new={"x": 1, "y": 1}, values={"x": "small", "y": "other"})
    lane.put(cid(1), cid(0), carried={"x": 1}, new={"y": 2}, values={"y": 2})
    lane.put(cid(2), cid(1), carried={"x": 1, "y": 2})
    ref = lane.ref(cid(2))
    assert ref.digest is None
    lane.saver.prune(["t"])
    assert (ref, {"x": "small", "y": 2}) == (lane.ref(cid(2)), lane.values(cid(2)))
    assert [layout.KIND_VALUE] == lane.kinds(cid(0))
    assert [layout.KIND_VALUE, layout.KIND_ANCHOR] == lane.kinds(cid(1))


def test_what_nobody_needs_any_more_goes_at_the_next_prune() -> None:
    """Remains are nobody's: they go when the last who referred to them does."""
    lane = Open()
    lane.put(cid(0), new={"x": 1, "y": 1}, values={"x": LARGE, "y": "small"})
    lane.put(cid(1), cid(0), carried={"x": 1, "y": 1})
    lane.put(cid(2), cid(1), carried={"x": 1, "y": 1})
    lane.saver.prune(["t"])
    assert [layout.KIND_VALUE] * 2 == lane.kinds(cid(0))
    lane.put(cid(3), cid(2), carried={"y": 1}, new={"x": 4}, values={"x": ["another"]})
    lane.saver.prune(["t"])
    assert [layout.KIND_VALUE] == lane.kinds(cid(0))
    lane.put(cid(4), cid(3), new={"x": 5, "y": 5}, values={"x": 5, "y": 5})
    lane.saver.prune(["t"])
    assert [] == lane.kinds(cid(0))
    assert {"x": 5, "y": 5} == lane.values()


def test_a_value_whose_base_goes_is_stored_whole() -> None:
    """With the bytes it had, so that what is coded against it in turn still fits."""
    lane = Open()
    lane.growing(8)
    refs = {n: lane.ref(cid(n)) for n in (5, 6, 7)}
    assert all(lane.record(ref).base is not None for ref in refs.values())
    lane.saver.prune(["t"], keep_last=3)
    assert refs == {n: lane.ref(cid(n)) for n in (5, 6, 7)}
    assert [True, False, False] == [lane.record(ref).base is None for ref in refs.values()]
    assert [[*LARGE, *range(n)] for n in (5, 6, 7)] == [lane.values(cid(n))["x"] for n in (5, 6, 7)]


def test_a_value_goes_on_as_a_delta_where_its_base_is_needed_too() -> None:
    """A sibling that stays refers to the base: nothing needs to be stored again."""
    lane = Open()
    lane.growing(4)
    lane.put(cid(4), cid(2), carried={"x": 3})  # refers to the value of 2, which 3 is coded against
    before = lane.record(lane.ref(cid(3)))
    assert before.base is not None
    lane.saver.prune(["t"], keep_last=2)
    assert before == lane.record(lane.ref(cid(3)))
    assert lane.record(lane.ref(cid(4))).base is None
    assert [*LARGE, 0, 1] == lane.values(cid(4))["x"]


def test_a_value_that_shares_writes_which_go_is_stored_whole() -> None:
    """Its new elements lie in its parent's writes, and those become an anchor's."""
    lane = Open()
    lane.put(cid(0), new={"x": 1}, values={"x": LARGE})
    message = "a long message " * 40
    lane.write(cid(0), [("x", [message])])
    lane.put(cid(1), cid(0), new={"x": 2}, values={"x": [*LARGE, message]})
    base = lane.record(lane.ref(cid(1))).base
    assert base is not None
    assert base.sources
    lane.put(cid(2), cid(0), carried={"x": 1})  # its base stays for this one
    lane.saver.prune(["t"], keep_last=2)
    assert lane.record(lane.ref(cid(1))).base is None
    assert [{"x": [*LARGE, message]}, {"x": LARGE}] == [lane.values(cid(n)) for n in (1, 2)]


@pytest.mark.parametrize("bounds", [{"updates": 1}, {"updates": 3}, {"ratio": 0.1}])
def test_values_of_what_stays_read_the_same_whatever_goes(bounds: Any) -> None:
    """Chains are cut at each place in turn: runs and whole values as well as deltas."""
    for keep_last in range(1, 10):
        lane = Open(**bounds)
        lane.growing(10)
        expected = {n: lane.values(cid(n)) for n in range(10 - keep_last, 10)}
        lane.saver.prune(["t"], keep_last=keep_last)
        cold = Open(lane.engine)
        assert expected == {n: cold.values(cid(n)) for n in expected}
        lane.growing(3, 10)
        assert {"x": [*LARGE, *range(12)]} == Open(lane.engine).values()


# --- headers, and the order of steps ---------------------------------------------------------


def test_only_children_of_anchors_are_coded_whole() -> None:
    """All other headers keep every byte."""
    lane = Open()
    lane.growing(12)
    lane.put(cid(20), cid(4), carried={"x": 5})
    drop = lane.plan(6)
    assert {cid_from_id(cid(7)), cid_from_id(cid(20))} == {*drop.whole}
    with lane.store._session.view() as txn:
        before = txn.scan(keys.log_prefix(1, 1), keys.after(keys.log_prefix(1, 1)))
    lane.saver.prune(["t"], keep_last=6)
    with lane.store._session.view() as txn:
        after = dict(txn.scan(keys.log_prefix(1, 1), keys.after(keys.log_prefix(1, 1))))
    for key, record in before:
        place = keys.split(key)
        is_kept_header = place.kind == layout.KIND_HEADER and place.cid in drop.keep
        if is_kept_header and place.cid not in drop.whole:
            assert record == after[key]


def test_every_prefix_of_the_steps_leaves_a_sound_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may die after each transaction: one step in each, and a look after each."""
    monkeypatch.setattr(retention, "RECORDS_MAX", 1)
    lane = Open(updates=3)
    lane.growing(11)
    for n in (30, 31, 32):
        lane.put(cid(n), cid(2 * n - 56), carried={"x": 2 * n - 55})
    expected = {name: (lane.values(name), lane.history(name, "log")) for name in lane.ids()}
    looks = []

    def look(done: int, total: int) -> None:
        assert [] == lane.store.verify().damage
        cold = Open(lane.engine)
        left = {name: (cold.values(name), cold.history(name, "log")) for name in cold.ids()}
        assert expected | left == expected
        looks.append(len(left))

    lane.store.prune("t", keep_last=4, progress=look)
    assert looks == sorted(looks, reverse=True)
    assert {*range(4, 15)} == {*looks}


# --- what is refused -------------------------------------------------------------------------


def test_a_put_below_what_is_gone_is_refused() -> None:
    """There is no anchor where no child stayed; as a root its history would be cut."""
    lane = Open()
    lane.growing(4)
    lane.saver.prune(["t"])
    with pytest.raises(DeletedParentError):
        lane.put(cid(9), cid(1))
    lane.put(cid(9), cid(2), new={"x": 9}, values={"x": [9]})  # an anchor
    assert [0, 1, 2] == [write[2][0] for write in lane.history(cid(9), "log")["writes"]]


# --- out of date -----------------------------------------------------------------------------


def new_child_of_what_goes(lane: Open) -> str:
    lane.put(cid(9), cid(2), carried={"x": 3})
    return cid(9)


def empty_child_of_what_goes(lane: Open) -> str:
    lane.put(cid(9), cid(2))
    return cid(9)


def late_write_to_what_is_folded(lane: Open) -> str:
    lane.write(cid(3), [("log", ["late"])], "late")
    return cid(3)


def late_write_to_what_goes(lane: Open) -> str:
    lane.write(cid(1), [("log", ["late"])], "late")
    return cid(1)


def put_again_what_stays(lane: Open) -> str:
    lane.put(cid(5), cid(4), new={"x": 6}, values={"x": "again"})
    return cid(5)


def reference_to_a_value_that_goes(lane: Open) -> str:
    lane.put(cid(9), cid(5), carried={"x": 2})  # the version of 1
    return cid(9)


def grandchild_of_what_stays(lane: Open) -> str:
    lane.put(cid(9), cid(5), carried={"x": 6}, new={"y": 1}, values={"y": LARGE})
    return cid(9)


def write_to_what_stays(lane: Open) -> str:
    lane.write(cid(5), [("log", ["more"])], "more")
    return cid(5)


def early_write(lane: Open) -> str:
    lane.write(cid(99), [("log", ["early"])], "early")
    return cid(99)


def another_root(lane: Open) -> str:
    lane.put(cid(9), new={"x": 50}, values={"x": LARGE})
    return cid(9)


STALE: list[Callable[[Open], str]] = [
    new_child_of_what_goes,
    empty_child_of_what_goes,
    late_write_to_what_is_folded,
    late_write_to_what_goes,
    put_again_what_stays,
    reference_to_a_value_that_goes,
]
HARMLESS: list[Callable[[Open], str]] = [
    grandchild_of_what_stays,
    write_to_what_stays,
    early_write,
    another_root,
]


@pytest.mark.parametrize("what", [*STALE, *HARMLESS])
def test_a_plan_is_stale_where_others_stood_on_what_goes_and_not_else(
    what: Callable[[Open], str],
) -> None:
    """Too seldom loses data; too often lets no prune beside a running graph ever end."""
    lane = Open()
    lane.growing(6)
    drop = lane.plan(2)
    touched = what(lane)
    if what in STALE:
        with pytest.raises(StaleError):
            lane.check(drop, touched)
    else:
        lane.check(drop, touched)


@pytest.mark.parametrize("what", [*STALE, *HARMLESS])
@pytest.mark.parametrize("keep_last", [1, 2])
def test_what_is_stored_while_a_prune_is_planned_stays(
    what: Callable[[Open], str], keep_last: int
) -> None:
    """The end is as if it had come before the prune, or after it."""
    engine = HookedEngine()
    lane, other = Open(engine), Open(engine)
    lane.growing(6)
    twin = Open()
    twin.growing(6)
    touched = what(twin)
    other.store.setup()
    engine.between_plan_and_transaction(lambda: what(other))
    lane.saver.prune(["t"], keep_last=keep_last)
    assert engine.hook is None
    cold = Open(engine)
    newest = sorted([cid(n) for n in range(6)] + ([touched] if touched in cold.ids() else []))
    assert {*newest[-keep_last:]} <= {*cold.ids()}
    for name in cold.ids():
        assert twin.values(name) == cold.values(name), name
        assert twin.history(name, "log") == cold.history(name, "log"), name
        assert twin.pending(name) == cold.pending(name), name
    assert [] == lane.store.verify().damage


def test_a_thread_that_never_rests_is_given_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an error that says so, and with nothing lost; the watch is ended."""
    lane, attempts = Open(), []
    lane.growing(6)
    before = {name: lane.values(name) for name in lane.ids()}

    def stale(*arguments: Any) -> None:
        attempts.append(1)
        raise StaleError

    with monkeypatch.context() as patch:
        patch.setattr(dropping, "apply_steps", stale)
        patch.setattr(session, "_BACK_OFF_SECONDS_MAX", 0.0)
        with pytest.raises(EngineError, match="32 times"):
            lane.saver.prune(["t"])
    assert 32 == len(attempts)
    assert before == {name: lane.values(name) for name in lane.ids()}
    with lane.store._session.view() as txn:
        assert [] == txn.scan_keys(bytes([layout.TAG_WATCH]), bytes([layout.TAG_WATCH + 1]))
        reader = lane.store._session.find(txn, "t", "", None)
        assert reader is not None
        assert 6 == len(survey(reader))
