"""Headers that are damaged, cannot be stored, or hold what only looks usual."""

from __future__ import annotations

from typing import Any

import pytest

from deltastore.errors import CorruptionError, InvalidArgumentError
from deltastore.format.header import Slot, decode, encode, measure, parent_of
from tests.unit.test_header import CHILD_CID, pair


@pytest.mark.parametrize(
    "clear", [b"", b"\x08", b"\x04", b"\x04\x00", b"\x00\x00\x00", b"\x04\x00\x03abc", b"\x00\x80"]
)
def test_a_malformed_clear_part_is_corruption(clear: bytes) -> None:
    """A history walk must stop at damage, not at a wrong parent."""
    with pytest.raises(CorruptionError):
        parent_of(clear)


def test_a_wrong_base_is_corruption_that_names_both_digests() -> None:
    """A difference applied to another header would give a plausible wrong one."""
    root, child = pair()
    clear, payload = encode(child, CHILD_CID, root)
    wrong, _ = pair()
    wrong.metadata["step"] = -2
    with pytest.raises(CorruptionError, match=f"{measure(root)[0]:08x}.*{measure(wrong)[0]:08x}"):
        decode(clear, payload, CHILD_CID, wrong)


def test_a_missing_base_is_corruption() -> None:
    """The parent's header may have been lost; that is damage, and no crash."""
    root, child = pair()
    clear, payload = encode(child, CHILD_CID, root)
    with pytest.raises(CorruptionError, match="not given"):
        decode(clear, payload, CHILD_CID, None)


def test_what_cannot_be_stored_is_refused() -> None:
    """Refusing at the put keeps the record readable; silently changing a type would not."""
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    for value in (object(), (1, 2), "\ud800", {1: 2}, deep):
        _, child = pair()
        child.metadata["key"] = value  # type: ignore[assignment]
        with pytest.raises(InvalidArgumentError):
            encode(child, CHILD_CID, None)
    _, child = pair()
    child.slots["\ud800"] = Slot()
    with pytest.raises(InvalidArgumentError):
        encode(child, CHILD_CID, pair()[0])
    _, child = pair()
    child.versions["in"] = None  # type: ignore[assignment]
    with pytest.raises(InvalidArgumentError):
        encode(child, CHILD_CID, None)
    _, child = pair()
    child.depth = 1 << 64
    with pytest.raises(InvalidArgumentError):
        encode(child, CHILD_CID, None)


@pytest.mark.parametrize(
    "time",
    [
        "2026-11-30T11:49:+5.941771+00:00",
        "2026-11-30T11:49:56.94177 +00:00",
        "2026-11-30T11:49:56.000000+00:00",
        "2026-11-30T11:49:56.941771+00:30",
        "2026-11-30T11:49:56.941771",
        "2026-11-30T11:49:60.941771+00:00",
        "2026-11-30T11:49:",
        "0001-01-01T00:00:-1+00:00",
        "9999-12-31T23:59:99.000000+00:00",
        "99999999-12-31T23:59:00+00:00",
    ],
)
def test_a_time_of_another_form_is_kept_as_the_text_it_is(time: str) -> None:
    """Times are stored as numbers where that gives the same text; a migrated one may differ."""
    root, child = pair()
    child.fields["ts"] = time
    clear, payload = encode(child, CHILD_CID, root)
    assert parent_of(clear).is_difference
    assert time == decode(clear, payload, CHILD_CID, root).fields["ts"]
