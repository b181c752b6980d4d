"""Laws of checkpoint ids and of the keys made of them, over arbitrary text and bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deltastore.errors import CorruptionError
from deltastore.format import keys
from deltastore.ids import (
    FORM_TEXT,
    FORM_ULID,
    ID_BYTES_MAX,
    bound_from_id,
    cid_from_id,
    cid_length,
    id_from_cid,
    ulid_from_uuid6,
    uuid6_from_ulid,
)

EPOCH = 0x01B21DD213814000


def make_uuid6(time: int, clock: int, node: int) -> str:
    digits = f"{time >> 12:012x}"
    return f"{digits[:8]}-{digits[8:]}-6{time & 0xFFF:03x}-{0x8000 | clock:04x}-{node:012x}"


uuid6s = st.builds(
    make_uuid6,
    st.integers(EPOCH, (1 << 60) - 1) | st.integers(EPOCH, EPOCH + 20_000),
    st.integers(0, 0x3FFF),
    st.integers(0, (1 << 48) - 1),
)
old_uuid6s = st.builds(make_uuid6, st.integers(0, EPOCH - 1), st.just(0), st.just(0))
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=ID_BYTES_MAX // 4)
near_texts = st.text("a\0\x7f\x80\uffff\U0010ffff", min_size=1, max_size=4)
ids = uuid6s | old_uuid6s | texts | near_texts | uuid6s.map(str.upper)


@given(st.tuples(uuid6s, uuid6s))
def test_uuid6_and_ulid_are_one_to_one_and_in_order(pair: tuple[str, str]) -> None:
    """The order of keys is the order of ids."""
    one, other = map(ulid_from_uuid6, pair)
    assert one is not None
    assert other is not None
    assert pair == (uuid6_from_ulid(one), uuid6_from_ulid(other))
    assert (pair[0] < pair[1], pair[0] == pair[1]) == (one < other, one == other)


@given(st.binary(max_size=20))
def test_bytes_are_one_ulid_or_damage(raw: bytes) -> None:
    """Two ULIDs of one id would be two checkpoints under one name."""
    try:
        text = uuid6_from_ulid(raw)
    except CorruptionError:
        return
    assert raw == ulid_from_uuid6(text)


@given(ids)
def test_an_id_comes_back_as_it_was(text: str) -> None:
    """Whatever it is made of."""
    cid = cid_from_id(text)
    assert text == id_from_cid(cid)
    assert (FORM_ULID if ulid_from_uuid6(text) else FORM_TEXT) == cid[0]


@given(ids, ids)
def test_cid_order_equals_text_order_within_a_form(one: str, other: str) -> None:
    """The newest checkpoint is the last key of its form."""
    left, right = cid_from_id(one), cid_from_id(other)
    if left[0] == right[0]:
        assert (one < other) == (left < right)
    assert (one == other) == (left == right) == left.startswith(right) == right.startswith(left)


@given(ids, ids)
def test_a_bound_parts_the_ids_of_its_form(text: str, before: str) -> None:
    """`before` excludes itself and everything above."""
    cid = cid_from_id(text)
    bound = bound_from_id(before, cid[0])
    if bound is not None:
        assert (text < before) == (cid < bound)


@given(ids, st.binary(max_size=12), st.binary(max_size=4))
def test_cid_length_does_not_depend_on_what_follows(text: str, tail: bytes, head: bytes) -> None:
    """A key is read from the left."""
    cid = cid_from_id(text)
    assert len(cid) == cid_length(head + cid + tail, len(head))


@given(st.binary(max_size=30))
def test_any_bytes_are_a_log_key_or_damage(raw: bytes) -> None:
    """No other exception, whatever a bad disk gives back."""
    for key in (raw, keys.log_prefix(1, 1) + raw):
        try:
            found = keys.split(key)
        except CorruptionError:
            continue
        prefix = keys.log_prefix(found.thread, found.namespace)
        assert key == prefix + found.cid + bytes([found.kind]) + found.suffix


@given(st.binary(min_size=1, max_size=6), st.binary(max_size=8))
def test_after_bounds_exactly_the_keys_with_a_prefix(prefix: bytes, tail: bytes) -> None:
    """Scans and deletions by prefix rely on it."""
    prefix = b"\x10" + prefix
    bound = keys.after(prefix)
    assert prefix <= prefix + tail < bound
    other = b"\x10" + tail
    assert other.startswith(prefix) == (prefix <= other < bound)


@given(st.lists(st.binary(max_size=3), min_size=2, max_size=2, unique=True), st.binary(max_size=3))
def test_different_texts_have_different_keys(two: list[bytes], common: bytes) -> None:
    """Short or long, sharing a beginning or not."""
    for stem in (b"", common, common * 200):
        one, other = (stem + text for text in two)
        assert keys.thread_key(one) != keys.thread_key(other)
        assert keys.namespace_key(1, one) != keys.namespace_key(1, other)
