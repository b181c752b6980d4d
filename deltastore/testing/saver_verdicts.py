"""What is told of a law that was tried: the verdict, its reason in one line, and the report of all.

The outcomes are those of `saver_report`, which tries the laws. Nothing here calls a saver.
"""

from __future__ import annotations

import ast
import itertools
import json
import linecache
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

from deltastore.testing.suite_calls import FACES

HELD: Final = "held"
FAILED: Final = "failed"
NOT_OFFERED: Final = "not offered"
NOT_APPLICABLE: Final = "not applicable"
GRAVEST_FIRST: Final = (FAILED, NOT_OFFERED, NOT_APPLICABLE, HELD)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one face of a saver came out of one law; the reason is one line, none for held."""

    outcome: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LawVerdicts:
    """One law: its name in words, its subject, and the verdict on each face."""

    law: str
    subject: str
    verdicts: Mapping[str, Verdict]

    @property
    def outcome(self) -> str:
        """The gravest of both faces."""
        outcomes = {verdict.outcome for verdict in self.verdicts.values()}
        return next(outcome for outcome in GRAVEST_FIRST if outcome in outcomes)

    @property
    def reason(self) -> str:
        """Why, of the face that the outcome is of."""
        found = self.verdicts.values()
        return next(verdict.reason for verdict in found if verdict.outcome == self.outcome)


@dataclass(frozen=True, slots=True)
class SaverReport:
    """All laws, in the order of their subjects."""

    saver: str
    laws: tuple[LawVerdicts, ...]

    @property
    def failed(self) -> list[str]:
        """The laws that failed on either face."""
        return [one.law for one in self.laws if one.outcome == FAILED]

    def to_json(self) -> str:
        """Return the report as JSON: the saver, and per law what the table says of it."""
        rows = [{**asdict(one), "outcome": one.outcome, "reason": one.reason} for one in self.laws]
        return json.dumps({"saver": self.saver, "laws": rows}, indent=1)

    def __str__(self) -> str:
        width = max(len(one.law) for one in self.laws)
        lines = [f"{'law':{width}}  {'sync':14}  {'async':14}  reason"]
        for before, one in zip((None, *self.laws), self.laws, strict=False):
            if before is None or before.subject != one.subject:
                lines += ["", one.subject]
            cells = [f"{one.verdicts[face].outcome:14}" for face in FACES]
            lines.append(f"{one.law:{width}}  {'  '.join(cells)}  {one.reason}".rstrip())
        lines.append("")
        for face in FACES:
            counts = Counter(one.verdicts[face].outcome for one in self.laws)
            told = (f"{counts[outcome]} {outcome}" for outcome in GRAVEST_FIRST[::-1])
            lines.append(f"{self.saver}, {face}: {', '.join(told)}")
        return "\n".join(lines) + "\n"


def gravest(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict that counts most of several on one law."""
    return min(verdicts, key=lambda verdict: GRAVEST_FIRST.index(verdict.outcome))


def reason_of(error: BaseException) -> str:
    """Return in one line why a law failed."""
    frames = traceback.extract_tb(error.__traceback__)
    told = str(error)
    if isinstance(error, AssertionError) and frames:
        claim = _assertion_at(frames[-1].filename, frames[-1].lineno or 0)
        parts = filter(None, (claim and f"not so: {claim}", _before_details(told)))
        return _shortened(": ".join(parts))
    where = f" in {frames[-1].name}" if frames else ""
    return _shortened(f"{type(error).__name__}{where}: {told}")


def _before_details(told: str) -> str:
    """Return an assertion's message up to the details that pytest adds in indented lines.

    These are longer where CI is set, and a reason may be published from anywhere.
    """
    return "\n".join(itertools.takewhile(lambda line: line[:1] != " ", told.split("\n")))


def _assertion_at(filename: str, line: int) -> str:
    """Return what the assertion on a line claims; "" if its source is not there."""
    with suppress(SyntaxError):
        for node in ast.walk(ast.parse("".join(linecache.getlines(filename)))):
            if isinstance(node, ast.Assert) and node.lineno <= line <= (node.end_lineno or 0):
                return ast.unparse(node.test)
    return ""


def _shortened(text: str, most: int = 160) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 3]}..."
