"""Keys of every keyspace: in order, apart from each other, and taken apart again."""

from __future__ import annotations

import random
from itertools import product

import pytest

from deltastore.engine.limits import KEY_BYTES_MAX
from deltastore.errors import CorruptionError
from deltastore.format import keys, layout
from deltastore.format.keys import LogKey
from deltastore.ids import cid_from_id

U32_MAX = 0xFFFF_FFFF
CIDS = [
    cid_from_id(text)
    for text in ("1f1ecb42-a12a-6876-bfff-421a31cae801", "a", "a\0", "ab", "n" * 400)
]
NUMBERS = [1, 2, 255, 256, 65_535, U32_MAX]
LONG = "n" * 10_000


def log_keys(thread: int, namespace: int, cid: bytes) -> dict[bytes, LogKey]:
    """Return every kind of log key of a checkpoint, and what each is made of."""
    prefix = keys.log_prefix(thread, namespace)
    found = {keys.header_key(prefix, cid): LogKey(thread, namespace, cid, 1, b"")}
    for ordinal in (0, 1, 65_535):
        suffix = ordinal.to_bytes(2, "big")
        key = keys.value_key(prefix, cid, ordinal)
        found[key] = LogKey(thread, namespace, cid, 2, suffix)
    for number in (0, 1 << 63, (1 << 64) - 1):
        key = keys.writes_key(prefix, cid, number)
        found[key] = LogKey(thread, namespace, cid, 3, number.to_bytes(8, "big"))
    return found


def test_splitting_a_log_key_gives_what_it_was_built_of() -> None:
    """Verification and listing know a record by its key alone."""
    for thread, namespace, cid in product(NUMBERS, NUMBERS, CIDS):
        for key, parts in log_keys(thread, namespace, cid).items():
            assert parts == keys.split(key)


def test_log_keys_of_different_places_differ_and_sort_by_place() -> None:
    """The log is scanned by thread, then namespace, then checkpoint, its header first."""
    found = {}
    for thread, namespace, cid in product(NUMBERS, NUMBERS, CIDS):
        found.update(log_keys(thread, namespace, cid))
    assert len(NUMBERS) ** 2 * len(CIDS) * 7 == len(found)
    assert sorted(found.values()) == [found[key] for key in sorted(found)]


def test_after_bounds_exactly_the_keys_with_a_prefix() -> None:
    """A scan or a deletion by prefix must take all of them and not one more."""
    rng = random.Random(2)
    alphabet = b"\0\1\x7f\xfe\xff"
    texts = [bytes(rng.choices(alphabet, k=rng.randrange(1, 5))) for _ in range(400)]
    for prefix in texts:
        if prefix.strip(b"\xff"):
            bound = keys.after(prefix)
            for text in [*texts, prefix, prefix + b"\xff" * 9, bound]:
                assert text.startswith(prefix) == (prefix <= text < bound)


@pytest.mark.parametrize("number", NUMBERS)
def test_thread_prefixes_hold_one_thread(number: int) -> None:
    """What a deletion reclaims is a prefix: the neighbours' records must not be in it."""
    for tag in range(1, layout.TAG_LOG + 1):
        prefix = keys.thread_prefix(tag, number)
        for other in {*NUMBERS, number - 1, min(number + 1, U32_MAX)} - {number}:
            twin = keys.thread_prefix(tag, other) + b"\xff" * 20
            assert not prefix <= twin < keys.after(prefix)
        assert prefix <= prefix + b"\xff" * 20 < keys.after(prefix)


@pytest.mark.parametrize("length", [1, 399, 400, 401, 10_000])
def test_texts_that_differ_anywhere_have_different_keys(length: int) -> None:
    """Ids of 10 KB share all but a hash; a thread must never find another's entry."""
    base = "n" * length
    texts = {base, base[:-1], base + "n", base[:-1] + "m", "m" + base[1:], base + "\0"}
    raw = [text.encode() for text in texts]
    assert len(texts) == len({keys.thread_key(text) for text in raw})
    both = [keys.namespace_key(thread, text) for text in raw for thread in (1, 2)]
    assert 2 * len(texts) == len(set(both))
    assert KEY_BYTES_MAX >= max(map(len, both))


def test_a_short_text_never_has_the_key_of_a_long_one() -> None:
    """The hash of a long text is bytes that a short text could hold."""
    long_key = keys.thread_key(LONG.encode())
    crafted = long_key[2:]
    assert len(crafted) > keys.TEXT_BYTES_MAX
    assert long_key not in {keys.thread_key(crafted), keys.thread_key(crafted[:400])}


def test_every_key_fits_the_engines() -> None:
    """The longest of each keyspace; LMDB refuses one byte more than it can take."""
    cid = max(CIDS, key=len)
    prefix = keys.log_prefix(U32_MAX, U32_MAX)
    longest = [
        keys.store_key(b"threads"),
        keys.thread_key(LONG.encode()),
        keys.namespace_key(U32_MAX, LONG.encode()),
        keys.namespace_name_key(U32_MAX, U32_MAX),
        keys.activity_key(0, U32_MAX),
        keys.secret_key(U32_MAX, 65_535),
        keys.late_key(U32_MAX, U32_MAX, keys.DEPTH_UNHINTED, cid),
        keys.reclaim_key(U32_MAX),
        keys.writes_key(prefix, cid, 1),
    ]
    assert KEY_BYTES_MAX >= max(map(len, longest))
    assert len(longest) == len({key[0] for key in longest})


def test_newer_activity_sorts_first() -> None:
    """Threads are listed by a forward scan."""
    minutes = [0, 1, 28_000_000, U32_MAX]
    found = [keys.activity_key(minute, 7) for minute in minutes]
    assert sorted(found, reverse=True) == found


def test_late_keys_sort_by_depth() -> None:
    """A walk reads the marks of a stream in one scan and searches them by depth."""
    depths = [0, 1, 255, 256, keys.DEPTH_MAX, keys.DEPTH_ORPHANED, keys.DEPTH_UNHINTED]
    found = [keys.late_key(1, 1, depth, b"\x02z\0") for depth in depths]
    assert sorted(found) == found
    assert depths == [keys.number_at(key, 9) for key in found]


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"\x10",
        keys.log_prefix(1, 1),
        keys.log_prefix(1, 1) + CIDS[0],  # no kind
        keys.log_prefix(1, 1) + CIDS[0][:-1] + b"\x01",  # a cid cut short
        keys.log_prefix(1, 1) + CIDS[1] + b"\x00",
        keys.log_prefix(1, 1) + CIDS[1] + b"\x05",
        keys.header_key(keys.log_prefix(1, 1), CIDS[0]) + b"\0",
        keys.value_key(keys.log_prefix(1, 1), CIDS[0], 1)[:-1],
        keys.writes_key(keys.log_prefix(1, 1), CIDS[0], 1) + b"\0",
        keys.namespace_name_key(1, 1) + CIDS[0] + b"\x01",
    ],
)
def test_what_is_no_log_key_is_damage(key: bytes) -> None:
    """The store may hold anything after a bad disk; it must not look like a bug."""
    with pytest.raises(CorruptionError) as caught:
        keys.split(key)
    assert caught.value.record is None or key.hex() == caught.value.record


def test_a_number_beyond_the_key_is_damage() -> None:
    """As above."""
    assert 1 == keys.number_at(keys.reclaim_key(1), 1)
    with pytest.raises(CorruptionError, match="too short"):
        keys.number_at(keys.reclaim_key(1), 2)
