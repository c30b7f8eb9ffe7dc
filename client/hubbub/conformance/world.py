"""World of a scenario: a client on one directory, a scripted aggregator, and the time of both."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from hubbub.conformance.results import RuleResult, Verdict
from hubbub.conformance.scripted_aggregator import Answer, Request, ScriptedAggregator
from hubbub.errors import HubbubError
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.metrics.periods import PeriodKind
from hubbub.wire.batch import CONTENT_TYPE, Batch

_STEP = timedelta(hours=6)
FIELDS: dict[str, Any] = {"description": "d", "owner": "o", "expires": date(2100, 1, 1)}
"""Fields of every metric of a scenario."""
VALUE_EPSILON = 2.2
"""Epsilon of a value of `fingerprint`, rounded up."""


UNLIMITED = {"epsilon_enrollment": 60.0, "epsilon_metric": 60.0, "epsilon_total": 2000.0}
"""Policy with room for all that a scenario records."""
_FIELDS_OF_A_BODY = {"batch_id", "metric", "digest", "group", "period", "cohorts", "bits"}


def fingerprint(
    name: str,
    units: float | None = None,
    *,
    hold: int | None = None,
    num_cohorts: int = 2,
    period: PeriodKind = PeriodKind.DAY,
) -> Metric:
    """Return a metric whose report is the permanent response, and so large that two are equal by chance once in 1e26.

    units : number of values, or of epochs of a metric with `hold`, that `lifetime_epsilon` has room for; None: no limit
    """
    params = Params(num_bits=128, num_hashes=1, num_cohorts=num_cohorts, prob_p=0, prob_q=1, prob_f=0.5)
    limit = None if units is None else VALUE_EPSILON * units
    return Metric.string(name, params, hold=hold, period=period, lifetime_epsilon=limit, **FIELDS)


class BrokenError(Exception):
    """A client broke the rule; the message says when."""


class NotClaimedError(Exception):
    """An adapter does not know a call."""


class Kit(Protocol):
    """Source of adapters."""

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer of the adapter that runs."""

    def kill(self) -> None:
        """Kill the adapter, and start another one."""

    def beside(self) -> AbstractContextManager[Kit]:
        """Start one more adapter, and end it."""


@dataclass
class World:
    """A client on one directory, its aggregator, and the time of both.

    groups : public labels of the app
    policy : limits of the app; without one, its default holds
    ahead  : how far the client's clock is ahead of the aggregator's
    earlier : definitions that the client had before
    """

    kit: Kit
    directory: Path
    aggregator: ScriptedAggregator
    definitions: tuple[Metric, ...]
    groups: dict[str, str] = field(default_factory=dict)
    policy: dict[str, float] = field(default_factory=dict)
    ahead: timedelta = timedelta()
    earlier: tuple[Metric, ...] = ()

    def start(self) -> None:
        """Start the client."""
        definitions = [metric.to_dict() for metric in self.definitions]
        where: dict[str, Any] = {"directory": str(self.directory), "url": self.aggregator.url}
        where |= {"groups": self.groups} if self.groups else {}
        where |= {"policy": self.policy} if self.policy else {}
        call(self.kit, {"call": "start", "definitions": definitions, "now": self._now(), **where})

    def agree(self) -> None:
        """Start the client, and consent."""
        self.start()
        self.set_consent("on")

    def set_consent(self, level: str) -> None:
        call(self.kit, {"call": "consent", "level": level})

    def record(self, metric: Metric, value: Any) -> None:
        call(self.kit, {"call": "record", "metric": metric.name, "value": value})

    def advance(self, **by: float) -> None:
        """Move both clocks, and let the client send what is due every six hours."""
        end = self.aggregator.now + timedelta(**by)
        while self.aggregator.now < end:
            self.set_time(min(end, self.aggregator.now + _STEP))

    def set_time(self, now: datetime) -> None:
        """Set both clocks, and let the client send what is due."""
        self.aggregator.now = now
        call(self.kit, {"call": "advance", "now": self._now()})
        call(self.kit, {"call": "flush"})

    def stop(self) -> None:
        call(self.kit, {"call": "stop"})

    def redefine(self, *definitions: Metric) -> None:
        """End the client, and start it with other definitions."""
        self.stop()
        self.earlier, self.definitions = (*self.earlier, *self.definitions), definitions
        self.start()

    def restart(self) -> None:
        """End the client, and start it again."""
        self.stop()
        self.start()

    def days_of(self, metric: Metric, values: Sequence[Any]) -> list[Batch]:
        """Agree, record a value each day, end after the second and kill after the fourth; return all batches."""
        self.agree()
        for day, value in enumerate(values):
            self.record(metric, value)
            self.advance(days=1)
            if day == 1:
                self.restart()
            if day == 3:
                self.kit.kill()
                self.start()
        return self.batches

    def live(self, values: str) -> None:
        """Record a letter each day for all metrics, or nothing where a dot stands, and let the client send once a day."""
        for value in values:
            for metric in self.definitions:
                if value != ".":
                    self.record(metric, value)
            self.set_time(self.aggregator.now + timedelta(days=1))

    def live_without_recording(self, days: int) -> None:
        """Let the client send once a day."""
        self.live("." * days)

    @contextmanager
    def another(self, kit: Kit) -> Iterator[World]:
        """Provide another client of another adapter, with the same definitions and the first time of this one."""
        with new_world(kit, *self.definitions) as world:
            yield world

    def renew_consent(self) -> None:
        """Withdraw consent, and give it again."""
        self.set_consent("off")
        self.set_consent("on")

    def rows(self, metric: Metric) -> dict[str, tuple[bytes, bytes]]:
        """Cohort and bits of the report of each period."""
        return {batch.period: (batch.cohorts, batch.rows) for batch in self.batches if batch.digest == metric.digest}

    def history(self, metric: Metric, first: date, number: int) -> str:
        """Return a letter for each day: equal letters stand for equal reports, in the order of the alphabet, and "-" for none."""
        rows = self.rows(metric)
        days = [rows.get(str(first + timedelta(days=day))) for day in range(number)]
        found = list(dict.fromkeys(row for row in days if row is not None))
        return "".join("-" if row is None else chr(ord("a") + found.index(row)) for row in days)

    def expect_history(self, metric: Metric, first: date, expected: str) -> None:
        """Raise BrokenError unless the reports of the days from the first on are equal as the letters are, see `history`."""
        found = self.history(metric, first, len(expected))
        if found != expected:
            raise BrokenError(
                f"from {first} on, {metric.name} has the reports {found}, and {expected} was expected: equal letters are equal reports, - is none"
            )

    @property
    def today(self) -> date:
        """Day of the aggregator's clock."""
        return self.aggregator.now.date()

    def _now(self) -> str:
        return (self.aggregator.now + self.ahead).isoformat()

    @property
    def batches(self) -> list[Batch]:
        """Batches of all whole requests, each id once. Raises BrokenError for a body that is none, and if nothing was sent."""
        if not self.whole_requests:
            raise BrokenError("nothing was sent")
        return self.batches_of(self.aggregator.requests)

    def batches_of(self, requests: Sequence[Request]) -> list[Batch]:
        """Batches of those requests that are whole, each id once. Raises BrokenError for a body that is none."""
        found: dict[str, Batch] = {}
        for request in requests:
            if not request.is_whole:
                continue
            batch = batch_of(request, (*self.definitions, *self.earlier))
            found.setdefault(str(batch.batch_id), batch)
        return list(found.values())

    @property
    def whole_requests(self) -> list[Request]:
        """Requests that the client did not give up before it had sent them."""
        return [request for request in self.aggregator.requests if request.is_whole]

    def attempts(self, batch_id: str) -> list[Request]:
        """Whole requests with this batch."""
        return [request for request in self.whole_requests if request.batch_id == batch_id]

    def first_request(self, *answers: Answer) -> Request:
        """Agree and record, and return the first request of the report, whose attempts get these answers."""
        self.agree()
        self.record(self.definitions[0], "v1")
        return self.next_request(*answers)

    def next_request(self, *answers: Answer) -> Request:
        """Let time pass until another batch is sent, whose attempts get these answers; return its first request."""
        self.aggregator.answer_next_batch(*answers)
        for _ in range(timedelta(days=2) // _STEP + 1):
            self.advance(hours=6)
            if self.aggregator.scripted_batch is not None:
                return self.attempts(self.aggregator.scripted_batch)[0]
        raise BrokenError("no report was sent two days after it was recorded")


def call(kit: Kit, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Ask the adapter, and return its answer. Raises NotClaimedError, or BrokenError for a refusal."""
    answer = kit.ask(request)
    if answer.get("unknown") is True:
        raise NotClaimedError
    if answer.get("refused") is True:
        raise BrokenError(f"{request['call']} was refused")
    return answer


def batch_of(request: Request, definitions: tuple[Metric, ...]) -> Batch:
    media_type = next((value for name, value in request.headers if name.lower() == "content-type"), "")
    if media_type.partition(";")[0].strip().lower() != CONTENT_TYPE:
        raise BrokenError(f"a request has the content type {media_type!r:.80}, and not {CONTENT_TYPE}")
    try:
        batch = Batch.from_json(request.body)
        unknown = json.loads(request.body).keys() - _FIELDS_OF_A_BODY
        if unknown:
            raise BrokenError(f"a request has the field {min(unknown)!r:.80}, which no batch has")
        for metric in definitions:
            if metric.digest == batch.digest:
                batch.require_fit(metric, 1)
                return batch
    except HubbubError as problem:
        raise BrokenError(f"a request has a body that is no batch of one report: {problem}") from None
    raise BrokenError(f"a request is of a metric that is not defined: {batch.metric!r:.80}")


@contextmanager
def new_world(kit: Kit, *definitions: Metric) -> Iterator[World]:
    """Provide a client without a past."""
    with (
        tempfile.TemporaryDirectory(prefix="hubbub-conformance-", ignore_cleanup_errors=True) as directory,
        ScriptedAggregator() as aggregator,
    ):
        yield World(kit, Path(directory), aggregator, definitions)


Scenario = Callable[[World], None]


@dataclass(frozen=True, slots=True)
class ScenarioRule:
    """A rule that a scenario tests.

    section     : page and section that states the rule
    sentence    : the sentence, as it stands there
    definitions : metrics of the client
    """

    number: int
    title: str
    section: str
    sentence: str
    scenario: Scenario
    definitions: tuple[Metric, ...]

    def run(self, kit: Kit) -> RuleResult:
        """Run the scenario with a new client, and end it."""
        about = self.number, self.title, self.section
        try:
            with new_world(kit, *self.definitions) as world:
                try:
                    self.scenario(world)
                finally:
                    kit.ask({"call": "stop"})
        except NotClaimedError:
            return RuleResult(*about, Verdict.NOT_CLAIMED)
        except BrokenError as problem:
            return RuleResult(*about, Verdict.FAILED, failed=1, counterexample={"happened": str(problem)})
        return RuleResult(*about, Verdict.PASSED)
