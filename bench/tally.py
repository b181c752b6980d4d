"""Count the bytes a saver hands to its engine and gets back, in whichever way the engine allows.

A *tally* is what one opening of a saver handed over and fetched. It is counted between the saver
and its engine, by code the engine's own interface provides for: a wrapped engine (deltastore), a
connection and a row factory (SQLite), a cursor (PostgreSQL), a wrapped environment (LMDB). Keys,
values and parameters are counted by their lengths; SQL text, numbers and page headers are not.

Changes nothing that passes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from deltastore.engine.api import Engine, Pair, Transaction
from deltastore.engine.counting import CountingEngine


@dataclass(slots=True)
class Tally:
    """Bytes that passed between a saver and its engine.

    Attributes:
        handed: Bytes of keys and values, or of parameters, given to be stored.
        fetched: Bytes of keys and values, or of columns, that reads returned.
        counted: Whether anything counts here; False for a saver that nothing is known about.
    """

    handed: int = 0
    fetched: int = 0
    counted: bool = True


def size_of(value: Any) -> int:
    """Return the bytes of one parameter or column; numbers and None count 0."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return len(value)
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, (list, tuple)):
        return sum(map(size_of, value))
    if isinstance(value, dict):
        return len(json.dumps(value, default=str))
    wrapped = getattr(value, "obj", None)  # psycopg's Jsonb
    return len(json.dumps(wrapped, default=str)) if wrapped is not None else 0


class TallyingEngine(CountingEngine):
    """A counting engine of deltastore that also counts the bytes of reads."""

    def __init__(self, inner: Engine, tally: Tally) -> None:
        super().__init__(inner)
        self._tally = tally

    def _add(self, **more: int) -> None:
        super()._add(**more)
        self._tally.handed += more.get("put_bytes", 0)

    def begin(self, *, write: bool, scope: bytes = b"") -> AbstractContextManager[Transaction]:
        """Begin a transaction whose reads are counted."""
        return self._reading(super().begin(write=write, scope=scope))

    @contextmanager
    def _reading(self, begun: AbstractContextManager[Transaction]) -> Iterator[Transaction]:
        with begun as transaction:
            yield _TallyingTransaction(transaction, self._tally)  # type: ignore[misc]


class _TallyingTransaction:
    def __init__(self, inner: Transaction, tally: Tally) -> None:
        self._inner = inner
        self._tally = tally

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get(self, key: bytes) -> bytes | None:
        found = self._inner.get(key)
        self._tally.fetched += len(found or b"")
        return found

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found = self._inner.get_many(keys)
        self._tally.fetched += sum(len(one or b"") for one in found)
        return found

    def scan(
        self, start: bytes, stop: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[Pair]:
        pairs = self._inner.scan(start, stop, reverse=reverse, limit=limit)
        self._tally.fetched += sum(len(key) + len(value) for key, value in pairs)
        return pairs

    def scan_keys(
        self, start: bytes, stop: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[bytes]:
        keys = self._inner.scan_keys(start, stop, reverse=reverse, limit=limit)
        self._tally.fetched += sum(map(len, keys))
        return keys


def sqlite_factory(tally: Tally) -> type[sqlite3.Connection]:
    """Return a connection class to give to `sqlite3.connect` as `factory`."""

    class Cursor(sqlite3.Cursor):
        def execute(self, sql: str, parameters: Any = ()) -> Any:
            if _stores(sql):
                tally.handed += size_of(tuple(parameters))
            return super().execute(sql, parameters)

        def executemany(self, sql: str, parameters: Any) -> Any:
            rows = list(parameters)
            if _stores(sql):
                tally.handed += size_of(rows)
            return super().executemany(sql, rows)

    class Connection(sqlite3.Connection):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.row_factory = partial(_counted_row, tally)

        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

        def execute(self, *args: Any) -> Any:  # of aiosqlite
            return self.cursor().execute(*args)

        def executemany(self, *args: Any) -> Any:  # of aiosqlite
            return self.cursor().executemany(*args)

    return Connection


def _counted_row(tally: Tally, _cursor: Any, row: tuple[Any, ...]) -> tuple[Any, ...]:
    tally.fetched += size_of(row)
    return row


def _stores(statement: Any) -> bool:
    text = statement if isinstance(statement, str) else str(statement)
    return text.lstrip()[:7].upper() in ("INSERT ", "REPLACE", "UPDATE ")


class _CountingRows:
    """What the two PostgreSQL cursors have in common."""

    tally: Tally

    def note(self, statement: Any, rows: Iterable[Any]) -> None:
        if _stores(statement):
            self.tally.handed += sum(size_of(list(_values(row))) for row in rows)

    def fetched(self, row: Any) -> Any:
        if row is not None:
            self.tally.fetched += size_of(list(_values(row)))
        return row


def postgres_cursor(base: type[Any], counted: Tally) -> type[Any]:
    """Return a cursor class to give to a psycopg connection, `base` being psycopg's own."""

    class Cursor(_CountingRows, base):  # type: ignore[misc]
        tally = counted

        def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
            self.note(query, [params or ()])
            return super().execute(query, params, **options)

        def executemany(self, query: Any, params_seq: Any, **options: Any) -> Any:
            rows = list(params_seq)
            self.note(query, rows)
            return super().executemany(query, rows, **options)

        def fetchone(self) -> Any:
            return self.fetched(super().fetchone())

        def fetchall(self) -> Any:
            return [self.fetched(row) for row in super().fetchall()]

        def __iter__(self) -> Any:
            return (self.fetched(row) for row in super().__iter__())

    return Cursor


def postgres_async_cursor(base: type[Any], counted: Tally) -> type[Any]:
    """As `postgres_cursor`, for psycopg's async cursor."""

    class AsyncCursor(_CountingRows, base):  # type: ignore[misc]
        tally = counted

        async def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
            self.note(query, [params or ()])
            return await super().execute(query, params, **options)

        async def executemany(self, query: Any, params_seq: Any, **options: Any) -> Any:
            rows = list(params_seq)
            self.note(query, rows)
            return await super().executemany(query, rows, **options)

        async def fetchone(self) -> Any:
            return self.fetched(await super().fetchone())

        async def fetchall(self) -> Any:
            return [self.fetched(row) for row in await super().fetchall()]

        async def __aiter__(self) -> Any:
            async for row in super().__aiter__():
                yield self.fetched(row)

    return AsyncCursor


def _values(row: Any) -> Iterable[Any]:
    return row.values() if isinstance(row, dict) else row


class TallyingEnvironment:
    """An LMDB environment whose transactions count what is put and read."""

    def __init__(self, inner: Any, tally: Tally) -> None:
        self._inner = inner
        self._tally = tally

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @contextmanager
    def begin(self, *args: Any, **options: Any) -> Iterator[Any]:
        """Begin a transaction, to be used in a `with`."""
        with self._inner.begin(*args, **options) as transaction:
            yield _LmdbTransaction(transaction, self._tally)


class _LmdbTransaction:
    def __init__(self, inner: Any, tally: Tally) -> None:
        self._inner = inner
        self._tally = tally

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put(self, key: bytes, value: bytes, **options: Any) -> Any:
        self._tally.handed += len(key) + len(value)
        return self._inner.put(key, value, **options)

    def get(self, key: bytes, *args: Any, **options: Any) -> Any:
        found = self._inner.get(key, *args, **options)
        self._tally.fetched += len(found or b"")
        return found

    def cursor(self, *args: Any, **options: Any) -> Any:
        return _LmdbCursor(self._inner.cursor(*args, **options), self._tally)


class _LmdbCursor:
    def __init__(self, inner: Any, tally: Tally) -> None:
        self._inner = inner
        self._tally = tally

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> _LmdbCursor:
        self._inner.__enter__()
        return self

    def __exit__(self, *exc: Any) -> Any:
        return self._inner.__exit__(*exc)

    def __iter__(self) -> Iterator[Any]:
        return (self._counted(pair) for pair in self._inner)

    def _counted(self, found: Any) -> Any:
        self._tally.fetched += size_of(found)
        return found

    def item(self) -> Any:
        return self._counted(self._inner.item())

    def value(self) -> Any:
        return self._counted(self._inner.value())

    def key(self) -> Any:
        return self._counted(self._inner.key())
