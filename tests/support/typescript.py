"""Bundles of the TypeScript client that its tests run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY
from tests.support.programs import installed

CLIENT = REPOSITORY / "clients" / "typescript"


def built(name: str) -> Path:
    """Return the path of a bundle; skip the test if it is not built, or fail if $HUBBUB_TEST_REQUIRE contains `node`."""
    bundle = CLIENT / "dist" / name
    if not bundle.exists():
        reason = "the TypeScript client is not built: make typescript (it needs node and npm)"
        if "node" in os.environ.get("HUBBUB_TEST_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    return bundle


def node_adapter() -> Sequence[str]:
    """Return the command of the client's adapter in Node; skip the test without Node, as `built` does."""
    return installed("node", "nodejs"), str(built("conformance-node.js"))
