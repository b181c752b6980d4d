"""Wait for a random while before trying again, so that one of several gets through."""

from __future__ import annotations

import random
import time


def back_off(attempt: int, *, first_seconds: float, seconds_max: float) -> None:
    """Sleep for up to `first_seconds` times two to the power of `attempt`, `seconds_max` at most.

    Args:
        attempt: How many were made before, from 0.
    """
    longest = min(seconds_max, first_seconds * 2.0**attempt)
    time.sleep(random.uniform(0, longest))  # noqa: S311 - to keep callers apart
