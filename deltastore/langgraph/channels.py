"""Reducers of delta channels: read off a graph, and made into what compaction folds with.

The rules of a delta channel, `Overwrite` among them, are LangGraph's own: a `DeltaChannel` replays
the writes. Only this module needs LangGraph itself installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from deltastore.errors import InvalidArgumentError, InvalidTypeError
from deltastore.folding import Fold
from deltastore.langgraph.serde import Coder
from deltastore.types import Typed

if TYPE_CHECKING:
    from langgraph.channels.delta import DeltaChannel

Reducer = Callable[[Any, Sequence[Any]], Any]


def reducers_of(graph: Any) -> dict[str, Any]:
    """Return the delta channels of a compiled graph and its subgraphs, by name.

    To be given to `DeltaStoreSaver(reducers=...)`.

    Raises:
        InvalidTypeError: It is no compiled graph.
        InvalidArgumentError: Two channels of one name have different reducers.
    """
    from langgraph.channels.delta import DeltaChannel

    if not hasattr(graph, "channels") or not hasattr(graph, "get_subgraphs"):
        raise InvalidTypeError(
            f"a compiled graph has channels (got {type(graph).__name__}); call compile() first"
        )
    found: dict[str, Any] = {}
    for part in (graph, *(sub for _, sub in graph.get_subgraphs(recurse=True))):
        for name, channel in part.channels.items():
            if not isinstance(channel, DeltaChannel):
                continue
            other = found.setdefault(name, channel)
            if other.reducer is not channel.reducer or other.typ is not channel.typ:
                raise InvalidArgumentError(
                    f"channel {name!r} has one reducer in the graph and another in a subgraph; "
                    "pass reducers={...} without it, and it is left as it is"
                )
    return found


def folds_of(reducers: Mapping[str, Any], coder: Coder) -> dict[str, Fold]:
    """Return what makes snapshots of each channel, from its reducer or `DeltaChannel`."""
    return {
        name: partial(_fold, _channel(reducer), coder, name) for name, reducer in reducers.items()
    }


def check_reducers(reducers: Any) -> dict[str, Any]:
    """Return a copy of the reducers a saver is given.

    Raises:
        InvalidTypeError: It is no mapping of channel name to reducer.
    """
    if not isinstance(reducers, Mapping):
        raise InvalidTypeError(
            f"reducers must be a dict of channel name to reducer (got {type(reducers).__name__})"
        )
    for name, reducer in reducers.items():
        if not isinstance(name, str):
            raise InvalidTypeError(f"reducers: names must be str (got {type(name).__name__})")
        if not callable(reducer) and not hasattr(reducer, "replay_writes"):
            raise InvalidTypeError(
                f"reducers[{name!r}] must be a callable (state, writes) or a DeltaChannel "
                f"(got {type(reducer).__name__})"
            )
    return dict(reducers)


def _channel(reducer: Any) -> DeltaChannel[Any]:
    from langgraph.channels.delta import DeltaChannel

    return reducer if isinstance(reducer, DeltaChannel) else DeltaChannel(reducer)


def _fold(
    channel: DeltaChannel[Any], coder: Coder, name: str, seed: Typed | None, writes: Sequence[Typed]
) -> Typed:
    # None stands for an empty channel, as it does for LangGraph.
    replayed = channel.from_checkpoint(None if seed is None else coder.loads(seed))
    replayed.replay_writes([("", name, value) for value in coder.loads_many(writes)])
    return coder.dumps(_DeltaSnapshot(replayed.get()), f"snapshot of channel {name!r}")
