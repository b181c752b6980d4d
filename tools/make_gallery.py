"""Judge reducers people use and write docs/reducer-gallery.md; `--check` only compares the page.

    python tools/make_gallery.py
    python tools/make_gallery.py --check

Exit status: 0 written, or the page says what this run found; 1 it does not. What is found depends
on the releases of LangGraph and Hypothesis; constraints.txt has those of the gate.
"""

from __future__ import annotations

import argparse
import inspect
import operator
import re
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hypothesis import strategies as st  # noqa: E402 - run as a script, from anywhere
from langchain_core.messages import HumanMessage  # noqa: E402
from langgraph.graph.message import _messages_delta_reducer, add_messages  # noqa: E402

from deltastore.testing.reducer_laws import LawReport, check_reducer, folded  # noqa: E402
from deltastore.testing.reducer_strategies import (  # noqa: E402
    keys,
    message_lists,
    message_writes,
    messages,
    raw_messages,
    records,
    texts,
)

PAGE = ROOT / "docs" / "reducer-gallery.md"
SEED = 0
LAST = 3


def flat(writes):
    return [item for write in writes for item in write]


def merge(state, write):
    return {**state, **write}


def delete_in_order(state, write):
    merged = {**state, **write}
    return {key: item for key, item in merged.items() if item is not None}


def delete_at_the_end(state, writes):
    merged = dict(state)
    for write in writes:
        merged.update(write)
    return {key: item for key, item in merged.items() if item is not None}


def add_sum(state, writes):
    return state + sum(writes)


def keep_last(state, writes):
    return [*state, *flat(writes)][-LAST:]


def keep_last_of_state(state, writes):
    return [*state[-LAST:], *flat(writes)]


def summarise(state, writes):
    return "".join([state, *(f"- {line}\n" for line in writes)])


def summarise_batches(state, writes):
    return f"{state}{len(writes)} new: {', '.join(writes)}\n" if writes else state


def count_words(state, writes):
    found = dict(state)
    for word in writes:
        found[word] = found.get(word, 0) + 1
    return found


def count_calls(state, writes):
    return state + 1


def newest_of_each_id(state, writes):
    found = {item["id"]: item for item in [*state, *flat(writes)]}
    return [*found.values()]


def new_ids_of_the_batch(state, writes):
    return [*state, *{item["id"]: item for item in flat(writes)}.values()]


class Row(NamedTuple):
    """A reducer on some inputs."""

    reducer: Callable[..., Any]
    expression: str
    inputs: str
    options: dict[str, Any]
    cases: int = 60


doubled = st.lists(st.sampled_from(["", "x"]), min_size=2, max_size=2).map(
    lambda found: [HumanMessage(content=text, id="a") for text in found]
)
deletions = st.dictionaries(keys(), st.sampled_from([0, 1, None]), max_size=2)
entries = st.dictionaries(keys(), st.sampled_from([0, 1]), max_size=2)
unique = st.lists(records(), max_size=3, unique_by=lambda item: item["id"])
updates = st.lists(records(), max_size=2)
plain_raw = raw_messages().filter(lambda raw: not isinstance(raw, tuple))
UNORDERED = {"claims": ["order-insensitivity"]}
ADD = folded(operator.add)
DELTA = "_messages_delta_reducer"

ROWS = [
    Row(_messages_delta_reducer, DELTA, "messages with or without ids, updates, removals", {}, 150),
    Row(
        _messages_delta_reducer,
        DELTA,
        "a state that holds two messages of one id",
        {"values": doubled, "writes": message_writes("given")},
        150,
    ),
    Row(
        _messages_delta_reducer,
        DELTA,
        "the same, and no removals",
        {"values": doubled, "writes": message_writes("given", removals=False)},
        150,
    ),
    Row(
        _messages_delta_reducer,
        DELTA,
        "texts and dicts for messages",
        {"values": st.lists(plain_raw, max_size=2), "writes": plain_raw},
    ),
    Row(
        _messages_delta_reducer,
        DELTA,
        "a state with texts behind a message",
        {"values": st.tuples(messages(), st.just("x")).map(list), "writes": messages()},
    ),
    Row(
        _messages_delta_reducer,
        DELTA,
        "pairs for messages: `('user', 'x')`",
        {"writes": raw_messages().filter(lambda raw: isinstance(raw, tuple))},
    ),
    Row(
        folded(add_messages),
        "folded(add_messages)",
        "messages that all have ids, updates, removals",
        {"values": message_lists("given"), "writes": message_writes("given")},
        150,
    ),
    Row(
        folded(add_messages),
        "folded(add_messages)",
        "a state that holds two messages of one id",
        {"values": doubled, "writes": message_writes("given")},
        150,
    ),
    Row(folded(add_messages), "folded(add_messages)", "messages, some without ids", {}),
    Row(
        add_messages,
        "add_messages",
        "a message a write, all with ids, updates",
        {"values": message_lists("given"), "writes": messages("given")},
    ),
    Row(
        add_messages,
        "add_messages",
        "the same and removals",
        {
            "values": message_lists("given"),
            "writes": message_writes("given").filter(lambda write: not isinstance(write, list)),
        },
    ),
    Row(operator.add, "operator.add", "lists, an item a write", {"typ": list}),
    Row(operator.add, "operator.add", "numbers", {"typ": int}),
    Row(ADD, "folded(operator.add)", "lists", {"typ": list}),
    Row(ADD, "folded(operator.add)", "whole numbers", {"typ": int, **UNORDERED}),
    Row(ADD, "folded(operator.add)", "floats", {"typ": float}),
    Row(ADD, "folded(operator.add)", "texts", {"typ": str}),
    Row(add_sum, "add_sum", "whole numbers", {"typ": int, **UNORDERED}),
    Row(add_sum, "add_sum", "floats", {"typ": float}),
    Row(folded(merge), "folded(merge)", "dicts", {"typ": dict}),
    Row(
        folded(delete_in_order),
        "folded(delete_in_order)",
        "dicts, None deletes",
        {"typ": dict, "values": entries, "writes": deletions},
    ),
    Row(
        delete_at_the_end,
        "delete_at_the_end",
        "dicts, None deletes",
        {"typ": dict, "values": entries, "writes": deletions},
        150,
    ),
    Row(folded(operator.or_), "folded(operator.or_)", "sets", {"typ": set, **UNORDERED}),
    Row(keep_last, "keep_last", "lists", {"typ": list[int]}),
    Row(keep_last_of_state, "keep_last_of_state", "lists", {"typ": list[int]}),
    Row(summarise, "summarise", "texts", {"typ": str}),
    Row(summarise_batches, "summarise_batches", "texts", {"typ": str}),
    Row(
        count_words,
        "count_words",
        "a word a write",
        {"typ": dict, "values": entries, "writes": keys(), **UNORDERED},
    ),
    Row(count_calls, "count_calls", "anything", {"typ": int, "writes": texts()}),
    Row(
        newest_of_each_id,
        "newest_of_each_id",
        "lists of dicts with ids",
        {"values": unique, "writes": updates},
    ),
    Row(
        new_ids_of_the_batch,
        "new_ids_of_the_batch",
        "lists of dicts with ids",
        {"values": unique, "writes": updates},
    ),
]

HEAD = """\
# Gallery of reducers

Which reducers people use are right for a `DeltaChannel`, on which inputs, and what breaks the
others. Made by `tools/make_gallery.py`; a test compares this page with a fresh run. What the laws
are: [Your reducer](guides/your-reducer.md).

LangGraph {langgraph}, langchain-core {core}, seed {seed}. `folded(f)`
applies `f` to one write after the other, as a plain channel does. `order-insensitivity` is tested
only where it is claimed: for numbers that are whole, for sets, and for counts. *Not judged* means
that the reducer raises for whatever is written.
"""


def outcome(report: LawReport) -> str:
    """Return what a row of the table says."""
    if report.failed:
        return f"fails {', '.join(report.failed)}"
    if report.unjudged:
        return "not judged"
    claimed = report.of("order-insensitivity").status == "held"
    return "holds, in any order" if claimed else "holds"


def page() -> Iterator[str]:
    """Yield the page's parts."""
    found = [
        (row, check_reducer(row.reducer, **row.options, max_examples=row.cases, seed=SEED))
        for row in ROWS
    ]
    yield HEAD.format(
        langgraph=version("langgraph"),
        core=version("langchain-core"),
        seed=SEED,
    )
    yield "| reducer | on | cases | found |\n|---|---|---|---|"
    for row, report in found:
        yield f"| `{row.expression}` | {row.inputs} | {row.cases} | {outcome(report)} |"
    yield "\n## Counterexamples"
    for row, report in found:
        if not report.is_proven:
            yield f"\n### {row.expression} on {row.inputs.replace('`', '')}\n"
            yield "\n\n".join(sections(row, report))
    yield "\n## The reducers\n"
    own = {row.reducer: getattr(row.reducer, "operator", row.reducer) for row in ROWS}
    functions = [flat, *dict.fromkeys(one for one in own.values() if one.__module__ == __name__)]
    sources = "\n\n".join(inspect.getsource(one).rstrip().replace("LAST", "3") for one in functions)
    yield f"```\n{sources}\n```"


def sections(row: Row, report: LawReport) -> Iterator[str]:
    """Yield a row's counterexamples, or why there are none."""
    for law in report.failed:
        shown = str(report.of(law).counterexample)
        lines = [line for line in shown.split("\n") if not line.startswith("# reducer is")]
        # Ids made by chance differ from run to run.
        code = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "...", "\n".join(lines))
        yield f"{law}:\n\n```\n{code}\n```"
    if not report.failed:
        yield report.of(report.unjudged[0]).note.partition(";")[0] + "."


def main() -> int:
    """Write or compare the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare the page, write nothing")
    args = parser.parse_args()
    text = "\n".join(page()) + "\n"
    if not args.check:
        PAGE.write_text(text, "utf-8")
        return 0
    if text == PAGE.read_text("utf-8"):
        return 0
    print(text)
    print(f"{PAGE.name} says otherwise; run tools/make_gallery.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
