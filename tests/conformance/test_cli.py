"""The command line on stores on disk: what docs/cli.md shows is what it prints and does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deltastore import DeltaStoreSaver
from deltastore.testing import make_checkpoint, make_config
from tests.conformance.cli_stores import (
    CONSOLE,
    RUN,
    contents_at,
    document_of,
    imports_of_its_own,
    make_stores,
    run,
    transcript,
)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text("utf-8")
VERBS = [
    *("info", "threads", "history", "compact", "vacuum", "prune", "copy", "delete"),
    *("verify", "backup", "restore", "repair", "doctor"),
    *("check-reducer", "check-graph"),
]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A working directory with what the page speaks of."""
    make_stores(tmp_path)
    with imports_of_its_own(tmp_path):
        yield tmp_path


# --- the page ---


def masked(text: str) -> str:
    """Return output with sizes and sums masked: they depend on zstd's release and the page size."""
    text = re.sub(r"(?<![\w.:-])\d{3,}(?![\w.:-])", "N", text)
    text = re.sub(r"\b0x[0-9a-f]{8}\b", "SUM", text)
    return re.sub(r"[ -]*  +", " ", text)


@pytest.mark.damaged  # it shows what damage looks like
def test_the_page_shows_what_the_commands_print(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its blocks are run in order on one small store; sizes alone may differ from host to host."""
    blocks = CONSOLE.findall(PAGE)
    assert len(blocks) > len(VERBS)
    for block in blocks:
        assert masked(block) == masked(transcript(capsys, block))


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_of_a_verb_is_on_the_page(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option that only `--help` knows is found by nobody; one that is gone misleads."""
    code, out, err = run(capsys, verb, "--help")
    assert (0, "") == (code, err)
    section = PAGE.partition(f"\n## {verb}\n")[2].partition("\n## ")[0]
    offered = set(re.findall(r"--[a-z-]+", out)) - {"--help", "--json"}
    assert offered == set(re.findall(r"--[a-z-]+", CONSOLE.sub("", section))) - {"--json"}


# --- answers ---


def test_info_counts_threads_and_names_the_newest_activity(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first question about a store that grew."""
    found = document_of(capsys, "info", "state")
    assert (1, 2, "2025-01-11T08:00:07.500Z") == (
        found["format"],
        found["threads"],
        found["newest_activity"],
    )
    assert 0 < found["entries"]
    assert 0 <= found["free_bytes"] < found["file_bytes"]


def test_threads_are_listed_newest_first_with_the_sizes_of_their_records(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever looks for what fills the disk needs the sizes, of encrypted stores too."""
    found = document_of(capsys, "threads", "state")
    assert ["bert", "anna"] == [one["thread_id"] for one in found["threads"]]
    assert [1, 2] == [one["namespaces"] for one in found["threads"]]
    with DeltaStoreSaver("state", read_only=True) as saver:
        sizes = [saver.store.thread_bytes(name) for name in ("bert", "anna")]
    assert sizes == [(one["records"], one["bytes"]) for one in found["threads"]]
    assert 0 < min(map(min, sizes))
    assert ["anna"] == [
        one["thread_id"] for one in document_of(capsys, "threads", "secret")["threads"]
    ]


def test_a_cut_list_says_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A list that ends in silence is taken for the whole; a pipe must still get the list alone."""
    code, out, err = run(capsys, "threads", "state", "--limit", "1")
    assert (0, 2) == (code, len(out.splitlines()))
    assert "deltastore: there are more than 1 threads; --limit N lists N\n" == err
    code, out, err = run(capsys, "history", "state", "bert", "--limit", "2")
    last = out.splitlines()[-1].split()[0]
    assert f"deltastore: there are older ones; --before {last} lists them\n" == err
    code, out, err = run(capsys, "history", "state", "bert", "--before", last)
    assert (0, 5, "") == (code, len(out.splitlines()), err)
    assert (0, "") == run(capsys, "threads", "state", "--limit", "2")[::2]


def test_history_lists_what_the_store_lists(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the store's order, every namespace or one; parents, steps and runs belong to their ids."""
    listed = contents_at(here / "state")["anna"]
    found = document_of(capsys, "history", "state", "anna")["checkpoints"]
    assert listed == [(one["namespace"], one["checkpoint_id"], one["parent_id"]) for one in found]
    root = document_of(capsys, "history", "state", "anna", "--namespace", "")["checkpoints"]
    assert [one for one in found if one["namespace"] == ""] == root
    assert [2, 1, 0, -1] == [one["step"] for one in root]
    assert ["loop", "input", "loop", "input"] == [one["source"] for one in root]
    assert [f"{RUN}2", f"{RUN}2", f"{RUN}1", f"{RUN}1"] == [one["run_id"] for one in root]
    assert "2025-01-10T08:00:04.500Z" == root[0]["time"]


def test_ids_without_a_time_and_odd_metadata_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any text may be an id, and metadata may hold anything; neither may reach a terminal raw."""
    thread = "a\x1b[2Jb\n\u202e[bold]"
    metadata: Any = {"source": "x\ty", "step": None, "run_id": {"a": 1}}
    with DeltaStoreSaver(tmp_path / "odd") as saver:
        saver.put(make_config(thread), make_checkpoint("id\n1", {}, {}), metadata, {})
    code, out, err = run(capsys, "history", str(tmp_path / "odd"), thread)
    assert (0, "") == (code, err)
    assert ["id\\n1", "-", "-", "x\\ty", "-", "-"] == out.splitlines()[1].split()
    code, out, err = run(capsys, "threads", str(tmp_path / "odd"))
    assert out.splitlines()[1].endswith("  a\\x1b[2Jb\\n\\u202e[bold]")
    found = document_of(capsys, "history", str(tmp_path / "odd"), thread)
    assert (thread, "id\n1", "x\ty") == (
        found["thread_id"],
        found["checkpoints"][0]["checkpoint_id"],
        found["checkpoints"][0]["source"],
    )


# --- damage ---


@pytest.mark.damaged
@pytest.mark.parametrize("level", [[], ["--level", "records"], ["--level", "references"]])
def test_verify_tells_damage_by_its_exit_code_and_names_it(
    here: Path, capsys: pytest.CaptureFixture[str], level: list[str]
) -> None:
    """A nightly job looks at the code, and somebody at the names."""
    assert 0 == run(capsys, "verify", "state", *level)[0]
    code, out, err = run(capsys, "verify", "broken", "--json", *level)
    assert (5, "") == (code, err)
    found = json.loads(out)["damage"]
    assert {("anna", "", "header")} == {
        (one["thread_id"], one["namespace"], one["kind"]) for one in found
    }
    assert 4 == run(capsys, "history", "secret", "anna")[0]
    assert 0 == run(capsys, "verify", "secret")[0]


@pytest.mark.damaged
def test_repair_tells_what_it_lost_by_its_exit_code(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 only where nothing was."""
    assert 0 == run(capsys, "repair", "state", "same")[0]
    assert contents_at(here / "state") == contents_at(here / "same")
    code, out, _ = run(capsys, "repair", "broken", "less", "--json")
    report = json.loads(out)
    assert (5, 2, 2) == (code, report["checkpoints"], len(report["lost"]))
    assert 2 == len(contents_at(here / "less")["anna"])


def test_a_backup_restored_is_the_store(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of encrypted ones too: no record is opened."""
    for name in ("state", "secret"):
        made = document_of(capsys, "backup", name, f"{name}.bak")
        assert made["records"] == document_of(capsys, "info", name)["entries"]
        document_of(capsys, "restore", f"{name}.bak", f"{name}.new")
    assert contents_at(here / "state") == contents_at(here / "state.new")
    assert 2 == document_of(capsys, "delete", "secret.new", "--thread", "anna")["checkpoints"]


def test_doctor_tells_facts_and_what_to_do(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Facts to the answer, what to do beside it."""
    (here / "state").chmod(0o755)
    code, out, err = run(capsys, "doctor", "state")
    assert 0 == code
    assert "directory mode   755" in out.splitlines()
    assert "deltastore: warning: others may look into it" in err
    code, out, err = run(capsys, "doctor", "state", "--json")
    found = json.loads(out)
    assert "755" == found["directory_mode"]
    assert found["map"]["entries"] == document_of(capsys, "info", "state")["entries"]
    assert 1 <= len(found["warnings"])


# --- what goes ---


@pytest.mark.parametrize(
    ("argv", "left"),
    [
        (["prune", "state", "bert"], {"anna": 6, "bert": 1}),
        (["prune", "state", "bert", "--keep-last", "4"], {"anna": 6, "bert": 4}),
        (["prune", "state", "bert", "--older-than", "36500d"], {"anna": 6, "bert": 6}),
        (["prune", "state", "--all-threads", "--older-than", "1h"], {"anna": 3, "bert": 1}),
        (["prune", "state", "anna", "bert", "anna"], {"anna": 3, "bert": 1}),
        (["delete", "state", "--thread", "anna"], {"bert": 6}),
        (["delete", "state", "--thread", "anna", "--thread", "bert"], {}),
        (["delete", "state", "--run", f"{RUN}1"], {"anna": 2, "bert": 6}),
        (["delete", "state", "--run", f"{RUN}5", "--refuse"], {"anna": 6, "bert": 4}),
        (["delete", "state", "--run", f"{RUN}2", "--run", f"{RUN}4"], {"anna": 4, "bert": 4}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_dry_run_tells_what_is_then_done(
    here: Path, capsys: pytest.CaptureFixture[str], argv: list[str], left: dict[str, int]
) -> None:
    """It is what one decides by, so it must change nothing and tell the ids."""
    before = contents_at(here / "state")
    plan = document_of(capsys, *argv, "--dry-run")
    assert before == contents_at(here / "state")
    done = document_of(capsys, *argv)
    assert {**plan, "dry_run": False} == done
    after = contents_at(here / "state")
    assert left == {thread_id: len(rows) for thread_id, rows in after.items()}
    dropped = {
        (thread["thread_id"], stream["namespace"], one)
        for thread in done["threads"]
        for stream in thread["namespaces"]
        for one in stream["dropped"]
    }
    assert dropped == ids_of(before) - ids_of(after)
    assert len(dropped) == done["checkpoints"]


def ids_of(found: dict[str, list[tuple[str, str, str | None]]]) -> set[tuple[str, str, str]]:
    return {(thread, row[0], row[1]) for thread, rows in found.items() for row in rows}


@pytest.mark.parametrize(("flags", "left"), [([], 6), (["--heads-only"], 3)])
def test_a_copy_is_the_thread_or_what_pruning_would_keep(
    here: Path, capsys: pytest.CaptureFixture[str], flags: list[str], left: int
) -> None:
    """Under the same ids, so that what is known of the one can be looked up in the other."""
    report = document_of(capsys, "copy", "state", "anna", "new", *flags)
    copied = contents_at(here / "state")["new"]
    assert (left, left) == (report["checkpoints"], len(copied))
    document_of(capsys, "prune", "state", *(["anna"] if flags else ["bert"]))
    assert contents_at(here / "state")["anna"] == copied


def test_vacuum_makes_the_file_shorter_and_changes_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The space that pruning freed is what an operator runs it for."""
    document_of(capsys, "prune", "long", "carl")
    before = contents_at(here / "long")
    report = document_of(capsys, "vacuum", "long", "--secure")
    assert report["bytes_after"] < report["bytes_before"]
    assert report["bytes_after"] == document_of(capsys, "info", "long")["file_bytes"]
    assert before == contents_at(here / "long")


def test_compact_stores_what_its_plan_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And finds nothing left to do when it is run again, but for channels it has no reducer for."""
    argv = ["compact", "long", "carl", "--updates", "3"]
    plan = document_of(capsys, *argv, "--dry-run")
    assert plan == document_of(capsys, *argv, "--dry-run")
    assert {**plan, "dry_run": False} == document_of(capsys, *argv)
    assert 0 < plan["snapshots"]
    again = document_of(capsys, *argv)
    assert 0 == again["snapshots"]
    assert [one for one in plan["channels"] if one["skipped"]] == again["channels"]


def test_threads_of_an_encrypted_store_can_be_deleted(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No key is needed to let go of everything."""
    assert 2 == document_of(capsys, "delete", "secret", "--thread", "anna")["checkpoints"]
    assert [] == document_of(capsys, "threads", "secret")["threads"]
