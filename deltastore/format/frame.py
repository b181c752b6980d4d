"""The frame around every record: version, codec, kind, a clear part, a payload, a checksum.

    byte 0   FORMAT_VERSION << 4 | codec
    byte 1   kind
    varint   number of the dictionary; only with CODEC_ZSTD_DICT
    varint   length of the clear part, then the clear part
    payload  coded as byte 0 says; all but the last four bytes
    u32 LE   CRC-32C over the key as the log sees it and all bytes before

A *record* is a value of the engine. Its *payload* is compressed, and after that encrypted if the
serializer has a cipher; its *clear part* is neither, for what must be read without decoding. zstd
frames are written without their magic number: byte 0 says what they are. With CODEC_ENCRYPTED the
payload is a length byte and the cipher's name, then the ciphertext of the key's xxh3_64 (8 bytes,
big-endian) and the compressed payload: a cipher without authentication cannot be made to show one
record under the key of another.

Nothing here knows what a clear part or a payload means. Whatever bytes are given to `unseal` and
`peek`, only the errors they name leave them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

import xxhash
import zstandard

from deltastore.errors import (
    CorruptionError,
    DecryptionError,
    FormatVersionError,
    InvalidArgumentError,
)
from deltastore.format import varint
from deltastore.format.crc import RESIDUE, extend
from deltastore.format.dictionary import CURRENT, get_dictionary
from deltastore.format.layout import (
    CODEC_ENCRYPTED,
    CODEC_RAW,
    CODEC_ZSTD,
    CODEC_ZSTD_DICT,
    DICT_RECORD_BYTES_MAX,
    FORMAT_VERSION,
    PAYLOAD_BYTES_MAX,
    ZSTD_LEVEL,
)
from deltastore.types import Cipher

COMPRESS_BYTES_MIN: Final = 16  # below, a zstd frame is never shorter than what it holds
HINT: Final = "; run `deltastore verify PATH` to list every damaged record"
RECORD_BYTES_MIN: Final = 7  # codec, kind, an empty clear part, no payload, checksum

_VERSION_BITS: Final = FORMAT_VERSION << 4
_CODECS: Final = (CODEC_RAW, CODEC_ZSTD, CODEC_ZSTD_DICT)
_FORMAT: Final = zstandard.FORMAT_ZSTD1_MAGICLESS
_MAGIC: Final = zstandard.FRAME_HEADER  # only to ask for a content size, which needs it
_HEADER_BYTES_MAX: Final = 14  # of a zstd frame, without the magic number
# The densest zstd block is four bytes that stand for 128 KiB: a greater claim is a lie, and is
# caught before memory is set aside for it.
_BLOCK_BYTES_MIN: Final = 4
_BLOCK_CONTENT_MAX_LOG2: Final = 17


class Record(NamedTuple):
    """What `seal` was given.

    Attributes:
        kind: 1 to 255, one of `layout.KIND_*`.
        clear: Stored as it is.
        payload: Compressed on disk, and encrypted under a cipher.
    """

    kind: int
    clear: bytes
    payload: bytes


class _Coders(threading.local):
    """The zstd contexts of one thread, which may not be shared between threads.

    About 1.5 MB a thread once both compressors have been used.
    """

    def __init__(self) -> None:
        shipped = zstandard.ZstdCompressionDict(get_dictionary(CURRENT))
        parameters = zstandard.ZstdCompressionParameters.from_level(
            ZSTD_LEVEL,
            format=_FORMAT,
            write_content_size=True,
            write_checksum=False,
            write_dict_id=False,
        )
        self.compress = zstandard.ZstdCompressor(compression_params=parameters).compress
        self.compress_with_current = zstandard.ZstdCompressor(
            compression_params=parameters, dict_data=shipped
        ).compress
        self.decompress = {0: zstandard.ZstdDecompressor(format=_FORMAT).decompress}

    def learn(self, dictionary: int) -> Callable[..., bytes]:
        """Add the decompressor for a dictionary and return its method."""
        shipped = zstandard.ZstdCompressionDict(get_dictionary(dictionary))
        decompressor = zstandard.ZstdDecompressor(format=_FORMAT, dict_data=shipped)
        self.decompress[dictionary] = decompressor.decompress
        return decompressor.decompress


_coders: Final = _Coders()


def seal(
    key: bytes, kind: int, clear: bytes, payload: bytes, cipher: Cipher | None = None
) -> bytes:
    """Return the record to store under `key`.

    Args:
        key: The key as the log sees it, without any prefix of the engine.
        kind: 1 to 255.
        clear: Readable without the cipher; at most 2 GiB together with the payload.
        payload: At most `PAYLOAD_BYTES_MAX` bytes.
        cipher: Encrypts the payload; None stores it unencrypted.

    Raises:
        InvalidArgumentError: The payload is too large, or the cipher's name is longer than 255
            bytes. What the cipher raises passes unchanged.

    Cost: about 5 us for 600 bytes, 1 ms for 200 KB of text.
    """
    assert 0 < kind < 256, kind
    size = len(payload)
    if size > PAYLOAD_BYTES_MAX:
        raise InvalidArgumentError(
            f"a record holds at most {PAYLOAD_BYTES_MAX} bytes (got {size}); "
            "store large objects elsewhere and keep a reference to them in the state"
        )
    codec = CODEC_RAW
    if size >= COMPRESS_BYTES_MIN:
        if size < DICT_RECORD_BYTES_MAX:
            packed = _coders.compress_with_current(payload)
            if len(packed) + 1 < size:  # one byte more: the dictionary's number
                codec, payload = CODEC_ZSTD_DICT, packed
        else:
            packed = _coders.compress(payload)
            if len(packed) < size:
                codec, payload = CODEC_ZSTD, packed
    head = bytearray((_VERSION_BITS | codec, kind))
    if codec == CODEC_ZSTD_DICT:
        head.append(CURRENT)
    if cipher is not None:
        head[0] |= CODEC_ENCRYPTED
        payload = _encrypt(key, payload, cipher)
    if len(clear) < 128:
        head.append(len(clear))
    else:
        varint.put(head, len(clear))
    body = b"".join((head, clear, payload))
    return body + extend(extend(0, key), body).to_bytes(4, "little")


def unseal(key: bytes, record: bytes, kind: int, cipher: Cipher | None = None) -> Record:
    """Return what was sealed under `key`.

    Args:
        kind: The kind the key stands for; a record of any other kind is damage.
        cipher: Needed for an encrypted record, not used for any other.

    Raises:
        CorruptionError: The record is not what was stored under this key.
        FormatVersionError: A newer release wrote the record.
        DecryptionError: It is encrypted, and there is no cipher or not the one it was sealed with.

    Cost: about 4 us for 600 bytes, 0.2 ms for 200 KB of text.
    """
    codec, dictionary, clear_at, payload_at = _locate(key, record, kind)
    payload = record[payload_at:-4]
    if codec & CODEC_ENCRYPTED:
        payload = _decrypt(key, payload, cipher)
        codec ^= CODEC_ENCRYPTED
    if codec != CODEC_RAW:
        payload = _decompress(key, payload, dictionary)
    return Record(kind, record[clear_at:payload_at], payload)


def peek(key: bytes, record: bytes, kind: int) -> bytes:
    """Return the clear part of what was sealed under `key`; the payload is not decoded.

    Raises:
        CorruptionError: The record is not what was stored under this key.
        FormatVersionError: A newer release wrote the record.

    Cost: about 1 us, and the checksum over the whole record.
    """
    _, _, clear_at, payload_at = _locate(key, record, kind)
    return record[clear_at:payload_at]


def move(key: bytes, new_key: bytes, record: bytes, cipher: Cipher | None = None) -> bytes:
    """Return a record sealed under another key, after it was verified under its own.

    Args:
        cipher: Needed for an encrypted record: what is encrypted names the key.

    Raises:
        CorruptionError, FormatVersionError, DecryptionError: As `unseal`.

    Cost: two checksums; nothing is compressed again.
    """
    check(key, record)
    body = record[:-4]
    if record[0] & CODEC_ENCRYPTED:
        _, _, _, payload_at = _locate(key, record, record[1])
        packed = _decrypt(key, record[payload_at:-4], cipher)
        assert cipher is not None
        body = record[:payload_at] + _encrypt(new_key, packed, cipher)
    return body + extend(extend(0, new_key), body).to_bytes(4, "little")


def check(key: bytes, record: bytes) -> None:
    """Verify a record's checksum, whatever its kind.

    Raises:
        CorruptionError: The record is not what was stored under this key.
    """
    if len(record) < RECORD_BYTES_MIN or extend(extend(0, key), record) != RESIDUE:
        raise _damage(key, "checksum over key and record does not match")


def checksum(record: bytes) -> int:
    """Return the stored CRC-32C, unverified: the identity of a record that was read before."""
    return int.from_bytes(record[-4:], "little")


def _locate(key: bytes, record: bytes, kind: int) -> tuple[int, int, int, int]:
    """Verify checksum, version, kind and codec.

    Returns the codec, the dictionary's number (0 for none), and where clear part and payload begin.
    """
    if len(record) < RECORD_BYTES_MIN:
        raise _damage(key, f"record of {len(record)} bytes; the shortest has {RECORD_BYTES_MIN}")
    if extend(extend(0, key), record) != RESIDUE:
        body = record[:-4]
        raise _damage(
            key,
            f"CRC-32C stored 0x{checksum(record):08x}, computed "
            f"0x{extend(extend(0, key), body):08x} over {len(key) + len(body)} bytes",
        )
    codec = record[0] & 0x0F
    if record[0] ^ codec != _VERSION_BITS:
        _refuse_version(key, record[0] >> 4)
    if record[1] != kind:
        raise _damage(key, f"record of kind {record[1]} where kind {kind} belongs")
    coding = codec & ~CODEC_ENCRYPTED
    if coding not in _CODECS:
        raise _damage(key, f"record with unknown codec {codec}")
    dictionary, at = 0, 2
    if coding == CODEC_ZSTD_DICT:
        dictionary, at = _number(key, record, 2)
        if dictionary == 0:
            raise _damage(key, "record with dictionary number 0, which no release has written")
    size, clear_at = _number(key, record, at)
    payload_at = clear_at + size
    if payload_at > len(record) - 4:
        raise _damage(
            key, f"clear part of {size} bytes at byte {clear_at} of a {len(record)}-byte record"
        )
    return codec, dictionary, clear_at, payload_at


def _number(key: bytes, record: bytes, at: int) -> tuple[int, int]:
    """Read a varint at `at`; return it and the index after it."""
    if at < len(record) and record[at] < 128:
        return record[at], at + 1
    try:
        return varint.get(record, at)
    except CorruptionError as error:
        raise _damage(key, error.message) from None


def _refuse_version(key: bytes, found: int) -> NoReturn:
    # The checksum was right: a number above ours was written so, by a release that knows it.
    if found > FORMAT_VERSION:
        raise FormatVersionError(
            f"record {key.hex()} has format version {found}; this release of deltastore reads "
            f"up to {FORMAT_VERSION}: upgrade deltastore"
        )
    raise _damage(key, f"record with format version {found}, which no release has written")


def _decompress(key: bytes, packed: bytes, dictionary: int) -> bytes:
    try:
        size = zstandard.frame_content_size(_MAGIC + packed[:_HEADER_BYTES_MAX])
        most = len(packed) // _BLOCK_BYTES_MIN << _BLOCK_CONTENT_MAX_LOG2
        if not 0 <= size <= most or size > PAYLOAD_BYTES_MAX:
            # Also the case of a frame without a size, which reads as -1.
            raise _damage(key, f"payload of {len(packed)} bytes that claims to hold {size}")
        coders = _coders
        decompress = coders.decompress.get(dictionary) or coders.learn(dictionary)
        # Nothing may follow the frame (the last False); keywords would cost 0.4 us a call.
        return decompress(packed, 0, False, False)
    except zstandard.ZstdError as error:
        raise _damage(key, f"payload of {len(packed)} bytes is not valid zstd ({error})") from error


def _encrypt(key: bytes, packed: bytes, cipher: Cipher) -> bytes:
    name, ciphertext = cipher.encrypt(xxhash.xxh3_64_digest(key) + packed)
    named = name.encode()
    if len(named) > 255:
        raise InvalidArgumentError(
            f"a cipher's name has at most 255 bytes of UTF-8 (got {len(named)}: {name[:60]!r})"
        )
    return bytes((len(named),)) + named + ciphertext


def _decrypt(key: bytes, sealed: bytes, cipher: Cipher | None) -> bytes:
    end = 1 + sealed[0] if sealed else 1
    if end > len(sealed):
        raise _damage(key, "encrypted record without a cipher name")
    try:
        name = sealed[1:end].decode()
    except UnicodeDecodeError:
        raise _damage(key, f"cipher name is not UTF-8: {sealed[1:end].hex()}") from None
    where = f"record {key.hex()} is encrypted with cipher {name!r}"
    if cipher is None:
        raise DecryptionError(
            f"{where} and the serializer has no key; open the store with the serializer that "
            "wrote it"
        )
    another = f"{where} and the serializer has another key"
    try:
        opened = cipher.decrypt(name, sealed[end:])
    except Exception as error:  # a cipher may raise anything for a wrong key, asserts included
        raise DecryptionError(f"{another} ({type(error).__name__}: {error})") from error
    if not isinstance(opened, bytes) or opened[:8] != xxhash.xxh3_64_digest(key):
        raise DecryptionError(f"{another}: what it opens does not belong under this key")
    return opened[8:]


def _damage(key: bytes, what: str) -> CorruptionError:
    return CorruptionError(what + HINT, record=key.hex())
