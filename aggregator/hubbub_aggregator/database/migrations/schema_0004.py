"""The time that the database remembers."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, String

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add an empty table: at once, however much is stored."""
    op.create_table(
        "clock",
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("generation", Integer, nullable=False),
        Column("credible", BigInteger, nullable=False),
        Column("candidate", BigInteger),
        Column("agreed", Integer, nullable=False),
        Column("boot_id", String(36)),
        Column("elapsed", BigInteger, nullable=False),
    )
