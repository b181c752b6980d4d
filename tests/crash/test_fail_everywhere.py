"""Every public operation with its engine failing at every call, on both engines.

Puts, writes and deletions have laws of their own in test_fail_at_n.py, pruning, copying and
deleting runs in test_maintenance.py; here are all the others: what reads, leases, compaction and
retention, vacuum and backup. The last test says that no public operation is in none of the three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from deltastore import DeltaStoreSaver, SnapshotBounds
from deltastore.engine.api import Engine
from deltastore.engine.lmdb import LmdbEngine
from deltastore.engine.memory import MemoryEngine
from deltastore.errors import LeaseLostError, StorePathError
from deltastore.options import RetentionPolicy, StoreOptions
from deltastore.store import Store
from deltastore.testing import make_config, tuple_shape
from deltastore.testing.faults import FailingEngine
from deltastore.testing.retention_calls import (
    REDUCERS,
    Keeper,
    Reading,
    Thread,
    minute_id,
    read_all,
)

CALLS_MAX = 5_000
OPTIONS = StoreOptions(bounds=SnapshotBounds(updates=4))
TIGHT = SnapshotBounds(updates=2, supersteps=2)
TTL = timedelta(minutes=5)
Operation = Callable[[DeltaStoreSaver], Any]
Seen = dict[str, dict[Any, Reading]]

HEAD = make_config("t")
EARLIER = make_config("t", "", minute_id(3))


def filled(engine: Engine) -> None:
    """Store three threads, a fork, a subgraph, an anchor, a lease."""
    saver = saver_on(engine)
    keeper = Keeper(lambda: saver)
    thread = Thread(keeper)
    text = ["set once " * 40]
    thread.superstep(1, doc=text, run="a")
    thread.superstep(2, 1, log=["two"], run="a")
    thread.superstep(3, 2, log=["three"], run="b")
    thread.superstep(4, 3, log=["four"], doc=[*text, "four " * 60], run="b")
    thread.superstep(5, 4, log=["five"], snapshot=["all of it"], run="a")
    thread.superstep(6, 4, log=["six"], run="b")
    thread.task(6, ["pending"], "task", run="b")
    Thread(keeper, "t", "sub").steps([1.5, 4.5], run="b")
    Thread(keeper, "other").steps([1, 2, 3, 4, 5, 6, 7, 8], run="b")
    Thread(keeper, "pruned").steps([1, 2, 3], run="b")
    keeper.prune(["pruned"])
    saver.claim("t", "anna", TTL)


def saver_on(engine: Engine) -> DeltaStoreSaver:
    return DeltaStoreSaver.on_store(Store(engine, OPTIONS), reducers=REDUCERS)


def lease_of_anna(saver: DeltaStoreSaver) -> Any:
    """Return the lease that is there; claiming again renews it, under the same token."""
    return saver.claim("t", "anna", TTL)


def release(saver: DeltaStoreSaver) -> None:
    saver.release(saver.claim("fresh", "bert", TTL))


READS: dict[str, Operation] = {
    "get": lambda saver: tuple_shape(saver.get_tuple(HEAD)),
    "get an earlier one": lambda saver: tuple_shape(saver.get_tuple(EARLIER)),
    "get what is absent": lambda saver: saver.get_tuple(make_config("absent")),
    "list": lambda saver: [tuple_shape(one) for one in saver.list(HEAD)],
    "list all": lambda saver: [tuple_shape(one) for one in saver.list(None)],
    "list some": lambda saver: [
        tuple_shape(one) for one in saver.list(HEAD, filter={"step": 3}, before=HEAD, limit=2)
    ],
    "history": lambda saver: saver.get_delta_channel_history(
        config=EARLIER, channels=["log", "doc"]
    ),
    "get without a serializer": lambda saver: saver.store.get("t", "", None, None),
    "get_chain": lambda saver: [
        one.header for one in saver.store.get_chain("t", "", None, None, count=8)
    ],
    "threads": lambda saver: saver.store.threads(limit=2),
    "checkpoints": lambda saver: list(saver.store.checkpoints("t")),
    "thread_bytes": lambda saver: saver.store.thread_bytes("t"),
    "thread_stats": lambda saver: saver.store.thread_stats("t"),
    "stats": lambda saver: saver.store.stats().threads_given,
    "verify": lambda saver: saver.store.verify(),
    "plan a prune": lambda saver: saver.prune(["t"], keep_last=1, dry_run=True),
    "plan a deletion of runs": lambda saver: saver.delete_for_runs(["b"], dry_run=True),
    "plan a compaction": lambda saver: saver.compact(None, TIGHT, dry_run=True),
    "plan a retention": lambda saver: saver.apply_retention(
        RetentionPolicy(keep_last=1), dry_run=True
    ),
}
CHANGES: dict[str, Operation] = {
    "claim": lambda saver: saver.claim("fresh", "bert", TTL),
    "renew": lambda saver: saver.renew(lease_of_anna(saver)),
    "release": release,
    "compact": lambda saver: saver.compact(None, TIGHT),
    "compact one": lambda saver: saver.compact("other", TIGHT),
    "apply_retention": lambda saver: saver.apply_retention(RetentionPolicy(keep_last=1)),
}


class Stores:
    """Makes copies of one store: in memory, or of its files."""

    def __init__(self, where: Path | None) -> None:
        self.where = where
        self._numbers = count()
        source = MemoryEngine()
        filled(source)
        with source.begin(write=False) as txn:
            self._pairs = list(txn.scan(b"\x00", b"\xff"))

    def fresh(self) -> Engine:
        twin: Engine = MemoryEngine()
        if self.where is not None:
            twin = LmdbEngine(self.where / str(next(self._numbers)), durability="normal")
        with twin.begin(write=True) as txn:
            for key, value in self._pairs:
                txn.put(key, value)
        return twin

    def failures(self, operation: Operation) -> Iterator[tuple[Engine, DeltaStoreSaver]]:
        """Run an operation until no call of it fails, on a copy each time; yield what is left.

        Yields:
            The engine below the failing one, and the saver whose call failed.
        """
        for fail_at in range(1, CALLS_MAX):
            engine = self.fresh()
            failing = FailingEngine(engine, fail_at)
            saver = saver_on(failing)
            if not failing.fails(partial(operation, saver)):
                assert fail_at > 3, "an operation that asks the engine for next to nothing"
                engine.close()
                return
            yield engine, saver
            assert [] == Store(engine).verify().damage
            engine.close()
        raise AssertionError


def seen(engine: Engine) -> Seen:
    """Return all that is told of every thread, through a store that has cached nothing."""
    saver = saver_on(engine)
    keeper = Keeper(lambda: saver)
    names = [one.thread_id for one in saver.store.threads().threads]
    return {name: read_all(keeper, name) for name in names}


@pytest.fixture(params=["memory", "lmdb"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    return Stores(tmp_path if request.param == "lmdb" else None)


@pytest.mark.parametrize("name", READS)
def test_a_failed_read_is_told_and_leaves_nothing_wrong_in_the_caches(
    name: str, stores: Stores
) -> None:
    """Half an answer kept for later would be a silent loss."""
    operation = READS[name]
    engine = stores.fresh()
    expected = operation(saver_on(engine))
    everything = seen(engine)
    for left, saver in stores.failures(operation):
        assert expected == operation(saver)
        assert everything == seen(left)


@pytest.mark.parametrize("name", CHANGES)
def test_a_failed_change_harms_no_checkpoint_and_can_be_repeated(name: str, stores: Stores) -> None:
    """What it has not reached reads as before, what it has as after, and both rebuild the same."""
    operation = CHANGES[name]
    engine = stores.fresh()
    before = seen(engine)
    operation(saver_on(engine))
    after = seen(engine)
    for left, saver in stores.failures(operation):
        for thread, readings in seen(left).items():
            for place, reading in readings.items():
                assert before[thread][place].rebuilt == reading.rebuilt
            assert after[thread].keys() <= readings.keys()
        operation(saver)
        assert after == seen(left)


@pytest.mark.parametrize("secure", [False, True])
def test_a_failed_vacuum_changes_nothing_and_can_be_repeated(secure: bool, tmp_path: Path) -> None:
    """It is one call of the engine, and some before it."""
    stores = Stores(tmp_path)
    before = seen(stores.fresh())

    def vacuum(saver: DeltaStoreSaver) -> Any:
        return saver.vacuum(secure=secure)

    for left, saver in stores.failures(vacuum):
        assert before == seen(left)
        vacuum(saver)
        assert before == seen(left)


def test_a_failed_backup_leaves_no_store_that_is_less(tmp_path: Path) -> None:
    """Whoever restores finds all of it or no store at all."""
    (tmp_path / "stores").mkdir()
    stores = Stores(tmp_path / "stores")
    before = seen(stores.fresh())
    numbers = count()
    targets: list[Path] = []

    def backup(saver: DeltaStoreSaver) -> Any:
        targets.append(tmp_path / f"backup {next(numbers)}")
        return saver.backup(targets[-1])

    for left, saver in stores.failures(backup):
        with suppress(StorePathError):
            Store.open(targets[-1], StoreOptions(read_only=True)).close()
            raise AssertionError("a backup that failed can be opened")
        backup(saver)
        kept = LmdbEngine(targets[-1])
        assert before == seen(kept) == seen(left)
        kept.close()


def test_a_release_that_failed_can_be_repeated(stores: Stores) -> None:
    """It ends the lease once; whoever repeats it learns that it ended."""
    lease = lease_of_anna(saver_on(stores.fresh()))
    for _, saver in stores.failures(lambda saver: saver.release(lease)):
        with suppress(LeaseLostError):
            saver.release(lease)
        assert "bert" == saver.claim("t", "bert", TTL).owner


class Noting:
    """Passes everything on and notes the names of what was asked for."""

    def __init__(self, inner: Any, names: set[str]) -> None:
        self._inner = inner
        self._names = names

    def __getattr__(self, name: str) -> Any:
        self._names.add(name)
        found = getattr(self._inner, name)
        return Noting(found, self._names) if isinstance(found, Store) else found


ELSEWHERE = {
    "test_fail_at_n.py": "put put_writes delete_thread list history",
    "test_maintenance.py": "prune copy_thread delete_for_runs",
    "here, by tests of their own": "vacuum backup release",
    "the backlog's tests": "submit flush",
    "with every first call": "setup",
}
ASKS_NO_ENGINE = (
    "check close config_specs ephemeral from_conn_string get_next_version is_instant on_store open "
    "serde stat store version with_allowlist"
)


def test_no_public_operation_is_left_out() -> None:
    """Async twins run the same calls; how their errors travel is shown in test_fail_at_n.py."""
    names = {*ASKS_NO_ENGINE.split()}.union(*(some.split() for some in ELSEWHERE.values()))
    engine = MemoryEngine()
    filled(engine)
    for operation in (*READS.values(), *CHANGES.values()):
        operation(Noting(saver_on(engine), names))  # type: ignore[arg-type]  # stands in for it
    public = {
        name for kind in (Store, DeltaStoreSaver) for name in dir(kind) if not name.startswith("_")
    }
    twins = {name for name in public if name[0] == "a" and name[1:] in public}
    assert set() == public - twins - names
