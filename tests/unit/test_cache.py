"""The weighted cache: bounded whatever happens, least recently used out first."""

from __future__ import annotations

import random
import threading

import pytest

from deltastore.cache import WeightedCache


def test_weight_never_exceeds_its_bound_and_equals_what_is_kept() -> None:
    """A cache that miscounts by one entry a call is a leak."""
    rng = random.Random(1)
    cache: WeightedCache[int] = WeightedCache(100)
    weights: dict[int, int] = {}
    for step in range(5_000):
        key, weight = rng.randrange(40), rng.randrange(1, 130)
        if rng.random() < 0.2:
            cache.drop(key)
            assert cache.get(key) is None
        else:
            cache.put(key, step, weight)
            weights[key] = weight
        kept = sum(weights[one] for one in range(40) if one in weights and key_kept(cache, one))
        assert kept == cache.weight <= 100


def key_kept(cache: WeightedCache[int], key: int) -> bool:
    """Look without counting as a use."""
    return key in cache._entries


def test_the_least_recently_used_goes_first() -> None:
    """A read counts as a use: the head of a conversation must outlive its past."""
    cache: WeightedCache[str] = WeightedCache(3)
    for key in "abc":
        cache.put(key, key, 1)
    assert "a" == cache.get("a")
    cache.put("d", "d", 1)
    assert ["a", None, "c", "d"] == [cache.get(key) for key in "abcd"]


def test_putting_again_replaces_value_and_weight() -> None:
    """Else the weight would grow with every put of one key."""
    cache: WeightedCache[str] = WeightedCache(10)
    cache.put("a", "old", 8)
    cache.put("a", "new", 2)
    assert ("new", 2) == (cache.get("a"), cache.weight)


def test_an_entry_heavier_than_the_cache_is_not_kept_and_costs_no_other() -> None:
    """One huge value must not empty the cache, nor leave an older one of its key."""
    cache: WeightedCache[str] = WeightedCache(10)
    cache.put("a", "a", 5)
    cache.put("b", "small", 5)
    cache.put("b", "huge", 11)
    assert ("a", None, 5) == (cache.get("a"), cache.get("b"), cache.weight)


@pytest.mark.parametrize("weight", [1, 300])
def test_a_cache_of_no_weight_keeps_nothing(weight: int) -> None:
    """0 is how a caller turns it off."""
    cache: WeightedCache[str] = WeightedCache(0)
    cache.put("a", "a", weight)
    assert cache.get("a") is None
    assert 0 == cache.weight


def test_threads_never_break_the_bound() -> None:
    """Readers of all threads share it; a torn count would never heal."""
    cache: WeightedCache[int] = WeightedCache(50)

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for step in range(2_000):
            key = rng.randrange(30)
            action = rng.randrange(3)
            if action == 0:
                cache.get(key)
            elif action == 1:
                cache.drop(key)
            else:
                cache.put(key, step, key % 9 + 1)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(weight for _, weight in cache._entries.values()) == cache.weight <= 50


def test_hits_and_misses_tell_what_was_asked() -> None:
    """A cache that is too small shows in these alone."""
    cache: WeightedCache[int] = WeightedCache(10)
    cache.put("a", 1, 1)
    for key in ("a", "b", "a", "c", "c"):
        cache.get(key)
    assert (2, 3, 1) == (cache.hits, cache.misses, len(cache))
