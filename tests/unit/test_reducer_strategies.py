"""What is drawn is of the channel's type; values are compared, copied and written exactly."""

from __future__ import annotations

import copy
import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage, RemoveMessage
from pydantic import BaseModel
from typing_extensions import NotRequired, TypedDict

from deltastore.testing.reducer_laws import register_domain
from deltastore.testing.reducer_strategies import Domain, domain_of, values_of
from deltastore.testing.reducer_values import Source, fresh, picture

FEW = 20


def class_of(member: Any) -> Any:
    """Return the class of a member of the union `AnyMessage`, which carries a tag."""
    return get_args(member)[0] if hasattr(member, "__metadata__") else member


class Entry(TypedDict):
    name: str
    note: NotRequired[str]


class Colour(enum.Enum):
    RED = 1


@dataclass
class Tally:
    total: int = 0
    names: list[str] = field(default_factory=list)


class Note(BaseModel):
    text: str
    tags: list[str] = []


# --- what is drawn ---


@pytest.mark.parametrize(
    ("typ", "kind"),
    [
        (bool, bool),
        (int, int),
        (float, float),
        (Decimal, Decimal),
        (str, str),
        (bytes, bytes),
        (None, type(None)),
        (Any, (int, str, bool, float)),
        (list, list),
        (Sequence[int], list),
        (dict[str, list[int]], dict),
        (set[str], set),
        (frozenset, frozenset),
        (Colour, Colour),
        (Tally, Tally),
        (Note, Note),
        (list[Note], list),
        (tuple[int, ...], tuple),
        (tuple[int, str], tuple),
        (int | None, (int, type(None))),
        (Literal["a", "b"], str),
        (Annotated[list[AnyMessage], "x"], list),
        (BaseMessage, BaseMessage),
        (Entry, dict),
    ],
)
def test_values_are_of_the_type(typ: Any, kind: Any) -> None:
    """What is not of the channel's type tests nothing; one value alone tests little."""
    drawn: list[Any] = []

    @settings(max_examples=5 * FEW, database=None)
    @given(values_of(typ))
    def draw(value: Any) -> None:
        drawn.append(value)

    draw()
    assert all(isinstance(value, kind) for value in drawn)
    several = typ not in (None, Colour)
    assert several == (len({*map(picture, drawn)}) > 1)


def test_fields_that_may_be_absent_are_at_times() -> None:
    """Reducers break on what is not there."""
    assert {"name": ""} == find(values_of(Entry), lambda value: "note" not in value)
    find(values_of(Entry), lambda value: "note" in value)


def drawn_from(strategy: Any, wanted: Any) -> Any:
    return find(strategy, wanted, settings=settings(max_examples=5_000, database=None))


@pytest.mark.parametrize("kind", [*map(class_of, get_args(get_args(AnyMessage)[0])), RemoveMessage])
def test_messages_of_every_class_are_written(kind: type[BaseMessage]) -> None:
    """A reducer may treat any of them in its own way; a class new to LangChain has to be added."""
    drawn_from(domain_of(list[AnyMessage]).writes, lambda write: type(write) is kind)


@pytest.mark.parametrize(
    "wanted", ["tool_calls=[{", "tool_call_id=", "artifact=", "'image_url'", "additional_kwargs={"]
)
def test_messages_hold_what_messages_may_hold(wanted: str) -> None:
    """Tool calls, content in blocks: what is nested is what a shallow copy shares."""
    drawn_from(domain_of(list[AnyMessage]).values, lambda value: wanted in Source().of(value))


def test_messages_have_ids_or_none_and_writes_meet_them() -> None:
    """An update and a removal by id do nothing unless the id is there."""
    values, writes = domain_of(list[AnyMessage])
    drawn_from(writes, lambda write: isinstance(write, BaseMessage) and write.id is None)
    case = st.tuples(values, writes)
    for kind in (HumanMessage, RemoveMessage):
        drawn_from(
            case,
            lambda both, kind=kind: type(both[1]) is kind and both[1].id in {m.id for m in both[0]},
        )
    for ids, wanted in (("given", 0), ("absent", 1)):
        drawn: Any = domain_of(list[AnyMessage], ids=ids).values  # type: ignore[arg-type] # a Literal
        found = drawn_from(drawn.map(lambda value: [m.id is None for m in value]), len)
        assert [bool(wanted)] == found


def test_writes_to_a_dict_may_delete() -> None:
    """Where the type of its values is open, as LangGraph's users mark a deletion by None."""
    drawn_from(domain_of(dict).writes, lambda write: None in write.values())
    values, writes = domain_of(dict)
    drawn_from(
        st.tuples(values, writes),
        lambda both: any(both[1].get(key, 0) is None for key in both[0]),
    )
    few = settings(max_examples=5 * FEW, database=None)
    with pytest.raises(NoSuchExample):
        find(domain_of(dict[str, int]).writes, lambda write: None in write.values(), settings=few)


def test_a_domain_can_be_registered_for_a_type_of_ones_own() -> None:
    """Nothing is known of a class but what its owner says."""

    class Mine:
        def __init__(self, size: int = 0) -> None:
            self.size = size

    register_domain(Mine, lambda: Domain(st.builds(Mine, st.just(7)), st.just(1)))
    assert 7 == find(values_of(Mine), lambda _: True).size
    assert [7] == [one.size for one in find(values_of(list[Mine]), lambda value: len(value) == 1)]


# --- exactness ---


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (0.1 + 0.2, 0.3),
        ([], ()),
        ({1}, frozenset({1})),
        (Decimal(1), Decimal("1.0")),
        ("", b""),
    ],
)
def test_nearly_equal_is_not_equal(left: Any, right: Any) -> None:
    """There is no tolerance: a replayed state is the same or it is not."""
    assert picture(left) != picture(right)


def test_the_order_of_keys_counts_only_where_asked() -> None:
    """It has a law of its own."""
    left, right = {"a": 1, "b": 2}, {"b": 2, "a": 1}
    assert picture(left) == picture(right)
    assert picture(left, ordered=True) != picture(right, ordered=True)


@pytest.mark.parametrize(
    "value", [float("nan"), complex("nan"), Decimal("NaN"), Decimal("sNaN"), [float("nan")]]
)
def test_what_is_no_number_is_like_itself(value: Any) -> None:
    """Else every law would fail where one is drawn, of reducers that are right."""
    assert picture(value) == picture(copy.deepcopy(value))


def made_by(source: Source, code: str) -> Any:
    """Return what an expression makes, with no names but those it has imported."""
    names: dict[str, Any] = {}
    exec("\n".join([*source.imports, f"found = {code}"]), names)
    return names["found"]


@settings(max_examples=FEW)
@given(
    st.one_of(
        *map(values_of, (list[AnyMessage], dict[str, float], set[str], Entry, Note, Tally, Decimal))
    )
)
def test_a_copy_and_the_code_of_a_value_are_equal_to_it(value: Any) -> None:
    """A counterexample that runs on something else shows nothing."""
    source = Source()
    found = made_by(source, source.of(value))
    assert picture(value, ordered=True) == picture(found, ordered=True)
    assert picture(value, ordered=True) == picture(fresh(value), ordered=True)


@pytest.mark.parametrize(
    "value",
    [UUID(int=1), date(2025, 1, 10), timedelta(1), Fraction(1, 3), Path("a"), [Decimal("1.0")]],
    ids=repr,
)
def test_the_code_of_what_is_known_by_its_repr_imports_it(value: Any) -> None:
    """Code that ends in a NameError shows nothing of the law."""
    source = Source()
    assert value == made_by(source, source.of(value))
