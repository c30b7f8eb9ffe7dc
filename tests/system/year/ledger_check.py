"""Of each client: what left with consent, and a ledger that is at least the loss enumerated from what was really sent."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from uuid import UUID

from hubbub import Metric
from hubbub.mechanisms.privset import PrivSet
from hubbub.mechanisms.subset import SubsetSelection
from tests.support.enumerate_histories import largest_loss_while_unchanged
from tests.support.enumerate_rows import row_distribution, set_distribution
from tests.system.year.clients import Counts
from tests.system.year.definitions import TRAVELLED
from tests.system.year.deployment import Deployment
from tests.system.year.people import Person
from tests.system.year.service import Request
from tests.system.year.travellers import Traveller
from tests.system.year.values import next_first_day
from tests.system.year.veterans import Veteran

SLACK = 1e-6
"""Of sums of floats."""


@cache
def enumerated_loss(metric: Metric, reports: int) -> float:
    """Largest loss of so many reports of one permanent response, over all values and outputs, without a closed form."""
    if len(metric.blocks) > 1:
        return sum(enumerated_loss(part, reports) for part in metric.components)
    mechanism = metric.params.mechanism
    if isinstance(mechanism, SubsetSelection):
        return _spread(row_distribution(mechanism, reports))
    if isinstance(mechanism, PrivSet):
        items = range(mechanism.num_items)
        own = [chosen for size in range(mechanism.max_items + 1) for chosen in combinations(items, size)]
        return reports * _spread([set_distribution(mechanism, chosen) for chosen in own])
    return largest_loss_while_unchanged(metric, reports)


def _spread(laws: list[tuple[float, ...]] | list[list[float]]) -> float:
    return max(math.log(max(chances) / min(chances)) for chances in zip(*laws, strict=True))


def consent_faults(deployment: Deployment) -> Iterator[str]:
    """Yield uploads without consent, of periods that ended before it, and of metrics that have expired."""
    people = {person.name: person for person in deployment.people}
    metrics = {metric.digest: metric for metric in deployment.service.definitions.versions()}
    for request in deployment.service.requests:
        if request.sender in people:
            reason = _without_consent(people[request.sender], request, metrics[request.batch.digest])
            if reason:
                yield f"{request.sender} at {request.time}: {request.batch.metric} of {request.batch.period}: {reason}"
        if None in request.units:
            yield f"{request.sender} at {request.time}: a report of {request.batch.metric} of {request.batch.period} that nobody made"


def _without_consent(person: Person, request: Request, metric: Metric) -> str:
    decided = [(time, level) for time, level in person.consents if time <= request.time]
    if not decided or decided[-1][1] != "on":
        return "left without consent"
    if metric.expires is not None and (request.time + person.offset).date() >= metric.expires:
        return f"left after {metric.expires}, when it expired"
    if isinstance(person, Traveller):
        return ""
    since = (decided[-1][0] + person.offset).date()
    return "" if next_first_day(metric, request.period) > since else f"ended before the consent of {since}"


def ledger_faults(deployment: Deployment) -> Iterator[str]:
    """Yield clients whose ledger charges less than the loss of what they sent, and those that hide less than they charge."""
    metrics = {metric.digest: metric for metric in deployment.service.definitions.versions()}
    sent: dict[tuple[str, str], set[object]] = {}
    for request in deployment.service.requests:
        batch = request.batch
        if len(batch) == 1:
            sent.setdefault((request.sender, batch.digest), set()).add((batch.cohorts, batch.rows))
    for person in deployment.people:
        if not person.consents:
            continue
        client = person.open()
        try:
            charged = client.charges()
            yield from _counter_faults(deployment, person, client.counts())
        finally:
            client.close()
        for digest, units in person.reference.all_units():
            used, metric = [unit for unit in units if unit.reports], metrics[digest]
            loss = person.spent_before.get(digest, 0.0)
            loss += sum(enumerated_loss(metric, len(unit.reports)) for unit in used)
            spent = charged[digest].spent if digest in charged else 0.0
            if spent < loss - SLACK:
                yield f"{person.name}: the ledger of {metric.name} has {spent:.3f}, and the reports cost {loss:.3f}"
            if metric.name == "fingerprint":
                yield from _response_faults(
                    person,
                    [{row for _, row in unit.reports} for unit in used],
                    len(sent.get((person.name, digest), ())),
                )


def server_faults(deployment: Deployment) -> Iterator[str]:
    """Yield ledgers of servers that charge their people less than they sent. The ledger has no names, so the sorted charges are compared."""
    metrics = {metric.digest: metric for metric in deployment.service.definitions.versions()}
    for server in deployment.servers:
        client = server.open()
        try:
            accounts = [account for account in client.ledger().accounts if account.subject]
        finally:
            client.close()
        losses: dict[str, list[float]] = {}
        for subject in server.subjects:
            for digest, units in subject.reference.all_units():
                used = [unit for unit in units if unit.reports]
                loss = sum(enumerated_loss(metrics[digest], len(unit.reports)) for unit in used)
                losses.setdefault(digest, []).append(loss)
        for digest, of_people in losses.items():
            charged = sorted(account.epsilon_spent for account in accounts if account.digest == digest)
            if len(charged) != len(of_people) or any(
                spent < loss - SLACK for spent, loss in zip(charged, sorted(of_people), strict=True)
            ):
                yield f"{server.name}: the ledgers of {metrics[digest].name} have {charged}, and the reports cost {sorted(of_people)}"


def period_faults(deployment: Deployment) -> Iterator[str]:
    """Yield periods that a person sent under two ids; the installation of the release reports for two people."""
    people = {person.name for person in deployment.people if not isinstance(person, Veteran)}
    ids: dict[tuple[str, str, str], set[UUID]] = {}
    for request in deployment.service.requests:
        if request.sender in people:
            batch = request.batch
            ids.setdefault((request.sender, batch.digest, batch.period), set()).add(batch.batch_id)
    yield from (f"{len(found)} reports of {key}" for key, found in ids.items() if len(found) > 1)


def traveller_faults(deployment: Deployment) -> Iterator[str]:
    """Yield ledgers of travellers that charge less than the permanent responses that left."""
    metric = TRAVELLED.metric
    for person in deployment.people:
        if not isinstance(person, Traveller):
            continue
        batches = [request.batch for request in deployment.service.requests if request.sender == person.name]
        left = len({(batch.cohorts, batch.rows) for batch in batches})
        enrollments = sum(level == "on" for _, level in person.consents)
        if left > 2 * enrollments:
            yield f"{person.name}: {left} permanent responses of two values, under {enrollments} secrets"
        client = person.open()
        try:
            spent = sum(charge.spent for charge in client.charges().values())
        finally:
            client.close()
        if spent < left * enumerated_loss(metric, 1) - SLACK:
            yield f"{person.name}: the ledger has {spent:.3f}, and {left} permanent responses left"


def recording_faults(deployment: Deployment) -> Iterator[str]:
    """Yield clients that do not count each recording once that they promised to count, whatever was killed after the promise."""
    for person in deployment.people:
        if not person.consents:
            continue
        client = person.open()
        try:
            counted = client.counts().recorded
        finally:
            client.close()
        if counted != person.recorded:
            yield f"{person.name}: counts {counted} recordings of {person.recorded}"


def _response_faults(person: Person, rows: list[set[bytes]], distinct: int) -> Iterator[str]:
    """Yield what is wrong with reports that are their permanent response: one for each unit, two of which are equal with probability 1e-13."""
    if any(len(of_unit) > 1 for of_unit in rows):
        yield f"{person.name}: one value has several permanent responses"
    if distinct != len(rows):
        yield f"{person.name}: {distinct} permanent responses left, of {len(rows)} values"


def _counter_faults(deployment: Deployment, person: Person, counts: Counts) -> Iterator[str]:
    confirmed = {
        request.batch.batch_id: len(request.batch)
        for request in deployment.service.requests
        if request.sender == person.name and request.confirmed and (request.stored or request.is_known)
    }
    if person.is_copy:
        return
    acknowledged = person.acknowledged_before + sum(confirmed.values())
    if counts.acknowledged != acknowledged:
        yield f"{person.name}: counts {counts.acknowledged} acknowledged reports of {acknowledged}"
    if counts.formed != counts.acknowledged + counts.queued + counts.quarantined + counts.dropped:
        yield f"{person.name}: the counters of reports do not add up: {counts}"
