"""What an operator should know about the database of an aggregator: nothing is changed but a write probe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta
from pathlib import Path

from sqlalchemy import Connection, text

from hubbub.cli.findings import Finding, error, ok, warning
from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import Metric
from hubbub.text import format_count
from hubbub.wire.dates import parse_period
from hubbub.wire.problems import ProblemType
from hubbub_aggregator.database.database_url import is_postgres
from hubbub_aggregator.database.engine import open_existing, prefix_errors, transaction
from hubbub_aggregator.database.integrity import NEXT_STEP, find_damage
from hubbub_aggregator.database.schema_version import require_served, version_of
from hubbub_aggregator.database.sqlite_file import is_there, require_place
from hubbub_aggregator.errors import SchemaError, StoreError
from hubbub_aggregator.pipeline.retention import counts_expire_at, keeps_reports
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.clock_state import SETTLING, TOLERANCE, ClockStatus, time_text
from hubbub_aggregator.store.interface import Store
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_aggregator.store.tokens import Scope

_OVERDUE = timedelta(days=1)
_SOON = timedelta(days=14)
_SKEW = 60.0  # seconds
_LONG_TO_READ = 1 << 30
_MANY_SEGMENTS = 100_000
_TELLING = {
    ProblemType.DIGEST_MISMATCH: "clients have another definition than this file: add theirs, or wait until they are updated",
    ProblemType.UNKNOWN_METRIC: "clients collect what this file has not: add the metric, or let them stop",
    ProblemType.METRIC_EXPIRED: "give the metric a later `expires`, if it is still to be collected",
    ProblemType.PERIOD_NOT_STARTED: "this clock is behind, or the clients' are ahead",
    ProblemType.TOO_MANY: "raise --client-rate, or see that the proxy sets X-Forwarded-For: else all are one network",
    ProblemType.INTERNAL_ERROR: "the log says where it failed: report it",
    ProblemType.UNAVAILABLE: "the log says why the store fails; a queue that is often full needs a faster disk",
    ProblemType.DISK_FULL: "make room",
}


def of_database(
    database: str, definitions: Definitions | None, settings: Settings, now: datetime, pause: Callable[[], None]
) -> Iterator[Finding]:
    """Look at what is stored; `definitions` None: their file cannot be read."""
    if not is_postgres(database) and not is_there(Path(database)):
        try:
            require_place(Path(database))
        except StoreError as problem:
            yield error("database", f"{database}: {problem}", "`hubbub serve` cannot make it", "then start it")
            return
        yield warning(
            "database",
            f"{database} is not there",
            "`hubbub serve` does not start on a file that --database names and that does not exist",
            "check the path and that its volume is mounted; before the first start: `hubbub db create`",
        )
        return
    try:
        with (
            prefix_errors(database),
            open_existing(database, read_only=True) as engine,
            transaction(engine, writes=False) as looking,
        ):
            if version_of(looking) is None:
                yield warning(
                    "database",
                    f"{database} has no tables",
                    "`hubbub serve` does not start on it",
                    "if a service is running on it, the file was moved: put the same file back; else `hubbub db create`",
                )
                return
            require_served(looking)
            if is_postgres(database):
                yield from _other_clock(looking, now)
        yield from damage(database)
        with prefix_errors(database), open_existing(database) as engine:
            store = SqlStore(engine, create=False)
            store.probe()
            yield ok("database", "there, of this hubbub's schema, and it can be written to")
            yield from tokens(store, settings, now.date())
            yield from clock_state(store)
            if definitions is not None:
                yield from periods(store, definitions, settings, now)
            yield from refusals(store, pause)
    except SchemaError as problem:
        yield error("database", str(problem), "`hubbub serve` does not start on it", "do what it says")
    except StoreError as problem:
        yield error("database", str(problem), "no batch can be stored", "see that it runs and may be written to")


def damage(database: str) -> Iterator[Finding]:
    """Look through a database, unless it is a file that takes long."""
    if not is_postgres(database) and Path(database).stat().st_size > _LONG_TO_READ:
        yield ok("database", f"of more than {_LONG_TO_READ >> 30} GiB, and not looked through: `hubbub db check` does")
        return
    with prefix_errors(database), open_existing(database, read_only=True) as engine:
        found = find_damage(engine)
    if found:
        yield error("database", f"damaged: {_some(found)}", "reading, folding and closing fail, or will", NEXT_STEP)


def _other_clock(connection: Connection, now: datetime) -> Iterator[Finding]:
    """Compare this machine's clock with the database's."""
    there = connection.execute(text("SELECT now()")).scalar_one()
    apart = abs((there - now).total_seconds())
    if apart > _SKEW:
        yield warning(
            "clock",
            f"this clock and the database's are {apart:.0f} seconds apart",
            "one of them is wrong, and periods open and close by this one",
            "let something keep both (ntp, chrony)",
        )


def clock_state(store: Store) -> Iterator[Finding]:
    """Compare the time that the database remembers with the wall clock."""
    saved = store.clock()
    if saved is None:
        return
    state, wall = saved.state, store.wall_clock()
    accept = "set the clock; or, if it is right, `hubbub db accept-clock` instead of 24 hours of waiting"
    if wall < state.credible - TOLERANCE:
        yield error(
            "clock",
            f"the clock says {time_text(wall)}, the database remembers {time_text(state.credible)}",
            "the clock is behind: the service closes, purges and drops nothing",
            accept,
        )
    elif state.status is ClockStatus.CREDIBLE:
        yield ok("clock", f"the database remembers {time_text(state.credible)}")
    else:
        left = (SETTLING - state.agreed) / 3_600
        yield warning(
            "clock",
            f"the clock jumped, the database remembers {time_text(state.credible)}, and the clock says {time_text(wall)}",
            f"the service closes, purges and drops nothing for {left:.0f} more hours of agreement",
            accept,
        )


def tokens(store: Store, settings: Settings, today: date) -> Iterator[Finding]:
    """Report scopes without a valid token, and tokens that have expired or will within 14 days."""
    all_tokens = store.tokens()
    for token in all_tokens:
        if token.expires is not None and today >= token.expires - _SOON:
            yield warning(
                "tokens",
                f"{token.name} {'expired' if token.has_expired(today) else 'expires'} on {token.expires}",
                "requests with it are refused (401) from that day on",
                f"`hubbub token rotate {token.name} --expires DATE`, or `hubbub token revoke {token.name}`",
            )
    have = frozenset[Scope]().union(*(token.scopes for token in all_tokens if not token.has_expired(today)))
    if settings.require_report_token and Scope.REPORT not in have:
        yield error(
            "tokens",
            "--require-report-token, and no token has scope report",
            "every batch is refused (401)",
            "`hubbub token create apps --scope report`",
        )
    lacking = [scope for scope in (Scope.READ, Scope.METRICS) if scope not in have]
    if lacking and not settings.local_reads_without_token:
        yield warning(
            "tokens",
            f"no token has scope {' or '.join(lacking)}",
            "nobody can read " + " or ".join({"read": "the counts", "metrics": "/metrics"}[scope] for scope in lacking),
            f"`hubbub token create NAME --scope {lacking[0]}`",
        )
    elif have:
        yield ok("tokens", f"for {', '.join(sorted(have))}")


def periods(store: Store, definitions: Definitions, settings: Settings, now: datetime) -> Iterator[Finding]:
    """Say which periods the service does not look after."""
    known = {metric.digest: metric for metric in definitions.versions()}
    open_, orphans, late, early = store.open_periods(), 0, [], []
    for digest, day in open_:
        metric = known.get(digest)
        if metric is None:
            orphans += 1
            continue
        period = parse_period(metric.period, day)
        if now > period.closes() + _OVERDUE:
            late.append(f"to close {metric.name} {day}")
        if now < period.opens():
            early.append(f"{metric.name} {day}")
    retained = store.periods_retained()
    for metric in known.values():
        late += _overdue(
            store, metric, settings, now - _OVERDUE, [day for digest, day in retained if digest == metric.digest]
        )
    unnamed = [
        metric.name
        for metric in known.values()
        if metric.name not in settings.keep_reports and any(digest == metric.digest for digest, _ in retained)
    ]
    if orphans:
        yield warning(
            "periods",
            f"{format_count(orphans, 'open period')} of definitions that the file has not",
            "they are never closed or purged: how long they are is no longer known",
            "put the definitions back, below which the newer ones stand, until their periods are closed",
        )
    saved = store.clock()
    if late and saved is not None and saved.state.status is not ClockStatus.CREDIBLE:
        yield warning(
            "periods",
            f"due for more than a day: {_some(late)}",
            "closing, dropping and purging are paused until the clock is credible",
            "see the finding about the clock",
        )
    elif late:
        yield error(
            "periods",
            f"due for more than a day: {_some(late)}",
            "the service closes, folds and drops every few seconds: it does not run, or its upkeep fails",
            "start it, or read its log",
        )
    if unnamed:
        yield warning(
            "retention",
            f"reports of {_some(unnamed)} are retained, and no --keep-reports names it",
            "a service with these options drops them at once, beyond recall",
            f"--keep-reports {unnamed[0]}=N, here as for `hubbub serve`, if they are to be kept",
        )
    if early:
        yield warning(
            "clock",
            f"there are reports of periods that have not begun: {_some(early)}",
            "this clock is behind, or the service's was ahead when they came",
            "set the clock if it is behind; else nothing, they are counted for their periods",
        )
    waiting = store.segments_waiting()
    if waiting > _MANY_SEGMENTS:
        yield warning(
            "upkeep",
            f"{format_count(waiting, 'segment')} not folded",
            "summaries take longer to read the more there are",
            "see that the service runs, and its log; lower --fold-interval",
        )
    if not (orphans or late or early):
        yield ok("periods", f"{len(open_)} open; {format_count(waiting, 'segment')} to be folded")


def _overdue(store: Store, metric: Metric, settings: Settings, due: datetime, retained: Iterable[str]) -> Iterator[str]:
    """Yield what should have been done by then with a metric's periods, beside closing them."""
    name, retain, keep = metric.name, settings.keep_reports.get(metric.name), settings.keep_counts.get(metric.name)
    for day in store.unfolded(metric.digest):
        if due > parse_period(metric.period, day).closes():
            yield f"to fold {name} {day}"
    if retain is not None:
        for day in retained:
            if not keeps_reports(metric, settings, day, due):
                yield f"to drop the reports of {name} {day}"
    if keep is not None:
        for day in store.closed_periods(metric.digest):
            if due > counts_expire_at(metric, day, keep):
                yield f"to drop the counts of {name} {day}"


def refusals(store: Store, pause: Callable[[], None]) -> Iterator[Finding]:
    """Say what is being refused now that an operator can change."""
    before = store.refusals()
    pause()
    after = store.refusals()
    grown = {key: count - before.get(key, 0) for key, count in after.items() if count > before.get(key, 0)}
    for (metric, slug), more in sorted(grown.items()):
        advice = next((told for refusal, told in _TELLING.items() if refusal.slug == slug), "")
        if advice:
            yield warning(
                "refusals",
                f"{more} more batches{f' of {metric}' if metric else ''} were refused as {slug} while this was looked at",
                f"{after[metric, slug]} were, ever; their clients keep them, or lose them",
                advice,
            )
    if not any(slug == refusal.slug for _, slug in grown for refusal in _TELLING):
        most: Mapping[tuple[str, str], int] = dict(sorted(after.items(), key=lambda item: -item[1])[:3])
        told = ", ".join(f"{count} {slug}{f' of {metric}' if metric else ''}" for (metric, slug), count in most.items())
        yield ok("refusals", f"none now that you could change; ever, most of all: {told or 'none'}")


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
