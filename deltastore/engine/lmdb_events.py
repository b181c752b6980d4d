"""What an operator is told of the LMDB engine: lines of the logger `deltastore.engine`, at INFO.

Paths, numbers and sizes; the engine knows of nothing else.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from deltastore.engine.lmdb_mapped import MappedGeneration
from deltastore.plans import VacuumReport

_logger: Final = logging.getLogger("deltastore.engine")


def opened(path: Path, mapped: MappedGeneration, durability: str) -> None:
    """Tell that a generation was opened, the first one or a successor."""
    _logger.info(
        "%s: opened generation %d of %d bytes, durability %s, map of %d bytes",
        path,
        mapped.number,
        mapped.get_file_bytes(),
        durability,
        mapped.get_map_bytes(),
    )


def grown(path: Path, map_bytes: int) -> None:
    """Tell that the map was grown."""
    _logger.info("%s: map grown to %d bytes", path, map_bytes)


def moved(path: Path, old: int, new: int) -> None:
    """Tell that transactions begin in a successor from now on."""
    _logger.info("%s: a vacuum has ended, moved from generation %d to %d", path, old, new)


def cleared(path: Path, readers: int) -> None:
    """Tell that reader slots of dead processes were taken back, if any were."""
    if readers:
        _logger.info("%s: cleared %d stale readers of dead processes", path, readers)


def vacuumed(path: Path, report: VacuumReport) -> None:
    """Tell what a vacuum did."""
    _logger.info("%s: %s", path, report)
