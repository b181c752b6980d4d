"""The caller that `SaverSuite` and the saver's report give to a law.

A *face* is "sync" or "async": one half of a saver's methods. An *actor* makes calls one after
another beside other actors. A method is *offered* unless it answers even the emptiest question with
`NotImplementedError`.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from deltastore.testing import Caller, Saver
from deltastore.testing.deadline import GRACE_S, Attempt, HangError
from deltastore.testing.retention_calls import Keeper

T = TypeVar("T")
Call = tuple[str, tuple[Any, ...]]
FACES: Final = ("sync", "async")
OPTIONAL: Final = ("delete_thread", "prune", "copy_thread", "delete_for_runs")
_EMPTY_QUESTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "delete_thread": ("no such thread",),
    "prune": ([],),
    "copy_thread": ("no such thread", "no such copy"),
    "delete_for_runs": ([],),
}


class NotOfferedError(Exception):
    """A law needs an optional method that the saver does not have."""


class NotApplicableError(Exception):
    """A law is about something that this saver has no use for, or LangGraph no word."""


class SuiteCaller(Caller):
    """A caller whose opening and closing may be coroutines, and that lets actors act at once.

    Args:
        reopen_saver: Returns the saver after a restart; None from it, or for it, closes the saver
            and opens it anew.
        persistent: Whether a saver finds what was stored before; False for one that ends with its
            process.

    Attributes:
        abandoned: Whether a call hangs for good. Such a caller must not be closed.
    """

    def __init__(
        self,
        open_saver: Callable[[], Any],
        *,
        close_saver: Callable[[Saver], Any] | None = None,
        reopen_saver: Callable[[Saver], Any] | None = None,
        asynchronous: bool = False,
        persistent: bool = True,
    ) -> None:
        self._persistent = persistent
        self._open_saver = open_saver
        self.abandoned = False
        super().__init__(
            open_saver,
            close_saver=close_saver,
            reopen_saver=reopen_saver,
            asynchronous=asynchronous,
        )

    def _call(self, function: Callable[[], T]) -> T:
        if self._loop is None:
            return function()

        async def called() -> Any:
            made = function()
            return await made if inspect.isawaitable(made) else made

        result: T = self._run(called())
        return result

    @property
    def face(self) -> str:
        """Which half of the saver is called."""
        return FACES[self._loop is not None]

    def reopen(self) -> None:
        """Restart the saver.

        Raises:
            NotApplicableError: It keeps nothing.
        """
        if not self._persistent:
            raise NotApplicableError("keeps nothing over a restart")
        reopen_saver, close_saver = self._reopen_saver, self._close_saver
        made: Any = None
        if reopen_saver is not None:
            made = self._call(lambda: reopen_saver(self.saver))
        if made is None:
            if close_saver is not None:
                self._call(lambda: close_saver(self.saver))
            made = self._call(self._open_saver)
        self.saver = made

    def close(self) -> None:
        """Close the saver, then the loop."""
        if self._loop is not None:
            self._run(self._loop.shutdown_asyncgens())
        super().close()

    def stop(self) -> bool:
        """Cancel what is under way on the loop; return False without one: threads go on."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return False
        loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
        return True

    def within(self, deadline_s: float, work: Callable[[], T]) -> T:
        """Return what `work`, which calls the saver, returns.

        Raises:
            HangError: It had not ended after `deadline_s` seconds.
        """
        attempt = Attempt(work)
        if attempt.ended(deadline_s):
            return attempt.result()
        self.abandoned = not (self.stop() and attempt.ended(deadline_s + GRACE_S))
        raise HangError(deadline_s)

    def delete_thread(self, thread_id: str) -> None:
        """Call delete_thread or adelete_thread."""
        self._offered("delete_thread", lambda: super(SuiteCaller, self).delete_thread(thread_id))

    def together(self, actors: Sequence[Sequence[Call]]) -> list[list[Any]]:
        """Let actors make their calls at once; return what each got, call by call.

        Args:
            actors: The calls of each, in order: the name of a sync method and its arguments. On
                the async face its twin is called. An actor is a thread, or a task of the loop.

        Raises:
            Exception: The first error of the first actor that had one.
        """
        if self._loop is not None:
            return self._run(self._tasks(actors))
        begin = threading.Barrier(len(actors))

        def act(calls: Sequence[Call]) -> list[Any]:
            begin.wait()
            return [getattr(self.saver, name)(*arguments) for name, arguments in calls]

        interval = sys.getswitchinterval()
        # Else calls as quick as a dict's would each be over before another thread has its turn.
        sys.setswitchinterval(1e-5)
        try:
            attempts = [Attempt(partial(act, calls)) for calls in actors]
            return [attempt.result() for attempt in attempts]
        finally:
            sys.setswitchinterval(interval)

    async def _tasks(self, actors: Sequence[Sequence[Call]]) -> list[list[Any]]:
        async def act(calls: Sequence[Call]) -> list[Any]:
            results = []
            for name, arguments in calls:
                results.append(await getattr(self.saver, f"a{name}")(*arguments))
                await asyncio.sleep(0)  # a saver that never waits would let no one else act
            return results

        return await asyncio.gather(*(act(calls) for calls in actors))

    def offers(self, name: str) -> bool:
        """Return whether the saver has an optional method; it is asked for nothing."""
        question = _EMPTY_QUESTIONS.get(name, ())
        try:
            if self._loop is None:
                getattr(self.saver, name)(*question)
            else:
                self._run(getattr(self.saver, f"a{name}")(*question))
        except NotImplementedError:
            return False
        except Exception:  # noqa: BLE001 (there is a method; whether it is right is for the laws)
            return True
        return True

    def _offered(self, name: str, call: Callable[[], T]) -> T:
        """Return what an optional method returns.

        Raises:
            NotOfferedError: The saver does not have it.
        """
        try:
            return call()
        except NotImplementedError as error:
            if self.offers(name):
                raise
            raise NotOfferedError(f"no {name}") from error


class SuiteKeeper(SuiteCaller, Keeper):
    """A keeper that tells a method the saver lacks from one that fails."""

    def _maintain(self, name: str, *arguments: Any, **named: Any) -> Any:
        method = getattr(self.saver, name, None)
        if method is None:
            raise NotApplicableError(f"no {name}, and LangGraph knows none")
        keep = super()._maintain
        unknown = _unknown(method, named)
        if unknown:
            if not self.offers(name):
                raise NotOfferedError(f"no {name}")
            raise NotApplicableError(f"{name} has no argument {unknown[0]}")
        return self._offered(name, lambda: keep(name, *arguments, **named))

    def vacuum(self) -> Any:
        """Rewrite the store into a new file."""
        if not hasattr(getattr(self.saver, "store", None), "vacuum"):
            raise NotApplicableError("no vacuum, and LangGraph knows none")
        return super().vacuum()


def _unknown(method: Callable[..., Any], named: dict[str, Any]) -> list[str]:
    """Return the named arguments that a method has no parameters for."""
    parameters = inspect.signature(method).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return []
    return sorted(named.keys() - parameters.keys())
