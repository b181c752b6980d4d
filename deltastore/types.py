"""Small types shared by every floor."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

Version = str | int | float
"""A channel version, as `get_next_version` hands out; read back exactly as it came."""


class Typed(NamedTuple):
    """A value as a serializer gives it: its type tag and its bytes."""

    type: str
    data: bytes


class Cipher(Protocol):
    """Encrypts record payloads; the protocol of LangGraph's `CipherProtocol`."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        """Return the cipher's name and the ciphertext."""

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        """Return the plaintext; raises whatever the cipher raises for a wrong key."""


Wake = Callable[[], None]
"""Wakes whoever waits for outcomes that were told one by one; called when all have been."""
