"""Make the tables and plots of docs/benchmarks.md from the files of results.

    python -m bench report

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; everything else on the page is
written by hand and stays. A page that names a table nobody makes is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench import plots, tables
from bench.summary import groups_of

_MARKED: Final = re.compile(
    r"(<!-- table: (\S+) -->\n)(?:(?!<!-- end -->).)*(<!-- end -->)", re.DOTALL
)


def read_reports(results: Path) -> dict[str, Any]:
    """Return the reports of a directory by the names of their files, in order of their making."""
    found = {
        file.stem: json.loads(file.read_text(encoding="utf-8")) for file in results.glob("*.json")
    }
    return dict(sorted(found.items(), key=lambda one: one[1]["begun"]))


def make_tables(reports: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return every table by name."""
    groups = groups_of(reports.values())
    return {
        **{
            make.__name__: make(groups)
            for make in (
                tables.amplification,
                tables.layers,
                tables.growth,
                tables.latency,
                tables.cost,
                tables.throughput,
                tables.durability,
                tables.looking_back,
                tables.maintenance,
                tables.breakdown,
                tables.unfinished,
            )
        },
        "runs": tables.runs(reports),
        "host": tables.host(reports),
    }


def fill(page: str, made: Mapping[str, list[str]]) -> str:
    """Return the page with its tables.

    Raises:
        KeyError: The page names a table that is not made.
    """

    def table(found: re.Match[str]) -> str:
        begin, name, end = found.groups()
        return begin + "\n" + "\n".join(made[name]) + "\n\n" + end

    return _MARKED.sub(table, page)


def run(results: Path, page: Path, directory: Path) -> int:
    """Write the tables into the page and draw the plots; return an exit code."""
    reports = read_reports(results)
    if not reports:
        print(f"no results in {results}; make them with python -m bench publish")
        return 2
    page.write_text(fill(page.read_text(encoding="utf-8"), make_tables(reports)), encoding="utf-8")
    drawn = plots.draw_all(groups_of(reports.values()), directory)
    print(f"{page}: tables of {', '.join(reports)}; {len(drawn)} files in {directory}")
    return 0
