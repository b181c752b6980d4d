"""Laws of the frame: what is sealed comes back, and nothing else passes for it."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from deltastore.errors import CorruptionError, DecryptionError, FormatVersionError
from deltastore.format.crc import extend
from deltastore.format.frame import Record, peek, seal, unseal
from deltastore.types import Cipher


class Pad:
    """A toy cipher: XOR with a stream drawn from a secret."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "pad", self._cross(plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return self._cross(ciphertext)

    def _cross(self, text: bytes) -> bytes:
        stream = hashlib.shake_256(self.secret).digest(len(text))
        return bytes(a ^ b for a, b in zip(text, stream, strict=True))


def make_ciphers() -> dict[str, Cipher]:
    """Return a toy cipher, and the AES of LangGraph where its library is installed."""
    ciphers: dict[str, Cipher] = {"toy": Pad(b"secret")}
    try:
        ciphers["aes"] = EncryptedSerializer.from_pycryptodome_aes(key=b"k" * 16).cipher
    except ImportError:
        pass
    return ciphers


CIPHERS = make_ciphers()
WORDS = b"the user asked for a refund and the agent checked the order status again ".split()
KEYS = st.binary(min_size=1, max_size=80)
KINDS = st.integers(1, 255)
TEXTS = st.lists(st.sampled_from(WORDS), max_size=60).map(b" ".join)
PAYLOADS = st.one_of(
    st.binary(max_size=300),
    TEXTS,
    st.tuples(st.binary(max_size=20), st.integers(0, 2000)).map(lambda p: p[0] * p[1]),
)
ANY_CIPHER = st.sampled_from([None, *CIPHERS.values()])
SMALL = st.one_of(st.binary(max_size=24), TEXTS.map(lambda text: text[:60]))
REFUSALS = (CorruptionError, FormatVersionError, DecryptionError)


@given(KEYS, KINDS, st.binary(max_size=300), PAYLOADS, ANY_CIPHER)
@settings(max_examples=300, deadline=None)
def test_unseal_returns_what_was_sealed(
    key: bytes, kind: int, clear: bytes, payload: bytes, cipher: Cipher | None
) -> None:
    """The first promise of a store."""
    record = seal(key, kind, clear, payload, cipher)
    assert Record(kind, clear, payload) == unseal(key, record, kind, cipher)
    assert clear == peek(key, record, kind)


@given(KEYS, KINDS, st.binary(max_size=20), SMALL, ANY_CIPHER)
@settings(max_examples=40, deadline=None)
def test_every_single_bit_flip_of_a_record_or_its_key_is_corruption(
    key: bytes, kind: int, clear: bytes, payload: bytes, cipher: Cipher | None
) -> None:
    """Whatever part a bad bit falls into: head, clear part, payload, checksum or key."""
    record = seal(key, kind, clear, payload, cipher)
    whole = key + record
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        at, found = bytes(flipped[: len(key)]), bytes(flipped[len(key) :])
        with pytest.raises(CorruptionError):
            unseal(at, found, kind, cipher)
        with pytest.raises(CorruptionError):
            peek(at, found, kind)


@given(KEYS, KEYS, KINDS, SMALL, ANY_CIPHER)
@settings(max_examples=200, deadline=None)
def test_a_record_under_another_key_is_corruption(
    key: bytes, other: bytes, kind: int, payload: bytes, cipher: Cipher | None
) -> None:
    """An engine that mixes up two values must be noticed."""
    if key == other:
        other += b"\x00"
    record = seal(key, kind, b"", payload, cipher)
    with pytest.raises(CorruptionError):
        unseal(other, record, kind, cipher)


@given(KEYS, KINDS, st.binary(max_size=20), SMALL, ANY_CIPHER)
@settings(max_examples=60, deadline=None)
def test_truncation_at_every_length_is_corruption(
    key: bytes, kind: int, clear: bytes, payload: bytes, cipher: Cipher | None
) -> None:
    """A torn write leaves a beginning."""
    record = seal(key, kind, clear, payload, cipher)
    for length in range(len(record)):
        with pytest.raises(CorruptionError):
            unseal(key, record[:length], kind, cipher)


@given(KEYS, KINDS, KINDS, SMALL)
@settings(max_examples=100, deadline=None)
def test_a_record_of_another_kind_is_corruption(
    key: bytes, kind: int, other: int, payload: bytes
) -> None:
    """A header must never be read as a value."""
    if kind == other:
        other = kind % 255 + 1
    record = seal(key, kind, b"", payload)
    with pytest.raises(CorruptionError):
        unseal(key, record, other)


@given(
    st.one_of(
        st.binary(max_size=80),
        st.tuples(
            st.sampled_from([0x11, 0x12, 0x13, 0x19, 0x1A, 0x1B]), st.binary(max_size=80)
        ).map(lambda p: bytes((p[0], 2)) + p[1]),
    ),
    st.booleans(),
    ANY_CIPHER,
)
@settings(max_examples=1_000, deadline=None)
def test_arbitrary_bytes_raise_nothing_but_the_named_errors(
    body: bytes, with_sum: bool, cipher: Cipher | None
) -> None:
    """Damage that happens to carry a right checksum must not bring a reader down either."""
    key = b"key"
    record = body + extend(extend(0, key), body).to_bytes(4, "little") if with_sum else body
    for read in (lambda: unseal(key, record, 2, cipher), lambda: peek(key, record, 2)):
        try:
            read()
        except REFUSALS:
            pass


@given(st.integers(0, 2**32 - 1), st.integers(0, 60), st.binary(max_size=3), st.integers(0, 3))
@settings(max_examples=500, deadline=None)
def test_a_damaged_zstd_frame_under_a_right_checksum_raises_only_corruption(
    seed: int, at: int, patch: bytes, cut: int
) -> None:
    """Errors of zstd must not leave the frame; bytes that still decode are none to find here."""
    payload = b" ".join(WORDS[(seed >> i) % len(WORDS)] for i in range(24))
    body = bytearray(seal(b"key", 2, b"", payload)[:-4])
    body[4 + at : 4 + at + len(patch)] = patch
    body = body[: len(body) - cut]
    record = bytes(body) + extend(extend(0, b"key"), bytes(body)).to_bytes(4, "little")
    try:
        unseal(b"key", record, 2)
    except CorruptionError:
        pass


@given(KEYS, st.one_of(st.binary(min_size=8, max_size=300), TEXTS), st.sampled_from([*CIPHERS]))
@settings(max_examples=200, deadline=None)
def test_no_eight_bytes_of_an_encrypted_payload_are_in_the_record(
    key: bytes, payload: bytes, cipher: str
) -> None:
    """Compression before encryption must leave nothing outside the ciphertext."""
    record = seal(key, 2, b"", payload, CIPHERS[cipher])
    for start in range(len(payload) - 7):
        assert payload[start : start + 8] not in record


@given(KEYS, SMALL)
@settings(max_examples=100, deadline=None)
def test_the_wrong_secret_is_a_decryption_error(key: bytes, payload: bytes) -> None:
    """Even a cipher that cannot tell must not hand back wrong bytes."""
    record = seal(key, 2, b"", payload, Pad(b"secret"))
    with pytest.raises(DecryptionError):
        unseal(key, record, 2, Pad(b"another"))
