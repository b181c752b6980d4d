"""Values to bytes and back, through the user's serializer.

An `EncryptedSerializer` is taken apart: its inner serializer makes the bytes that deltas are found
in, its cipher encrypts the records made of them. Any other serializer is used as it is.

*Plain* data (None, bool, int, float, str, bytes, lists, dicts with text keys) goes into headers as
it is; anything else there becomes an `Opaque`, serialized by the user's serializer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from deltastore.errors import InvalidArgumentError, InvalidTypeError
from deltastore.format.header import Opaque
from deltastore.ids import encode_text
from deltastore.types import Cipher, Typed

_INT_MIN: Final = -(1 << 63)
_INT_MAX: Final = (1 << 64) - 1
_PLAIN_DEPTH_MAX: Final = 64


class Coder(NamedTuple):
    """A serializer, and the cipher its records go through, if any."""

    serde: SerializerProtocol
    cipher: Cipher | None

    @classmethod
    def of(cls, serde: SerializerProtocol) -> Coder:
        """Take a saver's serializer apart; read it at each call, as it may be replaced."""
        if type(serde) is EncryptedSerializer:
            return cls(serde.serde, serde.cipher)
        return cls(serde, None)

    def dumps(self, value: Any, where: str) -> Typed:
        """Serialize a value.

        Raises:
            InvalidTypeError: The serializer refuses it with a TypeError.
            InvalidArgumentError: With a ValueError, or it is nested too deeply or in itself.
            Exception: Anything else the serializer raises passes unchanged.
        """
        kind, serde = type(value).__name__, type(self.serde).__name__
        try:
            tag, data = self.serde.dumps_typed(value)
        except RecursionError as error:
            raise InvalidArgumentError(
                f"{where}: a {kind} is nested too deeply to be serialized, or contains itself"
            ) from error
        except TypeError as error:
            raise InvalidTypeError(
                f"{where}: a {kind} cannot be serialized by {serde}: {error}; store plain data, or "
                "pass a serializer that takes it (serde=...)"
            ) from error
        except ValueError as error:
            raise InvalidArgumentError(
                f"{where}: a {kind} cannot be serialized by {serde}: {error}"
            ) from error
        return Typed(tag, data if type(data) is bytes else bytes(data))

    def loads(self, typed: Typed) -> Any:
        """Return the value of serialized bytes; raises what the serializer raises."""
        return self.serde.loads_typed((typed.type, typed.data))

    def loads_many(self, values: Sequence[Typed]) -> list[Any]:
        """Return the values of many; with LangGraph's own serializer they are read at one go.

        A MessagePack array is its header and its elements' own bytes, so joining them saves the
        cost of a call each.
        """
        if len(values) < 2 or type(self.serde) is not JsonPlusSerializer:
            return [self.loads(typed) for typed in values]
        if any(typed.type != "msgpack" for typed in values):
            return [self.loads(typed) for typed in values]
        head = b"\xdd" + len(values).to_bytes(4, "big")
        joined = head + b"".join([typed.data for typed in values])
        try:
            found = self.loads(Typed("msgpack", joined))
        except Exception:  # noqa: BLE001 - it is raised again below, by the value it is about
            # One value nested to the serializer's limit is too deep inside an array.
            return [self.loads(typed) for typed in values]
        assert len(found) == len(values)
        return list(found)

    def plain(self, value: Any, where: str, depth: int = 0) -> Any:
        """Return a copy of `value` as plain data; what is not becomes an `Opaque`.

        Tuples become lists, as every saver gives them back.
        """
        kind = type(value)
        if kind is str:
            if not value.isascii():
                encode_text(value, where)
            return value
        if value is None or kind is bool or kind is float or kind is bytes:
            return value
        if kind is int and _INT_MIN <= value <= _INT_MAX:
            return value
        if depth < _PLAIN_DEPTH_MAX:
            if kind is list or kind is tuple:
                return [self.plain(item, where, depth + 1) for item in value]
            if kind is dict and all(type(key) is str for key in value):
                return {
                    self.plain(key, where): self.plain(item, where, depth + 1)
                    for key, item in value.items()
                }
        return Opaque(*self.dumps(value, where))

    def unplain(self, value: Any) -> Any:
        """Return what `plain` was given, as a copy of the caller's own."""
        kind = type(value)
        if kind is list:
            return [self.unplain(item) for item in value]
        if kind is dict:
            return {key: self.unplain(item) for key, item in value.items()}
        if kind is Opaque:
            return self.loads(Typed(value.type, value.data))
        return value

    def plain_dict(self, value: Mapping[str, Any], where: str) -> dict[str, Any]:
        """As `plain`, for a mapping that must have text keys."""
        found: dict[str, Any] = {}
        for key, item in value.items():
            name = key if type(key) is str and key.isascii() else check_key(key, where)
            # Of most items the type is enough; naming where they are costs more than the copy.
            is_plain = type(item) is str and item.isascii()
            found[name] = item if is_plain else self.plain(item, f"{where}[{name!r}]")
        return found


def check_key(key: Any, where: str) -> str:
    """Return a channel name or another key of a header.

    Raises:
        InvalidTypeError: It is no str.
        InvalidArgumentError: It holds a lone surrogate.
    """
    if not isinstance(key, str):
        raise InvalidTypeError(f"{where}: keys must be str (got {type(key).__name__} {key!r})")
    if not key.isascii():
        encode_text(key, where)
    return key if type(key) is str else str(key)
