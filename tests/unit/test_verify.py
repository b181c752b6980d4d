"""Verification finds damage of every kind, planted through the engine below the store."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from deltastore.engine.memory import MemoryEngine
from deltastore.errors import CorruptionError
from deltastore.findings import Report
from deltastore.format import entries, frame, keys, layout, value
from deltastore.format.entries import ThreadEntry
from deltastore.ids import cid_from_id
from deltastore.langgraph.saver import DeltaStoreSaver
from deltastore.store import Store
from deltastore.testing import Caller, Lane

pytestmark = pytest.mark.damaged

IDS = [f"1f1ecb42-a12{digit}-6876-bfff-421a31cae801" for digit in "abcdef"]
ROOT = cid_from_id(IDS[0])
RECORD_TAGS = {
    layout.TAG_STORE,
    layout.TAG_THREAD,
    layout.TAG_NAMESPACE,
    layout.TAG_NAMES,
    layout.TAG_LOG,
}


class Planted:
    """A store on an engine whose pairs a test may change below it.

    Thread 1 holds, in two namespaces, a line of three checkpoints and a text id: whole values,
    deltas to them, inline values, writes that are deltas, early writes.
    """

    def __init__(self) -> None:
        self.engine = MemoryEngine()
        self.store = Store(self.engine)
        self.caller = Caller(lambda: DeltaStoreSaver.on_store(self.store))
        for ns in ("", "sub"):
            lane = Lane(self.caller, "t", ns)
            log = [random.Random(k).randbytes(60).hex() for k in range(30)]
            lane.put(IDS[0], new={"log": 1, "n": 1}, values={"log": log, "n": 1})
            lane.write(IDS[0], [("log", [*log, "more"]), ("n", 2)], "task 1")
            lane.put(IDS[1], IDS[0], new={"log": 2}, carried={"n": 1}, values={"log": [*log, "a"]})
            lane.put(IDS[2], IDS[1], new={"n": 2}, carried={"log": 2}, values={"n": 2})
            lane.put("odd", IDS[2], carried={"log": 2, "n": 2})
            lane.write(IDS[4], [("log", ["early"])], "task 2")
        self.prefix = keys.log_prefix(1, 1)

    def pairs(self) -> dict[bytes, bytes]:
        with self.engine.begin(write=False) as txn:
            return dict(txn.scan(b"\0", b"\xff"))

    def plant(self, key: bytes, record: bytes | None) -> None:
        with self.engine.begin(write=True) as txn:
            if record is None:
                assert txn.delete(key)
            else:
                txn.put(key, record)

    def verify(self) -> Report:
        return self.store.verify()

    def damage(self) -> list[str]:
        return [str(error) for error in self.verify().damage]


@pytest.fixture
def planted() -> Iterator[Planted]:
    planted = Planted()
    yield planted
    planted.store.close()


def test_a_sound_store_has_no_damage_and_everything_is_counted(planted: Planted) -> None:
    """The counts tell that it looked: a check of nothing finds nothing."""
    report = planted.verify()
    records = [key for key in planted.pairs() if key[0] == layout.TAG_LOG]
    assert ([], 0) == (report.damage, report.undecodable)
    assert (len(records), 8) == (report.records, report.checkpoints)


def test_the_store_checked_holds_every_kind_of_record(planted: Planted) -> None:
    """Else the laws below would hold for nothing."""
    log = [keys.split(key) for key in planted.pairs() if key[0] == layout.TAG_LOG]
    assert {layout.KIND_HEADER, layout.KIND_VALUE, layout.KIND_WRITES} == {one.kind for one in log}
    assert {key[0] for key in planted.pairs()} >= RECORD_TAGS
    child = keys.value_key(planted.prefix, cid_from_id(IDS[1]), 0)
    record = frame.unseal(child, planted.pairs()[child], layout.KIND_VALUE)
    assert value.decode(record.payload).base is not None


def test_a_flipped_bit_of_any_record_is_found(planted: Planted) -> None:
    """Header, value, writes, thread entry, names, numbers, the store's own: none is left out."""
    rng = random.Random(10)
    for key, record in planted.pairs().items():
        if key[0] in RECORD_TAGS:
            at, bit = rng.randrange(len(record)), rng.randrange(8)
            planted.plant(key, record[:at] + bytes([record[at] ^ 1 << bit]) + record[at + 1 :])
            assert planted.damage(), key.hex()
            planted.plant(key, record)
    assert [] == planted.damage()


def test_damage_names_the_place(planted: Planted) -> None:
    """The report is where a repair begins."""
    key = keys.header_key(planted.prefix, ROOT)
    planted.plant(key, planted.pairs()[key][:-1] + b"?")
    error = planted.verify().damage[0]
    assert ("t", "", IDS[0], key.hex()) == (
        error.thread_id,
        error.checkpoint_ns,
        error.checkpoint_id,
        error.key,
    )


def test_all_damage_is_in_one_report(planted: Planted) -> None:
    """Repairing one record must not bring up the next."""
    broken = [keys.writes_key(planted.prefix, cid, 0)[:-8] for cid in map(cid_from_id, IDS)]
    found = [key for key in planted.pairs() if key[:-8] in broken]
    for key in found:
        planted.plant(key, planted.pairs()[key] + b"\0")
    assert len(found) >= 2
    assert {key.hex() for key in found} <= {error.key for error in planted.verify().damage}


@pytest.mark.parametrize(
    "missing",
    [
        lambda one: keys.value_key(one.prefix, ROOT, 0),
        lambda one: keys.value_key(one.prefix, cid_from_id(IDS[1]), 0),
        lambda one: keys.header_key(one.prefix, ROOT),
        lambda one: keys.header_key(one.prefix, cid_from_id(IDS[2])),
        lambda one: keys.store_key(b"store"),
        lambda one: keys.store_key(b"threads"),
        lambda one: keys.thread_key(b"t"),
        lambda one: keys.thread_name_key(1),
        lambda one: keys.namespace_key(1, b"sub"),
        lambda one: keys.namespace_name_key(1, 2),
        lambda one: next(key for key in one.pairs() if key[0] == layout.TAG_ACTIVITY),
    ],
    ids=[
        *("whole value", "delta value", "root header", "parent header", "store", "counter"),
        *("thread", "thread name", "namespace", "namespace name", "activity"),
    ],
)
def test_a_missing_record_that_others_rely_on_is_found(planted: Planted, missing: Any) -> None:
    """It reads as a value that never was, a root, or a thread that is not there."""
    planted.plant(missing(planted), None)
    assert planted.damage()


def test_a_missing_parent_is_named_by_its_child(planted: Planted) -> None:
    """Also by a header that is coded whole and can be read without it."""
    lane = Lane(planted.caller, "long")
    ids = [f"{i:02}" for i in range(layout.HEADER_WHOLE_EVERY + 1)]
    for parent, one in zip([None, *ids], ids, strict=False):
        lane.put(one, parent)
    planted.plant(keys.header_key(keys.log_prefix(2, 1), cid_from_id(ids[-2])), None)
    (error,) = planted.verify().damage
    assert ("long", ids[-1], "its parent was stored and is gone") == (
        error.thread_id,
        error.checkpoint_id,
        error.message,
    )


def test_a_value_with_another_digest_is_found(planted: Planted) -> None:
    """Its frame is whole: only what refers to it knows that it is not what was stored."""
    key = keys.value_key(planted.prefix, ROOT, 0)
    found = value.decode(frame.unseal(key, planted.pairs()[key], layout.KIND_VALUE).payload)
    other = value.encode(found._replace(body=found.body[:-1] + b"!"))
    planted.plant(key, frame.seal(key, layout.KIND_VALUE, b"", other))
    assert any("digest" in message for message in planted.damage())


def test_a_record_under_anothers_key_is_found(planted: Planted) -> None:
    """A checksum over the record alone would not notice."""
    one, other = (keys.header_key(keys.log_prefix(1, ns), ROOT) for ns in (1, 2))
    planted.plant(one, planted.pairs()[other])
    assert planted.damage()


def test_a_record_of_no_stream_is_found(planted: Planted) -> None:
    """Nobody can reach it: room that is lost, or a directory that is."""
    key = keys.header_key(keys.log_prefix(9, 9), ROOT)
    old = keys.header_key(planted.prefix, ROOT)
    planted.plant(key, frame.move(old, key, planted.pairs()[old]))
    assert ["thread 9" in message or "number 9" in message for message in planted.damage()] == [
        True
    ]


def test_a_key_that_is_none_is_found(planted: Planted) -> None:
    """Whatever the engine gives back is looked at."""
    planted.plant(planted.prefix + b"\x07", b"")
    assert 1 == len(planted.damage())


@pytest.mark.parametrize(
    "entry", [ThreadEntry("u", 1, 2), ThreadEntry("u", 9, 1), ThreadEntry("other", 0)]
)
def test_a_thread_entry_that_names_anothers_number_is_found(
    planted: Planted, entry: ThreadEntry
) -> None:
    """Two threads on one number would show each other's checkpoints."""
    key = keys.thread_key(b"u")
    payload = entries.encode_thread(entry)
    planted.plant(key, frame.seal(key, layout.KIND_THREAD, b"", payload))
    assert 1 == len(planted.damage())


def test_a_thread_in_use_that_waits_to_be_reclaimed_is_found(planted: Planted) -> None:
    """The next opening would delete it."""
    key = keys.reclaim_key(1)
    planted.plant(key, frame.seal(key, layout.KIND_MARK, b"", b""))
    assert 1 == len(planted.damage())
    planted.plant(keys.reclaim_key(1), None)


def test_a_counter_that_was_set_back_is_found(planted: Planted) -> None:
    """The next thread would be given a number in use, and this one's checkpoints."""
    key = keys.store_key(b"threads")
    planted.plant(key, frame.seal(key, layout.KIND_STORE, b"", entries.encode_number(1)))
    assert 1 == len(planted.damage())


def test_damage_is_never_read_as_a_value(planted: Planted) -> None:
    """What verification finds, a read that needs the record refuses."""
    key = keys.value_key(planted.prefix, ROOT, 0)
    record = planted.pairs()[key]
    planted.plant(key, record[:20] + bytes([record[20] ^ 1]) + record[21:])
    fresh = DeltaStoreSaver.on_store(Store(planted.engine))
    for one in IDS[:3]:
        with pytest.raises(CorruptionError, match=r"CRC-32C stored"):
            Lane(Caller(lambda: fresh)).read(one)


def test_records_of_another_cipher_are_no_damage() -> None:
    """Without the key their frames can be checked, and nothing else."""
    key = b"0123456789abcdef"
    engine = MemoryEngine()
    serde = EncryptedSerializer.from_pycryptodome_aes(key=key)
    saver = DeltaStoreSaver.on_store(Store(engine), serde=serde)
    lane = Lane(Caller(lambda: saver))
    lane.put(IDS[0], new={"x": 1}, values={"x": "y" * 3_000})
    lane.write(IDS[0], [("x", 1)])
    blind = saver.store.verify()
    assert ([], True) == (blind.damage, blind.undecodable >= 3)
    seeing = saver.store.verify(cipher=serde.cipher)
    assert ([], 0, 1) == (seeing.damage, seeing.undecodable, seeing.checkpoints)
    with engine.begin(write=True) as txn:
        ((at, record),) = txn.scan(b"\x10", b"\x11", limit=1)
        txn.put(at, record[:-5] + bytes([record[-5] ^ 1]) + record[-4:])
    assert 1 <= len(saver.store.verify().damage)
    saver.close()


def test_an_empty_store_is_sound() -> None:
    """So is one that was made and never used."""
    store = Store(MemoryEngine())
    assert ([], 0) == (store.verify().damage, store.verify().records)
    store.close()
