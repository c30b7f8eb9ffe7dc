"""Load a definitions file for a command."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hubbub.errors import DefinitionError
from hubbub.metrics.definitions import Definitions, load_definitions
from hubbub.text import did_you_mean


def definitions_with(path: str | Path, names: Iterable[str]) -> Definitions:
    """Return the definitions of a file; raises DefinitionError unless it has a metric of each name."""
    definitions = load_definitions(path)
    for name in names:
        if name not in definitions:
            raise DefinitionError(
                f"{path} has no metric {name!r}.{did_you_mean(name, definitions)} Its metrics are {', '.join(definitions)}"
            )
    return definitions
