"""Outcomes of calls on their way from the committing thread to an event loop.

All that were committed at once wake the loop once: to wake it takes a system call, and lets the
loop take the interpreter from the thread that still has others to tell.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any


class Mailbox:
    """Outcomes for the futures of one loop; any thread may put, the loop delivers.

    Holds no loop, so that one may hold it by a weak reference to the loop.
    """

    def __init__(self) -> None:
        self._outcomes: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._is_woken = False

    def put(
        self, future: asyncio.Future[Any], result: Any, error: BaseException | None
    ) -> Callable[[], None]:
        """Take an outcome; return what wakes the loop to it, the same function each time."""
        self._outcomes.append((future, result, error))
        return self._wake

    def _wake(self) -> None:
        if self._is_woken:
            return  # it begins with what is there when it comes to it
        self._is_woken = True
        try:
            self._outcomes[0][0].get_loop().call_soon_threadsafe(self._deliver)
        except IndexError:
            self._is_woken = False  # it came by itself meanwhile
        except RuntimeError:
            self._is_woken = False
            self._outcomes.clear()  # the loop was closed: nobody waits

    def _deliver(self) -> None:
        self._is_woken = False
        while self._outcomes:
            future, result, error = self._outcomes.popleft()
            if future.done():  # cancelled meanwhile: the write is done all the same
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
