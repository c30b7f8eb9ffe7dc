"""Checks of an aggregator's deployment for `hubbub doctor`: definitions, address, disk, file modes, clock, then database and service."""

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
from hubbub_aggregator.cli.database_checks import check_database
from hubbub_aggregator.cli.service_checks import check_proxy, check_service, fetch_over_http, local_url
from hubbub_aggregator.database.location import is_postgres
from hubbub_aggregator.monitoring.disk_space import free_bytes_at
from hubbub_aggregator.settings import Settings

_EXPIRES_SOON = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class DeploymentOptions:
    """Options with which `hubbub serve` is started, and the URL at which clients reach the aggregator.

    port : 0: the running service is not checked      public_url : None: the proxy is not checked
    creates_database : whether `hubbub serve` creates a missing database: with --create, or if none is named
    segments : directory or s3://bucket/prefix; None: reports are in the database
    """

    definitions: Path
    database: str
    host: str
    settings: Settings
    port: int = 0
    public_url: str | None = None
    creates_database: bool = False
    segments: str | None = None


def check_aggregator(options: DeploymentOptions, now: datetime, pause: Callable[[], None]) -> Iterator[Finding]:
    """Yield the findings of all checks; `pause` waits between two readings of the refusal counters."""
    definitions = None
    try:
        definitions = load_definitions(options.definitions)
    except DefinitionError as problem:
        yield error(
            "definitions",
            str(problem),
            "`hubbub serve` does not start with this file, and SIGHUP keeps the earlier definitions",
            f"correct it: `hubbub metrics check {options.definitions}`",
        )
    else:
        yield from check_expiry(definitions, now)
        yield from _check_kept_names(definitions, options.settings)
    yield from check_address(options.host, options.settings)
    files = [options.definitions]
    if not is_postgres(options.database):
        files.append(Path(options.database))
        yield _check_disk(Path(options.database), options.settings)
        yield from _check_modes(Path(options.database))
    if options.segments is not None and "://" not in options.segments:
        yield from _check_segments_mode(Path(options.segments))
    yield check_clock(modification_times(*files), now)
    yield from check_database(
        options.database, definitions, options.settings, now, pause, is_created=options.creates_database
    )
    if options.port:
        yield from check_service(local_url(options.host, options.port), fetch_over_http)
    if options.public_url is not None:
        yield from check_proxy(options.public_url.rstrip("/"), fetch_over_http)


def check_expiry(definitions: Definitions, now: datetime) -> Iterator[Finding]:
    """Find metrics that have expired or expire within 30 days."""
    ends = {name: metric.expires for name, metric in definitions.items() if metric.expires is not None}
    past = [f"{name} ({day})" for name, day in ends.items() if day <= now.date()]
    soon = [f"{name} ({day})" for name, day in ends.items() if now.date() < day <= (now + _EXPIRES_SOON).date()]
    if past:
        yield warning(
            "definitions",
            f"expired: {', '.join(past)}",
            "clients stop recording these metrics, and further batches are refused (410)",
            "give them a later `expires`, or remove them after their last period is closed",
        )
    if soon:
        yield warning(
            "definitions",
            f"expires within {_EXPIRES_SOON.days} days: {', '.join(soon)}",
            "clients receive a new date only with an update of their app",
            "decide now whether to continue collecting, and ship a later `expires` with the app",
        )
    if not past and not soon:
        num_versions = sum(1 for _ in definitions.versions())
        yield ok(
            "definitions", f"{format_count(len(definitions), 'metric')}, {format_count(num_versions, 'definition')}"
        )


def _check_kept_names(definitions: Definitions, settings: Settings) -> Iterator[Finding]:
    """Find names of undefined metrics in --keep-counts and --keep-reports."""
    for option, named, effect in (
        ("keep-counts", settings.keep_counts, "the counts of the intended metric are never dropped"),
        ("keep-reports", settings.keep_reports, "the reports of the intended metric are not kept"),
    ):
        for name in named:
            if name not in definitions:
                yield warning(
                    "retention",
                    f"--{option} {name}: no metric has this name",
                    f"the option has no effect: {effect}",
                    f"use a name of the definitions file: {', '.join(definitions)}",
                )


def check_address(host: str, settings: Settings) -> Iterator[Finding]:
    """Find an address that other machines reach without TLS."""
    if not is_loopback(host):
        yield warning(
            "address",
            f"--host {host} accepts plain HTTP from other machines",
            "batch ids, tokens and clients' addresses can be read on the network",
            "listen on 127.0.0.1 behind a reverse proxy with TLS and without an access log (docs/how-to/proxy.md)",
        )
    else:
        yield ok(
            "address",
            f"only this machine reaches {host}; a reverse proxy must set X-Forwarded-For (checked with --url)",
        )
    if settings.local_reads_without_token:
        yield ok("address", "all users of this machine can read without a token, at --local-port on 127.0.0.1")


def _check_disk(file: Path, settings: Settings) -> Finding:
    try:
        return check_free_space(free_bytes_at(file)(), settings.min_free_disk)
    except OSError as problem:
        return error(
            "disk",
            f"{file.parent}: {problem.strerror}",
            "the database cannot be created there",
            "create the directory, or choose another --database",
        )


def check_free_space(free: int, min_free_disk: float) -> Finding:
    """Compare the free bytes of a disk with --min-free-disk."""
    observation = f"{format_size(free)} free; --min-free-disk is {format_size(min_free_disk)}"
    if free < min_free_disk:
        return error("disk", observation, "every batch is refused (507)", "free some space, or lower --min-free-disk")
    if free < 4 * min_free_disk:
        return warning("disk", observation, "below --min-free-disk every batch is refused (507)", "free some space")
    return ok("disk", observation)


def _check_modes(file: Path) -> Iterator[Finding]:
    """Find a SQLite file that other users of this machine can read or replace."""
    candidates = (file, Path(f"{file}-wal"), Path(f"{file}-shm"))
    existing = [path for path in candidates if os.path.isfile(path)]  # noqa: PTH113  (Path's raises without permission)
    accessible = [str(path) for path in existing if path.stat().st_mode & 0o077]
    if accessible:
        yield warning(
            "database",
            f"other users of this machine have access to {', '.join(accessible)}",
            "the file contains hashes of tokens, and reports that are not folded yet",
            f"chmod go= {' '.join(accessible)}",
        )
    folder = file.parent
    if existing and folder.stat().st_mode & 0o022 and not folder.stat().st_mode & stat.S_ISVTX:
        yield warning(
            "database",
            f"other users of this machine may write to {folder}",
            "they can replace the database",
            f"chmod go-w {folder}",
        )


def _check_segments_mode(directory: Path) -> Iterator[Finding]:
    """Find a directory of segments that other users of this machine can enter."""
    if os.path.isdir(directory) and directory.stat().st_mode & 0o077:  # noqa: PTH112  (as above)
        yield warning(
            "segments",
            f"other users of this machine have access to {directory}",
            "the names of its files show the metrics and periods, and a release before this one created files that all users can read",
            f"chmod -R go= {directory}",
        )
