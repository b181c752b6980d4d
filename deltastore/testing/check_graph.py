"""Check every reducer of a graph, subgraphs included, with what its channels are annotated to hold.

    from deltastore.testing.check_graph import check_graph

    def test_my_graph():
        check_graph(graph).raise_for_failures()

A `DeltaChannel` must hold the laws: its state is rebuilt from writes. A plain channel with a
reducer is stored whole and need not; it is checked as `folded(reducer)`, to say whether it could
become a `DeltaChannel`. Messages are drawn with ids, as LangGraph gives each one that is written to
a `DeltaChannel` an id before it is stored. Nothing of the graph is run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, get_args

from hypothesis import strategies as st
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.graph import StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import get_type_hints

from deltastore.errors import DeltaStoreError, InvalidArgumentError, InvalidTypeError
from deltastore.testing.reducer_calls import Reducer, folded, name_of, unfolded
from deltastore.testing.reducer_laws import check_options, check_reducer
from deltastore.testing.reducer_report import LawError, LawReport, indented, text_table
from deltastore.testing.reducer_strategies import domain_of

Kind = Literal["delta", "plain"]
Strategies = Mapping[str, st.SearchStrategy[Any]]
_NOTHING: Final[Mapping[str, Any]] = {}


class GraphChannel(NamedTuple):
    """A channel with a reducer.

    Attributes:
        place: Namespace of the subgraph it is in; empty for the graph itself.
        reducer: As a `DeltaChannel` takes it; that of a plain channel is folded.
        typ: What the state's schema says it holds.
    """

    place: str
    name: str
    kind: Kind
    reducer: Reducer
    typ: Any

    @property
    def path(self) -> str:
        """Its name, behind that of its subgraph."""
        return f"{self.place}:{self.name}" if self.place else self.name


@dataclass(frozen=True, slots=True)
class ChannelResult:
    """What was found of one channel.

    Attributes:
        report: None if it could not be checked; `advice` says why.
        advice: What to do.
    """

    channel: GraphChannel
    report: LawReport | None
    advice: str

    @property
    def is_proven(self) -> bool:
        """Whether its reducer was judged by every law and holds."""
        return self.report is not None and self.report.is_proven


@dataclass(frozen=True, slots=True)
class GraphReport:
    """What was found of a graph's channels.

    Attributes:
        seed: With it, the same check finds the same.
    """

    results: tuple[ChannelResult, ...]
    seed: int

    @property
    def is_proven(self) -> bool:
        """Whether the reducer of every `DeltaChannel` holds; plain channels do not count."""
        return all(one.is_proven for one in self.results if one.channel.kind == "delta")

    def document(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        channels = [
            {
                "channel": one.channel.name,
                "namespace": one.channel.place,
                "kind": one.channel.kind,
                "advice": one.advice,
                "report": None if one.report is None else one.report.document(),
            }
            for one in self.results
        ]
        return {"channels": channels, "seed": self.seed, "is_proven": self.is_proven}

    def raise_for_failures(self) -> None:
        """Raise unless every `DeltaChannel` is proven.

        Raises:
            LawError: One is not; its text is the whole report.
        """
        __tracebackhide__ = True  # of pytest: the report says it all
        if not self.is_proven:
            raise LawError(str(self))

    def __str__(self) -> str:
        """Return the table, then the report of each reducer that does not hold."""
        if not self.results:
            return "no channel has a reducer"
        rows = [("channel", "kind", "reducer", "held", "fails", "advice")]
        parts = []
        for one in self.results:
            held, fails = "-", "-"
            if one.report is not None:
                asked = [r for r in one.report.results if r.status not in {"unclaimed", "waived"}]
                held = f"{len(one.report.held)}/{len(asked)}"
                fails = ", ".join(one.report.failed) or "-"
            channel = one.channel
            rows.append(
                (channel.path, channel.kind, name_of(channel.reducer), held, fails, one.advice)
            )
            if one.report is not None and not one.report.is_proven:
                parts += ["", f"{channel.path}: {indented(str(one.report)).lstrip()}"]
        return "\n".join([text_table(rows), f"seed {self.seed}", *parts])


def check_graph(
    graph: Any,
    *,
    values: Strategies = _NOTHING,
    writes: Strategies = _NOTHING,
    claims: Mapping[str, Collection[str]] = _NOTHING,
    waives: Mapping[str, Collection[str]] = _NOTHING,
    serde: SerializerProtocol | None = None,
    max_examples: int = 300,
    seed: int = 0,
) -> GraphReport:
    """Check every channel with a reducer and return what was found.

    Args:
        graph: A compiled graph, a `StateGraph`, or a state's schema.
        values, writes, claims, waives: As of `check_reducer`, by a channel's name; a name counts in
            subgraphs too.
        serde, max_examples, seed: As of `check_reducer`.

    Raises:
        InvalidTypeError: It is nothing that has channels.
        InvalidArgumentError: An option names a channel that has no reducer, or a law that there is
            not; or `max_examples` is less than 1.
    """
    check_options((), (), max_examples, seed)
    channels = list(scan_channels(graph))
    known = {channel.name for channel in channels}
    for option in (values, writes, claims, waives):
        for name in option:
            if name not in known:
                raise InvalidArgumentError(
                    f"no channel {name!r} has a reducer; there are: {', '.join(sorted(known))}"
                )
    for name in {**claims, **waives}:
        check_options(claims.get(name, ()), waives.get(name, ()), max_examples, seed)
    done: dict[tuple[Any, ...], ChannelResult] = {}
    results = []
    for channel in channels:
        # The channel of a subgraph mostly has the same reducer, and the same is found of it.
        key = (channel.name, channel.kind, id(unfolded(channel.reducer)), repr(channel.typ))
        if key not in done:
            done[key] = check_channel(
                channel,
                values=values.get(channel.name),
                writes=writes.get(channel.name),
                claims=claims.get(channel.name, ()),
                waives=waives.get(channel.name, ()),
                serde=serde,
                max_examples=max_examples,
                seed=seed,
            )
        results.append(ChannelResult(channel, done[key].report, done[key].advice))
    return GraphReport(tuple(results), seed)


def check_channel(
    channel: GraphChannel, *, values: Any = None, writes: Any = None, **options: Any
) -> ChannelResult:
    """Check one channel; options as of `check_reducer`. One that cannot be checked says why."""
    try:
        if values is None or writes is None:
            derived = domain_of(channel.typ, unfolded(channel.reducer), ids="given")
            values = derived.values if values is None else values
            writes = derived.writes if writes is None else writes
        report = check_reducer(
            channel.reducer, values=values, writes=writes, typ=channel.typ, **options
        )
    except DeltaStoreError as error:
        return ChannelResult(channel, None, f"not checked: {error}")
    return ChannelResult(channel, report, _advice(channel, report))


def scan_channels(graph: Any) -> Iterator[GraphChannel]:
    """Yield the channels with reducers of a graph and its subgraphs, in their order.

    Raises:
        InvalidTypeError: It is nothing that has channels.
    """
    if isinstance(graph, type):
        try:
            graph = StateGraph(graph)
        except Exception as error:
            raise InvalidTypeError(f"{graph.__name__} is no state's schema: {error}") from error
    if not hasattr(graph, "channels"):
        raise InvalidTypeError(
            f"a graph or a state's schema has channels (got {type(graph).__name__})"
        )
    parts = [("", graph)]
    if hasattr(graph, "get_subgraphs"):
        parts += [*graph.get_subgraphs(recurse=True)]
    for place, part in parts:
        hints = _hints(part)
        for name, channel in part.channels.items():
            typ = hints.get(name, getattr(channel, "typ", Any))
            if isinstance(channel, DeltaChannel):
                yield GraphChannel(place, name, "delta", channel.reducer, typ)
            elif isinstance(channel, BinaryOperatorAggregate):
                yield GraphChannel(place, name, "plain", folded(channel.operator), typ)


def _hints(graph: Any) -> dict[str, Any]:
    """Return what the schemas say of each channel, without the reducer beside it."""
    found: dict[str, Any] = {}
    builder = getattr(graph, "builder", graph)
    for schema in getattr(builder, "schemas", {}):
        hints: dict[str, Any] = {}
        # Hints may name what is not there; then the channel's own type must do.
        with suppress(Exception):
            hints = get_type_hints(schema, include_extras=True)
        for name, hint in hints.items():
            found.setdefault(name, get_args(hint)[0] if hasattr(hint, "__metadata__") else hint)
    return found


def _advice(channel: GraphChannel, report: LawReport) -> str:
    if report.is_proven:
        if channel.kind == "delta":
            return "replays as it ran"
        if unfolded(channel.reducer) is add_messages:
            return "could be a DeltaChannel(_messages_delta_reducer)"
        return f"could be a DeltaChannel({name_of(channel.reducer)})"
    if channel.kind == "plain":
        return "leave it a plain channel"
    if report.failed:
        return report.of(report.failed[0]).note
    return "pass values= and writes= that the reducer takes"
