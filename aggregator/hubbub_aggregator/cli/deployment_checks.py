"""What an operator should know about an aggregator before, and while, it runs: its definitions, its machine, its options."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from hubbub.cli.findings import Finding, check_clock, error, modification_times, ok, warning
from hubbub.errors import DefinitionError
from hubbub.metrics.definitions import Definitions, load_definitions
from hubbub.text import format_count, format_size
from hubbub.wire.urls import is_loopback
from hubbub_aggregator.cli.database_checks import of_database
from hubbub_aggregator.cli.service_checks import Ask, ask_over_http, direct_url, of_proxy, of_service
from hubbub_aggregator.database.database_url import is_postgres
from hubbub_aggregator.monitoring.disk_space import free_bytes_at
from hubbub_aggregator.settings import Settings

_SOON = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Asked:
    """How an aggregator is started: what `hubbub serve` is given, and at which URL clients reach it."""

    definitions: Path
    database: str
    host: str
    settings: Settings
    port: int = 0
    public_url: str | None = None


def of_aggregator(
    asked: Asked, now: datetime, pause: Callable[[], None], ask: Ask = ask_over_http
) -> Iterator[Finding]:
    """Look at everything.

    pause : what lies between the two looks at the counters
    ask : asks the running service, unless its port is 0, and its proxy, if its URL is given
    """
    definitions = None
    try:
        definitions = load_definitions(asked.definitions)
    except DefinitionError as problem:
        yield error(
            "definitions",
            str(problem),
            "`hubbub serve` does not start with this file, and SIGHUP changes nothing",
            "correct it; `hubbub metrics check` says the same",
        )
    else:
        yield from expiries(definitions, now)
        yield from _unknown_kept(definitions, asked.settings)
    yield from exposure(asked.host, asked.settings)
    files = [asked.definitions]
    if not is_postgres(asked.database):
        files.append(Path(asked.database))
        yield _disk(Path(asked.database), asked.settings)
        yield from _modes(Path(asked.database))
    yield check_clock(modification_times(*files), now)
    yield from of_database(asked.database, definitions, asked.settings, now, pause)
    if asked.port:
        yield from of_service(direct_url(asked.host, asked.port), ask)
    if asked.public_url is not None:
        yield from of_proxy(asked.public_url.rstrip("/"), ask)


def expiries(definitions: Definitions, now: datetime) -> Iterator[Finding]:
    """Say which metrics have ended or will soon."""
    ends = {name: metric.expires for name, metric in definitions.items() if metric.expires is not None}
    past = [f"{name} ({day})" for name, day in ends.items() if day <= now.date()]
    soon = [f"{name} ({day})" for name, day in ends.items() if now.date() < day <= (now + _SOON).date()]
    if past:
        yield warning(
            "definitions",
            f"expired: {', '.join(past)}",
            "clients record nothing of it any more, and what still comes is refused (410)",
            "give it a later `expires`, or remove it once its last period is closed",
        )
    if soon:
        yield warning(
            "definitions",
            f"expires within {_SOON.days} days: {', '.join(soon)}",
            "clients learn a new date with their next update only",
            "decide now whether it is still to be asked",
        )
    if not past and not soon:
        yield ok(
            "definitions",
            f"{format_count(len(definitions), 'metric')}, {format_count(sum(1 for _ in definitions.versions()), 'definition')}",
        )


def _unknown_kept(definitions: Definitions, settings: Settings) -> Iterator[Finding]:
    for option, named, instead in (
        (
            "keep-counts",
            settings.keep_counts,
            "nothing is dropped by it, and the metric that was meant is kept for ever",
        ),
        (
            "keep-reports",
            settings.keep_reports,
            "nothing is retained by it, and the reports of the metric that was meant go",
        ),
    ):
        for name in named:
            if name not in definitions:
                yield warning(
                    "retention",
                    f"--{option} {name}: there is no such metric",
                    instead,
                    f"the file has {', '.join(definitions)}",
                )


def exposure(host: str, settings: Settings) -> Iterator[Finding]:
    """Say who can reach the service, and read."""
    if not is_loopback(host):
        yield warning(
            "address",
            f"--host {host} can be reached from other machines, in plain HTTP",
            "batch ids, tokens and who sends can be read on the way",
            "listen on 127.0.0.1, with a reverse proxy that has TLS and no access log in front (docs/operating.md)",
        )
    else:
        yield ok(
            "address",
            f"only this machine reaches {host}: a proxy on it must set X-Forwarded-For; doctor --url checks that",
        )
    if settings.local_reads_without_token:
        yield ok("address", "every user of this machine may read without a token, on --local-port of 127.0.0.1 alone")


def _disk(file: Path, settings: Settings) -> Finding:
    try:
        return disk_room(free_bytes_at(file)(), settings.min_free_disk)
    except OSError as problem:
        return error(
            "disk",
            f"{file.parent}: {problem.strerror}",
            "the database cannot be there",
            "make the directory, or give another --database",
        )


def disk_room(free: int, min_free_disk: float) -> Finding:
    """Compare what is free with what must stay free."""
    told = f"{format_size(free)} free, of which {format_size(min_free_disk)} must stay so"
    if free < min_free_disk:
        return error("disk", told, "every batch is refused (507)", "make room, or lower --min-free-disk")
    if free < 4 * min_free_disk:
        return warning("disk", told, "below that every batch is refused (507)", "make room")
    return ok("disk", told)


def _modes(file: Path) -> Iterator[Finding]:
    """Say who else on this machine can read a SQLite file, or put another in its place."""
    beside = (Path(f"{file}-wal"), Path(f"{file}-shm"))
    there = [path for path in (file, *beside) if os.path.isfile(path)]  # noqa: PTH113  (Path's raises where it may not look)
    loose = [str(path) for path in there if path.stat().st_mode & 0o077]
    if loose:
        yield warning(
            "database",
            f"others on this machine have access to {', '.join(loose)}",
            "the tokens' hashes are in it, and reports that are not folded yet",
            f"chmod go= {' '.join(loose)}",
        )
    folder = file.parent
    if there and folder.stat().st_mode & 0o022 and not folder.stat().st_mode & stat.S_ISVTX:
        yield warning(
            "database",
            f"others on this machine may write to {folder}",
            "they can put another database in the place of this one",
            f"chmod go-w {folder}",
        )
