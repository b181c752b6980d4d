"""Laws of encrypted stores: nothing of the user's is readable, nothing opens with another key."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.types import ERROR

from deltastore import DecryptionError, DeltaStoreSaver, directory
from deltastore.engine.counting import CountingEngine
from deltastore.engine.memory import MemoryEngine
from deltastore.format import crc, frame, keys, layout
from deltastore.ids import cid_from_id
from deltastore.log import StreamReader
from deltastore.options import StoreOptions
from deltastore.store import Store
from deltastore.testing import Caller, Lane, make_checkpoint, tuple_shape
from deltastore.testing.strategies import checkpoint_id

MARKERS = [f"MARKER-{n:02}-secret" for n in range(14)]
STATE = [f"message {n}: " + "text of some length " * 10 for n in range(20)]


class ToyCipher:
    """Adds a number to each byte; a wrong key gives garbage and no error, as weak ciphers do."""

    def __init__(self, key: int) -> None:
        self._forward = bytes((byte + key) % 256 for byte in range(256))
        self._back = bytes((byte - key) % 256 for byte in range(256))

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "toy", plaintext.translate(self._forward)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return ciphertext.translate(self._back)


def serde_of(kind: str, key: int = 1) -> EncryptedSerializer:
    if kind == "toy":
        return EncryptedSerializer(ToyCipher(key))
    return EncryptedSerializer.from_pycryptodome_aes(key=bytes([key]) * 16)


@pytest.fixture(params=["toy", "aes"])
def kind(request: pytest.FixtureRequest) -> str:
    """Which cipher."""
    return str(request.param)


def lane_of(saver: DeltaStoreSaver) -> Lane:
    return Lane(Caller(lambda: saver))


def clone_of(saver: DeltaStoreSaver, serde: Any) -> DeltaStoreSaver:
    """Return a clone as `with_allowlist` makes it: it shares the store and its caches."""
    clone = copy.copy(saver)
    clone.serde = serde
    return clone


@contextmanager
def opened(where: Path, serde: Any = None) -> Iterator[DeltaStoreSaver]:
    saver = DeltaStoreSaver(where / "store", serde=serde)
    try:
        yield saver
    finally:
        saver.close()


def put_markers(saver: DeltaStoreSaver) -> None:
    """Store every marker, each in another place; values both small and large."""
    m = MARKERS
    versions: dict[str, Any] = {m[0]: 1, m[1]: 1, "x": 1}
    for n in range(4):
        values = {m[0]: m[2], m[1]: [*STATE, m[3], *[f"{m[3]}{k}" for k in range(n)]]}
        checkpoint = make_checkpoint(checkpoint_id(n), versions, values)
        checkpoint["versions_seen"] = {m[4]: dict(versions)}
        config: Any = lane_of(saver).config(checkpoint_id(n - 1) if n else None)
        config["metadata"] = {"run_id": m[5], m[6]: m[7]}
        metadata: Any = {"source": "loop", "step": n, m[8]: [m[9]]}
        saver.put(config, checkpoint, metadata, versions)
        writes: list[tuple[str, Any]] = [("x", m[10]), (m[11], [*STATE, m[3], "more"])]
        config = lane_of(saver).config(checkpoint_id(n))
        config["metadata"] = {"run_id": m[5]}
        saver.put_writes(config, [*writes, (ERROR, ValueError(m[12]))], f"{m[13]}-{n}", m[13])
        saver.put_writes(lane_of(saver).config("early"), [("x", m[10])], m[13], m[13])
        versions = dict.fromkeys(versions, n + 2)


def found_in(where: Path) -> list[str]:
    """Return the markers that stand in any file of a store."""
    files = [path.read_bytes() for path in where.rglob("*") if path.is_file()]
    assert files
    return [marker for marker in MARKERS if any(marker.encode() in text for text in files)]


# --- nothing is readable ---


def uncompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store payloads as they are: compression hides text from a search, and nobody else."""
    monkeypatch.setattr(frame, "COMPRESS_BYTES_MIN", 1 << 31)


@pytest.mark.parametrize("compressed", [True, False])
def test_no_file_holds_anything_of_the_users(
    tmp_path: Path, kind: str, compressed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values, writes, metadata, channels, tasks, paths, nodes, runs, errors: grep them all."""
    if not compressed:
        uncompressed(monkeypatch)
    with opened(tmp_path, serde_of(kind)) as saver:
        put_markers(saver)
        assert MARKERS[2] == lane_of(saver).values(checkpoint_id(3))[MARKERS[0]]
    assert [] == found_in(tmp_path)


def test_a_plain_store_holds_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would pass for any reason."""
    uncompressed(monkeypatch)
    with opened(tmp_path) as saver:
        put_markers(saver)
    assert found_in(tmp_path) == MARKERS


def test_task_suffixes_tell_nothing_of_task_ids(kind: str) -> None:
    """A plain hash would let anyone test a guess; two threads hash one task differently."""
    plain, hidden = Open(None), Open(serde_of(kind))
    for each in (plain, hidden):
        for thread in ("t", "u"):
            Lane(each.lane.caller, thread).write("1", [("x", 1)], "task")
    suffixes = [[key[-8:] for key in each.keys(layout.KIND_WRITES)] for each in (plain, hidden)]
    assert suffixes[0][0] == suffixes[0][1]
    assert 3 == len({suffixes[0][0], *suffixes[1]})


# --- it still stores what changed ---


class Open:
    """A saver on a counted engine in memory, and one stream of it."""

    def __init__(self, serde: Any) -> None:
        self.engine = MemoryEngine()
        self.counting = CountingEngine(self.engine)
        self.store = Store(self.counting)
        self.saver = DeltaStoreSaver.on_store(self.store, serde=serde)
        self.lane = lane_of(self.saver)

    def keys(self, kind: int) -> list[bytes]:
        with self.engine.begin(write=False) as txn:
            found = txn.scan_keys(b"\x10", b"\x11")
        return [key for key in found if keys.split(key).kind == kind]

    def grow(self, count: int) -> int:
        """Append messages, written by tasks; return the bytes that went to the engine."""
        source = random.Random(1)
        items: list[Any] = []
        for n in range(count):
            items.append("".join(source.choices("abcdefgh ", k=300)))
            parent = checkpoint_id(n - 1) if n else None
            self.lane.put(checkpoint_id(n), parent, new={"x": n + 1}, values={"x": items})
            self.lane.write(checkpoint_id(n), [("y", [*items, "call"])])
        assert items == self.lane.values(checkpoint_id(count - 1))["x"]
        return self.counting.counts().put_bytes


def test_growing_list_costs_about_what_it_costs_in_plain(kind: str) -> None:
    """Deltas are found and compressed before they are encrypted."""
    plain, hidden = Open(None).grow(60), Open(serde_of(kind)).grow(60)
    assert plain < hidden < 1.25 * plain + 60 * 200


def test_compressible_text_is_compressed(kind: str) -> None:
    """Ciphertext does not compress: the order matters."""
    each = Open(serde_of(kind))
    each.lane.put("1", new={"x": 1}, values={"x": "the same again, " * 5_000})
    assert 3_000 > each.counting.counts().put_bytes


# --- records belong where they are ---


def resealed(key: bytes, record: bytes) -> bytes:
    """Return a record with the checksum it would have under another key, as a forger makes it."""
    body = record[:-4]
    return body + crc.extend(crc.extend(0, key), body).to_bytes(4, "little")


@pytest.mark.parametrize("record_kind", [layout.KIND_HEADER, layout.KIND_VALUE, layout.KIND_WRITES])
def test_records_cannot_be_swapped(kind: str, record_kind: int) -> None:
    """Who may write the files but not read them must not put one answer in another's place."""
    each = Open(serde_of(kind))
    for n in range(2):
        lane = Lane(each.lane.caller, f"t{n}")
        lane.put("1", new={"x": 1}, values={"x": [*STATE, n]})
        lane.write("1", [("x", n)])
    one, other = each.keys(record_kind)
    with each.engine.begin(write=True) as txn:
        record = txn.get(other)
        assert record is not None
        txn.put(one, resealed(one, record))
    cold = DeltaStoreSaver.on_store(Store(each.engine), serde=each.saver.serde)
    for lane in (Lane(Caller(lambda: cold), "t0"), Lane(each.lane.caller, "t0")):
        if lane.caller is each.lane.caller and record_kind == layout.KIND_VALUE:
            continue  # its value is cached from when it was put
        with pytest.raises(DecryptionError, match=r"does not belong|another key"):
            lane.read("1")


# --- other keys ---


def refuse_all(lane: Lane, cid: str) -> None:
    """Every way of reading raises and returns nothing."""
    with pytest.raises(DecryptionError):
        lane.read(cid)
    with pytest.raises(DecryptionError):
        lane.read()
    with pytest.raises(DecryptionError):
        lane.ids()
    with pytest.raises(DecryptionError):
        lane.ids(filter={"step": 0})
    with pytest.raises(DecryptionError):
        lane.history(cid, "x")
    with pytest.raises(DecryptionError):
        lane.put("9", cid, carried={"x": 1})


def fill(lane: Lane) -> None:
    lane.put("1", new={"x": 1}, values={"x": STATE})
    lane.write("1", [("x", STATE)])
    lane.put("2", "1", carried={"x": 1})
    lane.write("2", [("x", STATE)])


@pytest.mark.parametrize("wrong", ["other key", "no key"])
def test_wrong_key_never_opens_a_store(tmp_path: Path, kind: str, wrong: str) -> None:
    """Neither data nor emptiness comes back, but an error that says so."""
    with opened(tmp_path, serde_of(kind)) as saver:
        fill(lane_of(saver))
        before = saver.store.stat().entries
    with opened(tmp_path, serde_of(kind, 2) if wrong == "other key" else None) as saver:
        refuse_all(lane_of(saver), "2")
        assert before == saver.store.stat().entries


@pytest.mark.parametrize("wrong", ["other key", "no key"])
def test_wrong_key_finds_nothing_in_shared_caches(kind: str, wrong: str) -> None:
    """A clone with another serializer shares the caches, which hold everything decrypted."""
    saver = DeltaStoreSaver.ephemeral(serde=serde_of(kind))
    fill(lane_of(saver))
    before = [tuple_shape(found) for found in saver.list(None)]
    clone = clone_of(
        saver, serde_of(kind, 2) if wrong == "other key" else DeltaStoreSaver.ephemeral().serde
    )
    refuse_all(lane_of(clone), "2")
    assert before == [tuple_shape(found) for found in saver.list(None)]
    same = clone_of(saver, EncryptedSerializer(saver.serde.cipher))  # type: ignore[attr-defined]
    assert before == [tuple_shape(found) for found in same.list(None)]


def test_values_kept_under_one_key_are_not_given_to_another(kind: str) -> None:
    """Headers guard the way to a value; its own cache must not rely on that."""
    each = Open(serde_of(kind))
    fill(each.lane)
    ciphers = [each.saver.serde.cipher, serde_of(kind, 2).cipher, None]  # type: ignore[attr-defined]
    with each.engine.begin(write=False) as txn:
        stream = directory.find_stream(txn, "t", "")
        assert stream is not None
        readers = [
            StreamReader(txn, stream, cipher, each.store._session.caches) for cipher in ciphers
        ]
        entry = readers[0].entry(cid_from_id("1"))
        assert entry is not None
        ref = entry.header.slots["x"].value
        assert ref is not None
        each.store._session.values.load(readers[0], ref)
        for reader in readers[1:]:
            with pytest.raises(DecryptionError):
                each.store._session.values.load(reader, ref)


def test_wrong_key_is_no_damage(kind: str) -> None:
    """Verification without the key checks what can be checked, and says how much it could not."""
    serde = serde_of(kind)
    saver = DeltaStoreSaver.ephemeral(serde=serde)
    fill(lane_of(saver))
    blind, wrong = saver.store.verify(), saver.store.verify(cipher=serde_of(kind, 2).cipher)
    assert ([], []) == (blind.damage, wrong.damage)
    assert 0 < blind.undecodable == wrong.undecodable
    seeing = saver.store.verify(cipher=serde.cipher)
    assert ([], 0) == (seeing.damage, seeing.undecodable)


# --- switching ---


def test_plain_records_stay_readable_after_encryption_is_switched_on(kind: str) -> None:
    """Nobody rewrites a store for that; what is new is encrypted, and coded against the old."""
    saver = DeltaStoreSaver.ephemeral()
    fill(lane_of(saver))
    before = [tuple_shape(found) for found in saver.list(None)]
    serde = serde_of(kind)
    clone = clone_of(saver, serde)
    assert before == [tuple_shape(found) for found in clone.list(None)]
    lane = lane_of(clone)
    lane.put("3", "2", new={"x": 2}, values={"x": [*STATE, "new"]})
    lane.write("3", [("x", "w")])
    assert ({"x": [*STATE, "new"]}, [("task", "x", "w")]) == (lane.values("3"), lane.pending("3"))
    report = saver.store.verify(cipher=serde.cipher)
    assert ([], 0) == (report.damage, report.undecodable)
    with pytest.raises(DecryptionError):
        lane_of(saver).read("3")


def test_task_that_wrote_in_plain_is_known_after_encryption_is_switched_on(kind: str) -> None:
    """Its retry must find the first write, though the key of its record is made in another way."""
    saver = DeltaStoreSaver.ephemeral()
    lane_of(saver).put("1")
    lane_of(saver).write("1", [("x", "first")])
    serde = serde_of(kind)
    lane = lane_of(clone_of(saver, serde))
    lane.write("1", [("x", "second"), ("y", "more")])
    lane.write("1", [("x", "third"), ("y", "again")])
    assert [("task", "x", "first"), ("task", "y", "more")] == lane.pending("1")
    assert [] == saver.store.verify(cipher=serde.cipher).damage


def test_plain_store_verifies_with_a_cipher(kind: str) -> None:
    """An operator passes the cipher in use, whether or not anything is encrypted yet."""
    saver = DeltaStoreSaver.ephemeral()
    fill(lane_of(saver))
    report = saver.store.verify(cipher=serde_of(kind).cipher)
    assert ([], 0) == (report.damage, report.undecodable)


def test_new_key_in_the_middle_of_a_thread(kind: str) -> None:
    """Where nothing old must be read, a thread goes on; each key opens its own checkpoints."""
    saver = DeltaStoreSaver.ephemeral(serde=serde_of(kind, 1))
    lanes = [lane_of(clone_of(saver, serde_of(kind, key))) for key in (1, 2, 3)]
    for n, lane in enumerate(lanes):
        for step in range(2):
            cid, parent = f"{n}{step}", f"{n}0" if step else None
            lane.put(cid, parent, new={"x": n}, values={"x": [*STATE, n, step]})
            lane.write(cid, [("x", n)])
            lane.write(cid, [("x", "again"), ("y", n)])
    for n, lane in enumerate(lanes):
        assert {"x": [*STATE, n, 1]} == lane.values(f"{n}1")
        assert [("task", "x", n), ("task", "y", n)] == lane.pending(f"{n}1")
        assert [n] == [write[2] for write in lane.history(f"{n}1", "x")["writes"]]
        for other in range(3):
            if other != n:
                with pytest.raises(DecryptionError):
                    lane.read(f"{other}1")


def test_encrypted_records_are_not_stored_in_plain_by_accident(kind: str) -> None:
    """Every record of the log but its clear part goes through the cipher."""
    each = Open(serde_of(kind))
    fill(each.lane)
    with each.engine.begin(write=False) as txn:
        for key, record in txn.scan(b"\x10", b"\x11"):
            with pytest.raises(DecryptionError):
                frame.unseal(key, record, keys.split(key).kind, None)


def test_cold_and_warm_reads_agree(kind: str) -> None:
    """What is kept decrypted is what would be read."""
    serde = serde_of(kind)
    each = Open(serde)
    each.grow(20)
    options = StoreOptions(value_cache_bytes=0, writes_cache_bytes=0)
    cold = DeltaStoreSaver.on_store(Store(each.engine, options), serde=serde)
    warm = [tuple_shape(found) for found in each.saver.list(None)]
    assert warm == [tuple_shape(found) for found in cold.list(None)]
