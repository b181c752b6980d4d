"""The tree of errors is what its docstring draws, and damage says where it is."""

from __future__ import annotations

import copy
import pickle
import re
from datetime import datetime, timezone

import pytest

from deltastore import errors
from deltastore.errors import BrokenChainError, CorruptionError, DeltaStoreError


def drawn() -> dict[str, str]:
    """Return parent by child as the module's docstring draws them."""
    path: list[str] = []
    found = {}
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^    ((?:│   |    )*)(?:[├└]── )?(\w+Error)\b", line)
        if match:
            depth = len(match[1]) // 4 + (1 if "── " in line else 0)
            path[depth:] = [match[2]]
            if depth:
                found[match[2]] = path[depth - 1]
    return found


def test_the_tree_drawn_is_the_tree_there_is() -> None:
    """It is what a reader picks an `except` from."""
    kinds = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, DeltaStoreError)
    }
    assert drawn() == {
        name: kind.__bases__[0].__name__
        for name, kind in kinds.items()
        if kind is not DeltaStoreError
    }


def test_argument_errors_are_pythons_own_too() -> None:
    """Callers that know nothing of this package catch ValueError and TypeError."""
    assert issubclass(errors.InvalidArgumentError, ValueError)
    assert issubclass(errors.InvalidTypeError, TypeError)


def test_damage_says_where_it_is_as_far_as_known() -> None:
    """An empty thread id and namespace are places too."""
    assert "gone" == str(CorruptionError("gone"))
    error = CorruptionError("gone", record="10ff").locate("", "", "id")
    assert "gone (thread '', namespace '', checkpoint 'id', record '10ff')" == str(error)
    assert ("", "", "id", "10ff") == (
        error.thread_id,
        error.checkpoint_ns,
        error.checkpoint_id,
        error.record,
    )


def test_the_first_place_told_stays() -> None:
    """Who raised knows best: an ancestor is damaged, not the checkpoint that was asked for."""
    error = BrokenChainError("gone").locate(checkpoint_id="ancestor")
    assert error is error.locate("t", "ns", "asked")
    assert ("t", "ns", "ancestor") == (error.thread_id, error.checkpoint_ns, error.checkpoint_id)


@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_damage_survives_a_copy(again: object) -> None:
    """Errors cross process pools and are copied by test runners."""
    assert callable(again)
    error = BrokenChainError("gone", record="10").locate("t", "ns", "id")
    twin = again(error)
    assert (BrokenChainError, str(error), "t") == (type(twin), str(twin), twin.thread_id)


OTHERS = (
    errors.ForkRefusedError(
        "refused", thread_id="t", checkpoint_ns="ns", parent_id=None, newest_id="id"
    ),
    errors.LeaseHeldError("held", thread_id="t", owner="o", expires=datetime.now(timezone.utc)),
    errors.LeaseLostError("lost", thread_id="t", token=7, owner="o"),
    errors.QuotaExceededError("full", used_bytes=2, max_bytes=1),
)


@pytest.mark.parametrize("error", OTHERS, ids=lambda error: type(error).__name__)
def test_what_an_error_tells_programs_survives_a_copy(error: DeltaStoreError) -> None:
    """A worker pool hands the error of a worker to whoever decides what comes next."""
    twin = pickle.loads(pickle.dumps(error))
    assert (type(error), str(error), vars(error)) == (type(twin), str(twin), vars(twin))
