"""What a delta costs, in CPU time of the thread: one change to 1,000 messages of 620 KB together.

    pytest bench/test_delta.py

Each case sees its delta give the new value back. No time is asserted: compare runs on one host.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import ormsgpack
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from deltastore.format import delta

pytestmark = pytest.mark.benchmark(timer=time.thread_time, min_rounds=20, warmup=True)

MESSAGES = 1_000
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def message(number: int) -> Any:
    """Return a message as LangGraph's serializer writes it, of about 620 bytes."""
    source = random.Random(number)
    words = ("".join(source.choices(LETTERS, k=source.randint(2, 9))) for _ in range(68))
    fields = {
        "content": " ".join(words),
        "additional_kwargs": {},
        "response_metadata": {},
        "type": "human",
        "name": None,
        "id": f"{source.getrandbits(128):032x}",
    }
    parts = ("langchain_core.messages.human", "HumanMessage", fields, "model_validate_json")
    return ormsgpack.Ext(5, ormsgpack.packb(parts))


def append(messages: list[Any]) -> list[Any]:
    return [*messages, message(-1)]


def edit_in_the_middle(messages: list[Any]) -> list[Any]:
    return [*messages[:500], message(-1), *messages[501:]]


def trim_in_front_and_append(messages: list[Any]) -> list[Any]:
    return [*messages[1:], message(-1)]


def edit_two_far_apart(messages: list[Any]) -> list[Any]:
    return [*messages[:200], message(-1), *messages[201:800], message(-2), *messages[801:]]


def summarize(messages: list[Any]) -> list[Any]:
    return [message(-1), *messages[300:], message(-2)]


CHANGES = [append, edit_in_the_middle, trim_in_front_and_append, edit_two_far_apart, summarize]


@pytest.fixture(scope="module")
def messages() -> list[Any]:
    return [message(number) for number in range(MESSAGES)]


@pytest.mark.parametrize("change", CHANGES)
def test_diff(
    benchmark: BenchmarkFixture, messages: list[Any], change: Callable[[list[Any]], list[Any]]
) -> None:
    """One delta; its size is kept beside its time."""
    base, new = ormsgpack.packb(messages), ormsgpack.packb(change(messages))
    found = benchmark(delta.diff, base, new)
    benchmark.extra_info["delta_bytes"] = len(found)
    assert new == delta.apply(base, [found])


@pytest.mark.parametrize("change", CHANGES)
def test_apply_of_one(
    benchmark: BenchmarkFixture, messages: list[Any], change: Callable[[list[Any]], list[Any]]
) -> None:
    """One delta played back."""
    base, new = ormsgpack.packb(messages), ormsgpack.packb(change(messages))
    assert new == benchmark(delta.apply, base, [delta.diff(base, new)])


def test_apply_of_1000_appends(benchmark: BenchmarkFixture, messages: list[Any]) -> None:
    """The longest chain the default bounds allow."""
    grown = list(messages)
    base = value = ormsgpack.packb(grown)
    deltas = []
    for number in range(1, 1_001):
        grown.append(message(-number))
        longer = ormsgpack.packb(grown)
        deltas.append(delta.diff(value, longer))
        value = longer
    assert value == benchmark(delta.apply, base, deltas)
