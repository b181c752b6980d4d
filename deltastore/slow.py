"""The slow-operation log: one line for each operation that took longer than a caller wants.

Lines go to the logger `deltastore.slow`, at WARNING. They name the operation, its thread, its
duration and sizes, and never a value, metadata, or what an error says: the kind of the error alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from time import perf_counter
from types import TracebackType
from typing import Final

from deltastore.types import Wake

_logger: Final = logging.getLogger("deltastore.slow")
_THREAD_ID_MAX: Final = 200

Done = Callable[[BaseException | None], Wake | None]


class Timer:
    """Times the operation of a `with` block; this one takes no notice."""

    __slots__ = ()

    def note(self, **sizes: int) -> None:
        """Add sizes that are known only now."""

    def __enter__(self) -> Timer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the operation."""


class _Running(Timer):
    __slots__ = ("_begun", "_limit", "_operation", "_sizes", "_thread_id")

    def __init__(
        self, limit: float, operation: str, thread_id: str | None, sizes: dict[str, int]
    ) -> None:
        self._limit = limit
        self._operation = operation
        self._thread_id = thread_id
        self._sizes = sizes
        self._begun = perf_counter()

    def note(self, **sizes: int) -> None:
        self._sizes.update(sizes)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        seconds = perf_counter() - self._begun
        if seconds >= self._limit:
            _tell(self._operation, seconds, self._thread_id, self._sizes, kind)


_UNTIMED: Final = Timer()


def _tell(
    operation: str,
    seconds: float,
    thread_id: str | None,
    sizes: Mapping[str, int],
    failed: type[BaseException] | None,
) -> None:
    parts = [f"{name}={size}" for name, size in sizes.items()]
    if thread_id is not None:
        parts.insert(0, f"thread={thread_id[:_THREAD_ID_MAX]!r}")
    if failed is not None:
        parts.append(f"failed={failed.__name__}")
    _logger.warning("slow %s: %.3f s %s", operation, seconds, " ".join(parts))


class SlowLog:
    """Makes timers.

    Args:
        seconds: Operations that take as long are told; None tells of none, and costs next to
            nothing.

    Attributes:
        is_on: Whether any is told; for callers who count every microsecond.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self.is_on = seconds is not None

    def timed(self, operation: str, thread_id: str | None = None, **sizes: int) -> Timer:
        """Return a timer that runs from now to the end of its `with` block."""
        if self._seconds is None:
            return _UNTIMED
        return _Running(self._seconds, operation, thread_id, sizes)

    def tell(self, operation: str, seconds: float, **sizes: int) -> None:
        """Tell of an operation that the caller timed, if it took long enough."""
        if self._seconds is not None and seconds >= self._seconds:
            _tell(operation, seconds, None, sizes, None)

    def timed_done(self, operation: str, thread_id: str, done: Done, **sizes: int) -> Done:
        """Return a callback that ends an operation begun now, and then does as `done`."""
        if self._seconds is None:
            return done
        timer = _Running(self._seconds, operation, thread_id, sizes)

        def told(error: BaseException | None) -> Wake | None:
            timer.__exit__(None if error is None else type(error), error, None)
            return done(error)

        return told
