"""The built TypeScript client; its tests are skipped without it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY
from tests.support.programs import installed

CLIENT = REPOSITORY / "clients" / "typescript"

Built = Callable[[str], Path]


@pytest.fixture(scope="session")
def built() -> Built:
    """Function that returns the path of a bundle."""

    def path(name: str) -> Path:
        bundle = CLIENT / "dist" / name
        if not bundle.exists():
            reason = "the TypeScript client is not built: make typescript (it needs node and npm)"
            if "node" in os.environ.get("HUBBUB_TEST_REQUIRE", "").split(","):
                pytest.fail(reason)
            pytest.skip(reason)
        return bundle

    return path


@pytest.fixture(scope="session")
def node_adapter(built: Built) -> Sequence[str]:
    """Command of the client's adapter in Node."""
    return installed("node", "nodejs"), str(built("conformance-node.js"))
