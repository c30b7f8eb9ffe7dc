"""The tables, as the story of a report's life; the same on every engine.

A batch arrives for one version of a metric and one period: its *collection*, what is counted together and one
day dropped together. Its id goes into `batch`, its reports, shuffled among all that arrived meanwhile, into one
`segment`. Folding turns segments into the collection's summary, and, where the metric retains its reports, puts these
together in `retained`. When the period takes no more reports the collection is closed and its ids go; when its time is
over its reports go, then its counts. `refusal` counts what was not taken. `token` and `session` say who may read. `clock`
has one row, the time that the service remembers: it is saved once a minute, whether or not a report came. Nothing else is
stored: no address, and no time of a request. The other times are those of operators: the end of a session and the last
backup in seconds, a token's creation, last use and expiry as UTC days.

Keep in sync with `migrations/`: a change here is a new step there, and raises SCHEMA_VERSION. A step only adds; what an
older hubbub reads or writes is taken away one step later at the earliest, by a step that raises `oldest` (docs/operating.md).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
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

SCHEMA_VERSION = 5
OLDEST_SERVING = 2
"""The oldest schema whose hubbub can work with these tables too."""

tables = MetaData()

_Large = BigInteger().with_variant(Integer, "sqlite")  # where every Integer is large, and only that name counts up

alembic_version = Table(
    "alembic_version",  # as Alembic makes it
    tables,
    Column("version_num", String(32), nullable=False),  # the schema's version, "0003"
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)

schema = Table(
    "hubbub_schema",
    tables,
    Column("version", Integer, key="oldest", primary_key=True, autoincrement=False),  # as OLDEST_SERVING
    Column("probes", Integer, nullable=False),  # counts the write probes of /readyz; means nothing else
    Column("last_backup", BigInteger),  # start of the last complete `hubbub db backup`, seconds since 1970; NULL: none
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
    Column("smallest", Integer),  # fewest reports in a segment that was retained; NULL: none was
    # Figures of the summary, so that the page and /metrics need not read it. They hold if figures_revision = revision:
    # an older hubbub folds without them, and a background job computes what is missing.
    Column("figures_revision", Integer),  # NULL: not computed yet, like the next three
    Column("reports", BigInteger),
    Column("smallest_cohort", BigInteger),  # fewest reports of a cohort that has any
    Column("implausible", String(64)),  # kinds of implausibility tests that failed, with spaces between; "": none
    UniqueConstraint("digest", "period"),
    # All that the page and /metrics ask for. Without it SQLite follows each summary's overflow pages to reach the columns behind it.
    Index(
        "ix_collection_figures",
        *("digest", "period", "revision", "figures_revision", "reports", "smallest_cohort", "implausible"),
    ),
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
    Column("id", _Large, primary_key=True),
    Column("collection_id", ForeignKey("collection.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("cohorts", LargeBinary, nullable=False),  # n bytes; immutable, like rows
    Column("rows", LargeBinary, nullable=False),  # n x ceil(k / 8) bytes
    sqlite_autoincrement=True,  # an id is never given twice: a fold names its segments by id
)

retained = Table(
    "retained",
    tables,
    Column("id", Integer, primary_key=True),
    Column("collection_id", ForeignKey("collection.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("cohorts", LargeBinary, nullable=False),  # of reports that are in the summary, sorted; immutable, like rows
    Column("rows", LargeBinary, nullable=False),
)

refusal = Table(
    "refusal",
    tables,
    Column("metric", String(64), primary_key=True),  # one that is defined here, or empty
    Column("reason", String(64), primary_key=True),  # the refusal's slug
    Column("count", _Large, nullable=False),
)

token = Table(
    "token",
    tables,
    Column("name", String(64), primary_key=True),
    Column("hash", LargeBinary(32), nullable=False, unique=True),  # SHA-256 of the secret
    Column("scopes", String(64), nullable=False),  # with spaces between
    Column("created", String(10)),  # UTC date of the secret; NULL: by a hubbub that did not store it
    Column("last_used", String(10)),  # UTC date; NULL: not since that hubbub
    Column("expires", String(10)),  # UTC date of the first day on which it is refused; NULL: never
)

session = Table(
    "session",
    tables,
    Column("hash", LargeBinary(32), primary_key=True),  # SHA-256 of what the cookie says
    Column("token", ForeignKey("token.name", ondelete="CASCADE"), nullable=False, index=True),
    Column("expires", BigInteger, nullable=False),  # seconds since 1970
)

clock = Table(
    "clock",
    tables,
    Column("id", Integer, primary_key=True, autoincrement=False),  # 0: there is one row, as in credible_clock.py
    Column("generation", Integer, nullable=False),
    Column("credible", BigInteger, nullable=False),  # seconds since 1970, like candidate
    Column("candidate", BigInteger),
    Column("agreed", Integer, nullable=False),  # seconds
    Column("boot_id", String(36)),
    Column("elapsed", BigInteger, nullable=False),  # seconds since the boot
)
