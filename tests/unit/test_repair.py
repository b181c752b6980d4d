"""Repair keeps what still rebuilds, tells what does not, and never shows a wrong value."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from deltastore import (
    BrokenChainError,
    CorruptionError,
    DecryptionError,
    DeletedParentError,
    DeltaStoreError,
    DeltaStoreSaver,
    RepairReport,
    StorePathError,
    repair,
    verify_path,
)
from deltastore.engine.lmdb import LmdbEngine
from deltastore.format import keys, layout
from deltastore.ids import cid_from_id
from deltastore.testing import make_checkpoint, make_config
from tests.conformance.cli_stores import BEGIN_MS, checkpoint_id, put_line

pytestmark = pytest.mark.damaged

IDS = [f"1f1ecb42-a1{digit}0-6876-bfff-421a31cae801" for digit in "0123456789"]
Pairs = dict[bytes, bytes]


def put(saver: DeltaStoreSaver, at: int, thread: str = "t", *, run: str = "r") -> None:
    """Put a checkpoint of a line: a channel that grows, a small one, and writes of another."""
    new: Any = {"log": at + 1, "n": at + 1, "d": at + 1}
    values = {"log": [f"{k} " * 40 for k in range(at + 1)], "n": at}
    config: Any = make_config(thread, "", IDS[at - 1] if at else None)
    saver.put(config, make_checkpoint(IDS[at], new, values), {"run_id": run, "step": at}, new)
    saver.put_writes(make_config(thread, "", IDS[at]), [("d", at)], f"task {at}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with DeltaStoreSaver(tmp_path / "store") as saver:
        for thread in ("t", "u"):
            for at in range(8):
                put(saver, at, thread)
    return tmp_path / "store"


PREFIX = keys.log_prefix(1, 1)


def header(at: int) -> bytes:
    return keys.header_key(PREFIX, cid_from_id(IDS[at]))


def damage(path: Path, *names: Callable[[Pairs], bytes] | bytes) -> None:
    """Flip a bit in records below the store."""
    engine = LmdbEngine(path)
    with engine.begin(write=True) as txn:
        pairs = dict(txn.scan(b"\0", b"\xff" * 7))
        for name in names:
            key = name if isinstance(name, bytes) else name(pairs)
            txn.put(key, pairs[key][:-1] + bytes([pairs[key][-1] ^ 1]))
    engine.close()


def remove(path: Path, *names: bytes) -> None:
    engine = LmdbEngine(path)
    with engine.begin(write=True) as txn:
        for name in names:
            assert txn.delete(name)
    engine.close()


def writes(at: int) -> Callable[[Pairs], bytes]:
    start = PREFIX + cid_from_id(IDS[at]) + bytes([layout.KIND_WRITES])
    return lambda pairs: next(key for key in pairs if key.startswith(start))


def read(path: Path, thread: str = "t") -> dict[str, Any]:
    """Return what each checkpoint shows and its history, by id; errors by their names."""
    found = {}
    with DeltaStoreSaver(path, read_only=True) as saver:
        for info in list(saver.store.checkpoints(thread)):
            config = make_config(thread, "", info.checkpoint_id)
            shown = repr(saver.get_tuple(config))
            try:
                past = repr(saver.get_delta_channel_history(config=config, channels=["d"]))
            except DeltaStoreError as error:
                past = type(error).__name__
            found[info.checkpoint_id] = (shown, past)
    return found


def repaired(path: Path, **options: Any) -> tuple[RepairReport, Path]:
    target = path.parent / "repaired"
    report = repair(path, target, **options)
    assert verify_path(target, cipher=options.get("cipher")).is_sound
    return report, target


def test_a_sound_store_is_kept_whole(path: Path) -> None:
    """Whoever repairs to be safe must not lose by it."""
    report, target = repaired(path)
    assert ([], 16, 2, 0) == (report.lost, report.checkpoints, report.threads, report.gaps)
    assert [read(path, thread) for thread in "tu"] == [read(target, thread) for thread in "tu"]


def test_the_damaged_store_is_not_changed(path: Path) -> None:
    """It is the only evidence there is."""
    damage(path, header(3))
    files = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    repaired(path)
    assert files == {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_lost_write_takes_its_checkpoint_and_leaves_a_gap(path: Path) -> None:
    """A history without it would be wrong and not short: the reader must be told."""
    right = read(path)
    damage(path, writes(3))
    report, target = repaired(path)
    assert (1, 15) == (report.gaps, report.checkpoints)
    (lost,) = report.lost
    assert ("t", "", IDS[3]) == (lost.thread_id, lost.checkpoint_ns, lost.checkpoint_id)
    found = read(target)
    assert set(IDS[:8]) - {IDS[3]} == set(found)
    for at, one in enumerate(IDS[:8]):
        if at < 3:
            assert right[one] == found[one]
        elif at > 3:
            assert (right[one][0], "BrokenChainError") == found[one]
    with DeltaStoreSaver(target) as saver:
        with pytest.raises(BrokenChainError, match="lost to damage"):
            saver.get_tuple(make_config("t", "", IDS[3]))
        saver.put_writes(make_config("t", "", IDS[3]), [("d", 9)], "late")  # shows nowhere
        assert saver.store.verify().is_sound


def test_a_lost_header_takes_what_is_coded_against_it(path: Path) -> None:
    """Headers are differences; the next whole one may be far."""
    damage(path, header(5))
    report, target = repaired(path)
    assert {IDS[5], IDS[6], IDS[7]} == {one.checkpoint_id for one in report.lost}
    assert set(IDS[:5]) == set(read(target))


def test_a_lost_value_takes_who_shows_it_or_what_is_coded_on_it(path: Path) -> None:
    """And the report tells which channel of each."""
    damage(path, keys.value_key(PREFIX, cid_from_id(IDS[6]), 0))
    report, target = repaired(path)
    lost = {one.checkpoint_id: one for one in report.lost}
    assert {IDS[6], IDS[7]} == set(lost)
    assert "log" == lost[IDS[6]].channel
    assert set(IDS[:6]) == set(read(target))


def test_what_is_lost_is_not_put_upon(path: Path) -> None:
    """Its child would be a root, and its history an empty one."""
    damage(path, header(7))
    _, target = repaired(path)
    with DeltaStoreSaver(target) as saver, pytest.raises(DeletedParentError):
        put(saver, 8)


def test_what_is_lost_without_a_name_is_not_put_upon(tmp_path: Path) -> None:
    """The last page of a thread is gone, with the newest checkpoints, and nothing names them."""
    with DeltaStoreSaver(tmp_path / "store") as saver:
        ids = put_line(saver, "t", BEGIN_MS, ["r"] * 40, more="x" * 300)
    file = tmp_path / "store" / "000001" / "data.mdb"
    content = bytearray(file.read_bytes())
    key = keys.header_key(PREFIX, cid_from_id(ids[-1]))
    at = content.find(key)
    while at >= 0:  # older copies of the page too
        page = at // 4096 * 4096
        content[page : page + 4096] = bytes(4096)
        at = content.find(key)
    file.write_bytes(content)
    report, target = repaired(tmp_path / "store")
    assert any("any number of records" in one.message for one in report.lost)
    with DeltaStoreSaver(target) as saver:
        left = {one.checkpoint_id for one in saver.store.checkpoints("t")}
        assert 0 < len(left) < len(ids)
        assert ids[-1] not in left
        new: Any = {"lines": 99}
        config: Any = make_config("t", "", ids[-1])
        with pytest.raises(DeletedParentError):
            saver.put(config, make_checkpoint(checkpoint_id(BEGIN_MS * 2), new, {}), {}, new)
        head: Any = make_config("t", "", max(left))
        saver.put(head, make_checkpoint(checkpoint_id(BEGIN_MS * 2), new, {}), {}, new)


def test_a_repaired_thread_goes_on_and_can_be_pruned_copied_and_compacted(path: Path) -> None:
    """From its newest checkpoint; gaps stay as long as something stands on them."""
    damage(path, writes(3))
    _, target = repaired(path)
    with DeltaStoreSaver(target) as saver:
        put(saver, 8)
        saver.compact("t")
        saver.copy_thread("t", "copy")
        saver.copy_thread("t", "heads", heads_only=True)
        before = saver.get_tuple(make_config("t"))
        saver.prune(["t"], keep_last=3)
        assert before == saver.get_tuple(make_config("t"))
        for thread in ("t", "copy", "heads"):
            with pytest.raises(BrokenChainError):
                saver.get_delta_channel_history(config=make_config(thread), channels=["d"])
        saver.prune(["t"], older_than=timedelta(0))
        assert saver.store.verify().is_sound
        saver.delete_thread("t")
        assert saver.store.verify().is_sound


NAMES = {
    "thread entry": keys.thread_key(b"t"),
    "thread name": keys.thread_name_key(1),
    "namespace": keys.namespace_key(1, b""),
    "namespace name": keys.namespace_name_key(1, 1),
    "store": keys.store_key(b"store"),
    "counter": keys.store_key(b"threads"),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("harm", [damage, remove], ids=lambda one: one.__name__)
def test_a_name_that_is_stored_twice_is_put_back(path: Path, name: str, harm: Any) -> None:
    """A thread must not be lost for one record of the directory."""
    right = read(path)
    harm(path, NAMES[name])
    report, target = repaired(path)
    assert 16 == report.checkpoints
    assert right == read(target)
    with DeltaStoreSaver(target) as saver:
        put(saver, 0, "new")
        saver.delete_for_runs(["r"])
        assert [] == list(saver.store.checkpoints("t"))


def test_a_thread_whose_entry_is_lost_takes_no_child_of_what_may_be_deleted(path: Path) -> None:
    """What was deleted from it was in the entry alone."""
    with DeltaStoreSaver(path) as saver:
        saver.prune(["t"], keep_last=2)
    damage(path, NAMES["thread entry"])
    report, target = repaired(path)
    assert any("entry was lost" in one.message for one in report.lost)
    with DeltaStoreSaver(target) as saver, pytest.raises(DeltaStoreError):
        config: Any = make_config("t", "", IDS[2])
        saver.put(config, make_checkpoint(IDS[9], {}, {}), {}, {})


def test_a_thread_without_any_name_is_lost_and_told(path: Path) -> None:
    """Nobody can ask for it; its number is given to no other."""
    damage(path, NAMES["thread entry"], NAMES["thread name"])
    report, target = repaired(path)
    assert 8 == report.checkpoints
    assert any("thread number 1" in one.message for one in report.lost)
    with DeltaStoreSaver(target) as saver:
        put(saver, 0, "new")
        assert 1 == len(list(saver.store.checkpoints("new")))


def test_lost_marks_make_hints_distrusted(path: Path) -> None:
    """Else a walk would jump past late writes that only the mark told of."""
    with DeltaStoreSaver(path) as saver:
        saver.put_writes(make_config("t", "", IDS[1]), [("late", 1)], "late task")
    right = read(path)
    damage(path, lambda pairs: next(key for key in pairs if key[0] == layout.TAG_LATE))
    _, target = repaired(path)
    assert right == read(target)
    with DeltaStoreSaver(target) as saver:
        found = saver.get_delta_channel_history(config=make_config("t"), channels=["late"])
        assert 1 == len(found["late"]["writes"])


def test_encrypted_stores_are_repaired_with_the_key_and_refused_without(tmp_path: Path) -> None:
    """What cannot be decoded cannot be shown to rebuild."""
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
    path = tmp_path / "store"
    with DeltaStoreSaver(path, serde=serde) as saver:
        for at in range(6):
            put(saver, at)
    damage(path, writes(2))
    with pytest.raises(DecryptionError, match=r"cipher=serde\.cipher"):
        repair(path, tmp_path / "repaired")
    assert ["store"] == [one.name for one in tmp_path.iterdir()]
    report, target = repaired(path, cipher=serde.cipher)
    assert [IDS[2]] == [one.checkpoint_id for one in report.lost]
    with DeltaStoreSaver(target, serde=serde) as saver:
        assert saver.get_tuple(make_config("t", "", IDS[5])) is not None
        saver.delete_for_runs(["r"])


def test_files_that_are_missing_are_told_or_done_without(path: Path) -> None:
    """CURRENT can be told from the generations there are; without a data file nothing can."""
    right = read(path)
    (path / "CURRENT").unlink()
    report, target = repaired(path)
    assert right == read(target)
    assert any("CURRENT" in one.message for one in report.lost)
    data = path / "000001" / "data.mdb"
    content = bytearray(data.read_bytes())
    content[:200] = bytes(200)
    content[4096:4296] = bytes(200)
    data.write_bytes(content)
    with pytest.raises(CorruptionError, match="both meta pages"):
        repair(path, path.parent / "other")
    data.unlink()
    with pytest.raises(CorruptionError, match="no generation has a data file"):
        repair(path, path.parent / "other")
    assert not (path.parent / "other").exists()


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    """A mistyped path must not become an empty store."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("x")
    for source in ("nowhere", "notes", "notes/a.txt"):
        with pytest.raises(StorePathError):
            repair(tmp_path / source, tmp_path / "repaired")
    assert ["notes"] == [one.name for one in tmp_path.iterdir()]
