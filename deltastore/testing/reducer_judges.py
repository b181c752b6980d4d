"""The laws themselves: each takes a reducer and a case, and says whether it holds there.

A *case* is a beginning, writes that lead to a state, and writes after it. A judge gives None where
its law holds, `Raised` where the reducer raises whichever way it is asked (the case says nothing),
and `Broken`, with what it takes to show it, where the law does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import strategies as st
from langgraph.types import Overwrite

from deltastore.testing.reducer_calls import Raised, Subject, alike, usable
from deltastore.testing.reducer_strategies import Domain
from deltastore.testing.reducer_values import fresh, picture


@dataclass(frozen=True, slots=True)
class Case:
    """One generated history of a channel.

    Attributes:
        base: The state it begins with.
        before: Writes that lead from there to the state under test; perhaps none.
        writes: Writes after it, at least one.
        order: Positions in `writes`, in another order.
        reset: What an `Overwrite` sets; None for an empty state.
    """

    base: Any
    before: list[Any]
    writes: list[Any]
    order: list[int]
    reset: Any


@st.composite
def cases(draw: st.DrawFn, domain: Domain, typ: Any, *, reorder: bool = False) -> Case:
    """Draw cases over a domain; `reorder` is for the law of order insensitivity."""
    base = draw(domain.values) if draw(st.integers(0, 3)) else typ()
    # Sizes are drawn apart: left to itself Hypothesis draws one write most of the time, and one
    # write cannot be split.
    before = [draw(domain.writes) for _ in range(draw(st.sampled_from([0, 0, 1, 2])))]
    writes = [draw(domain.writes) for _ in range(draw(st.sampled_from([1, 2, 3, 4, 3, 2])))]
    order = draw(st.permutations(range(len(writes)))) if reorder else []
    return Case(base, before, writes, [*order], draw(st.none() | domain.values))


@dataclass(frozen=True, slots=True)
class Broken:
    """How a law is seen not to hold.

    Attributes:
        names: Values by the names that the expressions use.
        left, right: Expressions that should be equal; empty if the last statement should not raise.
        outcomes: What they came to.
        statements: What comes before them; may end in a `with` that they stand in.
        ordered: Whether the order of keys is what differs.
    """

    names: Mapping[str, Any]
    left: str
    right: str
    outcomes: tuple[Any, Any]
    statements: tuple[str, ...] = ()
    ordered: bool = False


Verdict = Raised | Broken | None
Judge = Callable[[Subject, Case], Verdict]


@dataclass(frozen=True, slots=True)
class Law:
    """A law by its name.

    Attributes:
        says: It as a formula.
        needs: Laws without which it cannot be judged.
        claimed: It is judged only for a reducer that claims it.
        advice: What usually mends it.
    """

    name: str
    says: str
    judge: Judge = field(repr=False)
    advice: str
    needs: tuple[str, ...] = ()
    claimed: bool = False


def reached(subject: Subject, case: Case) -> Any:
    """Return the state under test, or `Raised`."""
    if not case.before:
        return case.base
    # Copied, since judges copy it unguarded: a reducer may give what has no copy, a generator.
    return subject.once(
        case,
        "reached",
        lambda: subject.attempt(lambda: fresh(usable(subject.call(case.base, case.before)))),
    )


def _purity(subject: Subject, case: Case) -> Verdict:
    state = reached(subject, case)
    if isinstance(state, Raised):
        return state
    given, writes = fresh(state), fresh(case.writes)
    before = fresh(state), fresh(case.writes)
    pictures = picture(given, ordered=True), picture(writes, ordered=True)
    outcome = subject.attempt(lambda: subject.reducer(given, writes))
    names = {"state": before[0], "writes": before[1]}
    for name, now, was, then in zip(names, (given, writes), pictures, before, strict=True):
        if picture(now, ordered=True) != was:
            lines = (f"before = deepcopy({name})", "reducer(state, writes)")
            ordered = picture(now) == picture(then)
            return Broken(names, name, "before", (fresh(now), then), lines, ordered)
    return outcome if isinstance(outcome, Raised) else None


def _determinism(subject: Subject, case: Case) -> Verdict:
    state, writes = reached(subject, case), case.writes
    first = subject.call(state, writes)
    names = {"state": state, "writes": writes}
    call = "reducer(state, writes)"
    again = subject.call(state, writes)
    if not alike(first, again, ordered=True):
        return Broken(names, call, call, (first, again), (), alike(first, again))
    subject.call(subject.typ(), writes[:1])
    again = subject.call(state, writes)
    if not alike(first, again, ordered=True):
        lines = (f"first = {call}", "reducer(typ(), writes[:1])")
        return Broken(names, "first", call, (first, again), lines, alike(first, again))
    again = subject.call_later(state, writes)
    if not alike(first, again, ordered=True):
        lines = (f"now = {call}", "with later(reducer):")
        return Broken(names, "now", call, (first, again), lines, alike(first, again))
    return first if isinstance(first, Raised) else None


def _identity(subject: Subject, case: Case) -> Verdict:
    state = subject.call(reached(subject, case), case.writes)
    if isinstance(state, Raised):
        return state
    after = subject.call(state, [])
    if not alike(after, state, ordered=True):
        code = "reducer(state, [])"
        return Broken({"state": state}, code, "state", (after, state), (), alike(after, state))
    return None


def _splits(subject: Subject, case: Case, *, ordered: bool) -> Verdict:
    state = reached(subject, case)

    def call_all() -> list[tuple[list[Any], int, Any, Any]]:
        found = []
        # Backwards too: it costs less than drawing a second case, and shows as much.
        for writes in [case.writes, case.writes[::-1]][: len(case.writes)]:
            whole = subject.call(state, writes)
            for at in range(len(writes) + 1):
                parts = subject.call(subject.call(state, writes[:at]), writes[at:])
                found.append((writes, at, parts, whole))
        return found

    said: Verdict = None
    for writes, at, parts, whole in subject.once(case, "splits", call_all):
        if not alike(parts, whole, ordered=ordered):
            names = {"state": state, "xs": writes[:at], "ys": writes[at:]}
            left, right = "reducer(reducer(state, xs), ys)", "reducer(state, xs + ys)"
            return Broken(names, left, right, (parts, whole), (), ordered)
        said = whole if isinstance(whole, Raised) else said
    return said


def _batching(subject: Subject, case: Case) -> Verdict:
    return _splits(subject, case, ordered=False)


def _key_order(subject: Subject, case: Case) -> Verdict:
    return _splits(subject, case, ordered=True)


def _stability(subject: Subject, case: Case) -> Verdict:
    state, writes = reached(subject, case), case.writes
    ran = subject.call(state, writes)
    read = subject.attempt(lambda: [subject.stored(write) for write in writes])
    replayed = read if isinstance(read, Raised) else subject.call(state, read)
    if not alike(replayed, ran):
        left = "reducer(state, [stored(write) for write in writes])"
        names = {"state": state, "writes": writes}
        return Broken(names, left, "reducer(state, writes)", (replayed, ran))
    return ran if isinstance(ran, Raised) else None


def _seed(subject: Subject, state: Any) -> Any:
    """Return a state that a call gave as it reads back, or `Raised`."""
    return subject.attempt(lambda: subject.stored(usable(state)))


def _snapshot(subject: Subject, case: Case) -> Verdict:
    state, writes = reached(subject, case), case.writes
    whole = subject.replay(state, writes)
    if isinstance(whole, Raised):
        return whole
    for at in range(len(writes) + 1):
        first, rest = writes[:at], writes[at:]
        outcome = subject.replay(_seed(subject, subject.replay(state, first)), rest)
        if not alike(outcome, whole):
            names = {"state": state, "xs": first, "ys": rest}
            lines = ("seed = stored(replay(reducer, typ, state, xs))",)
            left, right = "replay(reducer, typ, seed, ys)", "replay(reducer, typ, state, xs + ys)"
            return Broken(names, left, right, (outcome, whole), lines)
    return None


def _overwrite(subject: Subject, case: Case) -> Verdict:
    xs, ys = case.before, case.writes
    value = subject.typ() if case.reset is None else case.reset
    before = subject.replay(case.base, xs)
    if isinstance(before, Raised):
        return before
    expected = subject.call(value, ys)
    names = {"state": case.base, "xs": xs, "value": case.reset, "ys": ys}
    if isinstance(expected, Raised):
        from_nothing = subject.call(subject.typ(), ys)
        if isinstance(from_nothing, Raised):
            return expected
        names = {"value": value, "ys": ys}
        shown = "reducer(typ(), ys)  # is a state", "reducer(value, ys)  # should be one"
        return Broken(names, "", "", (expected, from_nothing), shown)
    read = subject.attempt(
        lambda: [subject.stored(one) for one in [*xs, Overwrite(case.reset), *ys]]
    )
    if isinstance(read, Raised):
        return read
    replayed = subject.replay(case.base, read)
    start = "typ()" if case.reset is None else "value"
    right = f"replay(reducer, typ, {start}, ys)"
    if not alike(replayed, expected):
        lines = ("history = [stored(one) for one in [*xs, Overwrite(value), *ys]]",)
        left = "replay(reducer, typ, state, history)"
        return Broken(names, left, right, (replayed, expected), lines)
    ran = subject.run(case.base, [one for one in (xs, [Overwrite(case.reset)], ys) if one])
    if not alike(ran, expected):
        left = "run(reducer, typ, state, [xs, [Overwrite(value)], ys])"
        return Broken(names, left, right, (ran, expected))
    return None


def _order(subject: Subject, case: Case) -> Verdict:
    state, writes = reached(subject, case), case.writes
    other = [writes[at] for at in case.order]
    left, right = subject.call(state, writes), subject.call(state, other)
    if not alike(left, right):
        names = {"state": state, "writes": writes, "reordered": other}
        code = "reducer(state, writes)", "reducer(state, reordered)"
        return Broken(names, *code, (left, right))
    return left if isinstance(left, Raised) else None


LAWS: Final = (
    Law(
        "purity",
        "r(s, ws) changes neither s nor ws",
        _purity,
        "build a new value, [*state, ...] or {**state, ...}, and copy what is changed inside it",
    ),
    Law(
        "determinism",
        "r(s, ws) == r(s, ws), at any time and whatever was called between",
        _determinism,
        "take ids, times and random numbers in the node and write them; keep nothing beside the "
        "state",
    ),
    Law(
        "identity",
        "r(s, []) == s, for any s that r gave",
        _identity,
        "return the state unchanged when there are no writes; do nothing once per call",
        ("determinism",),
    ),
    Law(
        "batching",
        "r(r(s, xs), ys) == r(s, xs + ys)",
        _batching,
        "let each write act on the state that the writes before it made, however they are batched",
        ("determinism",),
    ),
    Law(
        "key-order",
        "batching, with the keys of dicts in the same order",
        _key_order,
        "insert and delete keys write by write; or waive this law if nothing reads their order",
        ("determinism", "batching"),
    ),
    Law(
        "stability",
        "r(s, stored(ws)) == r(s, ws)",
        _stability,
        "make ids where the write is made; write only what the serializer gives back as it was",
        (),
    ),
    Law(
        "snapshot",
        "a snapshot at any point, then the later writes == all writes",
        _snapshot,
        "keep in the state only what the serializer gives back as it was: no subclasses, no tuples",
        ("determinism", "batching"),
    ),
    Law(
        "overwrite",
        "[*xs, Overwrite(v), *ys] from any s == ys from v",
        _overwrite,
        "expect in the state nothing that a value set by Overwrite would not have",
        ("determinism", "stability"),
    ),
    Law(
        "order-insensitivity",
        "r(s, ws) == r(s, ws in another order)",
        _order,
        "sort, or combine with an operation that is commutative; do not claim it otherwise",
        ("determinism",),
        claimed=True,
    ),
)
"""Every law, in the order in which to mend a reducer."""
