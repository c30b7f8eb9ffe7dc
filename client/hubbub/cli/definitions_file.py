"""Load a definitions file for a command."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hubbub.errors import DefinitionError
from hubbub.metrics.definitions import Definitions, load_definitions


def definitions_with(path: str | Path, names: Iterable[str]) -> Definitions:
    """Return the definitions of a file; raises DefinitionError unless it has a metric of each name."""
    definitions = load_definitions(path)
    for name in names:
        if name not in definitions:
            raise DefinitionError(f"{path} has no metric {name!r}; its metrics are {', '.join(definitions)}")
    return definitions
