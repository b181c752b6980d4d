"""The index of runs: complete, so that nothing of a run is missed; exact, so that it is cheap."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from deltastore import DeltaStoreSaver, run_index
from deltastore.engine.counting import CountingEngine
from deltastore.engine.memory import MemoryEngine
from deltastore.format import entries, keys, layout
from deltastore.langgraph.serde import Coder
from deltastore.store import Store
from deltastore.testing import make_config
from deltastore.testing.retention_calls import Keeper, Thread, minute_id

LARGE = ["text of some length " * 200]


def aes(number: int = 1) -> Any:
    return EncryptedSerializer.from_pycryptodome_aes(key=bytes([number]) * 16)


class Open:
    """A store on a counted engine, and threads of it."""

    def __init__(self, serde: Any = None, engine: CountingEngine | None = None) -> None:
        self.engine = engine or CountingEngine(MemoryEngine())
        self.store = Store(self.engine)
        self.saver = DeltaStoreSaver.on_store(self.store, serde=serde)
        self.keeper = Keeper(lambda: self.saver)

    def thread(self, name: str = "t", ns: str = "") -> Thread:
        return Thread(self.keeper, name, ns)

    def threads_of(self, run_id: str) -> list[int]:
        with self.store._session.view() as txn:
            return run_index.threads_of(txn, run_id, Coder.of(self.saver.serde).cipher)

    def noted(self, tag: int = layout.TAG_RUN) -> list[bytes]:
        with self.engine.begin(write=False) as txn:
            return txn.scan_keys(bytes([tag]), bytes([tag + 1]))


@pytest.fixture
def opened() -> Open:
    return Open()


def test_a_run_is_noted_once_per_thread(opened: Open) -> None:
    """However often it puts or writes there, in whichever namespace."""
    for name in ("t", "u"):
        opened.thread(name).steps([1, 2, 3], run="r")
        opened.thread(name, "sub").steps([1], run="r")
    assert [1, 2] == opened.threads_of("r")
    assert 2 == len(opened.noted())


def test_a_run_that_only_writes_is_noted(opened: Open) -> None:
    """Also by writes that come before their checkpoint: those have to be found too."""
    opened.thread().superstep(1)
    opened.thread().task(1, ["w"], "task", run="r")
    opened.thread("u").task(9, ["early"], "task", run="r")
    assert [1, 2] == opened.threads_of("r")


@pytest.mark.parametrize("run_id", ["", None, 1.5, ["r"], {"r": 1}])
def test_what_names_no_run_is_not_noted(run_id: Any) -> None:
    """Metadata is the user's: anything may stand there."""
    assert "" == run_index.run_of({"run_id": run_id})
    assert "" == run_index.run_of({})


@pytest.mark.parametrize("run_id", ["0", 0, 17, "r", "r" * 2_000, "\U0001f409"])
def test_any_text_or_number_is_a_run(opened: Open, run_id: Any) -> None:
    """Hosts choose it; 0 is a number like others."""
    opened.thread().superstep(1, run=run_id)
    opened.thread("u").superstep(1, run="another")
    assert [1] == opened.threads_of(str(run_id))
    assert str(run_id) == run_index.run_of({"run_id": run_id})


def test_a_run_is_found_by_its_whole_id(opened: Open) -> None:
    """Ids of one host begin alike."""
    for number, run_id in enumerate(("r", "r1", "R", "r ", "r r")):
        opened.thread(f"t{number}").superstep(1, run=run_id)
    assert [[1], [2], [3], [4], [5], []] == [
        opened.threads_of(one) for one in ("r", "r1", "R", "r ", "r r", "r2")
    ]


def test_a_put_again_costs_no_second_mark(opened: Open) -> None:
    """One look-up, and no record."""
    spent = []
    opened.thread().steps([1, 2], run="r")
    for minute, run in ((3, None), (4, "r"), (5, "s")):
        before = opened.engine.counts()
        opened.thread().put(minute_id(minute), metadata={} if run is None else {"run_id": run})
        spent.append(opened.engine.counts() - before)
    assert spent[0].puts == spent[1].puts < spent[2].puts
    assert 1 == spent[1].gets - spent[0].gets


@pytest.mark.parametrize("others", [5, 60])
def test_only_the_threads_of_a_run_are_read(others: int) -> None:
    """A host deletes runs all day in a store of a million threads."""
    opened = Open()
    opened.thread("first").steps([1, 2, 3], run="r")
    for number in range(others):
        opened.thread(f"other {number:03}").steps([1, 2], run=f"run {number}")
    opened.thread("zz last").steps([1, 2, 3], run="r")
    before = opened.engine.counts()
    plans = opened.keeper.delete_for_runs(["r"])
    spent = opened.engine.counts() - before
    assert ["first", "zz last"] == [plan.thread_id for plan in plans]
    assert (spent.scanned, spent.gets) < (120, 160), spent
    assert {"first", "zz last"}.isdisjoint(
        one.config["configurable"]["thread_id"] for one in opened.keeper.list(None)
    )


@pytest.mark.parametrize("heads_only", [False, True])
def test_a_copy_is_noted_for_its_runs(opened: Open, heads_only: bool) -> None:
    """Who must erase a run must erase its copies."""
    thread = opened.thread()
    thread.steps([1, 2], run="old")
    thread.steps([3], 2, run="r")
    thread.task(3, ["w"], "task", run="writer")
    opened.keeper.copy_thread("t", "u", heads_only=heads_only)
    assert [1, 2] == opened.threads_of("r") == opened.threads_of("writer")
    opened.keeper.delete_for_runs(["writer"])
    for name in ("t", "u"):
        found = opened.thread(name).read(minute_id(3))
        assert [] == [*(found.pending_writes or ())]
    opened.keeper.delete_for_runs(["r"])
    assert None is opened.keeper.get_tuple(make_config("u", "", minute_id(3)))


def test_marks_of_a_deleted_thread_lead_nowhere(opened: Open) -> None:
    """Its number is not given again; a thread made anew is noted by its own puts."""
    opened.thread().superstep(1, run="r")
    opened.keeper.delete_thread("t")
    assert [] == opened.keeper.delete_for_runs(["r"])
    opened.thread().superstep(2, run="s")
    assert [] == opened.keeper.delete_for_runs(["r"])
    assert [2.0] == opened.thread().minutes()
    assert ["t"] == [plan.thread_id for plan in opened.keeper.delete_for_runs(["s"])]


def test_a_run_whose_writes_stayed_may_be_deleted_again(opened: Open) -> None:
    """They are kept for those who need them, and go once nobody does."""
    thread = opened.thread()
    thread.superstep(1, run="a")
    thread.task(1, ["w"], "task", run="r")
    thread.superstep(2, 1, run="a")
    opened.keeper.delete_for_runs(["r"])
    assert ["w"] == thread.log(2)
    assert [1] == opened.threads_of("r")
    opened.keeper.delete_for_runs(["a", "r"])
    assert [] == thread.minutes()


# --- encrypted -------------------------------------------------------------------------------


def test_an_encrypted_store_does_not_tell_its_runs() -> None:
    """A plain hash would let anyone test a guess; two stores hash one run differently."""
    plain, one, other = Open(), Open(aes()), Open(aes())
    for each in (plain, one, other):
        each.thread().superstep(1, run="r")
        assert [1] == each.threads_of("r")
    assert keys.run_key(entries.text_hash(b"r"), 1) in plain.noted()
    assert 3 == len({*plain.noted(), *one.noted(), *other.noted()})
    with one.engine.begin(write=False) as txn:
        everything = txn.scan(b"\x00", b"\xff")
    assert not any(b"run_id" in key + record for key, record in everything)


def test_maintenance_of_an_encrypted_store_is_as_of_any_other() -> None:
    """Anchors, folded writes, remains and copies are encrypted as what they are made of."""
    twin, opened = Open(), Open(aes())
    seen = []
    for each in (twin, opened):
        thread = each.thread()
        thread.superstep(1, doc=LARGE, run="a")
        thread.steps([2, 3], 1, run="b")
        thread.steps([4, 5, 6], 3, run="a")
        each.keeper.delete_for_runs(["b"])
        each.keeper.copy_thread("t", "u")
        each.keeper.copy_thread("t", "heads", heads_only=True)
        each.keeper.prune(["t"])
        each.keeper.prune(["u"], keep_last=2)
        names = ("t", "u", "heads")
        threads = [each.thread(name) for name in names]
        seen.append([(one.minutes(), one.log(), one.values()["doc"]) for one in threads])
        assert [] == each.store.verify(cipher=Coder.of(each.saver.serde).cipher).damage
    assert seen[0] == seen[1]
    with opened.engine.begin(write=False) as txn:
        records = txn.scan(bytes([layout.TAG_LOG]), bytes([layout.TAG_LOG + 1]))
    for key, record in records:
        assert record[0] & layout.CODEC_ENCRYPTED, keys.split(key)


def test_runs_noted_before_a_store_was_encrypted_are_found() -> None:
    """They are known by their plain hash; new ones by a keyed one."""
    before = Open()
    before.thread().superstep(1, run="r")
    after = Open(aes(), before.engine)
    after.thread("u").superstep(1, run="r")
    assert [1, 2] == after.threads_of("r")
    after.keeper.delete_for_runs(["r"])
    assert [] == after.keeper.list(None)


def test_runs_noted_under_a_key_that_was_changed_are_found_with_that_key() -> None:
    """Secrets are tried one after the other; none opens with another's key."""
    one = Open(aes(1))
    one.thread().superstep(1, run="r")
    other = Open(aes(2), one.engine)
    other.thread("u").superstep(1, run="r")
    assert ([1], [2]) == (one.threads_of("r"), other.threads_of("r"))
