"""The README is what people run first: its code works, its commands and links exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^    (tools/\S+)", README, re.MULTILINE)
DOCUMENTS = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "tests/README.md"]


def test_readme_shows_code_and_both_commands():
    """The other tests here hold nothing if the README's shape changes under them."""
    assert len(PYTHON) >= 2
    assert COMMANDS == ["tools/run", "tools/test"]


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_code_in_the_readme_runs_as_printed(number, tmp_path):
    """A first example that fails is the last thing its reader tries."""
    ran = subprocess.run(
        [sys.executable, "-c", PYTHON[number]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (0, "") == (ran.returncode, ran.stderr)


@pytest.mark.parametrize("command", [*COMMANDS, ".ci/run"])
def test_command_named_is_there_and_executable(command):
    """A lost mode bit breaks a fresh clone and nothing else."""
    path = ROOT / command
    assert path.is_file()
    assert os.access(path, os.X_OK)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_within_the_repository_lead_somewhere(document):
    """A dead link is a promise of documentation that is not there."""
    path = ROOT / document
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [] == [target for target in local if not (path.parent / target).exists()]
