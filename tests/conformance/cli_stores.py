"""Small stores whose ids and times are the same in every run, and ways to run commands on them."""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from deltastore import DeltaStoreSaver, Store
from deltastore.cli.program import main
from deltastore.engine.lmdb import LmdbEngine
from deltastore.ids import uuid6_from_ulid
from deltastore.testing import make_checkpoint, make_config

CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN = "1f0d6ac6-0000-6000-8000-00000000000"
DAY_MS = 86_400_000
BEGIN_MS = 1_736_496_000_000  # 2025-01-10, 08:00 UTC: older than any test is run
APP = """\
import operator
from typing import Annotated

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict


def keep_last(state: list[str], writes: list[list[str]]) -> list[str]:
    return [*state, *(line for write in writes for line in write)][-3:]


def cut_first(state: list[str], writes: list[list[str]]) -> list[str]:
    return [*state[-3:], *(line for write in writes for line in write)]


class Inner(TypedDict):
    notes: Annotated[list[str], DeltaChannel(cut_first)]


class Outer(TypedDict):
    lines: Annotated[list[str], DeltaChannel(keep_last)]
    count: Annotated[int, operator.add]


inner = StateGraph(Inner).add_node("take", lambda state: {}).add_edge(START, "take").compile()
graph = StateGraph(Outer).add_node("research", inner).add_edge(START, "research").compile()
"""
"""What the verbs that open no store are shown on, a reducer right and one wrong."""
LONG = "".join(map(chr, random.Random(1).choices(range(97, 123), k=1_000)))


def checkpoint_id(ms: int) -> str:
    """Return an id as LangGraph makes them, of a time and nothing random."""
    return uuid6_from_ulid((ms << 80 | 1 << 52 | 0xABCD << 4).to_bytes(16, "big"))


def put_line(
    saver: DeltaStoreSaver,
    thread_id: str,
    begin_ms: int,
    runs: list[str],
    namespace: str = "",
    *,
    more: str = "",
) -> list[str]:
    """Store a turn of an input and a step for each run, a line of checkpoints; return their ids.

    One channel shows its value; of the other only the writes are stored, as of a delta channel.
    """
    lines: list[str] = []
    ids: list[str] = []
    for step in range(2 * len(runs)):
        run = runs[step // 2]
        lines = [*lines, f"line {step} of {thread_id}{more}"]
        ids.append(checkpoint_id(begin_ms + step * 1_500))
        config: Any = make_config(thread_id, namespace, ids[-2] if step else None)
        config["metadata"] = {"run_id": run}
        metadata: Any = {"source": "loop" if step % 2 else "input", "step": step - 1}
        new: Any = {"lines": step + 1, "log": step + 1}
        saver.put(config, make_checkpoint(ids[-1], new, {"lines": lines}), metadata, new)
        config = make_config(thread_id, namespace, ids[-1])
        config["metadata"] = {"run_id": run}
        saver.put_writes(config, [("log", f"step {step}")], f"task {step}", "")
    return ids


def make_stores(where: Path) -> None:
    """Make what docs/cli.md speaks of: stores, a damaged one, a file that is none, and `app.py`."""
    with DeltaStoreSaver(where / "state") as saver:
        put_line(saver, "anna", BEGIN_MS, [f"{RUN}1", f"{RUN}2"])
        put_line(saver, "anna", BEGIN_MS + 2_000, [f"{RUN}1"], "research:1")
        put_line(saver, "bert", BEGIN_MS + DAY_MS, [f"{RUN}3", f"{RUN}4", f"{RUN}5"])
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"sixteen byte key")
    with DeltaStoreSaver(where / "secret", serde=serde) as saver:
        put_line(saver, "anna", BEGIN_MS, [f"{RUN}1"])
    with DeltaStoreSaver(where / "long") as saver:
        runs = [f"{RUN}{digit}" for digit in "123456"]
        put_line(saver, "carl", BEGIN_MS, runs, more=": " + LONG)
    with DeltaStoreSaver(where / "broken") as saver:
        put_line(saver, "anna", BEGIN_MS, [f"{RUN}1", f"{RUN}2"])
    damage_record(where / "broken", -4)
    (where / "notes.txt").write_text("no store\n")
    (where / "app.py").write_text(APP, "utf-8")


@contextmanager
def imports_of_its_own(where: Path) -> Iterator[None]:
    """Work in a directory for a block; what is imported from there is forgotten at its end."""
    before = Path.cwd()
    kept = sys.path, sys.dont_write_bytecode
    # A module written twice in a second has bytecode that looks up to date, and is not.
    sys.path, sys.dont_write_bytecode = [*sys.path], True
    os.chdir(where)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        os.chdir(before)
        sys.path, sys.dont_write_bytecode = kept
        for name, module in [*sys.modules.items()]:
            if Path(getattr(module, "__file__", None) or "").is_relative_to(where):
                del sys.modules[name]


def damage_record(path: Path, place: int) -> None:
    """Flip a bit in a record of the log, below the store."""
    engine = LmdbEngine(path)
    with engine.begin(write=True) as txn:
        key, record = txn.scan(b"\x10", b"\x11")[place]
        txn.put(key, record[:20] + bytes([record[20] ^ 1]) + record[21:])
    engine.close()


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Run a command in this process; return its exit code and what it printed."""
    try:
        code = main(argv)
    except SystemExit as ended:
        code = int(ended.code or 0)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def transcript(capsys: pytest.CaptureFixture[str], shown: str) -> str:
    """Run the commands of a console block and return it with what they print now."""
    lines: list[str] = []
    code = 0
    for line in shown.splitlines():
        if not line.startswith("$ "):
            continue
        lines.append(line)
        program, *argv = shlex.split(line[2:])
        if (program, argv) == ("echo", ["$?"]):
            lines.append(str(code))
        elif program == "cat":
            lines += Path(*argv).read_text("utf-8").splitlines()
        else:
            assert "deltastore" == program
            code, out, err = run(capsys, *argv)
            lines += (out + err).splitlines()
    return "\n".join(lines) + "\n"


def document_of(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    """Run a command that must succeed with `--json`; return the document."""
    code, out, err = run(capsys, *argv, "--json")
    assert (0, "") == (code, err)
    return json.loads(out)


def contents(store: Store) -> dict[str, list[tuple[str, str, str | None]]]:
    """Return every checkpoint of a store, by thread."""
    return {
        thread.thread_id: [
            (one.checkpoint_ns, one.checkpoint_id, one.parent_id)
            for one in store.checkpoints(thread.thread_id)
        ]
        for thread in store.threads().threads
    }


def contents_at(path: Path) -> dict[str, list[tuple[str, str, str | None]]]:
    with DeltaStoreSaver(path, read_only=True) as saver:
        return contents(saver.store)
