"""Kinds of savers that live in this process: deltastore, and those LangGraph comes with.

Each is opened as its documentation says, with the durability it comes with. Imports stay inside
the functions: a missing package must not keep the others from running.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bench.breakdown import scan_store
from bench.kinds import Opened, Place, wanted
from bench.tally import Tally, TallyingEngine, sqlite_factory


@contextmanager
def open_deltastore(durability: str, place: Place) -> Iterator[Opened]:
    """Open deltastore with one of its durability modes and defaults else."""
    from deltastore import DeltaStoreSaver, Store
    from deltastore.options import StoreOptions

    options = StoreOptions(durability=durability)  # type: ignore[arg-type]
    store, tally = Store.open(place.directory, options), Tally(counted=place.counted)
    if place.counted:
        store = Store(TallyingEngine(store._session.engine, tally), options)
    with DeltaStoreSaver.on_store(store) as saver:
        yield Opened(saver, tally)


def vacuum_deltastore(place: Place) -> None:
    """Rewrite the store's file in order."""
    from deltastore import DeltaStoreSaver

    with DeltaStoreSaver(place.directory) as saver:
        saver.store.vacuum()


def deltastore_records(place: Place) -> int:
    """Return the bytes of all keys and records."""
    kinds = scan_store(place.directory).kinds.values()
    return sum(kind.key_bytes + kind.record_bytes for kind in kinds)


@contextmanager
def open_memory(_place: Place) -> Iterator[Opened]:
    """Open `InMemorySaver`; the directory stays empty."""
    from langgraph.checkpoint.memory import InMemorySaver

    yield Opened(InMemorySaver(), Tally(counted=False))


@contextmanager
def open_sqlite(place: Place) -> Iterator[Opened]:
    """Open `SqliteSaver` with its defaults: write-ahead log, full synchronisation."""
    with wanted("langgraph-checkpoint-sqlite"):
        from langgraph.checkpoint.sqlite import SqliteSaver
    tally = Tally(counted=place.counted)
    connection = sqlite3.connect(  # as SqliteSaver.from_conn_string does
        _sqlite_file(place), check_same_thread=False, factory=_sqlite_factory(tally)
    )
    with closing(connection):
        yield Opened(SqliteSaver(connection), tally)
    _fold_sqlite_log(place)


class open_sqlite_async:  # noqa: N801 - used as the functions beside it are
    """Open `AsyncSqliteSaver` with its defaults."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def __aenter__(self) -> Opened:
        """Connect."""
        with wanted("langgraph-checkpoint-sqlite"):
            import aiosqlite
            from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
        tally = Tally(counted=self._place.counted)
        self._connection = await aiosqlite.connect(
            str(_sqlite_file(self._place)), factory=_sqlite_factory(tally)
        )
        return Opened(AsyncSqliteSaver(self._connection), tally)

    async def __aexit__(self, *exc: object) -> None:
        """Close."""
        await self._connection.close()
        _fold_sqlite_log(self._place)


def _sqlite_factory(tally: Tally) -> type[sqlite3.Connection]:
    return sqlite_factory(tally) if tally.counted else sqlite3.Connection


def _sqlite_file(place: Place) -> Path:
    return place.directory / "checkpoints.sqlite"


def _fold_sqlite_log(place: Place) -> None:
    """Bring the write-ahead log into the file, where its bytes belong before sizes are read."""
    with closing(sqlite3.connect(_sqlite_file(place))) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def vacuum_sqlite(place: Place) -> None:
    """Rewrite the database file."""
    with closing(sqlite3.connect(_sqlite_file(place))) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def sqlite_records(place: Place) -> int:
    """Return the bytes of all columns of all rows; numbers count as their text."""
    total = 0
    with closing(sqlite3.connect(_sqlite_file(place))) as connection:
        for table in ("checkpoints", "writes"):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            lengths = "+".join(f"ifnull(length(CAST({column} AS BLOB)), 0)" for column in columns)
            (found,) = connection.execute(f"SELECT sum({lengths}) FROM {table}").fetchone()
            total += found or 0
    return total
