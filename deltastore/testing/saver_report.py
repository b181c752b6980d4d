"""What a saver keeps of the suites' laws, as a table to print, store or publish.

    python -m deltastore.testing.saver_report pkg.mod:factory

A *target* is a function that takes a directory and returns a saver, or a subclass of `SaverSuite`,
for a saver that needs more words: another class for its async face, a `close` of its own. An
*outcome* is one of

- held: the law holds;
- failed: it does not, or has not ended at its deadline;
- not offered: it needs an optional method that raises `NotImplementedError` whatever it is asked;
- not applicable: it is about restarts, and the saver keeps nothing; or about what deltastore's
  savers do and LangGraph has no method or argument for.

Every law runs, those of `StrictSaverSuite` and of `RetentionSuite`, each on a fresh saver, whatever
is listed as a known fault. The report itself never hangs and does not need pytest's runner.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from deltastore.testing import make_config
from deltastore.testing.deadline import GRACE_S, Attempt, HangError
from deltastore.testing.refusal_laws import RefusalLaws
from deltastore.testing.retention_laws import RetentionSuite
from deltastore.testing.saver_suite import (
    CALLERS,
    Law,
    SaverSuite,
    StrictSaverSuite,
    law_of,
    laws_of,
)
from deltastore.testing.saver_verdicts import (
    FAILED,
    HELD,
    NOT_APPLICABLE,
    NOT_OFFERED,
    LawVerdicts,
    SaverReport,
    Verdict,
    gravest,
    reason_of,
)
from deltastore.testing.suite_calls import (
    FACES,
    OPTIONAL,
    NotApplicableError,
    NotOfferedError,
    SuiteCaller,
    SuiteKeeper,
)

_PATIENCE_S: Final = 0.5
"""After so many seconds the next law begins beside one that has not ended."""
_SUBJECTS: Final = {
    "PutLaws": "Put and read back",
    "WriteLaws": "Writes",
    "ListingLaws": "Read and list",
    "HistoryLaws": "History, names, deletion, restart",
    "ForkLaws": "Forks and long threads",
    "RestartLaws": "After a restart",
    "ThreadLaws": "Many at once",
    "RefusalLaws": "What cannot be stored",
}
MAINTENANCE: Final = "Maintenance"
_METHODS: Final = ("vacuum", "compact", "delete_for_runs", "copy_thread", "prune")


@dataclass(slots=True)
class _Trial:
    """A law being tried on one face, with one choice of its arguments."""

    face: str
    law: str
    attempt: Attempt[None]
    callers: list[SuiteCaller] = field(default_factory=list)

    def verdict(self, deadline_s: float) -> Verdict:
        """Wait up to the deadline; return how it ended."""
        if not self.attempt.ended(deadline_s):
            if self.callers and self.callers[0].stop():
                self.attempt.ended(deadline_s + GRACE_S)
            return Verdict(FAILED, str(HangError(deadline_s)))
        try:
            self.attempt.result()
        except NotOfferedError as why:
            return Verdict(NOT_OFFERED, str(why))
        except (NotApplicableError, pytest.skip.Exception) as why:
            return Verdict(NOT_APPLICABLE, str(why))
        except BaseException as error:  # noqa: BLE001 (whatever a saver raises is a failed law)
            return Verdict(FAILED, reason_of(error))
        return Verdict(HELD)


class _Trials:
    """Tries laws on fresh savers of one suite below one directory."""

    def __init__(self, suite: SaverSuite, root: Path, deadline_s: float) -> None:
        self._suite = suite
        self._root = root
        self._deadline_s = deadline_s
        self._retention = RetentionSuite()

    def absent(self, face: str) -> dict[str, Verdict]:
        """Return, by method, the verdict on laws that need it; "" for all methods of a face."""
        missing: list[str] = []

        def ask(_: Any, caller: SuiteCaller) -> None:
            try:
                caller.get_tuple(make_config("no such thread"))
            except NotImplementedError:
                missing.append("")
            else:
                missing.extend(name for name in OPTIONAL if not caller.offers(name))

        if face in self._suite.faces:
            trial = self.begin(face, "", ask, {})
            if not trial.attempt.ended(self._deadline_s):
                return {"": trial.verdict(self._deadline_s)}
        else:
            missing.append("")
        return {name: Verdict(NOT_OFFERED, f"no {name or f'{face} methods'}") for name in missing}

    def begin(self, face: str, name: str, law: Law, arguments: Mapping[str, Any]) -> _Trial:
        """Begin to try a law."""
        callers: list[SuiteCaller] = []

        def work() -> None:
            fixtures = inspect.signature(law).parameters.keys() - {
                *CALLERS,
                "self",
                "_",
                *arguments,
            }
            if fixtures:
                raise NotApplicableError(f"needs pytest for {', '.join(sorted(fixtures))}")
            caller = self._caller(face, law)
            callers.append(caller)
            try:
                owner = self._retention if isinstance(caller, SuiteKeeper) else self._suite
                law(owner, caller, **arguments)
            finally:
                caller.close()

        return _Trial(face, name, Attempt(work), callers)

    def _caller(self, face: str, law: Law) -> SuiteCaller:
        where = Path(tempfile.mkdtemp(dir=self._root))
        asynchronous = face == "async"
        asks = law.__annotations__
        if "folder" in asks:
            opened = getattr(self._suite, "open_folding", None)
            if opened is None:
                raise NotApplicableError("no open_folding, and LangGraph knows no compaction")
            return self._suite.caller_on(
                where, SuiteKeeper, asynchronous=asynchronous, opened=opened
            )
        kind = SuiteKeeper if "keeper" in asks else SuiteCaller
        return self._suite.caller_on(where, kind, asynchronous=asynchronous)


def report_on(
    target: Any,
    *,
    only: str = "",
    maintenance: bool = True,
    deadline_s: float | None = None,
) -> SaverReport:
    """Try every law on a target and report.

    Args:
        target: A function from a directory to a saver, or a `SaverSuite` class.
        only: Laws whose names, in words, contain this.
        maintenance: False leaves out the laws of `RetentionSuite`.
        deadline_s: Seconds a law may take; None for the suite's own. One report waits for it at
            most once or so, however many laws hang.
    """
    suite = suite_of(target)
    every = [*_laws(type(suite)), *(_laws_of_maintenance() if maintenance else ())]
    laws = [one for one in every if only in _in_words(one[1])]
    allowed_s = suite.deadline_s if deadline_s is None else deadline_s
    verdicts: dict[tuple[str, str], list[Verdict]] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root:
        trials = _Trials(suite, Path(root), allowed_s)
        waiting: list[_Trial] = []
        for face in FACES:
            absent = trials.absent(face)
            for _, name, law in laws:
                needed = ("", *law.__code__.co_names)
                lacking = next((absent[one] for one in needed if one in absent), None)
                if lacking is not None:
                    verdicts[face, name] = [lacking]
                    continue
                for arguments in arguments_of(law):
                    trial = trials.begin(face, name, law, arguments)
                    if trial.attempt.ended(min(_PATIENCE_S, allowed_s)):
                        verdicts.setdefault((face, name), []).append(trial.verdict(allowed_s))
                    else:
                        waiting.append(trial)
        for trial in waiting:
            verdict = trial.verdict(allowed_s)
            verdicts.setdefault((trial.face, trial.law), []).append(verdict)
    rows = [
        LawVerdicts(
            _in_words(name), subject, {face: gravest(verdicts[face, name]) for face in FACES}
        )
        for subject, name, _ in laws
    ]
    return SaverReport(_name_of(target), tuple(rows))


def suite_of(target: Any) -> SaverSuite:
    """Return a suite for a target.

    Raises:
        TypeError: It is neither a function nor a `SaverSuite` class.
    """
    if isinstance(target, type) and issubclass(target, SaverSuite):
        return target()
    if not callable(target):
        raise TypeError(
            f"no saver can be made by a {type(target).__name__}; name a function that takes a "
            "directory and returns a saver, or a SaverSuite class"
        )

    class OfFactory(StrictSaverSuite):
        def open(self, where: Path) -> Any:
            return target(where)

    return OfFactory()


def arguments_of(law: Law) -> list[dict[str, Any]]:
    """Return the choices of arguments that a law is to be tried with."""
    marks = [mark for mark in getattr(law, "pytestmark", []) if mark.name == "parametrize"]
    choices: list[dict[str, Any]] = [{}]
    for mark in marks:
        name, values = mark.args
        choices = [{**choice, name: value} for choice in choices for value in values]
    return choices


def _laws(suite: type[SaverSuite]) -> Iterator[tuple[str, str, Law]]:
    """Yield subject, name and law of a suite, and of the strict one if it is none."""
    for source in [suite] if issubclass(suite, RefusalLaws) else [suite, RefusalLaws]:
        for name in laws_of(source):
            # The class that brings the law first: a suite's own version is about the same.
            bases = (base.__name__ for base in reversed(source.__mro__) if name in vars(base))
            yield _SUBJECTS.get(next(bases), "Of its own"), name, law_of(source, name)


def _laws_of_maintenance() -> list[tuple[str, str, Law]]:
    """Return subject, name and law of what goes by a method of maintenance, by method."""
    laws = []
    for name in laws_of(RetentionSuite):
        law = law_of(RetentionSuite, name)
        method = next((one for one in _METHODS if one in law.__code__.co_names), "prune")
        laws.append((f"{MAINTENANCE}: {method}", name, law))
    return sorted(laws, key=lambda one: _METHODS.index(one[0].split()[1]), reverse=True)


def _in_words(name: str) -> str:
    return name.removeprefix("test_").replace("_", " ")


def _name_of(target: Any) -> str:
    return str(getattr(target, "__name__", type(target).__name__))


def _found(path: str) -> Any:
    """Return what `pkg.mod:name` names."""
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def main(arguments: Sequence[str]) -> int:
    """Print the report on a target; return 0 if no law failed, 1 if one did, 2 without a target."""
    parser = argparse.ArgumentParser(
        prog="python -m deltastore.testing.saver_report",
        description="Try the laws of a LangGraph checkpoint saver; exit code 1 if one failed.",
    )
    parser.add_argument("target", help="pkg.mod:factory or pkg.mod:SuiteClass")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--only", default="", metavar="TEXT", help="laws whose names contain TEXT")
    parser.add_argument("--deadline", type=float, metavar="S", help="seconds a law may take")
    asked = parser.parse_args(arguments)
    try:
        target = _found(asked.target)
        report = report_on(target, only=asked.only, deadline_s=asked.deadline)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        parser.error(f"{asked.target}: {error}")
    sys.stdout.write(report.to_json() + "\n" if asked.json else str(report))
    return 1 if report.failed else 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    if threading.active_count() > 1:
        os._exit(code)  # a saver that hangs keeps its threads, and they would keep this process
    sys.exit(code)
