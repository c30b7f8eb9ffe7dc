"""What is well, and what is not, with the state directory of a client."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hubbub.cli.findings import Finding, Health, check_clock, error, modification_times, ok, warning
from hubbub.consent import Consent, consent_limit
from hubbub.encoding.secret import SECRET_BYTES
from hubbub.errors import HubbubError
from hubbub.metrics.periods import Period
from hubbub.privacy.pricing import shown_epsilon
from hubbub.sdk.runtime.machine_id import MachineIdReader, machine_tag, read_machine_id
from hubbub.sdk.storage.state import State
from hubbub.sdk.storage.state_reader import read_state
from hubbub.text import format_count

_OVERDUE_AFTER_SECONDS = timedelta(days=3)


def check_state(
    directory: Path, now: datetime, environment: Mapping[str, str], machine_id: MachineIdReader = read_machine_id
) -> Iterator[Finding]:
    """Look at the state that a client keeps; nothing is changed."""
    try:
        state = read_state(directory)
    except HubbubError as problem:
        yield error("state", str(problem), "nothing of a client can be looked at", "give the right directory")
        return
    links = sorted(path.name for path in directory.iterdir() if path.is_symlink())
    if links:
        yield error(
            "state",
            f"{', '.join(links)} in {directory}: symbolic links",
            "the client follows none: nothing is recorded and nothing is sent",
            "find out who made them, and remove them",
        )
    clock = check_clock(modification_times(*(path for path in directory.iterdir() if path.is_file())), now)
    yield clock if clock.health is not Health.OK else _clock_of(state, now) or clock
    yield _secret(directory / "secret", state)
    yield _machine(directory, state, machine_id())
    yield _journal(directory, state)
    yield _consent(state, environment)
    yield _waiting(state, now)
    yield _ledger(state)


def _clock_of(state: State, now: datetime) -> Finding | None:
    """Compare the clock with what the state knows of others: dates that an aggregator confirmed, reports for days to come."""
    confirmed = datetime.fromtimestamp(state.clock_confirmed_at, UTC)
    if confirmed > now + timedelta(days=1):
        return error(
            "clock",
            f"it is {now:%Y-%m-%d %H:%M} UTC, and an aggregator agreed earlier that it was {confirmed:%Y-%m-%d %H:%M}",
            "no report is made while the clock is behind",
            "set the clock, and let something keep it (ntp, chrony)",
        )
    planned = max(
        (
            (account.next_period_start, account.metric)
            for account in state.accounts.values()
            if not account.refused
            and account.next_period_start > str(Period.containing(account.period, now.date()).next().next())
        ),
        default=None,
    )
    if planned:
        return error(
            "clock",
            f"the next report of {planned[1]} is planned for {planned[0]}: the app ran under a clock that was ahead",
            "none is made before, until the app runs under a clock that is right: then it plans anew by itself",
            "see that the clock is right, and start the app",
        )
    to_come = sum(waiting.batch.period > str(now.date() + timedelta(days=2)) for waiting in state.queue.values())
    if to_come:
        return warning(
            "clock",
            f"{format_count(to_come, 'batch')} of days to come: the app ran under a clock that was ahead",
            "they are not sent; they are dropped once an answer confirms the date, as far as none of them may have left",
            "let something keep the clock (ntp, chrony)",
        )
    return None


def _secret(path: Path, state: State) -> Finding:
    if not path.exists():
        if state.secret_tag:
            return error(
                "secret",
                f"{path} is gone",
                "the next recording enrols anew, and spends privacy anew for values that were reported already",
                "find out what removes it; the directory must last as long as the installation",
            )
        return ok("secret", "none yet: nothing was recorded under this consent")
    status = path.stat()
    if status.st_size != SECRET_BYTES:
        return error(
            "secret",
            f"{path} has {status.st_size} bytes, not {SECRET_BYTES}",
            "nothing is recorded with it",
            "delete it to enrol anew, which spends privacy anew",
        )
    journal = path.with_name("journal")
    if not os.access(path, os.R_OK) or (journal.exists() and journal.stat().st_uid != status.st_uid):
        return error(
            "secret",
            f"{path} belongs to user {status.st_uid}, and the client's own user cannot read it or must not trust it",
            "without it nothing is recorded and nothing is sent; what is recorded is counted as `no-state`",
            f"give it back to the user who runs the app (chown), or delete {path} to enrol anew, which spends privacy anew",
        )
    if status.st_mode & 0o077:
        return error(
            "secret",
            f"{path} has mode {status.st_mode & 0o777:04o}",
            "whoever reads it removes the permanent noise from every report of this client",
            f"chmod 600 {path}, and find out who could read it",
        )
    return ok("secret", "there, whole, for its owner alone")


def _machine(directory: Path, state: State, machine_id: bytes | None) -> Finding:
    """Tell whether the directory was used on other machines, as far as machines have ids."""
    tag = machine_tag(state.ledger_key, machine_id) if machine_id and state.ledger_key else ""
    machines = len(state.machine_tags)
    next_step = f"if it is a copy: `hubbub state new-identity {directory}`; if it was moved: `hubbub state keep-identity {directory}`"
    if machines > 1:
        return warning(
            "machine",
            f"{directory} was used on {machines} machines under one secret",
            "if it was copied, every copy reports each period, and the copies can be recognized as one client",
            next_step,
        )
    if machines and tag and tag not in state.machine_tags:
        return warning(
            "machine",
            f"{directory} was used on another machine, and not yet on this one",
            "if it is a copy and an app runs on it here, both copies report each period under one secret",
            next_step,
        )
    return ok("machine", "used on one machine" if machines else "no machine id was seen, so copies are not noticed")


def _journal(directory: Path, state: State) -> Finding:
    if state.damaged:
        return warning(
            "journal",
            f"{format_count(state.damaged, 'damaged record')}",
            "what they said was spent, formed or sent is not known any more",
            f"check the disk; `hubbub ledger {directory}` has what is left",
        )
    return ok("journal", "no record is damaged")


def _consent(state: State, environment: Mapping[str, str]) -> Finding:
    allowed = consent_limit(environment)
    if state.consent is not Consent.ON or allowed is not Consent.ON:
        return warning(
            "consent",
            f"the user said {state.consent}, the environment here allows {allowed}",
            "only with `on` in both is anything sent",
            "nothing, if that is what the user wants; the app sets it with Client.set_consent",
        )
    return ok("consent", "on")


def _waiting(state: State, now: datetime) -> Finding:
    late = [
        each
        for each in state.queue.values()
        if not each.local and now - datetime.fromtimestamp(each.send_at, UTC) > _OVERDUE_AFTER_SECONDS
    ]
    if state.quarantine:
        problem = next(reversed(state.quarantine.values()))[1]
        return error(
            "spool",
            f"refused for good: {format_count(len(state.quarantine), 'batch')}, the last as {problem}",
            "the aggregator and this program do not agree on what a batch is",
            "compare the definitions with the aggregator's /v1/metrics; `hubbub inspect` shows the batches",
        )
    held = sorted(
        {each.batch.metric for each in state.queue.values() if state.paused_metrics.get(each.batch.digest, 0.0) is None}
    )
    if held:
        return error(
            "spool",
            f"reports of {', '.join(held)} wait for another definition: the aggregator collects under other parameters",
            "a period takes no reports any more 30 days after its end: then they are dropped",
            "compare the app's definitions with the aggregator's /v1/metrics; deploy the aggregator's first",
        )
    if state.failures > 1:
        return warning(
            "spool",
            f"{format_count(len(state.queue), 'batch')} waiting: {state.failures} attempts in a row were in vain, the last: {state.last_error or 'no answer'}",
            "a period takes no reports any more 30 days after its end: then they are dropped",
            "see that the address, the certificate and the proxy are right, and that the aggregator answers",
        )
    if late:
        return warning(
            "spool",
            f"{len(late)} of {format_count(len(state.queue), 'batch')} should have been sent more than {_OVERDUE_AFTER_SECONDS.days} days ago",
            "a period takes no reports any more 30 days after its end: then they are dropped",
            "see that the aggregator can be reached from here, and that the app runs long enough to send",
        )
    return ok(
        "spool",
        f"{format_count(len(state.queue), 'batch')} waiting, {format_count(state.acknowledged, 'report')} acknowledged",
    )


def _ledger(state: State) -> Finding:
    refused = sorted({f"{account.metric}: {account.refused}" for account in state.accounts.values() if account.refused})
    if refused:
        return warning(
            "ledger",
            f"not collected: {'; '.join(refused)}",
            "the policy that the app set allows no more",
            "nothing, if it is meant; else ask for less, or change the Policy in the app's own code",
        )
    total = max((state.spent(subject) for subject in state.digests), default=0.0)
    return ok(
        "ledger",
        f"{format_count(len(state.accounts), 'account')}, at most eps = {shown_epsilon(total)} of one person, {format_count(state.enrollments, 'enrollment')}",
    )
