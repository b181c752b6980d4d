"""Laws any LangGraph checkpoint saver can be held to, sync and async, as one pytest class.

    class TestMine(SaverSuite):
        def open(self, where: Path) -> Saver:
            return MySaver(where / "checkpoints.db")

A *law* is a test method that asks for a caller; it knows the saver only through that. A *known
fault* is a law a saver is documented to break: it must fail, or the listing is out of date. Where
savers differ, the laws take the side of LangGraph's documentation and of what its graphs need.

Nothing here knows deltastore: no law of `SaverSuite` asks for more than `BaseCheckpointSaver`
promises. `StrictSaverSuite` asks for one thing more, see `refusal_laws`. A law that does not end
fails at its deadline. The laws are in the modules imported here, by subject.
"""

from __future__ import annotations

import functools
import inspect
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import pytest

from deltastore.testing import Saver
from deltastore.testing.deadline import Attempt, HangError
from deltastore.testing.fork_laws import ForkLaws
from deltastore.testing.history_laws import HistoryLaws
from deltastore.testing.listing_laws import ListingLaws
from deltastore.testing.put_laws import PutLaws
from deltastore.testing.refusal_laws import RefusalLaws
from deltastore.testing.restart_laws import RestartLaws
from deltastore.testing.suite_calls import (
    FACES,
    NotApplicableError,
    NotOfferedError,
    SuiteCaller,
)
from deltastore.testing.thread_laws import ThreadLaws
from deltastore.testing.write_laws import WriteLaws

CALLERS: Final = ("caller", "keeper", "folder")
"""The fixtures a law is given its saver by, here and in `RetentionSuite`."""
FAILURES: Final = (Exception, pytest.fail.Exception)
"""What a law that does not hold raises: `pytest.raises` and `pytest.fail` raise no `Exception`."""
Law = Callable[..., None]
Called = TypeVar("Called", bound=SuiteCaller)


def laws_of(suite: type) -> list[str]:
    """Return the names of a suite's laws, in the order of its modules and theirs in them.

    An adopter's test that does not ask for a caller is no law.
    """
    names: dict[str, None] = {}
    for base in suite.__mro__:
        names |= dict.fromkeys(name for name in vars(base) if name.startswith("test_"))
    asked = {name: inspect.signature(law_of(suite, name)).parameters for name in names}
    return [name for name in names if not asked[name].keys().isdisjoint(CALLERS)]


def law_of(suite: type, name: str) -> Law:
    """Return a law as it was written: without deadline, and whether or not it is known to fail."""
    law: Law = getattr(suite, name)
    return getattr(law, "as_written", law)


def _guarded(law: Law) -> Law:
    """Return the law with the suite's deadline, turned round if it is a known fault."""

    @functools.wraps(law)
    def guarded(self: SaverSuite, caller: SuiteCaller, **fixtures: Any) -> None:
        known = self.known_faults
        reason = known.get(law.__name__, known.get(f"{law.__name__}[{caller.face}]"))
        try:
            caller.within(self.deadline_s, functools.partial(law, self, caller, **fixtures))
        except (NotApplicableError, NotOfferedError) as why:
            pytest.skip(str(why))
        except FAILURES:
            if reason is None:
                raise
            return
        if reason is not None:
            pytest.fail(f"{law.__name__} passes, but is listed as a known fault: {reason}")

    guarded.as_written = law  # type: ignore[attr-defined] # mypy knows no attribute of a function
    return guarded


class SaverSuite(PutLaws, WriteLaws, ListingLaws, HistoryLaws, ForkLaws, RestartLaws, ThreadLaws):
    """Subclass it as `Test...`, define `open`, and list what is known to fail.

    Attributes:
        known_faults: Law name to reason; `test_name[sync]` and `test_name[async]` name one face of
            a law. A law listed must fail.
        faces: The halves of the saver that there are.
        persistent: False for a saver that ends with its process: laws of restarts are skipped.
        deadline_s: Seconds after which a law that has not ended counts as failed. Laws take
            milliseconds; the slowest, long threads on a slow disk, may take a second or two.
    """

    known_faults: ClassVar[Mapping[str, str]] = {}
    faces: ClassVar[tuple[str, ...]] = FACES
    persistent: ClassVar[bool] = True
    deadline_s: ClassVar[float] = 20.0

    def open(self, where: Path) -> Saver:
        """Return a saver on the directory `where`. The same place finds the same checkpoints."""
        raise NotImplementedError

    def open_async(self, where: Path) -> Any:
        """Return the saver of the async face, or an awaitable of it; by default that of `open`.

        Called with the loop running on which all its methods will be called.
        """
        return self.open(where)

    def close(self, saver: Saver) -> Any:
        """Close a saver; by default its `close()`, if it has one. An awaitable is awaited."""
        return getattr(saver, "close", lambda: None)()

    def reopen(self, saver: Saver, where: Path) -> Saver | None:  # noqa: ARG002 (for subclasses)
        """Return the saver after a restart; None, as by default, has it closed and opened anew."""
        return None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in cls.known_faults:
            law_of(cls, name.partition("[")[0])
        for name in laws_of(cls):
            setattr(cls, name, _guarded(law_of(cls, name)))

    @pytest.fixture(params=FACES)
    def caller(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SuiteCaller]:
        """A caller on a saver of its own."""
        if request.param not in self.faces:
            pytest.skip(f"no {request.param} methods")
        with self.calling(tmp_path, asynchronous=request.param == "async") as caller:
            yield caller

    @contextmanager
    def calling(self, where: Path, *, asynchronous: bool = False) -> Iterator[SuiteCaller]:
        """Open a caller on `where`, close it at the end unless it hangs."""
        opening = Attempt(lambda: self.caller_on(where, SuiteCaller, asynchronous=asynchronous))
        if not opening.ended(self.deadline_s):
            raise HangError(self.deadline_s)
        caller = opening.result()
        try:
            yield caller
        finally:
            if not caller.abandoned:
                caller.within(self.deadline_s, caller.close)

    def caller_on(
        self,
        where: Path,
        kind: type[Called],
        *,
        asynchronous: bool = False,
        opened: Callable[[Path], Any] | None = None,
    ) -> Called:
        """Return a caller of some kind on `where`; whoever asks for it closes it.

        Args:
            opened: Opens the saver; None for the face's own.
        """
        opened = opened or (self.open_async if asynchronous else self.open)
        return kind(
            lambda: opened(where),
            close_saver=self.close,
            reopen_saver=lambda saver: self.reopen(saver, where),
            asynchronous=asynchronous,
            persistent=self.persistent,
        )


class StrictSaverSuite(SaverSuite, RefusalLaws):
    """As `SaverSuite`, and what cannot be stored is refused and leaves nothing behind."""


def broken_laws(
    suite: SaverSuite, begin: str = "test_", *, asynchronous: bool = False
) -> dict[str, BaseException]:
    """Run laws of a suite outside pytest, each on a fresh saver; return those that failed.

    Known faults count as they are listed: one that fails as told is no failure here.

    Args:
        begin: Laws whose names begin with it; all by default.
    """
    failed: dict[str, BaseException] = {}
    for name in sorted(name for name in laws_of(type(suite)) if name.startswith(begin)):
        with tempfile.TemporaryDirectory() as where:
            try:
                with suite.calling(Path(where), asynchronous=asynchronous) as caller:
                    getattr(suite, name)(caller)
            except pytest.skip.Exception:
                continue
            except FAILURES as error:
                failed[name] = error
    return failed
