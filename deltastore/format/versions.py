"""Code a header's channel versions and versions seen as differences to its parent's.

*Versions* map channels to their versions; *seen* maps nodes to the versions they last ran on. The
*next* version is the one that LangGraph's savers make after the parent's highest: counter + 1, and
a random fraction. *Known* versions are the parent's. A *sight* is one channel's version, as one
node saw it.

`put_` and `get_` functions are as `plain` says; these return their flags, and take them. They
return None if the maps differ in a way the difference cannot tell: a channel or node removed or
moved. A base map is never changed, but its unchanged inner maps are shared. Changes are found with
`==`, which takes 1.0 for 1: the caller checks that the difference reads back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from operator import ne
from typing import Any, Final, TypeAlias

from deltastore.errors import CorruptionError
from deltastore.format import varint
from deltastore.format.plain import (
    checked_name,
    get_names,
    get_set,
    get_tree,
    put_names,
    put_set,
    put_tree,
)
from deltastore.types import Version

# Flags of a difference; changing any makes every stored difference unreadable.
VERSION_NEXT: Final = 0x0008  # one new version, the next
VERSION_TABLE: Final = 0x0010  # any new versions
VERSION_NAMES: Final = 0x0020  # channels the parent has no version of
SEEN_AGAIN: Final = 0x0040  # nodes that saw the parent's version of all they had seen before
SEEN: Final = 0x0080  # any other news of nodes

_VERSION_NEXT: Final = 0
_VERSION_RANDOM: Final = 1
_VERSION_PACKED: Final = 2
_FRACTIONS: Final = 1 << 53  # `random.random()` yields multiples of 2**-53

Seen: TypeAlias = dict[str, dict[str, Version]]


def _counter_max(versions: dict[str, Version]) -> int:
    """Return the counter of the highest version; 0 where versions are no texts of LangGraph's."""
    try:
        return int(max(versions.values())[:32])  # type: ignore[index]  # caught below
    except (ValueError, TypeError):
        return 0


@lru_cache(maxsize=32)
def _random_text(counter: int, units: int) -> str:
    """Return a version of LangGraph's; kept, as a put asks for each twice: to code and to check."""
    return f"{str(counter).zfill(32)}.{repr(units / _FRACTIONS).zfill(16)}"


def _random_parts(version: Version) -> tuple[int, int] | None:
    """Return the counter and fraction (in units of 2**-53) of a text of LangGraph's, or None."""
    if type(version) is not str or version[32:33] != ".":
        return None
    try:
        counter = int(version[:32])
        fraction = float(version[33:])
        units = int(fraction * _FRACTIONS)
    except (ValueError, OverflowError):
        return None
    if counter < 0 or not 0 <= units < _FRACTIONS or _random_text(counter, units) != version:
        return None
    return counter, units


def _put_version(out: bytearray, version: Version, counter_max: int) -> None:
    parts = _random_parts(version)
    if parts is None:
        out.append(_VERSION_PACKED)
        put_tree(out, [version])
        return
    counter, units = parts
    if counter == counter_max + 1:
        out.append(_VERSION_NEXT)
    else:
        out.append(_VERSION_RANDOM)
        varint.put(out, counter)
    out += units.to_bytes(7, "little")


def _get_version(data: bytes, at: int, counter_max: int) -> tuple[Version, int]:
    kind = data[at]
    at += 1
    if kind == _VERSION_PACKED:
        (version,), at = get_tree(data, at)
        return checked_version(version), at
    if kind == _VERSION_RANDOM:
        counter, at = varint.get(data, at)
    elif kind == _VERSION_NEXT:
        counter = counter_max + 1
    else:
        raise CorruptionError(f"header holds a version of unknown kind {kind}")
    units = int.from_bytes(data[at : at + 7], "little")
    return _random_text(counter, units), at + 7


def checked_version(version: Any) -> Version:
    """Return `version` if it is one; raises ValueError."""
    if type(version) in (str, int, float):
        return version  # type: ignore[no-any-return]  # checked just now
    raise ValueError(f"a {type(version).__name__} is no channel version")


def put_versions(
    out: bytearray, base: dict[str, Version], new: dict[str, Version]
) -> tuple[int, list[str]] | None:
    """Code the channel versions; also return the changed channels, in the order of the map."""
    size = len(base)
    names = list(new)
    # The map may be longer than its base: channels get versions as they are first written.
    if names[:size] != list(base):
        return None
    differs = [*map(ne, base.values(), new.values())]
    flags = 0
    if size < len(names):
        flags = VERSION_NAMES
        added = names[size:]
        put_names(out, added, ())
        differs += [True] * len(added)
    changed = [*compress(names, differs)]
    if not changed:
        return flags, changed
    counter_max = _counter_max(base)
    fresh = {*map(new.__getitem__, changed)}
    if len(fresh) == 1:
        parts = _random_parts(fresh.pop())
        if parts is not None and parts[0] == counter_max + 1:
            mask = 0
            for place in compress(range(len(names)), differs):
                mask |= 1 << place
            out += parts[1].to_bytes(7, "little")
            put_set(out, mask, len(names))
            return flags | VERSION_NEXT, changed
    masks: dict[Version, int] = {}
    for place in compress(range(len(names)), differs):
        version = new[names[place]]
        masks[version] = masks.get(version, 0) | 1 << place
    varint.put(out, len(masks))
    for version, mask in masks.items():
        _put_version(out, version, counter_max)
        put_set(out, mask, len(names))
    return flags | VERSION_TABLE, changed


def get_versions(
    data: bytes, at: int, flags: int, base: dict[str, Version]
) -> tuple[dict[str, Version], list[str], list[str], int]:
    """Return the channel versions, their names, the changed names, and the place after."""
    new = dict(base)
    names = list(base)
    changed: list[str] = []
    if flags & VERSION_NAMES:
        added, at = get_names(data, at, ())
        names += added
    if flags & VERSION_NEXT:
        units = int.from_bytes(data[at : at + 7], "little")
        version: Version = _random_text(_counter_max(base) + 1, units)
        members, at = get_set(data, at + 7, len(names))
        changed += map(names.__getitem__, members)
        new.update(dict.fromkeys(changed, version))
    elif flags & VERSION_TABLE:
        counter_max = _counter_max(base)
        count, at = varint.get(data, at)
        table: dict[int, Version] = {}
        for _ in range(count):
            version, at = _get_version(data, at, counter_max)
            members, at = get_set(data, at, len(names))
            table.update(dict.fromkeys(members, version))
        for member in sorted(table):
            name = names[member]
            new[name] = table[member]
            changed.append(name)
    if len(new) != len(names):
        raise CorruptionError("header names a new channel twice, or gives it no version")
    return new, names, changed, at


def put_seen(
    out: bytearray, base: Seen, new: Seen, known: dict[str, Version], versions: dict[str, Version]
) -> int | None:
    """Code the versions seen; `known` are the parent's channel versions, `versions` the new."""
    size = len(base)
    nodes = list(new)
    if nodes[:size] != list(base):
        return None
    again = 0
    rest: list[tuple[int, dict[str, Version], dict[str, Version]]] = []
    for place in compress(range(size), map(ne, base.values(), new.values())):
        node = nodes[place]
        seen, old = new[node], base[node]
        names = list(seen)
        if names == list(old) and not any(map(ne, seen.values(), map(known.get, names))):
            again |= 1 << place
        elif names[: len(old)] == list(old):
            rest.append((place, seen, old))
        else:
            return None
    flags = 0
    if again:
        put_set(out, again, size)
        flags = SEEN_AGAIN
    if rest or len(nodes) > size:
        put_names(out, nodes[size:], ())
        rest += [(place, new[node], {}) for place, node in enumerate(nodes[size:], size)]
        varint.put(out, len(rest))
        places = {name: place for place, name in enumerate(versions, 1)}
        for place, seen, old in rest:
            varint.put(out, place)
            _put_sights(out, seen, old, places, known, versions)
        flags |= SEEN
    return flags


def _put_sights(
    out: bytearray,
    seen: dict[str, Version],
    old: dict[str, Version],
    places: dict[str, int],
    known: dict[str, Version],
    versions: dict[str, Version],
) -> None:
    """Code what one node saw anew: by a channel's place, and whose version; else both in full."""
    news = [name for name in seen if name not in old or seen[name] != old[name]]
    varint.put(out, len(news))
    for name in news:
        version = seen[name]
        place = places.get(name, 0)
        if place and version == known.get(name):
            varint.put(out, place << 1)
        elif place and version == versions[name]:
            varint.put(out, place << 1 | 1)
        else:
            varint.put(out, 0)
            put_tree(out, [name, version])


def get_seen(
    data: bytes,
    at: int,
    flags: int,
    base: Seen,
    known: dict[str, Version],
    versions: dict[str, Version],
    names: Sequence[str],
) -> tuple[Seen, int]:
    """Return the versions seen, and the place after; `names` are those of `versions`."""
    new = dict(base)
    nodes = list(base)
    if flags & SEEN_AGAIN:
        members, at = get_set(data, at, len(nodes))
        for member in members:
            node = nodes[member]
            new[node] = {name: known[name] for name in base[node]}
    if flags & SEEN:
        added, at = get_names(data, at, ())
        nodes += added
        count, at = varint.get(data, at)
        for _ in range(count):
            place, at = varint.get(data, at)
            node = nodes[place]
            seen = dict(base.get(node, ()))
            new[node] = seen
            sights, at = varint.get(data, at)
            for _ in range(sights):
                sight, at = varint.get(data, at)
                if sight:
                    name = names[(sight >> 1) - 1]
                    seen[name] = (versions if sight & 1 else known)[name]
                else:
                    (name, version), at = get_tree(data, at)
                    seen[checked_name(name)] = checked_version(version)
    return new, at
