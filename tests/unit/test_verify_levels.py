"""The two levels of verification: each kind of damage to each kind of record, below a store.

The store holds every kind: anchors, folded writes, runs, late and early writes, secrets, a lease.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from deltastore.engine.memory import MemoryEngine
from deltastore.errors import InvalidArgumentError
from deltastore.findings import KIND_NAMES, Report
from deltastore.format import frame, keys, layout
from deltastore.ids import cid_from_id
from deltastore.langgraph.saver import DeltaStoreSaver
from deltastore.store import Store
from deltastore.testing import Caller, Lane
from deltastore.types import Cipher

pytestmark = pytest.mark.damaged

IDS = [f"1f1ecb42-a1{digit}0-6876-bfff-421a31cae801" for digit in "0123456789abcdef"]
SEED = 20_261_202


class Planted:
    """Two threads, one of them pruned, on an engine whose pairs a test may change."""

    def __init__(self, serde: EncryptedSerializer | None = None) -> None:
        self.engine = MemoryEngine()
        self.store = Store(self.engine)
        self.cipher: Cipher | None = None if serde is None else serde.cipher
        saver = DeltaStoreSaver.on_store(self.store, serde=serde)
        caller = Caller(lambda: saver)
        for thread in ("kept", "pruned"):
            lane = Lane(caller, thread, "sub")
            log = [random.Random(k).randbytes(60).hex() for k in range(20)]
            for at, one in enumerate(IDS[:8]):
                values = {"log": [*log, *map(str, range(at))], "n": at}
                parent = IDS[at - 1] if at else None
                lane.put(one, parent, new={"log": at + 1, "n": at + 1}, values=values)
                lane.write(one, [("d", at), ("log", [*values["log"], "more"])], f"task {at}")
            lane.write(IDS[2], [("late", 1)], "late task")
            lane.write(IDS[9], [("log", ["early"])], "early task")
        self.store.prune("pruned", keep_last=2, cipher=self.cipher)
        self.store.claim("kept", "worker", timedelta(days=1))
        self.lane = Lane(caller, "kept", "sub")

    def pairs(self) -> dict[bytes, bytes]:
        with self.engine.begin(write=False) as txn:
            return dict(txn.scan(b"\0", b"\xff" * 7))

    def plant(self, pairs: dict[bytes, bytes | None]) -> None:
        with self.engine.begin(write=True) as txn:
            for key, record in pairs.items():
                if record is None:
                    txn.delete(key)
                else:
                    txn.put(key, record)

    def verify(self, level: str | None = None) -> Report:
        return self.store.verify(level=level, cipher=self.cipher)


@pytest.fixture(params=["clear", "encrypted"])
def planted(request: pytest.FixtureRequest) -> Iterator[Planted]:
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
    planted = Planted(serde if request.param == "encrypted" else None)
    yield planted
    planted.store.close()


def kind_of(record: bytes) -> str:
    return KIND_NAMES[record[1]]


def test_the_store_checked_is_sound_and_holds_every_kind(planted: Planted) -> None:
    """Else the laws below would hold for nothing."""
    assert [] == planted.verify().damage
    missing = {"dropped", "watch"} | (set() if planted.cipher else {"secret"})
    found = {kind_of(record) for record in planted.pairs().values()}
    assert set(KIND_NAMES.values()) - missing == found
    report = planted.verify(level="records")
    assert (("records",), 10) == (report.levels, report.checkpoints)


def flipped(record: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(record))
    return record[:at] + bytes([record[at] ^ 1 << rng.randrange(8)]) + record[at + 1 :]


def cut(record: bytes, rng: random.Random) -> bytes:
    return record[: rng.randrange(len(record))]


@pytest.mark.parametrize("change", [flipped, cut], ids=lambda one: one.__name__)
def test_a_changed_record_is_named_by_the_cheap_level(
    planted: Planted, change: Callable[[bytes, random.Random], bytes]
) -> None:
    """Of every kind in every keyspace: by its key, and in the log by thread and checkpoint."""
    rng = random.Random(SEED)
    for key, record in planted.pairs().items():
        planted.plant({key: change(record, rng)})
        (found,) = planted.verify(level="records").damage
        assert (key.hex(), "records") == (found.key, found.level), key.hex()
        if key[0] == layout.TAG_LOG:
            assert found.thread_id in ("kept", "pruned")
            assert "sub" == found.checkpoint_ns
            assert found.checkpoint_id in IDS
            assert kind_of(record) == found.kind
        planted.plant({key: record})


def test_two_records_that_changed_places_are_both_named(planted: Planted) -> None:
    """A checksum over a record alone would not notice."""
    by_kind: dict[str, list[bytes]] = {}
    pairs = planted.pairs()
    for key, record in pairs.items():
        by_kind.setdefault(kind_of(record), []).append(key)
    swapped = 0
    for found in by_kind.values():
        if len(found) > 1:
            one, other = found[0], found[-1]
            planted.plant({one: pairs[other], other: pairs[one]})
            named = {finding.key for finding in planted.verify(level="records").damage}
            assert {one.hex(), other.hex()} == named
            planted.plant({one: pairs[one], other: pairs[other]})
            swapped += 1
    assert swapped >= 7


def test_a_record_that_is_gone_is_missed(planted: Planted) -> None:
    """Whatever has a witness: what is next to nothing else in the store leaves no trace.

    Those are writes that no child knows of, and the last of those that an anchor has folded.
    """
    unseen = []
    for key, record in planted.pairs().items():
        if key[0] == layout.TAG_LEASE:
            continue  # one that was released is gone, too
        planted.plant({key: None})
        if planted.verify().is_sound:
            unseen.append((kind_of(record), key))
        planted.plant({key: record})
    assert {"writes", "folded writes"} == {kind for kind, _ in unseen}
    anchors = {key[:-1] for key in planted.pairs() if key.endswith(bytes([layout.KIND_ANCHOR]))}
    for _, key in unseen:
        place = keys.split(key)
        # The newest checkpoint, an early one, and one whose late writes a mark tells of.
        is_childless = place.cid in {cid_from_id(one) for one in (IDS[7], IDS[9], IDS[2])}
        assert is_childless or key[: 9 + len(place.cid)] in anchors, key.hex()


def test_a_missing_record_is_named_by_whoever_relies_on_it(planted: Planted) -> None:
    """The report is where a repair begins: it tells the checkpoint and what is gone from it."""
    prefix = keys.log_prefix(1, 1)
    for missing, kind, place in (
        (keys.header_key(prefix, cid_from_id(IDS[3])), "header", IDS[4]),
        (keys.value_key(prefix, cid_from_id(IDS[3]), 0), "header", IDS[3]),
    ):
        record = planted.pairs()[missing]
        planted.plant({missing: None})
        found = planted.verify(level="references").damage
        assert any(
            ("kept", "sub", place, kind)
            == (one.thread_id, one.checkpoint_ns, one.checkpoint_id, one.kind)
            for one in found
        )
        planted.plant({missing: record})
    key = keys.value_key(prefix, cid_from_id(IDS[3]), 0)
    planted.plant({key: None})
    assert "log" in {one.channel for one in planted.verify().damage}


def test_an_older_copy_of_a_record_is_found_by_what_goes_with_it(planted: Planted) -> None:
    """A lost write of the disk: each record is right by itself, and of another time."""
    entry = keys.thread_key(b"kept")
    prefix, cid = keys.log_prefix(1, 1), cid_from_id(IDS[8])
    places = keys.header_key(prefix, cid), keys.value_key(prefix, cid, 0)
    old_entry = planted.pairs()[entry]
    for fill in "ab":
        old = planted.pairs()
        lines = [random.Random(f"{fill}{k}").randbytes(60).hex() for k in range(20)]
        planted.lane.put(IDS[8], IDS[7], new={"log": fill}, carried={"n": 8}, values={"log": lines})
    now = planted.pairs()
    for place in places:
        planted.plant({place: old[place]})
        assert planted.verify(level="records").is_sound
        assert not planted.verify(level="references").is_sound
        planted.plant({place: now[place]})
    assert planted.verify().is_sound
    Lane(Caller(lambda: DeltaStoreSaver.on_store(planted.store)), "kept", "other").put(IDS[0])
    planted.plant({entry: old_entry})
    assert not planted.verify(level="references").is_sound


def test_what_is_called_sound_reads_as_before(planted: Planted) -> None:
    """Damage that no level finds must not be seen by a reader: 300 random changes."""
    rng = random.Random(SEED)
    pairs = planted.pairs()
    right = everything(planted)
    sound = 0
    for _ in range(300):
        key = rng.choice(list(pairs))
        other = rng.choice(list(pairs))
        planted.plant({key: rng.choice([flipped(pairs[key], rng), pairs[other], pairs[key]])})
        if planted.verify().is_sound:
            sound += 1
            assert right == everything(planted)
        planted.plant({key: pairs[key]})
    assert 50 < sound < 250


def everything(planted: Planted) -> list[object]:
    store = Store(planted.engine)
    return [
        repr(one)
        for thread in ("kept", "pruned")
        for one in store.list(thread, cipher=planted.cipher)
    ]


def test_a_value_of_a_checkpoint_that_is_gone_is_found(planted: Planted) -> None:
    """The newest one has no child that would miss it."""
    prefix = keys.log_prefix(1, 1)
    planted.plant({keys.header_key(prefix, cid_from_id(IDS[7])): None})
    (found,) = [one for one in planted.verify().damage if "checkpoint is gone" in one.message]
    assert (IDS[7], "value") == (found.checkpoint_id, found.kind)


def test_a_gap_is_counted_and_is_no_damage(planted: Planted) -> None:
    """What a repair could not keep was told once; it is no news at the next check."""
    prefix, cid = keys.log_prefix(1, 1), cid_from_id("0-lost")
    key = keys.anchor_key(prefix, cid)
    planted.plant({key: frame.seal(key, layout.KIND_ANCHOR, b"\x10\x03", b"")})
    report = planted.verify()
    assert ([], 1) == (report.damage, report.gaps)


def test_an_unknown_level_is_refused(planted: Planted) -> None:
    """A check that does nothing would find nothing."""
    with pytest.raises(InvalidArgumentError, match="records, references"):
        planted.verify(level="all")


def test_progress_ends_at_all_there_is(planted: Planted) -> None:
    """A bar that stops short looks like a hang."""
    seen: list[tuple[int, int]] = []
    planted.store.verify(progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(planted.pairs()),) * 2
