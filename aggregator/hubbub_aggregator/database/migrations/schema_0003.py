"""Retained reports; sessions; segments and refusals may number more than 2**31."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKey, Integer, LargeBinary, String

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add a column that may be NULL and empty tables: at once, however much is stored.

    PostgreSQL writes `segment` anew, with what is not folded yet: the reports of the last seconds.
    """
    op.add_column("collection", Column("smallest", Integer))
    op.create_table(
        "retained",
        Column("id", Integer, primary_key=True),
        Column("collection_id", Integer, ForeignKey("collection.id", ondelete="CASCADE"), nullable=False, index=True),
        Column("cohorts", LargeBinary, nullable=False),
        Column("rows", LargeBinary, nullable=False),
    )
    op.create_table(
        "session",
        Column("hash", LargeBinary(32), primary_key=True),
        Column("token", String(64), ForeignKey("token.name", ondelete="CASCADE"), nullable=False, index=True),
        Column("expires", BigInteger, nullable=False),
    )
    if op.get_context().dialect.name == "postgresql":
        op.alter_column("segment", "id", type_=BigInteger)
        op.execute("ALTER SEQUENCE segment_id_seq AS bigint")
        op.alter_column("refusal", "count", type_=BigInteger)
