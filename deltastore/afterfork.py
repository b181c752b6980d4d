"""What a forked child has to make anew before any other code of it runs.

A lock that a thread of the parent held at the fork stays held in the child, where that thread is
not; so whoever has locks renews them.
"""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol


class Renewable(Protocol):
    """Something with locks, or with work that is its parent's."""

    def renew(self) -> None:
        """Start over, as if nothing had been done yet."""


_all: Final[weakref.WeakSet[Renewable]] = weakref.WeakSet()


def renew_in_children(one: Renewable) -> None:
    """Have `one.renew` called in every child forked from now on, as long as it lives."""
    _all.add(one)


def _renew_all() -> None:
    for one in list(_all):
        one.renew()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_renew_all)
