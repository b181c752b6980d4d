"""What one header, one writes record, one value record and one key cost to code and to read.

    pytest bench/test_codec.py

The records are those of a recorded chat with a plain list: every call of the coders is noted while
it is stored, and one from the middle is coded again and again. Times are reported, not judged.
"""

from __future__ import annotations

from typing import Any

import pytest

from bench.conversations import get_turns
from bench.figures_puts import Chat, apply_call
from deltastore import DeltaStoreSaver, ids
from deltastore.format import header, keys, value, writes

TURNS = 40
CODERS = {"header": header, "writes": writes, "value": value}


@pytest.fixture(scope="module")
def calls() -> dict[str, list[tuple[Any, Any]]]:
    """Arguments of every call of each coder, and what it returned."""
    noted: dict[str, list[tuple[Any, Any]]] = {name: [] for name in CODERS}
    turns, _ = get_turns(TURNS, path=None, seed=1)
    with pytest.MonkeyPatch.context() as patched:
        for name, module in CODERS.items():
            encode = module.encode

            def noting(
                *args: Any, _into: Any = noted[name], _encode: Any = encode, **o: Any
            ) -> Any:
                _into.append(((args, o), _encode(*args, **o)))
                return _into[-1][1]

            patched.setattr(module, "encode", noting)
        with DeltaStoreSaver.ephemeral() as saver:
            for call in Chat("chat", snapshot_frequency=None).calls(turns):
                apply_call(saver, call)
    return noted


def middle(noted: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Return a call from the middle; of headers one that is a difference."""
    return noted[len(noted) // 2]


@pytest.mark.parametrize("name", CODERS)
def test_encode(benchmark: Any, calls: dict[str, list[tuple[Any, Any]]], name: str) -> None:
    """One record, as a put or put_writes codes it."""
    (args, options), coded = middle(calls[name])
    assert coded == benchmark(CODERS[name].encode, *args, **options)
    sizes = coded if isinstance(coded, tuple) else (coded,)
    benchmark.extra_info["bytes"] = sum(map(len, sizes))


@pytest.mark.parametrize("name", ["writes", "value"])
def test_decode(benchmark: Any, calls: dict[str, list[tuple[Any, Any]]], name: str) -> None:
    """One record, as a read takes it apart."""
    (args, _), coded = middle(calls[name])
    assert args[0] == benchmark(CODERS[name].decode, coded)


def test_decode_of_a_header(benchmark: Any, calls: dict[str, list[tuple[Any, Any]]]) -> None:
    """A difference to the parent's header."""
    ((wanted, cid, base), _), (clear, payload) = (
        middle(calls["header"])[0],
        middle(calls["header"])[1],
    )
    assert wanted == benchmark(header.decode, clear, payload, cid, base)


def test_keys(benchmark: Any) -> None:
    """The three keys of a superstep's records, built and taken apart."""
    cid = ids.cid_from_id("1f0e9c2a-5b7d-6f00-8000-000000000001")

    def build() -> int:
        prefix = keys.log_prefix(7, 1)
        built = (
            keys.header_key(prefix, cid),
            keys.value_key(prefix, cid, 0),
            keys.writes_key(prefix, cid, 12345),
        )
        return sum(keys.split(key).kind for key in built)

    benchmark(build)
