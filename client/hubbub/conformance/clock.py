"""Scenarios of time: epochs that come again, days without a run, outages, and when a report leaves."""

from __future__ import annotations

import time as machine_time
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, time, timedelta
from itertools import pairwise

from hubbub.conformance.noise import FALSE_ALARM, is_refuted
from hubbub.conformance.scripted_aggregator import Answer, Request
from hubbub.conformance.world import FIELDS, BrokenError, ScenarioRule, World, fingerprint
from hubbub.mechanisms.unary import UnaryResponse
from hubbub.metrics.group import Group
from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import Period, PeriodKind
from hubbub.wire.problems import ProblemType

_DAY = timedelta(days=1)
_NOISE = UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.9)
_HELD = fingerprint("held", hold=7)
_ONE = Metric.boolean("one", _NOISE, **FIELDS)
_LABELLED = Metric.boolean("labelled", _NOISE, group=Group("version", ("1.x", "2.x", "other")), **FIELDS)
_DAILY = tuple(Metric.boolean(f"daily_{number}", _NOISE, **FIELDS) for number in range(16))
_WEEKLY = tuple(Metric.boolean(f"weekly_{number}", _NOISE, period=PeriodKind.WEEK, **FIELDS) for number in range(24))
_MONTHLY = tuple(Metric.boolean(f"monthly_{number}", _NOISE, period=PeriodKind.MONTH, **FIELDS) for number in range(60))
_POLL, _MOST_POLLS = timedelta(minutes=10), 480
_GROWING_BACKOFFS, _LONGEST_BACKOFFS = 8, 12
"""Backoffs up to 30 s, 1 min, ..., 1 h, and those up to 1 h after them: all end in one part of six by chance once in 4e8.

As many follow that are added to a Retry-After of 1 h.
"""
_BACKGROUND_SECONDS = 1.0
"""Time in which a client that sends late reports at once does so. A longer time finds no correct client faulty."""


def draws_anew_in_a_revisited_epoch(world: World) -> None:
    """After a clock was ahead, an earlier epoch is one more unit, with a permanent response of its own."""
    world.policy = {"epsilon_enrollment": 60, "epsilon_metric": 60}
    world.aggregator.now += timedelta(days=-(world.today.toordinal() - _FIRST_DAY) % 7)
    first = world.today
    world.agree()
    world.live("aa.")
    world.ahead = timedelta(days=60)
    world.restart()
    world.record(_HELD, "a")
    world.ahead = timedelta()
    world.restart()
    world.live("aaaa..")
    rows = world.rows(_HELD)
    before, after = rows.get(str(first)), rows.get(str(first + 4 * _DAY))
    if before is None or after is None:
        raise BrokenError(
            f"there is no report of {first}, or of {first + 4 * _DAY}, after the clock was ahead meanwhile"
        )
    if before == after:
        raise BrokenError("the permanent response of an epoch was used again, after the clock was ahead and set back")
    world.expect_history(_HELD, first + 4 * _DAY, "aaa")


_FIRST_DAY = 719163
"""1970-01-01, as `date.toordinal` counts."""


def notes_no_run_behind(world: World) -> None:
    """A start with a clock behind a confirmed time fixes no label."""
    world.groups = {"version": "1.0"}
    world.agree()
    world.live(".....")
    world.ahead = -3 * _DAY
    world.groups = {"version": "2.0"}
    world.restart()
    world.set_time(world.aggregator.now + timedelta(hours=1))
    world.stop()
    world.ahead = timedelta()
    following = world.today + _DAY
    world.aggregator.now += 3 * _DAY
    world.groups = {"version": "1.0"}
    world.start()
    world.live("...")
    labels = {batch.period: batch.group for batch in world.batches}
    if labels.get(str(following)) != "1.x":
        raise BrokenError(
            f"{following} has the label {labels.get(str(following))}, of a start whose clock was three days behind a confirmed time"
        )


def sends_no_future_days(world: World) -> None:
    """Reports of days that a wrong clock was in are not sent once the clock is right, and those of the days before are."""
    world.agree()
    _run_ahead(world)
    day = world.today
    # its report was made, and its time has not come
    world.set_time(world.aggregator.now.replace(hour=0, minute=1) + _DAY)
    if str(day) not in {batch.period for batch in world.batches_of(_run_ahead(world))}:
        raise BrokenError(f"the report of {day} was dropped while the clock was 60 days ahead")


def _run_ahead(world: World) -> list[Request]:
    """Let a client run 60 days ahead, and then for days without an error; return what it sends in these. Raises BrokenError for a future day."""
    world.aggregator.outage = Answer.refusing(ProblemType.UNAUTHORIZED)
    world.ahead = timedelta(days=60)
    world.restart()
    for _ in range(4):
        world.set_time(world.aggregator.now + timedelta(hours=2))
    world.ahead = timedelta()
    world.aggregator.outage = None
    began = len(world.aggregator.requests)
    world.restart()
    for _ in range(4):
        world.set_time(world.aggregator.now + _DAY)
    _ = world.batches
    sent = world.aggregator.requests[began:]
    for request in sent:
        for batch in world.batches_of([request]):
            if batch.period > str(request.time.date()):
                raise BrokenError(f"a report of {batch.period} was sent on {request.time.date()}")
    return sent


def reports_days_without_a_run(world: World) -> None:
    """The next start makes the reports of the last 28 days, and of no earlier one."""
    world.agree()
    world.live("..")
    stopped = world.today
    world.stop()
    world.aggregator.now += timedelta(days=45)
    now = world.today
    world.start()
    for _ in range(3):
        world.set_time(world.aggregator.now + timedelta(hours=1))
    reports = Counter(batch.period for batch in world.batches)
    for ago in range(2, 28):
        number = reports[str(now - ago * _DAY)]
        if number != 1:
            raise BrokenError(
                f"there are {number} reports of the day {ago} days before a start, when the app did not run"
            )
    old = [str(now - ago * _DAY) for ago in range(29, 45) if now - ago * _DAY > stopped]
    early = next((day for day in old if reports[day]), None)
    if early is not None:
        raise BrokenError(f"a start on {now} made a report of {early}, more than 28 days before")


def ends_old_reports(world: World) -> None:
    """A report is kept through an outage, and not sent 28 days after its period; the reports do not leave together when it ends."""
    world.agree()
    first = world.today
    world.aggregator.outage = Answer.refusing(ProblemType.UNAVAILABLE)
    world.live("." * 29)
    world.aggregator.outage = None
    began, ended = len(world.aggregator.requests), world.aggregator.now
    for _ in range(16):
        world.advance(hours=6)
    late = {batch.period for batch in world.batches_of(world.aggregator.requests[began:])}
    if str(first) in late:
        raise BrokenError(f"the report of {first} was sent on {world.today}, 28 days after its period")
    missing = next((day for day in (first + ago * _DAY for ago in range(3, 28)) if str(day) not in late), None)
    if missing is not None:
        raise BrokenError(f"the report of {missing} was not kept through an outage that ended on {first + 29 * _DAY}")
    times = [
        request.time
        for request in world.whole_requests
        if request.time > ended and world.batches_of([request])[0].period < str(ended.date() - _DAY)
    ]
    together = max(Counter(times).values())
    if together > len(times) - 3:
        raise BrokenError(f"{together} of {len(times)} reports left together after an outage")


def spreads_reports_over_a_day(world: World) -> None:
    """Daily reports leave at random times of the next day, each metric's at its own."""
    world.agree()
    first = world.today
    for _ in range(5):
        world.advance(days=1)
    quarters = _parts_of_arrival(world, timedelta(hours=6), 4)
    _check_spread(quarters, first, 3, 4, "quarter of the next day")


def spreads_reports_over_a_week(world: World) -> None:
    """Weekly reports leave on random days of the next week."""
    world.agree()
    first = world.today - timedelta(days=world.today.weekday())
    world.live("." * 16)
    days = _parts_of_arrival(world, _DAY, 7)
    _check_spread(days, first, 1, 7, "day of the next week")


def spreads_reports_over_two_weeks(world: World) -> None:
    """Monthly reports leave on random days of the first two weeks of the next month."""
    world.agree()
    first = world.today.replace(day=1)
    world.live("." * 36)
    days = _parts_of_arrival(world, _DAY, 14)
    _check_spread(days, first, 1, 14, "day of the next month")


def _parts_of_arrival(world: World, part: timedelta, number: int) -> dict[str, list[int]]:
    """Return the part of the following period in which each report came, by period. Raises BrokenError for an earlier or later one."""
    parts: dict[str, list[int]] = {}
    seen: set[str] = set()
    for request in world.whole_requests:
        (batch,) = world.batches_of([request])
        if str(batch.batch_id) in seen:
            continue
        seen.add(str(batch.batch_id))
        kind = next(metric.period for metric in world.definitions if metric.digest == batch.digest)
        ended = datetime.combine(
            Period(datetime.fromisoformat(batch.period).date(), kind).next().start, time(), request.time.tzinfo
        )
        found = -(-(request.time - ended) // part)  # the client sent within the part that ends with this request
        if not 0 < found <= number + 1:
            raise BrokenError(f"the report of {batch.period} was sent at {request.time}")
        parts.setdefault(batch.period, []).append(min(found, number) - 1)
    return parts


def _check_spread(parts: dict[str, list[int]], first: object, periods: int, number: int, words: str) -> None:
    named = [parts.get(period, []) for period in sorted(parts) if period >= str(first)][:periods]
    if len(named) < periods or any(len(found) < len(_DAILY) for found in named):
        raise BrokenError(f"there are reports of {len(named)} periods, with {[len(found) for found in named]} reports")
    if all(len(set(found)) == 1 for found in named):
        raise BrokenError(f"all reports of a period left in one {words}")
    counts = Counter(part for found in named for part in found)
    for until in range(1, number):
        early = sum(counts[part] for part in range(until))
        if is_refuted(early, counts.total(), until / number, FALSE_ALARM / number):
            raise BrokenError(f"{early} of {counts.total()} reports left up to the {words} with number {until}")


def sends_late_reports_later(world: World) -> None:
    """Reports whose time passed while the app did not run do not leave together at its start, and leave within the hour."""
    world.agree()
    first = world.today
    world.set_time(datetime.combine(first + _DAY, time(0, 1), world.aggregator.now.tzinfo))
    world.stop()
    world.aggregator.now += 3 * _DAY
    sent = len(world.aggregator.requests)
    world.start()
    end = machine_time.monotonic() + _BACKGROUND_SECONDS
    while machine_time.monotonic() < end and len(world.aggregator.requests) == sent:
        machine_time.sleep(0.02)
    if len(world.aggregator.requests) > sent:
        raise BrokenError("a late report was sent at the start of the app")
    for hours in (2, 1, 1):  # a busy machine may give up one of the attempts
        world.set_time(world.aggregator.now + timedelta(hours=hours))
    reports = Counter(batch.period for batch in world.batches)
    for day in (first, first + _DAY, first + 2 * _DAY):
        if reports[str(day)] != len(_DAILY):
            raise BrokenError(
                f"{reports[str(day)]} of {len(_DAILY)} reports of {day} were sent four hours after a start"
            )


def waits_after_a_failure(world: World) -> None:
    """After a failure, a client waits before it sends again, also after a restart: in the end any part of an hour, added to Retry-After."""
    busy, late = (Answer.refusing(ProblemType.UNAVAILABLE, *headers) for headers in ((), (("Retry-After", "3600"),)))
    answers = [busy] * (_GROWING_BACKOFFS + _LONGEST_BACKOFFS) + [late] * _LONGEST_BACKOFFS
    number = len(answers)
    world.aggregator.answer_next_batch(*answers)
    world.agree()
    for _ in range(14):
        world.set_time(world.aggregator.now + _DAY)
        if world.aggregator.scripted_batch is not None:
            break
    sent = world.aggregator.scripted_batch
    if sent is None:
        raise BrokenError("no report of a week was sent in the next week")
    world.restart()
    world.set_time(world.aggregator.now)
    for _ in range(_MOST_POLLS):
        world.set_time(world.aggregator.now + _POLL)
        if len(world.attempts(sent)) > number:
            break
    times = [request.time for request in world.attempts(sent)]
    if len(set(times)) < len(times):
        raise BrokenError("a batch was sent again at the time of its failure, without a backoff")
    if len(times) <= number:
        raise BrokenError(f"a batch was sent {len(times)} times in {_MOST_POLLS * _POLL} of an outage")
    for words, first in (("", _GROWING_BACKOFFS), (" after Retry-After: 3600", _GROWING_BACKOFFS + _LONGEST_BACKOFFS)):
        waits = {after - before for before, after in pairwise(times[first : first + _LONGEST_BACKOFFS + 1])}
        if len(waits) == 1:
            wait = waits.pop()
            raise BrokenError(
                f"{_LONGEST_BACKOFFS} backoffs{words} all took {wait - _POLL} to {wait}, and random parts of an hour are expected"
            )


def pauses_all_uploads(world: World) -> None:
    """After `unauthorized`, and after `forbidden`, no report leaves for an hour."""
    world.agree()
    for problem in (ProblemType.UNAUTHORIZED, ProblemType.FORBIDDEN):
        sent = world.next_request(Answer.refusing(problem))
        _check_pause(world, sent.time, timedelta(minutes=59), world.definitions, problem.slug)


def holds_a_metric(world: World) -> None:
    """After `digest-mismatch` no report of the metric leaves for a day, after `unknown-metric` for an hour, and others leave."""
    world.agree()
    for problem, pause in (
        (ProblemType.UNKNOWN_METRIC, timedelta(minutes=59)),
        (ProblemType.DIGEST_MISMATCH, timedelta(hours=23, minutes=59)),
    ):
        sent = world.next_request(Answer.refusing(problem))
        held = [metric for metric in world.definitions if metric.digest == world.batches_of([sent])[0].digest]
        _check_pause(world, sent.time, pause, held, problem.slug)
        world.redefine(*_DAILY)
        world.advance(days=2)
    if not any(sent.time < request.time <= sent.time + pause for request in world.whole_requests):
        raise BrokenError("no metric had a report on the day after digest-mismatch for one of them")


def _check_pause(world: World, since: datetime, pause: timedelta, metrics: Iterable[Metric], problem: str) -> None:
    digests = {metric.digest for metric in metrics}
    for part in range(1, 5):
        world.set_time(since + pause * part / 4)
    for request in world.whole_requests:
        if since < request.time <= since + pause and world.batches_of([request])[0].digest in digests:
            raise BrokenError(f"a report was sent {request.time - since} after {problem}")
    world.advance(days=2)
    if not any(request.time > since + pause for request in world.aggregator.requests):
        raise BrokenError(f"no report was sent after the pause of {problem}")


RULES = (
    ScenarioRule(
        134,
        "a permanent response for each visit of an epoch",
        "format.md, Epochs",
        "No two units share a permanent response.",
        draws_anew_in_a_revisited_epoch,
        (_HELD,),
    ),
    ScenarioRule(
        135,
        "no run of a clock that is behind",
        "format.md, Labels",
        "A run under a clock that the [clock rules](#clock-rules) exclude does not count.",
        notes_no_run_behind,
        (_LABELLED,),
    ),
    ScenarioRule(
        136,
        "no report of a future day",
        "format.md, Clock rules",
        "A batch of a period that begins later than this from now was made under a wrong clock. It is not sent before.",
        sends_no_future_days,
        (_ONE,),
    ),
    ScenarioRule(
        137,
        "days without a run",
        "client.md, Lifecycle of a report",
        "At its next start it makes the batches of periods in which the app did not run, up to 28 days back.",
        reports_days_without_a_run,
        (_ONE,),
    ),
    ScenarioRule(
        138,
        "a backoff after each failure",
        "client.md, Retry policy",
        "retry the same bytes after a backoff (full jitter, 30 s doubling to 1 h, added to Retry-After of up to 1 h; kept across restarts)",
        waits_after_a_failure,
        _WEEKLY[:1],
    ),
    ScenarioRule(
        139,
        "a random time of the next day",
        "client.md, Lifecycle of a report",
        "A background thread sends the batch at a random time of the next period.",
        spreads_reports_over_a_day,
        _DAILY,
    ),
    ScenarioRule(
        140,
        "a random time of the next week",
        "client.md, Lifecycle of a report",
        "A background thread sends the batch at a random time of the next period.",
        spreads_reports_over_a_week,
        _WEEKLY,
    ),
    ScenarioRule(
        149,
        "a random time of the first two weeks after a month",
        "client.md, Lifecycle of a report",
        "Batches of a month leave within 14 days of it",
        spreads_reports_over_two_weeks,
        _MONTHLY,
    ),
    ScenarioRule(
        141,
        "late reports",
        "client.md, Lifecycle of a report",
        "If the app was not running then, it sends the batch at a random time of the first hour after the next start, or at the start after that.",
        sends_late_reports_later,
        _DAILY,
    ),
    ScenarioRule(
        142,
        "the end of a kept report",
        "client.md, Retry policy",
        "A kept batch ends when the aggregator answers `period-closed`, 28 days after its period (`age`), or beyond the [limits](#constructor-options) of the queue (`quota`).",
        ends_old_reports,
        (_ONE,),
    ),
    ScenarioRule(
        143,
        "a pause of all uploads",
        "client.md, Retry policy",
        "pause all uploads for an hour",
        pauses_all_uploads,
        _DAILY[:4],
    ),
    ScenarioRule(
        144,
        "a pause of one metric",
        "client.md, Retry policy",
        "pause the metric for a day: deploy the aggregator's definitions first",
        holds_a_metric,
        _DAILY[:1],
    ),
)
