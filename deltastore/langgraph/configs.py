"""Read LangGraph's arguments: configs, checkpoints, versions, writes. Anything odd is refused here,

before anything is stored, with an error that says what was expected and what came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from math import ceil
from typing import Any, Final, NamedTuple, TypedDict

from langgraph.checkpoint.base import WRITES_IDX_MAP

from deltastore.errors import InvalidArgumentError, InvalidTypeError
from deltastore.format.writes import Row
from deltastore.ids import cid_from_id, encode_text
from deltastore.langgraph.serde import Coder, check_key
from deltastore.options import TimeToLive
from deltastore.types import Version

_INT_MAX: Final = (1 << 63) - 1
_CHECKPOINT_KEYS: Final = ("id", "channel_values", "channel_versions", "versions_seen")
_TTL_KEYS: Final = ("default_ttl", "refresh_on_read")


class Target(NamedTuple):
    """What a config names; `checkpoint_ns` and `checkpoint_id` are None where it names none."""

    thread_id: str
    checkpoint_ns: str | None
    checkpoint_id: str | None


def target_of(config: Any, what: str = "config") -> Target:
    """Read the thread, namespace and checkpoint of a config.

    Raises:
        InvalidTypeError, InvalidArgumentError: It names no thread, or something of a wrong type.
    """
    configurable = configurable_of(config, what)
    if "thread_id" not in configurable:
        raise InvalidArgumentError(
            f'{what}["configurable"] has no thread_id; '
            'pass {"configurable": {"thread_id": ...}}'
        )
    namespace = configurable.get("checkpoint_ns")
    if namespace is not None:
        namespace = _text(namespace, "checkpoint_ns")
    elif "checkpoint_ns" in configurable:
        raise InvalidTypeError("checkpoint_ns must be a str (got None); leave it out instead")
    return Target(
        thread_id_of(configurable["thread_id"]), namespace, checkpoint_id_of(configurable)
    )


def configurable_of(config: Any, what: str) -> Mapping[str, Any]:
    """Return the "configurable" of a config."""
    if type(config) is not dict and not isinstance(config, Mapping):
        raise InvalidTypeError(f"{what} must be a dict (got {type(config).__name__})")
    configurable = config.get("configurable")
    if type(configurable) is not dict and not isinstance(configurable, Mapping):
        raise InvalidTypeError(
            f'{what}["configurable"] must be a dict (got {type(configurable).__name__})'
        )
    return configurable


def check_extras(config: Mapping[str, Any]) -> None:
    """Check the parts of a config that LangGraph takes metadata from.

    Raises:
        InvalidTypeError, InvalidArgumentError: One is no dict, or has a key that is no text.
    """
    for part in ("metadata", "configurable"):
        extras = config.get(part)
        if extras is not None:
            where = f'config["{part}"]'
            for key in _mapping(extras, where):
                check_key(key, where)


def checkpoint_id_of(configurable: Mapping[str, Any]) -> str | None:
    """Return the checkpoint id a config names; "" and None name none."""
    checkpoint_id = configurable.get("checkpoint_id")
    if checkpoint_id is None or checkpoint_id == "":
        return None
    text = _text(checkpoint_id, "checkpoint_id")
    cid_from_id(text)
    return text


def thread_id_of(thread_id: Any) -> str:
    """Return a thread id as text; an int is taken as its digits."""
    if type(thread_id) is int:
        return str(thread_id)
    return _text(thread_id, "thread_id")


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidTypeError(f"{what} must be a str (got {type(value).__name__} {value!r:.60})")
    if not value.isascii():
        encode_text(value, what)
    return value if type(value) is str else str(value)


class CheckpointParts(NamedTuple):
    """A checkpoint taken apart; `values` is the caller's own dict."""

    checkpoint_id: str
    fields: dict[str, Any]
    values: Mapping[str, Any]
    versions: dict[str, Version]
    seen: dict[str, dict[str, Version]]


def checkpoint_parts(checkpoint: Any, coder: Coder) -> CheckpointParts:
    """Take a checkpoint apart; everything but the values is copied."""
    if type(checkpoint) is not dict and not isinstance(checkpoint, Mapping):
        raise InvalidTypeError(f"checkpoint must be a dict (got {type(checkpoint).__name__})")
    for key in _CHECKPOINT_KEYS:
        if key not in checkpoint:
            raise InvalidArgumentError(f"checkpoint has no {key!r}; got keys {list(checkpoint)!r}")
    checkpoint_id = _text(checkpoint["id"], 'checkpoint["id"]')
    cid_from_id(checkpoint_id)
    values = _mapping(checkpoint["channel_values"], 'checkpoint["channel_values"]')
    for channel in values:
        if type(channel) is not str or not channel.isascii():
            check_key(channel, 'checkpoint["channel_values"]')
    return CheckpointParts(
        checkpoint_id,
        coder.plain_dict(
            {key: item for key, item in checkpoint.items() if key not in _CHECKPOINT_KEYS},
            "checkpoint",
        ),
        values,
        versions_of(checkpoint["channel_versions"], 'checkpoint["channel_versions"]'),
        _seen_of(checkpoint["versions_seen"]),
    )


def _seen_of(seen: Any) -> dict[str, dict[str, Version]]:
    where = 'checkpoint["versions_seen"]'
    found = {}
    for node, versions in _mapping(seen, where).items():
        name = node if type(node) is str and node.isascii() else check_key(node, where)
        found[name] = versions_of(versions, f"{where}[{name!r}]")
    return found


def versions_of(versions: Any, where: str) -> dict[str, Version]:
    """Return a copy of a mapping of channel to version."""
    found: dict[str, Version] = {}
    for channel, version in _mapping(versions, where).items():
        # The usual case is checked here: this runs for every channel of every put.
        name = channel if type(channel) is str and channel.isascii() else check_key(channel, where)
        if type(version) is str and version.isascii():
            found[name] = version
        else:
            found[name] = _version(version, where, name)
    return found


def _version(version: Any, where: str, channel: str) -> Version:
    if type(version) is str:
        encode_text(version, f"{where}[{channel!r}]")
        return version
    if type(version) is float or (type(version) is int and -_INT_MAX <= version <= _INT_MAX):
        return version
    raise InvalidTypeError(
        f"{where}[{channel!r}] must be a str, a float or an int of 64 bits "
        f"(got {type(version).__name__} {version!r:.60})"
    )


def _mapping(value: Any, where: str) -> Mapping[Any, Any]:
    if type(value) is not dict and not isinstance(value, Mapping):
        raise InvalidTypeError(f"{where} must be a dict (got {type(value).__name__})")
    return value


def rows_of(writes: Any, coder: Coder) -> list[Row]:
    """Serialize a task's writes, each in the place LangGraph gives it.

    Raises:
        InvalidTypeError, InvalidArgumentError: One is no (channel, value), or cannot be serialized.
    """
    if isinstance(writes, (str, bytes, Mapping)) or not isinstance(writes, Iterable):
        raise InvalidTypeError(
            f"writes must be a sequence of (channel, value) (got {type(writes).__name__})"
        )
    rows = []
    for position, write in enumerate(writes):
        if not isinstance(write, (tuple, list)) or len(write) != 2:
            raise InvalidTypeError(
                f"writes[{position}] must be a pair (channel, value) (got {type(write).__name__})"
            )
        channel = check_key(write[0], f"writes[{position}][0]")
        typed = coder.dumps(write[1], f"writes[{position}] to channel {channel!r}")
        index = WRITES_IDX_MAP.get(channel, position)
        rows.append(Row(index, channel, typed.type, None, typed.data))
    return rows


def task_of(task_id: Any, task_path: Any) -> tuple[str, str]:
    """Check a task's id and path."""
    return _text(task_id, "task_id"), _text(task_path, "task_path")


def run_id_of(config: Mapping[str, Any]) -> str:
    """Return the run a config belongs to, empty when it names none."""
    for part in (config.get("metadata"), config.get("configurable")):
        run_id = part.get("run_id") if isinstance(part, Mapping) else None
        if run_id is not None:
            return _text(str(run_id), "run_id")
    return ""


def channels_of(channels: Any) -> list[str]:
    """Check the channels of a history; repeated names count once."""
    if isinstance(channels, (str, bytes)) or not isinstance(channels, Sequence):
        raise InvalidTypeError(
            f"channels must be a sequence of str (got {type(channels).__name__})"
        )
    return list(dict.fromkeys(check_key(channel, "channels") for channel in channels))


def _names_of(values: Any, what: str, name_of: Callable[[Any], str]) -> list[str]:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InvalidTypeError(f"{what} must be a sequence of ids (got {type(values).__name__})")
    return list(dict.fromkeys(name_of(value) for value in values))


def thread_ids_of(thread_ids: Any) -> list[str]:
    """Check the threads of a call; repeated ids count once."""
    return _names_of(thread_ids, "thread_ids", thread_id_of)


def run_ids_of(run_ids: Any) -> list[str]:
    """Check the runs of a call; repeated ids count once."""
    return _names_of(run_ids, "run_ids", lambda run_id: _text(str(run_id), "run_id"))


class PruneOptions(TypedDict):
    """How a thread is pruned; see `Store.prune`."""

    strategy: str
    keep_last: int | None
    older_than: timedelta | None


def prune_options(strategy: Any, keep_last: Any, older_than: Any) -> PruneOptions:
    """Check the types of the options of a prune."""
    if not isinstance(strategy, str):
        raise InvalidArgumentError(f"strategy must be a str (got {type(strategy).__name__})")
    if keep_last is not None and type(keep_last) is not int:
        raise InvalidTypeError(f"keep_last must be an int (got {type(keep_last).__name__})")
    if older_than is not None and not isinstance(older_than, timedelta):
        raise InvalidTypeError(f"older_than must be a timedelta (got {type(older_than).__name__})")
    return PruneOptions(strategy=strategy, keep_last=keep_last, older_than=older_than)


Ttl = Mapping[str, Any] | TimeToLive
"""A time to live, or {"default_ttl": minutes, "refresh_on_read": bool}."""


def ttl_of(ttl: Any) -> TimeToLive | None:
    """Read a time to live, as a dict in the form LangGraph's Redis saver takes.

    Raises:
        InvalidTypeError, InvalidArgumentError: It is none, or has another key.
    """
    if ttl is None or isinstance(ttl, TimeToLive):
        return ttl
    known = ", ".join(map(repr, _TTL_KEYS))
    for key in _mapping(ttl, "ttl"):
        if key not in _TTL_KEYS:
            raise InvalidArgumentError(f"ttl has no key {key!r:.60}; known are {known}")
    if "default_ttl" not in ttl:
        raise InvalidArgumentError(
            'ttl needs "default_ttl", the minutes a thread stays that nobody uses; '
            "use ttl=None to keep threads for ever"
        )
    minutes, refresh = ttl["default_ttl"], ttl.get("refresh_on_read", False)
    if type(minutes) not in (int, float):
        raise InvalidTypeError(
            f'ttl["default_ttl"] must be a number of minutes (got {type(minutes).__name__})'
        )
    if not 0 < minutes < float("inf"):
        raise InvalidArgumentError(
            f'ttl["default_ttl"] must be above 0 and finite, in minutes (got {minutes}); '
            "use ttl=None to keep threads for ever"
        )
    if type(refresh) is not bool:
        raise InvalidTypeError(
            f'ttl["refresh_on_read"] must be a bool (got {type(refresh).__name__})'
        )
    return TimeToLive(ceil(minutes), refresh)


class Listing(NamedTuple):
    """The arguments of `list`, read."""

    target: Target | None
    before: str | None
    limit: int | None
    filter: Mapping[str, Any]


def listing_of(config: Any, filter: Any, before: Any, limit: Any) -> Listing:
    """Read the arguments of `list`."""
    if filter is not None and not isinstance(filter, Mapping):
        raise InvalidTypeError(f"filter must be a dict (got {type(filter).__name__})")
    if limit is not None and type(limit) is not int:
        raise InvalidTypeError(f"limit must be an int or None (got {type(limit).__name__})")
    bound = None
    if before is not None:
        bound = configurable_of(before, "before").get("checkpoint_id") or None
        if bound is not None:
            bound = _text(bound, "before checkpoint_id")
    if limit is not None:
        limit = max(0, min(limit, _INT_MAX))
    target = None if config is None else target_of(config)
    return Listing(target, bound, limit, dict(filter or {}))
