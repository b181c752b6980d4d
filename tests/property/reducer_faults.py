"""Reducers that are wrong, each in one way, with the laws they break; and reducers that are right.

The faults are those people make: most pass a test that calls the reducer once.
"""

from __future__ import annotations

import itertools
import operator
import random
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import AnyMessage
from langgraph.graph.message import _messages_delta_reducer, add_messages
from pydantic import BaseModel, PrivateAttr

from deltastore.testing.reducer_laws import folded
from deltastore.testing.reducer_strategies import (
    keys,
    message_lists,
    message_writes,
    messages,
    records,
    scalars,
    texts,
)

LAST = 3
_numbers = itertools.count()


def items(writes: list[list[Any]]) -> list[Any]:
    """Return what is in the writes, one list."""
    return [item for write in writes for item in write]


@dataclass
class Tally:
    """A dataclass kept in state."""

    total: int = 0
    names: list[str] = field(default_factory=list)


class Note(BaseModel):
    """A model kept in state."""

    text: str = ""
    tags: list[str] = []
    _revisions: int = PrivateAttr(default=0)


class Log(list[Any]):
    """A list that counts what was dropped from it."""

    dropped = 0


# --- wrong ---


def mints_ids(state, writes):
    return [*state, *({"id": uuid.uuid4().hex, **item} for item in items(writes))]


def numbers_items(state, writes):
    return [*state, *((f"{next(_numbers)}: {item}") for item in items(writes))]


def scores_at_random(state, writes):
    return [*state, *((item, random.random()) for item in items(writes))]


def stamps_the_day(state, writes):
    return [*state, *(f"{datetime.now().date()} {item}" for item in items(writes))]  # noqa: DTZ005 - as people write it


def extends_in_place(state, writes):
    for write in writes:
        state.extend(write)
    return state


def adds_to_an_aliased_set(state, writes):
    known = state
    for write in writes:
        known |= write
    return known


def pops_from_the_write(state, writes):
    return {**state, **{write.pop("id"): write for write in writes}}


def sorts_the_writes(state, writes):
    writes.sort()
    return max([state, *writes])


def appends_inside_a_shallow_copy(state, writes):
    merged = dict(state)
    for write in writes:
        for key, item in write.items():
            merged.setdefault(key, []).append(item)
    return merged


def changes_a_dataclass(state, writes):
    for write in writes:
        state.total += write
    return state


def forgets_on_an_empty_batch(state, writes):
    return [*state, *items(writes)] if writes else []


def counts_batches(state, writes):
    return {"batches": state.get("batches", 0) + 1, "writes": state.get("writes", 0) + len(writes)}


def keeps_one_too_many(state, writes):
    whole = [*state, *items(writes)]
    return whole if len(whole) <= LAST + 1 else whole[-LAST:]


def sums_the_batch_first(state, writes):
    return state + sum(writes)


def rounds_per_batch(state, writes):
    return round(state + sum(writes) / 3)


def averages_averages(state, writes):
    return (state + sum(writes) / len(writes)) / 2 if writes else state


def dedupes_within_the_batch(state, writes):
    return [*state, *dict.fromkeys(items(writes))]


def puts_the_batch_first(state, writes):
    return [*items(writes), *state]


def sorts_the_batch(state, writes):
    return [*state, *sorted(items(writes))]


def takes_two_a_batch(state, writes):
    return [*state, *items(writes)[:2]]


def removes_after_adding(state, writes):
    new = items(writes)
    gone = {item[1:] for item in new if item.startswith("-")}
    return [item for item in [*state, *new] if item not in gone and not item.startswith("-")]


def refuses_three_writes(state, writes):
    if len(writes) > 2:
        raise ValueError("too many at once")
    return [*state, *items(writes)]


def heads_each_batch(state, writes):
    return f"{state}[{len(writes)}] {' '.join(writes)}\n" if writes else state


def deletes_at_the_end(state, writes):
    merged = dict(state)
    for write in writes:
        merged.update(write)
    return {key: item for key, item in merged.items() if item is not None}


def keeps_tuples_written(state, writes):
    return [*state, *writes]


def keeps_a_tuple(state, writes):
    return (*state, *items(writes))


def counts_what_it_drops(state, writes):
    whole = [*state, *items(writes)]
    kept = Log(whole[-LAST:])
    kept.dropped = getattr(state, "dropped", 0) + len(whole) - len(kept)
    return kept


def returns_a_defaultdict(state, writes):
    grouped = defaultdict(list, state)
    for write in writes:
        for key, item in write.items():
            grouped[key] = [*grouped[key], item]
    return grouped


def counts_privately(state, writes):
    new = Note(text="".join([state.text, *(write.text for write in writes)]))
    new._revisions = state._revisions + len(writes)
    return new


def expects_its_own_mark(state, writes):
    count = state["count"] if state else 0
    return {**state, "count": count + len(writes)}


def keeps_the_last(state, writes):
    return writes[-1] if writes else state


BATCHED = ("batching",)
MINTED = ("determinism", "stability")
IMPURE = ("purity",)
plain = st.sampled_from(["x", "y", "-x", "-y"])
by_key = st.dictionaries(keys(), st.integers(0, 3), max_size=2)
lists_by_key = st.dictionaries(keys(), st.lists(st.integers(0, 3), max_size=2), max_size=2)
without_id = st.lists(st.builds(lambda text: {"text": text}, texts()), max_size=2)
pairs = st.tuples(texts(), texts())

FAULTS: list[tuple[Callable[..., Any], dict[str, Any], tuple[str, ...]]] = [
    (mints_ids, {"values": without_id, "writes": without_id}, MINTED),
    (numbers_items, {"typ": list}, MINTED),
    (scores_at_random, {"typ": list[int]}, MINTED),
    (stamps_the_day, {"typ": list}, ("determinism",)),
    (extends_in_place, {"typ": list}, IMPURE),
    (adds_to_an_aliased_set, {"typ": set}, IMPURE),
    (pops_from_the_write, {"typ": dict, "writes": records()}, IMPURE),
    (sorts_the_writes, {"typ": int}, IMPURE),
    (
        appends_inside_a_shallow_copy,
        {"typ": dict, "values": lists_by_key, "writes": by_key},
        IMPURE,
    ),
    (changes_a_dataclass, {"typ": Tally, "writes": st.integers(0, 9)}, IMPURE),
    (forgets_on_an_empty_batch, {"typ": list}, ("identity", "batching")),
    (counts_batches, {"typ": dict}, ("identity", "batching")),
    (keeps_one_too_many, {"typ": list[int]}, BATCHED),
    (sums_the_batch_first, {"typ": float}, BATCHED),
    (rounds_per_batch, {"typ": int}, BATCHED),
    (averages_averages, {"typ": float}, BATCHED),
    (dedupes_within_the_batch, {"typ": list[str]}, BATCHED),
    (puts_the_batch_first, {"typ": list}, BATCHED),
    (sorts_the_batch, {"typ": list[int]}, BATCHED),
    (takes_two_a_batch, {"typ": list}, BATCHED),
    (
        removes_after_adding,
        {"values": st.lists(texts(), max_size=3), "writes": st.lists(plain, max_size=2)},
        BATCHED,
    ),
    (refuses_three_writes, {"typ": list}, BATCHED),
    (heads_each_batch, {"typ": str}, BATCHED),
    (deletes_at_the_end, {"typ": dict}, ("key-order",)),
    (keeps_tuples_written, {"writes": pairs}, ("stability", "snapshot")),
    (
        keeps_a_tuple,
        {"typ": tuple, "values": st.lists(texts()).map(tuple), "writes": st.lists(texts())},
        ("snapshot",),
    ),
    (counts_what_it_drops, {"typ": list}, ("snapshot",)),
    (
        returns_a_defaultdict,
        {"typ": dict, "values": lists_by_key, "writes": by_key},
        ("snapshot",),
    ),
    (counts_privately, {"typ": Note}, ("snapshot",)),
    (expects_its_own_mark, {"typ": dict}, ("overwrite",)),
    (keeps_the_last, {"typ": int, "claims": ("order-insensitivity",)}, ("order-insensitivity",)),
]
"""Each with what it is tested with and exactly the laws it breaks, the right one first."""


# --- right ---


def appends(state, writes):
    return [*state, *items(writes)]


def keeps_last(state, writes):
    return [*state, *items(writes)][-LAST:]


def keeps_first(state, writes):
    return [*state, *items(writes)][:LAST]


def deletes_in_order(state, writes):
    merged = dict(state)
    for write in writes:
        for key, item in write.items():
            if item is None:
                merged.pop(key, None)
            else:
                merged[key] = item
    return merged


def counts(state, writes):
    found = dict(state)
    for word in writes:
        found[word] = found.get(word, 0) + 1
    return found


def first_of_each_id(state, writes):
    return [*{item["id"]: item for item in reversed([*state, *items(writes)])}.values()][::-1]


def newest_of_each_id(state, writes):
    found = {item["id"]: item for item in state}
    for item in items(writes):
        found[item["id"]] = item
    return [*found.values()]


def merges_sorted(state, writes):
    return sorted([*state, *items(writes)])


def summarises(state, writes):
    return "".join([state, *(f"- {line}\n" for line in writes)])


def means_exactly(state, writes):
    return {"sum": state.get("sum", 0) + sum(writes), "n": state.get("n", 0) + len(writes)}


def tallies(state, writes):
    return replace(state, total=state.total + sum(writes))


def rewrites(state, writes):
    for write in writes:
        state = Note(text=write.text or state.text, tags=[*state.tags, *write.tags])
    return state


def groups(state, writes):
    found = dict(state)
    for write in writes:
        for key, item in write.items():
            found[key] = [*found.get(key, []), item]
    return found


def removes_in_order(state, writes):
    for item in items(writes):
        state = [*(s for s in state if s != item[1:])] if item[:1] == "-" else [*state, item]
    return state


ORDERLESS = {"claims": ("order-insensitivity",)}
unique_records = st.lists(records(), max_size=3, unique_by=lambda item: item["id"])
MEANS = st.fixed_dictionaries({"sum": st.integers(0, 99), "n": st.integers(0, 9)})

RIGHT: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (appends, {"typ": list}),
    (keeps_last, {"typ": list[int]}),
    (keeps_first, {"typ": list[str]}),
    (operator.add, {"typ": list}),
    (deletes_in_order, {"typ": dict}),
    (folded(operator.or_), {"typ": dict[str, int]}),
    (folded(operator.or_), {"typ": set, **ORDERLESS}),
    (folded(operator.or_), {"typ": frozenset, **ORDERLESS}),
    (counts, {"typ": dict, "values": by_key, "writes": keys(), **ORDERLESS}),
    (first_of_each_id, {"values": unique_records, "writes": unique_records}),
    (newest_of_each_id, {"values": unique_records, "writes": st.lists(records(), max_size=3)}),
    (merges_sorted, {"typ": list[int], **ORDERLESS}),
    (folded(max), {"typ": int, **ORDERLESS}),
    (folded(operator.add), {"typ": int, **ORDERLESS}),
    (folded(operator.add), {"typ": float}),
    (folded(operator.add), {"typ": str}),
    (summarises, {"typ": str}),
    (means_exactly, {"typ": dict, "values": MEANS, "writes": st.integers(0, 9), **ORDERLESS}),
    (tallies, {"typ": Tally, "writes": st.integers(0, 9), **ORDERLESS}),
    (rewrites, {"typ": Note}),
    (groups, {"typ": dict, "values": lists_by_key, "writes": by_key}),
    (removes_in_order, {"typ": list[str], "writes": st.lists(plain, max_size=2)}),
    (keeps_the_last, {"typ": dict, "values": by_key, "writes": by_key}),
    (keeps_tuples_written, {"writes": scalars()}),
    (appends, {"typ": list[AnyMessage], "writes": st.lists(messages(), max_size=2)}),
    (_messages_delta_reducer, {}),
    (
        folded(add_messages),
        {"values": message_lists("given"), "writes": message_writes("given", removals=False)},
    ),
]
"""Each with what it is tested with; it holds every law that it does not have to claim."""
