"""What a survey tells of a stream is what decoding everything would tell."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from deltastore import CorruptionError, DeltaStoreSaver
from deltastore.engine.memory import MemoryEngine
from deltastore.format import keys, layout
from deltastore.ids import cid_from_id, id_from_cid
from deltastore.store import Store
from deltastore.survey import Node, measure, survey
from deltastore.testing import Caller, Lane
from deltastore.testing.strategies import checkpoint_id

LARGE = ["text of some length " * 90]
IDS = {"uuid6": [checkpoint_id(n) for n in range(1, 70)], "text": [f"id {n}" for n in range(1, 70)]}
each_form = pytest.mark.parametrize("ids", IDS.values(), ids=IDS.keys())


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine()


@pytest.fixture
def lane(engine: MemoryEngine) -> Lane:
    saver = DeltaStoreSaver.on_store(Store(engine))
    return Lane(Caller(lambda: saver))


def store_of(lane: Lane) -> Store:
    assert isinstance(lane.caller.saver, DeltaStoreSaver)
    return lane.caller.saver.store


def surveyed(lane: Lane) -> dict[str, Node]:
    """Return the survey of a lane by id."""
    session = store_of(lane)._session
    with session.view() as txn:
        reader = session.find(txn, str(lane.thread_id), lane.ns, None)
        assert reader is not None
        found = survey(reader)
    assert [*found] == sorted(found)
    return {id_from_cid(cid): node for cid, node in found.items()}


def filled(lane: Lane, ids: list[str]) -> None:
    """Put a line with small and large values, writes of one task or of two, and early ones."""
    for n, one in enumerate(ids):
        values = {"small": n, "large": [*LARGE, n, "x" * 300]}
        parent = ids[n - 1] if n else None
        lane.put(one, parent, new=dict.fromkeys(values, n + 1), values=values)
        lane.write(one, [("small", n)], "a")
        if n % 2:
            lane.write(one, [("large", LARGE)], "b")
    lane.write("zz early", [("small", 1)])


@each_form
def test_places_in_the_tree_are_those_of_the_headers(lane: Lane, ids: list[str]) -> None:
    """Parent, depth, form and checksum are read off the clear part of each record."""
    filled(lane, ids)
    nodes = surveyed(lane)
    assert {*ids, "zz early"} == nodes.keys()
    session = store_of(lane)._session
    with session.view() as txn:
        reader = session.find(txn, "t", "", None)
        assert reader is not None
        for depth, one in enumerate(ids):
            node, entry = nodes[one], reader.entry(cid_from_id(one))
            link = reader.link(cid_from_id(one))
            assert entry is not None
            assert link is not None
            assert (layout.KIND_HEADER, depth) == (node.kind, node.depth)
            assert (entry.header.parent, entry.checksum) == (node.parent, node.checksum)
            assert link.clear.is_difference == node.is_difference
    wholes = [one for one in ids if not nodes[one].is_difference]
    assert ids[::32] == wholes


@each_form
def test_sums_are_those_of_the_records(lane: Lane, ids: list[str]) -> None:
    """What a plan says is freed is what is there, to the byte; neighbours do not count."""
    filled(lane, ids)
    filled(Lane(lane.caller, "u"), ids[:3])
    Lane(lane.caller, "t", "sub").put("1")
    nodes = surveyed(lane)
    with store_of(lane)._session.view() as txn:
        prefix = keys.log_prefix(1, 1)
        records = txn.scan(prefix, keys.after(prefix))
        assert (len(records), sum(len(k) + len(r) for k, r in records)) == measure(txn, prefix)
    for one, node in nodes.items():
        own = [(k, r) for k, r in records if keys.split(k).cid == cid_from_id(one)]
        assert len(own) == node.records
        assert sum(len(key) + len(record) for key, record in own) == node.bytes
        sizes = {
            int.from_bytes(key[-2:], "big"): len(key) + len(record)
            for key, record in own
            if keys.split(key).kind == layout.KIND_VALUE
        }
        assert sizes == node.values


def test_early_writes_and_remains_are_no_checkpoints(lane: Lane) -> None:
    """Both lie at an id without a header; only values are remains."""
    lane.put("1", new={"x": 1}, values={"x": LARGE})
    lane.put("2", "1", carried={"x": 1})
    lane.put("3", "2", carried={"x": 1})
    lane.write("9", [("x", 1)])
    store_of(lane).prune("t")
    nodes = surveyed(lane)
    kinds = {one: (node.kind, [*node.values]) for one, node in nodes.items()}
    assert {
        "1": (0, [0]),
        "2": (layout.KIND_ANCHOR, []),
        "3": (layout.KIND_HEADER, []),
        "9": (0, []),
    } == kinds
    assert (None, 1) == (nodes["2"].parent, nodes["2"].depth)


def test_a_page_may_end_anywhere(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also between two records of one checkpoint."""
    filled(lane, IDS["text"][:5])
    expected = surveyed(lane)
    for page in (1, 2, 3, 5):
        monkeypatch.setattr("deltastore.survey._PAGE", page)
        assert expected == surveyed(lane)


def test_nothing_is_decoded(engine: MemoryEngine) -> None:
    """It needs no key, and works beside payloads that nobody can open."""
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"k" * 16)
    saver: Any = DeltaStoreSaver.on_store(Store(engine), serde=serde)
    lane = Lane(Caller(lambda: saver))
    filled(lane, IDS["text"][:4])
    nodes = surveyed(lane)
    assert [0, 1, 2, 3] == [nodes[one].depth for one in IDS["text"][:4]]


@pytest.mark.damaged
def test_a_damaged_header_is_located(lane: Lane, engine: MemoryEngine) -> None:
    """Who maintains a thousand threads must be told which one it was."""
    lane.put("1")
    lane.put("2", "1")
    key = keys.header_key(keys.log_prefix(1, 1), cid_from_id("2"))
    with engine.begin(write=True) as txn:
        txn.put(key, b"\x11\x01")
    with pytest.raises(CorruptionError) as raised:
        surveyed(lane)
    assert ("t", "2") == (raised.value.thread_id, raised.value.checkpoint_id)
