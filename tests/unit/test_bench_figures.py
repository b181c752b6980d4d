"""The figures command: the calls it makes up are a graph's, and its bytes add up."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from bench import figures, figures_alone, figures_bytes, figures_cpu
from bench.conversations import get_turns
from bench.figures_alone import Recording, apply_bare, open_bare, record_conversation, scan_store
from bench.figures_puts import Call, Chat, Put, Writes
from bench.figures_written import fill_store
from bench.workloads import WORKLOADS
from deltastore import DeltaStoreSaver
from deltastore.engine.api import KEYS_END
from deltastore.engine.lmdb import LmdbEngine
from deltastore.engine.memory import MemoryEngine
from deltastore.store import Store


class Recorder(InMemorySaver):
    """Notes every put and put_writes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self.calls.append(Put(config, checkpoint, metadata, new_versions))
        return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.calls.append(Writes(config, list(writes), task_id, task_path))
        super().put_writes(config, writes, task_id, task_path)

    def get_next_version(self, current: Any, channel: None) -> str:
        return f"{int((current or '0').split('.')[0]) + 1:032}.{0.5:016}"


def in_common(calls: Iterable[Call]) -> tuple[list[Any], dict[int, Any]]:
    """Return puts in order and writes by checkpoint, without ids, times and fractions."""
    puts: list[Any] = []
    writes: dict[int, Any] = {}
    number: dict[str | None, int] = {None: -1}
    for call in calls:
        if isinstance(call, Put):
            number[call.checkpoint["id"]] = len(number) - 1
    for call in calls:
        at = number[call.config["configurable"].get("checkpoint_id")]
        if isinstance(call, Put):
            kept = {key: value for key, value in call.checkpoint.items() if key not in ("id", "ts")}
            kept["channel_versions"] = counts(kept["channel_versions"])
            kept["versions_seen"] = {
                node: counts(seen) for node, seen in kept["versions_seen"].items()
            }
            puts.append((at, kept, call.metadata, counts(call.new_versions)))
        else:
            writes[at] = (call.writes, call.task_path)
    return puts, writes


def counts(versions: dict[str, str]) -> list[tuple[str, int]]:
    return [(channel, int(version.split(".")[0])) for channel, version in versions.items()]


@pytest.mark.parametrize(("workload", "frequency"), [("chat_delta", 100), ("chat_plain", None)])
def test_made_up_calls_are_those_of_a_graph(workload: str, frequency: int | None) -> None:
    """Figures of thousands of turns are worth what their calls are: 60 turns cross a snapshot."""
    turns, _ = get_turns(60, path=None, seed=1)
    work, saver = WORKLOADS[workload](turns, 1), Recorder()
    graph = work.compile(saver)
    config: Any = {"configurable": {"thread_id": "chat"}, "recursion_limit": 1_000}
    for step in work.steps:
        graph.invoke(step.values, config, context=step.script(), durability="sync")
    made = list(Chat("chat", snapshot_frequency=frequency).calls(turns))
    puts, writes = in_common(saver.calls)
    made_puts, made_writes = in_common(made)
    assert puts == made_puts
    assert writes == made_writes


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the command writes for the shortest threads it takes, each measured twice."""
    file = tmp_path_factory.mktemp("figures") / "report.json"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(figures_cpu, "ROUNDS", 2)
        patched.setattr(figures_alone, "ROUNDS", 2)
        assert 0 == figures.main(["--turns", "10", "--json", str(file)])
    return json.loads(file.read_text())


def test_every_figure_is_measured_and_judged_by_its_target(report: Any) -> None:
    """A figure that silently falls out, or is judged the wrong way round, hides a miss."""
    assert list(figures.FIGURES) == list(report["results"])
    for name, result in report["results"].items():
        has_target = any(figure["met"] is not None for figure in result["figures"])
        assert has_target == (name != "parts")
        for figure in result["figures"]:
            target = figure["target"]
            assert (None if target is None else figure["measured"] <= target) == figure["met"]


@pytest.mark.parametrize("name", ["plain", "delta", "files"])
def test_bytes_of_all_kinds_and_free_pages_fill_the_data_file(report: Any, name: str) -> None:
    """A breakdown that leaves records out would send the search for bytes the wrong way."""
    counts = report["results"][name]["counts"]
    turns, _ = get_turns(10, path=None, seed=1)
    workload = WORKLOADS[figures_bytes.TARGETS[name][0]](turns, 1)
    kinds = counts["kinds"]
    records = sum(key + record for _, key, record in kinds.values())
    assert sum(step.new_bytes for step in workload.steps) == counts["new_bytes"]
    assert counts["disk_bytes"] / counts["new_bytes"] == pytest.approx(
        report["results"][name]["figures"][0]["measured"]
    )
    assert records + counts["free_bytes"] < counts["data_bytes"] < counts["disk_bytes"]
    supersteps = sum(1 + len(step.replies) + (name == "files") for step in workload.steps)
    assert supersteps + 10 == kinds["header whole"][0] + kinds["header difference"][0]
    assert supersteps == kinds["writes"][0]


def test_cpu_figures_are_taken_over_as_much_as_they_claim(report: Any) -> None:
    """A loop that ends early would measure a shorter thread than the target is about."""
    results = report["results"]
    rounds = [30, 30]
    assert rounds == results["overhead"]["counts"]["supersteps_lmdb"]
    assert rounds == results["overhead"]["counts"]["supersteps_memory"]
    turns, _ = get_turns(30, path=None, seed=1)
    near, far = results["head"]["counts"].values()
    assert near["seed_bytes"] > 0 or near["writes"] == sum(1 + len(t.replies) for t in turns)
    assert {"writes": 60, "seed_bytes": 0} == far


def test_bare_transactions_leave_what_the_calls_left(tmp_path: Path) -> None:
    """Bare LMDB that stored less than the calls did would be no measure of them.

    15 turns are two blocks. The calls delete nothing by themselves, so a thread goes too.
    """
    turns, _ = get_turns(15, path=None, seed=1)
    store, bare = tmp_path / "store", tmp_path / "bare"
    held = fill_store(store, turns, 50)
    shutil.copytree(store, bare)
    recorded = record_conversation(store, turns)
    pairs = scan_store(store)
    with open_bare(bare) as environment:
        for transactions in recorded.transactions:
            apply_bare(environment, transactions)
    assert pairs == scan_store(bare)
    engine = Recording(LmdbEngine(store))
    with DeltaStoreSaver.on_store(Store(engine)) as saver:
        saver.delete_thread("other 0")
    with open_bare(bare) as environment:
        apply_bare(environment, engine.take())
    left = scan_store(store)
    assert left == scan_store(bare)
    assert len(left) < len(pairs)
    supersteps = sum(1 + len(turn.replies) for turn in turns)
    assert supersteps == recorded.supersteps
    assert [10, 5] == [len(block) for block in recorded.blocks]
    assert 2 * supersteps + 15 == sum(map(len, recorded.transactions))
    assert held + 2 * supersteps + 15 <= len(pairs)


def test_recorded_transactions_are_those_that_took_effect() -> None:
    """A transaction that is undone and run again, as when the map is full, must count once."""
    engine = Recording(MemoryEngine())
    with pytest.raises(ValueError, match="undone"), engine.begin(write=True) as transaction:
        transaction.put(b"a", b"undone")
        raise ValueError("undone")
    with engine.begin(write=True) as transaction:
        for key in (b"a", b"b", b"c", b"d"):
            transaction.put(key, b"1")
        assert transaction.delete(b"b")
        assert 2 == transaction.delete_range(b"b", b"z", limit=2)
    with engine.begin(write=False) as transaction:
        assert [(b"a", b"1")] == transaction.scan(b"", KEYS_END)
    puts = [(key, b"1") for key in (b"a", b"b", b"c", b"d")]
    assert [[*puts, (b"b", None), (b"c", None), (b"d", None)]] == engine.take()
    assert [] == engine.take()


def test_arguments_that_cannot_be_used_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt name must not come out as a run in which nothing was missed."""
    for argv in (["--only", "plan"], ["--turns", "9"]):
        with pytest.raises(SystemExit) as refused:
            figures.main(argv)
        assert 2 == refused.value.code
        assert argv[1] in capsys.readouterr().err
