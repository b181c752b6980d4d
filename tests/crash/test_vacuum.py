"""A vacuum beside other processes, killed at each of its steps, and on a full disk.

Whatever happens, every pair that was acknowledged is there, for the processes that were open and
for those that open later; what a vacuum left behind is gone after the next opening and a write.
"""

from __future__ import annotations

import fcntl
import os
import random
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any

import lmdb
import lmdb.verify
import pytest

from deltastore.engine import lmdb_files as files
from deltastore.engine import lmdb_generations as generations
from deltastore.engine import lmdb_journal as journal
from deltastore.engine.lmdb import LmdbEngine
from deltastore.engine.lmdb_transaction import LmdbTransaction
from deltastore.engine.lmdb_unfinished import UnfinishedGeneration
from deltastore.errors import EngineError, RetryTransactionError, StoreFullError
from deltastore.testing.engine_calls import SECONDS_MAX, fill, read_all
from tests.crash.test_lmdb_engine import CHILDREN, Child, run_child, soft_limit

PAIRS = {b"%05d" % number: b"v" * (number % 1_500) for number in range(2_500)}


@pytest.fixture
def where(tmp_path: Path) -> Any:
    yield tmp_path / "store"
    for pid in CHILDREN:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    CHILDREN.clear()


def make_store(where: Path) -> None:
    engine = LmdbEngine(where)
    fill(engine, PAIRS)
    engine.close()


def look(where: Path) -> tuple[int, bytes | None]:
    """Return which generation CURRENT names and the state in it, without an engine."""
    directory = files.find_generation(where)
    return int(directory.name), dict(read_raw(directory)).get(journal.STATE)


def read_raw(directory: Path) -> list[tuple[bytes, bytes]]:
    with lmdb.Environment(str(directory), map_size=1 << 30) as env, env.begin() as txn:
        return list(txn.cursor())


def check_clean(where: Path, pairs: dict[bytes, bytes]) -> None:
    """Check that a store is sound, holds `pairs` and nothing of a vacuum."""
    directory = files.find_generation(where)
    assert [int(directory.name)] == generations.list_numbers(where)
    assert [] == lmdb.verify.verify(str(directory / "data.mdb"), subdir=False)
    assert pairs == dict(read_raw(directory))


# Beside other processes


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_another_process_loses_nothing_that_it_writes(where: Path, durability: Any) -> None:
    """Its writes are checked by it, against a model, and by the vacuuming process at the end."""
    seed = 5
    print("seed", seed)  # noqa: T201 - shown with a failure

    def write(pipe: Connection) -> None:
        generator = random.Random(seed)
        engine = LmdbEngine(where, durability=durability)
        model = dict(PAIRS)
        count = 0
        while not pipe.poll():
            count += 1
            with engine.begin(write=True) as transaction:
                for key in (b"%05d" % generator.randrange(2_500) for _ in range(5)):
                    assert model.get(key) == transaction.get(key)
                    if generator.random() < 0.4:
                        transaction.delete(key)
                        model.pop(key, None)
                    else:
                        model[key] = generator.randbytes(generator.choice((3, 400, 5_000)))
                        transaction.put(key, model[key])
                model[b"count"] = b"%d" % count
                transaction.put(b"count", model[b"count"])
        assert model == read_all(engine)
        pipe.send(model)

    make_store(where)
    child = Child(write)
    engine = LmdbEngine(where, durability=durability)
    waited = 0

    def progress(_done: int, _total: int) -> None:
        """Let the other process commit before the next chunk."""
        nonlocal waited
        before = read_all(engine).get(b"count")
        end = monotonic() + SECONDS_MAX
        while read_all(engine).get(b"count") == before:
            assert monotonic() < end, "the other process is held up"
        waited += 1

    progress(0, 0)
    numbers = [engine.vacuum(progress=progress).generation for _ in range(3)]
    progress(0, 0)
    child.pipe.send("stop")
    model = child.receive()
    assert 0 == child.wait()
    assert model == read_all(engine)
    assert [2, 3, 4] == numbers
    assert waited > 9
    engine.close()
    check_clean(where, model)


@pytest.mark.parametrize("read_only", [False, True])
def test_an_idle_process_sees_what_is_written_after_a_vacuum(where: Path, read_only: bool) -> None:
    """Its environment is superseded, and nothing tells it so but what it reads there itself."""

    def work(pipe: Connection) -> None:
        engine = LmdbEngine(where, read_only=read_only)
        with engine.begin(write=False) as transaction:
            pipe.send("reading")
            pipe.recv()
            pipe.send(transaction.get(b"00001"))  # the state of its beginning
        before = engine.version()
        pipe.send(read_all(engine)[b"00001"])
        pipe.send((before, engine.version()))
        pipe.recv()
        engine.close()

    make_store(where)
    child = Child(work)
    assert "reading" == child.receive()
    engine = LmdbEngine(where)
    engine.vacuum()
    fill(engine, {b"00001": b"new"})
    assert [1, 2] == generations.list_numbers(where)  # the child reads in the first
    child.pipe.send("go on")
    assert PAIRS[b"00001"] == child.receive()
    assert b"new" == child.receive()
    before, after = child.receive()
    assert None is before  # superseded: it cannot tell what is committed elsewhere
    assert engine.version() == after
    child.pipe.send("end")
    assert 0 == child.wait()
    engine.close()
    engine = LmdbEngine(where)
    engine.stat()
    assert [2] == generations.list_numbers(where)
    engine.close()


def test_secure_erases_a_file_that_another_process_has_open_when_it_leaves(where: Path) -> None:
    """Not earlier, or its reader would find zeros; not never."""

    def work(pipe: Connection) -> None:
        pipe.recv()
        engine = LmdbEngine(where)
        with engine.begin(write=False) as transaction:
            pipe.send("reading")
            pipe.recv()
            assert transaction.get(b"secret") == b"marker" * 500
        assert b"secret" not in read_all(engine)
        pipe.send("left")
        pipe.recv()

    make_store(where)
    child = Child(work)  # before the store is open here
    engine = LmdbEngine(where)
    fill(engine, {b"secret": b"marker" * 500})
    child.pipe.send("begin")
    assert "reading" == child.receive()
    with engine.begin(write=True) as transaction:
        transaction.delete(b"secret")
    with (where / "000001" / "data.mdb").open("rb") as old:
        with pytest.warns(UserWarning, match="still in use"):
            engine.vacuum(secure=True)
        child.pipe.send("go on")
        assert "left" == child.receive()
        assert [2] == generations.list_numbers(where)
        assert not any(old.read())
    child.kill()
    engine.close()


# Killed


STEPS = {
    os: "open fsync mkdir replace close unlink rmdir write truncate".split(),
    fcntl: ["flock"],
    UnfinishedGeneration: ["append", "apply", "sync"],
    LmdbTransaction: ["_commit"],
}


def kill_at(step: int) -> Callable[[], int]:
    """Have this process killed before the step of that number; return the count so far."""
    calls = 0

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **named)

        return called

    for owner, names in STEPS.items():
        for name in names:
            setattr(owner, name, wrap(getattr(owner, name)))
    return lambda: calls


@pytest.mark.parametrize("secure", [False, True])
def test_a_vacuum_killed_at_any_step_leaves_every_pair(where: Path, secure: bool) -> None:
    """Also what is written in the middle of it; and the next process cleans up."""
    model = {b"%03d" % number: b"v" * 2_000 for number in range(60)}
    engine = LmdbEngine(where)
    fill(engine, model)
    engine.close()
    outcomes = set()
    for step in range(1 + secure, 200, 3):

        def work(pipe: Connection, step: int = step) -> None:
            engine = LmdbEngine(where)
            engine.stat()
            kill_at(step)

            def progress(_done: int, _total: int) -> None:
                pair = (b"%03d" % (step % 70), b"%d" % step)
                fill(engine, dict([pair]))
                pipe.send(pair)

            engine.vacuum(secure=secure, progress=progress)

        child = Child(work)
        status = child.wait()
        model.update(receive_all(child.pipe))
        _, state = look(where)
        outcomes.add((state or b"-")[:1])
        found = read_back(where)
        # The write in the middle may be done and not acknowledged.
        pair = (b"%03d" % (step % 70), b"%d" % step)
        assert found in (model, model | dict([pair])), step
        model = found
        check_clean(where, model)
        if status == 0:
            break
        assert -signal.SIGKILL == status
    assert 30 < step < 199
    assert {b"-", b"A", b"S"} <= outcomes, outcomes


def receive_all(pipe: Connection) -> dict[bytes, bytes]:
    """Return what a child that has ended had acknowledged."""
    found = []
    with suppress(EOFError):
        while pipe.poll():
            found.append(pipe.recv())
    return dict(found)


def read_back(where: Path) -> dict[bytes, bytes]:
    """Open as the next process does, write, and return what is there; two writes clean up."""
    engine = LmdbEngine(where)
    found = read_all(engine)
    for _ in range(2):
        with engine.begin(write=True) as transaction:
            transaction.put(b"000", found[b"000"])
    assert found == read_all(engine)
    engine.close()
    return found


def test_the_living_go_on_beside_a_vacuum_that_was_killed(where: Path) -> None:
    """They keep no journal for the dead, lose nothing, and may vacuum themselves."""

    def work(pipe: Connection) -> None:
        engine = LmdbEngine(where)
        engine.stat()
        pipe.recv()

        def progress(_done: int, _total: int) -> None:
            pipe.send("in the middle")
            pipe.recv()

        engine.vacuum(progress=progress)

    make_store(where)
    child = Child(work)
    engine = LmdbEngine(where)
    child.pipe.send("begin")
    assert "in the middle" == child.receive()
    with pytest.raises(EngineError, match="running already"):
        engine.vacuum()
    fill(engine, {b"a": b"1"})
    child.kill()
    fill(engine, {b"b": b"2"})
    assert PAIRS | {b"a": b"1", b"b": b"2"} == read_all(engine)
    assert [1, 2] == generations.list_numbers(where)
    assert 2 == engine.vacuum().generation
    engine.close()
    check_clean(where, PAIRS | {b"a": b"1", b"b": b"2"})


def test_a_switch_that_was_killed_is_completed_by_whoever_comes(where: Path) -> None:
    """Between the commit that supersedes and CURRENT nobody may write to either alone."""

    def work(pipe: Connection) -> None:
        engine = LmdbEngine(where)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(generations, "name_successor", kill)
            engine.vacuum()

    def kill(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    make_store(where)
    assert -signal.SIGKILL == Child(work).wait()
    assert (1, b"S\x00\x00\x00\x02") == look(where)
    reader = LmdbEngine(where, read_only=True)
    assert PAIRS == read_all(reader)
    reader.close()
    assert 1 == look(where)[0]  # a reader writes nothing
    engine = LmdbEngine(where)
    fill(engine, {b"a": b"1"})
    engine.close()
    assert (2, None) == look(where)
    check_clean(where, PAIRS | {b"a": b"1"})


# Forked


def test_a_child_forked_in_mid_vacuum_does_not_keep_its_lock(where: Path) -> None:
    """Else writers would keep a journal as long as the child of a dead process lives."""

    def vacuum(pipe: Connection) -> None:
        engine = LmdbEngine(where)

        def progress(_done: int, _total: int) -> None:
            grandchild = Child(lambda _: signal.pause())
            pipe.send(grandchild.pid)
            pipe.recv()

        engine.vacuum(progress=progress)

    make_store(where)
    child = Child(vacuum)
    grandchild = child.receive()
    try:
        assert generations.is_vacuuming(where)
        child.kill()
        assert not generations.is_vacuuming(where)
    finally:
        os.kill(grandchild, signal.SIGKILL)


# Room


def test_no_room_leaves_the_old_file_in_use(where: Path) -> None:
    """A full disk is when people vacuum; the attempt must not make things worse."""

    def work() -> None:
        engine = LmdbEngine(where)
        fill(engine, PAIRS)
        size = engine.stat().file_bytes
        for most in (0, 4_096, 100_000, size // 2 + 100):
            with (
                soft_limit(resource.RLIMIT_FSIZE, most),
                pytest.raises((StoreFullError, RetryTransactionError)),
            ):
                engine.vacuum()
            assert PAIRS == read_all(engine)
            assert [1] == generations.list_numbers(where)
            fill(engine, {b"00000": PAIRS[b"00000"]})
            assert len(PAIRS) == engine.stat().entries
        assert 2 == engine.vacuum().generation
        engine.close()

    assert 0 == run_child(work)
    check_clean(where, PAIRS)
