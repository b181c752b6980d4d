"""Laws of headers over arbitrary headers and pairs of parent and child.

A child is drawn either at random or by *changing* its parent the way supersteps do, so that the
difference form is met in every part and the fall-back to whole headers is too.
"""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltastore.errors import CorruptionError, DeltaStoreError
from deltastore.format.header import (
    Header,
    Opaque,
    Slot,
    ValueRef,
    decode,
    encode,
    equal,
    measure,
    parent_of,
)
from deltastore.ids import cid_from_id
from deltastore.types import Typed, Version

CHANNELS = ["a", "b", "", "branch:to:a", "__start__", "\0", "é" * 70, *(f"c{i}" for i in range(80))]
NAN = struct.unpack(">d", bytes.fromhex("7ff8000000000123"))[0]

names = st.sampled_from(CHANNELS[:7]) | st.text(st.characters(codec="utf-8"), max_size=3)
uuid6_cids = st.builds(
    lambda high, low, rest: cid_from_id(f"1f1ecb{high:02x}-a12a-6{low:03x}-8000-{rest:012x}"),
    st.integers(0, 255),
    st.integers(0, 4095),
    st.integers(0, 2**48 - 1),
)
cids = uuid6_cids | st.text(st.characters(codec="utf-8"), min_size=1, max_size=9).map(cid_from_id)
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats() | st.sampled_from([0.0, -0.0, NAN, 1, 1.0])
drawn_versions = st.builds(
    lambda counter, units: f"{counter:032}.{units / 2**53:016}",
    st.integers(0, 5) | st.integers(0, 2**64 - 1),
    st.integers(0, 2**53 - 1),
)
versions = (
    drawn_versions
    | numbers
    | st.text(st.characters(codec="utf-8"), max_size=40)
    | st.sampled_from([f"{1:032}.0.50", f"{'nan':>32}.0.5", f"{2:032}.nan", f"{-1:032}.0.5"])
)
opaques = st.builds(
    Opaque, st.text(st.characters(codec="utf-8"), max_size=4), st.binary(max_size=4)
)
leaves = st.none() | st.booleans() | numbers | names | st.binary(max_size=4) | opaques
plains = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
times = st.sampled_from(
    [
        "2026-11-30T11:49:56.933019+00:00",
        "2026-11-30T11:49:56+00:00",
        "2026-11-30T11:49:56.000000+00:00",
        "0001-01-01T00:00:00.000001+00:00",
        "2026-11-30T11:49:56.933019",
        "2026-11-30T11:49:56.933019+02:00",
        "now",
    ]
)
counts = st.dictionaries(names, st.lists(st.integers(0, 3), min_size=2, max_size=2), max_size=3)
fields = st.dictionaries(names, plains, max_size=2) | st.fixed_dictionaries(
    {"v": st.just(4), "ts": times, "updated_channels": st.none() | st.lists(names, max_size=3)}
)
metadata = st.dictionaries(names, plains, max_size=2) | st.fixed_dictionaries(
    {"source": st.sampled_from(["input", "loop", "x"]), "step": st.integers(-1, 2) | numbers},
    optional={"counters_since_delta_snapshot": counts | plains, "parents": plains},
)
refs = st.builds(ValueRef, cids, st.integers(0, 65_535), st.none() | st.integers(0, 2**32 - 1))
slots = st.builds(Slot, refs, st.just(False), st.none(), st.none() | cids) | st.builds(
    Slot, st.none(), st.booleans(), st.none() | cids, st.none() | cids
)
typed = st.builds(
    Typed, st.sampled_from(["msgpack", "null", "json", "own"]), st.binary(max_size=200)
)
inlines = st.dictionaries(st.integers(0, 65_535), typed, max_size=3)
headers = st.builds(
    Header,
    parent=st.none() | cids,
    parent_stored=st.booleans(),
    depth=st.integers(0, 300) | st.integers(0, 2**64 - 1),
    fields=fields,
    versions=st.dictionaries(names, versions, max_size=4),
    seen=st.dictionaries(names, st.dictionaries(names, versions, max_size=3), max_size=3),
    metadata=metadata,
    slots=st.dictionaries(names, slots, max_size=4),
    inline=inlines,
)


@st.composite
def supersteps(draw: st.DrawFn) -> tuple[Header, Header, bytes]:
    """Return a parent's header, its child's, and the child's cid: LangGraph's ways, with slips."""
    count = draw(st.sampled_from([0, 1, 3, 7, 8, 9, 64, 65, 80]))
    chance = random.Random(draw(st.integers(0, 2**32)))  # many small choices: cheaper than draws
    parent_cid, cid = draw(cids), draw(cids)
    channels = CHANNELS[:count]
    old: dict[str, Version] = {
        name: f"{chance.randint(1, 3):032}.{chance.random():016}" for name in channels
    }
    shown = {name: chance.choice([Slot(), Slot(ValueRef(parent_cid, 3, 9))]) for name in channels}
    base = draw(headers)
    base.versions, base.slots = old, shown
    base.seen = {f"n{i}": dict.fromkeys(channels[i : i + 2], "0") for i in range(3)}
    child = draw(headers)
    child.parent = parent_cid
    fresh = [f"{4:032}.{chance.random():016}", draw(versions)]
    child.versions = dict(old)
    child.slots = dict(shown)
    child.inline = {}
    ordinal = 0
    for name in [*channels, *draw(st.lists(names, max_size=2))]:
        slot = child.slots.get(name, Slot())
        if chance.random() < 0.5:
            continue
        child.versions[name] = chance.choice(fresh)
        writer = chance.choice([slot.writer, parent_cid, cid])
        if chance.random() < 0.5:
            inlined = chance.random() < 0.5
            child.slots[name] = Slot(ValueRef(cid, ordinal, None if inlined else 5), writer=writer)
            if inlined:
                child.inline[ordinal] = Typed("null", b"")
            ordinal += chance.choice([1, 1, 1, 2])
        else:
            seed = parent_cid if slot.value else slot.seed
            child.slots[name] = Slot(None, True, seed, writer)
    child.seen = {node: dict(seen) for node, seen in base.seen.items()}
    for node in [*child.seen, *draw(st.lists(names, max_size=2))]:
        for name in list(child.seen.setdefault(node, {})) or channels[:2]:
            if chance.random() < 0.5:
                child.seen[node][name] = chance.choice([old[name], child.versions[name]])
    if draw(st.booleans()):
        child.fields = dict(base.fields)
        changed = [name for name in child.versions if child.versions[name] != old.get(name)]
        child.fields |= draw(st.sampled_from([{}, {"updated_channels": sorted(changed)[1:]}]))
        child.fields |= draw(st.sampled_from([{}, {"ts": draw(times)}]))
    if draw(st.booleans()):
        child.metadata = dict(base.metadata)
        step = base.metadata.get("step")
        if isinstance(step, int) and -(2**63) <= step < 2**63:
            child.metadata["step"] = step + 1
        child.metadata |= draw(st.sampled_from([{}, {"source": "loop"}, {"source": [True]}]))
    if draw(st.integers(0, 9)) == 0:
        moved = draw(st.sampled_from(["versions", "slots", "seen", "fields", "metadata"]))
        setattr(child, moved, dict(reversed(getattr(child, moved).items())))
    return base, child, cid


def _damaged(clear: bytes, payload: bytes, cid: bytes, base: Header | None) -> Header | None:
    """Return what damaged bytes decode to, None for an error of the tree; others pass."""
    try:
        return decode(clear, payload, cid, base)
    except DeltaStoreError:
        return None


@given(headers, cids)
def test_a_whole_header_reads_back_exactly(header: Header, cid: bytes) -> None:
    """Roots and every 32nd header depend on nothing else."""
    clear, payload = encode(header, cid, None)
    assert header == decode(clear, payload, cid, None)
    head = parent_of(clear)
    assert (header.parent, header.parent_stored, False, header.depth) == head[:4]


@given(headers, headers, cids)
def test_any_header_reads_back_against_any_base(base: Header, header: Header, cid: bytes) -> None:
    """A parent may be anything: of another graph, of an older release, migrated."""
    assert header == decode(*encode(header, cid, base), cid, base)


@given(supersteps())
def test_a_child_reads_back_exactly(step: tuple[Header, Header, bytes]) -> None:
    """The difference form takes short cuts for what supersteps do; none may change a header."""
    base, child, cid = step
    clear, payload = encode(child, cid, base)
    again = decode(clear, payload, cid, base, base_digest=measure(base)[0])
    assert child == again
    assert measure(child)[0] == measure(again)[0]
    assert equal(child, again)


@settings(max_examples=40)
@given(supersteps())
def test_a_difference_is_never_larger_than_whole(step: tuple[Header, Header, bytes]) -> None:
    """Where little is shared the difference must give way."""
    base, child, cid = step
    clear, payload = encode(child, cid, base)
    whole = encode(child, cid, None)[1]
    assert len(payload) <= len(whole)
    assert parent_of(clear).is_difference == (payload != whole)


@settings(max_examples=40)
@given(supersteps(), headers)
def test_a_wrong_base_is_corruption(step: tuple[Header, Header, bytes], other: Header) -> None:
    """A difference applied to another header would give a plausible wrong one."""
    base, child, cid = step
    clear, payload = encode(child, cid, base)
    if parent_of(clear).is_difference and not equal(base, other):
        with pytest.raises(CorruptionError, match="digest"):
            decode(clear, payload, cid, other)


@settings(max_examples=40)
@given(supersteps())
def test_every_truncation_is_corruption(step: tuple[Header, Header, bytes]) -> None:
    """A payload cut short must not pass for a header with less in it, nor one with more bytes."""
    base, child, cid = step
    for against in (base, None):
        clear, payload = encode(child, cid, against)
        for end in range(len(payload)) if len(payload) < 200 else range(0, len(payload), 17):
            with pytest.raises(CorruptionError):
                decode(clear, payload[:end], cid, against)
        with pytest.raises(CorruptionError):
            decode(clear, payload + b"\0", cid, against)


def _check_types(header: Header) -> None:
    """Assert that a header has the types the others rely on."""
    assert {str} >= {type(name) for name in (*header.versions, *header.seen, *header.slots)}
    assert {str, int, float} >= {type(version) for version in header.versions.values()}
    for seen in header.seen.values():
        assert {str, int, float} >= {type(version) for version in seen.values()}
    assert {Slot} >= {type(slot) for slot in header.slots.values()}
    assert {int} >= {type(ordinal) for ordinal in header.inline}
    for slot in header.slots.values():
        parts: tuple[Any, ...] = (*(slot.value or (b"", 0, None)), slot.emptied, slot.seed)
        for part, kinds in zip(parts, ("bytes", "int", "int", "bool", "bytes"), strict=True):
            assert type(part).__name__ in {kinds, "NoneType"}


@given(supersteps(), st.integers(0, 2**32))
def test_damaged_bytes_raise_corruption_or_give_a_header(
    step: tuple[Header, Header, bytes], seed: int
) -> None:
    """A checksum guards records, but a reader that crashes on damage cannot report it."""
    base, child, cid = step
    chance = random.Random(seed)
    for against in (base, None):
        clear, payload = encode(child, cid, against)
        for _ in range(5):
            damaged = bytearray(payload)
            for _ in range(chance.randint(1, 3)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            header = _damaged(clear, bytes(damaged), cid, against)
            if header is not None:
                _check_types(header)


@given(st.binary(max_size=40), st.binary(max_size=60), headers)
def test_arbitrary_bytes_raise_corruption_or_give_a_header(
    clear: bytes, payload: bytes, base: Header
) -> None:
    """As above, for bytes that never were a header."""
    cid = cid_from_id("x")
    _damaged(clear, payload, cid, base)
    for form in range(4):
        known = measure(base)[0].to_bytes(4, "big")
        _damaged(bytes((form, 0)), known + payload, cid, base)
