"""What a check of a reducer found: a table to read, counterexamples to run, an error to raise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["held", "failed", "unjudged", "unclaimed", "waived"]


class LawError(AssertionError):
    """A reducer does not hold a law, or could not be judged by it."""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """The smallest input found for which a law does not hold.

    Attributes:
        code: Python statements whose last one fails, nearly always an assertion.
        left, right: What both sides of the comparison are, as expressions, or the error raised.
    """

    code: str
    left: str
    right: str

    def __str__(self) -> str:
        """Return the code, with both sides as comments."""
        return f"{self.code}\n# left:  {self.left}\n# right: {self.right}"


@dataclass(frozen=True, slots=True)
class LawResult:
    """What was found of one law.

    Attributes:
        judged: Cases that said something: not those for which the reducer raises either way.
        note: Why a law is unjudged, or what to do about one that failed; else empty.
    """

    law: str
    says: str
    status: Status
    judged: int
    counterexample: Counterexample | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class LawReport:
    """What was found of each law, in the order in which to mend them.

    Attributes:
        seed: With it, the same check finds the same.
    """

    reducer: str
    typ: str
    seed: int
    max_examples: int
    results: tuple[LawResult, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the laws that do not hold, in order."""
        return tuple(one.law for one in self.results if one.status == "failed")

    @property
    def held(self) -> tuple[str, ...]:
        """Names of the laws that hold, in order."""
        return tuple(one.law for one in self.results if one.status == "held")

    @property
    def unjudged(self) -> tuple[str, ...]:
        """Names of the laws that could not be judged, in order."""
        return tuple(one.law for one in self.results if one.status == "unjudged")

    @property
    def is_proven(self) -> bool:
        """Whether every law asked for was judged and held."""
        return not self.failed and not self.unjudged

    def of(self, law: str) -> LawResult:
        """Return the result of a law by its name.

        Raises:
            KeyError: There is none of this name.
        """
        for one in self.results:
            if one.law == law:
                return one
        raise KeyError(law)

    def document(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {**asdict(self), "is_proven": self.is_proven}

    def raise_for_failures(self) -> None:
        """Raise unless the reducer is proven.

        Raises:
            LawError: A law failed or could not be judged; its text is the whole report.
        """
        __tracebackhide__ = True  # of pytest: the report says it all
        if not self.is_proven:
            raise LawError(str(self))

    def __str__(self) -> str:
        """Return the table, then each counterexample and note."""
        head = f"{self.reducer} on {self.typ}: seed {self.seed}, at most {self.max_examples} cases"
        rows = [(one.law, one.status, str(one.judged), one.says) for one in self.results]
        parts = [head, "", text_table([("law", "status", "judged", "says"), *rows])]
        notes: dict[str, list[str]] = {}
        for one in self.results:
            if one.counterexample is not None:
                parts += ["", f"{one.law} fails:", indented(str(one.counterexample))]
                parts += [f"    # {one.note}"]
            elif one.note:
                notes.setdefault(one.note, []).append(one.law)
        parts += [f"\n{', '.join(laws)}: {note}" for note, laws in notes.items()]
        return "\n".join(parts)


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as aligned text, two spaces between columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def indented(text: str) -> str:
    """Return text four spaces to the right."""
    return "\n".join(f"    {line}" if line else "" for line in text.split("\n"))
