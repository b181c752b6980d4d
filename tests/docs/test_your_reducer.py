"""The guide to a proven reducer: whoever does what it says sees what it shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from deltastore.testing.reducer_laws import LAWS
from tests.conformance.cli_stores import imports_of_its_own, transcript

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "your-reducer.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_guide_leads_from_a_broken_reducer_to_a_proven_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its blocks in order: files are written, commands print what is shown, tests pass."""
    names: dict[str, Any] = {}
    codes: list[str] = []
    for kind, block in BLOCKS:
        with imports_of_its_own(tmp_path):
            if kind == "console":
                assert block == transcript(capsys, block)
                codes += re.findall(r"^\$ echo \$\?\n(\d+)$", block, re.MULTILINE)
                continue
            assert "python" == kind
            file = re.match(r"# (\w+\.py)\n", block)
            if file:
                Path(file[1]).write_text(block, "utf-8")
            known = {*names}
            exec(compile(block, "block", "exec", dont_inherit=True), names)
            for name in names.keys() - known:
                if name.startswith("test_"):
                    names[name]()
    assert ["1", "0"] == codes
    assert {"test_keep_last", "test_count"} <= names.keys()
    assert "reducers" not in sys.modules


def test_the_guide_lists_every_law_in_order() -> None:
    """A law that the guide does not name is met for the first time when it fails."""
    assert [law.name for law in LAWS] == re.findall(r"^\| `([\w-]+)` \|", PAGE, re.MULTILINE)
