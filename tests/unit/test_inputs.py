"""An input that comes twice, as a channel's value and as a task's write, is stored once.

LangGraph puts the checkpoint of the input and the write of the task that takes it in at about the
same time, so either may come first. Each test is run for both orders, and for a message, which lies
in the header, and a picture, which has a record of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deltastore import DeltaStoreSaver, SnapshotBounds, repair, rowcoding
from deltastore.engine.lmdb import LmdbEngine
from deltastore.engine.memory import MemoryEngine
from deltastore.format import keys, layout
from deltastore.ids import cid_from_id
from deltastore.langgraph.puts import new_checkpoint, new_writes
from deltastore.store import Store
from deltastore.testing import Caller, Lane, make_checkpoint, make_config

TURNS: Final = 6
SIZES: Final = {"message": 300, "picture": 30_000}
PREFIX: Final = keys.log_prefix(1, 1)


class Chat(Lane):
    """Turns of two checkpoints: the input's, and the one that shows what was made of it."""

    def __init__(self, size: int, *, value_first: bool) -> None:
        self.engine = MemoryEngine()
        self.saver = DeltaStoreSaver.on_store(Store(self.engine))
        super().__init__(Caller(lambda: self.saver))
        self.size, self.value_first = size, value_first
        self.said: list[str] = []
        self.shown: dict[str, dict[str, Any]] = {}
        self.written: dict[str, list[str]] = {}

    def turn(self, n: int) -> None:
        """Put an input and the write that takes it in, in their order, and what follows."""
        cid, above, below = f"{n:03}a", f"{n - 1:03}b" if n else None, f"{n:03}b"
        # Not to be compressed away: what is stored twice takes twice as much.
        said = [random.Random(n).randbytes(self.size // 2).hex()]
        carried = {"messages": n} if n else {}
        values = {"input": {"messages": said}, **({"messages": self.said} if n else {})}
        steps: list[Callable[[], Any]] = [
            lambda: self.put(cid, above, new={"input": n + 1}, carried=carried, values=values),
            lambda: self.write(cid, [("messages", said), ("go", None)], "take in"),
        ]
        for step in steps if self.value_first else steps[::-1]:
            step()
        self.written[cid], self.shown[cid] = said, values
        self.said = [*self.said, *said]
        values = {**values, "messages": self.said}
        self.put(below, cid, new={"messages": n + 1}, carried={"input": n + 1}, values=values)
        self.shown[below] = values

    def check(self, *cids: str, thread_id: str = "t") -> None:
        """Check values and writes, of all checkpoints unless some are named, by a cold one too."""
        cold = DeltaStoreSaver.on_store(Store(self.engine))
        for caller in (self.caller, Caller(lambda: cold)):
            lane = Lane(caller, thread_id)
            for cid in cids or self.shown:
                assert self.shown[cid] == lane.values(cid)
                if cid in self.written:
                    written = [("messages", self.written[cid]), ("go", None)]
                    assert written == [write[1:] for write in lane.pending(cid)]
        assert [] == self.saver.store.verify().damage


def make_chat(size: int, *, value_first: bool) -> Chat:
    """Return a chat of some turns."""
    made = Chat(size, value_first=value_first)
    for n in range(TURNS):
        made.turn(n)
    return made


@pytest.fixture(params=[(size, first) for size in SIZES.values() for first in (True, False)])
def chat(request: pytest.FixtureRequest) -> Chat:
    """A chat of some turns, in each order and size."""
    size, value_first = request.param
    return make_chat(size, value_first=value_first)


def writes_at(engine: MemoryEngine, cid: str) -> list[tuple[bytes, bytes]]:
    start = PREFIX + cid_from_id(cid) + bytes([layout.KIND_WRITES])
    with engine.begin(write=False) as txn:
        return txn.scan(start, keys.after(start))


def stored_bytes(chat: Chat) -> int:
    with chat.engine.begin(write=False) as txn:
        return sum(len(record) for _, record in txn.scan(PREFIX, keys.after(PREFIX)))


def test_it_is_stored_once(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is saved is what it takes, but for 60 bytes that name the other place."""
    monkeypatch.setattr(rowcoding, "is_worth_it", lambda _: False)
    twice = make_chat(chat.size, value_first=chat.value_first)
    assert stored_bytes(twice) - stored_bytes(chat) > TURNS * (chat.size // 2 - 60)
    chat.check()


def again(chat: Chat) -> None:
    """Put an input's checkpoint again, with another value: its writes stay."""
    chat.shown["002a"] = {"input": "none", "messages": chat.shown["001b"]["messages"]}
    chat.put("002a", "001b", new={"input": 3}, carried={"messages": 2}, values=chat.shown["002a"])
    chat.shown["002b"] = {**chat.shown["002b"], "input": "none"}


@pytest.mark.parametrize(
    ("act", "kept"),
    [
        (lambda one: one.saver.prune(["t"]), ["005b"]),
        (lambda one: one.saver.prune(["t"], keep_last=4), ["004a", "004b", "005a", "005b"]),
        (lambda one: one.saver.compact("t", bounds=SnapshotBounds(updates=2)), []),
        (again, []),
        (lambda one: one.saver.vacuum(), []),
    ],
    ids=["prune", "prune to four", "compact", "put again", "vacuum"],
)
def test_maintenance_changes_none(chat: Chat, act: Callable[[Chat], Any], kept: list[str]) -> None:
    """What holds the only copy may be of a checkpoint that goes; afterwards it goes on."""
    act(chat)
    if act is again:
        # Shown under a version that is shown below, too: what each shows there is told elsewhere.
        chat.shown = {cid: shown for cid, shown in chat.shown.items() if cid <= "002a"}
    chat.shown = {cid: chat.shown[cid] for cid in kept or chat.shown}
    chat.written = {cid: said for cid, said in chat.written.items() if cid in chat.shown}
    chat.check()
    for n in range(TURNS, TURNS + 3):
        chat.turn(n)
    chat.check()


def test_copies_have_it_too(chat: Chat) -> None:
    """Whole and heads only; then the source may go."""
    chat.saver.copy_thread("t", "whole")
    chat.saver.copy_thread("t", "heads", heads_only=True)
    chat.saver.delete_thread("t")
    chat.check(thread_id="whole")
    chat.check(f"{TURNS - 1:03}b", thread_id="heads")


def test_one_that_was_prepared_before_the_checkpoint_came(chat: Chat) -> None:
    """A large write is prepared in a view, which may be older than its checkpoint."""
    store = chat.saver.store
    said = [random.Random(99).randbytes(chat.size // 2).hex()]
    config = make_config("t", "", f"{TURNS - 1:03}b")
    made = make_checkpoint("099a", {"input": 99}, {"input": {"messages": said}})
    value, _ = new_checkpoint(JsonPlusSerializer(), config, made, {}, {"input": 99})
    at = make_config("t", "", "099a")
    write, _ = new_writes(JsonPlusSerializer(), at, [("messages", said)], "take in", "")
    ops = [store._writer.prepare(new, None, 1)[0] for new in (write, value)]
    before = stored_bytes(chat)
    for op in ops if not chat.value_first else ops[::-1]:
        with chat.engine.begin(write=True) as txn:
            op(txn)
    assert stored_bytes(chat) - before < 1.2 * chat.size // 2 + 2 * 120
    assert [("messages", said)] == [found[1:] for found in chat.pending("099a")]


def test_writes_of_another_key_stay_as_they_are() -> None:
    """Whoever puts the checkpoint need not be able to read them."""
    engine = MemoryEngine()
    serdes = [EncryptedSerializer.from_pycryptodome_aes(key=bytes([n]) * 16) for n in range(2)]
    one, other = (DeltaStoreSaver.on_store(Store(engine), serde=serde) for serde in serdes)
    said = ["said " * 100]
    one.put_writes(make_config("t", "", "1"), [("messages", said)], "take in")
    written = writes_at(engine, "1")
    made = make_checkpoint("1", {"input": 1}, {"input": {"messages": said}})
    other.put(make_config("t"), made, {}, {"input": 1})
    assert written == writes_at(engine, "1")


@pytest.mark.damaged
@pytest.mark.parametrize("size", SIZES.values())
def test_repair_keeps_what_is_coded_against_a_write_of_what_it_drops(
    tmp_path: Path, size: int
) -> None:
    """The write is a delta to a value that only the dropped checkpoint showed."""
    said = [[random.Random(n).randbytes(size * n).hex()] for n in (3, 1)]
    old, new = ["old " * 500], ["new " * 500]
    with DeltaStoreSaver(tmp_path / "store") as saver:
        lane = Lane(Caller(lambda: saver))
        lane.put("1", new={"messages": 1}, values={"messages": said[0]})
        values = {"messages": said[0], "input": {"messages": said[1]}, "other": old}
        lane.put("2", "1", new={"input": 2, "other": 2}, carried={"messages": 1}, values=values)
        lane.write("2", [("messages", said[1])])
        values = {"messages": said[0] + said[1], "other": new}
        lane.put("3", "2", new={"messages": 3, "other": 3}, values=values)
    damage_value(tmp_path / "store", "2", 1)
    report = repair(tmp_path / "store", tmp_path / "repaired")
    assert ["2"] == [lost.checkpoint_id for lost in report.lost]
    with DeltaStoreSaver(tmp_path / "repaired") as saver:
        assert [] == saver.store.verify().damage
        assert values == Lane(Caller(lambda: saver)).values("3")


def damage_value(path: Path, cid: str, ordinal: int) -> None:
    """Flip a bit of a value's record."""
    engine = LmdbEngine(path)
    key = keys.value_key(PREFIX, cid_from_id(cid), ordinal)
    with engine.begin(write=True) as txn:
        record = txn.get(key)
        assert record is not None
        txn.put(key, record[:-1] + bytes([record[-1] ^ 1]))
    engine.close()


@pytest.mark.parametrize("how", ["one transaction", "cold"])
def test_a_call_that_carries_the_state_is_a_delta_whenever_it_comes(how: str) -> None:
    """The state it resembles may have come in the same transaction, or long before this opening."""
    state = [random.Random(n).randbytes(240).hex() for n in range(100)]
    engine = MemoryEngine()
    store = Store(engine)
    lane = Lane(Caller(lambda: DeltaStoreSaver.on_store(store)))
    lane.put("1", new={"messages": 1}, values={"messages": state})
    made = make_checkpoint("2", {"messages": 2}, {"messages": [*state, "more"]})
    value, _ = new_checkpoint(
        JsonPlusSerializer(), make_config("t", "", "1"), made, {}, {"messages": 2}
    )
    call = [("sends", [{"node": "tool", "state": [*state, "more", "and more"]}])]
    at = make_config("t", "", "2")
    write, _ = new_writes(JsonPlusSerializer(), at, call, "task", "")
    if how == "cold":
        store.put(value, None)
        Store(engine).put(write, None)
    else:
        ops = [store._writer.prepare(new, None, 0)[0] for new in (write, value)]
        with engine.begin(write=True) as txn:
            for op in reversed(ops):
                op(txn)
    ((_, record),) = writes_at(engine, "2")
    assert len(record) < 200
    cold = Lane(Caller(lambda: DeltaStoreSaver.on_store(Store(engine))))
    assert call == [found[1:] for found in cold.pending("2")]
