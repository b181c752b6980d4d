"""The frame of a record: its bytes, its refusals, its checksum and its dictionary."""

from __future__ import annotations

import hashlib
import importlib
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard

from deltastore.errors import (
    CorruptionError,
    DecryptionError,
    FormatVersionError,
    InvalidArgumentError,
)
from deltastore.format import crc, dictionary, frame
from deltastore.format.frame import Record, checksum, peek, seal, unseal
from deltastore.format.layout import (
    CODEC_ENCRYPTED,
    CODEC_RAW,
    CODEC_ZSTD,
    CODEC_ZSTD_DICT,
    DICT_RECORD_BYTES_MAX,
    FORMAT_VERSION,
    KIND_HEADER,
    KIND_VALUE,
)

TOOLS = Path(__file__).parents[2] / "tools"
Reader = Callable[[bytes, bytes, int], object]
KEY = b"\x10\x01\x02"
TEXT = b"Could you please tell me the total cost of the order? " * 4


class Mirror:
    """A cipher that reverses the bits: enough to tell what is encrypted."""

    def __init__(self, name: str = "mirror") -> None:
        self.name = name

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return self.name, bytes(byte ^ 0xFF for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        if ciphername != self.name:
            raise KeyError(ciphername)
        return bytes(byte ^ 0xFF for byte in ciphertext)


def signed(key: bytes, body: bytes) -> bytes:
    """Return a record of `body` with a right checksum: what only a writer could have made."""
    return body + crc.extend(crc.extend(0, key), body).to_bytes(4, "little")


def head(codec: int, kind: int = KIND_VALUE, version: int = FORMAT_VERSION) -> bytes:
    return bytes((version << 4 | codec, kind))


def import_crcmod_pure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the next imports of crcmod miss its C extension, until the end of the test."""
    for name in [name for name in sys.modules if name.split(".")[0] == "crcmod"]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("crcmod._crcfunext", "_crcfunext"):
        monkeypatch.setitem(sys.modules, name, None)


def test_every_crc_implementation_gives_the_sums_of_the_standard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store written with one implementation is read with another."""
    found = dict([crc.select()])
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    found.update([crc.select()])
    import_crcmod_pure(monkeypatch)
    with pytest.warns(RuntimeWarning):
        found.update([crc.select()])
    assert "crcmod-pure" in found
    assert crc.IMPLEMENTATION in found
    for extend in found.values():
        assert 0xE3069283 == extend(0, b"123456789")
        assert 0 == extend(0, b"")
        assert 0xE3069283 == extend(extend(0, b"1234"), b"56789")
        assert 0x8A9136AA == extend(0, bytes(32))


def test_google_crc32c_without_its_c_code_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pure Python code is slower than crcmod's C extension."""
    monkeypatch.setitem(sys.modules, "google_crc32c", SimpleNamespace(implementation="python"))
    name, _ = crc.select()
    assert "crcmod" == name


def test_the_slow_crc_warns_and_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would look for a 500-fold slowdown in a missing C compiler."""
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    import_crcmod_pure(monkeypatch)
    with pytest.warns(RuntimeWarning, match=r'pip install "langgraph-checkpoint-deltastore\[fast'):
        name, _ = crc.select()
    assert "crcmod-pure" == name


def test_a_fast_crc_does_not_warn() -> None:
    """A warning that is always there is read by nobody."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        crc.select()


def test_the_residue_is_the_sum_of_anything_with_its_sum() -> None:
    """Verification relies on it: it sums the record with its checksum, without a copy."""
    for content in (b"", b"a", TEXT):
        assert crc.RESIDUE == crc.extend(0, signed(b"", content))


def test_the_bytes_of_a_small_record_are_those_of_the_grammar() -> None:
    """Stored records must stay readable: the layout is a promise, not a habit."""
    body = bytes((0x11, 2, 1)) + b"c" + b"payload"
    assert signed(KEY, body) == seal(KEY, KIND_VALUE, b"c", b"payload")


def test_a_long_clear_part_has_a_varint_of_two_bytes() -> None:
    """The one-byte fast path must end where the varint grows."""
    for size in (127, 128, 300):
        record = seal(KEY, KIND_VALUE, b"c" * size, b"")
        assert 2 + (1 if size < 128 else 2) + size + 4 == len(record)
        assert b"c" * size == peek(KEY, record, KIND_VALUE)


@pytest.mark.parametrize(
    ("payload", "codec"),
    [
        (b"", CODEC_RAW),
        (b"a" * (frame.COMPRESS_BYTES_MIN - 1), CODEC_RAW),
        (hashlib.sha512(b"random").digest(), CODEC_RAW),
        (TEXT, CODEC_ZSTD_DICT),
        (b"ab" * (DICT_RECORD_BYTES_MAX // 2 - 1), CODEC_ZSTD_DICT),
        (b"ab" * (DICT_RECORD_BYTES_MAX // 2), CODEC_ZSTD),
    ],
)
def test_the_codec_is_the_one_that_suits_the_payload(payload: bytes, codec: int) -> None:
    """Compression that does not shrink is not kept; the dictionary is for small payloads."""
    record = seal(KEY, KIND_VALUE, b"", payload)
    assert FORMAT_VERSION << 4 | codec == record[0]
    assert len(record) <= len(payload) + frame.RECORD_BYTES_MIN
    assert payload == unseal(KEY, record, KIND_VALUE).payload


def test_two_megabytes_of_zeros_come_back() -> None:
    """The densest payload there is must pass the bound on what a frame may claim to hold."""
    payload = bytes(2 << 20)
    assert payload == unseal(KEY, seal(KEY, KIND_VALUE, b"", payload), KIND_VALUE).payload


def test_checksum_tells_the_last_four_bytes() -> None:
    """Caches name a record by it."""
    record = seal(KEY, KIND_VALUE, b"", TEXT)
    assert int.from_bytes(record[-4:], "little") == checksum(record)


def test_a_damaged_record_tells_both_sums_its_size_its_key_and_the_way_out() -> None:
    """The message is all an operator has."""
    record = bytearray(seal(KEY, KIND_VALUE, b"", b"payload"))
    record[4] ^= 1
    with pytest.raises(CorruptionError) as caught:
        unseal(KEY, bytes(record), KIND_VALUE)
    message = str(caught.value)
    computed = crc.extend(0, KEY + record[:-4])
    assert f"stored 0x{checksum(bytes(record)):08x}, computed 0x{computed:08x}" in message
    assert f"over {len(KEY) + len(record) - 4} bytes" in message
    assert "deltastore verify PATH" in message
    assert KEY.hex() == caught.value.record


@pytest.mark.parametrize("read", [unseal, peek])
def test_a_newer_version_is_told_from_damage(read: Reader) -> None:
    """Only a right checksum proves that the version was written and not flipped."""
    body = head(CODEC_RAW, version=FORMAT_VERSION + 1) + b"\x00"
    with pytest.raises(FormatVersionError, match=r"format version 2.*up to 1"):
        read(KEY, signed(KEY, body), KIND_VALUE)
    with pytest.raises(CorruptionError, match="CRC-32C"):
        read(KEY, body + b"\x00\x00\x00\x00", KIND_VALUE)


FORGED = {
    "empty": b"",
    "no clear length": signed(KEY, head(CODEC_RAW)),
    "version 0": signed(KEY, head(CODEC_RAW, version=0) + b"\x00"),
    "codec 0": signed(KEY, head(0) + b"\x00"),
    "codec 4": signed(KEY, head(4) + b"\x00"),
    "codec 8": signed(KEY, head(CODEC_ENCRYPTED) + b"\x00"),
    "other kind": signed(KEY, head(CODEC_RAW, kind=KIND_HEADER) + b"\x00"),
    "clear part over the end": signed(KEY, head(CODEC_RAW) + b"\x05abc"),
    "clear part over the checksum": signed(KEY, head(CODEC_RAW) + b"\x04abc"),
    "clear length cut": signed(KEY, head(CODEC_RAW) + b"\x80"),
    "clear length endless": signed(KEY, head(CODEC_RAW) + b"\xff" * 12),
    "dictionary number only": signed(KEY, head(CODEC_ZSTD_DICT) + b"\x01"),
    "dictionary number at the end": signed(KEY, head(CODEC_ZSTD_DICT) + b"\xed"),
    "dictionary number 0": signed(KEY, head(CODEC_ZSTD_DICT) + b"\x00\x00" + bytes(8)),
}


@pytest.mark.parametrize("read", [unseal, peek])
@pytest.mark.parametrize("name", FORGED)
def test_a_forged_record_is_corruption(read: Reader, name: str) -> None:
    """A right checksum does not make the bytes below it sane."""
    with pytest.raises(CorruptionError):
        read(KEY, FORGED[name], KIND_VALUE)


def magicless(content: bytes, **parameters: bool) -> bytes:
    with_format = zstandard.ZstdCompressionParameters.from_level(
        3, format=zstandard.FORMAT_ZSTD1_MAGICLESS, **parameters
    )
    return zstandard.ZstdCompressor(compression_params=with_format).compress(content)


LIAR = bytes((0b1110_0000,)) + (1 << 30).to_bytes(8, "little") + b"\x03\x00\x00\x00"

BAD_PAYLOADS = {
    "empty": b"",
    "one byte": b"\x20",
    "no content size": magicless(TEXT, write_content_size=False),
    "with the magic number": zstandard.compress(TEXT),
    "cut": magicless(TEXT)[:-3],
    "followed by more": magicless(TEXT) + b"\x00",
    "a gigabyte in 13 bytes": LIAR,
    "over the cap": LIAR[:1] + (1 << 62).to_bytes(8, "little") + LIAR[9:],
}


@pytest.mark.parametrize("name", BAD_PAYLOADS)
def test_a_payload_that_is_not_one_whole_zstd_frame_is_corruption(name: str) -> None:
    """No size is believed before it is checked, and no zstd error leaves the frame."""
    record = signed(KEY, head(CODEC_ZSTD) + b"\x00" + BAD_PAYLOADS[name])
    with pytest.raises(CorruptionError):
        unseal(KEY, record, KIND_VALUE)
    assert b"" == peek(KEY, record, KIND_VALUE)


@pytest.mark.parametrize("name", ["no content size", "a gigabyte in 13 bytes", "over the cap"])
def test_a_claimed_size_is_refused_before_memory_is_set_aside_for_it(name: str) -> None:
    """A few bytes must not be able to claim all memory."""
    record = signed(KEY, head(CODEC_ZSTD) + b"\x00" + BAD_PAYLOADS[name])
    with pytest.raises(CorruptionError, match="claims to hold"):
        unseal(KEY, record, KIND_VALUE)


def test_a_record_that_holds_more_than_the_cap_is_corruption(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No release has written one."""
    record = seal(KEY, KIND_VALUE, b"", TEXT)
    monkeypatch.setattr(frame, "PAYLOAD_BYTES_MAX", len(TEXT) - 1)
    with pytest.raises(CorruptionError, match=f"claims to hold {len(TEXT)}"):
        unseal(KEY, record, KIND_VALUE)


def test_a_record_of_an_unknown_dictionary_asks_for_an_upgrade() -> None:
    """Only a newer release ships a higher number."""
    for number in (b"\x02", b"\xac\x02"):
        record = signed(KEY, head(CODEC_ZSTD_DICT) + number + b"\x00" + magicless(TEXT))
        with pytest.raises(FormatVersionError, match="upgrade"):
            unseal(KEY, record, KIND_VALUE)


def test_an_encrypted_record_names_its_cipher_when_there_is_no_key() -> None:
    """The usual cause is a store opened with a plain serializer."""
    record = seal(KEY, KIND_VALUE, b"clear", TEXT, Mirror())
    assert b"clear" == peek(KEY, record, KIND_VALUE)
    with pytest.raises(DecryptionError, match=r"100102.*'mirror'.*no key"):
        unseal(KEY, record, KIND_VALUE)


def test_another_cipher_is_a_decryption_error_whatever_it_raises() -> None:
    """LangGraph's AES cipher asserts its name; others raise their own errors."""
    record = seal(KEY, KIND_VALUE, b"", TEXT, Mirror())
    with pytest.raises(DecryptionError, match=r"another key.*KeyError"):
        unseal(KEY, record, KIND_VALUE, Mirror("other"))


def test_a_ciphertext_under_another_key_of_the_log_is_refused() -> None:
    """Who can write the file can mend a checksum, but must not be able to swap two records."""
    record = seal(KEY, KIND_VALUE, b"", TEXT, Mirror())
    moved = signed(b"other", record[:-4])
    with pytest.raises(DecryptionError, match="does not belong"):
        unseal(b"other", moved, KIND_VALUE, Mirror())


def test_a_cipher_leaves_an_unencrypted_record_readable() -> None:
    """Encryption may be turned on for a store that has records."""
    record = seal(KEY, KIND_VALUE, b"c", TEXT)
    assert Record(KIND_VALUE, b"c", TEXT) == unseal(KEY, record, KIND_VALUE, Mirror())


@pytest.mark.parametrize("sealed", [b"", b"\x05abc", b"\x02\xff\xfe"])
def test_a_broken_cipher_name_is_corruption(sealed: bytes) -> None:
    """It is read before there is a key, so it must be checked like any other bytes."""
    record = signed(KEY, head(CODEC_ENCRYPTED | CODEC_RAW) + b"\x00" + sealed)
    with pytest.raises(CorruptionError):
        unseal(KEY, record, KIND_VALUE, Mirror())


def test_a_cipher_name_that_does_not_fit_is_refused_before_it_is_stored() -> None:
    """Its length is one byte."""
    with pytest.raises(InvalidArgumentError, match="255"):
        seal(KEY, KIND_VALUE, b"", TEXT, Mirror("é" * 128))
    named = seal(KEY, KIND_VALUE, b"", TEXT, Mirror("n" * 255))
    assert TEXT == unseal(KEY, named, KIND_VALUE, Mirror("n" * 255)).payload


def test_a_payload_over_the_cap_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `unseal` would call damage must never be written."""
    monkeypatch.setattr(frame, "PAYLOAD_BYTES_MAX", 100)
    with pytest.raises(InvalidArgumentError, match="at most 100 bytes"):
        seal(KEY, KIND_VALUE, b"", b"a" * 101)
    assert b"a" * 100 == unseal(KEY, seal(KEY, KIND_VALUE, b"", b"a" * 100), KIND_VALUE).payload


def test_no_two_threads_share_a_zstd_context() -> None:
    """zstandard releases the interpreter lock: a context used by two threads gives wrong bytes."""
    used: list[object] = [frame._coders.decompress]
    came_back: list[bytes] = []

    def work() -> None:
        came_back.append(unseal(KEY, seal(KEY, 1, b"", TEXT), 1).payload)
        used.append(frame._coders.decompress)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [TEXT] * 3 == came_back
    assert 4 == len({id(context) for context in used})


def test_every_dictionary_up_to_the_current_one_is_shipped_and_loads_as_a_zstd_dictionary() -> None:
    """A number that was ever shipped may be named by a record."""
    assert list(range(1, dictionary.CURRENT + 1)) == sorted(dictionary.SHA256)
    for number in dictionary.SHA256:
        content = dictionary.get_dictionary(number)
        assert 0 < zstandard.ZstdCompressionDict(content).dict_id()
        assert 16 << 10 <= len(content) <= 32 << 10


def test_a_changed_dictionary_file_is_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """zstd would decode with it, into wrong bytes, without an error."""
    monkeypatch.setattr(dictionary, "SHA256", {1: "00" * 32})
    with pytest.raises(CorruptionError, match="reinstall"):
        dictionary.get_dictionary.__wrapped__(1)


def test_a_missing_dictionary_file_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package built without its data would otherwise fail with a bare OSError."""
    monkeypatch.setattr(dictionary, "SHA256", {77: "00" * 32})
    with pytest.raises(CorruptionError, match=r"dictionary-77.*reinstall"):
        dictionary.get_dictionary.__wrapped__(77)


def test_the_training_text_is_the_one_the_shipped_dictionary_was_made_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The dictionary can be rebuilt: `python tools/make_dictionary.py --check` does it whole."""
    monkeypatch.syspath_prepend(str(TOOLS))
    tool = importlib.import_module("make_dictionary")
    assert tool.TEXT_SHA256 == tool.text_digest()
    assert hashlib.sha256(tool.SHIPPED.read_bytes()).hexdigest() == dictionary.SHA256[1]


def test_a_single_message_shrinks_to_less_than_half() -> None:
    """What the dictionary is for. The text is none of its training text, and of no domain in it."""
    message = (
        b"\xc8\x02\x00\x05\x94\xbalangchain_core.messages.ai\xa9AIMessage\x89\xa7content\xd9\xe4"
        b"The old lighthouse keeper wrote down the weather every morning, and most days there was "
        b"nothing to add. When the storm came he lit the lamp early, counted the boats not yet "
        b"back, and waited for the wind to turn. They all came back."
        b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa2ai\xa4name\xc0\xa2id\xd9."
        b"lc_run--861e02ec-3923-4bc0-b36a-947a843fdda7-0\xaatool_calls\x90\xb2invalid_tool_calls\x90"
        b"\xaeusage_metadata\xc0\xb3model_validate_json"
    )
    assert len(seal(KEY, KIND_VALUE, b"", message)) < len(message) / 2
    assert len(zstandard.compress(message)) > len(message) / 1.5
