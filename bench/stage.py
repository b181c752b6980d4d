"""A saver at work in one process: opened, closed and opened again, called sync or async alike.

What drives a saver is written once, as coroutines. For an async saver they run on an event loop
and call its `a` methods; for any other they are run by `run_to_end`, on no loop, and no `await`
in them ever waits: `Stage.ask` makes the plain call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from time import monotonic
from typing import Any, TypeVar

from bench.kinds import Opened, Place, SaverKind
from bench.tally import Tally
from bench.timed import TimedSaver

T = TypeVar("T")


def run_to_end(work: Coroutine[Any, Any, T], *, is_async: bool) -> T:
    """Run a coroutine and return what it returns: on a new event loop, or on none."""
    if is_async:
        return asyncio.run(work)
    try:
        work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("a call of a sync saver waited for an event loop")


class Stage:
    """One saver in one place.

    Attributes:
        deadline: `time.monotonic()` after which a workload makes no further calls.
        tally: Of all openings together.
        notes: What a workload measured of its own, by name.
    """

    def __init__(self, kind: SaverKind, place: Place, deadline: float) -> None:
        self.kind = kind
        self.place = place
        self.deadline = deadline
        self.tally = Tally()
        self.notes: dict[str, Any] = {}
        self._open = AsyncExitStack()
        self._opened: Opened | None = None

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return monotonic() > self.deadline

    async def open(self) -> None:
        """Open the saver."""
        opening = self.kind.open(self.place)
        if hasattr(opening, "__aenter__"):
            self._opened = await self._open.enter_async_context(opening)
        else:
            self._opened = self._open.enter_context(opening)
        self.saver = TimedSaver(self._opened.saver)

    async def close(self) -> None:
        """Close the saver and add up its tally; twice is no error.

        One that would lose what it holds stays open.
        """
        if not self.kind.persistent:
            return
        await self._open.aclose()
        if self._opened is not None:
            self.tally.handed += self._opened.tally.handed
            self.tally.fetched += self._opened.tally.fetched
            self.tally.counted = self._opened.tally.counted
            self._opened = None

    async def reopen(self) -> None:
        """Close and open; nothing for a saver that would lose what it holds."""
        if self.kind.persistent:
            await self.close()
            await self.open()

    @property
    def fetched(self) -> int:
        """Bytes fetched since the saver was opened."""
        return self._opened.tally.fetched if self._opened is not None else 0

    async def ask(self, whom: Any, name: str, *args: Any, **options: Any) -> Any:
        """Call a method, or its `a` twin."""
        if self.kind.is_async:
            return await getattr(whom, "a" + name)(*args, **options)
        return getattr(whom, name)(*args, **options)

    async def call(self, name: str, *args: Any, **options: Any) -> Any:
        """Call a method of the saver, its time noted."""
        return await self.ask(self.saver, name, *args, **options)

    async def call_bare(self, name: str, *args: Any, **options: Any) -> Any:
        """Call a method of the saver itself, such as no other one has."""
        return await self.ask(self.saver.saver, name, *args, **options)

    async def listed(self, config: Any, **options: Any) -> list[Any]:
        """Return all that `list` or `alist` yields."""
        if self.kind.is_async:
            return [one async for one in self.saver.alist(config, **options)]
        return list(self.saver.list(config, **options))
