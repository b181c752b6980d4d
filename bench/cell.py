"""Measure one cell: one saver at one workload of one length, in a process of its own.

    python -m bench.cell < cell.json

Reads a cell as JSON from standard input; writes one JSON object a line to standard output: how far
it is, and at last the result. It stops by itself at its caps of time, memory and bytes on disk and
then tells what it had measured; `bench.runner` starts it, and kills it if it does not stop.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, perf_counter, process_time
from typing import Any, Final

import zstandard

from bench import kinds_postgres
from bench.breakdown import scan_store
from bench.conversations import get_turns
from bench.drives import Task
from bench.fits import milestones, quantile
from bench.graphs import serialised
from bench.host import anonymous_bytes, check_written, peak_rss_bytes, written_bytes
from bench.kinds import Place, SaverKind, SaverUnavailableError
from bench.savers import get_kind
from bench.server import running_server, why_unavailable
from bench.stage import Stage, run_to_end
from bench.timed import Times
from bench.workloads import CATALOGUE

LIMIT: Final = "limit"
"""Name of no saver, under which the physical limits are measured."""

ZSTD_LEVEL: Final = 3
_RESUMES = 5
_CHECK_EVERY_S = 1.0
_CALLS = ("puts_s", "put_writes_s", "gets_s", "histories_s")


@dataclass(frozen=True, slots=True)
class Cell:
    """What to measure.

    Attributes:
        scratch: Directory to make the store in; removed at the end.
        cap_seconds, cap_memory_bytes, cap_disk_bytes: Where to stop.
    """

    workload: str
    saver: str
    turns: int
    repeat: int
    seed: int
    data: str | None
    scratch: str
    cap_seconds: float
    cap_memory_bytes: int
    cap_disk_bytes: int


class Meter:
    """Watches one run: times in ten blocks, bytes at milestones, and the caps."""

    def __init__(self, cell: Cell, stage: Stage, task: Task) -> None:
        self._cell = cell
        self._stage = stage
        self._new = task.new
        self._total = len(task.new)
        self._marks_at = set(milestones(self._total))
        self._block_ends = {self._total * block // 10 for block in range(1, 10)} | {self._total}
        self._checked = self._told = monotonic()
        self._new_bytes = 0
        self.done = 0
        self.supersteps = 0
        self.checkpoints = 0
        self.blocks: list[dict[str, Any]] = []
        self.marks: list[list[int]] = []
        self.reason = ""

    def unit(self) -> bool:
        """Note that a unit is done; return whether to go on."""
        self._new_bytes += len(self._new[self.done])
        self.done += 1
        if self.done in self._block_ends:
            self.end_block()
        if self.done in self._marks_at:
            self.mark()
        now = monotonic()
        if now - self._told > 1:
            self._told = now
            tell({"done": self.done, "of": self._total})
        if now - self._checked > _CHECK_EVERY_S:
            self._checked = now
            self._check_sizes()
        if self._stage.expired and self.done < self._total:
            self.reason = f"time: {self._cell.cap_seconds:.0f} s"
        return not self.reason

    def mark(self) -> None:
        """Note the bytes at this point: turn, new state, files or tables."""
        if not self.marks or self.marks[-1][0] != self.done:
            self.marks.append([self.done, self._new_bytes, self._bytes_now()])

    def _bytes_now(self) -> int:
        return self._stage.kind.file_bytes(self._stage.place)

    def _check_sizes(self) -> None:
        if anonymous_bytes() > self._cell.cap_memory_bytes:
            self.reason = f"memory: {self._cell.cap_memory_bytes / 1e9:.1f} GB"
        elif self._bytes_now() > self._cell.cap_disk_bytes:
            self.reason = f"disk: {self._cell.cap_disk_bytes / 1e9:.1f} GB"

    def end_block(self) -> None:
        """Sum up the calls since the last block ended."""
        times = self._stage.saver.take_times()
        self.supersteps += times.supersteps
        self.checkpoints += times.checkpoints
        self.blocks.append({"to": self.done, **{name: _summary(times, name) for name in _CALLS}})

    @property
    def new_bytes(self) -> int:
        """New state of what was done, in bytes."""
        return self._new_bytes


def _summary(times: Times, name: str) -> list[float] | None:
    taken = sorted(getattr(times, name))
    if not taken:
        return None
    return [len(taken), quantile(taken, 0.5) * 1e3, quantile(taken, 0.99) * 1e3]


async def measure(cell: Cell, kind: SaverKind, task: Task, place: Place) -> dict[str, Any]:
    """Drive the task and return all that was measured on the way."""
    known = check_written(place.directory)
    stage = Stage(kind, place, monotonic() + cell.cap_seconds)
    meter = Meter(cell, stage, task)
    await stage.open()  # makes the store
    stage.saver.take_times()
    gc.collect()
    gc.freeze()  # as servers do: else each full collection walks all that imports left
    account = Account(place)
    begun, cpu = perf_counter(), account.cpu_s()
    driving = task.drive(stage)
    async for _ in driving:
        if not meter.unit():
            break
    await driving.aclose()  # type: ignore[attr-defined]
    if not meter.blocks or meter.blocks[-1]["to"] != meter.done:
        meter.end_block()
    meter.mark()
    wall_s, cpu_s = perf_counter() - begun, account.cpu_s() - cpu
    memory = {"rss_peak": peak_rss_bytes(), "anonymous": anonymous_bytes(), **account.memory()}
    if not meter.reason and stage.expired:
        meter.reason = f"time: {cell.cap_seconds:.0f} s"
    await stage.close()
    sizes = account.sizes(kind)
    result = {
        "status": "capped" if meter.reason else "ok",
        "reason": meter.reason,
        "units": len(task.new),
        "done": meter.done,
        "supersteps": meter.supersteps,
        "checkpoints": meter.checkpoints,
        "new_bytes": meter.new_bytes,
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        **memory,
        **sizes,
        "known_write": known,
        "engine_bytes": stage.tally.handed if stage.tally.counted else None,
        "blocks": meter.blocks,
        "marks": meter.marks,
    }
    if kind.persistent:
        result["resume"] = await _resume(stage, task, meter)
    if not meter.reason:
        result["equal"] = bool(await task.load(stage) == task.final)
        await task.after(stage)
    result["notes"] = stage.notes
    await stage.close()
    result.update(_at_rest(kind, place))
    return result


async def _resume(stage: Stage, task: Task, meter: Meter) -> dict[str, Any]:
    """Open anew and load the newest state, several times; leave the saver open."""
    taken, state, fetched = [], None, 0
    for _ in range(_RESUMES):
        await stage.close()
        gc.collect()
        begun = perf_counter()
        await stage.open()
        state = await task.load(stage)
        taken.append((perf_counter() - begun) * 1e3)
        fetched = stage.fetched
        if taken[0] > 20_000:
            break
    counted = stage.tally.counted and not meter.reason
    return {
        "turn": meter.done,
        "ms": sorted(taken),
        "state_bytes": len(serialised(state)),
        "read_bytes": fetched if counted else None,
    }


class Account:
    """What the process, and its server, wrote and used since this was made."""

    def __init__(self, place: Place) -> None:
        self._server = place.server
        self._place = place
        self._wal = kinds_postgres.postgres_wal_position(self._server) if self._server else 0
        self._written = self._server.written() if self._server else written_bytes()

    def cpu_s(self) -> float:
        """Return CPU seconds used so far, by the server too."""
        return process_time() + (self._server.cpu_s() if self._server else 0.0)

    def memory(self) -> dict[str, int]:
        """Return what the server holds."""
        return {"server_rss": self._server.rss()} if self._server else {}

    def sizes(self, kind: SaverKind) -> dict[str, Any]:
        """Return the bytes written since, and those at rest; the saver is closed."""
        found: dict[str, Any] = {"file_bytes": kind.file_bytes(self._place)}
        if self._server is None:
            found["os_bytes"] = written_bytes() - self._written if kind.persistent else None
        else:
            position = kinds_postgres.postgres_wal_position(self._server)
            found["wal_bytes"] = position - self._wal
            kinds_postgres.postgres_checkpoint(self._server)
            found["os_bytes"] = self._server.written() - self._written
        return found


def _at_rest(kind: SaverKind, place: Place) -> dict[str, Any]:
    """Return the sizes of what lies in the closed store, before and after a vacuum."""
    found: dict[str, Any] = {"after_bytes": kind.file_bytes(place)}
    if kind.record_bytes is not None:
        found["record_bytes"] = kind.record_bytes(place)
    if kind.name.startswith("deltastore") and not kind.on_server:
        found["breakdown"] = _breakdown(place)
    if kind.vacuum is not None:
        kind.vacuum(place)
        found["vacuumed_bytes"] = kind.file_bytes(place)
    return found


def _breakdown(place: Place) -> dict[str, Any]:
    found = scan_store(place.directory)
    return {
        "kinds": {
            name: [kind.records, kind.key_bytes, kind.record_bytes]
            for name, kind in sorted(found.kinds.items())
        },
        "stat": asdict(found.stat),
    }


def measure_limit(task: Task, directory: Path) -> dict[str, Any]:
    """Return what no store can beat: appending the new state raw, synced, and compressing it whole.

    Each unit's new state is one append and one fdatasync.
    """
    taken = []
    handle = os.open(directory / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        for new in task.new:
            begun = perf_counter()
            os.write(handle, new)
            os.fdatasync(handle)
            taken.append((perf_counter() - begun) * 1e3)
    finally:
        os.close(handle)
    taken.sort()
    whole = b"".join(task.new)
    return {
        "status": "ok",
        "units": len(task.new),
        "done": len(task.new),
        "new_bytes": len(whole),
        "zstd_bytes": len(zstandard.compress(whole, ZSTD_LEVEL)),
        "append_ms": [quantile(taken, 0.5), quantile(taken, 0.99)],
    }


def run(cell: Cell) -> dict[str, Any]:
    """Return the result of a cell; whatever goes wrong is a result too."""
    try:
        turns, source = get_turns(
            cell.turns, path=Path(cell.data) if cell.data else None, seed=cell.seed
        )
        task = CATALOGUE[cell.workload].make(turns, cell.seed)
        if cell.saver == LIMIT:
            return measure_limit(task, Path(cell.scratch))
        kind = get_kind(cell.saver)
        if kind.on_server and (why := why_unavailable()):
            raise SaverUnavailableError(why)
        directory = Path(cell.scratch)
        with ExitStack() as open_things:
            server = None
            if kind.on_server:
                server = open_things.enter_context(running_server(directory / "server"))
            store = directory / "store"
            store.mkdir()
            place = Place(store, server, task.counted)
            result = run_to_end(measure(cell, kind, task, place), is_async=kind.is_async)
        result["source"] = source
        if result.get("equal") is False:
            result["status"], result["reason"] = "wrong", "another state than was put in"
        return result
    except SaverUnavailableError as error:
        return {"status": "unavailable", "reason": str(error)}
    except MemoryError:
        return {"status": "capped", "reason": f"memory: {cell.cap_memory_bytes / 1e9:.1f} GB"}
    except Exception as error:  # noqa: BLE001 - a saver that fails is a result, and is shown as one
        lines = traceback.format_exc().splitlines()
        return {
            "status": "failed",
            "reason": f"{type(error).__name__}: {error}"[:300],
            "where": lines[-12:],
        }


def _limit_memory(most: int) -> None:
    # Anonymous memory alone: an LMDB map takes address space, not memory.
    resource.setrlimit(resource.RLIMIT_DATA, (2 * most, 2 * most))


def tell(message: Mapping[str, Any]) -> None:
    """Write one line for the runner."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run the command; return its exit code."""
    # Ends in order, so that a server is stopped: by the `finally`s on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    cell = Cell(**json.load(sys.stdin))
    scratch = Path(cell.scratch)
    scratch.mkdir(mode=0o711)
    tempfile.tempdir = cell.scratch
    _limit_memory(cell.cap_memory_bytes)
    try:
        tell({"result": run(cell)})
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
