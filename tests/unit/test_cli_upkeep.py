"""What `compact` and `vacuum` ask of the store and show of its answer, whatever it then does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deltastore import DeltaStoreSaver, Store
from deltastore.cli.program import main
from deltastore.options import SnapshotBounds
from deltastore.plans import ChannelPlan, CompactionPlan, VacuumReport
from deltastore.testing import make_checkpoint, make_config

PLAN = CompactionPlan(
    (
        ChannelPlan("anna", "", "messages", 2, 0, "", 300, 4_096),
        ChannelPlan("anna", "sub", "log", 0, 0, "no reducer", 77, 0),
    )
)
REPORT = VacuumReport(2, 40_960, 20_480, 16_384)


class Stub:
    """Stands in for a method of the store; remembers what it was called with."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, ...]] = []

    def method(self) -> Callable[..., object]:
        def called(store: Store, *args: object, **options: object) -> object:
            progress = options.pop("progress")
            assert callable(progress)
            progress(1, 2)
            self.asked.append((store.options.read_only, *args, options))
            return self.answer

        return called


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A store with a thread `anna`."""
    with DeltaStoreSaver(tmp_path / "state") as saver:
        saver.put(make_config("anna"), make_checkpoint("a", {}, {}), {}, {})
    return str(tmp_path / "state")


@pytest.fixture
def compact(monkeypatch: pytest.MonkeyPatch) -> Stub:
    stub = Stub(PLAN)
    monkeypatch.setattr(Store, "compact", stub.method())
    return stub


@pytest.mark.parametrize(
    ("argv", "asked"),
    [
        ([], (False, None, SnapshotBounds(), {"dry_run": False})),
        (["--dry-run"], (True, None, SnapshotBounds(), {"dry_run": True})),
        (
            ["anna", "--updates", "5", "--supersteps", "none", "--ratio", "0.5"],
            (
                False,
                "anna",
                SnapshotBounds(updates=5, supersteps=None, ratio=0.5),
                {"dry_run": False},
            ),
        ),
    ],
)
def test_compact_asks_with_the_bounds_given(
    path: str, compact: Stub, argv: list[str], asked: tuple[Any, ...]
) -> None:
    """What is not given is what a store is opened with by default."""
    assert 0 == main(["compact", path, *argv])
    assert [asked] == compact.asked


def test_compact_shows_each_channel_beyond_its_bounds(
    path: str, compact: Stub, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those left as they are, too, and why."""
    assert 0 == main(["compact", path, "--dry-run"])
    assert [
        "chain max  snapshots  folded  bytes  skipped     thread id  namespace  channel",
        "      300          2       0   4096  -           anna                  messages",
        "       77          0       0      0  no reducer  anna       sub        log",
        f"dry run: {PLAN}",
    ] == capsys.readouterr().out.splitlines()
    assert 0 == main(["compact", path, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert (False, 2, 4_096) == (document["dry_run"], document["snapshots"], document["bytes"])
    assert {"updates": 200, "supersteps": 5_000, "ratio": 1.0} == document["bounds"]
    assert [None, "no reducer"] == [one["skipped"] for one in document["channels"]]


@pytest.mark.parametrize(("argv", "secure"), [([], False), (["--secure"], True)])
def test_vacuum_shows_the_sizes_before_and_after(
    path: str,
    argv: list[str],
    secure: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whether it was worth it."""
    stub = Stub(REPORT)
    monkeypatch.setattr(Store, "vacuum", stub.method())
    assert 0 == main(["vacuum", path, *argv])
    assert [(False, {"secure": secure})] == stub.asked
    assert [
        "generation         2",
        "bytes before       40960",
        "free bytes before  16384",
        "bytes after        20480",
    ] == capsys.readouterr().out.splitlines()
