"""Tables of the aggregator's database, the same on SQLite and PostgreSQL.

table         one row for each                 contents
collection    metric version and period        the summary and its figures; whether the period is closed
batch         batch of an open period          the batch id, against duplicates
due_mark      closed period                    its mark in the object store may not exist yet
segment       commit, metric version, period   reports that are not folded yet, shuffled
retained      block of folded reports          reports that are kept beside their counts, sorted
refusal       metric and reason                number of refused batches
token         access token                     hash of the secret, scopes, days
session       signed-in browser                hash of the cookie, expiry
clock         database                         state of the credible clock, saved once a minute

A report arrives in a `segment` and its batch id in `batch`. Folding adds the segments to the collection's summary, and
moves their reports to `retained` if the metric retains reports. When the period closes, its rows of `batch` are deleted.
When their time is over, the retained reports are deleted, then the summary.

No address and no time of a request is stored. The stored times are those of operators (end of a session and start of the
last backup in seconds; creation, last use and expiry of a token as UTC days) and the clock's.

A change here needs a migration in `migrations/` and a higher SCHEMA_VERSION. A migration only adds. A column that an
older release uses is removed one version later at the earliest, by a migration that raises `oldest_compatible`
(docs/how-to/upgrading.md).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    UniqueConstraint,
)

SCHEMA_VERSION = 7
"""Version of these tables."""
FIRST_SCHEMA_VERSION = 6
"""The first version that was released; versions 2 to 5 existed before the first release and cannot be upgraded."""
OLDEST_COMPATIBLE = 6
"""Oldest schema version whose release can work with these tables."""

tables = MetaData()

_Large = BigInteger().with_variant(Integer, "sqlite")  # SQLite's INTEGER has 64 bits, and only it autoincrements

alembic_version = Table(
    "alembic_version",  # name and column are Alembic's
    tables,
    Column("version_num", String(32), nullable=False),  # SCHEMA_VERSION in four digits: "0006"
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)

schema = Table(
    "hubbub_schema",
    tables,
    Column("oldest_compatible", Integer, primary_key=True, autoincrement=False),  # OLDEST_COMPATIBLE
    Column("write_probes", Integer, nullable=False),  # number of write probes of /readyz
    Column("last_backup", BigInteger),  # start of the last complete `hubbub db backup`, seconds since 1970; NULL: none
)

collection = Table(
    "collection",
    tables,
    Column("id", Integer, primary_key=True),
    Column("metric", String(64), nullable=False),  # immutable, like digest and period
    Column("digest", String(64), nullable=False),
    Column("period", String(10), nullable=False),  # the UTC date of its first day
    Column("revision", Integer, nullable=False),  # number of folds into the summary
    Column("closed", Boolean, nullable=False),  # permanently: new reports are refused
    Column("summary", LargeBinary),  # summary file of all folded reports; NULL: none yet
    Column("smallest_segment", Integer),  # fewest reports in a retained segment; NULL: none is retained
    # Figures of the summary, so that the dashboard and /metrics need not read it. They are current if
    # figures_revision = revision; the job `compute_figures` computes missing ones.
    Column("figures_revision", Integer),  # NULL: not computed yet, like the next three
    Column("num_reports", BigInteger),
    Column("smallest_cohort", BigInteger),  # fewest reports of a cohort that has any
    Column("implausible", String(64)),  # kinds of failed implausibility tests, separated by spaces; "": none
    UniqueConstraint("digest", "period"),
    # Covers the queries of the dashboard and /metrics. Without it SQLite reads each summary's overflow pages to reach
    # the columns behind the summary.
    Index(
        "ix_collection_figures",
        *("digest", "period", "revision", "figures_revision", "num_reports", "smallest_cohort", "implausible"),
    ),
)

batch = Table(
    "batch",
    tables,
    Column("collection_id", ForeignKey("collection.id", ondelete="CASCADE"), primary_key=True),
    Column("batch_id", LargeBinary(16), primary_key=True),  # a random UUID's bytes
    sqlite_with_rowid=False,  # ordered by batch id, so that the table does not reveal the order of arrival
)

due_mark = Table(
    "due_mark",
    tables,
    # A table instead of a column of `collection`, which would stand behind the summary: SQLite would read all summaries to find it.
    Column("collection_id", ForeignKey("collection.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
)

segment = Table(
    "segment",
    tables,
    Column("id", _Large, primary_key=True),
    Column("collection_id", ForeignKey("collection.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("cohorts", LargeBinary, nullable=False),  # n bytes; immutable, like reports
    Column("reports", LargeBinary, nullable=False),  # n x ceil(k / 8) bytes: the bits of n reports
    sqlite_autoincrement=True,  # an id is never reused: a fold refers to its segments by id
)

retained = Table(
    "retained",
    tables,
    Column("id", Integer, primary_key=True),
    Column("collection_id", ForeignKey("collection.id", ondelete="CASCADE"), nullable=False, index=True),
    # Of reports that the summary counts, sorted; both columns are immutable.
    Column("cohorts", LargeBinary, nullable=False),
    Column("reports", LargeBinary, nullable=False),
)

refusal = Table(
    "refusal",
    tables,
    Column("metric", String(64), primary_key=True),  # a defined metric, or empty
    Column("reason", String(64), primary_key=True),  # slug of the problem type
    Column("count", _Large, nullable=False),
)

token = Table(
    "token",
    tables,
    Column("name", String(64), primary_key=True),
    Column("secret_hash", LargeBinary(32), nullable=False, unique=True),  # SHA-256
    Column("scopes", String(64), nullable=False),  # separated by spaces
    Column("created", String(10)),  # UTC date of the secret; NULL: unknown
    Column("last_used", String(10)),  # UTC date; NULL: never
    Column("expires", String(10)),  # UTC date of the first day on which the token is refused; NULL: never
)

session = Table(
    "session",
    tables,
    Column("secret_hash", LargeBinary(32), primary_key=True),  # SHA-256 of the cookie's secret
    Column("token", ForeignKey("token.name", ondelete="CASCADE"), nullable=False, index=True),
    Column("expires", BigInteger, nullable=False),  # seconds since 1970
)

clock = Table(
    "clock",
    tables,
    Column("id", Integer, primary_key=True, autoincrement=False),  # 0: the table has one row, a StoredClock
    Column("generation", Integer, nullable=False),
    Column("credible", BigInteger, nullable=False),  # the remembered time, seconds since 1970
    Column("candidate", BigInteger),  # null; in rows of earlier versions the wall clock's time since a jump
    Column("agreed", Integer, nullable=False),  # seconds
    Column("boot_id", String(36)),
    Column("elapsed", BigInteger, nullable=False),  # seconds since the boot
)


def is_period(digest: str, period: str) -> ColumnElement[bool]:
    """Return the condition that a row of `collection` is that of a metric version and period."""
    return (collection.c.digest == digest) & (collection.c.period == period)
