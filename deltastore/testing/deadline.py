"""Run work that may hang, so that whoever waits for it does not.

An *attempt* is one piece of work on a daemon thread: it can be waited for up to a deadline and be
left behind after it. Threads cannot be ended from outside, so one left behind stays as it is until
the process ends; nothing it holds may be used or closed any more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
GRACE_S: Final = 1.0
"""How long work that was told to stop may take to do so, in seconds."""


class HangError(Exception):
    """Work had not ended at its deadline."""

    def __init__(self, deadline_s: float) -> None:
        super().__init__(f"hangs: no end after {deadline_s:g} s")


class Attempt(Generic[T]):
    """Begins `work` at once on a thread of its own."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._begun = time.monotonic()
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="attempt", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:  # noqa: BLE001 (raised again where the result is asked for)
            self._error = error

    def ended(self, deadline_s: float) -> bool:
        """Wait until the work ends, up to `deadline_s` seconds after it began; return if it did."""
        self._thread.join(max(0.0, self._begun + deadline_s - time.monotonic()))
        return not self._thread.is_alive()

    def result(self) -> T:
        """Wait for the end, however long; return what the work returned or raise what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._results[0]
