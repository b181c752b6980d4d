"""Share the passes of an event loop out: many calls at once must not keep it from its timers.

A *pass* is what the loop does between two looks at its timers and sockets: it runs whatever is
ready, and what becomes ready meanwhile waits for the next one. All that one commit made durable
become ready at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

CALLS_MAX: Final = 16


class Pace:
    """Lets `CALLS_MAX` calls on one loop go on in a pass, the others in later ones, in order.

    First come, first served. Holds no loop while nobody waits, so that one may hold it by a weak
    reference to the loop.
    """

    def __init__(self) -> None:
        self._left = CALLS_MAX
        self._is_ending = False  # whether the end of this pass will be noticed
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Return when the calling task may go on. One cancelled while it waits uses up no turn."""
        if not self._is_ending:
            self._is_ending = True
            loop.call_soon(self._end_pass, loop)
        if self._left:
            self._left -= 1
            return
        future = loop.create_future()
        self._waiting.append(future)
        await future

    def _end_pass(self, loop: asyncio.AbstractEventLoop) -> None:
        self._left = CALLS_MAX
        while self._left and self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                self._left -= 1
        self._is_ending = self._left < CALLS_MAX
        if self._is_ending:
            loop.call_soon(self._end_pass, loop)
