"""Add the table `due_mark`. Earlier releases stored the nil UUID as a batch id of the period instead, and may do so until they end.

Such a period is half closed like one that has other batch ids, so this release creates its mark too, and deletes the ids.
"""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, ForeignKey, Integer

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "due_mark",
        Column(
            "collection_id",
            Integer,
            ForeignKey("collection.id", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
    )
