"""Laws of deltas over generated values: as LangGraph writes them, and any bytes at all."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import ormsgpack
from hypothesis import given
from hypothesis import strategies as st

from deltastore.errors import CorruptionError
from deltastore.format import delta, msgpack

Draw = st.DrawFn


def message(number: int, size: int) -> Any:
    """Return a message as LangGraph writes it; alike but for its id and the length of its text."""
    fields = {"content": "lorem ipsum " * size, "type": "human", "id": f"{number * 7919:032x}"}
    parts = ("langchain_core.messages.human", "HumanMessage", fields, "model_validate_json")
    return ormsgpack.Ext(5, ormsgpack.packb(parts))


members = st.one_of(
    st.builds(message, st.integers(0, 200), st.sampled_from((0, 1, 5, 40, 300))),
    st.builds(lambda n: {"role": "user", "content": f"text {n} " * 20, "n": n}, st.integers(0, 30)),
    st.integers(-40, 300),
    st.sampled_from(("", "ok", "fail" * 20, None, b"raw" * 9)),
)
files = st.dictionaries(
    st.integers(0, 60).map("/src/{}.py".format),
    st.integers(0, 40).map(lambda n: {"content": [f"line {i}" for i in range(n)], "n": n}),
    max_size=30,
)


@st.composite
def edits(draw: Draw, items: list[Any]) -> list[Any]:
    """Return `items` after up to four edits of the kinds a state sees."""
    items = list(items)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(items)))
        kind = draw(
            st.sampled_from(("append", "edit", "insert", "remove", "front", "move", "turn"))
        )
        if kind == "append":
            items += draw(st.lists(members, min_size=1, max_size=3))
        elif kind == "edit":
            items[at : at + 1] = [draw(members)]
        elif kind == "insert":
            items.insert(at, draw(members))
        elif kind == "remove":
            del items[at : at + draw(st.integers(1, 5))]
        elif kind == "front":
            del items[:at]
        elif kind == "move" and items:
            items.insert(at, items.pop(draw(st.integers(0, len(items) - 1))))
        elif kind == "turn":
            items = items[at:] + items[:at]
    return items


@st.composite
def lists(draw: Draw) -> list[Any]:
    few = draw(st.lists(members, max_size=12))
    return few * draw(st.sampled_from((1, 1, 1, 2, 9)))


@st.composite
def chains(draw: Draw) -> list[bytes]:
    """Return values of one channel in order, each made from the one before or at random."""
    kind = draw(st.sampled_from(("list", "list", "files", "text", "bytes")))
    if kind == "bytes":
        return draw(st.lists(st.binary(max_size=300), min_size=2, max_size=4))
    if kind == "files":
        return [ormsgpack.packb(each) for each in draw(st.lists(files, min_size=2, max_size=4))]
    if kind == "text":
        text = draw(st.text(max_size=400)) * 3
        cuts = draw(st.lists(st.tuples(st.integers(0, 1200), st.text(max_size=30)), min_size=1))
        texts = [text]
        for at, added in cuts[:4]:
            texts.append(texts[-1][:at] + added + texts[-1][at + len(added) // 2 :])
        return [ormsgpack.packb(each) for each in texts]
    items = draw(lists())
    values = []
    for _ in range(draw(st.integers(2, 4))):
        packed = ormsgpack.packb(items)
        wrapping = draw(st.sampled_from(("no", "no", "snapshot", "send")))
        if wrapping == "snapshot":
            packed = ormsgpack.packb(ormsgpack.Ext(7, packed))
        elif wrapping == "send":
            packed = ormsgpack.packb(ormsgpack.Ext(1, ormsgpack.packb(("Send", {"m": items}))))
        values.append(packed)
        items = draw(edits(items))
    return values


@given(chains())
def test_apply_of_a_chain_of_diffs_gives_every_value_back(values: list[bytes]) -> None:
    """The one law of deltas: what was stored is what is read."""
    deltas = [delta.diff(a, b) for a, b in pairwise(values)]
    for length in range(len(values)):
        assert values[length] == delta.apply(values[0], deltas[:length])


@given(chains())
def test_delta_is_never_much_larger_than_the_new_value(values: list[bytes]) -> None:
    """The worst case is the value itself: nothing the search tries may make it worse."""
    for a, b in pairwise(values):
        assert len(delta.diff(a, b)) <= len(b) + 40
        assert b"\x00" == delta.diff(b, b)


@given(lists(), members)
def test_append_costs_at_most_the_element_and_24_bytes(items: list[Any], added: Any) -> None:
    """A turn costs what it says, however long the conversation and whatever it repeats."""
    base, new = ormsgpack.packb(items), ormsgpack.packb([*items, added])
    limit = len(ormsgpack.packb(added)) + 24
    assert len(delta.diff(base, new)) <= limit
    base, new = (ormsgpack.packb(ormsgpack.Ext(7, packed)) for packed in (base, new))
    assert len(delta.diff(base, new)) <= limit


@given(st.integers(0, 49), st.integers(0, 400), st.integers(0, 400))
def test_one_file_of_fifty_costs_at_most_its_length_and_40_bytes(
    which: int, before: int, after: int
) -> None:
    """A step that edits one file stores that file, however many there are."""
    base = {f"/{n}": {"content": f"{n} text " * 20, "modified": n} for n in range(50)}
    base[f"/{which}"] = {"content": "old line\n" * before, "modified": 1}
    new = {**base, f"/{which}": {"content": "new line\n" * after, "modified": 2}}
    change = delta.diff(ormsgpack.packb(base), ormsgpack.packb(new))
    assert len(change) <= len(ormsgpack.packb(new[f"/{which}"])) + 40


@given(st.binary(max_size=60), st.lists(st.binary(max_size=40), max_size=3))
def test_any_bytes_as_deltas_give_a_value_or_corruption(base: bytes, deltas: list[bytes]) -> None:
    """Damage that passes a checksum must still not escape as an IndexError or a full memory."""
    try:
        value = delta.apply(base, deltas)
    except CorruptionError:
        return
    assert len(value) <= len(base) + sum(map(len, deltas))


@given(chains(), st.data())
def test_any_changed_byte_gives_a_value_or_corruption(values: list[bytes], data: Any) -> None:
    """As above, from deltas that are nearly right."""
    change = bytearray(delta.diff(values[0], values[1]))
    change[data.draw(st.integers(0, min(40, len(change)) - 1))] = data.draw(st.integers(0, 255))
    try:
        value = delta.apply(values[0], [bytes(change)])
    except CorruptionError:
        return
    assert len(value) <= len(values[0]) + len(change)


@given(chains(), st.binary(min_size=1, max_size=3), st.data())
def test_cut_off_or_followed_by_bytes_is_corruption(
    values: list[bytes], behind: bytes, data: Any
) -> None:
    """A delta says how long it is; a shorter or longer one is another record's, or a torn one."""
    change = delta.diff(values[0], values[1])
    for wrong in (change[: data.draw(st.integers(0, len(change) - 1))], change + behind):
        try:
            delta.apply(values[0], [wrong])
        except CorruptionError:
            continue
        raise AssertionError(f"{wrong!r} was applied")


@given(st.binary(max_size=80))
def test_elements_of_any_bytes_are_bounds_or_none(packed: bytes) -> None:
    """Whatever is found must be usable as offsets: ascending, from the body to the very end."""
    found = msgpack.elements(packed)
    if found is not None:
        assert sorted(set(found.bounds)) == found.bounds
        assert len(packed) == found.bounds[-1]
        assert msgpack.body_start(packed) == found.bounds[0]
