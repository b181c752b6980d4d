"""Deletion, read-only openings, closing and file modes, through the store and the saver."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deltastore import reclaim, retire
from deltastore.engine.api import Engine
from deltastore.engine.memory import MemoryEngine
from deltastore.errors import (
    DeletedParentError,
    EngineError,
    ReadOnlyError,
    StoreClosedError,
    StorePathError,
)
from deltastore.format import keys, layout
from deltastore.langgraph.saver import DeltaStoreSaver
from deltastore.store import Store
from deltastore.testing import Caller, Lane, Saver, make_checkpoint, make_config
from deltastore.testing.faults import FailingEngine

IDS = {
    "uuid6": [f"1f1ecb42-a12{digit}-6876-bfff-421a31cae801" for digit in "abcdef"],
    "text": ["id 1", "id 2", "id 3", "id 4", "id 5", "id 6"],
}
LONG = "n" * 10_000
each_form = pytest.mark.parametrize("ids", IDS.values(), ids=IDS.keys())


def make_caller(engine: Engine) -> Caller:
    """Return a caller of a saver on an engine, which closes with it."""
    return Caller(lambda: DeltaStoreSaver.on_store(Store(engine)), close_saver=close)


def close(saver: Saver) -> None:
    assert isinstance(saver, DeltaStoreSaver)
    saver.close()


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine()


@pytest.fixture
def caller(engine: MemoryEngine) -> Iterator[Caller]:
    caller = make_caller(engine)
    yield caller
    assert [] == store_of(caller).verify().damage
    caller.close()


def store_of(caller: Caller) -> Store:
    assert isinstance(caller.saver, DeltaStoreSaver)
    return caller.saver.store


def fill(
    caller: Caller, thread_id: str, ids: list[str], namespaces: tuple[str, ...] = ("",)
) -> None:
    """Store a line of three checkpoints, with values of every form and writes, early ones too."""
    for ns in namespaces:
        lane = Lane(caller, thread_id, ns)
        parent = None
        for i, one in enumerate(ids[:3]):
            values = {"small": i, "log": [f"{thread_id[:9]} entry {k}" * 9 for k in range(9 + i)]}
            lane.put(one, parent, new=dict.fromkeys(values, i + 1), values=values)
            lane.write(one, [("log", ["x" * 400]), ("small", i)], f"task {i}")
            parent = one
        lane.write(ids[0], [("small", "late")], "late")
        lane.write(ids[4], [("small", "early")], "early")


def state_of(caller: Caller, thread_id: str) -> list[Any]:
    """Return all a caller can see of a thread."""
    return caller.list({"configurable": {"thread_id": thread_id}})


def keys_of(engine: Engine, number: int) -> list[bytes]:
    """Return every key of a thread's number, in whichever keyspace."""
    with engine.begin(write=False) as txn:
        found = txn.scan_keys(bytes([layout.TAG_NAMESPACE]), bytes([layout.TAG_LOG + 1]))
    at = {layout.TAG_ACTIVITY: 5}
    return [key for key in found if keys.number_at(key, at.get(key[0], 1)) == number]


@each_form
def test_a_deleted_thread_is_gone_and_its_records_are_reclaimed(
    caller: Caller, engine: MemoryEngine, ids: list[str]
) -> None:
    """In all namespaces, early writes included; its neighbours keep every byte."""
    fill(caller, "before", ids)
    fill(caller, "t", ids, ("", "sub"))
    fill(caller, "after", ids)
    kept = [keys_of(engine, 1), keys_of(engine, 3)]
    seen = [state_of(caller, name) for name in ("before", "after")]
    assert 20 < len(keys_of(engine, 2))
    caller.delete_thread("t")
    assert [] == state_of(caller, "t")
    assert caller.get_tuple(make_config("t")) is None
    assert caller.get_tuple(make_config("t", "sub", ids[1])) is None
    assert {"writes": []} == caller.history(make_config("t", "", ids[2]), ["log"])["log"]
    assert ["after", "before"] == sorted(
        one.thread_id for one in store_of(caller).threads().threads
    )
    assert [] == keys_of(engine, 2)
    assert kept == [keys_of(engine, 1), keys_of(engine, 3)]
    assert seen == [state_of(caller, name) for name in ("before", "after")]


@pytest.mark.parametrize(
    ("one", "other"), [("t", "t0"), ("t", "t\0"), (LONG, LONG + "x"), ("", "t")]
)
def test_threads_with_ids_alike_stay_apart(caller: Caller, one: str, other: str) -> None:
    """Prefixes of each other, or 10 KB alike: deleting one must leave the other whole."""
    fill(caller, one, IDS["text"], ("", LONG, LONG + "y"))
    fill(caller, other, IDS["text"], (LONG,))
    assert (9, 3) == (len(state_of(caller, one)), len(state_of(caller, other)))
    before = state_of(caller, other)
    caller.delete_thread(one)
    assert ([], before) == (state_of(caller, one), state_of(caller, other))


@each_form
def test_a_late_put_on_a_deleted_parent_is_refused(caller: Caller, ids: list[str]) -> None:
    """A graph that still runs would store its next checkpoint as a root, its history cut."""
    fill(caller, "t", ids, ("", "sub"))
    caller.delete_thread("t")
    for ns in ("", "sub"):
        for parent in ids[:3]:
            with pytest.raises(DeletedParentError, match="deleted"):
                Lane(caller, "t", ns).put(ids[3], parent)
    assert [] == state_of(caller, "t")
    Lane(caller, "t", "other").put(ids[3], ids[2])  # never was in this namespace
    caller.delete_thread("t")
    with pytest.raises(DeletedParentError):
        Lane(caller, "t").put(ids[3], ids[2])  # still so after a second deletion


@each_form
def test_late_writes_after_a_deletion_show_nothing_and_are_kept(
    caller: Caller, ids: list[str]
) -> None:
    """They are early writes of a thread that starts anew: no ghost of the old one."""
    fill(caller, "t", ids)
    caller.delete_thread("t")
    lane = Lane(caller, "t")
    lane.write(ids[2], [("small", 1)], "task")
    assert [] == state_of(caller, "t")
    assert caller.get_tuple(lane.config(ids[2])) is None
    assert [] == store_of(caller).threads().threads
    lane.put(ids[2])
    assert [("task", "small", 1)] == lane.pending(ids[2])
    assert {} == lane.values(ids[2])


@each_form
def test_a_put_without_a_parent_starts_a_deleted_thread_anew(
    caller: Caller, ids: list[str]
) -> None:
    """With nothing of what it was, under the same ids too."""
    fill(caller, "t", ids)
    first = state_of(caller, "t")
    for _ in range(3):
        caller.delete_thread("t")
        assert [] == state_of(caller, "t")
        fill(caller, "t", ids)
        assert first == state_of(caller, "t")


def test_deleting_what_is_not_there_is_no_error(caller: Caller) -> None:
    """Nor deleting twice."""
    caller.delete_thread("unknown")
    fill(caller, "t", IDS["text"])
    caller.delete_thread("t")
    caller.delete_thread("t")
    assert [] == state_of(caller, "t")


def test_a_deletion_that_fails_anywhere_is_done_or_not_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At each call of the engine in turn: what was begun is finished by the next opening."""
    monkeypatch.setattr(reclaim, "RECORDS_MAX", 4)
    outcomes = set()
    fail_at = 0
    has_failed = True
    while has_failed:
        fail_at += 1
        inner = MemoryEngine()
        caller = make_caller(inner)
        fill(caller, "kept", IDS["text"])
        fill(caller, "t", IDS["uuid6"])
        before = {name: state_of(caller, name) for name in ("kept", "t")}
        failing = FailingEngine(inner, fail_at)
        try:
            Store(failing).delete_thread("t")
        except EngineError:
            pass
        has_failed = failing.has_failed
        again = make_caller(inner)
        assert before["kept"] == state_of(again, "kept")
        found = state_of(again, "t")
        assert found in ([], before["t"])
        assert bool(found) == bool(keys_of(inner, 2))
        assert [] == store_of(again).verify().damage
        outcomes.add((has_failed, bool(found)))
        again.close()
    assert {(True, True), (True, False), (False, False)} == outcomes
    assert fail_at > 20


def test_a_store_being_reclaimed_is_sound(engine: MemoryEngine) -> None:
    """What waits is no damage, and a thread started anew meanwhile is not swept away with it."""
    caller = make_caller(engine)
    fill(caller, "t", IDS["uuid6"])
    store = store_of(caller)
    with engine.begin(write=True) as txn:
        assert retire.retire_thread(txn, "t", store._session.reader)
    assert [] == store.verify().damage
    assert keys_of(engine, 1)
    fill(caller, "t", IDS["uuid6"])
    before = state_of(caller, "t")
    again = make_caller(engine)
    assert before == state_of(again, "t")
    assert [] == keys_of(engine, 1)
    assert [] == store_of(again).verify().damage
    caller.close()


def test_a_read_only_opening_sees_what_a_live_writer_stores(tmp_path: Path) -> None:
    """That is what it is for: looking into a store that is in use."""
    with DeltaStoreSaver(tmp_path / "store") as writer:
        caller = Caller(lambda: writer)
        lane = Lane(caller)
        lane.put("a")
        with DeltaStoreSaver(tmp_path / "store", read_only=True) as reader:
            seen = Lane(Caller(lambda: reader))
            assert ["a"] == seen.ids()
            lane.put("b", "a", new={"x": 1}, values={"x": "y" * 5_000})
            assert ["b", "a"] == seen.ids()
            assert {"x": "y" * 5_000} == seen.values()
            assert [] == reader.store.verify().damage
            caller.delete_thread("t")
            assert [] == seen.ids()


def test_a_read_only_opening_refuses_every_write(tmp_path: Path) -> None:
    """Before it prepares anything; and what is stored stays."""
    with DeltaStoreSaver(tmp_path / "store") as writer:
        Lane(Caller(lambda: writer)).put("a")
    for asynchronous in (False, True):
        caller = Caller(
            lambda: DeltaStoreSaver(tmp_path / "store", read_only=True),
            close_saver=close,
            asynchronous=asynchronous,
        )
        lane = Lane(caller)
        writes: list[Callable[[], object]] = [
            partial(lane.put, "b", "a"),
            partial(lane.write, "a", [("x", 1)]),
            partial(caller.delete_thread, "t"),
        ]
        for write in writes:
            with pytest.raises(ReadOnlyError, match=r"read.only"):
                write()
        assert ["a"] == lane.ids()
        assert [] == lane.pending("a")
        caller.close()


def test_a_read_only_opening_makes_no_store(tmp_path: Path) -> None:
    """A typo in a path must not leave a directory behind."""
    with pytest.raises(StorePathError):
        DeltaStoreSaver(tmp_path / "absent", read_only=True)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_files_are_for_their_owner_alone(tmp_path: Path, durability: Any) -> None:
    """Conversations are private, whatever the umask says."""
    path = tmp_path / "deep" / "store"
    with DeltaStoreSaver(path, durability=durability) as saver:
        Lane(Caller(lambda: saver)).put("a")
        files = [file for file in path.rglob("*") if file.is_file()]
        assert files
        assert {0o600} == {stat.S_IMODE(file.stat().st_mode) for file in files}
        assert 0o700 == stat.S_IMODE(path.stat().st_mode)


def sync_calls(saver: DeltaStoreSaver) -> dict[str, Callable[[], object]]:
    """Every method of a saver and its store that could touch the store."""
    config = make_config("t", "", "a")
    checkpoint: Any = make_checkpoint("b", {"x": 1}, {"x": 1})
    history = saver.get_delta_channel_history
    return {
        "setup": saver.setup,
        "put": lambda: saver.put(config, checkpoint, {}, {"x": 1}),
        "put_writes": lambda: saver.put_writes(config, [("x", 1)], "task"),
        "get_tuple": lambda: saver.get_tuple(config),
        "get": lambda: saver.get(config),
        "list": lambda: list(saver.list(config)),
        "list everything": lambda: list(saver.list(None)),
        "history": lambda: history(config=config, channels=["x"]),
        "delete_thread": lambda: saver.delete_thread("t"),
        "checkpoints": lambda: list(saver.store.checkpoints("t")),
        "threads": saver.store.threads,
        "verify": saver.store.verify,
        "stat": saver.store.stat,
        "check": saver.store.check,
    }


def async_calls(saver: DeltaStoreSaver) -> dict[str, Callable[[], Any]]:
    config = make_config("t", "", "a")
    checkpoint: Any = make_checkpoint("b", {"x": 1}, {"x": 1})
    history = saver.aget_delta_channel_history

    async def listed() -> object:
        return [row async for row in saver.alist(config)]

    return {
        "aput": lambda: saver.aput(config, checkpoint, {}, {"x": 1}),
        "aput_writes": lambda: saver.aput_writes(config, [("x", 1)], "task"),
        "aget_tuple": lambda: saver.aget_tuple(config),
        "aget": lambda: saver.aget(config),
        "alist": listed,
        "ahistory": lambda: history(config=config, channels=["x"]),
        "adelete_thread": lambda: saver.adelete_thread("t"),
    }


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_closed_saver_says_so_from_every_method(tmp_path: Path, used: bool, where: str) -> None:
    """A forgotten reference must fail clearly; closing twice, or unused, is no error."""
    saver = (
        DeltaStoreSaver.ephemeral() if where == "memory" else DeltaStoreSaver(tmp_path / "store")
    )
    clone = saver.with_allowlist([])
    assert isinstance(clone, DeltaStoreSaver)
    if used:
        Lane(Caller(lambda: saver)).put("a")
    saver.close()
    saver.close()
    for one in (saver, clone):
        for name, call in sync_calls(one).items():
            with pytest.raises(StoreClosedError):
                pytest.fail(f"{name} gave {call()!r}")
        for name, work in async_calls(one).items():
            with pytest.raises(StoreClosedError):
                pytest.fail(f"{name} gave {asyncio.run(work())!r}")
    clone.close()
