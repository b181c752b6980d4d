"""Damage to bytes in use: told by an error that names it, and never a wrong answer, nor a crash.

Each probe is read by a forked process, whose exit status tells if damage ended it.
"""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from deltastore import DeltaStoreError, DeltaStoreSaver, repair, verify_path
from tests.conformance.cli_stores import BEGIN_MS, RUN, put_line
from tests.crash import damaged_files
from tests.crash.damaged_files import ask, damage, live_ranges
from tests.crash.test_lmdb_engine import Child, no_child_outlives_its_test

__all__ = ["no_child_outlives_its_test"]

pytestmark = pytest.mark.damaged

SEED = 20_261_201
PROBES = 200
REPAIRED_EVERY = 16
NAMES = re.compile(r"record '?[0-9a-f]{4}|thread '|page \d|data\.mdb|keys out of order|keys were")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    damaged_files.STREAMS.clear()
    with DeltaStoreSaver(path) as saver:
        for number in (1, 2, 3):
            runs = [f"{RUN}{number}"] * 6
            for namespace in ("", "sub"):
                more = "x" * 900 * number
                ids = put_line(saver, f"t{number}", BEGIN_MS, runs, namespace, more=more)
                damaged_files.STREAMS.append((f"t{number}", namespace, ids))
        saver.prune(["t3"], keep_last=4)
    return path


def probe(path: Path) -> tuple[int, dict[tuple[str, ...], str], list[str]]:
    """Read a store in a process of its own; return its exit status and what it was told."""

    def work(pipe: Connection) -> None:
        pipe.send(ask(path))

    child = Child(work)
    answers, errors = child.receive() if child.pipe.poll(20) else ({}, ["hang"])
    return child.wait(), answers, errors


def test_damage_to_live_bytes_is_told_and_never_a_wrong_answer(store: Path, tmp_path: Path) -> None:
    """0 wrong, 0 lost in silence, 0 crashes; 95 % of it answered by an error that names a place.

    A part of the damaged files is repaired: what that keeps reads as before, or says that it does
    not.
    """
    print("seed", SEED)  # noqa: T201 - shown with a failure
    rng = random.Random(SEED)
    right, errors = ask(store)
    assert [] == errors
    file = store / "000001" / "data.mdb"
    data = file.read_bytes()
    live = live_ranges(data)
    outcomes: Counter[str] = Counter()
    for number in range(PROBES):
        kind, bad = damage(data, live, rng)
        file.write_bytes(bad)
        status, answers, errors = probe(store)
        assert 0 == status, (number, kind)
        for question, answer in answers.items():
            assert right[question] == answer, (number, kind, question)
        assert errors or right == answers, (number, kind, "lost in silence")
        named = errors and all(NAMES.search(error) for error in errors)
        outcomes["named" if named else "unnamed" if errors else "right"] += 1
        if number % REPAIRED_EVERY == 0:
            outcomes[check_repair(store, tmp_path / "repaired", right)] += 1
    print(outcomes)  # noqa: T201 - shown with a failure
    assert outcomes["named"] >= 0.95 * PROBES
    assert 0 < outcomes["repaired"]


def check_repair(path: Path, target: Path, right: dict[tuple[str, ...], str]) -> str:
    """Repair a damaged store; check that what was kept is what was, and that losses are told."""
    try:
        report = repair(path, target)
    except DeltaStoreError:
        assert not target.exists()
        return "not repaired"
    assert verify_path(target).is_sound
    answers, errors = ask(target)
    undone = any("last commit" in one.message for one in report.lost)
    kept = {question: answer for question, answer in answers.items() if answer != "None"}
    for question, answer in kept.items():
        if question[0] in ("get", "history"):
            assert undone or right[question] == answer or answer == EMPTY, (question, report.lost)
    assert report.lost or (right == answers and [] == errors)
    shutil.rmtree(target)
    return "repaired"


EMPTY = "{'log': {'writes': []}}"  # of an id that is not stored
