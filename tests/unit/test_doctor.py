"""What the doctor tells of a store, and that each of its warnings has a case."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltastore import DeltaStoreSaver, EngineError, StorePathError, diagnosis, doctor
from deltastore.diagnosis import Diagnosis
from tests.conformance.cli_stores import BEGIN_MS, RUN, put_line
from tests.crash.test_lmdb_engine import Child, no_child_outlives_its_test

__all__ = ["no_child_outlives_its_test"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with DeltaStoreSaver(tmp_path / "store") as saver:
        put_line(saver, "t", BEGIN_MS, [f"{RUN}1"])
    return tmp_path / "store"


def snapshot(path: Path) -> dict[str, bytes]:
    files = (one for one in path.rglob("*") if one.is_file() and one.name != "lock.mdb")
    return {str(one): one.read_bytes() for one in files}


def test_a_healthy_store_has_facts_and_no_warnings(path: Path) -> None:
    """It only looks: nothing of the store is another afterwards."""
    before = snapshot(path)
    found = doctor(path)
    assert before == snapshot(path)
    assert found.map is not None
    assert () == tuple(one for one in found.warnings if "disk" not in one)
    assert (1, 0o700, 0o600, ()) == (
        found.files.generation,
        found.files.mode,
        found.files.data_mode,
        found.files.leftovers,
    )
    assert 0 < found.map.entries
    assert 0 < found.files.free_bytes
    assert found.files.file_bytes == found.map.file_bytes <= found.map.map_bytes
    assert "google-crc32c crcmod crcmod-pure".split().count(found.checksum)
    assert {"deltastore", "format", "py_lmdb", "lmdb", "python", "system"} == set(found.versions)


def test_what_lies_open_or_was_left_behind_is_told(path: Path) -> None:
    """Each with the way out."""
    path.chmod(0o755)
    (path / "000007").mkdir()
    (path / ".CURRENT.123").touch()
    (path.parent / ".copy.partial").mkdir()
    found = doctor(path)
    assert ("000007", ".CURRENT.123") == found.files.leftovers[:2]
    assert any("chmod 700" in one for one in found.warnings)
    assert any("killed process" in one and ".copy.partial" in one for one in found.warnings)


def test_readers_of_other_processes_are_counted(path: Path) -> None:
    """A view that is left open is why a file grows."""

    def work(pipe: Any) -> None:
        with DeltaStoreSaver(path) as saver, saver.store._session.view():
            pipe.send("reading")
            pipe.recv()

    child = Child(work)
    child.receive()
    found = doctor(path).map
    assert found is not None
    assert (1, 0, found.last_commit) == (found.readers, found.stale_readers, found.oldest_read)
    child.kill()


@pytest.mark.damaged
def test_a_damaged_file_is_told_and_not_mapped(path: Path) -> None:
    """The doctor must survive its patient."""
    data = path / "000001" / "data.mdb"
    content = bytearray(data.read_bytes())
    content[2 * 4096 :] = bytes(len(content) - 2 * 4096)
    data.write_bytes(content)
    found = doctor(path)
    assert None is found.map
    assert any("damaged" in one for one in found.warnings)


def test_a_store_open_in_this_process_is_left_alone(path: Path) -> None:
    """LMDB must not open a file twice in a process."""
    with DeltaStoreSaver(path) as saver:
        saver.store.threads()
        with pytest.raises(EngineError, match="open in this process"):
            doctor(path)
    with pytest.raises(StorePathError):
        doctor(path / "nowhere")


CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("network file system", {"is_network": True, "file_system": "nfs4"}, {}),
    ("MiB left on the disk", {"free_bytes": 1 << 20}, {}),
    ("second copy", {"free_bytes": 1 << 30, "file_bytes": 1 << 31}, {}),
    ("chmod", {"data_mode": 0o644}, {}),
    ("another user", {"is_owned": False}, {}),
    ("no holes", {"is_sparse": False, "file_system": "vfat"}, {}),
    ("killed process", {"leftovers": ("000007",)}, {}),
    ("deltastore vacuum", {}, {"free_bytes": 1 << 30, "file_bytes": 1 << 30}),
    ("processes that are gone", {}, {"stale_readers": 2}),
    ("commits ago", {}, {"oldest_read": 1, "last_commit": 100_000}),
    ("reader slots", {}, {"readers": 1_000, "readers_max": 1_024}),
]


@pytest.mark.parametrize(("says", "of_files", "of_map"), CASES)
def test_each_warning_has_its_case(
    path: Path, monkeypatch: pytest.MonkeyPatch, says: str, of_files: Any, of_map: Any
) -> None:
    """One fact changed, one warning more."""
    before = doctor(path)
    assert before.map is not None
    monkeypatch.setattr(diagnosis, "look_at_files", lambda _: replace(before.files, **of_files))
    monkeypatch.setattr(diagnosis, "look_at_map", lambda _: replace(before.map, **of_map))
    found: Diagnosis = doctor(path)
    more = set(found.warnings) - set(before.warnings)
    assert [True] == [says in one for one in more]


def test_a_slow_checksum_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of times slower is no detail."""
    monkeypatch.setattr(diagnosis, "IMPLEMENTATION", "crcmod-pure")
    assert any("[fast]" in one for one in doctor(path).warnings)
