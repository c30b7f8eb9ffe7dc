"""Programs that a test needs and pip does not install."""

from __future__ import annotations

import os
import shutil

import pytest


def installed(name: str, package: str | None = None) -> str:
    """Return the path of a program; skip the test if it is missing, or fail if $HUBBUB_TEST_REQUIRE contains its name.

    package : Debian package of the program, if its name differs
    """
    found = shutil.which(name)
    if found is None:
        reason = f"{name} is not installed: apt-get install {package or name}"
        if name in os.environ.get("HUBBUB_TEST_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    return found
