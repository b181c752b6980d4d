"""Laws of deltas, of the element scanner and of varints, on values as LangGraph writes them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import ormsgpack
import pytest

from deltastore.errors import CorruptionError
from deltastore.format import delta, layout, msgpack, varint

WORDS = ("seat", "flight", "refund", "Boston", "tomorrow", "please", "card", "gate", "why", "bag")


def message(number: int, text: str | None = None) -> Any:
    """Return a message as LangGraph's serializer writes it: an ext object of type 5."""
    source = random.Random(number)
    if text is None:
        text = " ".join(source.choices(WORDS, k=70))
    fields = {"content": text, "type": "human", "name": None, "id": f"{source.getrandbits(128):x}"}
    parts = ("langchain_core.messages.human", "HumanMessage", fields, "model_validate_json")
    return ormsgpack.Ext(5, ormsgpack.packb(parts))


def pack(value: Any) -> bytes:
    return ormsgpack.packb(value)


def size_of(value: Any) -> int:
    return len(pack(value))


def check_size(base: bytes, new: bytes) -> int:
    """Return the size of their delta, having seen it give `new` back."""
    change = delta.diff(base, new)
    assert new == delta.apply(base, [change])
    return len(change)


MESSAGES = [message(number) for number in range(200)]
BASE = pack(MESSAGES)


def edited(messages: list[Any], *places: int) -> list[Any]:
    return [message(-n - 1) if n in places else each for n, each in enumerate(messages)]


# --- diff: what a change costs ---


def test_diff_of_equal_values_has_no_splices() -> None:
    """A channel written again unchanged must cost next to nothing."""
    assert b"\x00" == delta.diff(BASE, BASE)
    assert b"\x00" == delta.diff(b"", b"")


def test_delta_is_laid_out_as_its_grammar_says() -> None:
    """The layout is on disk: another order would make stored deltas unreadable."""
    base = bytes(range(0x20, 0x60))
    new = base[:4] + b"\x01\x02" + base[6:40] + b"\x03" + base[40:]
    grammar = bytes((2, 4, 2, 2, 34, 0, 1)) + b"\x01\x02" + b"\x03"
    assert new == delta.apply(base, [grammar])
    values = [b"%06d" % number * 12 for number in range(3_000)]
    head, tail = pack([b"one", *values]), pack([b"two", *values])
    assert bytes((1, 5, 3, 3)) + b"two" == delta.diff(head, tail)


@pytest.mark.parametrize("size", [1, 15, 16, 200, 255, 256, 65_535])
def test_append_costs_the_element_and_a_few_bytes(size: int) -> None:
    """Appending is what an agent does; the count in front changes width at 16 and 65,536."""
    values: list[Any] = [None] * (size - 2) + MESSAGES[:2] if size > 1 else MESSAGES[:1]
    added = message(-1)
    for base, new in ((values, [*values, added]), ([], [added])):
        assert check_size(pack(base), pack(new)) <= size_of(added) + 24


def test_long_list_changed_costs_what_changed() -> None:
    """The history a user keeps is long; a turn must never store it again."""
    one = size_of(message(-1)) + 40
    assert check_size(BASE, pack(edited(MESSAGES, 100))) <= one
    assert check_size(BASE, pack(edited(MESSAGES, 3, 190))) <= 2 * one
    assert check_size(BASE, pack(edited(MESSAGES, 3, 4, 90, 190))) <= 4 * one
    assert check_size(BASE, pack(MESSAGES[:100] + MESSAGES[103:])) <= 24
    assert check_size(BASE, pack([*MESSAGES[:50], message(-1), *MESSAGES[50:]])) <= one
    assert check_size(BASE, pack(MESSAGES[1:])) <= 24
    assert check_size(BASE, pack([*MESSAGES[1:], message(-1)])) <= one
    assert check_size(BASE, pack([*MESSAGES[150:], message(-1)])) <= one
    assert check_size(BASE, pack([MESSAGES[0], *MESSAGES[120:], message(-1)])) <= one
    assert check_size(BASE, pack([message(-2), *MESSAGES[120:], message(-1)])) <= 2 * one


def test_moved_elements_cost_their_own_size() -> None:
    """Order-preserving matching must give up the few that moved, not the many that stayed."""
    one = size_of(message(0)) + 40
    moved = [*MESSAGES[:5], MESSAGES[180], *MESSAGES[5:100], *MESSAGES[101:180], *MESSAGES[181:]]
    assert check_size(BASE, pack(moved)) <= 2 * one
    turned = [*MESSAGES[190:], *MESSAGES[:190]]
    assert check_size(BASE, pack(turned)) <= 11 * one
    shuffled = [*MESSAGES[100:], message(-1), *MESSAGES[:100]]
    assert check_size(BASE, pack(shuffled)) <= 102 * one


def test_equal_elements_are_matched_in_order() -> None:
    """Lists hold an element many times; matching one of them twice would lose the others."""
    texts = ["ok" * 40, "fail" * 40, *(str(n) * 60 for n in range(10, 40))]
    base = [texts[n % 2 if n % 3 else n % 32] for n in range(400)]
    new = [*base[:20], "first" * 30, *base[22:300], *base[305:], "last" * 30]
    assert check_size(pack(base), pack(new)) <= 600
    often = [MESSAGES[n] if n % 2 else "again" * 60 for n in range(200)]
    fewer = [message(-1), *often[1:50], *often[80:150], message(-2), *often[151:]]
    assert check_size(pack(often), pack(fewer)) <= 2 * size_of(message(-1)) + 100
    fewer = [*base[:20], "first" * 30, *base[22:200], *base[230:300], "last" * 30, *base[301:]]
    assert check_size(pack(base), pack(fewer)) <= size_of(base) // 8
    backwards = check_size(pack(base), pack(base[::-1]))
    assert backwards < size_of(base)


@pytest.mark.parametrize("wrap", [list, tuple])
def test_snapshot_costs_what_its_list_does(wrap: Any) -> None:
    """A snapshot of a delta channel is its list in an ext object, two lengths in front."""
    base, added = wrap(MESSAGES), message(-1)
    old = pack(ormsgpack.Ext(7, pack(base)))
    one = size_of(added) + 40
    assert check_size(old, pack(ormsgpack.Ext(7, pack(wrap([*base, added]))))) <= one
    assert check_size(BASE, pack(ormsgpack.Ext(7, pack([*MESSAGES, added])))) <= one
    assert check_size(old, pack(ormsgpack.Ext(7, pack(edited(MESSAGES, 3, 190))))) <= 2 * one


def test_file_edited_added_or_removed_costs_that_file() -> None:
    """Agents keep files in one dict; a step that edits two must not store all."""
    files = {f"/src/{n}.py": {"content": [f"line {n} {i}" for i in range(60)]} for n in range(50)}

    def changed(*names: int) -> dict[str, Any]:
        return {
            name: {"content": [*file["content"][:30], "EDITED", *file["content"][31:]]}
            if int(name[5:-3]) in names
            else file
            for name, file in files.items()
        }

    one = size_of({"/src/7.py": files["/src/7.py"]}) + 40
    assert check_size(pack(files), pack(changed(7))) <= 40
    assert check_size(pack(files), pack(changed(7, 40))) <= 80
    assert check_size(pack(files), pack(changed(7, 8, 9, 40))) <= 160
    assert check_size(pack(files), pack({**files, "/new": files["/src/7.py"]})) <= one
    fewer = {name: file for name, file in changed(40).items() if name != "/src/7.py"}
    assert check_size(pack(files), pack(fewer)) <= 80


def test_string_edited_or_appended_costs_what_changed() -> None:
    """A draft is one long string, whose length stands in front of it."""
    text = " ".join(random.Random(5).choices(WORDS, k=9_000))
    base = pack(text)
    assert check_size(base, pack(text + " and more")) <= 9 + 24
    assert check_size(base, pack(text[:999] + "EDIT" + text[1_020:])) <= 4 + 24
    assert check_size(base, pack(text[500:] + " and more")) <= 9 + 24


def test_state_carried_inside_another_value_costs_what_is_around_it() -> None:
    """A Send holds the whole state; it follows the list it was made from, or precedes it."""
    send = pack(ormsgpack.Ext(1, pack(("langgraph.types", "Send", ("n", {"messages": MESSAGES})))))
    assert check_size(BASE, send) <= 80
    assert check_size(send, BASE) <= 24


def test_values_without_anything_in_common_cost_no_more_than_the_new_one() -> None:
    """The caller compares a delta with the whole value; the worst case must be near it."""
    source = random.Random(9)
    for size in (0, 1, 100, 70_000):
        base, new = source.randbytes(70_000), source.randbytes(size)
        assert check_size(base, new) <= size + 40
        assert check_size(new, base) <= len(base) + 40


def test_equal_bytes_behind_the_window_need_not_be_equal_elements() -> None:
    """One side's last element may hold the bytes of the other's last ones."""
    inner = [b"%06d" % n * 20 for n in range(40)]
    packed = b"".join(map(pack, inner))
    unlike = [random.Random(n).randbytes(3_000) for n in range(4)]
    base = pack([*inner[:3], unlike[0], inner[5], unlike[1], packed])
    new = pack([*inner[:3], unlike[2], inner[5], unlike[3], *inner])
    check_size(base, new)
    check_size(new, base)


# --- apply ---


def chain_of_appends(count: int) -> Iterator[tuple[bytes, bytes]]:
    value = BASE
    for number in range(count):
        longer = pack([*MESSAGES, *(message(-n) for n in range(1, number + 2))])
        yield delta.diff(value, longer), longer
        value = longer


def test_apply_of_a_chain_gives_the_last_value() -> None:
    """A read plays a channel's deltas back at once; each refers to the result of the one before."""
    deltas, values = zip(*chain_of_appends(30), strict=True)
    for length in (0, 1, 7, 30):
        expected = values[length - 1] if length else BASE
        assert expected == delta.apply(BASE, deltas[:length])


def test_apply_of_many_splices_equals_apply_of_few() -> None:
    """Many splices are joined in one copy, few are made in place; a reader must not see which."""
    base = bytes(range(200)) * 2
    for count in range(1, 30):
        change = bytearray((count,))
        for _ in range(count):
            change += bytes((7, 2, 3))
        change += b"xyz" * count
        expected = b"".join(base[9 * n : 9 * n + 7] + b"xyz" for n in range(count))
        assert expected + base[9 * count :] == delta.apply(base, [bytes(change)])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (b"", "varint at byte 0 is cut off"),
        (b"\x01\x00\x00", "varint at byte 3 is cut off"),
        (b"\x02\x00\x00\x00", "varint at byte 4 is cut off"),
        (b"\x00x", "insert 0 bytes, it carries 1"),
        (b"\x01\x00\x00\x02x", "insert 2 bytes, it carries 1"),
        (b"\x01\x00\x00\x01xy", "insert 1 bytes, it carries 2"),
        (b"\x01\x05\x00\x01x", "ends at byte 5 of a base of 4"),
        (b"\x01\x04\x01\x01x", "ends at byte 5 of a base of 4"),
        (b"\x02\x02\x01\x00\x01\x01\x00", "ends at byte 5 of a base of 4"),
        (b"\xff" * 9 + b"\x01", "claims 18446744073709551615 splices"),
        (b"\xff" * 10, "more than 64 bits"),
        (b"\x01\x00" + b"\xff" * 9 + b"\x01" + b"\x00", "of a base of 4"),
    ],
)
def test_apply_rejects_a_malformed_delta_and_says_which(change: bytes, what: str) -> None:
    """Damage must be told where it is, never played back as far as it goes."""
    with pytest.raises(CorruptionError, match=what) as caught:
        delta.apply(b"base", [b"\x00", change, b"\x00"])
    assert caught.value.message.startswith("delta 2 of 3: ")


def test_apply_rejects_a_result_over_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a record is also the limit of what a record may become."""
    monkeypatch.setattr(layout, "PAYLOAD_BYTES_MAX", 6)
    assert b"base12" == delta.apply(b"base", [b"\x01\x04\x00\x0212"])
    with pytest.raises(CorruptionError, match="result of 7 bytes is over the limit of 6"):
        delta.apply(b"base", [b"\x01\x04\x00\x03123"])


# --- extensions: what a base is extended by, and what of a delta that provides ---

EXTENSION = b"".join(pack(message(number)) for number in (901, 902))


def appended(*more: bytes) -> bytes:
    """Return the delta that appends to `BASE`."""
    return delta.diff(BASE, BASE + b"".join(more))


def test_apply_extends_each_base_before_its_delta() -> None:
    """The first was made against base and extension, the next against its result and its own."""
    first = delta.diff(BASE + b"one", b"<" + BASE + b"one>")
    second = delta.diff(b"<" + BASE + b"one>" + b"two", BASE + b"two")
    assert BASE + b"two" == delta.apply(BASE, [first, second], [b"one", b"two"])


def test_apply_without_extensions_equals_apply_with_empty_ones() -> None:
    """Most deltas of a chain have none; those beside them may."""
    changes = [delta.diff(BASE, BASE + b"1"), delta.diff(BASE + b"1", b"0" + BASE)]
    expected = delta.apply(BASE, changes)
    assert expected == delta.apply(BASE, changes, [b"", b""])
    assert expected == delta.apply(BASE, changes, ())
    assert BASE == delta.apply(BASE, [], [])


def test_apply_with_an_extension_uses_up_to_all_of_it() -> None:
    """A reducer may take half of what was written, or none."""
    for new in (BASE, BASE + EXTENSION, BASE + EXTENSION[:50], EXTENSION + BASE, b""):
        change = delta.diff(BASE + EXTENSION, new)
        assert new == delta.apply(BASE, [change], [EXTENSION])


def test_apply_with_another_extension_is_corruption_or_another_value() -> None:
    """Too short for the delta it is refused; else the digest of the value is what tells."""
    change = delta.diff(BASE + EXTENSION, BASE + EXTENSION[:-1] + b"!")
    with pytest.raises(CorruptionError, match="delta 1 of 1: a splice ends at byte"):
        delta.apply(BASE, [change], [EXTENSION[:-1]])
    with pytest.raises(CorruptionError, match="delta 1 of 1"):
        delta.apply(BASE, [change])


def test_apply_changes_neither_base_nor_extensions() -> None:
    """Both are cached and used again."""
    base, extensions = bytes(BASE), [bytes(EXTENSION)]
    delta.apply(base, [delta.diff(BASE + EXTENSION, b"x" + BASE)], extensions)
    assert (BASE, [EXTENSION]) == (base, extensions)


@pytest.mark.parametrize("front", [b"", b"x", b"some elements before", EXTENSION])
def test_share_leaves_what_the_extension_does_not_provide(front: bytes) -> None:
    """Bytes the value gained before those of the write stay in the delta; the write's go."""
    whole = appended(front, EXTENSION)
    rest = delta.share(whole, len(BASE), EXTENSION)
    assert rest is not None
    assert BASE + front + EXTENSION == delta.apply(BASE, [rest], [EXTENSION])
    assert len(rest) <= len(front) + 8


def test_share_keeps_the_other_splices() -> None:
    """An edit further up and the new count in front are not the extension's."""
    fresh = [message(number) for number in (901, 902)]
    new = pack([*edited(MESSAGES, 3, 90), *fresh])
    whole = delta.diff(BASE, new)
    rest = delta.share(whole, len(BASE), EXTENSION)
    assert rest is not None
    assert len(whole) - len(EXTENSION) - 8 <= len(rest) < len(whole)
    assert new == delta.apply(BASE, [rest], [EXTENSION])


@pytest.mark.parametrize(
    "whole",
    [
        delta.diff(BASE, BASE),
        appended(b"only this"),
        appended(EXTENSION, b"behind it"),
        appended(EXTENSION[1:]),
        delta.diff(BASE, EXTENSION + BASE),
        delta.diff(BASE, BASE[:-100] + EXTENSION),
        delta.diff(BASE, EXTENSION),
    ],
)
def test_share_is_none_where_the_delta_does_not_append_it(whole: bytes) -> None:
    """Ends with those bytes by chance, or in the place of others: then they are needed."""
    assert delta.share(whole, len(BASE), EXTENSION) is None


def test_share_of_an_empty_extension_is_none() -> None:
    """There is nothing to gain."""
    assert delta.share(appended(b"more"), len(BASE), b"") is None


def test_share_counts_only_what_is_appended() -> None:
    """The appended bytes are the extension's end; its beginning lies in another splice."""
    base, extension = b"a" * 100, b"xy" * 20
    made = b"\x02" + bytes((10, 0, 20)) + bytes((90, 0, 20)) + extension
    assert base[:10] + extension[:20] + base[10:] + extension[20:] == delta.apply(base, [made])
    assert delta.share(made, len(base), extension) is None


def test_share_with_a_wrong_base_size_is_none_or_corruption() -> None:
    """A size that is not the base's must not move bytes to another place."""
    whole = appended(EXTENSION)
    assert delta.share(whole, len(BASE) + 1, EXTENSION) is None
    with pytest.raises(CorruptionError, match="a splice ends at byte"):
        delta.share(whole, len(BASE) - 1, EXTENSION)


# --- the element scanner ---

NESTED = {"a": [1, {"b": [None, True, 1.5, "x" * 40, b"y" * 300]}], "c": {}, "d": -5}


@pytest.mark.parametrize(
    "members",
    [
        [],
        [1, 127, 128, 255, 256, 65_536, 1 << 40, -1, -33, -200, -40_000, -(1 << 40), 0.5],
        [None, True, False, "", "short", "s" * 31, "s" * 32, "s" * 300, "s" * 70_000],
        [b"", b"x" * 300, b"x" * 70_000],
        [ormsgpack.Ext(5, b"x" * size) for size in (0, 1, 2, 3, 4, 8, 16, 17, 256, 65_536)],
        [NESTED, [NESTED] * 20, [[]] * 70_000, {str(n): n for n in range(70_000)}],
        [None] * 16,
        [None] * 65_536,
    ],
)
def test_elements_are_the_members_own_bytes(members: list[Any]) -> None:
    """A splice boundary inside an element would still be right, but no longer small."""
    for wrap in (pack, lambda value: pack(ormsgpack.Ext(7, pack(value)))):
        packed = wrap(members)
        found = msgpack.elements(packed)
        assert found is not None
        assert not found.is_map
        pieces = [packed[a:b] for a, b in pairwise(found.bounds)]
        assert [pack(member) for member in members] == pieces
        assert found.bounds[0] == msgpack.body_start(packed)
    packed = pack({str(n): member for n, member in enumerate(members)})
    found = msgpack.elements(packed)
    assert found is not None
    assert found.is_map
    pieces = [packed[a:b] for a, b in pairwise(found.bounds)]
    assert [pack(str(n)) + pack(member) for n, member in enumerate(members)] == pieces


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xc1",
        pack("text"),
        pack(5),
        pack([1, 2]) + b"\x00",
        pack([1, 2])[:-1],
        b"\x91\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\xdc\x00",
        b"\x91\xda\x01",
        b"\x91\xc8\xff",
        pack(ormsgpack.Ext(5, pack([1, 2]))),
        pack(ormsgpack.Ext(7, pack([1, 2]))) + b"\x00",
        pack(ormsgpack.Ext(7, pack([1, 2]) + b"\x00")),
        b"\xc7\x05\x07" + pack([1, 2]),
        b"\xc7",
        b"\xd4\x07",
        pack([None] * 65_537),
    ],
)
def test_elements_of_anything_else_are_none(packed: bytes) -> None:
    """Offsets made up from bytes that are no container would only waste time."""
    assert msgpack.elements(packed) is None


def test_elements_of_deep_nesting_need_no_stack() -> None:
    """Input may be nested deeper than Python may call."""
    packed = b"\x92" + b"\x91" * 50_000 + b"\xc0" + b"\x01"
    found = msgpack.elements(packed)
    assert found == msgpack.Elements(False, [1, 50_002, 50_003])


def test_body_start_is_within_the_value() -> None:
    """Every first byte, cut off everywhere: the guess must be usable as an offset."""
    for first in range(256):
        for second in range(256):
            packed = bytes((first, second, 0, 7, 0xDC, 1))
            for length in range(7):
                assert 0 <= msgpack.body_start(packed[:length]) <= length


# --- varints ---


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 16_383, 16_384, 2**32, 2**63, 2**64 - 1])
def test_varint_reads_back_and_is_shortest(number: int) -> None:
    """Seven bits a byte, nothing around it touched."""
    out = bytearray(b"..")
    varint.put(out, number)
    assert max(1, -(-number.bit_length() // 7)) == len(out) - 2
    assert (number, len(out)) == varint.get(bytes(out) + b"\x01", 2)
    for cut in range(2, len(out)):
        with pytest.raises(CorruptionError, match="cut off"):
            varint.get(bytes(out[:cut]), 2)


def test_varint_of_300_is_ac_02() -> None:
    """The example of the LEB128 family; a change here makes every store unreadable."""
    out = bytearray()
    varint.put(out, 300)
    assert b"\xac\x02" == bytes(out)


@pytest.mark.parametrize("packed", [b"\xff" * 9 + b"\x02", b"\x80" * 10, b"\x80" * 11 + b"\x00"])
def test_varint_over_64_bits_is_corruption(packed: bytes) -> None:
    """A number no writer writes must not become a size."""
    with pytest.raises(CorruptionError, match="more than 64 bits"):
        varint.get(packed, 0)


@pytest.mark.parametrize("number", [-1, 2**64])
def test_varint_out_of_range_is_a_bug_of_the_caller(number: int) -> None:
    """Written anyway, it could not be read back."""
    with pytest.raises(ValueError, match="a varint holds 0 to"):
        varint.put(bytearray(), number)
