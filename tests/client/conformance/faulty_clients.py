"""Faulty clients, from faulty_clients.toml: the Python client with lines changed, and the rule of `hubbub conformance` that each breaks."""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hubbub.conformance.adapter import Adapter
from tests.support.paths import REPOSITORY

_PACKAGE = REPOSITORY / "client" / "hubbub"
_TIMEOUT_SECONDS = 120.0


class Change(NamedTuple):
    """Code that occurs once in a module below client/hubbub, and what stands there instead."""

    module: str
    before: str
    after: str


@dataclass(frozen=True)
class FaultyClient:
    """The Python client with lines changed.

    rule    : number of the rule that the report names first
    words   : what the client does
    changes : several where more than one place of the client prevents the fault
    """

    rule: int
    words: str
    changes: tuple[Change, ...]

    def __str__(self) -> str:
        return self.words

    def write(self, folder: Path) -> None:
        """Write the client into a folder, from which it is imported."""
        shutil.copytree(_PACKAGE, folder / "hubbub", ignore=shutil.ignore_patterns("vectors.json", "__pycache__"))
        for change in self.changes:
            path = folder / "hubbub" / change.module
            path.write_text(replaced(path.read_text(encoding="utf-8"), change), encoding="utf-8")


def replaced(source: str, change: Change) -> str:
    """Return the source of a module with a change."""
    found = source.count(change.before)
    assert found == 1, f"{change.module}: {change.before!r} occurs {found} times"
    return source.replace(change.before, change.after)


@contextmanager
def adapter_of(client: FaultyClient, folder: Path) -> Iterator[Adapter]:
    """Start the adapter of a faulty client."""
    client.write(folder)
    paths = [str(folder), str(REPOSITORY)]
    program = f"import sys; sys.path[:0] = {paths!r}; from examples.conformance_adapter import run; run()"
    with Adapter([sys.executable, "-c", program], _TIMEOUT_SECONDS) as adapter:
        yield adapter


def _read() -> tuple[FaultyClient, ...]:
    listed = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["client"]
    return tuple(
        FaultyClient(fields["rule"], fields["words"], tuple(Change(**change) for change in fields["change"]))
        for fields in listed
    )


FAULTY_CLIENTS = _read()
