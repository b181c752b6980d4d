"""Small stores whose ids and times are the same in every run, and a way to run commands on them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from deltastore import DeltaStoreSaver, Store
from deltastore.cli.program import main
from deltastore.ids import uuid6_from_ulid
from deltastore.testing import make_checkpoint, make_config

RUN = "1f0d6ac6-0000-6000-8000-00000000000"
DAY_MS = 86_400_000
BEGIN_MS = 1_736_496_000_000  # 2025-01-10, 08:00 UTC: older than any test is run
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
    """Make what docs/cli.md speaks of: `state`, `long`, `secret` and `notes.txt`."""
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
    (where / "notes.txt").write_text("no store\n")


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Run a command in this process; return its exit code and what it printed."""
    try:
        code = main(argv)
    except SystemExit as ended:
        code = int(ended.code or 0)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


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
