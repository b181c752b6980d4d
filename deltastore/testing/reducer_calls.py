"""Calls of a reducer: guarded, through a DeltaChannel, through a serializer, at another time.

A *reducer* takes a state and a list of writes, as a `DeltaChannel` calls it. One that takes a state
and one write, as `Annotated[T, reducer]` has it, is made into such a one by `folded`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore.testing.reducer_clock import Clocks
from deltastore.testing.reducer_values import Source, fresh, picture

Reducer = Callable[[Any, Sequence[Any]], Any]
Operator = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Raised:
    """What a call came to that raised."""

    error: Exception

    def __str__(self) -> str:
        """Return the error in one line."""
        text = " ".join(str(self.error).split())
        return f"{type(self.error).__name__}: {text}" if text else type(self.error).__name__


class _Folded:
    """A reducer that applies an operator to one write after the other."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.__name__ = f"folded({getattr(operator, '__name__', type(operator).__name__)})"

    def __call__(self, state: Any, writes: Sequence[Any]) -> Any:
        for write in writes:
            state = self.operator(state, write)
        return state


def folded(operator: Operator) -> Reducer:
    """Return the reducer that applies `operator(state, write)` to one write after the other.

    This is what LangGraph does with `Annotated[T, operator]`, so the channel can become a
    `DeltaChannel(folded(operator))`.
    """
    return _Folded(operator)


def stored(value: Any, serde: SerializerProtocol | None = None) -> Any:
    """Return a value as it reads back from a checkpoint; `JsonPlusSerializer()` by default."""
    serde = default_serde() if serde is None else serde
    return serde.loads_typed(serde.dumps_typed(value))


def default_serde() -> SerializerProtocol:
    """Return LangGraph's serializer, taking any type."""
    return JsonPlusSerializer(allowed_msgpack_modules=True)


def replay(reducer: Reducer, typ: Any, seed: Any, writes: Iterable[Any]) -> Any:
    """Return the state a `DeltaChannel` rebuilds from a snapshot and the writes since."""
    channel = DeltaChannel(reducer, typ).from_checkpoint(_DeltaSnapshot(seed))
    channel.replay_writes([("", "", write) for write in writes])
    return channel.get()


def run(reducer: Reducer, typ: Any, seed: Any, supersteps: Iterable[Sequence[Any]]) -> Any:
    """Return the state of a `DeltaChannel` after supersteps that each write some values."""
    channel = DeltaChannel(reducer, typ).from_checkpoint(_DeltaSnapshot(seed))
    for writes in supersteps:
        channel.update([*writes])
    return channel.get()


class Subject:
    """A reducer under test and what it is tested with.

    Args:
        typ: What makes the empty state when called without arguments, as a `DeltaChannel` does.
        serde: What values are stored with; LangGraph's if None.
    """

    def __init__(self, reducer: Reducer, typ: Any, serde: SerializerProtocol | None) -> None:
        self.reducer = reducer
        self.typ = typ
        self.serde = serde
        self.is_pure = True
        self._told: dict[str, Any] = {}
        self._told_of: object = None
        self._serde = default_serde() if serde is None else serde
        self._clocks = Clocks(unfolded(reducer))

    def call(self, state: Any, writes: Sequence[Any]) -> Any:
        """Call the reducer with copies; return what it gives, or `Raised`."""
        return self.attempt(lambda: self.reducer(fresh(usable(state)), fresh([*writes])))

    def call_later(self, state: Any, writes: Sequence[Any]) -> Any:
        """As `call`, with the clocks that the reducer's module sees moved by more than a year."""

        def called() -> Any:
            arguments = fresh(usable(state)), fresh([*writes])
            with self._clocks.moved():
                return self.reducer(*arguments)

        return self.attempt(called)

    def once(self, case: object, name: str, work: Callable[[], Any]) -> Any:
        """Return what work gives; for the same case and name what it gave before."""
        if self._told_of is not case:
            self._told_of, self._told = case, {}
        if name not in self._told:
            self._told[name] = work()
        return self._told[name]

    def attempt(self, work: Callable[[], Any]) -> Any:
        """Return what work gives; what it raises as `Raised`, also of a state raised before."""
        try:
            return work()
        except _UnusableStateError as error:
            return error.raised
        except Exception as error:  # noqa: BLE001 - a reducer may raise anything
            return Raised(error)

    def stored(self, value: Any) -> Any:
        """Return a value as it reads back from a checkpoint."""
        return stored(value, self._serde)

    def replay(self, seed: Any, writes: Iterable[Any]) -> Any:
        """As the function, with copies and guarded."""
        return self.attempt(
            lambda: replay(self.reducer, self.typ, fresh(usable(seed)), fresh([*writes]))
        )

    def run(self, seed: Any, supersteps: Iterable[Sequence[Any]]) -> Any:
        """As the function, with copies and guarded."""
        return self.attempt(
            lambda: run(self.reducer, self.typ, fresh(seed), fresh([*map(list, supersteps)]))
        )


class _UnusableStateError(Exception):
    def __init__(self, raised: Raised) -> None:
        super().__init__(str(raised))
        self.raised = raised


def usable(state: Any) -> Any:
    """Return a state that a call gave; inside `Subject.attempt`, pass on what the call raised."""
    if isinstance(state, Raised):
        raise _UnusableStateError(state)
    return state


def alike(left: Any, right: Any, *, ordered: bool = False) -> bool:
    """Return whether two calls came to the same: equal pictures, or errors of one type."""
    if isinstance(left, Raised) or isinstance(right, Raised):
        return (
            isinstance(left, Raised)
            and isinstance(right, Raised)
            and type(left.error) is type(right.error)
        )
    return bool(picture(left, ordered=ordered) == picture(right, ordered=ordered))


def unfolded(reducer: Reducer) -> Operator:
    """Return the operator that a reducer folds with, or the reducer itself."""
    return reducer.operator if isinstance(reducer, _Folded) else reducer


def later(reducer: Reducer) -> AbstractContextManager[None]:
    """Move the clocks that a reducer's module sees by more than a year, for a block."""
    return Clocks(unfolded(reducer)).moved()


def name_of(reducer: Reducer) -> str:
    """Return what a table calls a reducer."""
    inner = unfolded(reducer)
    path = importable(inner)
    name = path[1] if path else getattr(inner, "__qualname__", type(inner).__name__)
    name = name.rpartition("<locals>.")[2]
    return f"folded({name})" if isinstance(reducer, _Folded) else name


def reducer_lines(reducer: Reducer, source: Source) -> list[str]:
    """Return the statements that make `reducer`; a comment if nothing imports it."""
    is_folded = isinstance(reducer, _Folded)
    path = importable(unfolded(reducer))
    if path is None:
        code = getattr(unfolded(reducer), "__code__", None)
        where = f", {Path(code.co_filename).name}:{code.co_firstlineno}" if code else ""
        return [f"# reducer is the one under test: {name_of(reducer)}{where}"]
    module, name = path
    if is_folded:
        source.need(module, name)
        return [f"reducer = folded({name})"]
    source.need(module, name if name == "reducer" else f"{name} as reducer")
    return []


def importable(found: Any) -> tuple[str, str] | None:
    """Return the module and name that a function is imported by, if it is."""
    module: str = getattr(found, "__module__", None) or ""
    # Functions of the standard library are written in modules with an underscore at the front.
    for name in (module.lstrip("_"), module):
        if name in sys.modules and name != "__main__":
            for attribute, held in [*vars(sys.modules[name]).items()]:
                if held is found:
                    return name, attribute
    return None
