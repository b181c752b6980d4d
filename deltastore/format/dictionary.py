"""The zstd dictionaries that deltastore ships, by the number that records name them with.

A *dictionary* is 16 to 32 KB of text in front of which zstd compresses small payloads. New records
use `CURRENT`; every number ever shipped stays here for as long as a record may name it.

zstd decodes with a wrong dictionary without noticing, into wrong bytes. So each file is compared
with the digest it had when it was shipped before it is used. Nothing here compresses.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final

from deltastore.errors import CorruptionError, FormatVersionError

CURRENT: Final = 1

# Changing a digest makes every record of that number unreadable; a new dictionary is a new number.
SHA256: Final = {
    1: "281de450f34021afe071b5003745b6ee82d08b5873147afb6c9f5ad83926ff77",
}


@cache
def get_dictionary(number: int) -> bytes:
    """Return dictionary `number`, 1 to `CURRENT`.

    Raises:
        FormatVersionError: This release ships no such dictionary; a newer one wrote the record.
        CorruptionError: The file of the installed package is not the one that was shipped.

    Cost: one file read and a SHA-256 over it, the first time in a process.
    """
    if number not in SHA256:
        raise FormatVersionError(
            f"dictionary {number} is not known; this release of deltastore ships 1 to {CURRENT}: "
            "upgrade deltastore to read this record"
        )
    name = f"dictionary-{number}.zstd-dict"
    try:
        content = (files("deltastore.format") / "data" / name).read_bytes()
    except OSError as error:
        raise CorruptionError(
            f"package file deltastore/format/data/{name} cannot be read: {error}; "
            "reinstall langgraph-checkpoint-deltastore"
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256[number]:
        raise CorruptionError(
            f"package file deltastore/format/data/{name} has SHA-256 {found}, not the "
            f"{SHA256[number]} it was shipped with; reinstall langgraph-checkpoint-deltastore"
        )
    return content
