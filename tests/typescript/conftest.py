"""The built TypeScript client; its tests are skipped without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support import typescript

Built = Callable[[str], Path]


@pytest.fixture(scope="session")
def built() -> Built:
    """Function that returns the path of a bundle."""
    return typescript.built


@pytest.fixture(scope="session")
def node_adapter() -> Sequence[str]:
    """Command of the client's adapter in Node."""
    return typescript.node_adapter()
