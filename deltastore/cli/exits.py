"""What each error means to a shell: its exit code, and the one line that says why."""

from __future__ import annotations

from typing import Final

from deltastore.errors import (
    CorruptionError,
    DecryptionError,
    InvalidArgumentError,
    InvalidTypeError,
    NeededRunError,
    StorePathError,
)

FAILED: Final = 1
REFUSED: Final = 2
MISSING: Final = 3
ENCRYPTED: Final = 4
DAMAGED: Final = 5
INTERRUPTED: Final = 130
UNREAD: Final = 141  # as a shell reports a program ended by SIGPIPE


class MissingError(Exception):
    """What the command names is not in the store; nothing was changed."""


def exit_code_of(error: Exception) -> int:
    """Return the code of docs/cli.md for what ended a command."""
    if isinstance(error, (InvalidArgumentError, InvalidTypeError, NeededRunError)):
        return REFUSED
    if isinstance(error, (StorePathError, MissingError)):
        return MISSING
    if isinstance(error, DecryptionError):
        return ENCRYPTED
    if isinstance(error, CorruptionError):
        return DAMAGED
    return FAILED


def line_of(error: Exception) -> str:
    """Return an error's text in one line."""
    text = " ".join(str(error).split())
    if isinstance(error, DecryptionError):
        text += "; the command line has no key"
    return text
