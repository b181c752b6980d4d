"""Open the store a command names, without ever making one in a mistyped path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from deltastore.cli.exits import MissingError
from deltastore.listing import ThreadInfo
from deltastore.options import StoreOptions
from deltastore.store import Store

_PAGE: Final = 10_000


def open_store(path: str, *, write: bool = False) -> Store:
    """Open a store that is there; read-only, beside whoever writes, unless `write`.

    Raises:
        StorePathError: There is none.
    """
    store = Store.open(path, StoreOptions(read_only=True))
    if write:
        store.close()
        store = Store.open(path)
    return store


def require_thread(store: Store, thread_id: str) -> None:
    """Raise `MissingError` if the store holds nothing of a thread; decodes no record."""
    records, _ = store.thread_bytes(thread_id)
    if records == 0:
        raise MissingError(
            f"no thread {thread_id!r} in the store; `deltastore threads` lists those there are"
        )


def scan_threads(store: Store) -> Iterator[ThreadInfo]:
    """Yield every thread, newest activity first; decodes no record."""
    page = store.threads(limit=_PAGE)
    yield from page.threads
    while page.cursor is not None:
        page = store.threads(limit=_PAGE, cursor=page.cursor)
        yield from page.threads


def require_readable(store: Store) -> None:
    """Raise `DecryptionError` if the newest checkpoint of any thread is encrypted.

    For what was not found: encrypted, it would not be found either.
    """
    for one in scan_threads(store):
        next(store.checkpoints(one.thread_id, limit=1), None)
