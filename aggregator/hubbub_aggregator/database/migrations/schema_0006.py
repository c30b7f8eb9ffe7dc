"""The first released schema; `schema_version.prepare` creates its tables."""

from __future__ import annotations

revision = "0006"
down_revision = None


def upgrade() -> None:
    """Do nothing: no released schema comes before this one."""
