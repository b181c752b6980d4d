"""The laws of `Engine.backup`, E12 of `deltastore.engine.api`; part of the engine suite.

An engine without files refuses each of these calls, and leaves nothing either.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from deltastore.engine.api import Engine
from deltastore.errors import EngineError, StoreClosedError, StorePathError
from deltastore.testing.engine_calls import BlockError, fill, in_thread, read_all

_PAIRS: Final = {b"%05d" % number: b"%d" % number * 20 for number in range(2_500)}


class BackupLaws:
    """Tests of the suite; see `deltastore.testing.engine_suite`."""

    def make_engine(self, where: Path) -> Engine:
        """See `EngineSuite.make_engine`."""
        raise NotImplementedError

    def backup(self, engine: Engine, target: Path, **options: Any) -> dict[bytes, bytes] | None:
        """Back up; return what the copy holds, None if the engine has no files."""
        try:
            report = engine.backup(target, **options)
        except StorePathError:
            raise
        except EngineError:
            assert not target.exists()
            assert engine.stat().file_bytes == 0, "an engine with files must not refuse"
            return None
        copy = self.make_engine(target)
        found = read_all(copy)
        assert len(found) == report.entries
        copy.close()
        return found

    def test_e12_a_copy_holds_the_pairs_of_one_moment(self, engine: Engine, where: Path) -> None:
        """Taken beside writers, it must be no mixture of before and after."""
        fill(engine, _PAIRS)

        def progress(done: int, total: int) -> None:
            assert 0 < done <= total
            pairs = {b"%05d" % number: b"later" for number in (0, 1_200, 2_499, 9_999)}
            in_thread(lambda: fill(engine, pairs))

        assert self.backup(engine, where.parent / "copy", progress=progress) in (None, _PAIRS)
        fill(engine, {b"after": b"1"})

    def test_e12_an_empty_engine_is_copied(self, engine: Engine, where: Path) -> None:
        """Somebody's first command."""
        assert self.backup(engine, where.parent / "copy") in (None, {})

    def test_e12_pairs_given_take_the_place_of_its_own(self, engine: Engine, where: Path) -> None:
        """What makes the copy another store must be there from its first moment."""
        fill(engine, {b"a": b"1", b"b": b"2"})
        found = self.backup(engine, where.parent / "copy", instead={b"b": b"9", b"c": b"3"})
        assert found in (None, {b"a": b"1", b"b": b"9", b"c": b"3"})
        assert {b"a": b"1", b"b": b"2"} == read_all(engine)

    def test_e12_nothing_is_overwritten(self, engine: Engine, where: Path) -> None:
        """A backup of last week, the store itself, a directory of something else."""
        fill(engine, {b"a": b"1"})
        target = where.parent / "copy"
        if self.backup(engine, target) is None:
            return
        before = sorted(path.name for path in target.rglob("*"))
        for taken in (target, where, where / "inside", where.parent):
            with pytest.raises(StorePathError):
                engine.backup(taken)
        assert before == sorted(path.name for path in target.rglob("*"))
        assert {b"a": b"1"} == read_all(engine)

    def test_e12_what_progress_raises_leaves_nothing(self, engine: Engine, where: Path) -> None:
        """Ctrl-C: half a copy would be taken for a whole one."""
        fill(engine, _PAIRS)
        target = where.parent / "copy"

        def progress(_done: int, _total: int) -> None:
            raise BlockError

        if self.backup(engine, where.parent / "other") is None:
            return
        with pytest.raises(BlockError):
            engine.backup(target, progress=progress)
        assert {where.name, "other"} == {path.name for path in where.parent.iterdir()}
        assert self.backup(engine, target) == _PAIRS

    def test_e12_a_closed_engine_is_not_copied(self, engine: Engine, where: Path) -> None:
        """As with every other call."""
        engine.close()
        with pytest.raises(StoreClosedError):
            engine.backup(where.parent / "copy")
