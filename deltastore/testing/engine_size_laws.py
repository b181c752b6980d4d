"""What an engine says it takes (E13), as tests of `deltastore.testing.engine_suite`."""

from __future__ import annotations

from typing import Final

from deltastore.engine.api import Engine

_PAGES_BYTES: Final = 64 << 10
_PAIRS: Final = 400
_VALUE: Final = b"v" * 2_000


class SizeLaws:
    """Laws of `used_bytes`."""

    def test_e12_what_is_used_follows_what_is_stored(self, engine: Engine) -> None:
        """A bound on a store is kept by this number alone."""
        pairs_bytes = _PAIRS * len(_VALUE)
        with engine.begin(write=True) as transaction:
            empty = transaction.used_bytes()
            for n in range(_PAIRS):
                transaction.put(n.to_bytes(4, "big"), _VALUE)
            full = transaction.used_bytes()
            assert pairs_bytes <= full - empty <= 3 * pairs_bytes + _PAGES_BYTES
        with engine.begin(write=False) as transaction:
            assert full == transaction.used_bytes()
        with engine.begin(write=True) as transaction:
            for n in range(_PAIRS):
                transaction.put(n.to_bytes(4, "big"), _VALUE[::-1])
            assert abs(full - transaction.used_bytes()) <= _PAGES_BYTES
            transaction.delete_range(b"", b"\xfe", limit=_PAIRS)
            assert transaction.used_bytes() <= empty + _PAGES_BYTES
        with engine.begin(write=False) as transaction:
            assert transaction.used_bytes() <= empty + _PAGES_BYTES

    def test_e12_what_is_undone_is_not_used(self, engine: Engine) -> None:
        """Else every refused write would bring the bound nearer."""

        class UndoneError(Exception):
            pass

        with engine.begin(write=False) as transaction:
            before = transaction.used_bytes()
        try:
            with engine.begin(write=True) as transaction:
                for n in range(_PAIRS):
                    transaction.put(n.to_bytes(4, "big"), _VALUE)
                raise UndoneError
        except UndoneError:
            pass
        with engine.begin(write=False) as transaction:
            assert before == transaction.used_bytes()
