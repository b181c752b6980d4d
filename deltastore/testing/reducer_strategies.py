"""Hypothesis strategies for states and writes of a channel, derived from its type where possible.

A *domain* says what a reducer is tested with: `values`, the states it may be given to begin with
(an empty state is always among them), and `writes`, single writes as nodes return them. Few
different ids, keys and items are drawn, so that writes meet what is there. What is drawn shrinks to
small code. Floats are finite; no text has lone surrogates.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections import abc
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin

from hypothesis import strategies as st
from langchain_core import messages as lc
from langgraph.graph.message import REMOVE_ALL_MESSAGES, _messages_delta_reducer, add_messages
from pydantic import BaseModel
from typing_extensions import NotRequired, Required, get_type_hints, is_typeddict

from deltastore.errors import InvalidArgumentError

Strategy = st.SearchStrategy[Any]
Ids = Literal["given", "absent", "either"]


class Domain(NamedTuple):
    """What a reducer is tested with."""

    values: Strategy
    writes: Strategy


_IDS: Final = ["a", "b"]
_REMOVED: Final = [*_IDS, *_IDS, REMOVE_ALL_MESSAGES]
_TEXTS: Final = ["", "x", "y"]
_LISTS: Final = (list, abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection)
_DICTS: Final = (dict, abc.Mapping, abc.MutableMapping)
_SETS: Final = (set, abc.Set, abc.MutableSet)
_MESSAGE_REDUCERS: Final = (add_messages, _messages_delta_reducer)
_OPTIONAL: Final[tuple[Any, ...]] = (NotRequired,)
_registered: dict[Any, Callable[[], Domain]] = {}


def register_domain(key: Any, domain: Callable[[], Domain]) -> None:
    """Set what is drawn for a type, or for a reducer whatever its channel's type; lasts.

    Args:
        key: The type as it stands in the annotation (`Note`, `list[Note]`), or the reducer.
        domain: Makes the strategies when they are first needed.
    """
    _registered[key] = domain


def domain_of(typ: Any, reducer: Any = None, *, ids: Ids = "either") -> Domain:
    """Return what to test a reducer with: registered for it, or derived from its channel's type.

    Writes are of the channel's type, as LangGraph has it. Beside that, a write to a dict may map a
    key to None if the type of its values is open, and one to a list of messages may be a single
    message, an update of a message by its id, or a `RemoveMessage`. LangGraph's own reducers get
    messages whatever the type says.

    Args:
        ids: Whether messages have ids. In a graph all have: LangGraph gives them one before it
            stores a write to a `DeltaChannel`.

    Raises:
        InvalidArgumentError: No strategy is known for the type or a part of it.
    """
    for key in (reducer, typ):
        made = _registration(key)
        if made is not None:
            return made()
    bare = _bare(typ)
    holds_messages = get_origin(bare) in _LISTS and _is_message(get_args(bare)[0])
    if holds_messages or reducer in _MESSAGE_REDUCERS:
        return Domain(message_lists(ids), message_writes(ids))
    drawn = values_of(typ)
    if bare in _DICTS:
        return Domain(drawn, st.dictionaries(keys(), st.none() | scalars(), min_size=1, max_size=2))
    return Domain(drawn, drawn)


# --- by type ---


def values_of(typ: Any) -> Strategy:
    """Return a strategy for a type.

    Raises:
        InvalidArgumentError: None is known.
    """
    registered = _registration(typ)
    if registered is not None:
        return registered().values
    if _is_message(typ):
        return messages()
    typ = _bare(typ)
    origin, parts = get_origin(typ) or typ, get_args(typ)
    if origin is Literal:
        return st.sampled_from(parts)
    inner = [values_of(part) for part in parts if part is not Ellipsis]
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*inner)
    if origin is tuple and inner:
        return st.lists(inner[0], max_size=4).map(tuple) if ... in parts else st.tuples(*inner)
    found = _container(origin, inner)
    return _value_of_class(typ) if found is None else found


def _container(origin: Any, inner: list[Strategy]) -> Strategy | None:
    if origin in _LISTS:
        return st.lists(inner[0] if inner else scalars(), max_size=4)
    if origin in _DICTS:
        key, item = inner or (keys(), scalars())
        return st.dictionaries(key, item, max_size=3)
    if origin in _SETS:
        return st.sets(inner[0] if inner else _items(), max_size=4)
    if origin is frozenset:
        return st.frozensets(inner[0] if inner else _items(), max_size=4)
    return None


def _value_of_class(typ: Any) -> Strategy:
    simple: dict[Any, Callable[[], Strategy]] = {
        Any: scalars,
        object: scalars,
        None: st.none,
        type(None): st.none,
        bool: st.booleans,
        int: integers,
        float: floats,
        Decimal: decimals,
        str: texts,
        bytes: lambda: st.sampled_from([b"", b"x", b"y"]),
    }
    if typ in simple:
        return simple[typ]()
    if is_typeddict(typ):
        return _typed_dicts(typ)
    if isinstance(typ, type) and issubclass(typ, enum.Enum):
        return st.sampled_from(typ)
    if dataclasses.is_dataclass(typ) or (isinstance(typ, type) and issubclass(typ, BaseModel)):
        return _objects(typ)
    if isinstance(typ, type):
        found: Strategy = st.from_type(typ)
        try:
            found.validate()
        except Exception as error:
            raise _unknown(typ) from error
        return found
    raise _unknown(typ)


def _registration(key: Any) -> Callable[[], Domain] | None:
    try:
        return _registered.get(key)
    except TypeError:  # what an annotation holds beside the type need have no hash
        return None


def _unknown(typ: Any) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"no strategy is known for the type {typ!r}; pass values=... and writes=..., or "
        "register_domain(type, ...)"
    )


def _bare(typ: Any) -> Any:
    while get_origin(typ) in {Annotated, Required, NotRequired}:
        typ = get_args(typ)[0]
    return typ


def _is_message(typ: Any) -> bool:
    typ = _bare(typ)
    if isinstance(typ, type):
        return issubclass(typ, lc.BaseMessage)
    return get_origin(typ) in (typing.Union, types.UnionType) and any(
        map(_is_message, get_args(typ))
    )


def _typed_dicts(typ: Any) -> Strategy:
    hints = get_type_hints(typ, include_extras=True)
    named = {name: values_of(hint) for name, hint in hints.items()}
    # Where annotations are texts, the class itself does not know of NotRequired.
    absent = {
        name
        for name, hint in hints.items()
        if name in typ.__optional_keys__ or get_origin(hint) in _OPTIONAL
    }
    return st.fixed_dictionaries(
        {name: named[name] for name in hints if name not in absent},
        optional={name: named[name] for name in hints if name in absent},
    )


def _objects(typ: Any) -> Strategy:
    hints = get_type_hints(typ, include_extras=True)
    if issubclass(typ, BaseModel):
        names = [name for name, field in typ.model_fields.items() if field.init is not False]
    else:
        names = [field.name for field in dataclasses.fields(typ) if field.init]
    return st.builds(typ, **{name: values_of(hints[name]) for name in names})


# --- plain data ---


def integers() -> Strategy:
    """Draw a small number, at times one beyond 32 bits or beyond what a float can tell apart."""
    return st.sampled_from([*range(10), 16, 24, 31, 99, -1, -2, -9, 2**31, 2**53 + 1, -(2**53) - 1])


def floats() -> Strategy:
    """Draw a finite number; sums of several round differently in another order."""
    return st.sampled_from([0.0, 1.0, 0.1, 0.2, 0.3, -0.1, 0.5, 2.0, 3.0, 1e16, -1e16, 1e-3])


def decimals() -> Strategy:
    """Draw a finite decimal number; some are equal and differ in their digits."""
    return st.sampled_from([Decimal(text) for text in ("0", "1", "1.0", "0.1", "0.2", "-3", "1E9")])


def texts() -> Strategy:
    """Draw a text, of few so that they repeat."""
    return st.sampled_from([*_TEXTS, "z", "x y", "\u00e9"])


def keys() -> Strategy:
    """Draw one of few keys of a dict."""
    return st.sampled_from(["a", "b"])


def scalars() -> Strategy:
    """Draw a value without parts, but not None: for many reducers None says to delete."""
    return st.sampled_from([*range(10), *_TEXTS, False, True, 0.0, 0.1, 0.5, 1.0])


def _items() -> Strategy:
    return st.sampled_from([*range(10), *_TEXTS])


def records(*, key: str = "id") -> Strategy:
    """Draw a dict with an id, of few, and something beside it."""
    return st.builds(
        lambda ident, text: {key: ident, "text": text},
        st.sampled_from(_IDS),
        st.sampled_from(_TEXTS),
    )


# --- messages ---


def messages(ids: Ids = "either") -> Strategy:
    """Draw a message: any role, content as text or blocks, tool calls, results of tools, chunks."""
    return st.builds(_message, st.sampled_from([*_KINDS]), st.sampled_from(_TEXTS), _ids(ids))


def message_lists(ids: Ids = "either", *, unique: bool = True) -> Strategy:
    """Draw a list of messages; no id twice unless `unique` is False."""
    drawn = st.lists(messages(ids), max_size=3)
    return drawn.map(_first_of_each_id) if unique else drawn


def message_writes(ids: Ids = "either", *, removals: bool = True) -> Strategy:
    """Draw what a node writes: messages in a list or alone, updates and removals by id."""
    one = messages(ids)
    if removals:
        one |= st.sampled_from(_REMOVED).map(lambda ident: lc.RemoveMessage(id=ident))
    return st.lists(one, max_size=3) | one


def raw_messages() -> Strategy:
    """Draw a message in the other forms LangGraph takes: a text, a pair, a dict."""
    texts_ = st.sampled_from(_TEXTS)
    return st.one_of(
        texts_,
        st.tuples(st.sampled_from(["user", "assistant"]), texts_),
        st.builds(
            lambda text, ident: {"role": "user", "content": text, "id": ident}, texts_, keys()
        ),
    )


def _ids(ids: Ids) -> Strategy:
    given = st.sampled_from(_IDS)
    return {"given": given, "absent": st.none(), "either": given | st.none()}[ids]


def _call(text: str) -> list[Any]:
    return [{"name": "search", "args": {"q": text}, "id": f"call-{text}", "type": "tool_call"}]


_KINDS: Final[dict[str, Callable[[str, str | None], lc.BaseMessage]]] = {
    "human": lambda text, ident: lc.HumanMessage(content=text, id=ident),
    "ai": lambda text, ident: lc.AIMessage(content=text, id=ident),
    "system": lambda text, ident: lc.SystemMessage(content=text, id=ident),
    "calls": lambda text, ident: lc.AIMessage(content=text, id=ident, tool_calls=_call(text)),
    "tool": lambda text, ident: lc.ToolMessage(content=text, id=ident, tool_call_id=f"call-{text}"),
    "error": lambda text, ident: lc.ToolMessage(
        content=text, id=ident, tool_call_id="call-", status="error", artifact={"raw": text}
    ),
    "blocks": lambda text, ident: lc.AIMessage(
        content=[{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": text}}],
        id=ident,
    ),
    "named": lambda text, ident: lc.HumanMessage(
        content=text, id=ident, name="user", additional_kwargs={"k": [text]}
    ),
    "chat": lambda text, ident: lc.ChatMessage(content=text, id=ident, role="critic"),
    "function": lambda text, ident: lc.FunctionMessage(content=text, id=ident, name="f"),
    "ai part": lambda text, ident: lc.AIMessageChunk(content=text, id=ident),
    "human part": lambda text, ident: lc.HumanMessageChunk(content=text, id=ident),
    "system part": lambda text, ident: lc.SystemMessageChunk(content=text, id=ident),
    "chat part": lambda text, ident: lc.ChatMessageChunk(content=text, id=ident, role="critic"),
    "function part": lambda text, ident: lc.FunctionMessageChunk(content=text, id=ident, name="f"),
    "tool part": lambda text, ident: lc.ToolMessageChunk(
        content=text, id=ident, tool_call_id=f"call-{text}"
    ),
}


def _message(kind: str, text: str, ident: str | None) -> lc.BaseMessage:
    return _KINDS[kind](text, ident)


def _first_of_each_id(drawn: list[lc.BaseMessage]) -> list[lc.BaseMessage]:
    by_id: dict[Any, lc.BaseMessage] = {}
    for position, one in enumerate(drawn):
        by_id.setdefault(position if one.id is None else one.id, one)
    return [*by_id.values()]
