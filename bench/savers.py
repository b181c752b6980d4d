"""The savers to compare, by name; any other by `import:MODULE:CALLABLE`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Final

from bench import kinds_embedded as embedded
from bench import kinds_lmdb, kinds_postgres
from bench.kinds import Opened, Place, SaverKind, SaverUnavailableError
from bench.tally import Tally
from deltastore.options import DURABILITIES

IMPORT: Final = "import:"


def _deltastore_kinds() -> Iterator[SaverKind]:
    for durability in DURABILITIES:
        suffix = "" if durability == "full" else f"-{durability}"
        for is_async in (False, True):
            yield SaverKind(
                f"deltastore{suffix}{'-async' if is_async else ''}",
                partial(embedded.open_deltastore, durability),
                is_async,
                vacuum=embedded.vacuum_deltastore,
                record_bytes=embedded.deltastore_records,
                note=f"durability {durability}",
            )
    yield SaverKind(
        "deltastore-postgres",
        kinds_postgres.open_deltastore_postgres,
        on_server=True,
        vacuum=kinds_postgres.vacuum_postgres,
        at_rest=kinds_postgres.postgres_size,
        note="durability full, on PostgreSQL",
    )


def _peer_kinds() -> Iterator[SaverKind]:
    yield SaverKind(
        "memory", embedded.open_memory, persistent=False, note="InMemorySaver: stores nothing"
    )
    for name, is_async, opened in (
        ("sqlite", False, embedded.open_sqlite),
        ("sqlite-async", True, embedded.open_sqlite_async),
    ):
        yield SaverKind(
            name,
            opened,
            is_async,
            vacuum=embedded.vacuum_sqlite,
            record_bytes=embedded.sqlite_records,
            note=f"{'Async' * is_async}SqliteSaver: write-ahead log, synchronous=FULL",
        )
    for name, is_async, opened in (
        ("postgres", False, kinds_postgres.open_postgres),
        ("postgres-async", True, kinds_postgres.open_postgres_async),
    ):
        yield SaverKind(
            name,
            opened,
            is_async,
            on_server=True,
            vacuum=kinds_postgres.vacuum_postgres,
            at_rest=kinds_postgres.postgres_size,
            record_bytes=kinds_postgres.postgres_records,
            note=f"{'Async' * is_async}PostgresSaver, one connection: fsync and synchronous_commit "
            "on",
        )
    for name, is_async, opened in (
        ("lmdb", False, partial(kinds_lmdb.open_lmdb_saver, "LMDBSaver")),
        ("lmdb-async", True, kinds_lmdb.open_lmdb_saver_async),
    ):
        yield SaverKind(
            name,
            opened,
            is_async,
            vacuum=kinds_lmdb.vacuum_lmdb,
            record_bytes=kinds_lmdb.lmdb_records,
            note=f"{'Async' * is_async}LMDBSaver of langgraph-checkpoint-lmdb: synced commits",
        )


SAVERS: Mapping[str, SaverKind] = {
    kind.name: kind for kind in (*_deltastore_kinds(), *_peer_kinds())
}


def get_kind(name: str) -> SaverKind:
    """Return the kind of that name, or of `import:MODULE:CALLABLE`.

    Raises:
        SaverUnavailableError: There is none, or it cannot be imported.
    """
    if name.startswith(IMPORT):
        return imported_kind(name)
    if name not in SAVERS:
        raise SaverUnavailableError(
            f"{name!r} is none of {', '.join(SAVERS)} and not import:MODULE:CALLABLE"
        )
    return SAVERS[name]


def imported_kind(spec: str) -> SaverKind:
    """Return a kind for `import:MODULE:CALLABLE`.

    The callable gets the path of a directory and returns a saver, or a context manager of one,
    plain or async; an async one is measured by its `a` methods.
    """
    try:
        _, module, name = spec.split(":")
        make = getattr(importlib.import_module(module), name)
    except (ValueError, ImportError, AttributeError) as error:
        raise SaverUnavailableError(
            f"{spec!r} must be import:MODULE:CALLABLE and importable: {error}"
        ) from error
    # Called once to see what it is; nothing is opened before its block is entered.
    wrapped = inspect.unwrap(make)
    is_async = inspect.isasyncgenfunction(wrapped) or inspect.iscoroutinefunction(wrapped)
    return SaverKind(spec, partial(_open_imported, make, is_async), is_async)


def _open_imported(make: Callable[[str], Any], is_async: bool, place: Place) -> Any:
    if is_async:
        return _ImportedAsync(make(str(place.directory)))
    return _open_imported_sync(make, place)


@contextmanager
def _open_imported_sync(make: Callable[[str], Any], place: Place) -> Iterator[Opened]:
    made = make(str(place.directory))
    with ExitStack() as stack:
        if isinstance(made, AbstractContextManager):
            made = stack.enter_context(made)
        yield Opened(made, Tally(counted=False))


class _ImportedAsync:
    def __init__(self, made: Any) -> None:
        self._made = made

    async def __aenter__(self) -> Opened:
        return Opened(await self._made.__aenter__(), Tally(counted=False))

    async def __aexit__(self, *exc: Any) -> None:
        await self._made.__aexit__(None, None, None)
