"""Run the saver suite on three savers and write what it says into docs/guides/saver-suite.md.

    python tools/make_saver_table.py             # writes the table
    python tools/make_saver_table.py --check     # writes nothing; exit code 1 if it would change

The table stands between two markers; everything around it is written by hand. It holds outcomes and
versions, no times. Syncing is turned off in the savers on disk: no law is about a power cut.
"""

from __future__ import annotations

import argparse
import os
import re
import sqlite3
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiosqlite
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from deltastore import DeltaStoreSaver
from deltastore.testing import Saver
from deltastore.testing.retention_calls import REDUCERS
from deltastore.testing.saver_report import MAINTENANCE, report_on
from deltastore.testing.saver_suite import SaverSuite, StrictSaverSuite
from deltastore.testing.saver_verdicts import FAILED, GRAVEST_FIRST, SaverReport
from deltastore.testing.suite_calls import FACES

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "saver-suite.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
DEADLINE_S = 10.0


class InMemory(StrictSaverSuite):
    """LangGraph's in-memory saver."""

    persistent = False

    def open(self, where: Path) -> Saver:
        return InMemorySaver()


class Sqlite(StrictSaverSuite):
    """LangGraph's saver on SQLite: one class for each face."""

    def open(self, where: Path) -> Saver:
        connection = sqlite3.connect(where / "checkpoints.db", check_same_thread=False)
        connection.execute("PRAGMA synchronous=OFF")
        return SqliteSaver(connection)

    async def open_async(self, where: Path) -> Saver:
        connection = await aiosqlite.connect(where / "checkpoints.db")
        await connection.execute("PRAGMA synchronous=OFF")
        return AsyncSqliteSaver(connection)

    def close(self, saver: Any) -> Any:
        return saver.conn.close()


class DeltaStore(StrictSaverSuite):
    """This package's saver."""

    def open(self, where: Path) -> Saver:
        return DeltaStoreSaver(where / "store", durability="normal")

    def open_folding(self, where: Path) -> Saver:
        """As `open`, for the laws of compaction."""
        return DeltaStoreSaver(where / "store", durability="normal", reducers=REDUCERS)


SAVERS: dict[str, type[SaverSuite]] = {
    f"InMemorySaver {version('langgraph-checkpoint')}": InMemory,
    f"SqliteSaver, AsyncSqliteSaver {version('langgraph-checkpoint-sqlite')}": Sqlite,
    "DeltaStoreSaver": DeltaStore,
}


def cells(report: SaverReport) -> list[tuple[str, str]]:
    """Return the rows of one saver: a law, or a method of maintenance, and what is told of it.

    One word if it is the same on both faces; of a method's laws the gravest.
    """
    outcomes: dict[str, dict[str, list[str]]] = {}
    for law in report.laws:
        row = law.subject if law.subject.startswith(MAINTENANCE) else law.law
        for face in FACES:
            by_face = outcomes.setdefault(row, {})
            by_face.setdefault(face, []).append(law.verdicts[face].outcome)
    rows = []
    for row, by_face in outcomes.items():
        sync, other = (min(by_face[face], key=GRAVEST_FIRST.index) for face in FACES)
        rows.append((row, sync if sync == other else f"sync {sync}, async {other}"))
    return [(row, told.replace(FAILED, f"**{FAILED}**")) for row, told in rows]


def table(reports: Sequence[SaverReport]) -> str:
    """Return the table of several reports on the same laws."""
    subjects = {law.law: law.subject for law in reports[0].laws}
    rows = [["law", *SAVERS], ["---"] * (1 + len(SAVERS))]
    subject = ""
    for told in zip(*(cells(report) for report in reports), strict=True):
        law = told[0][0]
        if subjects.get(law, MAINTENANCE) != subject:
            subject = subjects.get(law, MAINTENANCE)
            rows.append([f"**{subject}**", *[""] * len(reports)])
        rows.append([law, *(one for _, one in told)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def published(text: str) -> dict[tuple[str, str], str]:
    """Return, by law and saver, what a guide's table says."""
    lines = text.partition(BEGIN)[2].partition(END)[0].strip().split("\n")
    rows = [[one.strip() for one in line.strip("|").split("|")] for line in lines]
    found: dict[tuple[str, str], str] = {}
    for law, *cells in rows[2:]:
        for saver, told in zip(rows[0][1:], cells, strict=True):
            if told:
                found[law, saver] = told
    return found


def written(text: str, made: str) -> str:
    """Return a guide with its table replaced."""
    between = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    return between.sub(lambda _: f"{BEGIN}\n{made}\n{END}", text)


def main(arguments: Sequence[str]) -> int:
    """Write the table, or check it; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if it would change")
    asked = parser.parse_args(arguments)
    reports = []
    for name, suite in SAVERS.items():
        reports.append(report_on(suite, deadline_s=DEADLINE_S))
        print(f"{name}: {len(reports[-1].failed)} failed")
    before = GUIDE.read_text("utf-8")
    after = written(before, table(reports))
    if not asked.check:
        GUIDE.write_text(after, "utf-8")
    return int(asked.check and before != after)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # SqliteSaver leaves threads that hang, and they would keep this process
