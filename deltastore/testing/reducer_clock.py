"""Clocks moved for the length of a block: does what a reducer gives depend on when it is called?

Moved are the functions of `time` and the classes `datetime` and `date`, in their own modules and
where the reducer's module holds them by name. What reads a clock elsewhere is not moved.
"""

from __future__ import annotations

import datetime as dt
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

_LEAP: Final = dt.timedelta(days=400, hours=5, minutes=7, seconds=11)
_UNITS: Final = {
    "time": 1,
    "time_ns": 10**9,
    "monotonic": 1,
    "monotonic_ns": 10**9,
    "perf_counter": 1,
    "perf_counter_ns": 10**9,
}
"""Functions of `time` by name, and what they count a second as."""


class _Place(NamedTuple):
    names: dict[str, Any]
    name: str
    clock: Any
    moved: Any


class Clocks:
    """The clocks that a function's module sees."""

    def __init__(self, function: Any) -> None:
        moved: dict[int, Any] = {
            id(getattr(time, name)): _moved(getattr(time, name), unit)
            for name, unit in _UNITS.items()
        }
        moved[id(dt.datetime)] = _LaterDatetime
        moved[id(dt.date)] = _LaterDate
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        spaces = [time.__dict__, dt.__dict__]
        spaces += [vars(module)] if module else []
        spaces += [getattr(function, "__globals__", {})]
        self._places = [
            _Place(names, name, value, moved[id(value)])
            for names in {id(names): names for names in spaces}.values()
            for name, value in [*names.items()]
            if id(value) in moved
        ]

    @contextmanager
    def moved(self) -> Iterator[None]:
        """Move them by more than a year for a block."""
        try:
            for place in self._places:
                place.names[place.name] = place.moved
            yield
        finally:
            for place in self._places:
                place.names[place.name] = place.clock


def _moved(clock: Callable[[], Any], unit: int) -> Callable[[], Any]:
    return lambda: clock() + int(_LEAP.total_seconds()) * unit


class _IsReal(type):
    """Makes the real dates instances of the moved classes."""

    real: Any

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.real)


class _LaterDatetime(dt.datetime, metaclass=_IsReal):
    real: Any = dt.datetime

    def __new__(cls, *parts: Any, **named: Any) -> Any:
        return cls.real(*parts, **named)

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:
        return cls.real.now(tz) + _LEAP

    @classmethod
    def utcnow(cls) -> Any:
        return cls.now(dt.timezone.utc).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        return cls.now()


class _LaterDate(dt.date, metaclass=_IsReal):
    real: Any = dt.date

    def __new__(cls, *parts: Any, **named: Any) -> Any:
        return cls.real(*parts, **named)

    @classmethod
    def today(cls) -> Any:
        return cls.real.today() + _LEAP
