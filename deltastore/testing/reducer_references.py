"""Load what a command or an option names as `pkg.mod:name`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from deltastore.errors import InvalidArgumentError


def load_reference(reference: str) -> Any:
    """Import a module, from the working directory too, and return what it holds by a name.

    Args:
        reference: `pkg.mod:name`, or `pkg.mod:name.attribute`; the module is run by importing it.

    Raises:
        InvalidArgumentError: It is not of this form, the module cannot be imported or raises, or it
            holds nothing of this name.
    """
    module_name, separator, path = reference.partition(":")
    if not separator or not all(part.isidentifier() for part in module_name.split(".")):
        raise InvalidArgumentError(f"{reference!r} must have the form pkg.mod:name")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # exit code 0 would say that the laws hold
        raise InvalidArgumentError(
            f"{reference}: importing {module_name} raises {type(error).__name__}: {error}"
        ) from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise InvalidArgumentError(f"{reference}: there is no {name!r} in {module_name}")
        found = getattr(found, name)
    return found


def load_graph(reference: str) -> Any:
    """Return the graph or schema that a reference names, or that the function it names returns.

    Raises:
        InvalidArgumentError: It names nothing, or the function raises.
    """
    found = load_reference(reference)
    if isinstance(found, type) or hasattr(found, "channels") or not callable(found):
        return found
    try:
        return found()
    except (Exception, SystemExit) as error:
        raise InvalidArgumentError(
            f"{reference}: calling it for a graph raises {type(error).__name__}: {error}"
        ) from error
