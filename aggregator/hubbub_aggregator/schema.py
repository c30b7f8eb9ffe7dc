"""The tables, as the story of a report's life; the same on every engine.

A batch arrives for one version of a metric and one period: its *collection*, what is counted together and one
day dropped together. Its id goes into `batch`, its reports, shuffled among all that arrived meanwhile, into one
`segment`. Folding turns segments into the collection's summary. When the period takes no more reports the collection
is closed and its ids go; when its time is over its counts go as well. `refusal` counts what was not taken. Nothing else
is stored: no address, no time.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Integer, LargeBinary, MetaData, String, Table, UniqueConstraint

SCHEMA_VERSION = 2

tables = MetaData()

schema = Table(
    "hubbub_schema",
    tables,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("probes", Integer, nullable=False),  # counts the write probes of /readyz; means nothing else
)

collection = Table(
    "collection",
    tables,
    Column("id", Integer, primary_key=True),
    Column("metric", String(64), nullable=False),  # immutable, like digest and period
    Column("digest", String(64), nullable=False),
    Column("period", String(10), nullable=False),  # the UTC date of its first day
    Column("revision", Integer, nullable=False),  # how often segments were folded into the summary
    Column("closed", Boolean, nullable=False),  # takes no more reports, and will not again
    Column("summary", LargeBinary),  # the summary file of all that was folded; NULL: nothing yet
    UniqueConstraint("digest", "period"),
)

batch = Table(
    "batch",
    tables,
    Column("collection_id", ForeignKey("collection.id", ondelete="CASCADE"), primary_key=True),
    Column("batch_id", LargeBinary(16), primary_key=True),  # a random UUID's bytes
    sqlite_with_rowid=False,  # ordered by id, so that the table does not tell who came first
)

segment = Table(
    "segment",
    tables,
    Column("id", Integer, primary_key=True),
    Column("collection_id", ForeignKey("collection.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("cohorts", LargeBinary, nullable=False),  # n bytes; immutable, like rows
    Column("rows", LargeBinary, nullable=False),  # n x ceil(k / 8) bytes
    sqlite_autoincrement=True,  # an id is never given twice: a fold names its segments by id
)

refusal = Table(
    "refusal",
    tables,
    Column("metric", String(64), primary_key=True),  # one that is defined here, or empty
    Column("reason", String(64), primary_key=True),  # the refusal's slug
    Column("count", Integer, nullable=False),
)

token = Table(
    "token",
    tables,
    Column("name", String(64), primary_key=True),
    Column("hash", LargeBinary(32), nullable=False, unique=True),  # SHA-256 of the secret
    Column("scopes", String(64), nullable=False),  # with spaces between
)
