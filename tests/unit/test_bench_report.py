"""The published page and its plots are made from results alone, and their arithmetic is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import compare, plots, publish, report
from bench.fits import exponent, milestones, quantile
from bench.summary import Group, groups_of
from bench.text import number
from bench.workloads import CATALOGUE


def cell(saver: str, **changed: Any) -> dict[str, Any]:
    """Return a result as `bench.cell` tells it, of 100 turns that grow with their square."""
    turns = milestones(100)
    return {
        "workload": "calls_plain",
        "saver": saver,
        "turns": 100,
        "repeat": 0,
        "load": 1.0,
        "status": "ok",
        "reason": "",
        "units": 100,
        "done": 100,
        "supersteps": 300,
        "new_bytes": 1_000,
        "record_bytes": 2_000,
        "engine_bytes": 3_000,
        "os_bytes": 9_000,
        "file_bytes": 5_000,
        "vacuumed_bytes": 4_000,
        "wall_s": 3.0,
        "cpu_s": 0.6,
        "blocks": [
            {
                "to": 10 * block,
                "puts_s": [30, float(10 * block - 5), 100.0],
                "put_writes_s": [30, 0.5, 1.0],
                "gets_s": None,
                "histories_s": None,
            }
            for block in range(1, 11)
        ],
        "marks": [[turn, 10 * turn, 7 * turn**2] for turn in turns],
        "resume": {"turn": 100, "ms": [1.0, 2.0, 9.0], "state_bytes": 500, "read_bytes": 250},
        "notes": {},
        **changed,
    }


def group(*cells: dict[str, Any]) -> Group:
    (found,) = groups_of([{"cells": cells}])
    return found


@pytest.mark.parametrize("power", [0.0, 1.0, 1.5, 2.0])
def test_the_exponent_of_a_power_is_that_power(power: float) -> None:
    """The growth table is this number."""
    points = [(float(x), 3.0 * x**power) for x in milestones(5_000)]
    assert power == pytest.approx(exponent(points))


def test_an_exponent_is_that_of_the_end_and_not_of_the_empty_store() -> None:
    """A store of 100 kB that grows by 1 kB a turn is linear, which its beginning hides."""
    points = [(float(x), 100.0 + x) for x in milestones(100_000)]
    fitted, whole = exponent(points), exponent(points, decades=5)
    assert fitted is not None
    assert whole is not None
    assert 1.0 == pytest.approx(fitted, abs=0.02)
    assert whole < 0.9


@pytest.mark.parametrize(
    "points", [[], [(1.0, 1.0), (2.0, 2.0)], [(5.0, 1.0)] * 3, [(1.0, 0.0)] * 5]
)
def test_too_few_points_have_no_exponent(points: list[tuple[float, float]]) -> None:
    """A slope through one point would be invented."""
    assert exponent(points) is None


def test_quantiles_are_numbers_that_were_measured() -> None:
    """Nearest rank: no value between two is made up."""
    ordered = [float(x) for x in range(1, 101)]
    assert (50.0, 99.0, 100.0) == tuple(quantile(ordered, share) for share in (0.5, 0.99, 0.999))
    assert 7.0 == quantile([7.0], 0.5)


def test_figures_of_a_group_are_those_of_its_cells() -> None:
    """Ratios are over new state, repeats are summed up by their median."""
    one = group(cell("a"), cell("a", vacuumed_bytes=2_000, repeat=1), cell("a", repeat=2))
    assert (4.0, 2.0, 9.0) == tuple(
        one.over_new(name) for name in ("vacuumed_bytes", "record_bytes", "os_bytes")
    )
    assert 2.0 == one.resume_ms
    assert 0.5 == one.read_amplification
    assert 100.0 == one.supersteps_s
    assert 2.0 == pytest.approx(one.bytes_exponent)
    assert (5.0, 5.0, 100.0) == one.times("puts_s")[0]
    assert 1.0 == pytest.approx(one.time_exponent("puts_s"), abs=0.01)
    assert "" == one.done


@pytest.mark.parametrize(
    ("status", "reason", "told"),
    [
        ("capped", "time: 9 s", "capped at 40 of 100 (time: 9 s)"),
        ("failed", "OSError: full", "failed: OSError: full"),
        ("wrong", "another state than was put in", "wrong: another state than was put in"),
        ("unavailable", "not available: x", "unavailable: not available: x"),
    ],
)
def test_a_run_without_an_end_is_never_shown_as_one_with(
    status: str, reason: str, told: str
) -> None:
    """One bad repeat among good ones is enough."""
    bad = cell("sqlite", status=status, reason=reason, done=40, repeat=1)
    assert told == group(cell("sqlite"), bad).done
    reports = {"x": made(cell("deltastore"), cell("sqlite"), bad)}
    tables = report.make_tables(reports)
    assert any(told in line for line in tables["unfinished"])
    (line,) = (line for line in tables["amplification"] if "calls_plain" in line)
    assert ("(at 40)" if status == "capped" else f"| {status} |") in line
    assert "| 4.00 |" in line  # the other saver's, untouched


def made(*cells: dict[str, Any]) -> dict[str, Any]:
    host = {"cpus": 2, "cpu": "x", "memory_bytes": 1, "system": "Linux 1", "file_system": "ext4"}
    told = {"python": "3", "sqlite": "3", "crc": "c", "packages": {}, "fdatasync_ms": 0.1}
    return {
        "command": "run",
        "begun": "2026-01-01T00:00:00+00:00",
        "plan": {"repeats": 1, "cap_seconds": 1.0},
        "host": {**host, **told},
        "cells": list(cells),
    }


def test_tables_are_put_between_their_marks_and_nothing_else_changes() -> None:
    """What was written by hand stays, the first time and every time after."""
    page = "a\n<!-- table: x -->\n<!-- end -->\nb\n<!-- table: y -->\n<!-- end -->\nc\n"
    filled = report.fill(page, {"x": ["| 1 |"], "y": ["| 2 |"]})
    assert ["a", "b", "c"] == [line for line in filled.split("\n") if line in "abc" and line]
    assert filled.index("| 1 |") < filled.index("b\n") < filled.index("| 2 |") < filled.index("c\n")
    assert filled == report.fill(filled, {"x": ["| 1 |"], "y": ["| 2 |"]})
    assert page == report.fill(filled, {"x": [], "y": []}).replace("\n\n\n\n", "\n")
    with pytest.raises(KeyError):
        report.fill(page, {"x": []})


def test_the_published_page_is_what_the_published_results_make() -> None:
    """A figure changed by hand, or results without their tables, would be a claim of nobody's."""
    page = publish.PAGE.read_text(encoding="utf-8")
    assert report.fill(page, report.make_tables(report.read_reports(publish.RESULTS))) == page


def test_everything_published_is_a_set_that_one_command_runs_again() -> None:
    """A file of results without its command could not be made again."""
    reports = report.read_reports(publish.RESULTS)
    assert reports.keys() <= publish.SETS.keys()
    for name, told in reports.items():
        assert f"python -m bench publish --only {name}" == told["command"]
    assert {workload for plan in publish.SETS.values() for workload in plan.workloads} <= (
        CATALOGUE.keys()
    )


def test_plots_are_drawn_of_what_there_is(tmp_path: Path) -> None:
    """Each as SVG and PNG; none where nothing was measured."""
    drawn = plots.draw_all(groups_of([made(cell("deltastore"), cell("sqlite"))]), tmp_path)
    assert {"bytes.svg", "bytes.png", "latency.svg", "latency.png"} == {f.name for f in drawn}
    assert all(file.stat().st_size > 1_000 for file in drawn)
    assert "deltastore" in (tmp_path / "bytes.svg").read_text()
    assert [] == plots.draw_all([], tmp_path / "none")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (1.354, "1.35"),
        (12.34, "12.3"),
        (2278.7, "2,279"),
        (0.0349, "0.035"),
    ],
)
def test_numbers_show_three_figures(value: float | None, text: str) -> None:
    """More would be noise, fewer would hide a tenth."""
    assert text == number(value)


def test_a_comparison_reports_and_does_not_judge_noise(tmp_path: Path) -> None:
    """Within the noise it is the same; what is gone or new is named."""
    files = []
    for name, least in (("base", 1e-6), ("new", 2e-6)):
        stats = {"min": least, "median": least, "iqr": 0.0}
        noisy = {"min": 1e-6 if name == "base" else 1.3e-6, "median": 1e-6, "iqr": 0.5e-6}
        told = [
            {"fullname": "t::slower", "stats": stats},
            {"fullname": "t::noisy", "stats": noisy},
            {"fullname": f"t::only_{name}", "stats": stats},
        ]
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps({"benchmarks": told}))
    lines = compare.lines_of(*files)
    verdicts = {line.split()[0]: line for line in lines[1:]}
    assert verdicts["t::slower"].endswith("SLOWER")
    assert verdicts["t::noisy"].endswith("same")
    assert "only in the base" in verdicts["t::only_base"]
    assert "only in the new" in verdicts["t::only_new"]
