"""The tables of before Alembic: batches, segments, summaries, refusals, tokens."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Boolean, Column, ForeignKey, Integer, LargeBinary, String, UniqueConstraint

revision = "0002"
down_revision = None


def upgrade() -> None:
    """Make them where there is nothing: holds no lock that anyone waits for."""
    schema = op.create_table(
        "hubbub_schema",
        Column("version", Integer, primary_key=True, autoincrement=False),
        Column("probes", Integer, nullable=False),
    )
    op.bulk_insert(schema, [{"version": 2, "probes": 0}])
    op.create_table(
        "collection",
        Column("id", Integer, primary_key=True),
        Column("metric", String(64), nullable=False),
        Column("digest", String(64), nullable=False),
        Column("period", String(10), nullable=False),
        Column("revision", Integer, nullable=False),
        Column("closed", Boolean, nullable=False),
        Column("summary", LargeBinary),
        UniqueConstraint("digest", "period"),
    )
    op.create_table(
        "batch",
        Column("collection_id", Integer, ForeignKey("collection.id", ondelete="CASCADE"), primary_key=True),
        Column("batch_id", LargeBinary(16), primary_key=True),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "segment",
        Column("id", Integer, primary_key=True),
        Column("collection_id", Integer, ForeignKey("collection.id", ondelete="CASCADE"), nullable=False, index=True),
        Column("cohorts", LargeBinary, nullable=False),
        Column("rows", LargeBinary, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "refusal",
        Column("metric", String(64), primary_key=True),
        Column("reason", String(64), primary_key=True),
        Column("count", Integer, nullable=False),
    )
    op.create_table(
        "token",
        Column("name", String(64), primary_key=True),
        Column("hash", LargeBinary(32), nullable=False, unique=True),
        Column("scopes", String(64), nullable=False),
    )
