"""What a power cut leaves of each durability, on a recorded trace of what was written and synced.

A program that stores conversations runs under strace. From the record, *crash states* of the data
file are built: cut after some event, every write before the last sync is there, and of those after
it each page is, or is not, by chance. Every state must open, be sound, and hold the front of what
each thread was acknowledged, as far as the durability promises it.

The last page that LMDB writes of a commit goes through a descriptor opened with O_DSYNC; with
"normal" it does not.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deltastore import DeltaStoreSaver
from deltastore.testing import Caller, Lane

PAGE = 4_096
STEPS = 12
CUTS = 60
BACKLOG = 8
THREADS = ("a", "b")

PROGRAM = f"""
import os, sys
from deltastore import DeltaStoreSaver, backlog
from deltastore.testing import Caller, Lane
backlog.WRITES_MAX, backlog.WINDOW_SECONDS = {BACKLOG}, 3_600.0
saver = DeltaStoreSaver(sys.argv[1], durability=sys.argv[2])
lanes = [Lane(Caller(lambda: saver), name) for name in {THREADS!r}]
for step in range(1, {STEPS} + 1):
    for lane in lanes:
        cid = f"{{step:03}}"
        parent = f"{{step - 1:03}}" if step > 1 else None
        lane.put(cid, parent, new={{"x": step}}, values={{"x": ["text " * 300, step]}})
        os.write(1, f"acknowledged {{lane.thread_id}}\\n".encode())
        lane.write(cid, [("y", step)])
        os.write(1, f"acknowledged {{lane.thread_id}}\\n".encode())
os.write(1, b"end\\n")
os._exit(0)  # a killed process: nothing is closed or flushed
"""


class Write(NamedTuple):
    """Bytes written to the data file; durable by themselves if the descriptor says so."""

    at: int
    data: bytes
    is_durable: bool


class Sync(NamedTuple):
    """Everything written before is durable."""


class Acknowledged(NamedTuple):
    """A call on a thread has returned."""

    thread_id: str


Event = Write | Sync | Acknowledged

CALL = re.compile(r"^(\w+)\((\d+)<([^>]*)>(.*)\)\s+= (\d+)")
OPENED = re.compile(r"^openat\(.*O_DSYNC.*\)\s+= (\d+)<([^>]*)>")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


def unhexed(texts: str) -> bytes:
    return bytes.fromhex(texts.replace("\\x", ""))


def is_data_file(path: str) -> bool:
    return unhexed(path).endswith(b"/data.mdb")


def events_of(trace: str) -> Iterator[Event]:
    """Read what strace recorded, calls that overlapped with others put together again."""
    durable: set[str] = set()
    begun: dict[str, str] = {}
    place: dict[str, int] = {}
    for line in trace.splitlines():
        process, _, call = line.partition(" ")
        call = call.strip()
        if call.endswith("<unfinished ...>"):
            begun[process] = call.removesuffix("<unfinished ...>").rstrip()
            continue
        call = re.sub(r"^<\.\.\. \w+ resumed>", lambda _: begun.pop(process), call)  # noqa: B023 - called at once
        opened = OPENED.match(call)
        if opened and is_data_file(opened[2]):
            durable.add(opened[1])
        if (found := CALL.match(call)) is None:
            continue
        name, descriptor, path, rest, result = found.groups()
        data = b"".join(unhexed(text) for text in TEXT.findall(rest))
        if name == "write" and descriptor == "1":
            if data.startswith(b"acknowledged"):
                yield Acknowledged(data.decode().split()[1])
        elif not is_data_file(path):
            continue
        elif name in {"fdatasync", "fsync"}:
            yield Sync()
        elif name == "lseek":
            place[descriptor] = int(result)
        else:
            assert int(result) == len(data)
            at = int(rest.rsplit(",", 1)[1]) if name.startswith("p") else place[descriptor]
            place[descriptor] = at + len(data)
            yield Write(at, data, descriptor in durable)


class Recorded(NamedTuple):
    """A run: the data file before it, and what happened to it."""

    before: bytes
    events: list[Event]


def record(where: Path, durability: str) -> Recorded:
    """Run the program on a store that is there already, so that one file is all it writes."""
    with DeltaStoreSaver(where) as saver:
        saver.setup()
    before = data_file(where).read_bytes()
    trace = where.parent / "trace"
    calls = "trace=openat,lseek,write,writev,pwrite64,pwritev,fdatasync,fsync"
    strace = ["strace", "-f", "-y", "-xx", "-s", "1000000", "-e", calls, "-o", str(trace)]
    program = [sys.executable, "-c", PROGRAM, str(where), durability]
    done = subprocess.run([*strace, *program], stdout=subprocess.PIPE, check=True)
    assert done.stdout.endswith(b"end\n")
    return Recorded(before, [*events_of(trace.read_text())])


def data_file(where: Path) -> Path:
    (found,) = where.glob("**/data.mdb")
    return found


def crash_state(recorded: Recorded, cut: int, chance: random.Random) -> bytes:
    """Return the data file as a power cut after `cut` events may leave it."""
    events = recorded.events[:cut]
    syncs = [at for at, event in enumerate(events) if isinstance(event, Sync)]
    synced = syncs[-1] if syncs else -1
    state = bytearray(recorded.before)
    for at, event in enumerate(events):
        if not isinstance(event, Write):
            continue
        for start in range(0, len(event.data), PAGE):
            if at < synced or event.is_durable or chance.random() < 0.5:
                page = event.data[start : start + PAGE]
                begin = event.at + start
                if len(state) < begin:
                    state.extend(bytes(begin - len(state)))
                state[begin : begin + len(page)] = page
    return bytes(state)


def stored_calls(where: Path) -> dict[str, int]:
    """Open what is left; return how many of its calls each thread holds, front first."""
    with DeltaStoreSaver(where) as saver:
        assert [] == saver.store.verify().damage
        counts = {}
        for thread_id in THREADS:
            lane = Lane(Caller(lambda: saver), thread_id)
            found = {one.checkpoint["id"]: one for one in lane.caller.list(lane.config())}
            steps = sorted(found)
            assert steps == [f"{step:03}" for step in range(1, len(steps) + 1)]
            written = [bool(found[step].pending_writes) for step in steps]
            assert all(written[:-1])
            for step in steps:
                assert ["text " * 300, int(step)] == lane.values(step)["x"]
            counts[thread_id] = len(steps) + sum(written)
        return counts


def lost_at(recorded: Recorded, where: Path, cut: int, chance: random.Random) -> int:
    """Return how many acknowledged calls a power cut loses."""
    data_file(where).write_bytes(crash_state(recorded, cut, chance))
    stored = stored_calls(where)
    acknowledged = dict.fromkeys(THREADS, 0)
    for event in recorded.events[:cut]:
        if isinstance(event, Acknowledged):
            acknowledged[event.thread_id] += 1
    return sum(max(0, acknowledged[name] - stored[name]) for name in THREADS)


def can_trace() -> bool:
    """Whether strace is there and allowed to trace."""
    command = ["strace", "-o", os.devnull, "true"]
    return shutil.which("strace") is not None and subprocess.call(command) == 0


# Acknowledged calls that may be lost: of "normal" the last commit, and each of these calls is one;
# of "relaxed" a backlog that is full and one that is being committed.
ALLOWED = {"full": 0, "normal": 1, "relaxed": 2 * BACKLOG}


@pytest.mark.skipif(not can_trace(), reason="strace is not installed, or may not trace here")
@pytest.mark.parametrize("durability", ALLOWED)
def test_a_power_cut_loses_what_the_durability_says(durability: str, tmp_path: Path) -> None:
    """Never half a call, nor one from the middle; whatever pages of the last commit arrived."""
    recorded = record(tmp_path / "store", durability)
    kinds = {type(event) for event in recorded.events}
    assert {Write, Sync, Acknowledged} == kinds
    chance = random.Random(durability)
    worst = 0
    for _ in range(CUTS):
        cut = chance.randrange(len(recorded.events) + 1)
        worst = max(worst, lost_at(recorded, tmp_path / "store", cut, chance))
    assert worst <= ALLOWED[durability]
    assert (durability == "full") == (worst == 0)


@pytest.mark.skipif(not can_trace(), reason="strace is not installed, or may not trace here")
def test_a_store_that_did_not_sync_would_be_caught(tmp_path: Path) -> None:
    """The same run, as if its syncs had done nothing and no descriptor were durable."""
    recorded = record(tmp_path / "store", "full")
    unsynced: list[Event] = [
        event._replace(is_durable=False) if isinstance(event, Write) else event
        for event in recorded.events
        if not isinstance(event, Sync)
    ]
    chance, faults = random.Random(1), 0
    for _ in range(CUTS):
        cut = chance.randrange(len(unsynced) + 1)
        try:
            faults += 0 < lost_at(
                Recorded(recorded.before, unsynced), tmp_path / "store", cut, chance
            )
        except Exception:  # noqa: BLE001 - whatever a damaged store raises
            faults += 1
    assert 0 < faults


@pytest.mark.parametrize(("durability", "most"), [("full", 0), ("normal", 0), ("relaxed", BACKLOG)])
def test_a_killed_process_loses_what_the_durability_says(
    durability: str, most: int, tmp_path: Path
) -> None:
    """The program ends without closing, as a killed one does."""
    where = tmp_path / "store"
    done: Any = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(where), durability], stdout=subprocess.PIPE, check=True
    )
    acknowledged = done.stdout.decode().count("acknowledged")
    lost = acknowledged - sum(stored_calls(where).values())
    assert 0 <= lost <= most
