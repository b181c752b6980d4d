"""Code a header's fields and metadata as differences to those of its parent's header.

The *fields* are a checkpoint's keys but id, values, channel versions and versions seen: `v`, `ts`,
`updated_channels`, and whatever a later LangGraph adds. What supersteps do to them and to the
metadata is told in a few bytes by *flags*, one per known change; the *rest*, if anything remains,
follows as a tree. *Counters* are metadata's count of updates and supersteps by channel.

`put_` and `get_` functions are as `plain` says; these return their flags, and take them. A base map
is never changed, but its unchanged inner values are shared. Changes are found with `==`, which
takes True for 1: the caller checks that the difference reads back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, Final

from deltastore.format import varint
from deltastore.format.plain import (
    DAMAGE,
    Plain,
    get_names,
    get_set,
    get_tree,
    put_names,
    put_set,
    put_tree,
)
from deltastore.ids import FORM_ULID

# Flags of a difference; changing any makes every stored difference unreadable.
TIME: Final = 0x0001  # fields["ts"] as microseconds before the checkpoint's own id
UPDATED: Final = 0x0002  # fields["updated_channels"] as a set of the changed channels
FIELDS: Final = 0x0004  # the rest of the fields
STEP: Final = 0x0100  # metadata["step"] one up
SOURCE: Final = 0x0200  # metadata["source"] by number
COUNTERS: Final = 0x0400  # every counter of supersteps one up, a set of those of updates one up
METADATA: Final = 0x0800  # the rest of the metadata

_SOURCES: Final = ("input", "loop", "update", "fork")
_COUNTS: Final = "counters_since_delta_snapshot"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _put_rest(out: bytearray, base: dict[str, Plain], new: dict[str, Plain]) -> None:
    """Code one map against another in general: places removed, places and values set, news."""
    gone = [place for place, key in enumerate(base) if key not in new]
    kept = [key for key in base if key in new]
    if list(new)[: len(kept)] != kept:
        gone, kept = list(range(len(base))), []
    pairs: list[Any] = []
    for place, key in enumerate(base):
        if kept and key in new and new[key] != base[key]:
            pairs += (place, new[key])
    put_tree(out, [gone, {key: new[key] for key in list(new)[len(kept) :]}, *pairs])


def _get_rest(data: bytes, at: int, new: dict[str, Plain]) -> int:
    """Apply what `_put_rest` coded to `new`, which equals the base it was coded against."""
    keys = list(new)
    (gone, added, *pairs), at = get_tree(data, at)
    for place, value in zip(pairs[::2], pairs[1::2], strict=True):
        new[keys[place]] = value
    for place in gone:
        del new[keys[place]]
    new.update(added)
    return at


@lru_cache(maxsize=32)
def _cid_time_us(cid: bytes) -> int:
    """Return the Unix time of a form 1 cid in microseconds; 0 for form 2, which has none."""
    if cid[0] != FORM_ULID:
        return 0
    time = int.from_bytes(cid[1:9], "big")
    return (time >> 16) * 1000 + (time >> 2 & 0x3FFF) // 10


def _time_us(text: Plain) -> int | None:
    """Return the Unix time in microseconds of a text that `_time_text` reproduces, or None."""
    if type(text) is not str:
        return None
    try:
        seconds = _minute(text[:17]) * 60 + int(text[17:19])
        time_us = seconds * 1_000_000 + (int(text[20:26]) if text[19] == "." else 0)
        return time_us if _time_text(time_us) == text else None
    except DAMAGE:  # no such text
        return None


@lru_cache(maxsize=256)
def _minute(text: str) -> int:
    """Return the minute since 1970 of what `_minute_text` gives."""
    return (datetime.fromisoformat(f"{text}00+00:00") - _EPOCH) // timedelta(minutes=1)


@lru_cache(maxsize=256)
def _minute_text(minutes: int) -> str:
    return (_EPOCH + timedelta(minutes=minutes)).isoformat()[:17]


@lru_cache(maxsize=32)
def _time_text(time_us: int) -> str:
    """Return what `datetime.isoformat` gives in UTC, at a third of its cost within a known minute.

    Kept, as a put asks for each twice: to code and to check.
    """
    seconds, us = divmod(time_us, 1_000_000)
    minutes, second = divmod(seconds, 60)
    if us:
        return f"{_minute_text(minutes)}{second:02}.{us:06}+00:00"
    return f"{_minute_text(minutes)}{second:02}+00:00"


def put_fields(
    out: bytearray,
    base: dict[str, Plain],
    new: dict[str, Plain],
    cid: bytes,
    changed: Sequence[str],
) -> int:
    """Code the fields; `changed` are the channels whose version changed."""
    guess = dict(base)
    flags = 0
    time = new.get("ts")
    if "ts" in base and time != base["ts"]:
        time_us = _time_us(time)
        if time_us is not None:
            early = _cid_time_us(cid) - time_us
            varint.put(out, early << 1 if early >= 0 else ~(early << 1))
            guess["ts"] = time
            flags = TIME
    updated: Any = new.get("updated_channels")
    if type(updated) is list and updated != base.get("updated_channels", updated):
        mask = 0
        bit = 1
        for name in changed:
            if name in updated:
                mask |= bit
            bit <<= 1
        if mask.bit_count() == len(updated) and sorted(updated) == updated:
            put_set(out, mask, len(changed))
            guess["updated_channels"] = updated
            flags |= UPDATED
    if guess != new or list(guess) != list(new):
        _put_rest(out, guess, new)
        flags |= FIELDS
    return flags


def get_fields(
    data: bytes,
    at: int,
    flags: int,
    base: dict[str, Plain],
    cid: bytes,
    changed: Sequence[str],
) -> tuple[dict[str, Plain], int]:
    """Return the fields, and the place after."""
    new = dict(base)
    if flags & TIME:
        early = data[at]
        if early < 128:
            at += 1
        else:
            early, at = varint.get(data, at)
        new["ts"] = _time_text(_cid_time_us(cid) - (~(early >> 1) if early & 1 else early >> 1))
    if flags & UPDATED:
        members, at = get_set(data, at, len(changed))
        updated: list[Plain] = []
        updated += sorted(map(changed.__getitem__, members))
        new["updated_channels"] = updated
    return new, _get_rest(data, at, new) if flags & FIELDS else at


def _updates_up(old: Any, new: Any) -> int | None:
    """Return the set of `new` whose updates are one up; None if anything else is but one up."""
    mask = 0
    try:
        for place, (name, counts) in enumerate(new.items()):
            updates, supersteps = old.get(name, (0, 0))
            if counts == [updates + 1, supersteps + 1]:
                mask |= 1 << place
            elif counts != [updates, supersteps + 1]:
                return None
    except DAMAGE:  # no map of two numbers each
        return None
    return mask


def put_metadata(
    out: bytearray, base: dict[str, Plain], new: dict[str, Plain], names: Iterable[str]
) -> int:
    """Code the metadata; `names` are the channels that have a version."""
    guess = dict(base)
    flags = 0
    step, old_step = new.get("step"), base.get("step")
    if type(step) is int and type(old_step) is int and step == old_step + 1:
        guess["step"] = step
        flags = STEP
    source = new.get("source")
    if source in _SOURCES and source != base.get("source", source):
        out.append(_SOURCES.index(source))
        guess["source"] = source
        flags |= SOURCE
    counts: Any = new.get(_COUNTS)
    if counts:
        old: Any = base.get(_COUNTS)
        mask = _updates_up(old, counts)
        if mask is not None:
            put_names(out, () if list(counts) == list(old) else list(counts), [*old, *names])
            put_set(out, mask, len(counts))
            guess[_COUNTS] = counts
            flags |= COUNTERS
    if guess != new or list(guess) != list(new):
        _put_rest(out, guess, new)
        flags |= METADATA
    return flags


def get_metadata(
    data: bytes, at: int, flags: int, base: dict[str, Plain], names: Iterable[str]
) -> tuple[dict[str, Plain], int]:
    """Return the metadata, and the place after."""
    new = dict(base)
    if flags & STEP:
        new["step"] = base["step"] + 1  # type: ignore[operator]  # decode() takes a TypeError for damage
    if flags & SOURCE:
        new["source"] = _SOURCES[data[at]]
        at += 1
    if flags & COUNTERS:
        old: Any = base[_COUNTS]
        counted, at = get_names(data, at, [*old, *names])
        counted = counted or list(old)
        members, at = get_set(data, at, len(counted))
        counts: Any = {}
        for place, name in enumerate(counted):
            updates, supersteps = old.get(name, (0, 0))
            counts[name] = [updates + (place in members), supersteps + 1]
        new[_COUNTS] = counts
    return new, _get_rest(data, at, new) if flags & METADATA else at
