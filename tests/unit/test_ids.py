"""Checkpoint ids as keys: the two forms, their bounds and what they refuse."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from deltastore.errors import CorruptionError, InvalidArgumentError
from deltastore.ids import (
    CID_ULID_BYTES,
    FORM_TEXT,
    FORM_ULID,
    ID_BYTES_MAX,
    bound_from_id,
    cid_from_id,
    cid_length,
    cid_time_ms,
    encode_text,
    id_from_cid,
    ulid_from_uuid6,
    uuid6_from_ulid,
)

UNIX_EPOCH = "1b21dd21-3814-6000-8000-000000000000"
BEFORE_EPOCH = "1b21dd21-3813-6fff-bfff-ffffffffffff"
LAST = "ffffffff-ffff-6fff-bfff-ffffffffffff"
ODD_IDS = [
    "a",
    "a\0",
    "a\0b",
    "\0",
    "ab",
    "\x7f",
    "\x80",
    "\uffff",
    "\U0010ffff",
    "\U0010ffff" * 100,
    "0",
    "n" * ID_BYTES_MAX,
    UNIX_EPOCH.upper(),
    BEFORE_EPOCH,
    UNIX_EPOCH[:-1],
    UNIX_EPOCH + "0",
    UNIX_EPOCH.replace("-6000-", "-1000-"),
    UNIX_EPOCH.replace("-8000-", "-c000-"),
    UNIX_EPOCH.replace("-", ""),
    "\uff11b21dd21-3814-6000-8000-000000000000",
]


def uuid6(rng: random.Random) -> str:
    """Draw a canonical uuid6 of 1970 or later; neighbours in time, clock and node are frequent."""
    low, high = 0x01B21DD213814000, (1 << 60) - 1
    time = rng.choice(
        [rng.randint(low, high), low + rng.randint(0, 20_000), high - rng.randint(0, 9)]
    )
    clock, node = rng.choice([0, 1, 0x3FFF, rng.getrandbits(14)]), rng.getrandbits(48)
    digits = f"{time >> 12:012x}"
    return f"{digits[:8]}-{digits[8:]}-6{time & 0xFFF:03x}-{0x8000 | clock:04x}-{node:012x}"


def test_uuid6_and_ulid_are_one_to_one_and_in_order() -> None:
    """A listing by key is a listing by id only if both directions lose nothing and keep order."""
    rng = random.Random(6)
    ids = sorted({uuid6(rng) for _ in range(20_000)})
    ulids = []
    for text in ids:
        ulid = ulid_from_uuid6(text)
        assert ulid is not None
        assert text == uuid6_from_ulid(ulid)
        ulids.append(ulid)
    assert len(ids) == len(set(ulids))
    assert sorted(ulids) == ulids


def test_ulid_and_uuid6_are_one_to_one_and_in_order() -> None:
    """The other way round: no two ULIDs read as one id."""
    rng = random.Random(7)
    ulids: set[bytes] = set()
    while len(ulids) < 20_000:
        ms, ticks = rng.randint(0, 10**14), rng.randrange(10_000)
        number = ms << 80 | ticks << 66 | rng.getrandbits(14) << 52 | rng.getrandbits(48) << 4
        ulids.add(number.to_bytes(16, "big"))
    ids = [uuid6_from_ulid(ulid) for ulid in sorted(ulids)]
    assert sorted(ids) == ids
    assert sorted(ulids) == [ulid_from_uuid6(text) for text in ids]


def test_a_ulid_starts_with_unix_milliseconds() -> None:
    """It is what the ULID specification says: other tools read the time from a key."""
    # 2024-01-01T00:00:00.001 and three ticks of 100 ns: 1 704 067 200 001 ms.
    time = 0x01B21DD213814000 + 1_704_067_200_001 * 10_000 + 3
    digits = f"{time >> 12:012x}"
    text = f"{digits[:8]}-{digits[8:]}-6{time & 0xFFF:03x}-8001-0000000000ff"
    ulid = ulid_from_uuid6(text)
    assert ulid is not None
    assert 1_704_067_200_001 == int.from_bytes(ulid[:6], "big")
    assert 3 << 66 | 1 << 52 | 0xFF << 4 == int.from_bytes(ulid[6:], "big")
    assert 1_704_067_200_001 == cid_time_ms(cid_from_id(text))


@pytest.mark.parametrize("text", ODD_IDS)
def test_ids_that_are_no_canonical_uuid6_come_back_as_they_were(text: str) -> None:
    """An id is the caller's: upper case, NUL and the last character of Unicode are kept."""
    cid = cid_from_id(text)
    assert FORM_TEXT == cid[0]
    assert text == id_from_cid(cid)
    assert cid_time_ms(cid) is None
    assert len(text.encode()) + 2 == len(cid)


@pytest.mark.parametrize("text", [UNIX_EPOCH, LAST])
def test_canonical_uuid6_of_1970_or_later_take_17_bytes(text: str) -> None:
    """The ends of the range belong to it."""
    cid = cid_from_id(text)
    assert (FORM_ULID, CID_ULID_BYTES) == (cid[0], len(cid))
    assert text == id_from_cid(cid)


def test_ids_before_1970_are_of_the_second_form() -> None:
    """A ULID has no time below zero; such an id must be kept all the same."""
    assert ulid_from_uuid6(BEFORE_EPOCH) is None
    assert FORM_TEXT == cid_from_id(BEFORE_EPOCH)[0]
    assert 0 == cid_time_ms(cid_from_id(UNIX_EPOCH))


def test_keys_order_odd_ids_as_their_text() -> None:
    """Listings merge by text; within a form the log must give the same order."""
    texts = sorted(ODD_IDS)
    cids = [cid_from_id(text) for text in texts]
    assert sorted(cids) == cids


def test_no_cid_is_a_prefix_of_another() -> None:
    """Records of one checkpoint are scanned by prefix; another's must never be among them."""
    rng = random.Random(8)
    texts = [*ODD_IDS, UNIX_EPOCH, LAST, *(uuid6(rng) for _ in range(200))]
    texts += [text[:cut] for text in ODD_IDS for cut in (1, 2, 3) if text[:cut]]
    cids = sorted({cid_from_id(text) for text in texts})
    assert [] == [one for one, other in pairwise(cids) if other.startswith(one)]


@pytest.mark.parametrize("text", ["n" * 400, "é" * 200, "\U0010ffff" * 100])
def test_an_id_of_400_bytes_is_taken_and_one_of_401_refused(text: str) -> None:
    """Bytes count and not characters: the key has room for so many."""
    assert text == id_from_cid(cid_from_id(text))
    with pytest.raises(InvalidArgumentError, match="401 bytes"):
        cid_from_id(text + "x")


@pytest.mark.parametrize(("text", "match"), [("", "0 bytes"), ("a\ud800", "surrogate")])
def test_ids_that_cannot_be_stored_are_refused(text: str, match: str) -> None:
    """An error at the put beats one at the read."""
    with pytest.raises(InvalidArgumentError, match=match):
        cid_from_id(text)


def test_a_lone_surrogate_is_named_with_its_place() -> None:
    """The caller must find it in a long text."""
    with pytest.raises(InvalidArgumentError, match=r"thread_id .* character 2"):
        encode_text("ab\udfff", "thread_id")


@pytest.mark.parametrize("text", [UNIX_EPOCH, *ODD_IDS])
def test_cid_length_needs_no_more_than_the_form(text: str) -> None:
    """A log key is taken apart from the left, whatever follows the cid."""
    cid = cid_from_id(text)
    for tail in (b"", b"\x01", b"\x02\0\0", b"\x03" + b"\xff" * 8):
        assert len(cid) == cid_length(b"prefix" + cid + tail, 6)


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x03a\0", b"\x01" + bytes(15), b"\x02", b"\x02\0", b"\x02abc", b"\xff"]
)
def test_bytes_that_are_no_cid_are_damage(data: bytes) -> None:
    """A damaged key must be told apart from a bug."""
    with pytest.raises(CorruptionError):
        cid_length(data, 0)
    with pytest.raises(CorruptionError):
        id_from_cid(data)


@pytest.mark.parametrize(
    "cid",
    [
        b"\x01" + bytes(15) + b"\x01",  # last four bits set
        b"\x01" + (10_000 << 66).to_bytes(16, "big"),  # more ticks than a millisecond has
        b"\x01" + b"\xff" * 6 + bytes(10),  # beyond 60 bits of time
        b"\x01" + bytes(17),
        b"\x02\x81\x00",  # no UTF-8
    ],
)
def test_cids_no_id_has_are_damage(cid: bytes) -> None:
    """Read as some id, they would make a checkpoint that was never put."""
    with pytest.raises(CorruptionError):
        id_from_cid(cid)


def test_a_bound_parts_the_ids_of_its_form() -> None:
    """`before` is a text and need not be stored; the scan must stop exactly there."""
    rng = random.Random(9)
    ids = [uuid6(rng) for _ in range(300)]
    for text, form in [(UNIX_EPOCH, FORM_ULID), (ids[0], FORM_ULID), ("b", FORM_TEXT)]:
        bound = bound_from_id(text, form)
        assert bound is not None
        for other in [*ids, *ODD_IDS]:
            cid = cid_from_id(other)
            if cid[0] == form:
                assert (other < text) == (cid < bound)


@pytest.mark.parametrize("text", ["", "1f", UNIX_EPOCH.upper(), BEFORE_EPOCH])
def test_a_text_that_is_no_uuid6_bounds_the_second_form_alone(text: str) -> None:
    """Between two uuid6 there is no key for it; the lister then compares texts."""
    assert bound_from_id(text, FORM_ULID) is None
    bound = bound_from_id(text, FORM_TEXT)
    assert bound is not None
    assert bound < cid_from_id(text + "\0")


def test_a_bound_may_be_longer_than_any_id() -> None:
    """It is never a key of its own."""
    assert bound_from_id("z" * 1_000, FORM_TEXT) is not None
    with pytest.raises(InvalidArgumentError, match="before"):
        bound_from_id("\ud800", FORM_TEXT)
