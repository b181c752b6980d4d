"""Channels of graphs are found and judged; pytest's option and the two verbs say what was found."""

from __future__ import annotations

import json
import operator
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AnyMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from typing_extensions import TypedDict

from deltastore.cli.program import main
from deltastore.errors import InvalidArgumentError, InvalidTypeError
from deltastore.testing.check_graph import check_graph, scan_channels
from deltastore.testing.pytest_plugin import make_items
from deltastore.testing.reducer_laws import LawError

ROOT = Path(__file__).parents[2]
FEW = 20
HERE = "tests.unit.test_check_graph"
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
    with pytest.raises(InvalidArgumentError, match="no law 'puritty'"):
        check_graph(InPlace, waives={"log": ["puritty"]})
    with pytest.raises(InvalidArgumentError, match="max_examples must be at least 1"):
        check_graph(InPlace, max_examples=0)


# --- command line and pytest ---


def test_the_verbs_end_with_0_or_1(capsys: pytest.CaptureFixture[str]) -> None:
    """CI reads the exit code: held, or not."""
    few = ["--examples", "20"]
    assert 0 == main(["check-reducer", f"{HERE}:appends", "--typ", "list", *few])
    assert 0 == main(["check-graph", f"{HERE}:Right", *few])
    for reference in ("newest_first", "make_graph"):
        verb = "check-graph" if reference == "make_graph" else "check-reducer"
        with pytest.raises(SystemExit) as ended:
            main([verb, f"{HERE}:{reference}", "--json", *few])
        assert 1 == ended.value.code
    said = capsys.readouterr().out
    assert '"law": "batching"' in said


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["check-reducer", "nothing"], "'nothing' must have the form pkg.mod:name"),
        (["check-reducer", "a b:c"], "'a b:c' must have the form pkg.mod:name"),
        (["check-reducer", f"{HERE}:nothing"], "there is no 'nothing'"),
        (["check-reducer", "no.such.module:x"], "raises ModuleNotFoundError"),
        (["check-reducer", "leaves:x"], "importing leaves raises SystemExit: 0"),
        (["check-reducer", f"{HERE}:appends", "--claim", "batching"], "there is no law 'batching'"),
        (["check-reducer", f"{HERE}:appends", "--values", f"{HERE}:ROOT"], "values must be a Hypo"),
        (["check-reducer", f"{HERE}:appends", "--typ", "list[str]"], "must have the form"),
        (["check-graph", f"{HERE}:appends"], "calling it for a graph raises TypeError"),
        (["check-graph", f"{HERE}:ROOT"], "a graph or a state's schema has channels"),
        (["check-graph", "leaves:x"], "importing leaves raises SystemExit: 0"),
    ],
)
def test_what_cannot_be_asked_ends_with_2(
    argv: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Taken for 0 or 1 it would be an answer about the reducer; a traceback is none."""
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert 2 == main(argv)
    line = capsys.readouterr().err
    assert line.startswith("deltastore: error: ")
    assert says in line
    assert 1 == line.count("\n")


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


@pytest.mark.parametrize(
    ("reference", "examples", "says"),
    [
        (f"{HERE}:nothing", 10, "there is no 'nothing'"),
        (f"{HERE}:ROOT", 10, "a graph or a state's schema has channels"),
        (f"{HERE}:InPlace", 10, "has no DeltaChannel"),
        (f"{HERE}:Right", 0, "max_examples must be at least 1"),
    ],
)
def test_the_option_refuses_what_it_cannot_test(
    request: pytest.FixtureRequest, reference: str, examples: int, says: str
) -> None:
    """An option that adds no test would be green for ever."""
    with pytest.raises(pytest.UsageError, match=f"--deltastore-graph: .*{says}"):
        make_items(request.session, [reference], max_examples=examples, seed=0)


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
