"""Kinds of the savers of langgraph-checkpoint-lmdb, on an environment whose map never fills."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.kinds import Opened, Place, wanted
from bench.tally import Tally, TallyingEnvironment

_LMDB_MAP_BYTES: Final = 64 << 30


@contextmanager
def open_lmdb_saver(name: str, place: Place) -> Iterator[Opened]:
    """Open a saver of langgraph-checkpoint-lmdb on an environment with a map that never fills."""
    with wanted("langgraph-checkpoint-lmdb"):
        package = importlib.import_module("langgraph_checkpoint_lmdb")
    import lmdb

    tally = Tally(counted=place.counted)
    with lmdb.open(str(place.directory), map_size=_LMDB_MAP_BYTES, max_dbs=2) as environment:
        given = TallyingEnvironment(environment, tally) if place.counted else environment
        yield Opened(getattr(package, name)(given), tally)


class open_lmdb_saver_async:  # noqa: N801 - used as the functions beside it are
    """Open `AsyncLMDBSaver`, which must be made on an event loop."""

    def __init__(self, place: Place) -> None:
        self._opening = open_lmdb_saver("AsyncLMDBSaver", place)

    async def __aenter__(self) -> Opened:
        """Open the environment."""
        return self._opening.__enter__()

    async def __aexit__(self, *exc: object) -> None:
        """Close it."""
        self._opening.__exit__(None, None, None)


def vacuum_lmdb(place: Place) -> None:
    """Copy the environment without its free pages, and put the copy in its place."""
    import lmdb

    compact = place.directory / "compact"
    compact.mkdir()
    with lmdb.open(str(place.directory), map_size=_LMDB_MAP_BYTES, max_dbs=2) as environment:
        environment.copy(str(compact), compact=True)
    (compact / "data.mdb").replace(place.directory / "data.mdb")
    for file in compact.iterdir():
        file.unlink()
    compact.rmdir()


def lmdb_records(place: Place) -> int:
    """Return the bytes of all keys and values."""
    import lmdb

    total = 0
    with lmdb.open(str(place.directory), map_size=_LMDB_MAP_BYTES, max_dbs=2) as environment:
        for name in (b"checkpoints", b"writes"):
            database = environment.open_db(name)
            with environment.begin(db=database) as transaction:
                total += sum(len(key) + len(value) for key, value in transaction.cursor())
    return total
