"""Headers as LangGraph's graphs make them: how small they get, and what survives.

A *put* is one call of `put` recorded from a graph that ran; `headers_of` turns the puts of one
thread into headers the way a store would.
"""

from __future__ import annotations

import operator
from statistics import median
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from xxhash import xxh3_64_intdigest

from deltastore.format import header as header_format
from deltastore.format import maps, slots, versions
from deltastore.format.header import (
    ClearHeader,
    Header,
    Opaque,
    Slot,
    ValueRef,
    decode,
    encode,
    equal,
    measure,
    parent_of,
)
from deltastore.ids import cid_from_id
from deltastore.types import Typed

INLINE_BYTES_MAX = 16
ROOT_CID = cid_from_id("1f1ecb42-a12a-6876-bfff-421a31cae801")
CHILD_CID = cid_from_id("1f1ecb42-a13f-6eca-8000-02ee3470b150")
FIRST = "00000000000000000000000000000001.0.4929750310171377"
SECOND = "00000000000000000000000000000002.0.2939655299472679"

# Computed by the first release.
DIGEST_ROOT = 0xCB7BEB26
DIGEST_CHILD = 0x868F1469
PAYLOAD_CHILD = (
    "cb7beb26b3ab0100036f75745ccb28662a6809032c020100046e6f64650101010201010002000102020103"
)


class State(TypedDict):
    log: Annotated[list[str], operator.add]
    count: int
    text: str


class Recorder(InMemorySaver):
    """A saver that also keeps what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[tuple[str | None, dict[str, Any], dict[str, Any], dict[str, Any]]] = []
        self.written: dict[str, set[str]] = {}

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        parent = config["configurable"].get("checkpoint_id")
        seen = {node: dict(seen) for node, seen in checkpoint["versions_seen"].items()}
        versions = dict(checkpoint["channel_versions"])
        kept = {**checkpoint, "channel_versions": versions, "versions_seen": seen}
        self.puts.append((parent, kept, dict(metadata), dict(new_versions)))
        return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        channels = self.written.setdefault(config["configurable"]["checkpoint_id"], set())
        channels.update(channel for channel, _ in writes)
        super().put_writes(config, writes, task_id, task_path)


def record(turns: int) -> Recorder:
    """Run a loop of two nodes beside one parallel node, `turns` times on one thread."""
    graph = StateGraph(State)
    graph.add_node("plan", lambda state: {"count": state.get("count", 0) + 1, "log": ["plan"]})
    graph.add_node("act", lambda _: {"text": "a text that is too long to lie in the header"})
    graph.add_node("note", lambda _: {"log": ["note"]})
    graph.add_edge(START, "plan")
    graph.add_conditional_edges(
        "plan",
        lambda state: ["act", "note"] if state["count"] % 4 else END,
        ["act", "note", END],
    )
    graph.add_edge("act", "plan")
    recorder = Recorder()
    compiled: Any = graph.compile(checkpointer=recorder)
    for _ in range(turns):
        compiled.invoke({"log": ["in"]}, {"configurable": {"thread_id": "t"}}, durability="sync")
    return recorder


def headers_of(recorder: Recorder) -> list[tuple[bytes, Header, Header | None]]:
    """Return cid, header and parent's header of each put, in order."""
    made: dict[str, Header] = {}
    out = []
    for parent_id, checkpoint, metadata, new_versions in recorder.puts:
        cid = cid_from_id(checkpoint["id"])
        base = made.get(parent_id) if parent_id else None
        parent = cid_from_id(parent_id) if parent_id else None
        slots = dict(base.slots) if base else {}
        inline: dict[int, Typed] = {}
        shown = 0
        for channel in checkpoint["channel_versions"]:
            old = slots.get(channel, Slot())
            written = recorder.written.get(parent_id or "", ())
            writer = parent if channel in written else old.writer
            if channel not in new_versions:
                slots[channel] = old._replace(writer=writer)
            elif channel in checkpoint["channel_values"]:
                value = Typed(*recorder.serde.dumps_typed(checkpoint["channel_values"][channel]))
                value_digest = None
                if len(value.data) <= INLINE_BYTES_MAX:
                    inline[shown] = value
                else:
                    value_digest = xxh3_64_intdigest(value.data) & 0xFFFFFFFF
                slots[channel] = Slot(ValueRef(cid, shown, value_digest), writer=writer)
                shown += 1
            else:
                slots[channel] = Slot(None, True, parent if old.value else old.seed, writer)
        header = Header(
            parent=parent,
            parent_stored=base is not None,
            depth=base.depth + 1 if base else 0,
            fields={key: checkpoint[key] for key in ("v", "ts", "updated_channels")},
            versions=checkpoint["channel_versions"],
            seen=checkpoint["versions_seen"],
            metadata=metadata,
            slots=slots,
            inline=inline,
        )
        made[checkpoint["id"]] = header
        out.append((cid, header, base))
    return out


@pytest.fixture(scope="module")
def recorded() -> list[tuple[bytes, Header, Header | None]]:
    return headers_of(record(turns=5))


def pair() -> tuple[Header, Header]:
    """Return the headers of a root and of its child."""
    root = Header(
        parent=None,
        parent_stored=False,
        depth=0,
        fields={"v": 4, "ts": "2026-11-30T11:49:56.933019+00:00", "updated_channels": ["in"]},
        versions={"in": FIRST},
        seen={"__input__": {}},
        metadata={"source": "input", "step": -1, "parents": {}},
        slots={"in": Slot(ValueRef(ROOT_CID, 0, 7))},
        inline={},
    )
    child = Header(
        parent=ROOT_CID,
        parent_stored=True,
        depth=1,
        fields={"v": 4, "ts": "2026-11-30T11:49:56.941771+00:00", "updated_channels": ["out"]},
        versions={"in": SECOND, "out": SECOND},
        seen={"__input__": {}, "node": {"in": FIRST}},
        metadata={"source": "loop", "step": 0, "parents": {}},
        slots={
            "in": Slot(None, True, seed=ROOT_CID, writer=ROOT_CID),
            "out": Slot(ValueRef(CHILD_CID, 0, None), writer=ROOT_CID),
        },
        inline={0: Typed("null", b"")},
    )
    return root, child


def test_differences_of_a_graph_have_a_median_of_at_most_60_bytes(recorded: Any) -> None:
    """A header is stored at each superstep: its size is what a quiet thread costs."""
    sizes = [len(encode(header, cid, base)[1]) for cid, header, base in recorded if base]
    assert len(sizes) >= 30
    assert median(sizes) <= 60


def test_only_roots_of_a_graph_are_coded_whole(recorded: Any) -> None:
    """A silent fall-back to whole headers would cost twenty times the space, and fail nothing."""
    whole = [
        place
        for place, (cid, header, base) in enumerate(recorded)
        if not parent_of(encode(header, cid, base)[0]).is_difference
    ]
    assert [0] == whole


def test_headers_of_a_graph_read_back(recorded: Any) -> None:
    """What a graph stores is what it resumes from."""
    for cid, header, base in recorded:
        assert header == decode(*encode(header, cid, base), cid, base)


def test_decoding_changes_neither_base_nor_its_maps(recorded: Any) -> None:
    """Decoded headers are cached and share parts; a changed base would break its other children."""
    for cid, header, base in recorded:
        if base:
            before = measure(base)[0], dict(base.slots)
            decode(*encode(header, cid, base), cid, base)
            assert before == (measure(base)[0], base.slots)


def test_the_clear_part_tells_parent_and_depth_by_itself() -> None:
    """History is walked by clear parts alone: of encrypted stores too, and without decoding."""
    root, child = pair()
    assert ClearHeader(None, False, False, 0, False) == parent_of(encode(root, ROOT_CID, None)[0])
    assert ClearHeader(ROOT_CID, True, True, 1, False) == parent_of(
        encode(child, CHILD_CID, root)[0]
    )
    child.parent_stored, child.depth = False, 1 << 40
    clear, _ = encode(child, CHILD_CID, None)
    assert ClearHeader(ROOT_CID, False, False, 1 << 40, False) == parent_of(clear)


def test_the_clear_part_holds_nothing_of_the_users() -> None:
    """It is stored unencrypted: two headers that differ in content must look alike in it."""
    root, child = pair()
    clear, _ = encode(child, CHILD_CID, root)
    child.metadata["secret"] = "s3cret"
    child.versions["channel"] = SECOND
    assert clear == encode(child, CHILD_CID, root)[0]


def test_a_digest_passed_through_replaces_its_computation(monkeypatch: Any) -> None:
    """Callers keep digests beside cached headers; computing them anew would be paid at each put."""
    root, child = pair()
    known = measure(root)[0]
    expected = encode(child, CHILD_CID, root)
    monkeypatch.setattr(header_format, "measure", None)
    assert expected == encode(child, CHILD_CID, root, base_digest=known)
    assert child == decode(*expected, CHILD_CID, root, base_digest=known)


def test_digest_is_of_the_user_visible_part_alone() -> None:
    """Maintenance moves values and so changes slots; children must still accept their base."""
    _, child = pair()
    before = measure(child)[0]
    child.slots, child.inline, child.depth, child.parent_stored = {}, {}, 9, False
    assert before == measure(child)[0]
    for change in ("fields", "versions", "seen", "metadata"):
        _, other = pair()
        setattr(other, change, {})
        assert before != measure(other)[0]
    _, other = pair()
    other.parent = CHILD_CID
    assert before != measure(other)[0]


def test_digest_is_the_same_in_every_release() -> None:
    """Stored differences name it: a changed digest would make every one of them unreadable."""
    root, child = pair()
    assert (DIGEST_ROOT, DIGEST_CHILD) == (measure(root)[0], measure(child)[0])


def test_a_difference_is_the_same_in_every_release() -> None:
    """Stored bytes must read as they were written, whatever happens to the encoder."""
    root, child = pair()
    payload = bytes.fromhex(PAYLOAD_CHILD)
    assert child == decode(b"\x07\x01" + ROOT_CID, payload, CHILD_CID, root)


def test_an_equal_header_is_equal_in_types_and_order() -> None:
    """A re-put of the same checkpoint is no change; of one that only compares equal, it is."""
    root, child = pair()
    same = decode(*encode(child, CHILD_CID, root), CHILD_CID, root)
    same.slots = {}
    assert equal(child, same)
    for value, other in ((1, True), (1, 1.0), (0.0, -0.0), ("a", b"a")):
        a, b = pair()[1], pair()[1]
        a.metadata["key"], b.metadata["key"] = value, other
        assert not equal(a, b)
    swapped = pair()[1]
    swapped.versions = dict(reversed(swapped.versions.items()))
    assert not equal(child, swapped)


@pytest.mark.parametrize(("old", "new"), [(1, True), (1, 1.0), (0.0, -0.0), (False, 0)])
def test_a_change_that_compares_equal_is_stored(old: Any, new: Any) -> None:
    """The difference finds changes with ==, to be fast: only reading back tells these apart."""
    for where in ("fields", "metadata", "versions", "seen"):
        root, child = pair()
        for header, value in ((root, old), (child, new)):
            if where == "seen":
                header.seen["__input__"]["key"] = value
            else:
                # In front, so that the child's channels follow the parent's.
                setattr(header, where, {"key": value, **getattr(header, where)})
        if where in ("versions", "seen") and bool in (type(old), type(new)):
            continue  # a version is text or a number
        assert child == decode(*encode(child, CHILD_CID, root), CHILD_CID, root)


def test_headers_that_differ_in_slots_or_inline_values_are_not_equal() -> None:
    """Tests and the check of a difference rely on equality to see all of a header."""
    for part in ("slots", "inline"):
        one, other = pair()[1], pair()[1]
        one.inline[1] = other.inline[1] = Typed("null", b"")
        assert one == other
        setattr(other, part, dict(reversed(getattr(other, part).items())))
        assert one != other
        setattr(other, part, {})
        assert one != other
    for part, value in (("depth", 2), ("parent_stored", False), ("parent", CHILD_CID)):
        other = pair()[1]
        setattr(other, part, value)
        assert pair()[1] != other


def _text_time(child: Header) -> None:
    child.fields["ts"] = "2026-11-30T11:49:56.941771Z"


def _foreign_seen(child: Header) -> None:
    child.seen["node"] = {"in": 7, "elsewhere": 1.5}


def _foreign_counts(child: Header) -> None:
    child.metadata["counters_since_delta_snapshot"] = {"in": [5, 9]}


def _foreign_versions(child: Header) -> None:
    child.versions |= {"in": 3, "out": "00000000000000000000000000000009.0.50", "third": 2.5}


def _foreign_slots(child: Header) -> None:
    child.slots["in"] = Slot(ValueRef(ROOT_CID, 3, 9), writer=CHILD_CID)
    child.slots["out"] = Slot(ValueRef(CHILD_CID, 65_535, 1))


def _removed_metadata(child: Header) -> None:
    del child.metadata["source"]


@pytest.mark.parametrize(
    "change",
    [
        _text_time,
        _foreign_seen,
        _foreign_counts,
        _foreign_versions,
        _foreign_slots,
        _removed_metadata,
    ],
)
def test_an_unusual_change_still_gives_a_difference(change: Any) -> None:
    """One odd value must not make a thread's every header whole; nothing else would show it."""
    root, child = pair()
    root.metadata["counters_since_delta_snapshot"] = {"in": [0, 1]}
    child.metadata["counters_since_delta_snapshot"] = {"in": [1, 2]}
    change(child)
    clear, payload = encode(child, CHILD_CID, root)
    assert parent_of(clear).is_difference
    assert child == decode(clear, payload, CHILD_CID, root)


def test_a_header_smaller_whole_is_coded_whole() -> None:
    """The difference names the base and what is gone from it; an empty header has less to say."""
    root, _ = pair()
    empty = Header(ROOT_CID, True, 1, {}, {}, {}, {}, {}, {})
    root.versions, root.seen, root.slots = {}, {}, {}
    clear, payload = encode(empty, CHILD_CID, root)
    assert not parent_of(clear).is_difference
    assert encode(empty, CHILD_CID, None) == (clear, payload)


def test_opaque_values_survive_both_forms() -> None:
    """Metadata may hold objects that only the user's serializer reads."""
    root, child = pair()
    child.metadata["object"] = [Opaque("pickle", b"\x80"), {"deep": Opaque("\0", b"")}]
    assert child == decode(*encode(child, CHILD_CID, root), CHILD_CID, root)
    assert child == decode(*encode(child, CHILD_CID, None), CHILD_CID, None)


def test_no_two_parts_of_a_difference_share_a_flag() -> None:
    """The flags lie in three modules; a shared one would make a part read as another."""
    flags = [
        *(maps.TIME, maps.UPDATED, maps.FIELDS, maps.STEP, maps.SOURCE, maps.COUNTERS),
        *(maps.METADATA, versions.VERSION_NEXT, versions.VERSION_TABLE, versions.VERSION_NAMES),
        *(versions.SEEN_AGAIN, versions.SEEN, slots.SLOT_NAMES, slots.SLOTS, slots.SLOTS_ODD),
        slots.INLINE,
    ]
    assert [1 << place for place in range(16)] == sorted(flags)
