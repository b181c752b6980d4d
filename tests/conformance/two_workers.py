"""Two workers on one thread: savers on either engine, and processes that wait for each other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from deltastore import DeltaStoreSaver, Store, StoreOptions
from deltastore.engine.memory import MemoryEngine

ROOT = Path(__file__).parents[2]
ENGINES = ("lmdb", "memory")


def open_two(kind: str, where: Path, **options: Any) -> tuple[DeltaStoreSaver, DeltaStoreSaver]:
    """Return two savers on one store: on disk two openings, in memory two stores on an engine."""
    if kind == "lmdb":
        return DeltaStoreSaver(where / "s", **options), DeltaStoreSaver(where / "s", **options)
    engine = MemoryEngine()
    stores = [Store(engine, StoreOptions(**options)) for _ in range(2)]
    return DeltaStoreSaver.on_store(stores[0]), DeltaStoreSaver.on_store(stores[1])


class Workers:
    """Child processes that print a line when they are ready, and go on when they read one.

    Args:
        program: Run in each, with the arguments as `sys.argv[1:]`.
    """

    def __init__(self, program: str, arguments: list[list[str]]) -> None:
        self._children = [
            subprocess.Popen(
                [sys.executable, "-c", program, *each],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            for each in arguments
        ]

    def wait_ready(self) -> None:
        """Return when every child has said that it is ready."""
        for child in self._children:
            assert child.stdout is not None
            assert "ready" == child.stdout.readline().strip()

    def go(self) -> list[str]:
        """Let all go on at once; return the last line each printed."""
        for child in self._children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        said = [child.communicate(timeout=120)[0].strip() for child in self._children]
        assert [0] * len(said) == [child.returncode for child in self._children]
        return said
