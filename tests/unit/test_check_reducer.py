"""`check_reducer`: what it refuses, what it works with, and what it says it did not find out."""

from __future__ import annotations

import operator
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltastore.errors import InvalidArgumentError, InvalidTypeError
from deltastore.testing.reducer_laws import (
    LAWS,
    Case,
    LawError,
    check_case,
    check_reducer,
    folded,
    histories,
)
from tests.property.reducer_faults import (
    appends,
    keeps_tuples_written,
    pairs,
    puts_the_batch_first,
)

FEW = 20


class Pickled:
    """A serializer that gives everything back as it was."""

    def dumps_typed(self, value: Any) -> tuple[str, bytes]:
        return "pickle", pickle.dumps(value)

    def loads_typed(self, stored: tuple[str, bytes]) -> Any:
        return pickle.loads(stored[1])


async def awaits(state: Any, writes: Any) -> Any:
    return state


def gives_a_generator(state: Any, writes: Any) -> Any:
    return (item for part in [state, *writes] for item in part)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"claims": ["batching"]}, "claims: there is no law 'batching' here"),
        ({"waives": ["batchng"]}, "waives: there is no law 'batchng' here"),
        ({"claims": "batching"}, "claims must be a list of names of laws"),
        ({"waives": 3}, "waives must be a list of names of laws"),
        ({"max_examples": 0}, "max_examples must be at least 1"),
        ({"max_examples": 1.5}, "max_examples must be an int"),
        ({"seed": None}, "seed must be an int"),
        ({"values": 3}, "values must be a Hypothesis strategy"),
        ({"writes": []}, "writes must be a Hypothesis strategy"),
        ({"serde": 3}, "serde must have dumps_typed and loads_typed"),
        ({"typ": 3}, "no strategy is known for the type 3"),
        ({"reducer": 3}, "reducer must be a callable"),
        ({"reducer": awaits}, "a DeltaChannel awaits nothing"),
        ({"reducer": folded(awaits)}, "a DeltaChannel awaits nothing"),
    ],
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any], says: str) -> None:
    """A misspelt law would be waived for nothing, or never be tested; a serializer that is none
    would be taken for a reducer that breaks.
    """
    with pytest.raises((InvalidArgumentError, InvalidTypeError), match=says):
        check_reducer(**{"reducer": appends, **wrong})


def test_values_are_stored_with_the_serializer_given() -> None:
    """A reducer is right or wrong for what its graph stores with."""
    asked: dict[str, Any] = {"writes": pairs, "max_examples": FEW}
    assert "stability" in check_reducer(keeps_tuples_written, **asked).failed
    assert check_reducer(keeps_tuples_written, **asked, serde=Pickled()).is_proven
    case = Case([], [], [("a", "b")], [], None)
    check_case(keeps_tuples_written, case, "stability", serde=Pickled())
    with pytest.raises(LawError, match="stability"):
        check_case(keeps_tuples_written, case, "stability")


def test_a_state_that_has_no_copy_is_judged() -> None:
    """A forgotten `list(...)` gives a generator; the report says so and ends in no error."""
    report = check_reducer(gives_a_generator, max_examples=FEW)
    assert {"determinism", "stability"} == {*report.failed}
    assert "<generator object" in str(report)


def test_states_and_writes_are_drawn_as_told() -> None:
    """Beside the empty state, with which every channel may begin."""
    seen: list[Any] = []

    def notes(state: Any, writes: Any) -> Any:
        seen.append((state, *writes))
        return state

    check_reducer(notes, typ=str, values=st.just("v"), writes=st.just("w"), max_examples=FEW)
    assert {"", "v", "w"} == {part for call in seen for part in call}


def test_a_reducer_that_takes_nothing_drawn_is_not_proven() -> None:
    """A check that never got an answer has shown nothing."""
    report = check_reducer(operator.add, typ=int, max_examples=FEW)
    assert not report.is_proven
    assert not report.failed
    assert "folded(reducer)" in str(report)


def test_a_waived_law_is_not_asked_for() -> None:
    """Some reducers break one law on purpose."""
    report = check_reducer(puts_the_batch_first, typ=list, waives=["batching"], max_examples=FEW)
    assert "waived" == report.of("batching").status
    assert "batching" not in report.failed


def test_the_same_seed_finds_the_same() -> None:
    """What CI finds must be found again at home."""
    once, again = (
        check_reducer(puts_the_batch_first, typ=list, max_examples=FEW, seed=5) for _ in "12"
    )
    assert once == again


@settings(max_examples=FEW)
@given(histories(appends, typ=list[str]))
def test_cases_can_be_drawn_with_given(case: Case) -> None:
    """For who has tests with Hypothesis already."""
    for law in LAWS:
        if not law.claimed:
            check_case(appends, case, law.name, typ=list[str])


def test_a_broken_case_raises_with_code() -> None:
    """Hypothesis shows the case; the error shows what to run."""
    case = Case([], [], [["a"], ["b"]], [], None)
    with pytest.raises(LawError, match=r"(?s)batching.*assert reducer"):
        check_case(puts_the_batch_first, case, "batching")


def test_folded_is_one_write_after_the_other() -> None:
    """It stands for what LangGraph does with a plain channel."""
    assert 6 == folded(operator.add)(1, [2, 3])
    assert [] == folded(operator.add)([], [])
