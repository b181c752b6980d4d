"""The few calls on an engine that every test of one makes, whole transactions each.

Waits are bounded by `SECONDS_MAX`, so that an engine that hangs fails its test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from deltastore.engine.api import Engine
from deltastore.errors import StoreClosedError

SECONDS_MAX: Final = 20
TOP: Final = b"\xff" * 8


class BlockError(Exception):
    """What the block of a transaction raises in tests, to undo it."""


def fill(engine: Engine, pairs: dict[bytes, bytes]) -> None:
    """Store pairs in one transaction."""
    with engine.begin(write=True) as transaction:
        for key, value in pairs.items():
            transaction.put(key, value)


def read_all(engine: Engine) -> dict[bytes, bytes]:
    """Return everything an engine holds below the key of eight bytes FF."""
    with engine.begin(write=False) as transaction:
        return dict(transaction.scan(b"", TOP))


def in_thread(work: Callable[[], Any]) -> Any:
    """Run `work` in a thread of its own and return its result; a hang is an error."""
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done.result(SECONDS_MAX)


def is_refused(engine: Engine) -> bool:
    """Return whether an engine is closed."""
    try:
        engine.check()
    except StoreClosedError:
        return True
    return False
