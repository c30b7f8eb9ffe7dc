"""Folders of the repository that tests read."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
DATA = REPOSITORY / "tests" / "data"
DEPLOY = REPOSITORY / "deploy"
DOCS = REPOSITORY / "docs"
