"""Hypothesis strategies for what LangGraph puts: names, values, versions, metadata, writes.

An *edit* is a value made from another the way nodes make them: a list grown or cut, a dict entry
changed, a message streamed on; it shares long runs of bytes with what it came from.

Values drawn compare equal to what the default serializer gives back, apart from tuples becoming
lists; nothing drawn is refused by a store (no lone surrogates, no NaN, integers of 64 bits). Filter
values are never booleans: savers disagree on True against 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.types import (
    ERROR,
    INTERRUPT,
    RESUME,
    SCHEDULED,
    TASKS,
    _DeltaSnapshot,
)

LONG_TEXT: Final = "long/|" * 200
CHANNELS_MAX: Final = 10
"""Versions one draw of `channel_states` may use up."""

_CHANGES: Final = [
    *("new", "edit", "edit", "empty", "empty", "inherit", "inherit", "inherit"),
    *("again", "foreign", "copy", "drop"),
]
Named = dict[str, Any]
ChannelStates = tuple[Named, Named, Named]
Strategy = st.SearchStrategy[Any]


def odd_texts(*, empty: bool = True) -> st.SearchStrategy[str]:
    """Draw names: separators, NUL, any plane of Unicode, 1 200 characters, perhaps empty."""
    fixed = ["a", "a\0b", "a|b", "b", "1", "10", "\U0001f409", LONG_TEXT + "x", LONG_TEXT + "y"]
    return st.sampled_from([*fixed, ""] if empty else fixed) | st.text(
        min_size=0 if empty else 1, max_size=4
    )


def thread_ids() -> st.SearchStrategy[str]:
    """Draw one of few thread ids, prefixes of each other among them."""
    return st.sampled_from(["t", "t0", "a\0b", "", LONG_TEXT + "t"])


def namespaces() -> st.SearchStrategy[str]:
    """Draw one of few namespaces, the root's the likeliest."""
    return st.sampled_from(["", "", "", "sub", "sub|in:9", "b\0"])


def channel_names() -> st.SearchStrategy[str]:
    """Draw one of few channel names."""
    return st.sampled_from(["messages", "files", "x", "a\0b", "", LONG_TEXT])


def task_ids() -> st.SearchStrategy[str]:
    """Draw a task id, of few so that writes repeat."""
    return st.sampled_from(["t1", "t2", "00000000-0000", "ffffffff-1"]) | odd_texts()


def task_paths() -> st.SearchStrategy[str]:
    """Draw a task path; most updates from outside have none."""
    return st.sampled_from(["", "~__pregel_pull, a", "~__pregel_pull, b", "~~0000000001"]) | (
        odd_texts()
    )


def checkpoint_id(number: int) -> str:
    """Return a canonical uuid6 that sorts by `number`, from 0 to 2**27 - 1."""
    return f"1f000000-{number >> 11:04x}-6{number & 0x7FF:03x}-8001-00000000abcd"


def odd_checkpoint_ids() -> st.SearchStrategy[str]:
    """Draw an id that is no canonical uuid6, of at most 400 bytes."""
    upper = checkpoint_id(7).upper()
    return st.sampled_from(["0", "1", "10", "zz", "1f000000", upper, "\U0001f409", "n" * 400])


def versions(number: int) -> Strategy:
    """Draw a channel version that no other number gives: LangGraph's text, an int or a float."""
    return st.sampled_from([f"{number:032}.0.{number % 97:014}25", number, number + 0.5]) | (
        st.just(f"{number:032}.0.5")
    )


def scalars() -> Strategy:
    """Draw a value without parts, falsy ones often."""
    return st.sampled_from([None, False, True, 0, "", b"", 0.0]) | st.one_of(
        st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=20)
    )


def messages() -> Strategy:
    """Draw a LangChain message."""
    texts, ids = st.text(max_size=30), st.text("ab01", min_size=1, max_size=3)
    human: Callable[..., Any] = HumanMessage
    tool: Callable[..., Any] = ToolMessage
    return st.one_of(
        st.builds(human, content=texts, id=ids),
        st.builds(_ai_message, texts, ids, st.booleans()),
        st.builds(tool, content=texts, tool_call_id=ids),
    )


def _ai_message(text: str, ident: str, calls: bool) -> AIMessage:
    called: Any = [{"name": "search", "args": {"q": text}, "id": ident, "type": "tool_call"}]
    return AIMessage(content=text, id=ident, tool_calls=called if calls else [])


def values() -> Strategy:
    """Draw a channel value: scalars, nested containers, messages, big text, snapshots."""
    nested = st.recursive(
        scalars(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=6,
    )
    big = st.builds(lambda text, times: text * times, st.text(min_size=1, max_size=8), st.just(700))
    whole = st.one_of(nested, st.lists(messages(), max_size=4), big)
    return whole | st.builds(_DeltaSnapshot, whole)


def edits(value: Any) -> Strategy:
    """Draw a value made from `value` as a node would make it."""
    if isinstance(value, _DeltaSnapshot):
        return st.builds(_DeltaSnapshot, edits(value.value))
    if isinstance(value, list):
        item = messages() | scalars()
        return st.one_of(
            st.lists(item, min_size=1, max_size=3).map(lambda tail: value + tail),
            st.integers(0, len(value)).map(lambda end: value[:end]),
            st.tuples(st.integers(0, len(value)), item).map(
                lambda at: [*value[: at[0]], at[1], *value[at[0] + 1 :]]
            ),
        )
    if isinstance(value, dict):
        entry = st.dictionaries(st.text(max_size=3), scalars(), min_size=1, max_size=2)
        cut = st.sampled_from([*value] or [""])
        return entry.map(lambda new: {**value, **new}) | cut.map(
            lambda key: {k: v for k, v in value.items() if k != key}
        )
    if isinstance(value, str):
        return st.text(min_size=1, max_size=9).map(lambda tail: value + tail)
    return values()


def metadata() -> Strategy:
    """Draw metadata with LangGraph's keys, counters of a delta channel and text with NUL."""
    return st.fixed_dictionaries(
        {
            "source": st.sampled_from(["input", "loop", "update", "fork"]),
            "step": st.integers(-2, 3),
            "parents": st.dictionaries(namespaces(), st.text(max_size=3), max_size=1),
        },
        optional={
            "counters_since_delta_snapshot": st.just({"x": [1, 2]}),
            "tag": st.sampled_from(["", "1", "a\0b", LONG_TEXT]),
        },
    )


def filters() -> Strategy:
    """Draw a listing's filter over what `metadata` draws."""
    return st.fixed_dictionaries(
        {},
        optional={
            "step": st.sampled_from([0, 1, "1"]),
            "source": st.sampled_from(["loop", "input"]),
            "tag": st.sampled_from(["", "1", 1]),
        },
    )


def write_batches() -> Strategy:
    """Draw the writes of one put_writes: regular, special and both, perhaps none."""
    special = st.sampled_from([ERROR, INTERRUPT, RESUME, SCHEDULED])
    channels = channel_names() | special | st.just(TASKS)
    return st.lists(st.tuples(channels, values()), max_size=4)


@st.composite
def channel_states(
    draw: st.DrawFn,
    held: Mapping[str, Any],
    shown: Mapping[str, Any],
    known: Mapping[str, Sequence[Any]],
    number: int,
) -> ChannelStates:
    """Draw channel_versions, new_versions and channel_values of a checkpoint to be put.

    A channel is given a new value, one edited from the parent's, or none (emptied); inherits, with
    or without its value repeated; is put again under the parent's version; carries the version of
    another checkpoint or one nobody has (as `__copy__` does); or is dropped.

    Args:
        held, shown: The parent's versions and values.
        known: Versions of each channel in the stream.
        number: Above all numbers used for versions so far by `CHANNELS_MAX`.
    """
    versions_put: Named = {}
    new: Named = {}
    put: Named = {}
    drawn = draw(st.lists(channel_names(), unique=True, max_size=2))
    for position, channel in enumerate(dict.fromkeys([*held, *drawn])):
        change = draw(st.sampled_from(_CHANGES))
        if change == "drop":
            continue
        version = draw(versions(number - position))
        if change in {"inherit", "again"}:
            version = held.get(channel, version)
        elif change == "foreign":
            version = draw(st.sampled_from(known.get(channel, [version])))
        versions_put[channel] = version
        if change in {"new", "edit", "empty", "again"}:
            new[channel] = version
        repeated = change == "inherit" and channel in shown and draw(st.booleans())
        if repeated or (change == "edit" and channel in shown):
            told = shown[channel]
            put[channel] = told if repeated else draw(edits(told))
        elif change in {"new", "edit", "again"} or (
            change in {"foreign", "copy"} and draw(st.booleans())
        ):
            put[channel] = draw(values())
    return versions_put, new, put
