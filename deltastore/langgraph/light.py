"""Which calls are light: cheaper to serialize on the event loop than to hand to a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

# Some 50 messages of a chat, a quarter of a millisecond of serializing.
_WEIGHT_MAX: Final = 65_536
_SCALARS: Final = frozenset({int, float, bool})
_CONTAINERS: Final = frozenset({list, tuple, set, frozenset, deque})


def is_quick(serde: Any) -> bool:
    """Return whether a serializer is known to compute and do nothing else; another may wait."""
    return type(serde) is JsonPlusSerializer


def is_light(values: Iterable[Any]) -> bool:
    """Return whether values are surely small: texts, numbers, plain containers, models, all told.

    What cannot be looked into is not light, nor what another thread changes meanwhile. Cost: a
    tenth of a microsecond for each part, and it ends as soon as they are too many.
    """
    try:
        return _weighs_little(values)
    except RuntimeError:  # a dict, set or deque of another size than a moment ago
        return False


def _weighs_little(values: Iterable[Any]) -> bool:
    left = _WEIGHT_MAX
    waiting = [values]
    while waiting:
        # As long as was paid for when it was found.
        for value in waiting.pop():
            if value is None:
                continue
            kind = type(value)
            if kind is str or kind is bytes:
                left -= len(value)
            elif kind in _SCALARS:
                left -= 8
            elif kind is dict:
                left -= 32 * len(value)
                waiting.append(value.values())
            elif kind in _CONTAINERS:
                left -= 16 * len(value)
                waiting.append(value)
            elif hasattr(kind, "__pydantic_fields__") or hasattr(kind, "__dataclass_fields__"):
                fields = getattr(value, "__dict__", None)
                if fields is None:
                    return False
                left -= 64 * (1 + len(fields))
                waiting.append(fields.values())
            else:
                return False
        if left < 0:
            return False
    return True


def is_light_put(checkpoint: Any, metadata: Any, new_versions: Any) -> bool:
    """As `is_light`, of what a checkpoint brings; False for arguments that no graph passes."""
    if type(checkpoint) is not dict or type(new_versions) is not dict:
        return False
    values = checkpoint.get("channel_values")
    if type(values) is not dict:
        return False
    return is_light((metadata, *(values[c] for c in new_versions if c in values)))
