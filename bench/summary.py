"""Results read back: cells grouped by what they measured, and the figures made of them.

A *group* is the repeats of one saver at one workload of one length. Of its repeats, bytes are the
median (they hardly differ) and times the median of the repeats' medians; no repeat is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.fits import exponent

Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Group:
    """All repeats of one cell; `results` holds at least one."""

    workload: str
    turns: int
    saver: str
    results: Sequence[Result]

    @property
    def status(self) -> str:
        """The worst of the repeats: wrong, failed, unavailable, capped or ok."""
        seen = {result["status"] for result in self.results}
        for status in ("wrong", "failed", "unavailable", "capped"):
            if status in seen:
                return status
        return "ok"

    @property
    def reason(self) -> str:
        """Why it is not ok."""
        return next((r["reason"] for r in self.results if r["status"] == self.status), "")

    def number(self, name: str) -> float | None:
        """Return the median of a figure over the repeats that have it."""
        found = [result[name] for result in self.results if result.get(name) is not None]
        return median(found) if found else None

    def over_new(self, name: str) -> float | None:
        """Return a figure of bytes over the new state of what was done."""
        ratios = [
            result[name] / result["new_bytes"]
            for result in self.results
            if result.get(name) is not None and result.get("new_bytes")
        ]
        return median(ratios) if ratios else None

    def per_superstep(self, name: str) -> float | None:
        """Return a figure over the supersteps that were done."""
        found = [
            result[name] / result["supersteps"]
            for result in self.results
            if result.get(name) is not None and result.get("supersteps")
        ]
        return median(found) if found else None

    def times(self, call: str) -> list[tuple[float, float, float]]:
        """Return for each tenth of the run: turn in its middle, p50 and p99 in milliseconds."""
        found = []
        blocks = [result["blocks"] for result in self.results if result.get("blocks")]
        for place in range(min(map(len, blocks), default=0)):
            taken = [one[place][call] for one in blocks if one[place].get(call)]
            if not taken:
                continue
            begin = blocks[0][place - 1]["to"] if place else 0
            middle = (begin + blocks[0][place]["to"]) / 2
            found.append((middle, median(t[1] for t in taken), median(t[2] for t in taken)))
        return found

    @property
    def marks(self) -> list[tuple[float, float, float]]:
        """Turn, new state and bytes at rest at that turn, of the first repeat that tells."""
        told = next((result["marks"] for result in self.results if result.get("marks")), [])
        return [(turn, new, size) for turn, new, size in told]

    @property
    def bytes_exponent(self) -> float | None:
        """How bytes at rest grow with turns, over the last power of ten; None if none rest."""
        return exponent([(turn, size) for turn, _, size in self.marks])

    def time_exponent(self, call: str) -> float | None:
        """How the median time of a call grows with the turn it is made in."""
        return exponent([(turn, p50) for turn, p50, _ in self.times(call)])

    @property
    def resume_ms(self) -> float | None:
        """Opening and loading the newest state: the median of the repeats' medians."""
        found = [median(r["resume"]["ms"]) for r in self.results if r.get("resume")]
        return median(found) if found else None

    @property
    def read_amplification(self) -> float | None:
        """Bytes fetched to load the newest state over the bytes of that state, serialised."""
        found = [
            r["resume"]["read_bytes"] / r["resume"]["state_bytes"]
            for r in self.results
            if r.get("resume") and r["resume"].get("read_bytes")
        ]
        return median(found) if found else None

    @property
    def supersteps_s(self) -> float | None:
        """Supersteps per second of the whole run."""
        found = [
            r["supersteps"] / r["wall_s"] for r in self.results if r.get("wall_s") and r["done"]
        ]
        return median(found) if found else None

    @property
    def done(self) -> str:
        """Empty for a run that got to its end; else how far it came, or why it did not begin."""
        if self.status == "ok":
            return ""
        if self.status == "capped":
            at = min(r.get("done") or 0 for r in self.results)
            units = next((r["units"] for r in self.results if r.get("units")), self.turns)
            return f"capped at {at:,} of {units:,} ({self.reason})"
        return f"{self.status}: {self.reason}"


def groups_of(reports: Iterable[Result]) -> list[Group]:
    """Return the groups of some reports, in the order they first appear."""
    found: dict[tuple[str, int, str], list[Result]] = {}
    for report in reports:
        for cell in report["cells"]:
            found.setdefault((cell["workload"], cell["turns"], cell["saver"]), []).append(cell)
    return [Group(*key, cells) for key, cells in found.items()]


def pick(groups: Iterable[Group], workload: str, turns: int | None = None) -> Iterator[Group]:
    """Yield the groups of a workload, at one length or at all."""
    for group in groups:
        if group.workload == workload and turns in (None, group.turns):
            yield group


def in_short(result: Result) -> str:
    """Return a result in a line."""
    if "append_ms" in result:
        ratio = result["zstd_bytes"] / max(1, result["new_bytes"])
        return f"zstd {ratio:.2f}x; append and sync {result['append_ms'][0]:.2f} ms"
    group = Group("", 0, "", [result])
    parts = [group.done] if group.done else []
    for label, name in (("on disk", "file_bytes"), ("vacuumed", "vacuumed_bytes")):
        ratio_ = group.over_new(name)
        if ratio_:
            parts.append(f"{ratio_:.2f}x {label}")
    puts = group.times("puts_s")
    if puts:
        parts.append(f"put {puts[-1][1]:.2f} ms")
    if group.supersteps_s:
        parts.append(f"{group.supersteps_s:.0f} supersteps/s")
    return ", ".join(parts)


def as_text(report: Result) -> str:
    """Return a report as a table for a terminal."""
    heading = (
        f"{'workload':18}{'turns':>6} {'saver':22}{'records':>9}{'engine':>9}{'system':>9}"
        f"{'files':>9}{'vacuumed':>9}{'read':>8}{'put ms':>8}{'resume':>8}{'ss/s':>7}"
    )
    lines = [heading]
    for group in groups_of([report]):
        if group.saver == "limit":
            continue
        ratios = [
            group.over_new(name)
            for name in ("record_bytes", "engine_bytes", "os_bytes", "file_bytes", "vacuumed_bytes")
        ]
        puts = group.times("puts_s")
        rest = [puts[-1][1] if puts else None, group.resume_ms, group.supersteps_s]
        lines.append(
            f"{group.workload:18}{group.turns:>6} {group.saver:22}"
            + "".join(f"{_text(ratio):>9}" for ratio in ratios)
            + f"{_text(group.read_amplification):>8}"
            + f"{_text(rest[0]):>8}{_text(rest[1]):>8}{_text(rest[2]):>7}  {group.done}"
        )
    return "\n".join(lines)


def _text(number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number:.2f}" if number < 100 else f"{number:.0f}"
