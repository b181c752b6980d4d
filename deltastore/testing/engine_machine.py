"""Random work on an engine and on a plain dict, compared after each step.

An *op* is a put, a delete or a delete of a range; ops of one transaction are applied to both,
and to neither if it is undone. `deltastore.testing.engine_suite` runs the machine.

Knows the seam only, and draws everything from Hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from deltastore.engine.api import Engine, Transaction
from deltastore.errors import DeltaStoreError
from deltastore.testing.engine_calls import BlockError, fill

# Few keys, so that bounds often fall on keys, and keys on each other's prefixes.
_BYTES: Final = (b"\x00", b"\x10", b"\xff")
_KEYS: Final = st.sampled_from([*_BYTES, *(x + y for x in _BYTES for y in _BYTES), b"k" * 511])
_VALUES: Final = st.one_of(st.binary(max_size=4), st.sampled_from([b"", b"v" * 3_000]))
_OPS: Final = st.one_of(
    st.tuples(st.just("put"), _KEYS, _VALUES),
    st.tuples(st.just("delete"), _KEYS, st.just(b"")),
    st.tuples(st.just("delete_range"), _KEYS, _KEYS),
)


class EngineMachine(RuleBasedStateMachine):
    """Drives an engine and a dict with the same random work.

    Args:
        engine: A fresh one; closed at the end.
        reopen: Closes an engine and returns one on what it stored; None if it keeps nothing.
    """

    def __init__(self, engine: Engine, reopen: Callable[[Engine], Engine | None]) -> None:
        super().__init__()
        self._engine = engine
        self._reopen = reopen
        self._model: dict[bytes, bytes] = {}

    def _apply(self, transaction: Transaction, ops: list[tuple[str, bytes, bytes]]) -> None:
        model = self._model
        for name, key, value in ops:
            if name == "put":
                transaction.put(key, value)
                model[key] = value
            elif name == "delete":
                assert (model.pop(key, None) is not None) == transaction.delete(key)
            else:
                doomed = [found for found in sorted(model) if key <= found < value][:3]
                assert len(doomed) == transaction.delete_range(key, value, limit=3)
                for found in doomed:
                    del model[found]
        assert sorted(model.items()) == transaction.scan(b"", b"\xff" * 600)

    @initialize(pairs=st.dictionaries(_KEYS, _VALUES, min_size=4))
    def begin_filled(self, pairs: dict[bytes, bytes]) -> None:
        """Work on an empty engine says little."""
        fill(self._engine, pairs)
        self._model = dict(pairs)

    @rule(ops=st.lists(_OPS, max_size=8))
    def commit(self, ops: list[tuple[str, bytes, bytes]]) -> None:
        """Work that ends well."""
        with self._engine.begin(write=True) as transaction:
            self._apply(transaction, ops)

    @rule(ops=st.lists(_OPS, min_size=1, max_size=8))
    def undo(self, ops: list[tuple[str, bytes, bytes]]) -> None:
        """Work that is undone by an error of the block."""
        before = dict(self._model)
        with pytest.raises(BlockError), self._engine.begin(write=True) as transaction:
            self._apply(transaction, ops)
            raise BlockError
        self._model = before

    @rule(
        start=_KEYS,
        stop=_KEYS,
        reverse=st.booleans(),
        limit=st.none() | st.integers(min_value=0, max_value=5),
    )
    def scan(self, start: bytes, stop: bytes, reverse: bool, limit: int | None) -> None:
        """Both ways, any range, any limit."""
        expected = [pair for pair in sorted(self._model.items()) if start <= pair[0] < stop]
        if reverse:
            expected.reverse()
        expected = expected[:limit]
        with self._engine.begin(write=False) as transaction:
            assert expected == transaction.scan(start, stop, reverse=reverse, limit=limit)
            keys = transaction.scan_keys(start, stop, reverse=reverse, limit=limit)
        assert [key for key, _ in expected] == keys

    @rule(keys=st.lists(_KEYS, max_size=6))
    def look_up(self, keys: list[bytes]) -> None:
        """Present and absent keys, in any order, repeated or not."""
        with self._engine.begin(write=False) as transaction:
            assert [self._model.get(key) for key in keys] == transaction.get_many(keys)

    @rule()
    def reopen(self) -> None:
        """Close and open again, where the engine keeps what it stored."""
        self._engine = self._reopen(self._engine) or self._engine

    @invariant()
    def holds_what_the_dict_holds(self) -> None:
        """Compare everything, and the count, after each step."""
        with self._engine.begin(write=False) as transaction:
            assert sorted(self._model.items()) == transaction.scan(b"", b"\xff" * 600)
        assert len(self._model) == self._engine.stat().entries

    def teardown(self) -> None:
        """Close the engine; a failure here must not hide the one that was found."""
        try:
            self._engine.close()
        except DeltaStoreError as error:
            raise AssertionError("the engine does not close") from error
