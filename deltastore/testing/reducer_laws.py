"""Is a reducer right for a DeltaChannel? Laws, each tested on its own, with counterexamples.

    from deltastore.testing.reducer_laws import check_reducer

    def test_my_reducer():
        check_reducer(my_reducer, typ=list[str]).raise_for_failures()

LangGraph rebuilds a `DeltaChannel` by replaying its writes in larger batches than the run made
them. That gives the state of the run only if the reducer holds the laws of `LAWS`; see
docs/guides/your-reducer.md. Values are compared exactly: no tolerance for floats, 1 is not True.

Needs the extra `testing`. Nothing is stored: the serializer is called, no saver.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.base import SerializerProtocol
from typing_extensions import get_type_hints

from deltastore.errors import InvalidArgumentError, InvalidTypeError
from deltastore.testing.reducer_calls import (
    Raised,
    Reducer,
    Subject,
    folded,
    later,
    name_of,
    reducer_lines,
    replay,
    run,
    stored,
    unfolded,
)
from deltastore.testing.reducer_judges import LAWS, Broken, Case, Law, Verdict, cases
from deltastore.testing.reducer_report import Counterexample, LawError, LawReport, LawResult
from deltastore.testing.reducer_strategies import Domain, domain_of, register_domain
from deltastore.testing.reducer_values import Source, picture

__all__ = [
    "LAWS",
    "Case",
    "Counterexample",
    "LawError",
    "LawReport",
    "LawResult",
    "check_case",
    "check_reducer",
    "domain_of",
    "folded",
    "histories",
    "later",
    "picture",
    "register_domain",
    "replay",
    "run",
    "stored",
]

_SHRINKS_MAX: Final = 500
_SHARE_JUDGED_MIN: Final = 0.05
_KIT: Final = {
    **dict.fromkeys(["folded", "later", "picture", "replay", "run", "stored"], __name__),
    "Overwrite": "langgraph.types",
    "deepcopy": "copy",
}
_LAW: Final = {law.name: law for law in LAWS}


def check_reducer(
    reducer: Reducer,
    *,
    values: st.SearchStrategy[Any] | None = None,
    writes: st.SearchStrategy[Any] | None = None,
    typ: Any = None,
    serde: SerializerProtocol | None = None,
    claims: Collection[str] = (),
    waives: Collection[str] = (),
    max_examples: int = 300,
    seed: int = 0,
) -> LawReport:
    """Test a reducer against every law and return what was found.

    Args:
        reducer: `(state, writes) -> state`, as `DeltaChannel` takes it; one that takes a single
            write goes in as `folded(reducer)`.
        values: Draws states the channel may begin with or be set to by `Overwrite`.
        writes: Draws single writes. What is not given is derived from `typ`.
        typ: The channel's type; by default the annotation of the reducer's first parameter, or
            `list`, as LangGraph has it. Called without arguments it makes the empty state.
        serde: What writes and snapshots are stored with; LangGraph's `JsonPlusSerializer`.
        claims: Laws that hold for few reducers and are tested if claimed: `order-insensitivity`.
        waives: Laws that are not asked for, by name.
        max_examples: Cases drawn, at least 1; each is put to every law.
        seed: The same seed draws the same cases.

    Returns:
        The report; it raises nothing by itself: `.raise_for_failures()` does.

    Raises:
        InvalidTypeError: An argument is of another type, the reducer is a coroutine function, or
            `typ()` makes no empty state.
        InvalidArgumentError: A law's name is unknown, or nothing is known to draw for the type.
    """
    _check_types(reducer, values, writes, serde)
    check_options(claims, waives, max_examples, seed)
    typ = _type_of(reducer) if typ is None else typ
    domain = _domain(reducer, typ, values, writes)
    subject = Subject(reducer, make_empty(reducer, typ), serde)
    strategy = cases(domain, subject.typ, reorder=bool(claims))
    laws = [law for law in LAWS if law.name not in waives]
    asked = [law for law in laws if not law.claimed or law.name in claims]
    trial = _Trial(subject, strategy, seed, max_examples)
    trial.screen(asked)
    results = [trial.result(law, law in asked, law.name in waives) for law in LAWS]
    return LawReport(name_of(reducer), type_name(typ), seed, max_examples, tuple(results))


def histories(
    reducer: Reducer,
    *,
    values: st.SearchStrategy[Any] | None = None,
    writes: st.SearchStrategy[Any] | None = None,
    typ: Any = None,
) -> st.SearchStrategy[Case]:
    """Return a strategy of cases, for `@given`; arguments as of `check_reducer`."""
    _check_types(reducer, values, writes)
    typ = _type_of(reducer) if typ is None else typ
    domain = _domain(reducer, typ, values, writes)
    return cases(domain, make_empty(reducer, typ), reorder=True)


def check_case(
    reducer: Reducer,
    case: Case,
    law: str,
    *,
    typ: Any = None,
    serde: SerializerProtocol | None = None,
) -> None:
    """Test one case, drawn by `histories`, against one law, by its name.

    Raises:
        LawError: The law does not hold there; the text is code that shows it.
        InvalidArgumentError: There is no such law.
    """
    _check_types(reducer, serde=serde)
    _check_names("law", [law], _LAW)
    typ = _type_of(reducer) if typ is None else typ
    subject = Subject(reducer, make_empty(reducer, typ), serde)
    subject.is_pure = law == "purity" or not isinstance(_LAW["purity"].judge(subject, case), Broken)
    verdict = _LAW[law].judge(subject, case)
    if isinstance(verdict, Broken):
        shown = _write(subject, verdict)
        raise LawError(f"{law}: {_LAW[law].says}\n{shown}")


def make_empty(reducer: Reducer, typ: Any) -> Any:
    """Return what makes a channel's empty state: its type as `DeltaChannel` reduces it.

    Raises:
        InvalidTypeError: It makes none when called without arguments.
    """
    channel = DeltaChannel(reducer, typ)
    try:
        channel.from_checkpoint(None)
    except Exception as error:
        raise InvalidTypeError(
            f"a DeltaChannel makes its empty state by calling its type, and {type_name(typ)}() "
            f"raises {type(error).__name__}: {error}; give its fields defaults, or pass another typ"
        ) from error
    return channel.typ


def type_name(typ: Any) -> str:
    """Return a type as it is written in an annotation; only its origin if that is long."""
    if type(typ) is type:
        return typ.__qualname__
    name = re.sub(r"[\w.]+\.(?=\w)", "", str(typ))
    return name if len(name) < 40 else f"{name.partition('[')[0]}[...]"


def check_options(
    claims: Collection[str], waives: Collection[str], max_examples: int, seed: int
) -> None:
    """Check what `check_reducer` takes whatever the reducer; raises as it does."""
    for name, number in (("max_examples", max_examples), ("seed", seed)):
        if type(number) is not int:
            raise InvalidTypeError(f"{name} must be an int (got {type(number).__name__})")
    if max_examples < 1:
        raise InvalidArgumentError(f"max_examples must be at least 1 (got {max_examples})")
    _check_names("claims", claims, [law.name for law in LAWS if law.claimed])
    _check_names("waives", waives, _LAW)


def _check_types(reducer: Any, values: Any = None, writes: Any = None, serde: Any = None) -> None:
    if not callable(reducer):
        raise InvalidTypeError(f"reducer must be a callable (got {type(reducer).__name__})")
    if inspect.iscoroutinefunction(unfolded(reducer)):
        raise InvalidTypeError(
            f"reducer must be a plain function: a DeltaChannel awaits nothing (got a coroutine "
            f"function, {name_of(reducer)})"
        )
    for name, strategy in (("values", values), ("writes", writes)):
        if not isinstance(strategy, st.SearchStrategy | None):
            raise InvalidTypeError(
                f"{name} must be a Hypothesis strategy (got {type(strategy).__name__})"
            )
    if serde is not None and not isinstance(serde, SerializerProtocol):
        raise InvalidTypeError(
            f"serde must have dumps_typed and loads_typed (got {type(serde).__name__})"
        )


def _check_names(argument: str, names: Collection[str], known: Collection[str]) -> None:
    if isinstance(names, str) or not isinstance(names, Collection):
        raise InvalidTypeError(
            f"{argument} must be a list of names of laws (got {type(names).__name__})"
        )
    for name in names:
        if name not in known:
            raise InvalidArgumentError(
                f"{argument}: there is no law {name!r} here; there are: {', '.join(known)}"
            )


def _type_of(reducer: Reducer) -> Any:
    """Return the annotation of the first parameter; `list`, as LangGraph, if none makes a state."""
    try:
        hints = get_type_hints(unfolded(reducer), include_extras=True)
        typ = next((hint for name, hint in hints.items() if name != "return"), list)
        make_empty(reducer, typ)
    except Exception:  # noqa: BLE001 - annotations may be anything, and need not be there
        return list
    return typ


def _domain(reducer: Reducer, typ: Any, values: Any, writes: Any) -> Domain:
    if values is not None and writes is not None:
        return Domain(values, writes)
    derived = domain_of(typ, unfolded(reducer))
    return Domain(
        derived.values if values is None else values, derived.writes if writes is None else writes
    )


class _Found(Exception):  # noqa: N818 - it is what is looked for
    """Tells Hypothesis that a case breaks a law."""


class _Trial:
    """One reducer's way through the laws: all cases once, then each failure made small."""

    def __init__(
        self, subject: Subject, strategy: st.SearchStrategy[Case], seed_: int, max_examples: int
    ) -> None:
        self._subject = subject
        self._strategy = strategy
        self._seed = seed_
        self._max_examples = max_examples
        self._judged: dict[str, int] = {}
        self._cases = 0
        self._raised: dict[str, Raised] = {}
        self._broken: dict[str, Broken] = {}

    def screen(self, laws: Sequence[Law]) -> None:
        """Put every case to every law that no case has broken yet."""

        def judge(case: Case) -> None:
            self._cases += 1
            for law in laws:
                if law.name not in self._broken:
                    self._note(law.name, law.judge(self._subject, case))

        self._explore(judge)
        self._subject.is_pure = "purity" not in self._broken

    def _note(self, law: str, verdict: Verdict) -> None:
        if isinstance(verdict, Raised):
            self._raised.setdefault(law, verdict)
            return
        self._judged[law] = self._judged.get(law, 0) + 1
        if isinstance(verdict, Broken):
            self._broken[law] = verdict

    def result(self, law: Law, asked: bool, waived: bool) -> LawResult:
        """Return what to say of a law."""
        judged = self._judged.get(law.name, 0)
        if not asked:
            status: Any = "waived" if waived else "unclaimed"
            return LawResult(law.name, law.says, status, 0)
        missing = [name for name in law.needs if name in self._broken]
        if missing:
            note = f"cannot be judged without {' and '.join(missing)}"
            return LawResult(law.name, law.says, "unjudged", judged, None, note)
        if law.name in self._broken:
            shown = self._shrink(law)
            return LawResult(law.name, law.says, "failed", judged, shown, law.advice)
        if judged < max(1, self._cases * _SHARE_JUDGED_MIN):
            note = (
                f"the reducer raises for nearly all that is drawn, first {self._raised[law.name]}; "
                "pass values=... and writes=... that it takes, or folded(reducer) if it takes one "
                "write at a time"
            )
            return LawResult(law.name, law.says, "unjudged", judged, None, note)
        return LawResult(law.name, law.says, "held", judged)

    def _shrink(self, law: Law) -> Counterexample:
        smallest = _write(self._subject, self._broken[law.name])
        tried = 0

        def judge(case: Case) -> None:
            nonlocal smallest, tried
            tried += 1
            if tried > self._max_examples + _SHRINKS_MAX:
                return
            verdict = law.judge(self._subject, case)
            if isinstance(verdict, Broken):
                shown = _write(self._subject, verdict)
                if len(shown.code) <= len(smallest.code):
                    smallest = shown
                raise _Found

        # It ends with what was found, or finds the reducer flaky; either way the smallest counts.
        with suppress(Exception):
            self._explore(judge)
        return smallest

    def _explore(self, judge: Any) -> None:
        wanted = settings(
            max_examples=self._max_examples,
            database=None,
            deadline=None,
            derandomize=False,
            phases=(Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        )
        wanted(seed(self._seed)(given(self._strategy)(judge)))()


def _write(subject: Subject, broken: Broken) -> Counterexample:
    """Return a broken law as code whose last statement fails."""
    source = Source()
    lines = reducer_lines(subject.reducer, source)
    statements = [*broken.statements]
    if broken.left:
        margin = "    " if statements and statements[-1].endswith(":") else ""
        statements.append(f"{margin}assert {_comparison(broken)}")
    text = "\n".join(statements)
    if not subject.is_pure and "before" not in text:
        text = re.sub(r"\breducer\b", "pure", text)
        text = f"def pure(s, ws): return reducer(*deepcopy((s, ws)))\n{text}"
    if re.search(r"\btyp\b", text):
        lines.append(f"typ = {source.name(subject.typ)}")
    lines += [f"{name} = {source.of(value)}" for name, value in broken.names.items()]
    code = "\n".join([*lines, text])
    for name, module in _KIT.items():
        if re.search(rf"\b{name}\(", code):
            source.need(module, name)
    shown = [source_of(outcome) for outcome in broken.outcomes]
    return Counterexample("\n".join([*source.imports, code]), *shown)


def _comparison(broken: Broken) -> str:
    """Return the plainest comparison that tells the outcomes apart."""
    left, right = broken.left, broken.right
    one, other = broken.outcomes
    if (
        isinstance(one, Raised)
        or isinstance(other, Raised)
        or (not broken.ordered and one != other)
    ):
        return f"{left} == {right}"
    if repr(one) != repr(other):
        return f"repr({left}) == repr({right})"
    more = ", ordered=True" if broken.ordered else ""
    return f"picture({left}{more}) == picture({right}{more})"


def source_of(outcome: Any) -> str:
    """Return what a call came to, as an expression or as the error it raised."""
    return f"raises {outcome}" if isinstance(outcome, Raised) else Source().of(outcome)
