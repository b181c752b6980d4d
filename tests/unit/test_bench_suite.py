"""The benchmark suite: it does what it says to each saver, and a wrong one is not shown as right.

Counts and bytes are checked, never times.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from bench import __main__ as command
from bench import replay, runner, server
from bench.cell import Cell, run
from bench.conversations import get_turns
from bench.host import check_written
from bench.kinds import Place, SaverUnavailableError
from bench.savers import SAVERS, get_kind
from bench.stage import Stage, run_to_end
from bench.summary import as_text
from bench.workloads import CATALOGUE
from deltastore.testing import make_checkpoint

TURNS = 6
PLENTY = 8_000_000_000
WORKLOADS = [name for name in CATALOGUE if name not in ("many_threads_64", "many_threads_1000")]
EMBEDDED = [name for name, kind in SAVERS.items() if not kind.on_server]


def cell(workload: str, saver: str, scratch: Path, **changed: Any) -> Cell:
    plain = Cell(workload, saver, TURNS, 0, 1, None, str(scratch), 600.0, PLENTY, PLENTY)
    return Cell(**{**asdict(plain), **changed})


class Forgetful(InMemorySaver):
    """Loses the newest message of every list it is given."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        values = dict(checkpoint["channel_values"])
        if values.get("messages"):
            values["messages"] = values["messages"][:-1]
        return super().put(config, {**checkpoint, "channel_values": values}, metadata, new_versions)


class Hanging(InMemorySaver):
    """Never returns from a put."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        threading.Event().wait()


class Failing(InMemorySaver):
    """Raises at every put."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        raise OSError("no space left")


@cache
def forgetful(_path: str) -> Forgetful:
    """One for each path, so that what it holds outlives its closing."""
    return Forgetful()


def hanging(_path: str) -> Hanging:
    return Hanging()


def failing(_path: str) -> Failing:
    return Failing()


@cache
def remembering(_path: str) -> InMemorySaver:
    return InMemorySaver()


@contextmanager
def in_a_block(path: str) -> Iterator[InMemorySaver]:
    yield remembering(path)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Return a name under which this file can be imported, here and in a child."""
    copied = tmp_path / "stand_in_savers.py"
    copied.write_text(Path(__file__).read_text())
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "stand_in_savers"


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_workload_ends_in_its_planned_state(workload: str, tmp_path: Path) -> None:
    """A workload that stores something else than it plans measures nobody knows what."""
    result = run(cell(workload, "deltastore", tmp_path))
    assert ("ok", "") == (result["status"], result["reason"]), result
    assert result["equal"]
    assert result["units"] == result["done"]
    turns, _ = get_turns(TURNS, path=None, seed=1)
    assert sum(map(len, CATALOGUE[workload].make(turns, 1).new)) == result["new_bytes"]
    assert 1.0 == pytest.approx(result["known_write"], abs=0.01)
    # Each level holds what the one above it handed over, where that is counted.
    is_counted = not workload.startswith("many_threads_")
    assert is_counted == (result["engine_bytes"] is not None)
    assert (result["engine_bytes"] or 0) < result["os_bytes"]
    assert result["record_bytes"] < result["after_bytes"]
    assert result["vacuumed_bytes"] <= result["after_bytes"]
    records = [key + record for _, key, record in result["breakdown"]["kinds"].values()]
    assert sum(records) == result["record_bytes"]
    assert [result["done"], result["new_bytes"]] == result["marks"][-1][:2]


@pytest.mark.parametrize("saver", [name for name in EMBEDDED if not name.startswith("lmdb")])
def test_every_saver_is_given_the_same_and_gives_it_back(saver: str, tmp_path: Path) -> None:
    """Savers are compared on the same input, or not at all."""
    result = run(cell("chat_delta", saver, tmp_path))
    assert ("ok", True) == (result["status"], result["equal"]), result
    turns, _ = get_turns(TURNS, path=None, seed=1)
    supersteps = sum(1 + len(turn.replies) for turn in turns)
    assert supersteps == result["supersteps"]
    assert supersteps + TURNS == result["checkpoints"]
    counted = sum(block["puts_s"][0] for block in result["blocks"])
    assert supersteps + TURNS == counted
    assert supersteps == sum(block["put_writes_s"][0] for block in result["blocks"])
    if saver == "memory":
        assert (0, None) == (result["file_bytes"], result["os_bytes"])
    else:
        assert result["record_bytes"] < result["file_bytes"] <= result["os_bytes"]
        assert 0 < result["resume"]["read_bytes"]


def test_a_store_written_over_and_over_is_told_from_one_that_is_not(tmp_path: Path) -> None:
    """The figures must tell savers apart: the whole list at each step against what changed."""
    found = {}
    for saver in ("sqlite", "deltastore"):
        place = tmp_path / saver
        place.mkdir()
        found[saver] = run(cell("chat_plain", saver, place))
    whole, changed = found["sqlite"], found["deltastore"]
    for name in ("record_bytes", "engine_bytes"):
        assert changed[name] < whole[name] / 2
    assert changed["engine_bytes"] < 2 * changed["new_bytes"]


def test_a_saver_that_loses_a_message_is_shown_as_wrong(stand_in: str, tmp_path: Path) -> None:
    """Without this, the fastest saver is the one that stores nothing."""
    result = run(cell("calls_plain", f"import:{stand_in}:forgetful", tmp_path))
    assert "wrong" == result["status"]


def test_a_saver_that_raises_is_shown_as_failed(stand_in: str, tmp_path: Path) -> None:
    """With its own words, so that a reader can tell whose fault it is."""
    result = run(cell("calls_plain", f"import:{stand_in}:failing", tmp_path))
    assert "failed" == result["status"]
    assert "no space left" in result["reason"]


def test_an_imported_saver_may_come_in_a_block(stand_in: str, tmp_path: Path) -> None:
    """Most savers are opened so."""
    assert "ok" == run(cell("calls_plain", f"import:{stand_in}:in_a_block", tmp_path))["status"]


def test_a_run_stops_at_its_caps_and_tells_how_far_it_came(tmp_path: Path) -> None:
    """What is not finished is not compared with what is."""
    result = run(cell("calls_plain", "deltastore", tmp_path, cap_seconds=0.0))
    assert ("capped", 1) == (result["status"], result["done"])
    assert "equal" not in result
    assert [1] == [mark[0] for mark in result["marks"]]


def test_a_saver_that_hangs_is_killed(
    stand_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One saver must not keep the others from being measured."""
    monkeypatch.setattr(runner, "_GRACE_S", 3.0)
    hung = cell("calls_plain", f"import:{stand_in}:hanging", tmp_path / "store", cap_seconds=0.0)
    result = runner.run_cell(hung, lambda *_: None)
    assert ("capped", 0) == (result["status"], result["done"])
    assert "killed" in result["reason"]


def test_a_server_that_is_not_installed_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suite runs without PostgreSQL, and says what it leaves out."""
    monkeypatch.setattr(server, "find_program", lambda _name: None)
    result = run(cell("calls_plain", "postgres", tmp_path))
    assert "unavailable" == result["status"]
    assert "not available: initdb" in result["reason"]


def test_the_order_of_savers_rotates_within_one_run() -> None:
    """Else the first saver always meets the machine as the last one left it."""
    plan = runner.Plan(("a", "b", "c"), ("w",), (1,), repeats=3)
    order = [one.saver for one in plan.cells()]
    assert ["limit", "a", "b", "c", "b", "c", "a", "c", "a", "b"] == order


def test_bytes_of_a_known_write_are_counted(tmp_path: Path) -> None:
    """Everything said about bytes handed to the system rests on this counter."""
    assert 1.0 == pytest.approx(check_written(tmp_path), abs=0.001)


@pytest.mark.parametrize("saver", ["deltastore", "sqlite"])
def test_bytes_handed_to_an_engine_are_those_of_its_records(saver: str, tmp_path: Path) -> None:
    """Of records that are written once: what was handed over is what is there."""
    kind, place = get_kind(saver), Place(tmp_path)
    value = "x" * 1_000
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "1"}}
    with kind.open(place) as opened:
        opened.saver.put_writes(config, [("channel", value)], "task")
        handed = opened.tally.handed
    assert kind.record_bytes is not None
    # Numbers count nothing on the way to SQLite, and as their text at rest.
    assert handed == pytest.approx(kind.record_bytes(place), abs=200)
    assert len(value) / 20 < handed


@pytest.mark.parametrize("saver", SAVERS)
def test_a_saver_that_is_not_counted_stores_the_same(saver: str, tmp_path: Path) -> None:
    """Pace is measured so; what cannot be had here says so, and nothing else goes wrong."""
    kind = get_kind(saver)
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}

    async def keep(place: Place) -> None:
        stage = Stage(kind, place, monotonic() + 600)
        await stage.open()
        assert stage._opened is not None
        tally = stage._opened.tally
        checkpoint = make_checkpoint("1", {"x": 1}, {"x": ["hello"]})
        await stage.call("put", config, checkpoint, {"step": 1}, {"x": 1})
        await stage.reopen()
        found = await stage.call("get_tuple", config)
        assert {"x": ["hello"]} == found.checkpoint["channel_values"]
        assert (False, 0, 0) == (tally.counted, tally.handed, tally.fetched)
        await stage.close()
        assert kind.name == "memory" or not stage.tally.counted

    told = "not available"
    try:
        with ExitStack() as things:
            started = None
            if kind.on_server:
                if why := server.why_unavailable():
                    raise SaverUnavailableError(why)
                # Not below pytest's directory, which the server's user may not enter.
                scratch = things.enter_context(TemporaryDirectory())
                Path(scratch).chmod(0o711)
                started = things.enter_context(server.running_server(Path(scratch) / "server"))
            run_to_end(keep(Place(tmp_path, started, counted=False)), is_async=kind.is_async)
    except SaverUnavailableError as refused:
        told = str(refused)
    assert "not available" in told


def test_what_is_not_counted_shows_as_nothing(tmp_path: Path) -> None:
    """A zero would read as the best of all figures."""
    result = run(cell("many_threads_8", "deltastore", tmp_path))
    one = {"workload": "many_threads_8", "saver": "deltastore", "turns": TURNS, "repeat": 0}
    line = as_text({"cells": [{**one, **result}]}).splitlines()[1]
    # Workload, turns, saver, records, engine.
    assert "-" == line.split()[4]
    assert result["resume"]["read_bytes"] is None


def test_one_command_runs_savers_side_by_side_and_keeps_the_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The short form of what the published tables are made with."""
    out = tmp_path / "results.json"
    given = ["run", "--turns", "3", "--workloads", "chat_plain,many_threads_8", "--out", str(out)]
    assert 0 == command.main([*given, "--savers", "deltastore,sqlite-async", "--repeats", "1"])
    report = json.loads(out.read_text())
    ran = [(one["workload"], one["saver"], one["status"]) for one in report["cells"]]
    assert [
        ("chat_plain", "limit", "ok"),
        ("chat_plain", "deltastore", "ok"),
        ("chat_plain", "sqlite-async", "ok"),
        ("many_threads_8", "limit", "ok"),
        ("many_threads_8", "sqlite-async", "ok"),
        ("many_threads_8", "deltastore", "ok"),
    ] == ran
    assert {"langgraph", "lmdb"} <= report["host"]["packages"].keys()
    assert 1 == report["plan"]["seed"]
    limit = report["cells"][0]
    assert 0 < limit["zstd_bytes"] < limit["new_bytes"]
    assert 0 < report["cells"][4]["notes"]["lag_ms"]["samples"]
    told = capsys.readouterr().out
    assert "deltastore" in told
    assert str(out) in told


def test_the_short_comparison_runs_and_finds_every_state_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is the first thing a visitor runs."""
    out = tmp_path / "replay.json"
    given = ["--turns", "3", "--savers", "deltastore,sqlite,memory", "--json", str(out)]
    assert 0 == replay.main(given)
    rows = json.loads(out.read_text())["rows"]
    assert ["chat_plain", "chat_delta", "files"] == [row["workload"] for row in rows][::3]
    assert all(row["equal"] for row in rows)
    assert "every saver ends with the state that was put in" in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv",
    [
        ["run", "--workloads", "chat_plane"],
        ["run", "--savers", "sqlight"],
        ["run", "--turns", "0"],
        ["publish", "--only", "nothing"],
    ],
)
def test_a_name_that_is_none_is_refused(
    argv: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt saver must not come out as one that lost."""
    with pytest.raises(SystemExit) as refused:
        command.main(argv)
    assert 2 == refused.value.code
    assert argv[-1] in capsys.readouterr().err


def test_a_saver_that_cannot_be_imported_is_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After an hour of running would be too late."""
    assert 2 == command.main(["run", "--savers", "import:no_such_module:Saver"])
    assert "no_such_module" in capsys.readouterr().err
