"""Laws of walks: what they cost, what they must not jump over, where a chain is broken."""

from __future__ import annotations

from typing import Any

import pytest

from deltastore.engine.counting import CountingEngine
from deltastore.engine.memory import MemoryEngine
from deltastore.errors import BrokenChainError
from deltastore.format import keys
from deltastore.format.writes import Row
from deltastore.ids import cid_from_id
from deltastore.options import StoreOptions
from deltastore.pending import NewWrites
from deltastore.refill import NewCheckpoint
from deltastore.store import Store
from deltastore.testing.history_laws import ends
from deltastore.testing.strategies import checkpoint_id
from deltastore.types import Typed

Found = tuple[bytes | None, list[bytes]]


class Stream:
    """One stream of a store, its checkpoints named by numbers or texts."""

    def __init__(self, options: StoreOptions | None = None) -> None:
        self.engine = MemoryEngine()
        self.counting = CountingEngine(self.engine)
        self.store = Store(self.counting, options)

    def put(self, name: int | str, parent: int | str | None = None, **values: bytes | None) -> None:
        typed = {c: None if v is None else Typed("bytes", v) for c, v in values.items()}
        versions: dict[str, Any] = dict.fromkeys(values, identify(name))
        parent_id = None if parent is None else identify(parent)
        new = NewCheckpoint(
            *("t", "", identify(name), parent_id, {}, versions, {}, {}, typed),
            spare=lambda _: None,
        )
        self.store.put(new, None)

    def chain(self, first: int, last: int) -> None:
        """Put checkpoints `first` to `last`, each on the number below it."""
        for number in range(first, last + 1):
            self.put(number, number - 1)

    def write(self, name: int | str, data: bytes, channel: str = "x", task: str = "task") -> None:
        rows = [Row(0, channel, "bytes", None, data)]
        self.store.put(NewWrites("t", "", identify(name), task, "", "", rows), None)

    def history(self, name: int | str, channel: str = "x") -> Found:
        with ends():
            found = self.store.history("t", "", identify(name), [channel], None)[channel]
        seed = None if found.seed is None else found.seed.data
        return seed, [write.value.data for write in found.writes]

    def remove(self, name: int | str) -> None:
        """Remove a header's record below the store."""
        with self.engine.begin(write=True) as txn:
            key = keys.header_key(keys.log_prefix(1, 1), cid_from_id(identify(name)))
            assert txn.delete(key)


def identify(name: int | str) -> str:
    return checkpoint_id(name) if isinstance(name, int) else name


# --- cost ---


def test_rarely_written_channel_is_found_without_a_walk() -> None:
    """Written once 5,000 checkpoints ago: a warm and a cold store must not read them all."""
    stream = Stream()
    stream.put(0, x=b"seed")
    stream.write(0, b"once")
    stream.chain(1, 5_000)
    for store in (stream.store, Store(stream.counting)):
        before = stream.counting.counts()
        found = store.history("t", "", checkpoint_id(5_000), ["x"], None)["x"]
        spent = stream.counting.counts() - before
        assert (b"seed", [b"once"]) == (
            found.seed and found.seed.data,
            [write.value.data for write in found.writes],
        )
        assert 100 > spent.gets + spent.scanned + spent.scans


def test_channel_nobody_wrote_is_known_without_a_walk() -> None:
    """Agent servers ask for all channels of a graph; most were never written."""
    stream = Stream()
    stream.put(0)
    stream.chain(1, 300)
    before = stream.counting.counts()
    assert (None, []) == stream.history(300, "never")
    spent = stream.counting.counts() - before
    assert 50 > spent.gets + spent.scanned + spent.scans


# --- what a short cut must not miss ---


@pytest.mark.parametrize("at", [*range(12), 20, 31, 32, 33, 47, 58, 59])
def test_late_write_is_never_jumped_over(at: int) -> None:
    """It comes after its children were stored, whose hints know nothing of it."""
    stream = Stream()
    stream.put(0, x=b"seed")
    stream.write(0, b"first")
    stream.chain(1, 60)
    stream.write(at, b"late", task="tusk")
    assert (b"seed", [b"first", b"late"]) == stream.history(60)
    stream.chain(61, 80)
    assert (b"seed", [b"first", b"late"]) == stream.history(80)


def test_many_late_writes_are_all_found() -> None:
    """Marks add up; a walk steps from one to the next."""
    stream = Stream()
    stream.put(0)
    stream.chain(1, 120)
    late = [3, 4, 50, 77, 100, 119]
    for at in reversed(late):
        stream.write(at, b"%d" % at)
    assert (None, [b"%d" % at for at in late]) == stream.history(120)


def test_late_write_of_another_channel_hides_nothing() -> None:
    """A mark is the checkpoint's, not the channel's: it may only cost time."""
    stream = Stream()
    stream.put(0, x=b"seed")
    stream.write(0, b"first")
    stream.chain(1, 60)
    stream.write(30, b"other", channel="y")
    assert (b"seed", [b"first"]) == stream.history(60)
    assert (None, [b"other"]) == stream.history(60, "y")


def test_early_writes_count_once_their_checkpoint_is_there() -> None:
    """They come before it, and its children's hints must know them."""
    stream = Stream()
    stream.put(0)
    stream.write(1, b"early")
    stream.chain(1, 40)
    assert (None, [b"early"]) == stream.history(40)


def test_write_to_the_greatest_id_with_a_child_below_it_is_late() -> None:
    """Clocks of two hosts: a child's id may be smaller than its parent's."""
    stream = Stream()
    stream.put(900)
    stream.put(1, 900)
    stream.chain(2, 40)
    stream.write(900, b"late")
    assert (None, [b"late"]) == stream.history(40)


def test_write_to_a_parent_with_a_child_of_the_other_form_is_late() -> None:
    """Ids that are no uuid6 lie in a range of their own: newest there says nothing here."""
    stream = Stream()
    stream.put("root")
    stream.put(1, "root")
    stream.chain(2, 40)
    stream.write("root", b"late")
    assert (None, [b"late"]) == stream.history(40)


def test_parent_that_comes_after_its_child_is_walked() -> None:
    """The child's hints were made without it; its grandchildren's as well."""
    stream = Stream()
    stream.put(10, 9)
    stream.chain(11, 40)
    assert (None, []) == stream.history(40)
    stream.put(0, x=b"seed")
    stream.write(0, b"w0")
    stream.chain(1, 9)
    stream.write(9, b"w9")
    assert (b"seed", [b"w0", b"w9"]) == stream.history(40)


def test_checkpoint_put_again_is_walked_as_it_is_now() -> None:
    """Its new parent, its new value: what the hints of its descendants say is old."""
    stream = Stream()
    stream.put(0, x=b"old seed")
    stream.write(0, b"old")
    stream.put("other", x=b"new seed")
    stream.write("other", b"new")
    stream.chain(1, 40)
    stream.put(5, "other")
    assert (b"new seed", [b"new"]) == stream.history(40)
    stream.put(7, 6, x=b"nearer")
    stream.write(7, b"w7")
    assert (b"nearer", [b"w7"]) == stream.history(40)


def test_forks_keep_their_histories_apart() -> None:
    """A walk follows parents; ids and neighbours mean nothing to it."""
    stream = Stream()
    stream.put(0, x=b"seed")
    stream.write(0, b"root")
    stream.put(1, 0)
    stream.put(2, 0)
    for number in range(3, 60):
        stream.put(number, number - 2)
        if number in {10, 11, 40}:
            stream.write(number, b"%d" % number)
    stream.put(60, 58)
    stream.put(61, 59)
    assert (b"seed", [b"root", b"10", b"40"]) == stream.history(60)
    assert (b"seed", [b"root", b"11"]) == stream.history(61)


@pytest.mark.parametrize("length", [1, 2, 3, 9, 40])
def test_walks_of_a_loop_end(length: int) -> None:
    """An id put again under its own descendant makes one; every checkpoint is visited once."""
    stream = Stream()
    stream.put(0, None)
    stream.chain(1, length)
    for number in range(length + 1):
        stream.write(number, b"%d" % number)
    stream.put(0, length)
    for number in range(length + 1):
        others = [(number + step) % (length + 1) for step in range(1, length + 1)]
        assert (None, [b"%d" % each for each in others]) == stream.history(number)


# --- broken chains ---


@pytest.mark.damaged
@pytest.mark.parametrize("gone", [0, 1, 12, 31, 32, 38, 39])
def test_stored_parent_that_is_gone_is_an_error(gone: int) -> None:
    """Today's savers end the walk there in silence, and state is lost without a word."""
    stream = Stream()
    stream.put(0, x=b"seed")
    for number in range(40):
        stream.write(number, b"w")
        stream.put(number + 1, number)
    stream.remove(gone)
    for store in (stream.store, Store(stream.counting)):
        with pytest.raises(BrokenChainError) as caught:
            store.history("t", "", checkpoint_id(40), ["x"], None)
        assert ("t", "") == (caught.value.thread_id, caught.value.checkpoint_ns)
    assert [] != stream.store.verify().damage


@pytest.mark.damaged
def test_error_names_the_parent_that_is_gone() -> None:
    """Whoever reads it must know which checkpoint to look for in a backup."""
    stream = Stream()
    stream.put(0)
    stream.chain(1, 3)
    stream.remove(2)
    with pytest.raises(BrokenChainError, match=checkpoint_id(2)) as caught:
        stream.history(3)
    assert checkpoint_id(3) == caught.value.checkpoint_id


def test_parent_never_stored_ends_the_walk_in_silence() -> None:
    """As a root does, and as every saver takes it."""
    stream = Stream()
    stream.put(5, 4, x=None)
    stream.write(5, b"w5")
    stream.chain(6, 30)
    assert (None, [b"w5"]) == stream.history(30)
    assert [] == stream.store.verify().damage
