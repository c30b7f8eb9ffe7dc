"""Health checks of a client's state directory (`hubbub doctor --state`, and the problems of `hubbub inspect`)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from hubbub.cli.findings import Finding, Health, check_clock, error, modification_times, ok, warning
from hubbub.consent import Consent, consent_limit
from hubbub.encoding.secret import SECRET_BYTES
from hubbub.metrics.periods import OPEN_FOR, Period, from_timestamp
from hubbub.privacy.pricing import shown_epsilon
from hubbub.sdk.runtime.automation import sign_of_automation
from hubbub.sdk.storage.copy_detection import MachineIdReader, machine_tag, read_machine_id
from hubbub.sdk.storage.state import State
from hubbub.sdk.storage.state_reader import UnreadableStateError, read_state
from hubbub.sdk.upload.retry_policy import UNAUTHORIZED_HINT
from hubbub.text import format_count

_OVERDUE_AFTER = timedelta(days=3)
_TOO_LATE = f"aggregators accept reports until {OPEN_FOR.days} days after their period; later reports are dropped"


def check_state(
    directory: Path, now: datetime, environment: Mapping[str, str], machine_id: MachineIdReader = read_machine_id
) -> Iterator[Finding]:
    """Yield the findings of a state directory, without changing it.

    environment : environment variables, for the consent check
    machine_id  : function that returns the id of this machine, or None
    """
    try:
        state = read_state(directory)
    except UnreadableStateError as problem:
        yield error("state", problem.observation, "the state of the client cannot be checked", problem.next_step)
        return
    yield from check_read_state(directory, state, now, environment, machine_id)


def check_read_state(
    directory: Path,
    state: State,
    now: datetime,
    environment: Mapping[str, str],
    machine_id: MachineIdReader = read_machine_id,
) -> Iterator[Finding]:
    """Yield the findings of a state directory whose state was read."""
    try:
        entries = sorted(directory.iterdir())
    except OSError as problem:
        entries = []
        yield warning(
            "state",
            f"{directory} cannot be listed ({problem.strerror})",
            "links and the times of its files are not checked",
            "run the command as the user of the app",
        )
    links = [path.name for path in entries if path.is_symlink()]
    if links:
        yield error(
            "state",
            f"{', '.join(links)} in {directory}: symbolic links",
            "the client does not follow symbolic links, so it records and sends nothing",
            "find out which program created them, and remove them",
        )
    clock = check_clock(modification_times(*(path for path in entries if path.is_file())), now)
    yield clock if clock.health is not Health.OK else _clock_of(state, now) or clock
    yield _secret(directory / "secret", state)
    yield _machine(directory, state, machine_id())
    yield _journal(directory, state)
    yield _consent(state, environment)
    yield _waiting(state, now)
    yield _ledger(state)


def _clock_of(state: State, now: datetime) -> Finding | None:
    """Compare the clock with the dates in the state: dates confirmed by an aggregator, planned reports, queued batches."""
    confirmed = from_timestamp(state.clock_confirmed_at)
    if confirmed > now + timedelta(days=1):
        return error(
            "clock",
            f"the clock shows {now:%Y-%m-%d %H:%M} UTC, earlier than {confirmed:%Y-%m-%d %H:%M}, which an aggregator confirmed",
            "no reports are created until the clock is correct",
            "set the clock and keep it synchronized (ntp, chrony)",
        )
    planned_far_ahead = max(
        (
            (account.next_period_start, account.metric)
            for account in state.accounts.values()
            if not account.refused
            and account.next_period_start > str(Period.containing(account.period, now.date()).next().next())
        ),
        default=None,
    )
    if planned_far_ahead:
        return error(
            "clock",
            f"the next report of {planned_far_ahead[1]} is planned for {planned_far_ahead[0]}: the app ran while the clock was ahead",
            "no report of the metric is created before that day, unless the app runs with a correct clock and plans again",
            "check that the clock is correct, and start the app",
        )
    num_future = sum(queued.batch.period > str(now.date() + timedelta(days=2)) for queued in state.queue.values())
    if num_future:
        return warning(
            "clock",
            f"{format_count(num_future, 'batch')} of future days: the app ran while the clock was ahead",
            "they are not sent. They are dropped after an aggregator confirms the date, unless they were possibly delivered",
            "keep the clock synchronized (ntp, chrony)",
        )
    return None


def _secret(path: Path, state: State) -> Finding:
    if not path.exists():
        if state.secret_tag:
            return error(
                "secret",
                f"{path} does not exist, but the ledger has an enrollment",
                "the next recording starts a new enrollment and spends epsilon again for values that were reported before",
                "find out which program removes the file; the directory must exist as long as the installation",
            )
        return ok("secret", "no secret yet: nothing was recorded since consent was given")
    status = path.stat()
    if status.st_size != SECRET_BYTES:
        return error(
            "secret",
            f"{path} has {status.st_size} bytes, not {SECRET_BYTES}",
            "the client cannot use it and records nothing",
            "delete the file to start a new enrollment, which spends epsilon again",
        )
    journal = path.with_name("journal")
    if not os.access(path, os.R_OK) or (journal.exists() and journal.stat().st_uid != status.st_uid):
        return error(
            "secret",
            f"{path} belongs to user {status.st_uid} and cannot be read, or the journal belongs to another user",
            "without the secret nothing is recorded or sent; recordings are counted as ignored (`no-state`)",
            f"change its owner to the user of the app (chown), or delete {path} to start a new enrollment, which spends epsilon again",
        )
    if status.st_mode & 0o077:
        return error(
            "secret",
            f"{path} has mode {status.st_mode & 0o777:04o}",
            "anyone who reads the secret can remove the permanent noise from every report of this client",
            f"run chmod 600 {path}, and check which users could read it",
        )
    return ok("secret", f"{SECRET_BYTES} bytes, readable by its owner only")


def _machine(directory: Path, state: State, machine_id: bytes | None) -> Finding:
    """Check whether the directory was used on several machines, if machine ids are available."""
    tag = machine_tag(state.ledger_key, machine_id) if machine_id and state.ledger_key else ""
    machines = len(state.machine_tags)
    next_step = f"if it is a copy, run `hubbub inspect {directory} --identity new`; if it was moved, run `hubbub inspect {directory} --identity keep`"
    if machines > 1:
        return warning(
            "machine",
            f"{directory} was used on {machines} machines with one secret",
            "if it was copied, every copy reports each period, and their reports can be linked as those of one client",
            next_step,
        )
    if machines and tag and tag not in state.machine_tags:
        return warning(
            "machine",
            f"{directory} was used on another machine, and not on this one",
            "if it is a copy and an app uses it here, both copies report each period under one secret",
            next_step,
        )
    return ok(
        "machine", "used on one machine" if machines else "no machine id was recorded, so copies cannot be detected"
    )


def _journal(directory: Path, state: State) -> Finding:
    if state.damaged:
        return warning(
            "journal",
            f"{format_count(state.damaged, 'damaged record')}",
            "the epsilon, reports and uploads in them are lost, so the ledger can be too low",
            f"check the disk; `hubbub inspect {directory}` shows the remaining ledger",
        )
    return ok("journal", "no damaged records")


def _consent(state: State, environment: Mapping[str, str]) -> Finding:
    allowed, sign = consent_limit(environment), sign_of_automation(environment)
    if sign is not None:
        return warning(
            "consent",
            f"the user's consent is {state.consent}, and {sign} shows that a machine runs this program",
            "a client with this environment is paused: it records, stores and sends nothing",
            f"none if this is intended; unset {sign} where users run the app",
        )
    if state.consent is not Consent.ON or allowed is not Consent.ON:
        return warning(
            "consent",
            f"the user's consent is {state.consent}, and this environment allows {allowed}",
            "reports are sent only if both are `on`",
            "none if this is intended; the app changes consent with Client.set_consent",
        )
    return ok("consent", "on")


def _waiting(state: State, now: datetime) -> Finding:
    overdue = [
        queued
        for queued in state.queue.values()
        if not queued.local and now - from_timestamp(queued.send_at) > _OVERDUE_AFTER
    ]
    if state.quarantine:
        problem = next(reversed(state.quarantine.values()))[1]
        return error(
            "queue",
            f"{format_count(len(state.quarantine), 'batch')} permanently refused, the last with {problem}",
            "the aggregator does not accept this client's batches, and these reports are not sent again",
            "compare the app's definitions with the aggregator's /v1/metrics; `hubbub inspect` shows the batches",
        )
    held = state.held_metrics()
    if held:
        return error(
            "queue",
            f"reports of {', '.join(held)} are held: the aggregator's definition differs from the app's",
            _TOO_LATE,
            "compare the app's definitions with the aggregator's /v1/metrics; add the app's definition to every process of the "
            "aggregator, or ship the current definition with the app. The client tries again every day",
        )
    unknown = state.unknown_metrics()
    if unknown:
        return error(
            "queue",
            f"reports of {', '.join(unknown)} are kept: the aggregator has no metric of this name; last error: "
            f"{state.last_error or 'none since'}",
            _TOO_LATE,
            "add the metric to the aggregator's definitions; the client tries again every hour",
        )
    if state.failures and UNAUTHORIZED_HINT in state.last_error:
        return error(
            "queue",
            f"{format_count(len(state.queue), 'batch')} queued; last error: {state.last_error}",
            _TOO_LATE,
            "let the app pass Client(authorization=...) or a proxy add a token with scope report, or start the aggregator without "
            "--require-report-token",
        )
    if state.failures > 1:
        return warning(
            "queue",
            f"{format_count(len(state.queue), 'batch')} queued; the last {state.failures} upload attempts failed, last error: {state.last_error or 'no response'}",
            _TOO_LATE,
            "check the address, the certificate and the proxy, and that the aggregator responds",
        )
    if overdue:
        return warning(
            "queue",
            f"{len(overdue)} of {format_count(len(state.queue), 'batch')} are overdue by more than {_OVERDUE_AFTER.days} days",
            _TOO_LATE,
            "check that the aggregator is reachable from this machine, and that the app runs long enough to upload",
        )
    return ok(
        "queue",
        f"{format_count(len(state.queue), 'batch')} queued, {format_count(state.acknowledged, 'report')} acknowledged",
    )


def _ledger(state: State) -> Finding:
    refused = sorted({f"{account.metric}: {account.refused}" for account in state.accounts.values() if account.refused})
    if refused:
        return warning(
            "ledger",
            f"not collected: {'; '.join(refused)}",
            "the app's Policy allows no more reports of these metrics",
            "none if this is intended; otherwise define the metrics with more noise, or change the Policy in the app",
        )
    total = max((state.spent(subject) for subject in state.subjects), default=0.0)
    return ok(
        "ledger",
        f"{format_count(len(state.accounts), 'account')}, at most epsilon = {shown_epsilon(total)} spent by one subject, {format_count(state.enrollments, 'enrollment')}",
    )
