"""The tables of docs/benchmarks.md, each made from results alone. Groups in, Markdown lines out.

A run that did not get to its end is marked with how far it came; a ratio of such a run is that of
what was done, which for a saver that grows faster than its input flatters it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, Final

from bench.cell import LIMIT
from bench.fits import exponent
from bench.summary import Group, pick
from bench.text import NONE, markdown, number, size

SAVERS: Final = ("deltastore", "sqlite", "postgres", "lmdb")
GRAPHS: Final = (
    "chat_plain",
    "chat_delta",
    "agent_tools",
    "files",
    "deep_agent_files",
    "fan_out",
    "long_idle",
    "fork_heavy",
    "images",
)
_CALLS: Final = ("calls_plain", "calls_delta")
_LAYERS: Final = (
    ("record_bytes", "records"),
    ("engine_bytes", "to the engine"),
    ("os_bytes", "to the system"),
    ("wal_bytes", "its log"),
    ("file_bytes", "files"),
    ("vacuumed_bytes", "after vacuum"),
)


def _shown(group: Group | None, value: float | None) -> str:
    if group is None:
        return ""
    if group.status in ("unavailable", "failed", "wrong"):
        return group.status
    text = number(value)
    if group.status == "capped":
        done = min(result.get("done") or 0 for result in group.results)
        return f"{text} (at {done:,})"
    return text


def _find(groups: Sequence[Group], workload: str, turns: int, saver: str) -> Group | None:
    return next((g for g in pick(groups, workload, turns) if g.saver == saver), None)


def longest(groups: Sequence[Group], workload: str, saver: str) -> Group | None:
    """Return a saver's longest run of a workload."""
    found = [group for group in pick(groups, workload) if group.saver == saver]
    return max(found, key=lambda group: group.turns, default=None)


def _lengths(groups: Sequence[Group], workload: str) -> list[int]:
    return sorted({group.turns for group in pick(groups, workload)})


def amplification(groups: Sequence[Group]) -> list[str]:
    """Files after a vacuum over new state, workload by workload and saver by saver."""
    rows = []
    for workload in (*GRAPHS, *_CALLS):
        for turns in _lengths(groups, workload):
            limit = _find(groups, workload, turns, LIMIT)
            new = limit.number("new_bytes") if limit else None
            packed = limit.over_new("zstd_bytes") if limit else None
            found = [_find(groups, workload, turns, saver) for saver in SAVERS]
            rows.append(
                [
                    workload,
                    f"{turns:,}",
                    size(new),
                    number(packed),
                    *(_shown(one, one.over_new("vacuumed_bytes") if one else None)
                      for one in found),
                ]
            )  # fmt: skip
    return markdown(("workload", "turns", "new state", "zstd of it", *SAVERS), rows)


def layers(groups: Sequence[Group]) -> list[str]:
    """Bytes over new state at each level on their way, and those fetched by a resume."""
    rows = []
    for workload in ("chat_plain", "chat_delta", "agent_tools", "deep_agent_files", *_CALLS):
        for turns in _lengths(groups, workload):
            for saver in SAVERS:
                group = _find(groups, workload, turns, saver)
                if group is None:
                    continue
                rows.append(
                    [
                        f"{workload} {turns:,}",
                        saver,
                        *(_shown(group, group.over_new(name)) for name, _ in _LAYERS),
                        number(group.read_amplification),
                    ]
                )
    return markdown(("workload", "saver", *(told for _, told in _LAYERS), "read"), rows, texts=2)


def growth(groups: Sequence[Group]) -> list[str]:
    """Exponents of growth of the longest runs."""
    rows = []
    for workload in _CALLS:
        for saver in (*SAVERS, "memory"):
            group = longest(groups, workload, saver)
            if group is None or group.status in ("unavailable", "failed"):
                continue
            rows.append(
                [
                    workload,
                    saver,
                    f"{int(group.number('done') or 0):,} of {group.turns:,}",
                    number(group.bytes_exponent),
                    number(group.time_exponent("puts_s")),
                    number(group.time_exponent("put_writes_s")),
                    number(_resume_exponent(groups, saver)) if workload == "calls_delta" else NONE,
                ]
            )
    heading = ("workload", "saver", "turns", "bytes at rest", "put", "put_writes", "resume")
    return markdown(heading, rows, texts=3)


def _resume_exponent(groups: Sequence[Group], saver: str) -> float | None:
    group = longest(groups, "resume", saver)
    points = group.results[0].get("notes", {}).get("resume_at", []) if group else []
    return exponent([(turn, least) for turn, least, _ in points])


def latency(groups: Sequence[Group]) -> list[str]:
    """Milliseconds of calls in the first and the last tenth of a run, and of a resume."""
    rows = []
    for workload in ("chat_plain", "chat_delta", "agent_tools", *_CALLS):
        for turns in _lengths(groups, workload):
            rows += _floor(_find(groups, workload, turns, LIMIT))
            for saver in (*SAVERS, "memory"):
                group = _find(groups, workload, turns, saver)
                if group is None or not group.times("puts_s"):
                    continue
                puts, writes = group.times("puts_s"), group.times("put_writes_s")
                gets, histories = group.times("gets_s"), group.times("histories_s")
                rows.append(
                    [
                        f"{workload} {turns:,}",
                        saver,
                        number(puts[0][1]),
                        _shown(group, puts[-1][1]),
                        number(puts[-1][2]),
                        number(writes[-1][1] if writes else None),
                        number(writes[-1][2] if writes else None),
                        number(gets[-1][1] if gets else None),
                        number(histories[-1][1] if histories else None),
                        number(group.resume_ms),
                    ]
                )
    heading = (
        *("workload", "saver", "put p50, first tenth", "last tenth", "p99", "put_writes p50"),
        *("p99", "get p50", "history p50", "resume"),
    )
    return markdown(heading, rows, texts=2)


def _floor(limit: Group | None) -> list[list[str]]:
    """Return the row of a raw log: one append and one fdatasync of each turn's new state."""
    if limit is None or "append_ms" not in limit.results[0]:
        return []
    p50, p99 = limit.results[0]["append_ms"]
    name = f"{limit.workload} {limit.turns:,}"
    return [[name, "append, fdatasync", NONE, number(p50), number(p99), *[NONE] * 5]]


def cost(groups: Sequence[Group]) -> list[str]:
    """CPU, memory and pace of graphs."""
    rows = []
    for workload in ("chat_plain", "chat_delta", "agent_tools"):
        for turns in _lengths(groups, workload):
            for saver in (*SAVERS, "memory"):
                group = _find(groups, workload, turns, saver)
                if group is None or group.status in ("unavailable", "failed"):
                    continue
                cpu = group.per_superstep("cpu_s")
                rows.append(
                    [
                        f"{workload} {turns:,}",
                        saver,
                        number(cpu * 1e3 if cpu else None),
                        _shown(group, group.supersteps_s),
                        size(group.number("rss_peak")),
                        size(group.number("anonymous")),
                        size(group.number("server_rss")),
                    ]
                )
    heading = (
        *("workload", "saver", "CPU ms per superstep", "supersteps/s", "peak RSS"),
        *("anonymous memory", "server"),
    )
    return markdown(heading, rows, texts=2)


def throughput(groups: Sequence[Group]) -> list[str]:
    """Supersteps per second and loop lag by conversations at once."""
    rows = []
    found = [group for group in groups if group.workload.startswith("many_threads_")]
    for group in sorted(found, key=_at_once):
        if group.saver == LIMIT:
            continue
        lags = [r["notes"]["lag_ms"] for r in group.results if r.get("notes", {}).get("lag_ms")]
        puts = group.times("puts_s")
        rows.append(
            [
                group.workload.rsplit("_", 1)[1],
                group.saver,
                _shown(group, group.supersteps_s),
                number(puts[-1][1] if puts else None),
                number(puts[-1][2] if puts else None),
                *(number(median(lag[name] for lag in lags)) if lags else NONE
                  for name in ("p50", "p99", "p999")),
                number(group.over_new("os_bytes")),
            ]
        )  # fmt: skip
    heading = (
        *("conversations", "saver", "supersteps/s", "put p50 ms", "p99"),
        *("lag p50 ms", "p99", "p99.9", "bytes to the system / new state"),
    )
    return markdown(heading, rows, texts=2)


def _at_once(group: Group) -> tuple[int, bool, str]:
    return int(group.workload.rsplit("_", 1)[1]), not group.saver.endswith("-async"), group.saver


def durability(groups: Sequence[Group]) -> list[str]:
    """What each durability mode of deltastore costs."""
    rows = []
    for group in pick(groups, "chat_delta"):
        if not group.saver.startswith("deltastore") or group.turns != 100:
            continue
        puts, writes = group.times("puts_s"), group.times("put_writes_s")
        rows.append(
            [
                group.saver,
                number(median(one[1] for one in puts)),
                number(max(one[2] for one in puts)),
                number(median(one[1] for one in writes)),
                number(group.supersteps_s),
                number(group.over_new("os_bytes")),
            ]
        )
    heading = ("saver", "put p50 ms", "p99", "put_writes p50", "supersteps/s", "to the system")
    return markdown(heading, rows)


def looking_back(groups: Sequence[Group]) -> list[str]:
    """Listing, past states and resumes of a long thread."""
    rows = []
    for saver in (*SAVERS, "memory"):
        history = next((g for g in pick(groups, "history") if g.saver == saver), None)
        resume = next((g for g in pick(groups, "resume") if g.saver == saver), None)
        if history is None:
            continue
        told = [r["notes"]["history"] for r in history.results if r.get("notes", {}).get("history")]
        at = [r["notes"]["resume_at"] for r in (resume.results if resume else ())
              if r.get("notes", {}).get("resume_at")]  # fmt: skip
        rows.append(
            [
                saver,
                *(number(median(one[name] for one in told)) if told else NONE
                  for name in ("list10_ms", "list_all_ms", "past_tuple_ms", "past_state_ms")),
                *(number(median(_resumed(one, turn) for one in at)) if at else NONE
                  for turn in (100, 500, 1_000)),
            ]
        )  # fmt: skip
    heading = (
        *("saver", "list(limit=10) ms", "list all", "past tuple", "past state"),
        *("resume at 100", "at 500", "at 1,000"),
    )
    return markdown(heading, rows)


def _resumed(points: Sequence[Sequence[float]], turn: int) -> float:
    return next((middle for at, _, middle in points if at == turn), points[-1][2])


def maintenance(groups: Sequence[Group]) -> list[str]:
    """Copy, prune and delete, and the files they leave."""
    rows = []
    for group in pick(groups, "prune_copy"):
        told = [r["notes"]["maintenance"] for r in group.results
                if r.get("notes", {}).get("maintenance")]  # fmt: skip
        if not told:
            continue
        rows.append(
            [
                group.saver,
                *(
                    number(median(one[name]["ms"] for one in told))
                    if "ms" in told[0][name]
                    else "refused"
                    for name in ("copy", "prune", "delete")
                ),
                size(group.number("file_bytes")),
                size(group.number("after_bytes")),
                size(group.number("vacuumed_bytes")),
            ]
        )
    heading = ("saver", "copy ms", "prune ms", "delete ms", "files before", "after", "vacuumed")
    return markdown(heading, rows)


def breakdown(groups: Sequence[Group]) -> list[str]:
    """What deltastore stores for one superstep, in bytes, keys included, after a vacuum or not."""
    columns = []
    for workload in ("chat_plain", "chat_delta", "agent_tools", "deep_agent_files"):
        for turns in _lengths(groups, workload)[-1:]:
            group = _find(groups, workload, turns, "deltastore")
            if group is not None and group.status == "ok":
                columns.append((workload, turns, group.results[0]))
    names = sorted({name for _, _, result in columns for name in result["breakdown"]["kinds"]})
    rows = [[name, *(_kind(result, name) for _, _, result in columns)] for name in names]
    for label, value in _PAGES.items():
        rows.append(
            [label, *(number(value(result) / result["supersteps"]) for _, _, result in columns)]
        )
    rows.append(["new state", *(number(r["new_bytes"] / r["supersteps"]) for _, _, r in columns)])
    heading = ("bytes per superstep", *(f"{workload} {turns:,}" for workload, turns, _ in columns))
    return markdown(heading, rows)


def _kind(result: Mapping[str, Any], name: str) -> str:
    found = result["breakdown"]["kinds"].get(name)
    return number((found[1] + found[2]) / result["supersteps"]) if found else NONE


def _records(result: Mapping[str, Any]) -> int:
    return sum(key + record for _, key, record in result["breakdown"]["kinds"].values())


_PAGES: Final[Mapping[str, Callable[[Mapping[str, Any]], float]]] = {
    "all records": _records,
    "pages beside records": lambda r: (
        r["breakdown"]["stat"]["file_bytes"] - r["breakdown"]["stat"]["free_bytes"] - _records(r)
    ),
    "free pages": lambda r: r["breakdown"]["stat"]["free_bytes"],
    "table of readers, other files": lambda r: (
        r["file_bytes"] - r["breakdown"]["stat"]["file_bytes"]
    ),
    "files": lambda r: r["file_bytes"],
    "files after a vacuum": lambda r: r["vacuumed_bytes"],
}


def unfinished(groups: Sequence[Group]) -> list[str]:
    """Every run that did not get to its end, and why."""
    rows = [
        [group.workload, f"{group.turns:,}", group.saver, group.done]
        for group in groups
        if group.status != "ok"
    ]
    return markdown(("workload", "turns", "saver", "what became of it"), rows, texts=4)


def runs(reports: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The runs, when they were made and how busy the machine was."""
    rows = []
    for report in reports.values():
        loads = sorted(cell["load"] for cell in report["cells"])
        rows.append(
            [
                f"`{report['command']}`",
                report["begun"][:16].replace("T", " "),
                str(report["plan"]["repeats"]),
                f"{report['plan']['cap_seconds']:.0f} s",
                f"{loads[0]:.1f} to {loads[-1]:.1f}",
                f"{report['host']['fdatasync_ms']:.2f}",
            ]
        )
    heading = ("command", "begun (UTC)", "repeats", "cap", "load", "least fdatasync, ms")
    return markdown(heading, rows)


def host(reports: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Machine and versions, from the last of the runs."""
    last = list(reports.values())[-1]["host"]
    packages = ", ".join(f"{name} {told}" for name, told in last["packages"].items() if told)
    text = (
        f"{last['cpus']} cores ({last['cpu']}), {last['memory_bytes'] / 1e9:.0f} GB, "
        f"{last['system'].split()[0]}, {last['file_system']}; Python {last['python']}, SQLite "
        f"{last['sqlite']}, CRC by {last['crc']}; {packages}."
    )
    return [text]
