"""Options are checked when they are made, with errors that say what was given."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest

from deltastore.errors import DeltaStoreError, InvalidArgumentError, InvalidTypeError
from deltastore.options import RetentionPolicy, SnapshotBounds, StoreOptions, TimeToLive


@pytest.mark.parametrize("name", ["updates", "supersteps"])
@pytest.mark.parametrize("value", [1, 10**9, None])
def test_bounds_take_any_count_and_none(name: str, value: int | None) -> None:
    """None is how a bound is turned off."""
    given: dict[str, Any] = {name: value}
    assert value == getattr(SnapshotBounds(**given), name)


@pytest.mark.parametrize("name", ["updates", "supersteps"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_bound_below_one_is_refused(name: str, value: int) -> None:
    """It could mean "always" or "never"; the message names the value and the way out."""
    given: dict[str, Any] = {name: value}
    with pytest.raises(InvalidArgumentError, match=rf"{name}={value}\): .*{name}=None"):
        SnapshotBounds(**given)


@pytest.mark.parametrize("name", ["updates", "supersteps"])
@pytest.mark.parametrize("value", [True, 1.0, "1", [1]])
def test_a_bound_of_another_type_is_refused(name: str, value: Any) -> None:
    """True is no 1: it is a flag somebody put in the wrong place."""
    with pytest.raises(InvalidTypeError, match=type(value).__name__):
        SnapshotBounds(**{name: value})


@pytest.mark.parametrize("ratio", [0, -1.0, float("inf"), float("nan")])
def test_a_ratio_must_be_above_zero_and_finite(ratio: float) -> None:
    """With NaN every comparison is false and nothing would ever be stored whole."""
    with pytest.raises(InvalidArgumentError, match="ratio"):
        SnapshotBounds(ratio=ratio)


@pytest.mark.parametrize("ratio", [True, "1", None])
def test_a_ratio_of_another_type_is_refused(ratio: Any) -> None:
    """As for the counts."""
    with pytest.raises(InvalidTypeError, match="ratio"):
        SnapshotBounds(ratio=ratio)


@pytest.mark.parametrize("ratio", [1, 0.01, 1e300])
def test_any_positive_ratio_is_taken(ratio: float) -> None:
    """An int is a number."""
    assert ratio == SnapshotBounds(ratio=ratio).ratio


@pytest.mark.parametrize("durability", ["", "FULL", None, 1, []])
def test_an_unknown_durability_is_refused(durability: Any) -> None:
    """A typo must not silently give less than was asked for."""
    with pytest.raises(InvalidArgumentError, match="full, normal"):
        StoreOptions(durability=durability)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("value_cache_bytes", 0),
        ("header_cache_bytes", 0),
        ("writes_cache_bytes", 0),
        ("verify_bytes_max", 0),
    ],
)
def test_sizes_have_a_least_value_and_are_ints(name: str, least: int) -> None:
    """Each may be turned off; a negative one is a slip of the pen."""
    given: dict[str, Any] = {name: least}
    assert least == getattr(StoreOptions(**given), name)
    given = {name: least - 1}
    with pytest.raises(InvalidArgumentError, match=f"{name} must be at least {least}"):
        StoreOptions(**given)
    for value in (True, 1e3, "64", None):
        given = {name: value}
        with pytest.raises(InvalidTypeError, match=name):
            StoreOptions(**given)


@pytest.mark.parametrize("bounds", [None, 1_000, {"updates": 1}])
def test_bounds_must_be_bounds(bounds: Any) -> None:
    """A dict would only fail at the first put."""
    with pytest.raises(InvalidTypeError, match="SnapshotBounds"):
        StoreOptions(bounds=bounds)


def test_options_cannot_be_changed_or_given_by_position() -> None:
    """A store reads them at any time; and their order is nobody's to rely on."""
    options = StoreOptions()
    with pytest.raises(FrozenInstanceError):
        options.read_only = True  # type: ignore[misc]
    positional: Any = StoreOptions
    with pytest.raises(TypeError):
        positional(SnapshotBounds())


def test_wrong_options_are_errors_of_the_tree_and_of_python() -> None:
    """Callers catch either."""
    value: Any
    for value, kind in ((0, ValueError), ("1", TypeError)):
        with pytest.raises(kind) as caught:
            SnapshotBounds(updates=value)
        assert isinstance(caught.value, DeltaStoreError)


@pytest.mark.parametrize("name", ["keep_last", "max_bytes"])
def test_counts_of_a_policy_are_ints_from_one(name: str) -> None:
    """Zero could mean "none" or "all of them", and one of these deletes the store."""
    for value in (1, 10**12, None):
        given: dict[str, Any] = {name: value}
        assert value == getattr(RetentionPolicy(**given), name)
    for value in (0, -1):
        with pytest.raises(InvalidArgumentError, match=rf"{name}={value}\): .*1.*{name}=None"):
            RetentionPolicy(**{name: value})
    for wrong in (True, 1.0, "1", timedelta(1)):
        given = {name: wrong}
        with pytest.raises(InvalidTypeError, match=rf"{name}=.*{type(wrong).__name__}"):
            RetentionPolicy(**given)


def test_the_age_of_a_policy_is_a_timedelta_above_zero() -> None:
    """A number would be days to one reader and seconds to another."""
    assert RetentionPolicy(max_age=timedelta.resolution).max_age == timedelta(microseconds=1)
    for age in (timedelta(0), timedelta(-1)):
        with pytest.raises(InvalidArgumentError, match=r"max_age=.*above 0.*max_age=None"):
            RetentionPolicy(max_age=age)
    value: Any
    for value in (1, 1.0, "1d", True):
        with pytest.raises(InvalidTypeError, match=rf"max_age=.*{type(value).__name__}"):
            RetentionPolicy(max_age=value)


@pytest.mark.parametrize("given", [["a", "b"], ("b", "a"), {"a", "b"}, {"a": 1, "b": 2}])
def test_protected_threads_are_a_set_of_their_own(given: Any) -> None:
    """What the caller does with its collection later changes no policy."""
    policy = RetentionPolicy(protect=given)
    assert (frozenset("ab"), frozenset) == (policy.protect, type(policy.protect))
    assert policy == RetentionPolicy(protect=frozenset("ab"))
    assert hash(policy) == hash(RetentionPolicy(protect=frozenset("ab")))


@pytest.mark.parametrize("given", ["thread", b"thread", None, 1, [1], ["a", None], iter("ab")])
def test_what_is_protected_must_be_a_collection_of_ids(given: Any) -> None:
    """A str is one of its letters, so a thread's id alone would protect other threads."""
    with pytest.raises(InvalidTypeError, match="protect="):
        RetentionPolicy(protect=given)


def test_a_policy_and_a_time_to_live_cannot_be_changed() -> None:
    """They are read whenever something is to be deleted."""
    for options, name in ((RetentionPolicy(), "keep_last"), (TimeToLive(1), "minutes")):
        with pytest.raises(FrozenInstanceError):
            setattr(options, name, 1)
        assert not hasattr(options, "__dict__")
    positional: Any = RetentionPolicy
    with pytest.raises(TypeError):
        positional(1)


def test_a_time_to_live_is_whole_minutes_from_one() -> None:
    """Zero would delete what is in use."""
    assert (1, False) == (TimeToLive(1).minutes, TimeToLive(minutes=1).refresh_on_read)
    for minutes in (0, -5):
        with pytest.raises(InvalidArgumentError, match=rf"minutes={minutes}\): .*1.*ttl=None"):
            TimeToLive(minutes)
    wrong: Any
    for wrong in (True, 1.0, "1", None):
        with pytest.raises(InvalidTypeError, match=rf"minutes=.*{type(wrong).__name__}"):
            TimeToLive(wrong)
        refresh = 1 if wrong is True else wrong
        with pytest.raises(InvalidTypeError, match="refresh_on_read="):
            TimeToLive(1, refresh_on_read=refresh)


@pytest.mark.parametrize(("name", "kind"), [("ttl", "TimeToLive"), ("retention", "Retention")])
def test_stores_take_a_time_to_live_and_a_policy(name: str, kind: str) -> None:
    """Or none, which deletes nothing."""
    assert (None, None) == (StoreOptions().ttl, StoreOptions().retention)
    wrong: Any
    for wrong in (1, {"default_ttl": 1}, timedelta(1), RetentionPolicy, TimeToLive):
        given: dict[str, Any] = {name: wrong}
        with pytest.raises(InvalidTypeError, match=f"{name} must be a {kind}"):
            StoreOptions(**given)
