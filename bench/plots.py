"""The plots of docs/benchmarks.md. Groups in, files out.

Transparent, with greys and colours that can be read on a light and on a dark page. Each plot is
written as SVG and as PNG.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import matplotlib as mpl

mpl.use("agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bench.summary import Group, pick
from bench.tables import GRAPHS, SAVERS, longest
from bench.text import size

_COLOURS: Final = {
    "deltastore": "#e8590c",
    "sqlite": "#228be6",
    "postgres": "#37a34a",
    "lmdb": "#ae3ec9",
    "memory": "#868e96",
}
_MARKS: Final = {"deltastore": "o", "sqlite": "s", "postgres": "^", "lmdb": "D", "memory": "v"}
_GREY: Final = "#7f8790"
_STYLE: Final = {
    "text.color": _GREY,
    "axes.labelcolor": _GREY,
    "axes.edgecolor": _GREY,
    "axes.titlesize": 11,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _GREY,
    "ytick.color": _GREY,
    "grid.color": _GREY,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "legend.labelcolor": _GREY,
    "font.size": 10,
    "svg.hashsalt": "deltastore",  # the same figures give the same file
    "svg.fonttype": "none",
}
_DPI: Final = 110


def draw_all(groups: Sequence[Group], directory: Path) -> list[Path]:
    """Draw every plot that there are results for; return the files."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, draw in _PLOTS.items():
        with plt.rc_context(_STYLE):
            figure = draw(groups)
            if figure is None:
                continue
            for ending, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": _DPI})):
                file = directory / f"{name}.{ending}"
                figure.savefig(file, transparent=True, bbox_inches="tight", **options)
                written.append(file)
            plt.close(figure)
    return written


def _longest(groups: Sequence[Group], workload: str) -> list[Group]:
    found = [longest(groups, workload, saver) for saver in (*SAVERS, "memory")]
    return [group for group in found if group is not None]


def _line(axes: Any, saver: str, points: Sequence[tuple[float, float]], *, capped: bool) -> None:
    xs, ys = zip(*points, strict=True)
    plain = saver.removesuffix("-async")
    axes.plot(
        xs, ys, color=_COLOURS[plain], marker=_MARKS[plain], markersize=4, linewidth=1.8,
        label=saver,
    )  # fmt: skip
    if capped:
        axes.plot(xs[-1], ys[-1], marker="x", markersize=11, mew=2.2, color=_COLOURS[plain])


_Points = Callable[[Group], list[tuple[float, float]]]


def _two_panels(
    groups: Sequence[Group],
    titles: Mapping[str, str],
    points: _Points,
    label: str,
    unit: Callable[[float, Any], str],
    *,
    with_new_state: bool = False,
) -> Any:
    if not any(_longest(groups, workload) for workload in titles):
        return None
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    for axes, (workload, title) in zip(panels, titles.items(), strict=True):
        found = {group.saver: group for group in _longest(groups, workload)}
        for saver in (*SAVERS, "memory"):
            if saver in found and points(found[saver]):
                _line(axes, saver, points(found[saver]), capped=found[saver].status == "capped")
        if with_new_state and "deltastore" in found:
            marks = found["deltastore"].marks
            axes.plot(
                [turn for turn, _, _ in marks], [new for _, new, _ in marks],
                color=_GREY, linestyle="--", linewidth=1.5, label="new state",
            )  # fmt: skip
        axes.set(xscale="log", yscale="log", title=title, xlabel="turn of the conversation")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(unit))
        axes.yaxis.set_minor_formatter(NullFormatter())
    panels[0].set_ylabel(label)
    shown = {}
    for axes in panels:
        handles, names = axes.get_legend_handles_labels()
        shown.update(zip(names, handles, strict=True))
    figure.legend(shown.values(), shown.keys(), loc="center left", bbox_to_anchor=(0.92, 0.5))
    figure.text(0.5, -0.04, "x: stopped there by its cap", ha="center", fontsize=9)
    return figure


_CALLS: Final = {
    "calls_plain": "plain add_messages channel",
    "calls_delta": "DeltaChannel",
}


def _bytes(groups: Sequence[Group]) -> Any:
    return _two_panels(
        groups,
        _CALLS,
        lambda group: [(turn, found) for turn, _, found in group.marks if found],
        "bytes at rest",
        lambda y, _: size(y),
        with_new_state=True,
    )


def _latency(groups: Sequence[Group]) -> Any:
    return _two_panels(
        groups,
        _CALLS,
        lambda group: [(turn, p50) for turn, p50, _ in group.times("puts_s")],
        "put, p50 of each tenth",
        lambda y, _: f"{y:g} ms",
    )


def _amplification(groups: Sequence[Group]) -> Any:
    rows = [
        (workload, {g.saver: g for g in pick(groups, workload, 100)})
        for workload in GRAPHS
        if list(pick(groups, workload, 100))
    ]
    if not rows:
        return None
    figure, axes = plt.subplots(figsize=(9, 0.72 * len(rows) + 1))
    height = 0.8 / len(SAVERS)
    for place, saver in enumerate(SAVERS):
        ratios = [
            (at, found[saver].over_new("vacuumed_bytes"))
            for at, (_, found) in enumerate(rows)
            if saver in found
        ]
        shown = [(at + (place - 1.5) * height, ratio) for at, ratio in ratios if ratio]
        if not shown:
            continue
        ys, widths = zip(*shown, strict=True)
        axes.barh(
            ys, [w - 0.1 for w in widths], left=0.1, height=height * 0.92,
            color=_COLOURS[saver], label=saver,
        )  # fmt: skip
        for y, width in shown:
            axes.text(width * 1.06, y, f"{width:.3g}", va="center", fontsize=8)
    axes.set(
        xscale="log", xlim=(0.1, None), xlabel="bytes on disk after a vacuum / new state (log)"
    )
    axes.set_title("100 turns; 1 is what the turns add, serialised")
    axes.set_yticks(range(len(rows)), [workload for workload, _ in rows])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.axvline(1, color=_GREY, linewidth=1.2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
    return figure


def _throughput(groups: Sequence[Group]) -> Any:
    found: dict[str, list[tuple[int, Group]]] = {}
    for group in groups:
        if group.workload.startswith("many_threads_") and group.status in ("ok", "capped"):
            found.setdefault(group.saver, []).append((int(group.workload.split("_")[-1]), group))
    savers = [f"{saver}-async" for saver in SAVERS]
    if not any(saver in found for saver in savers):
        return None
    counts = sorted({count for saver in savers for count, _ in found.get(saver, [])})
    figure, (pace, lag) = plt.subplots(1, 2, figsize=(10, 4.2))
    for saver in savers:
        points = sorted(found.get(saver, []), key=lambda one: one[0])
        paces = [(count, g.supersteps_s) for count, g in points if g.supersteps_s]
        lags = [(count, told) for count, g in points if (told := _lag(g)) is not None]
        if paces:
            _line(pace, saver, paces, capped=False)
        if lags:
            _line(lag, saver, lags, capped=False)
    pace.set(ylabel="supersteps per second", title="pace, every commit on disk")
    lag.set(ylabel="p99 of oversleeping 1 ms", title="lag of the event loop")
    for axes in (pace, lag):
        axes.set(xscale="log", yscale="log", xlabel="conversations at once")
        axes.set_xticks(counts, [f"{count:,}" for count in counts])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))  # less than a power of ten
        axes.yaxis.set_minor_formatter(NullFormatter())
    pace.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,g}"))
    lag.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g} ms"))
    lag.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.tight_layout()
    return figure


def _lag(group: Group) -> float | None:
    lags = [
        result["notes"]["lag_ms"]["p99"]
        for result in group.results
        if result.get("notes", {}).get("lag_ms")
    ]
    return median(lags) if lags else None


_PLOTS: Final[Mapping[str, Callable[[Sequence[Group]], Any]]] = {
    "bytes": _bytes,
    "latency": _latency,
    "amplification": _amplification,
    "throughput": _throughput,
}
