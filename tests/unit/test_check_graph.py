"""Channels of graphs are found and judged; pytest's option and the two verbs say what was found."""

from __future__ import annotations

import json
import operator
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AnyMessage, BaseMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from typing_extensions import NotRequired, TypedDict

from deltastore.cli.program import main
from deltastore.errors import InvalidArgumentError, InvalidTypeError
from deltastore.testing.check_graph import check_graph, scan_channels
from deltastore.testing.reducer_laws import (
    LAWS,
    Case,
    LawError,
    check_case,
    check_reducer,
    folded,
    histories,
    register_domain,
)
from deltastore.testing.reducer_strategies import Domain, domain_of, values_of
from deltastore.testing.reducer_values import Source, fresh, picture

ROOT = Path(__file__).parents[2]
FEW = 20
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def newest_first(state: Any, writes: Any) -> Any:
    return [*(item for write in writes for item in write), *state]


def appends(state: Any, writes: Any) -> Any:
    return [*state, *(item for write in writes for item in write)]


class Inner(TypedDict):
    log: Annotated[list[str], DeltaChannel(newest_first)]
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


class Outer(MessagesState):
    log: Annotated[list[str], DeltaChannel(appends)]
    count: Annotated[int, operator.add]
    plain: int


class Right(TypedDict):
    log: Annotated[list[str], DeltaChannel(appends)]


def extends(state: Any, write: Any) -> Any:
    state.extend(write)
    return state


class InPlace(TypedDict):
    log: Annotated[list[int], extends]


@dataclass
class Needy:
    field: int


class HoldsNeedy(TypedDict):
    held: Annotated[Needy, DeltaChannel(lambda state, writes: writes[-1])]


class Entry(TypedDict):
    name: str
    note: NotRequired[str]


def make_graph() -> Any:
    inner = StateGraph(Inner)
    inner.add_node("in", lambda state: {})
    inner.add_edge(START, "in")
    outer = StateGraph(Outer)
    outer.add_node("sub", inner.compile())
    outer.add_edge(START, "sub")
    return outer.compile()


# --- channels ---


def test_every_channel_with_a_reducer_is_found_with_its_type() -> None:
    """A channel that is overlooked is one that nobody checks; the type says what to draw."""
    found = [(one.path, one.kind, one.typ) for one in scan_channels(make_graph())]
    assert [
        ("messages", "plain", list[AnyMessage]),
        ("log", "delta", list[str]),
        ("count", "plain", int),
        ("sub:log", "delta", list[str]),
        ("sub:messages", "delta", list[AnyMessage]),
    ] == found


@pytest.mark.parametrize("graph", [Outer, StateGraph(Outer)])
def test_a_schema_or_builder_does_for_a_graph(graph: Any) -> None:
    """A reducer is best checked before there is a graph around it."""
    assert ["messages", "log", "count"] == [one.path for one in scan_channels(graph)]


def test_the_report_names_the_channel_the_law_and_what_to_do() -> None:
    """One wrong channel in a subgraph is what the whole check is for."""
    report = check_graph(make_graph(), max_examples=FEW)
    proven = {one.channel.path: one.is_proven for one in report.results}
    assert {"messages", "log", "count", "sub:messages"} == {p for p, held in proven.items() if held}
    assert not report.is_proven
    with pytest.raises(LawError, match="sub:log: newest_first on list"):
        report.raise_for_failures()
    assert "could be a DeltaChannel(folded(add))" in str(report)
    assert json.loads(json.dumps(report.document()))["is_proven"] is False


def test_a_plain_channel_may_break_the_laws() -> None:
    """It is stored whole and never replayed."""
    report = check_graph(InPlace, max_examples=FEW)
    found = report.results[0].report
    assert found is not None
    assert ("purity",) == found.failed
    assert "leave it a plain channel" == report.results[0].advice
    report.raise_for_failures()


def test_a_type_that_makes_no_empty_state_is_reported() -> None:
    """A DeltaChannel of it fails when the graph is first run."""
    report = check_graph(HoldsNeedy, max_examples=FEW)
    assert not report.is_proven
    assert "makes its empty state by calling its type" in report.results[0].advice


def test_what_is_no_graph_or_channel_is_refused() -> None:
    """A check of nothing must not pass."""
    with pytest.raises(InvalidTypeError):
        check_graph(3)
    with pytest.raises(InvalidArgumentError, match="no channel 'lag'"):
        check_graph(Right, waives={"lag": ["purity"]})


# --- arguments ---


def test_wrong_arguments_are_refused() -> None:
    """A misspelt law would be waived for nothing, or never be tested."""
    for wrong in ({"claims": ["batching"]}, {"waives": ["batchng"]}, {"max_examples": 0}):
        with pytest.raises(InvalidArgumentError):
            check_reducer(appends, typ=list, **wrong)  # type: ignore[arg-type]
    number: Any = 3
    with pytest.raises(InvalidTypeError):
        check_reducer(number)


def test_a_reducer_that_takes_nothing_drawn_is_not_proven() -> None:
    """A check that never got an answer has shown nothing."""
    report = check_reducer(operator.add, typ=int, max_examples=FEW)
    assert not report.is_proven
    assert not report.failed
    assert "folded(reducer)" in str(report)


def test_a_waived_law_is_not_asked_for() -> None:
    """Some reducers break one law on purpose."""
    report = check_reducer(newest_first, typ=list, waives=["batching"], max_examples=FEW)
    assert "waived" == report.of("batching").status
    assert "batching" not in report.failed


def test_the_same_seed_finds_the_same() -> None:
    """What CI finds must be found again at home."""
    once, again = (check_reducer(newest_first, typ=list, max_examples=FEW, seed=5) for _ in "12")
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
        check_case(newest_first, case, "batching")


# --- what is drawn ---


@pytest.mark.parametrize(
    ("typ", "kind"),
    [
        (list, list),
        (Sequence[int], list),
        (dict[str, list[int]], dict),
        (set[str], set),
        (tuple[int, str], tuple),
        (int | None, (int, type(None))),
        (Literal["a", "b"], str),
        (Annotated[list[AnyMessage], "x"], list),
        (BaseMessage, BaseMessage),
        (Right, dict),
    ],
)
def test_values_are_of_the_type(typ: Any, kind: Any) -> None:
    """What is not of the channel's type tests nothing."""
    find(values_of(typ), lambda value: isinstance(value, kind))


def test_fields_that_may_be_absent_are_at_times() -> None:
    """Reducers break on what is not there."""
    assert {"name": ""} == find(values_of(Entry), lambda value: "note" not in value)
    find(values_of(Entry), lambda value: "note" in value)


def test_messages_are_of_every_kind() -> None:
    """A reducer may treat any of them in its own way."""
    writes = domain_of(list[AnyMessage]).writes
    for wanted in ("RemoveMessage", "AIMessageChunk", "tool_call_id=", "artifact=", "'image_url'"):
        find(writes, lambda write, text=wanted: text in Source().of(write))
    find(writes, lambda write: isinstance(write, BaseMessage) and write.id is None)


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
    assert picture(float("nan")) == picture(float("nan"))


@settings(max_examples=FEW)
@given(st.one_of(*map(values_of, (list[AnyMessage], dict[str, float], set[str], Right))))
def test_a_copy_and_the_code_of_a_value_are_equal_to_it(value: Any) -> None:
    """A counterexample that runs on something else shows nothing."""
    source = Source()
    code = f"found = {source.of(value)}"
    names: dict[str, Any] = {}
    exec("\n".join([*source.imports, code]), names)
    assert picture(value, ordered=True) == picture(names["found"], ordered=True)
    assert picture(value, ordered=True) == picture(fresh(value), ordered=True)


# --- command line and pytest ---


def test_the_verbs_end_with_0_or_1_or_2(capsys: pytest.CaptureFixture[str]) -> None:
    """CI reads the exit code: held, not held, could not be asked."""
    here, few = "tests.unit.test_check_graph", ["--examples", "20"]
    assert 0 == main(["check-reducer", f"{here}:appends", "--typ", "list", *few])
    assert 0 == main(["check-graph", f"{here}:Right", *few])
    for reference in ("newest_first", "make_graph"):
        verb = "check-graph" if reference == "make_graph" else "check-reducer"
        with pytest.raises(SystemExit) as ended:
            main([verb, f"{here}:{reference}", "--json", *few])
        assert 1 == ended.value.code
    said = capsys.readouterr().out
    assert '"law": "batching"' in said
    for wrong in (["nothing"], [f"{here}:nothing"], ["no.such.module:x"], ["a b:c"]):
        assert 2 == main(["check-reducer", *wrong])
    assert 2 == main(["check-reducer", f"{here}:appends", "--claim", "batching"])
    assert "deltastore: error: " in capsys.readouterr().err


def pytest_says(tmp_path: Path, *arguments: str, **env: str) -> tuple[int, str]:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tools'}", **ALONE, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


def test_the_option_makes_a_test_of_each_delta_channel(tmp_path: Path) -> None:
    """One line in a user's CI, beside whatever tests there are."""
    option = "--deltastore-graph=tests.unit.test_check_graph:make_graph"
    few = "--deltastore-examples=10"
    code, said = pytest_says(tmp_path, "-p", "pytest_deltastore", option, few, **ALONE)
    assert 1 == code
    assert "1 failed, 2 passed" in said
    assert "batching fails:" in said


def test_the_plugin_may_be_installed_and_named_too(tmp_path: Path) -> None:
    """pytest refuses a module that it is given under two names."""
    section = (ROOT / "pyproject.toml").read_text("utf-8").partition("entry-points.pytest11]\n")[2]
    name, module = next(re.finditer(r'^(\w+) = "(\w+)"$', section, re.MULTILINE)).groups()
    installed = tmp_path / "installed-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{name} = {module}\n")
    code, said = pytest_says(tmp_path, "-p", module, "--help")
    assert 0 == code, said
    assert "--deltastore-graph=" in said


def test_without_the_option_the_plugin_loads_nothing(tmp_path: Path) -> None:
    """It is loaded in every project; it must cost nothing there and need nothing."""
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_it():\n"
        "    assert 'pytest_deltastore' in sys.modules\n"
        "    assert not {'deltastore', 'hypothesis', 'langgraph'} & {*sys.modules}\n",
        "utf-8",
    )
    code, said = pytest_says(tmp_path, "-p", "pytest_deltastore", "test_it.py", **ALONE)
    assert 0 == code, said


def test_folded_is_one_write_after_the_other() -> None:
    """It stands for what LangGraph does with a plain channel."""
    assert 6 == folded(operator.add)(1, [2, 3])
    assert [] == folded(operator.add)([], [])
