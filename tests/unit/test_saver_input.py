"""Laws of what a saver takes: what is odd is refused by name before anything is stored."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deltastore import (
    DeltaStoreError,
    DeltaStoreSaver,
    InvalidArgumentError,
    InvalidTypeError,
    StoreOptions,
    StorePathError,
)
from deltastore.testing import Caller, Lane, make_checkpoint, make_config, shape

SURROGATE = "a\ud800b"
LONG = "é" * 201  # 402 bytes of UTF-8
LIST_OF_ITSELF: list[Any] = []
LIST_OF_ITSELF.append(LIST_OF_ITSELF)
DICT_OF_ITSELF: dict[str, Any] = {}
DICT_OF_ITSELF["self"] = DICT_OF_ITSELF
ANY: Any = None


@pytest.fixture
def saver() -> Iterator[DeltaStoreSaver]:
    """A saver with one checkpoint and its writes; whatever a test does adds nothing."""
    saver = DeltaStoreSaver.ephemeral()
    lane = Lane(Caller(lambda: saver))
    lane.put("1", new={"x": 1}, values={"x": ["value"]})
    lane.write("1", [("x", "write")])
    before = saver.store.stat().entries, shape([*map(tuple, saver.list(None))])
    yield saver
    assert before == (saver.store.stat().entries, shape([*map(tuple, saver.list(None))]))
    assert [] == saver.store.verify().damage


def refused(error: type[Exception], named: str, call: Callable[[], object]) -> None:
    """The call must raise a deltastore error that names the argument."""
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, DeltaStoreError)
    assert named in str(caught.value)


def put(
    saver: DeltaStoreSaver, config: Any = None, metadata: Any = None, new: Any = None, **keys: Any
) -> None:
    """Put checkpoint "2" on "1" with some keys replaced, or left out where they are `...`."""
    checkpoint: Any = {**make_checkpoint("2", {"x": 2}, {"x": 0}), **keys}
    checkpoint = {key: item for key, item in checkpoint.items() if item is not ...}
    saver.put(
        make_config("t", "", "1") if config is None else config,
        checkpoint,
        {} if metadata is None else metadata,
        {"x": 2} if new is None else new,
    )


# --- configs ---

BAD_CONFIGS: list[tuple[Any, type[Exception], str]] = [
    (5, InvalidTypeError, "config must be a dict (got int)"),
    ("t", InvalidTypeError, "config must be a dict (got str)"),
    ({}, InvalidTypeError, 'config["configurable"] must be a dict (got NoneType)'),
    ({"configurable": "t"}, InvalidTypeError, 'config["configurable"] must be a dict (got str)'),
    ({"configurable": {}}, InvalidArgumentError, "no thread_id"),
    ({"configurable": {"checkpoint_ns": ""}}, InvalidArgumentError, "no thread_id"),
]
for _key in ("thread_id", "checkpoint_ns", "checkpoint_id"):
    for _value, _error, _told in (
        (1.5, InvalidTypeError, "must be a str (got float 1.5)"),
        (True, InvalidTypeError, "must be a str (got bool True)"),
        (b"t", InvalidTypeError, "must be a str (got bytes b't')"),
        (["t"], InvalidTypeError, "must be a str (got list ['t'])"),
        (SURROGATE, InvalidArgumentError, "lone surrogate at character 1"),
    ):
        _place = {**make_config("t", "", "1")["configurable"], _key: _value}
        BAD_CONFIGS.append(({"configurable": _place}, _error, f"{_key} "))
        BAD_CONFIGS.append(({"configurable": _place}, _error, _told))
BAD_CONFIGS += [
    (make_config("t", "", LONG), InvalidArgumentError, "1 to 400 bytes of UTF-8 (got 402 bytes"),
    (make_config("t", ANY), InvalidTypeError, "checkpoint_ns must be a str (got None)"),
    (make_config(ANY), InvalidTypeError, "thread_id must be a str (got NoneType None)"),
]


@pytest.mark.parametrize(("config", "error", "named"), BAD_CONFIGS)
def test_odd_configs_are_refused_by_every_method(
    saver: DeltaStoreSaver, config: Any, error: type[Exception], named: str
) -> None:
    """A config read wrongly would store under, or read from, another thread."""
    refused(error, named, lambda: put(saver, config))
    refused(error, named, lambda: saver.put_writes(config, [("x", 1)], "task"))
    refused(error, named, lambda: saver.get_tuple(config))
    refused(error, named, lambda: saver.list(config))
    history = saver.get_delta_channel_history
    refused(error, named, lambda: history(config=config, channels=["x"]))


@pytest.mark.parametrize("config", [None, make_config("t"), make_config("t", "", "")])
def test_writes_without_a_checkpoint_are_refused(saver: DeltaStoreSaver, config: Any) -> None:
    """They would belong to nothing."""
    with pytest.raises(
        (InvalidArgumentError, InvalidTypeError), match=r"checkpoint_id|config must"
    ):
        saver.put_writes(config, [("x", 1)], "task")


@pytest.mark.parametrize("part", ["metadata", "configurable"])
@pytest.mark.parametrize("odd", ["text", ["list"], {1: "x"}, {SURROGATE: "x"}, {"k": SURROGATE}])
def test_odd_metadata_of_a_config_is_refused(saver: DeltaStoreSaver, part: str, odd: Any) -> None:
    """LangGraph merges both parts into the checkpoint's metadata."""
    config: Any = make_config("t", "", "1")
    config[part] = {**config["configurable"], **odd} if isinstance(odd, dict) else odd
    with pytest.raises((InvalidArgumentError, InvalidTypeError), match=r"metadata|configurable"):
        put(saver, config)


# --- checkpoints ---


@pytest.mark.parametrize("key", ["id", "channel_values", "channel_versions", "versions_seen"])
def test_checkpoint_without_a_key_is_refused(saver: DeltaStoreSaver, key: str) -> None:
    """Half a checkpoint cannot be read back."""
    refused(InvalidArgumentError, f"checkpoint has no {key!r}", lambda: put(saver, **{key: ...}))


@pytest.mark.parametrize("odd", [None, 5, "text", ["x"], object()])
@pytest.mark.parametrize("key", ["channel_values", "channel_versions", "versions_seen"])
def test_mappings_of_a_checkpoint_must_be_mappings(
    saver: DeltaStoreSaver, key: str, odd: Any
) -> None:
    """The message says which, and what came instead."""
    told = f'checkpoint["{key}"] must be a dict (got {type(odd).__name__})'
    refused(InvalidTypeError, told, lambda: put(saver, **{key: odd}))


@pytest.mark.parametrize(
    ("odd", "error", "named"),
    [
        (None, InvalidTypeError, "must be a str (got NoneType None)"),
        (5, InvalidTypeError, "must be a str (got int 5)"),
        ("", InvalidArgumentError, "1 to 400 bytes of UTF-8 (got 0 bytes"),
        (LONG, InvalidArgumentError, "got 402 bytes"),
        (SURROGATE, InvalidArgumentError, 'checkpoint["id"] holds a lone surrogate'),
    ],
)
def test_odd_checkpoint_ids_are_refused(
    saver: DeltaStoreSaver, odd: Any, error: type[Exception], named: str
) -> None:
    """Ids are keys: what has no bytes cannot be one."""
    refused(error, named, lambda: put(saver, id=odd))


@pytest.mark.parametrize("odd", [True, None, 1 << 63, [1], b"1", SURROGATE])
def test_odd_versions_are_refused_wherever_they_are(saver: DeltaStoreSaver, odd: Any) -> None:
    """In channel_versions, versions_seen and new_versions alike."""
    errors = (InvalidTypeError, InvalidArgumentError)
    with pytest.raises(errors, match="channel_versions"):
        put(saver, channel_versions={"x": odd})
    with pytest.raises(errors, match="versions_seen"):
        put(saver, versions_seen={"node": {"x": odd}})
    with pytest.raises(errors, match="new_versions"):
        put(saver, new={"x": odd})
    with pytest.raises(errors, match="versions_seen"):
        put(saver, versions_seen={"node": odd})


@pytest.mark.parametrize("odd", [1, None, b"x", ("x",), SURROGATE])
def test_odd_keys_are_refused_wherever_they_are(saver: DeltaStoreSaver, odd: Any) -> None:
    """Names of channels, nodes and metadata are text."""
    errors = (InvalidTypeError, InvalidArgumentError)
    for key in ("channel_values", "channel_versions", "versions_seen"):
        with pytest.raises(errors, match=key):
            put(saver, **{key: {odd: {}}})
    with pytest.raises(errors, match="new_versions"):
        put(saver, new={odd: 1})
    with pytest.raises(errors, match="metadata"):
        put(saver, metadata={odd: 1})
    with pytest.raises(errors, match=r"writes\[1\]"):
        saver.put_writes(make_config("t", "", "1"), [("x", 1), (odd, 1)], "task")
    with pytest.raises(errors, match="channels"):
        saver.get_delta_channel_history(config=make_config("t"), channels=[odd])


@pytest.mark.parametrize(
    "odd", [object(), LIST_OF_ITSELF, DICT_OF_ITSELF, lambda: 0, {"deep": [{"er": object()}]}]
)
def test_values_no_serializer_takes_are_refused(saver: DeltaStoreSaver, odd: Any) -> None:
    """With the place of the value, its type, and a way out; beside sound ones too."""
    errors = (InvalidTypeError, InvalidArgumentError)
    kind = type(odd).__name__
    versions = {"sound": 2, "odd": 2}
    with pytest.raises(errors, match=rf"channel 'odd': a {kind}"):
        put(
            saver,
            new=versions,
            channel_versions=versions,
            channel_values={"sound": ["large" * 500], "odd": odd},
        )
    with pytest.raises(errors, match=rf"channel 'odd': a {kind}"):
        put(saver, new={}, channel_versions={"odd": 2}, channel_values={"odd": odd})
    with pytest.raises(errors, match=rf"writes\[1\] to channel 'odd': a {kind}"):
        saver.put_writes(make_config("t", "", "1"), [("sound", 1), ("odd", odd)], "task")
    with pytest.raises(errors, match=r"metadata\['odd'\]"):
        put(saver, metadata={"odd": odd})
    with pytest.raises(errors, match=r"checkpoint\['odd'\]"):
        put(saver, odd=odd)


@pytest.mark.parametrize(
    "odd", [SURROGATE, [SURROGATE], {"k": {SURROGATE: 1}}, {"k": (SURROGATE,)}]
)
def test_text_without_bytes_in_a_header_is_refused(saver: DeltaStoreSaver, odd: Any) -> None:
    """Metadata and the checkpoint's own keys, at any depth."""
    refused(InvalidArgumentError, "metadata['k']", lambda: put(saver, metadata={"k": odd}))
    refused(InvalidArgumentError, "checkpoint['k']", lambda: put(saver, k=odd))


@pytest.mark.parametrize("odd", [None, 5, "text", ["list"]])
def test_arguments_beside_the_checkpoint_must_be_mappings(saver: DeltaStoreSaver, odd: Any) -> None:
    """Each is named."""
    config = make_config("t", "", "1")
    sound = make_checkpoint("2", {"x": 2}, {"x": 0})
    refused(InvalidTypeError, "metadata must be a dict", lambda: saver.put(config, sound, odd, {}))
    refused(InvalidTypeError, "new_versions must be", lambda: saver.put(config, sound, {}, odd))
    refused(InvalidTypeError, "checkpoint must be", lambda: saver.put(config, odd, {}, {}))


# --- writes ---


@pytest.mark.parametrize(
    ("odd", "named"),
    [
        (None, "writes must be a sequence of (channel, value) (got NoneType)"),
        (5, "writes must be a sequence of (channel, value) (got int)"),
        ("xy", "writes must be a sequence of (channel, value) (got str)"),
        (b"xy", "writes must be a sequence of (channel, value) (got bytes)"),
        ({"x": 1}, "writes must be a sequence of (channel, value) (got dict)"),
        ([("x", 1), "xy"], "writes[1] must be a pair (channel, value) (got str)"),
        ([("x", 1), 5], "writes[1] must be a pair (channel, value) (got int)"),
        ([("x",)], "writes[0] must be a pair"),
        ([("x", 1, 2)], "writes[0] must be a pair"),
    ],
)
def test_odd_writes_are_refused(saver: DeltaStoreSaver, odd: Any, named: str) -> None:
    """A pair of two characters is no write; a batch is stored whole or not at all."""
    call = lambda: saver.put_writes(make_config("t", "", "1"), odd, "new task")  # noqa: E731
    refused(InvalidTypeError, named, call)


@pytest.mark.parametrize("odd", [None, 5, b"t", SURROGATE])
def test_odd_tasks_are_refused(saver: DeltaStoreSaver, odd: Any) -> None:
    """Ids and paths alike."""
    config, writes = make_config("t", "", "1"), [("x", 1)]
    errors = (InvalidTypeError, InvalidArgumentError)
    with pytest.raises(errors, match="task_id"):
        saver.put_writes(config, writes, odd)
    with pytest.raises(errors, match="task_path"):
        saver.put_writes(config, writes, "new task", odd)


# --- reading and deleting ---


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"filter": 5}, "filter must be a dict (got int)"),
        ({"filter": [("step", 1)]}, "filter must be a dict (got list)"),
        ({"limit": "1"}, "limit must be an int or None (got str)"),
        ({"limit": 1.0}, "limit must be an int or None (got float)"),
        ({"limit": True}, "limit must be an int or None (got bool)"),
        ({"before": "1"}, "before must be a dict (got str)"),
        ({"before": {}}, 'before["configurable"] must be a dict'),
        ({"before": make_config("t", "", ANY) | {"configurable": {"checkpoint_id": 5}}}, "before"),
    ],
)
def test_odd_arguments_of_a_listing_are_refused_at_the_call(
    saver: DeltaStoreSaver, arguments: dict[str, Any], named: str
) -> None:
    """Not at the first row, which may be far from the mistake."""
    refused(InvalidTypeError, named, lambda: saver.list(None, **arguments))


@pytest.mark.parametrize("odd", ["x", b"x", 5, {"x"}])
def test_odd_channels_of_a_history_are_refused(saver: DeltaStoreSaver, odd: Any) -> None:
    """A name alone would be taken for its letters."""
    history = saver.get_delta_channel_history
    refused(
        InvalidTypeError, "channels must be", lambda: history(config=make_config("t"), channels=odd)
    )


@pytest.mark.parametrize("odd", [None, 1.5, True, b"t", SURROGATE])
def test_odd_threads_are_not_deleted(saver: DeltaStoreSaver, odd: Any) -> None:
    """Above all not a thread whose id only looks like it."""
    with pytest.raises((InvalidTypeError, InvalidArgumentError), match="thread_id"):
        saver.delete_thread(odd)


# --- openings ---


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """And the file is left as it was; so is one in the place of a parent directory."""
    file = tmp_path / "file"
    file.write_bytes(b"mine")
    for path in (file, file / "store"):
        refused(StorePathError, str(file), partial(DeltaStoreSaver, path))
    assert b"mine" == file.read_bytes()


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    """A typing mistake must not fill somebody's home directory."""
    (tmp_path / "letter.txt").write_text("mine")
    refused(StorePathError, "letter.txt", lambda: DeltaStoreSaver(tmp_path))
    assert ["letter.txt"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("url", ["postgres://host/db", "redis://host", "file:///x"])
def test_urls_are_refused_by_the_name_of_their_engine(url: str) -> None:
    """Other savers take them; a directory named "postgres:" would be a surprise."""
    refused(InvalidArgumentError, repr(url.split(":", maxsplit=1)[0]), lambda: DeltaStoreSaver(url))


@pytest.mark.parametrize(
    ("path", "error"),
    [
        (5, InvalidTypeError),
        (None, InvalidTypeError),
        (b"store", InvalidTypeError),
        ("", StorePathError),
        ("a\0b", StorePathError),
        (SURROGATE, StorePathError),
        ("x" * 5_000, StorePathError),
    ],
)
def test_odd_paths_are_refused(path: Any, error: type[Exception]) -> None:
    """At the constructor, before anything is opened."""
    with pytest.raises(error) as caught:
        DeltaStoreSaver(path)
    assert isinstance(caught.value, DeltaStoreError)


def test_odd_options_are_refused(tmp_path: Path) -> None:
    """By name; nothing is created."""
    odd: list[tuple[str, dict[str, Any]]] = [
        ("durability", {"durability": "sloppy"}),
        ("refuse_forks", {"durability": "relaxed", "refuse_forks": True}),
        ("bounds", {"bounds": {"updates": 5}}),
    ]
    for named, options in odd:
        with pytest.raises((InvalidTypeError, InvalidArgumentError), match=named):
            DeltaStoreSaver(tmp_path / "store", **options)
    with pytest.raises(InvalidArgumentError, match="value_cache_bytes must be at least 0"):
        StoreOptions(value_cache_bytes=-1)
    assert [] == list(tmp_path.iterdir())


# --- nothing is shared ---


def test_arguments_are_never_changed() -> None:
    """LangGraph and nodes go on using what they handed over, also where it was refused."""
    saver = DeltaStoreSaver.ephemeral()
    config: Any = make_config("t", "", "0")
    config["metadata"] = {"run_id": "r\0", "langgraph_step": 1}
    checkpoint = make_checkpoint("1", {"x": 1, "y": 1}, {"x": [{"deep": [1]}], "y": "Y" * 2_000})
    metadata: Any = {"source": "loop", "step": 1, "parents": {"": "0"}, "text": "a\0b", "t": (1, 2)}
    writes = [("x", {"deep": [1]}), ["y", (1,)]]
    versions: dict[str, Any] = {"x": 1, "y": 1}
    given = (config, checkpoint, metadata, versions)
    before = copy.deepcopy((given, writes))
    saver.put(*given)
    saver.put_writes(make_config("t", "", "1"), writes, "task")  # type: ignore[arg-type]
    [*saver.list(config, filter=metadata, before=config)]
    assert shape(before) == shape((given, writes))
    checkpoint["channel_values"]["z"] = object()
    given[3]["z"] = checkpoint["channel_versions"]["z"] = 1
    kept = dict(checkpoint["channel_values"])
    with pytest.raises(InvalidTypeError):
        saver.put(*given)
    assert kept == checkpoint["channel_values"]


def test_results_are_never_shared() -> None:
    """Whatever a caller does to what it was given, the next one gets what was stored."""
    saver = DeltaStoreSaver.ephemeral()
    lane = Lane(Caller(lambda: saver))
    metadata: dict[str, Any] = {"parents": {"": "0"}, "list": [[1]]}
    lane.put("1", new={"x": 1}, values={"x": [[1]]}, metadata=metadata)
    lane.write("1", [("x", [[1]])])
    lane.put("2", "1", carried={"x": 1})

    def everything() -> list[Any]:
        found: list[Any] = [saver.get_tuple(lane.config("1")), *saver.list(None)]
        return [
            *map(list, found),
            dict(saver.get_delta_channel_history(config=lane.config("2"), channels=["x"])),
        ]

    before = shape(everything())
    for held in everything():
        spoil(held)
    assert before == shape(everything())


def spoil(held: Any) -> None:
    """Change everything that can be changed, from the inside out."""
    if isinstance(held, dict):
        for item in [*held.values()]:
            spoil(item)
        held["spoilt"] = True
    elif isinstance(held, (list, tuple)):
        for item in held:
            spoil(item)
        if isinstance(held, list):
            held.append("spoilt")


def test_returned_config_is_the_callers_own() -> None:
    """`put` gives back three keys in a dict of their own."""
    saver = DeltaStoreSaver.ephemeral()
    config = make_config("t", "", None)
    returned = saver.put(config, make_checkpoint("1", {}, {}), {}, {})
    returned["configurable"]["checkpoint_id"] = "other"
    assert make_config("t") == config
    assert saver.get_tuple(make_config("t", "", "1")) is not None
