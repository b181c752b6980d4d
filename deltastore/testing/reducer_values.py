"""Values as the laws of reducers see them: compared exactly, copied, and written as code.

A *picture* of a value is a hashable form that keeps nothing of the value alive and equals another
picture exactly if both values and all they hold have the same types and contents. No tolerance:
1 is not True, 0.1 + 0.2 is not 0.3, -0.0 is not 0.0; NaN equals NaN. The order of a set never
counts; that of a dict's keys counts in an *ordered* picture only.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import sys
from collections.abc import Mapping, Set
from decimal import Decimal
from typing import Any, Final

from pydantic import BaseModel

_LEAVES: Final = (type(None), bool, int, str, bytes)
_BUILTIN: Final = "builtins"


class _ByEquality:
    """Stands in a picture for an object of which nothing is known but `==`."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByEquality) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(type(self.value))


def picture(value: Any, *, ordered: bool = False) -> Any:
    """Return a value's picture.

    Raises:
        RecursionError: The value contains itself.
    """
    kind = type(value)
    if kind in _LEAVES:
        return kind, value
    if isinstance(value, float):
        return kind, value.hex()
    if isinstance(value, (complex, Decimal)):
        return kind, repr(value)
    parts: Any
    if isinstance(value, Mapping):
        pairs = (
            (picture(key, ordered=ordered), picture(item, ordered=ordered))
            for key, item in value.items()
        )
        parts = tuple(pairs) if ordered else frozenset(pairs)
    elif isinstance(value, (list, tuple)):
        parts = tuple([picture(item, ordered=ordered) for item in value])
    elif isinstance(value, Set):
        parts = frozenset([picture(item, ordered=ordered) for item in value])
    elif isinstance(value, (enum.Enum, type)) or callable(value):
        return kind, _ByEquality(value)
    else:
        attributes = _attributes(value)
        return kind, _ByEquality(value) if attributes is None else _named(attributes, ordered)
    # What a subclass of a container keeps beside its items is state too.
    extra = {} if kind.__module__ == _BUILTIN else _attributes(value) or {}
    return (kind, parts, _named(extra, ordered)) if extra else (kind, parts)


def _named(attributes: Mapping[str, Any], ordered: bool) -> Any:
    return frozenset((name, picture(item, ordered=ordered)) for name, item in attributes.items())


def _attributes(value: Any) -> dict[str, Any] | None:
    """Return what an object of a class of Python's own holds; None for one of C's."""
    if isinstance(value, BaseModel):
        private = value.__pydantic_private__ or {}
        return {**value.__dict__, **(value.__pydantic_extra__ or {}), **private}
    found = dict(getattr(value, "__dict__", {}))
    has_slots = False
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            has_slots = True
            if hasattr(value, name) and not name.startswith("__"):
                found[name] = getattr(value, name)
    return found if found or has_slots or dataclasses.is_dataclass(value) else None


def fresh(value: Any) -> Any:
    """Return a deep copy of a value; its sets are built anew, so that their order may differ.

    Raises:
        Exception: What `copy.deepcopy` raises for something in it that has no copy.
    """
    kind = type(value)
    if kind in _LEAVES or kind is float:
        return value
    if kind is list:
        return [fresh(item) for item in value]
    if kind is dict:
        return {fresh(key): fresh(item) for key, item in value.items()}
    if kind is set:
        return _laid_out_anew(value)
    if _is_plain_model(value):
        # As pydantic copies deeply, at a third of the cost.
        copied = copy.copy(value)
        copied.__dict__.update(fresh(value.__dict__))
        return copied
    return copy.deepcopy(value)


def _is_plain_model(value: Any) -> bool:
    return (
        isinstance(value, BaseModel)
        and value.__pydantic_private__ is None
        and type(value).__deepcopy__ is BaseModel.__deepcopy__
    )


def _laid_out_anew(value: set[Any]) -> set[Any]:
    # A set that once was large keeps its large table, and iterates in another order.
    spare = [object() for _ in range(60)]
    found = {*spare, *map(fresh, value)}
    found.difference_update(spare)
    return found


class Source:
    """Writes values as Python expressions and gathers the imports these need."""

    def __init__(self) -> None:
        self._imports: set[tuple[str, str]] = set()

    @property
    def imports(self) -> list[str]:
        """The import statements, one a module, sorted."""
        modules = sorted({module for module, _ in self._imports})
        return [
            f"from {module} import {', '.join(sorted(n for m, n in self._imports if m == module))}"
            for module in modules
        ]

    def need(self, module: str, name: str) -> None:
        """Have a name imported."""
        self._imports.add((module, name))

    def name(self, found: Any) -> str:
        """Return the name of a class, to be imported unless it is a builtin."""
        module, qualname = str(found.__module__), str(found.__qualname__)
        if module == _BUILTIN:
            return qualname
        parts = module.split(".")
        # The package that exports it is where users import it from.
        for end in range(1, len(parts)):
            package = ".".join(parts[:end])
            if getattr(sys.modules.get(package), qualname, None) is found:
                module = package
                break
        self.need(module, qualname.split(".", maxsplit=1)[0])
        return qualname

    def of(self, value: Any) -> str:  # noqa: PLR0911 - a return for each kind of value
        """Return an expression that makes an equal value; the repr of what it cannot take apart."""
        kind = type(value)
        if kind is float and value in {float("inf"), float("-inf")}:
            return f"float({str(value)!r})"
        if kind is list:
            return f"[{', '.join(map(self.of, value))}]"
        if kind is tuple:
            return f"({', '.join(map(self.of, value))}{',' if len(value) == 1 else ''})"
        if kind is dict:
            return f"{{{', '.join(f'{self.of(k)}: {self.of(v)}' for k, v in value.items())}}}"
        if kind in {set, frozenset}:
            return self._set(value)
        if isinstance(value, enum.Enum):
            return f"{self.name(kind)}.{value.name}"
        if isinstance(value, BaseModel):
            return self._model(value)
        if dataclasses.is_dataclass(value):
            return self._dataclass(value)
        if kind.__module__ != _BUILTIN and isinstance(value, (list, Set, Mapping)):
            plain: Any = dict(value) if isinstance(value, Mapping) else [*value]
            return f"{self.name(kind)}({self.of(plain)})"
        return self._shown(value)

    def _shown(self, value: Any) -> str:
        """Return the repr; where it is a call of the class, have that imported."""
        kind, text = type(value), repr(value)
        for name in (kind.__qualname__, f"{kind.__module__}.{kind.__qualname__}"):
            if kind.__module__ != _BUILTIN and text.startswith(f"{name}("):
                return f"{self.name(kind)}{text.removeprefix(name)}"
        return text

    def _set(self, value: Set[Any]) -> str:
        inner = ", ".join(sorted(map(self.of, value)))
        if type(value) is set:
            return f"{{{inner}}}" if inner else "set()"
        return f"frozenset({{{inner}}})" if inner else "frozenset()"

    def _model(self, value: BaseModel) -> str:
        kind = type(value)
        given = []
        for name, field in kind.model_fields.items():
            item = getattr(value, name)
            if field.is_required() or picture(item) != picture(
                field.get_default(call_default_factory=True)
            ):
                given.append(f"{name}={self.of(item)}")
        given += [f"{name}={self.of(item)}" for name, item in (value.model_extra or {}).items()]
        return f"{self.name(kind)}({', '.join(given)})"

    def _dataclass(self, value: Any) -> str:
        given = []
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            default: Any = field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            if field.init and picture(item) != picture(default):
                given.append(f"{field.name}={self.of(item)}")
        return f"{self.name(type(value))}({', '.join(given)})"
