"""Settings for every test: generated input is the same in each run, slow hosts fail no law, and
every store a test leaves is verified.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from deltastore import DeltaStoreError, Store
from deltastore.engine.api import Engine
from deltastore.options import StoreOptions

settings.register_profile("gate", derandomize=True, deadline=None, database=None, max_examples=100)
settings.register_profile("search", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


@pytest.fixture(autouse=True)
def every_store_is_sound(request: pytest.FixtureRequest) -> Iterator[None]:
    """Verify each store when it is closed, or at the end of the test if it is not.

    Integrity is no single test's business: whatever a test is about, what it leaves must be sound.
    Tests that plant damage, or code under the store, are marked `damaged`.
    """
    if "damaged" in request.keywords:
        yield
        return
    opened: list[Store] = []
    damage: list[object] = []
    make, close = Store.__init__, Store.close

    def verify(store: Store) -> None:
        try:
            damage.extend(store.verify().damage)
        except DeltaStoreError:
            pass  # closed, carried into a child, or its engine is made to fail

    def verified_init(store: Store, engine: Engine, options: StoreOptions | None = None) -> None:
        make(store, engine, options)
        opened.append(store)

    def verified_close(store: Store) -> None:
        verify(store)
        close(store)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "__init__", verified_init)
        patch.setattr(Store, "close", verified_close)
        yield
    for store in opened:
        verify(store)
    assert [] == damage
