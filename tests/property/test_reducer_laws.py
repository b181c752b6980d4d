"""The laws of reducers find each planted fault, by its law and with code that shows it, and nothing
in reducers that are right.

Any seed must do with the 300 cases that are the default. The gate runs one seed and fewer cases;
all of it takes a quarter of an hour:

    REDUCER_SEEDS=20 REDUCER_CASES=300 tools/test tests/property/test_reducer_laws.py -n 2
    REDUCER_CASES=1000 tools/test tests/property/test_reducer_laws.py -k right --durations=0
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deltastore.testing.reducer_laws import check_reducer
from tests.property.reducer_faults import FAULTS, RIGHT

SEEDS = range(int(os.environ.get("REDUCER_SEEDS", "1")))
CASES = os.environ.get("REDUCER_CASES")
CASES_OF_FAULTS = int(CASES or 60)
CASES_OF_RIGHT = int(CASES or 25)
LINES_MAX = 12
"""Of a counterexample: imports, values, the assertion."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("reducer", "options", "laws"), FAULTS, ids=[one[0].__name__ for one in FAULTS]
)
def test_a_planted_fault_is_named_by_its_law_and_shown_by_code_that_fails(
    reducer: Any, options: dict[str, Any], laws: tuple[str, ...], seed: int
) -> None:
    """Whoever reads the wrong law, or code that does not fail, mends the wrong thing."""
    report = check_reducer(reducer, **options, max_examples=CASES_OF_FAULTS, seed=seed)
    assert laws == report.failed
    assert not report.is_proven
    for law in laws:
        shown = report.of(law).counterexample
        assert shown is not None
        assert len(shown.code.split("\n")) <= LINES_MAX, shown.code
        with pytest.raises((AssertionError, KeyError, ValueError, TypeError)):
            exec(shown.code, {})


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("reducer", "options"), RIGHT, ids=[f"{one[0].__name__}-{n}" for n, one in enumerate(RIGHT)]
)
def test_a_right_reducer_holds_every_law(reducer: Any, options: dict[str, Any], seed: int) -> None:
    """A law that fails now and then for what is right is switched off, and finds nothing more."""
    report = check_reducer(reducer, **options, max_examples=CASES_OF_RIGHT, seed=seed)
    assert report.is_proven, str(report)


def test_the_gallery_is_what_a_fresh_run_finds() -> None:
    """A page that says a reducer holds, when it no longer does, loses somebody's state."""
    tool = Path(__file__).parents[2] / "tools" / "make_gallery.py"
    command = [sys.executable, str(tool), "--check"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert 0 == ran.returncode, ran.stdout + ran.stderr
