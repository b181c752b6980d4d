"""Run LangGraph's own tests on another saver: the pytest plugin of `tools/langgraph_suite`.

The *saver under test* is the class named by `LANGGRAPH_SUITE_SAVER` (`MODULE:CLASS`). It takes the
place of `InMemorySaver` and `MemorySaver` in `langgraph.checkpoint.memory` before any test module
is imported, so the fixtures, the tests that build a saver, and the savers that tests derive from
InMemorySaver all stand on it. Without the variable InMemorySaver stays: that run is the *baseline*.

Outcomes go to the file named by `LANGGRAPH_SUITE_REPORT`, as one JSON object. Whatever needs a
server, or is a saver of another kind, is deselected in both runs. Changes no test and no outcome;
of LangGraph's test code it completes one class only (`assert_in_aput`).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import langgraph.checkpoint.memory as memory_module
import pytest

CHECKPOINTER_FIXTURES = ("sync_checkpointer", "async_checkpointer")
NEED_A_SERVER = ("postgres", "redis")


class OpenSavers:
    """The savers the tests of this process have built, each on a directory of its own.

    Attributes:
        opened: How many were built so far; 0 in a baseline, and a sign of a failed swap elsewhere.
    """

    def __init__(self) -> None:
        self.opened = 0
        self.in_test = False
        self._of_test: list[tuple[Any, str]] = []
        self._of_session: list[tuple[Any, str]] = []

    def add(self, saver: Any, path: str) -> None:
        """Take charge of `saver`; one built while modules are imported lives to the end."""
        self.opened += 1
        (self._of_test if self.in_test else self._of_session).append((saver, path))

    def close_of_test(self) -> None:
        """Close what the test that just ended has built; raises what `close` raises."""
        self._close(self._of_test)

    def close_of_session(self) -> None:
        """Close what is left; raises what `close` raises."""
        self._close(self._of_test)
        self._close(self._of_session)

    @staticmethod
    def _close(savers: list[tuple[Any, str]]) -> None:
        with contextlib.ExitStack() as closing:
            while savers:
                saver, path = savers.pop()
                closing.callback(shutil.rmtree, path, ignore_errors=True)
                closing.callback(saver.close)
                closing.callback(saver.stack.close)


SAVERS = OpenSavers()


def stand_in(saver_class: type) -> type:
    """Return a subclass of `saver_class` that is built as InMemorySaver is: from nothing.

    `factory` is taken and ignored, and `stack` is there to be used: LangGraph's asserting saver
    passes a persistent dictionary and leaves its cleaning up in the stack.
    """

    def build(self: Any, *, serde: Any = None, factory: Any = None) -> None:
        path = tempfile.mkdtemp(prefix="saver-")
        self.stack = contextlib.ExitStack()
        # Passed on only if given: the saver's own default serializer is under test too.
        saver_class.__init__(self, path, **({} if serde is None else {"serde": serde}))  # type: ignore[misc]
        SAVERS.add(self, path)

    return type("StandInSaver", (saver_class,), {"__init__": build})


def swap(spec: str) -> None:
    """Put the class named `MODULE:CLASS` in InMemorySaver's place, for modules imported later."""
    module, _, name = spec.partition(":")
    saver_class = getattr(importlib.import_module(module), name)
    if not isinstance(saver_class, type):
        raise pytest.UsageError(
            f"{spec} is not a class; tests derive savers from it, so it must be"
        )
    replacement = stand_in(saver_class)
    for replaced in ("InMemorySaver", "MemorySaver"):
        setattr(memory_module, replaced, replacement)


def assert_in_aput(asserting: Any) -> None:
    """Give LangGraph's asserting saver an `aput` that checks and remembers as its `put` does.

    It overrides `put` alone, because InMemorySaver's `aput` calls `put`. On a saver with an `aput`
    of its own nothing would be checked in asynchronous runs, and a `put` after an `aput` would find
    a parent that it does not remember.
    """

    async def aput(
        self: Any, config: Any, checkpoint: Any, metadata: Any, new_versions: Any
    ) -> Any:
        place = config["configurable"]
        copies = self.storage_for_copies[place["thread_id"]][place["checkpoint_ns"]]
        parent = await self.aget(config)
        if parent is not None and parent["id"] in copies:
            assert self.serde.loads_typed(copies[parent["id"]]) == parent, "parent has changed"
        stored = await super(asserting, self).aput(config, checkpoint, metadata, new_versions)
        copies[checkpoint["id"]] = self.serde.dumps_typed(await self.aget(stored))
        return stored

    asserting.aput = aput


if "LANGGRAPH_SUITE_SAVER" in os.environ:
    swap(os.environ["LANGGRAPH_SUITE_SAVER"])


def is_out_of_scope(params: dict[str, object]) -> bool:
    """True of a test's parameters if they ask for a server or for a saver of another kind."""
    for fixture, value in params.items():
        if isinstance(value, str) and any(name in value for name in NEED_A_SERVER):
            return True
        if fixture in CHECKPOINTER_FIXTURES and not str(value).startswith("memory"):
            return True
    return False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "LANGGRAPH_SUITE_SAVER" in os.environ:
        assert_in_aput(sys.modules["tests.memory_assert"].MemorySaverAssertImmutable)
    out = [
        item
        for item in items
        if hasattr(item, "callspec") and is_out_of_scope(item.callspec.params)
    ]
    if out:
        config.hook.pytest_deselected(items=out)
        dropped = set(out)
        items[:] = [item for item in items if item not in dropped]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    SAVERS.in_test = True
    try:
        return (yield)
    finally:
        SAVERS.in_test = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    try:
        return (yield)
    finally:
        SAVERS.close_of_test()


class Recorder:
    """Collects outcomes where the reports of all workers meet, and writes them at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes: dict[str, str] = {}
        self._messages: dict[str, str] = {}
        self._opened = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._outcomes[report.nodeid] = "failed"
            crash = getattr(report.longrepr, "reprcrash", None)
            text = crash.message if crash else str(report.longrepr)
            self._messages.setdefault(report.nodeid, f"{report.when}: {text[:400]}")
        elif report.skipped:
            self._outcomes[report.nodeid] = "xfailed" if hasattr(report, "wasxfail") else "skipped"
        elif report.when == "call":
            self._outcomes[report.nodeid] = "passed"

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        # A worker that crashed has no output; the test it was running is reported as failed.
        self._opened += getattr(node, "workeroutput", {}).get("savers_opened", 0)

    def pytest_sessionfinish(self) -> None:
        self._path.write_text(
            json.dumps(
                {
                    "outcomes": self._outcomes,
                    "messages": self._messages,
                    "savers_opened": self._opened + SAVERS.opened,
                },
                indent=1,
                sort_keys=True,
            )
        )


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    SAVERS.close_of_session()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["savers_opened"] = SAVERS.opened


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        report = Path(os.environ["LANGGRAPH_SUITE_REPORT"])
        config.pluginmanager.register(Recorder(report), "langgraph-suite-recorder")
