"""Kinds of savers on PostgreSQL, each on a throw-away server of its own (`bench.server`).

Sizes are those of the tables the saver made, indexes and TOAST included: the server's catalogue,
30 MB in every cluster, and its log are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from bench.kinds import Opened, Place, SaverUnavailableError, wanted
from bench.server import Server
from bench.tally import Tally, postgres_async_cursor, postgres_cursor


@contextmanager
def open_deltastore_postgres(place: Place) -> Iterator[Opened]:
    """Open deltastore on PostgreSQL."""
    from deltastore import DeltaStoreError, DeltaStoreSaver

    assert place.server is not None
    try:
        saver = DeltaStoreSaver.from_conn_string(place.server.url)
    except DeltaStoreError as error:
        raise SaverUnavailableError(f"not available: {error}") from error
    with saver:
        yield Opened(saver, Tally(counted=False))


@contextmanager
def open_postgres(place: Place) -> Iterator[Opened]:
    """Open `PostgresSaver` on one connection, as `from_conn_string` does."""
    with wanted("langgraph-checkpoint-postgres"):
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg import Connection, Cursor
        from psycopg.rows import dict_row

    assert place.server is not None
    tally = Tally(counted=place.counted)
    with Connection.connect(
        place.server.dsn,
        autocommit=True,
        prepare_threshold=0,
        row_factory=dict_row,  # type: ignore[arg-type]
        cursor_factory=postgres_cursor(Cursor, tally) if tally.counted else Cursor,
    ) as connection:
        saver = PostgresSaver(connection)  # type: ignore[arg-type]
        saver.setup()
        yield Opened(saver, tally)


class open_postgres_async:  # noqa: N801 - used as the functions beside it are
    """Open `AsyncPostgresSaver` on one connection, as `from_conn_string` does."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def __aenter__(self) -> Opened:
        """Connect and set up."""
        with wanted("langgraph-checkpoint-postgres"):
            from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
            from psycopg import AsyncConnection, AsyncCursor
            from psycopg.rows import dict_row

        assert self._place.server is not None
        tally = Tally(counted=self._place.counted)
        self._connection = await AsyncConnection.connect(
            self._place.server.dsn,
            autocommit=True,
            prepare_threshold=0,
            row_factory=dict_row,  # type: ignore[arg-type]
            cursor_factory=(
                postgres_async_cursor(AsyncCursor, tally) if tally.counted else AsyncCursor
            ),
        )
        saver = AsyncPostgresSaver(self._connection)  # type: ignore[arg-type]
        await saver.setup()
        return Opened(saver, tally)

    async def __aexit__(self, *exc: object) -> None:
        """Close."""
        await self._connection.close()


_POSTGRES_TABLES: Final = """
    SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'public' AND c.relkind = 'r'
"""


def _answer(server: Server, statement: str) -> Any:
    import psycopg

    with psycopg.connect(server.dsn, autocommit=True) as connection:
        row = connection.execute(statement).fetchone()  # type: ignore[call-overload]
        return row[0] if row else None


def postgres_size(place: Place) -> int:
    """Return the bytes of all tables, their indexes and TOAST."""
    assert place.server is not None
    return int(_answer(place.server, _POSTGRES_TABLES))


def postgres_wal_position(server: Server) -> int:
    """Return how many bytes of write-ahead log the server has written in its life."""
    return int(_answer(server, "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))


def postgres_checkpoint(server: Server) -> None:
    """Have the server write all changed pages, which it would do some minutes later."""
    import psycopg

    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CHECKPOINT")


def vacuum_postgres(place: Place) -> None:
    """Rewrite every table, so that no dead row is left."""
    import psycopg

    assert place.server is not None
    with psycopg.connect(place.server.dsn, autocommit=True) as connection:
        connection.execute("VACUUM FULL")


def postgres_records(place: Place) -> int:
    """Return the bytes of all live rows, as stored."""
    assert place.server is not None
    total = 0
    for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
        found = _answer(place.server, f"SELECT sum(pg_column_size(t.*)) FROM {table} t")
        total += int(found or 0)
    return total
