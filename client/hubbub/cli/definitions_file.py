"""What a command line asks for by name, of a definitions file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hubbub.errors import DefinitionError
from hubbub.metrics.definitions import Definitions, load_definitions


def definitions_with(path: str | Path, names: Iterable[str]) -> Definitions:
    """Read a definitions file that has metrics of these names."""
    definitions = load_definitions(path)
    for name in names:
        if name not in definitions:
            raise DefinitionError(f"{path} has no metric {name!r}: it has {', '.join(definitions)}")
    return definitions
