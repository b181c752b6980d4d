"""What the documents say is so: code runs, links lead somewhere, files and tests named exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = {str(path.relative_to(ROOT)): path for path in sorted(DOCS.rglob("*.md"))}
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
REPOSITORY = re.compile(r"(?:deltastore|docs|tests|tools|bench)/[\w./-]+|[\w-]+\.toml")
WITH_CODE = [
    name
    for name, path in DOCUMENTS.items()
    if BLOCK.search(path.read_text("utf-8")) and path.stem != "your-reducer"
]
"""But the guide that `test_your_reducer` runs, with its files and commands."""


def prose(name: str) -> str:
    """Return a document without its blocks of code, fenced or indented."""
    text = FENCED.sub("", DOCUMENTS[name].read_text("utf-8"))
    return "\n".join(line for line in text.split("\n") if not line.startswith("    "))


def anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub makes of a document's headings."""
    text = FENCED.sub("", path.read_text("utf-8"))
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_there_are_documents_to_check() -> None:
    """The other tests here hold nothing if the folder moves."""
    assert {"docs/quickstart.md", "docs/engines.md"} <= set(WITH_CODE)
    assert {"docs/README.md", "docs/format.md", "docs/invariants.md"} <= set(DOCUMENTS)


@pytest.mark.parametrize("name", WITH_CODE)
def test_code_of_a_document_runs_in_order(name: str, tmp_path: Path) -> None:
    """Whoever copies a page from top to bottom must arrive where it says."""
    blocks = BLOCK.findall(DOCUMENTS[name].read_text("utf-8"))
    parts = [f"# block {number}\n{block}" for number, block in enumerate(blocks, 1)]
    program = tmp_path / "page.py"
    program.write_text("\n".join(parts), "utf-8")
    empty = tmp_path / "empty"
    empty.mkdir()
    ran = subprocess.run(
        [sys.executable, str(program)],
        cwd=empty,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (0, "") == (ran.returncode, ran.stderr)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_between_documents_lead_somewhere(name: str) -> None:
    """A dead link is a promise of documentation that is not there."""
    dead = []
    for target in LINK.findall(FENCED.sub("", DOCUMENTS[name].read_text("utf-8"))):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        path = DOCUMENTS[name].parent / file if file else DOCUMENTS[name]
        if not path.exists() or (anchor and anchor not in anchors(path)):
            dead.append(target)
    assert [] == dead


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_named_in_a_document_exist(name: str) -> None:
    """Files move; a page that sends its reader to the old place costs more than none."""
    named = {span for span in SPAN.findall(prose(name)) if REPOSITORY.fullmatch(span)}
    assert [] == sorted(span for span in named if not (ROOT / span).exists())


@pytest.mark.parametrize("name", DOCUMENTS)
def test_tests_named_in_a_document_exist(name: str) -> None:
    """A law that is said to be shown by a test that is gone is not shown."""
    sources = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "deltastore" / "testing").rglob("*.py")]
    defined = re.findall(r"def (test_\w+)", "\n".join(path.read_text("utf-8") for path in sources))
    named = {span for span in SPAN.findall(prose(name)) if re.fullmatch(r"test_\w+", span)}
    assert [] == sorted(named - set(defined))


def test_every_document_is_in_the_index() -> None:
    """A page that the index does not name is found by nobody."""
    index = DOCUMENTS["docs/README.md"]
    linked = {
        (index.parent / target).resolve() for target in LINK.findall(index.read_text("utf-8"))
    }
    assert [] == [name for name, path in DOCUMENTS.items() if path not in {*linked, index}]


def test_decisions_are_numbered_without_gaps() -> None:
    """Code and commits name decisions by number."""
    assert [f"{n:04}" for n in range(1, len(DECISIONS) + 1)] == [p.name[:4] for p in DECISIONS]


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_says_why_and_on_what_evidence(path: Path) -> None:
    """A decision without its reason is reversed by the next reader; without evidence, rightly."""
    text = path.read_text("utf-8")
    assert text.startswith(f"# {int(path.name[:4])}. ")
    parts = ["Context", "Choice", "Evidence", "Consequences"]
    assert parts == re.findall(r"^\*\*(\w+)\.\*\* \S", text, re.MULTILINE)
