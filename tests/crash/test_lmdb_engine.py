"""What the LMDB engine does when paths, processes, disks and files are not as they should be.

A *child* is a forked process that runs one function and reports by a pipe; its exit status says
whether a signal ended it, which damage must never do. Each test has a store of its own.
"""

from __future__ import annotations

import os
import pwd
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import lmdb
import pytest

from deltastore.engine import lmdb_files, lmdb_shared
from deltastore.engine.lmdb import LmdbEngine
from deltastore.engine.lmdb_registry import registry
from deltastore.errors import (
    CorruptionError,
    DeltaStoreError,
    EngineError,
    ForkedStoreError,
    InvalidArgumentError,
    InvalidTypeError,
    ReadOnlyError,
    RetryTransactionError,
    StoreClosedError,
    StoreFullError,
    StorePathError,
)
from deltastore.testing.engine_calls import fill, read_all

SECONDS_MAX = 20
PAGE = 4096
CHILDREN: set[int] = set()


class Child:
    """A forked process that runs `work` with one end of a pipe; `wait` returns its exit status."""

    def __init__(self, work: Callable[[Connection], None]) -> None:
        self.pipe, inner = Pipe()
        with warnings.catch_warnings():
            # Python 3.12 warns of forks beside threads, which some of these tests are about.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                self.pipe.close()  # else the child would not notice that its parent is gone
                work(inner)
                status = 0
            except BaseException:  # noqa: BLE001 - the status tells the parent
                traceback.print_exc()
            finally:
                os._exit(status)
        inner.close()
        CHILDREN.add(self.pid)

    def receive(self) -> Any:
        assert self.pipe.poll(SECONDS_MAX), "the child says nothing"
        return self.pipe.recv()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        CHILDREN.discard(self.pid)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def run_child(work: Callable[[], None]) -> int:
    """Run `work` in a child to its end; 0 is success, a negative number a signal."""
    return Child(lambda _: work()).wait()


@pytest.fixture(autouse=True)
def no_child_outlives_its_test() -> Iterator[None]:
    yield
    for pid in CHILDREN:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    CHILDREN.clear()


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def engine(where: Path) -> Iterator[LmdbEngine]:
    engine = LmdbEngine(where)
    yield engine
    engine.close()


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def soft_limit(kind: int, most: int) -> Iterator[None]:
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def data_file(where: Path) -> Path:
    return where / "000001" / "data.mdb"


def fill_retrying(engine: LmdbEngine, pairs: dict[bytes, bytes]) -> int:
    """Store pairs as a committer does; return how often the transaction had to run again."""
    for again in range(40):
        try:
            fill(engine, pairs)
        except RetryTransactionError:
            continue
        return again
    raise AssertionError("the map never became large enough")


# Paths


def test_a_file_is_refused_as_a_store(tmp_path: Path) -> None:
    """A path mistyped must not replace somebody's file."""
    file = tmp_path / "file"
    file.write_text("mine")
    for path in (file, file / "below"):
        with pytest.raises(StorePathError):
            LmdbEngine(path)
    assert "mine" == file.read_text()


def test_a_foreign_directory_is_refused_and_left_alone(tmp_path: Path) -> None:
    """A home directory is not a store."""
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(StorePathError, match=r"letter\.txt"):
        LmdbEngine(tmp_path)
    assert ["letter.txt"] == [entry.name for entry in tmp_path.iterdir()]


def test_dot_files_do_not_make_a_directory_foreign(where: Path) -> None:
    """Desktops and version control leave such files anywhere."""
    where.mkdir()
    (where / ".keep").touch()
    engine = LmdbEngine(where)
    fill(engine, {b"a": b"1"})
    engine.close()


@pytest.mark.parametrize("path", ["", "nul\0byte", "x" * 5_000])
def test_a_path_that_cannot_be_is_refused(path: str, tmp_path: Path) -> None:
    """A clear error of ours, not one of the operating system's many."""
    with pytest.raises(StorePathError):
        LmdbEngine(tmp_path / path if path else path)


def test_arguments_are_checked() -> None:
    """Wrong arguments raise before anything is touched."""
    with pytest.raises(InvalidTypeError):
        LmdbEngine(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="durability"):
        LmdbEngine("x", durability="none")  # type: ignore[arg-type]


def test_the_constructor_creates_nothing(tmp_path: Path, where: Path) -> None:
    """A saver that is built and never used, or fails to be built, leaves no trace."""
    engine = LmdbEngine(where / "deeper")
    assert None is engine.version()
    engine.check()
    engine.close()
    with pytest.raises(StorePathError):
        LmdbEngine(where, read_only=True)
    assert [] == list(tmp_path.iterdir())


def test_a_directory_of_another_user_is_refused() -> None:
    """The constructor says so, instead of the first checkpoint an hour later."""
    with tempfile.TemporaryDirectory() as top:
        Path(top).chmod(0o755)
        closed = Path(top) / "closed"
        closed.mkdir()
        closed.chmod(0o555)

        def refused() -> None:
            if os.geteuid() == 0:
                os.setuid(pwd.getpwnam("nobody").pw_uid)
            for path in (closed, closed / "new" / "store"):
                with pytest.raises(StorePathError, match=r"may not write"):
                    LmdbEngine(path)

        assert 0 == run_child(refused)


@pytest.mark.parametrize("mask", [0o000, 0o777])
def test_modes_do_not_depend_on_the_umask(where: Path, mask: int) -> None:
    """Conversations are private, and a strict umask must not lock the owner out."""
    with umask(mask):
        engine = LmdbEngine(where / "deeper")
        fill(engine, {b"a": b"1"})
        engine.close()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [where, *where.rglob("*")]}
    files = dict.fromkeys(("CURRENT", "LOCK", "data.mdb", "lock.mdb"), 0o600)
    directories = dict.fromkeys(("store", "deeper", "000001"), 0o700)
    assert files | directories == modes


@pytest.mark.parametrize(
    ("kind", "is_warned"),
    [("nfs4", True), ("fuse.sshfs", True), ("9p", True), ("ext4", False), ("fuseblk", False)],
)
def test_a_network_file_system_is_warned_of(kind: str, is_warned: bool) -> None:
    """Two hosts on one NFS store damage it without any error."""
    table = (
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
        f"40 22 0:35 / /mnt/my\\040share rw shared:9 - {kind} server:/x rw\n"
        "41 22 0:36 / /mnt/my rw shared:9 - nfs server:/y rw\n"
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lmdb_files.warn_network(Path("/mnt/my share/store"), mountinfo=table)
        lmdb_files.warn_network(Path("/srv/store"), mountinfo=table)
    assert [UserWarning] * is_warned == [warning.category for warning in caught]


# Openings of one process


def test_two_openings_of_one_path_share(engine: LmdbEngine, where: Path, tmp_path: Path) -> None:
    """LMDB forbids opening a file twice; two savers on one store must work all the same."""
    (tmp_path / "link").symlink_to(where)
    other = LmdbEngine(tmp_path / "link")
    fill(engine, {b"a": b"1"})
    assert {b"a": b"1"} == read_all(other)
    other.close()
    with pytest.raises(StoreClosedError):
        read_all(other)
    fill(engine, {b"b": b"2"})
    assert {b"a": b"1", b"b": b"2"} == read_all(engine)


def test_openings_that_cannot_share_say_so(engine: LmdbEngine, where: Path) -> None:
    """A promise of durability must not depend on who opened first."""
    fill(engine, {b"a": b"1"})
    other = LmdbEngine(where, durability="normal")
    with pytest.raises(StorePathError, match="durability"):
        read_all(other)
    engine.close()
    assert {b"a": b"1"} == read_all(other)
    other.close()
    reader = LmdbEngine(where, read_only=True)
    assert {b"a": b"1"} == read_all(reader)
    with pytest.raises(StorePathError, match="read-only"):
        fill(LmdbEngine(where), {b"a": b"2"})
    reader.close()


def test_read_only_reads_beside_a_writer_and_writes_nothing(
    engine: LmdbEngine, where: Path
) -> None:
    """Dashboards look at a live store, from this process and from others."""
    fill(engine, {b"a": b"1"})
    reader = LmdbEngine(where, read_only=True)
    assert {b"a": b"1"} == read_all(reader)
    with pytest.raises(ReadOnlyError):
        reader.begin(write=True)
    reader.close()

    engine.close()
    engine = LmdbEngine(where)

    def look(pipe: Connection) -> None:
        looking = LmdbEngine(where, read_only=True)
        pipe.send(read_all(looking))
        pipe.recv()
        pipe.send(read_all(looking))

    child = Child(look)
    assert {b"a": b"1"} == child.receive()
    fill(engine, {b"a": b"2"})
    child.pipe.send("again")
    assert {b"a": b"2"} == child.receive()
    assert 0 == child.wait()
    engine.close()


def test_a_store_deleted_and_made_anew_is_not_the_old_one(engine: LmdbEngine, where: Path) -> None:
    """Sharing the environment of deleted files would acknowledge writes into nowhere."""
    fill(engine, {b"old": b"1"})
    shutil.rmtree(where)
    fresh = LmdbEngine(where)
    fill(fresh, {b"new": b"2"})
    fresh.close()
    again = LmdbEngine(where)
    assert {b"new": b"2"} == read_all(again)
    again.close()


def test_normal_durability_survives_a_killed_process(where: Path) -> None:
    """Both modes promise that much (P1)."""

    def work(pipe: Connection) -> None:
        engine = LmdbEngine(where, durability="normal")
        fill(engine, {b"a": b"1"})
        pipe.send("acknowledged")
        pipe.recv()

    child = Child(work)
    assert "acknowledged" == child.receive()
    child.kill()
    engine = LmdbEngine(where)
    assert {b"a": b"1"} == read_all(engine)
    engine.close()


def test_nesting_is_reported_instead_of_hanging(engine: LmdbEngine) -> None:
    """E10: a transaction inside another of its thread waits for itself as soon as the map grows."""
    with engine.begin(write=False) as transaction:
        with pytest.raises(AssertionError), engine.begin(write=True):
            pass
        with pytest.raises(AssertionError):
            engine.close()
        with pytest.raises(AssertionError):
            transaction.put(b"a", b"1")
        assert 0 == engine.stat().entries
    with pytest.raises(AssertionError):
        transaction.get(b"a")


# Processes


def test_a_writer_killed_in_its_transaction_lets_the_next_one_in(
    engine: LmdbEngine, where: Path
) -> None:
    """P7: the lock of a dead process must not hang the living, nor its half work show."""

    def hold(pipe: Connection) -> None:
        holder = LmdbEngine(where)
        with holder.begin(write=True) as transaction:
            transaction.put(b"half", b"1")
            pipe.send("holding")
            pipe.recv()

    child = Child(hold)
    assert "holding" == child.receive()
    writer = threading.Thread(target=fill, args=(engine, {b"whole": b"2"}), daemon=True)
    writer.start()
    child.kill()
    writer.join(SECONDS_MAX)
    assert {b"whole": b"2"} == read_all(engine)


def test_an_engine_built_before_a_fork_works_on_both_sides(engine: LmdbEngine) -> None:
    """Servers build the saver, then fork their workers (P7)."""
    assert 0 == run_child(lambda: fill(engine, {b"child": b"1"}))
    fill(engine, {b"parent": b"2"})
    assert {b"child": b"1", b"parent": b"2"} == read_all(engine)


def test_an_open_engine_raises_in_a_forked_child_and_goes_on_in_the_parent(
    engine: LmdbEngine, where: Path
) -> None:
    """P7: using LMDB's environment in a child corrupts; a hang or a crash is no better."""
    fill(engine, {b"a": b"1"})

    def child() -> None:
        calls: list[Callable[[], Any]] = [
            engine.check,
            engine.version,
            engine.stat,
            lambda: engine.begin(write=False),
            lambda: engine.begin(write=True),
            LmdbEngine(where).stat,
            lambda: LmdbEngine(where).begin(write=True),
        ]
        for call in calls:
            with pytest.raises(ForkedStoreError):
                call()
        engine.close()
        with pytest.raises(ForkedStoreError):
            engine.check()

    assert 0 == run_child(child)
    fill(engine, {b"b": b"2"})
    assert {b"a": b"1", b"b": b"2"} == read_all(engine)


def test_a_fork_inside_a_transaction_leaves_it_to_the_parent(engine: LmdbEngine) -> None:
    """The child must neither commit nor undo what the parent is writing, nor write into it."""
    with engine.begin(write=True) as transaction:
        transaction.put(b"a", b"1")

        def child() -> None:
            with pytest.raises(ForkedStoreError):
                transaction.put(b"child", b"2")
            with pytest.raises(ForkedStoreError):
                transaction.__exit__(None, None, None)

        assert 0 == run_child(child)
    assert {b"a": b"1"} == read_all(engine)


def test_no_lock_held_at_the_fork_hangs_the_child(
    engine: LmdbEngine, where: Path, tmp_path: Path
) -> None:
    """The parent's other threads may be anywhere when it forks."""
    fill(engine, {b"a": b"1"})
    shared = engine._opening.shared
    assert shared is not None

    def child() -> None:
        signal.alarm(SECONDS_MAX)
        for call in (engine.stat, engine.version, LmdbEngine(where).check):
            with pytest.raises(ForkedStoreError):
                call()
        engine.close()
        fill(LmdbEngine(tmp_path / "own"), {b"b": b"2"})

    with shared.gate.alone(), registry._mutex:
        forked = Child(lambda _: child())
    assert 0 == forked.wait()


def test_a_child_does_not_keep_the_lock_of_its_dead_parent(where: Path) -> None:
    """Else no opening could check the file's structure while the child lives."""

    def parent(pipe: Connection) -> None:
        engine = LmdbEngine(where)
        fill(engine, {b"a": b"1"})
        grandchild = Child(lambda _: signal.pause())
        pipe.send(grandchild.pid)
        pipe.recv()

    child = Child(parent)
    grandchild = child.receive()
    child.kill()
    try:
        lock, is_alone = lmdb_files.take_lock(where, read_only=False)
        assert is_alone
        assert lock is not None
        os.close(lock)
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_reader_slots_of_dead_processes_are_taken_back(
    where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed reader's slot pins pages, and enough of them lock everybody out."""
    monkeypatch.setattr(lmdb_shared, "_READERS_MAX", 1)

    def read(pipe: Connection) -> None:
        pipe.recv()
        with LmdbEngine(where).begin(write=False):
            pipe.send("reading")
            pipe.recv()

    child = Child(read)  # before the store is open here
    engine = LmdbEngine(where)
    fill(engine, {b"a": b"1"})
    child.pipe.send("go")
    assert "reading" == child.receive()
    with pytest.raises(EngineError, match="READERS_FULL"):
        read_all(engine)
    child.kill()
    assert {b"a": b"1"} == read_all(engine)
    engine.close()


# Room


def test_a_full_map_grows_and_the_transaction_runs_again(where: Path) -> None:
    """P5: nobody chooses a size."""
    engine = LmdbEngine(where, _map_size=64 << 10)
    pairs = {b"%05d" % number: b"v" * 500 for number in range(1_000)}
    assert 0 < fill_retrying(engine, pairs)
    assert pairs == read_all(engine)
    engine.close()


def test_a_swallowed_map_full_does_not_pass_for_a_commit(where: Path) -> None:
    """A batch that catches errors per op must not acknowledge what was lost."""
    engine = LmdbEngine(where, _map_size=64 << 10)
    fill(engine, {b"a": b"1"})
    with pytest.raises(RetryTransactionError), engine.begin(write=True) as transaction:
        with pytest.raises(RetryTransactionError):
            for number in range(1_000):
                transaction.put(b"%05d" % number, b"v" * 500)
        with pytest.raises(RetryTransactionError):
            transaction.put(b"b", b"2")
    assert {b"a": b"1"} == read_all(engine)
    fill(engine, {b"b": b"v" * 60_000})
    engine.close()


def test_growth_never_disturbs_concurrent_readers(where: Path) -> None:
    """Growing under a reader fails it; without a gate 402,719 errors in 20 growths.

    Each transaction lasts a while: two threads that do nothing but read hand the interpreter's lock
    to each other, and a third one waits for it for minutes, on a bare LMDB environment too.
    """
    engine = LmdbEngine(where, _map_size=64 << 10)
    fill(engine, {b"a": b"1"})
    done = threading.Event()
    problems: list[BaseException] = []

    def read() -> None:
        while not done.is_set():
            try:
                with engine.begin(write=False) as transaction:
                    if transaction.get(b"a") != b"1":
                        raise AssertionError("a reader lost its key")
                    done.wait(0.001)
                    if transaction.get(b"a") != b"1":
                        raise AssertionError("a reader lost its key in the middle")
                engine.version()
            except BaseException as error:  # noqa: BLE001 - collected for the assertion
                problems.append(error)
                return

    readers = [threading.Thread(target=read, daemon=True) for _ in range(2)]
    for reader in readers:
        reader.start()
    grown = sum(fill_retrying(engine, {b"%d" % number: b"v" * 400_000}) for number in range(6))
    done.set()
    for reader in readers:
        reader.join(SECONDS_MAX)
    assert [] == problems
    assert grown >= 4
    engine.close()


def test_a_map_grown_by_another_process_is_followed(where: Path) -> None:
    """P7: readers and writers of the process that did not grow it go on without an error."""

    def grow(pipe: Connection) -> None:
        grower = LmdbEngine(where, _map_size=64 << 10)
        for _ in range(2):
            fill_retrying(grower, {pipe.recv(): b"v" * 500_000})
            pipe.send("grown")

    child = Child(grow)  # before the store is open here
    engine = LmdbEngine(where, _map_size=64 << 10)
    fill(engine, {b"a": b"1"})
    child.pipe.send(b"one")
    assert "grown" == child.receive()
    assert b"v" * 500_000 == read_all(engine)[b"one"]
    child.pipe.send(b"two")
    assert "grown" == child.receive()
    fill_retrying(engine, {b"b": b"2"})
    assert [b"a", b"b", b"one", b"two"] == sorted(read_all(engine))
    assert 0 == child.wait()
    engine.close()


def test_a_file_size_limit_is_an_error_and_passes_with_the_limit(where: Path) -> None:
    """A full disk must keep old data readable, and work again once there is room."""

    def work() -> None:
        engine = LmdbEngine(where)
        fill(engine, {b"a": b"1"})
        for more in (0, PAGE + 100):  # nothing fits; a part of one write fits, which LMDB calls EIO
            most = data_file(where).stat().st_size + more
            with soft_limit(resource.RLIMIT_FSIZE, most):
                for _ in range(2):
                    with pytest.raises(StoreFullError):
                        fill(engine, {b"big": b"v" * 500_000})
                    assert read_all(engine) == {b"a": b"1"}
            fill(engine, {b"a": b"1"})
        fill(engine, {b"big": b"v" * 500_000})
        assert engine.stat().entries == 2

    assert 0 == run_child(work)


def test_an_environment_that_panicked_is_opened_anew(engine: LmdbEngine) -> None:
    """After a meta page could not be written LMDB refuses everything; the saver must recover."""
    fill(engine, {b"a": b"1"})
    shared = engine._opening.shared
    assert shared is not None
    real = shared._env

    class Panicked:
        """What LMDB makes of its environment; only a disk that fails brings it about."""

        def begin(self, write: bool) -> None:
            raise lmdb.PanicError("mdb_txn_begin")

        def close(self) -> None:
            assert real is not None
            real.close()

    shared._env = Panicked()  # type: ignore[assignment]
    fill(engine, {b"b": b"2"})
    assert {b"a": b"1", b"b": b"2"} == read_all(engine)


LIMITED = """
import resource, sys
from deltastore.engine.lmdb import LmdbEngine
from deltastore.errors import StoreFullError

resource.setrlimit(resource.RLIMIT_AS, (6 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
engine = LmdbEngine(sys.argv[1])
with engine.begin(write=True) as txn:
    txn.put(b"a", b"1")
assert engine._opening.shared.get_map_bytes() < 8 << 30
engine.close()
small = LmdbEngine(sys.argv[1], _map_size=3 << 30)
try:
    small.stat()
    small._opening.shared.grow(3 << 30)
except StoreFullError as error:
    assert "cannot be doubled" in str(error)
else:
    raise AssertionError("the map was doubled")
with small.begin(write=True) as txn:
    assert b"1" == txn.get(b"a")
    txn.put(b"b", b"2")
small.close()
"""


def test_a_limited_address_space_gets_a_smaller_map(where: Path) -> None:
    """Containers and ulimit -v refuse a terabyte; the store opens all the same.

    In a fresh interpreter: a map that another test has open would count in a child of this one.
    """
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", LIMITED, str(where)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (0, "") == (ran.returncode, ran.stderr)


# Damage


def make_store(where: Path, sizes: Sequence[int] = (50, 900, 9_000)) -> dict[bytes, bytes]:
    """Make a store of some hundred pages with a history of changes; return what it holds."""
    generator = random.Random(1)
    pairs: dict[bytes, bytes] = {}
    engine = LmdbEngine(where)
    for _ in range(20):
        more = {
            b"%06d" % generator.randrange(900): generator.randbytes(generator.choice(sizes))
            for _ in range(20)
        }
        fill(engine, more)
        pairs |= more
    engine.close()
    return pairs


def probe(where: Path, pairs: dict[bytes, bytes]) -> str:
    """Open and read a damaged store in a child; return what became of it."""

    def read(pipe: Connection) -> None:
        engine = LmdbEngine(where)
        try:
            found = read_all(engine)
        except CorruptionError:
            pipe.send("detected")
        except DeltaStoreError as error:
            pipe.send(f"other error: {error!r}")
        else:
            pipe.send("sound" if found == pairs else "wrong")

    child = Child(read)
    try:
        answer = str(child.receive())
    except EOFError:
        return f"ended by {child.wait()}"
    assert 0 == child.wait()
    return answer


def test_a_truncated_file_is_found_before_it_is_mapped(where: Path, tmp_path: Path) -> None:
    """Reading a mapped page beyond the end is SIGBUS, which no handler turns into an error."""
    pairs = make_store(where)
    whole = data_file(where).read_bytes()
    generator = random.Random(2)
    lengths = [0, 1, 100, PAGE, 2 * PAGE, len(whole) // 2, len(whole) - PAGE]
    lengths += [generator.randrange(len(whole) - 40 * PAGE) for _ in range(5)]
    found = set()
    for length in lengths:
        data_file(where).write_bytes(whole[:length])
        found.add(probe(where, pairs))
    assert {"detected"} == found - {"sound"}
    data_file(where).write_bytes(whole)
    assert "sound" == probe(where, pairs)


def test_damaged_pages_are_found_before_they_are_mapped(where: Path) -> None:
    """LMDB trusts its pages: a zeroed or swapped one made it abort in 22 of 80 tries.

    Values are short here: damage inside a long one is not the structure's, but the log's to find.
    """
    pairs = make_store(where, sizes=(50, 900))
    whole = data_file(where).read_bytes()
    pages = len(whole) // PAGE
    generator = random.Random(3)
    found = []
    for _ in range(12):
        one, other = generator.sample(range(2, pages), 2)
        zeroed, swapped = bytearray(whole), bytearray(whole)
        zeroed[one * PAGE : (one + 1) * PAGE] = bytes(PAGE)
        swapped[one * PAGE : (one + 1) * PAGE] = whole[other * PAGE : (other + 1) * PAGE]
        swapped[other * PAGE : (other + 1) * PAGE] = whole[one * PAGE : (one + 1) * PAGE]
        for damaged in (zeroed, swapped):
            data_file(where).write_bytes(damaged)
            found.append(probe(where, pairs))
    assert {"detected", "sound"} == set(found) | {"sound"}  # sound: the pages were free
    assert found.count("detected") >= 12


def test_a_value_replaced_within_its_transaction_is_no_damage(where: Path) -> None:
    """LMDB keeps the longer value's pages then, which its own checker calls damage.

    A batch that puts one record twice must not lock its user out at the next opening.
    """
    engine = LmdbEngine(where)
    for first in (2_000, 5_000, 20_000):
        for second in (0, 10, 2_500, 6_000):
            with engine.begin(write=True) as transaction:
                transaction.put(b"%d-%d" % (first, second), b"x" * first)
                transaction.put(b"%d-%d" % (first, second), b"y" * second)
    engine.close()
    engine = LmdbEngine(where)
    assert 12 == engine.stat().entries
    assert b"y" * 6_000 == read_all(engine)[b"2000-6000"]
    engine.close()


@pytest.mark.parametrize("page", [0, 1])
def test_a_damaged_meta_page_is_found(where: Path, page: int) -> None:
    """Both are needed: one of them is the last commit."""
    pairs = make_store(where)
    with data_file(where).open("r+b") as file:
        file.seek(page * PAGE)
        file.write(bytes(PAGE))
    assert "detected" == probe(where, pairs)


# Once there are free pages, LMDB gives those of the last of these back without ever writing them.
SHORTENING = [
    [(b"a", 20_000)],
    [(b"a", 0)],
    [(b"b", 20_000), (b"b", 0)],
    [(b"c", 60_000), (b"c", 0)],
]


def apply_sizes(transaction: Any, sizes: list[tuple[bytes, int]]) -> None:
    """Put a value of each size; size 0 deletes the key."""
    for key, size in sizes:
        if size:
            transaction.put(key, b"x" * size)
        else:
            transaction.delete(key)


def is_short(where: Path) -> bool:
    return data_file(where).stat().st_size < lmdb_files.measure_claim(data_file(where))


def test_a_sound_file_shorter_than_it_claims_opens(where: Path) -> None:
    """Such a file comes from a process killed at once after its commit; it is no truncation."""
    pairs = make_store(where)
    with lmdb.Environment(str(where / "000001"), map_size=1 << 30) as environment:
        for sizes in SHORTENING:
            with environment.begin(write=True) as transaction:
                apply_sizes(transaction, sizes)
            if is_short(where):
                break
    assert is_short(where)
    engine = LmdbEngine(where, verify_bytes_max=0)
    found = read_all(engine)
    assert pairs == {key: found[key] for key in pairs}
    assert not is_short(where)
    engine.close()


def test_no_commit_leaves_the_file_shorter_than_it_claims(engine: LmdbEngine, where: Path) -> None:
    """Else the next opening of a large store walks all of it to rule out a truncation."""
    for sizes in SHORTENING:
        with engine.begin(write=True) as transaction:
            apply_sizes(transaction, sizes)
        assert not is_short(where)


@pytest.mark.parametrize("text", [b"", b"0\n", b"1", b"x\n", b"1\n1\n", b"\x00" * 9])
def test_a_damaged_current_file_is_named(where: Path, text: bytes) -> None:
    """Guessing a generation could show a superseded state as the present one (P3)."""
    make_store(where)
    (where / "CURRENT").write_bytes(text)
    with pytest.raises(CorruptionError, match="CURRENT"):
        read_all(LmdbEngine(where))


def test_a_lost_file_is_never_replaced_by_an_empty_store(where: Path) -> None:
    """A cut history must not look like an empty one (P3)."""
    pairs = make_store(where)
    data_file(where).rename(where.parent / "saved")
    with pytest.raises(CorruptionError, match=r"data\.mdb"):
        read_all(LmdbEngine(where))
    (where.parent / "saved").rename(data_file(where))
    (where / "CURRENT").rename(where.parent / "saved")
    with pytest.raises(CorruptionError, match="CURRENT"):
        read_all(LmdbEngine(where))
    (where.parent / "saved").rename(where / "CURRENT")
    (where / "000001").rename(where.parent / "saved")
    with pytest.raises(CorruptionError, match="000001"):
        read_all(LmdbEngine(where))
    (where.parent / "saved").rename(where / "000001")
    engine = LmdbEngine(where)
    assert pairs == read_all(engine)
    engine.close()


@pytest.mark.parametrize("kept", [[], [0], [0, 1], [0, 8], [8, 9], list(range(8, 16)), [15]])
def test_a_creation_torn_by_a_power_cut_is_taken_up(where: Path, kept: list[int]) -> None:
    """Any sectors of its two meta pages may be missing; nothing was ever stored there."""
    engine = LmdbEngine(where)
    fill(engine, {})
    engine.close()
    data = data_file(where)
    whole = data.read_bytes()
    sector = 2 * PAGE // 16
    torn = bytearray(2 * PAGE)
    for number in kept:
        torn[number * sector : (number + 1) * sector] = whole[number * sector :][:sector]
    data.write_bytes(torn)
    (where / lmdb_files.CURRENT).unlink()
    engine = LmdbEngine(where)
    fill(engine, {b"a": b"1"})
    assert {b"a": b"1"} == read_all(engine)
    engine.close()


def test_a_creation_killed_anywhere_is_taken_up(where: Path, tmp_path: Path) -> None:
    """A process killed in its first second must not leave a path nobody can use."""
    steps = 0
    real = {name: getattr(os, name) for name in ("open", "fsync", "mkdir", "replace", "close")}

    def create(kill_at: int) -> None:
        calls = 0

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            def called(*arguments: Any, **named: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **named)

            return called

        for name, function in real.items():
            setattr(os, name, wrap(function))
        fill(LmdbEngine(where), {b"a": b"1"})

    for kill_at in range(1, 60):
        shutil.rmtree(where, ignore_errors=True)
        status = run_child(lambda kill_at=kill_at: create(kill_at))  # type: ignore[misc]
        if status == 0:
            break
        assert -signal.SIGKILL == status
        steps += 1
        engine = LmdbEngine(where)
        assert read_all(engine) in ({}, {b"a": b"1"})
        fill(engine, {b"b": b"2"})
        engine.close()
    assert 10 < steps < 59
