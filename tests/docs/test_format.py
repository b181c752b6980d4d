"""docs/format.md is the format: its numbers are the code's, its example is a real record."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path

import pytest

from deltastore.format import frame, header, keys, layout, varint
from deltastore.format.header import Header
from deltastore.format.slots import Slot, ValueRef
from deltastore.format.text import put_tag
from deltastore.ids import ID_BYTES_MAX, cid_from_id, id_from_cid
from deltastore.types import Typed

DOCUMENT = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")

PARENT_ID = "1ef0c5a4-7b2d-6c00-8000-0123456789ab"
CHECKPOINT_ID = "1ef0c5a4-7b2d-6f30-8001-0123456789ab"
PARENT, CID = cid_from_id(PARENT_ID), cid_from_id(CHECKPOINT_ID)
KEY = keys.header_key(keys.log_prefix(7, 1), CID)
NODES: dict[str, dict[str, str | int | float]] = {"__input__": {}}

# What a first byte of a key or a kind is called in the tables, so that a new number has to be told.
TAGS = {
    "00": layout.TAG_STORE,
    "01": layout.TAG_THREAD,
    "02": layout.TAG_NAMESPACE,
    "03": layout.TAG_NAMES,
    "04": layout.TAG_ACTIVITY,
    "05": layout.TAG_SECRET,
    "06": layout.TAG_LATE,
    "07": layout.TAG_RECLAIM,
    "08": layout.TAG_RUN,
    "09": layout.TAG_WATCH,
    "0a": layout.TAG_THREAD_RUNS,
    "0b": layout.TAG_LEASE,
    "10": layout.TAG_LOG,
}


def example(name: str) -> str:
    """Return what follows a marker of the document, up to the first empty line after it."""
    return DOCUMENT.split(f"<!-- example {name} -->\n")[1].split("\n\n")[0]


def rows(first: str) -> list[list[str]]:
    """Return the cells of the table whose head begins with `first`, without its head."""
    table = DOCUMENT.split(f"\n| {first} |")[1].split("\n\n")[0]
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in table.split("\n")[2:]
    ]


def version(counter: int) -> str:
    """Return a version as LangGraph's savers make it, with the fraction 0.5."""
    return f"{counter:032}.{0.5:016}"


def make_header(cid: bytes, parent: bytes | None, step: int, text: str) -> Header:
    """Return one of the two headers of the example."""
    return Header(
        parent=parent,
        parent_stored=parent is not None,
        depth=step + 1 if parent is not None else 0,
        fields={"v": 4, "ts": text},
        versions={"count": version(step + 2)},
        seen=NODES,
        metadata={"source": "input" if parent is None else "loop", "step": step, "parents": {}},
        slots={"count": Slot(ValueRef(cid, 0, None), writer=parent)},
        inline={0: Typed("msgpack", bytes([step + 2]))},
    )


ROOT = make_header(PARENT, None, -1, "2024-05-07T10:12:16.126853+00:00")
CHILD = make_header(CID, PARENT, 0, "2024-05-07T10:12:16.126930+00:00")


def test_the_example_is_the_record_the_code_stores() -> None:
    """A specification whose example nobody can reproduce is a guess."""
    clear, payload = header.encode(CHILD, CID, ROOT)
    assert bytes.fromhex(example("key")) == KEY
    assert bytes.fromhex(example("record")) == frame.seal(KEY, layout.KIND_HEADER, clear, payload)


def test_the_example_decodes_to_what_the_text_says() -> None:
    """The page alone must be enough to read a store with; so the code reads the page."""
    key, record = bytes.fromhex(example("key")), bytes.fromhex(example("record"))
    opened = frame.unseal(key, record, layout.KIND_HEADER)
    found = header.decode(opened.clear, opened.payload, CID, ROOT)
    place = keys.split(key)
    assert (7, 1, CHECKPOINT_ID) == (place.thread, place.namespace, id_from_cid(place.cid))
    assert CHILD == found
    assert PARENT_ID == id_from_cid(found.parent or b"")
    assert header.measure(ROOT)[0] == int.from_bytes(opened.payload[:4], "big")


def test_the_parts_of_the_example_are_the_record_without_gaps() -> None:
    """A byte that no row explains is a byte the reader has to guess."""
    at = 0
    for offset, content, _ in rows("at"):
        assert at == int(offset)
        found = bytes.fromhex(content.strip("`"))
        assert bytes.fromhex(example("record"))[at : at + len(found)] == found
        at += len(found)
    assert len(bytes.fromhex(example("record"))) == at


def test_times_of_the_example_lie_where_the_text_says() -> None:
    """The row for `ts` counts from the time in the id, which no reader can see in hex."""
    ms = int.from_bytes(CID[1:7], "big")
    ticks = int.from_bytes(CID[7:9], "big") >> 2
    since = datetime.fromisoformat(str(CHILD.fields["ts"])) - datetime.fromtimestamp(
        0, tz=timezone.utc
    )
    ts_us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    assert 25 == ms * 1_000 + ticks // 10 - ts_us


def test_every_keyspace_is_in_the_table_of_keys() -> None:
    """A keyspace the page does not name is one that its reader skips."""
    told = {first.strip("`") for first, *_ in rows("first byte")}
    assert set(TAGS) == told
    assert {name: number for name, number in TAGS.items() if int(name, 16) != number} == {}
    named = {value for name, value in vars(layout).items() if name.startswith("TAG_")}
    assert named == set(TAGS.values())


def test_every_kind_is_in_the_table_of_keys() -> None:
    """Kinds are repeated in frames; a reader tells by them whether a record is where it belongs."""
    told = {int(cells[-1]) for cells in rows("first byte") if cells[-1].isdigit()}
    named = {value for name, value in vars(layout).items() if name.startswith("KIND_")}
    assert named == told


def test_every_codec_is_in_the_table_of_codecs() -> None:
    """The table is all there is to tell a compressed payload from an encrypted one."""
    plain = [layout.CODEC_RAW, layout.CODEC_ZSTD, layout.CODEC_ZSTD_DICT]
    encrypted = ", ".join(str(codec + layout.CODEC_ENCRYPTED) for codec in plain)
    assert [*map(str, plain), encrypted] == [codec for codec, _ in rows("codec")]


@pytest.mark.parametrize(
    ("sentence", "number"),
    [
        (r"Format version (\d+)\.", layout.FORMAT_VERSION),
        (r"whole at depths that are multiples of (\d+)", layout.HEADER_WHOLE_EVERY),
        (r"up to (\d+) bytes of it; longer", keys.TEXT_BYTES_MAX),
        (r"plus one; 1 to (\d+) bytes", ID_BYTES_MAX),
        (r"a zstd frame \(level (\d+)\)", layout.ZSTD_LEVEL),
        (r"with a shipped dictionary: under (\d+) KiB", layout.DICT_RECORD_BYTES_MAX >> 10),
        (r"The shortest record has (\d+) bytes", frame.RECORD_BYTES_MIN),
        (r"as it is: under (\d+) bytes", frame.COMPRESS_BYTES_MIN),
    ],
)
def test_a_number_in_the_text_is_the_codes(sentence: str, number: int) -> None:
    """Whoever changes a bound finds the sentence that tells it."""
    assert [str(number)] == re.findall(sentence, " ".join(DOCUMENT.split()))


def test_tags_of_serializers_are_those_of_the_text() -> None:
    """A tag read as its neighbour hands the bytes to the wrong deserializer."""
    line = DOCUMENT.split("tag     u8: ")[1].split(";")[0]
    told = {name: int(number) for number, name in (one.split() for one in line.split(", "))}
    found = {}
    for name in told:
        out = bytearray()
        put_tag(out, name)
        found[name] = out[0]
    assert told == found
    out = bytearray()
    put_tag(out, "anything else")
    assert 0 == out[0]


def test_flags_of_a_difference_are_all_16() -> None:
    """The text says that none is left, so that a new one comes with a new format version."""
    told = [int(flag.strip("`"), 16) for flag, *_ in rows("flag")]
    assert 0xFFFF == sum(told)
    assert 16 == len(told)


def test_a_varint_is_spelled_as_the_text_says() -> None:
    """Least significant first, seven bits a byte; the zigzag of 25 in the example is one byte."""
    out = bytearray()
    varint.put(out, 300)
    assert bytes([0xAC, 0x02]) == out
