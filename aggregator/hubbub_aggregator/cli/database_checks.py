"""Checks of the aggregator's database for `hubbub doctor`; they change nothing except for a write probe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path

from sqlalchemy import Connection, text

from hubbub.cli.findings import Finding, error, ok, warning
from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import Metric
from hubbub.text import format_count, format_names
from hubbub.wire.dates import parse_period
from hubbub.wire.problems import ProblemType
from hubbub_aggregator.database.engine import open_existing, prefix_errors, transaction
from hubbub_aggregator.database.integrity import NEXT_STEP, find_damage
from hubbub_aggregator.database.location import FIND_OR_CREATE, is_postgres, is_there, require_place
from hubbub_aggregator.database.schema_version import require_served, version_of
from hubbub_aggregator.errors import SchemaError, StoreError
from hubbub_aggregator.pipeline.retention import counts_expire_at, deletes_reports
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.clock_state import SETTLING, TOLERANCE, ClockStatus, ClockStore, time_text
from hubbub_aggregator.store.interface import FigureStore, PeriodStore
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_aggregator.store.tokens import Scope, TokenStore

_OVERDUE_AFTER = timedelta(days=1)
_EXPIRES_SOON = timedelta(days=14)
_MAX_SKEW_SECONDS = 60.0
_MAX_READ_BYTES = 1 << 30
"""Largest SQLite file that is checked for damage here."""
_MAX_SEGMENTS = 100_000
_ADVICE = {
    ProblemType.DIGEST_MISMATCH: "clients have another definition than this file: add theirs, or update the clients",
    ProblemType.UNKNOWN_METRIC: "clients send a metric that this file lacks: add the metric, or remove it from the clients",
    ProblemType.METRIC_EXPIRED: "give the metric a later `expires`, or remove it from the clients",
    ProblemType.PERIOD_NOT_STARTED: "set this machine's clock if it is behind, or the clients' clocks if they are ahead",
    ProblemType.TOO_MANY: "raise --client-rate; behind a proxy, make it set X-Forwarded-For, else all clients are one network",
    ProblemType.INTERNAL_ERROR: "report the error that the service logged",
    ProblemType.UNAVAILABLE: "read the service's log for the store's error; if the queue is often full, use a faster disk",
    ProblemType.DISK_FULL: "make room on the database's disk",
}


def check_database(
    database: str,
    definitions: Definitions | None,
    settings: Settings,
    now: datetime,
    pause: Callable[[], None],
    *,
    is_created: bool = False,
) -> Iterator[Finding]:
    """Run all checks of the database.

    definitions : None: their file cannot be read
    is_created  : `hubbub serve` with these options creates a missing database
    """
    if not is_postgres(database) and not is_there(Path(database)):
        yield _missing(database, is_created=is_created)
        return
    try:
        with (
            prefix_errors(database),
            open_existing(database, read_only=True) as engine,
            transaction(engine, writes=False) as connection,
        ):
            if version_of(connection) is None:
                if is_created:
                    yield ok("database", f"{database} has no tables yet: hubbub serve creates them")
                    return
                yield warning(
                    "database",
                    f"{database} has no tables",
                    "`hubbub serve` does not start on it",
                    "if a service runs on it, the file was moved: put the same file back; else run `hubbub db create`",
                )
                return
            require_served(connection)
            if is_postgres(database):
                yield from _check_server_clock(connection, now)
        yield from check_damage(database)
        with prefix_errors(database), open_existing(database) as engine:
            store = SqlStore(engine, create=False)
            store.probe()
            yield ok("database", "exists, has this hubbub's schema version, and is writable")
            yield from check_tokens(store, settings, now.date())
            yield from check_clock(store)
            if definitions is not None:
                yield from check_periods(store, store, definitions, settings, now)
            yield from check_refusals(store, pause)
    except SchemaError as problem:
        advice = str(problem).rpartition(": ")[2]
        yield error("database", str(problem), "`hubbub serve` does not start on it", advice)
    except StoreError as problem:
        yield error("database", str(problem), "no batch can be stored", "check that the database runs and is writable")


def _missing(database: str, *, is_created: bool) -> Finding:
    """Finding about a SQLite file that does not exist."""
    try:
        require_place(Path(database))
    except StoreError as problem:
        return error(
            "database",
            f"{database}: {problem}",
            "`hubbub serve` cannot create the database",
            "fix the path, then start the service",
        )
    if is_created:
        return ok("database", f"{database} does not exist yet: hubbub serve creates it")
    return error(
        "database",
        f"{database} does not exist",
        "`hubbub serve` does not start if the file named by --database does not exist",
        FIND_OR_CREATE,
    )


def check_damage(database: str) -> Iterator[Finding]:
    """Check a database for damage; a SQLite file above 1 GiB is not read."""
    if not is_postgres(database) and Path(database).stat().st_size > _MAX_READ_BYTES:
        yield ok(
            "database", f"larger than {_MAX_READ_BYTES >> 30} GiB and not checked for damage: run `hubbub db check`"
        )
        return
    with prefix_errors(database), open_existing(database, read_only=True) as engine:
        found = find_damage(engine)
    if found:
        yield error(
            "database", f"damaged: {format_names(found)}", "reading, folding and closing fail or will fail", NEXT_STEP
        )


def _check_server_clock(connection: Connection, now: datetime) -> Iterator[Finding]:
    """Compare this machine's clock with the database server's."""
    there = connection.execute(text("SELECT now()")).scalar_one()
    apart = abs((there - now).total_seconds())
    if apart > _MAX_SKEW_SECONDS:
        yield warning(
            "clock",
            f"this machine's clock and the database server's differ by {apart:.0f} seconds",
            "one of them is wrong, and periods open and close by the server's",
            "synchronize both (ntp, chrony)",
        )


def check_clock(store: ClockStore) -> Iterator[Finding]:
    """Compare the wall clock with the time that the database remembers (`store/clock_state.py`), to find a clock that jumped."""
    saved = store.clock()
    if saved is None:
        return
    state, wall = saved.state, store.wall_clock()
    accept = "set the clock; if it is correct, run `hubbub db accept-clock` instead of waiting for 24 hours"
    if wall < state.remembered - TOLERANCE:
        yield error(
            "clock",
            f"the clock is {time_text(wall)}, the remembered time in the database is {time_text(state.remembered)}",
            "the clock is behind: the service closes no period and deletes nothing",
            accept,
        )
    elif state.status is ClockStatus.CREDIBLE:
        yield ok("clock", f"agrees with the remembered time in the database, {time_text(state.remembered)}")
    else:
        left = (SETTLING - state.agreed) / 3_600
        yield warning(
            "clock",
            f"the clock jumped less than 24 hours ago; it is {time_text(wall)}",
            f"the service closes no period and deletes nothing until the clock has agreed for {left:.0f} more hours",
            accept,
        )


def check_tokens(store: TokenStore, settings: Settings, today: date) -> Iterator[Finding]:
    """Check for scopes without a valid token, and for tokens that have expired or expire within 14 days."""
    all_tokens = store.tokens()
    for token in all_tokens:
        if token.expires is not None and today >= token.expires - _EXPIRES_SOON:
            yield warning(
                "tokens",
                f"{token.name} {'expired' if token.has_expired(today) else 'expires'} on {token.expires}",
                "requests with this token are refused (401) from that day on",
                f"run `hubbub token rotate {token.name} --expires DATE`, or `hubbub token revoke {token.name}`",
            )
    available = frozenset[Scope]().union(*(token.scopes for token in all_tokens if not token.has_expired(today)))
    if settings.require_report_token and Scope.REPORT not in available:
        yield error(
            "tokens",
            "--require-report-token is set, and no token has scope report",
            "every batch is refused (401)",
            "run `hubbub token create apps --scope report`",
        )
    lacking = [scope for scope in (Scope.READ, Scope.METRICS) if scope not in available]
    if lacking and not settings.local_reads_without_token:
        yield warning(
            "tokens",
            f"no token has scope {' or '.join(lacking)}",
            "requests are refused (401) for "
            + " and ".join({"read": "the counts", "metrics": "/metrics"}[scope] for scope in lacking),
            f"run `hubbub token create NAME --scope {lacking[0]}`",
        )
    elif available:
        yield ok("tokens", f"valid for {', '.join(sorted(available))}")


def check_periods(
    store: PeriodStore, clock: ClockStore, definitions: Definitions, settings: Settings, now: datetime
) -> Iterator[Finding]:
    """Check for periods that the service does not close, fold or purge, and for unexpected retained reports."""
    known = {metric.digest: metric for metric in definitions.collections()}
    open_ = store.open_periods()
    of_known = [(known[digest], day) for digest, day in open_ if digest in known]
    retained = [(known[digest], day) for digest, day in store.periods_retained() if digest in known]
    kept = {metric.digest for metric, _ in retained}
    findings = [
        *_check_definitions(len(open_) - len(of_known)),
        *_check_overdue(store, clock, known.values(), of_known, retained, settings, now - _OVERDUE_AFTER),
        *_check_retention([metric for metric in known.values() if metric.digest in kept], settings),
        *_check_not_started(of_known, now),
    ]
    yield from findings
    num_segments = store.segments_waiting()
    if num_segments > _MAX_SEGMENTS:
        yield warning(
            "folding",
            f"{format_count(num_segments, 'segment')} not folded",
            "reading summaries is slow with many unfolded segments",
            "check that the service runs, read its log, or lower --fold-interval",
        )
    if all(finding.check == "retention" for finding in findings):
        yield ok("periods", f"{len(open_)} open; {format_count(num_segments, 'segment')} not folded yet")


def _check_definitions(num_unknown: int) -> Iterator[Finding]:
    """Check for open periods of definitions that are not in the file."""
    if num_unknown:
        yield warning(
            "periods",
            f"{format_count(num_unknown, 'open period')} of definitions that are not in the file",
            "they are never closed or purged, because their length is unknown",
            "put the definitions back into the file, above the newer versions, until their periods are closed",
        )


def _check_overdue(
    store: PeriodStore,
    clock: ClockStore,
    metrics: Iterable[Metric],
    open_: Iterable[tuple[Metric, str]],
    retained: Sequence[tuple[Metric, str]],
    settings: Settings,
    due: datetime,
) -> Iterator[Finding]:
    """Check for work of the service that was due before this time."""
    late = [f"to close {metric.name} {day}" for metric, day in open_ if due > parse_period(metric.period, day).closes()]
    for metric in metrics:
        late += _overdue(store, metric, settings, due, [day for kept, day in retained if kept is metric])
    saved = clock.clock()
    if late and saved is not None and saved.state.status is not ClockStatus.CREDIBLE:
        yield warning(
            "periods",
            f"overdue by more than a day: {format_names(late)}",
            "closing, dropping and purging are paused until the clock is credible",
            "follow the finding about the clock",
        )
    elif late:
        yield error(
            "periods",
            f"overdue by more than a day: {format_names(late)}",
            "the service does this every few seconds: it is not running, or its job fold_and_expire fails",
            "start the service, or read its log",
        )


def _check_retention(retained: Iterable[Metric], settings: Settings) -> Iterator[Finding]:
    """Check for retained reports of metrics that the options do not name."""
    unnamed = [metric.name for metric in retained if metric.name not in settings.keep_reports]
    if unnamed:
        yield warning(
            "retention",
            f"reports of {format_names(unnamed)} are retained, but --keep-reports does not name the metric",
            "they stay stored without a limit, and new reports are counted only",
            f"pass --keep-reports {unnamed[0]}=N, to keep reports until N periods after the end of their period, or "
            f"--keep-reports {unnamed[0]}=0, to delete them, once for each of these metrics, to `hubbub serve` and to this command",
        )


def _check_not_started(open_: Iterable[tuple[Metric, str]], now: datetime) -> Iterator[Finding]:
    """Check for reports of periods that have not started."""
    early = [f"{metric.name} {day}" for metric, day in open_ if now < parse_period(metric.period, day).opens()]
    if early:
        yield warning(
            "clock",
            f"reports exist for periods that have not started: {format_names(early)}",
            "this clock is behind, or the service's clock was ahead when the reports arrived",
            "set the clock if it is behind; otherwise nothing: the reports count for their periods",
        )


def _overdue(
    store: PeriodStore, metric: Metric, settings: Settings, due: datetime, retained: Iterable[str]
) -> Iterator[str]:
    """Yield a description of each fold and deletion of a metric that was due before this time."""
    name, keep_counts = metric.name, settings.keep_counts.get(metric.name)
    for day in store.unfolded(metric.digest):
        if due > parse_period(metric.period, day).closes():
            yield f"to fold {name} {day}"
    for day in retained:
        has_ended = due >= parse_period(metric.period, day).closes(timedelta(0))
        if has_ended and deletes_reports(metric, settings, day, due):
            yield f"to drop the reports of {name} {day}"
    if keep_counts is not None:
        for day in store.closed_periods(metric.digest):
            if due > counts_expire_at(metric, day, keep_counts):
                yield f"to drop the counts of {name} {day}"


def check_refusals(store: FigureStore, pause: Callable[[], None]) -> Iterator[Finding]:
    """Check which batches are refused during `pause` for reasons that an operator can change."""
    before = store.refusals()
    pause()
    after = store.refusals()
    grown = {key: count - before.get(key, 0) for key, count in after.items() if count > before.get(key, 0)}
    for (metric, slug), more in sorted(grown.items()):
        advice = next((text for problem, text in _ADVICE.items() if problem.slug == slug), "")
        if advice:
            yield warning(
                "refusals",
                f"{more} more batches{f' of {metric}' if metric else ''} were refused as {slug} during this check",
                f"{after[metric, slug]} in total; clients keep or lose these reports",
                advice,
            )
    if not any(slug == problem.slug for _, slug in grown for problem in _ADVICE):
        most: Mapping[tuple[str, str], int] = dict(sorted(after.items(), key=lambda item: -item[1])[:3])
        counts = ", ".join(
            f"{count} {slug}{f' of {metric}' if metric else ''}" for (metric, slug), count in most.items()
        )
        yield ok("refusals", f"no refused batches that an operator can fix; most frequent in total: {counts or 'none'}")
