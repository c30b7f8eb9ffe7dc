"""Scenarios: what a client sends in days of a scripted clock, and what it must never send or store."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from email.utils import format_datetime
from pathlib import Path

from hubbub.conformance.answers import answers_to_try
from hubbub.conformance.scripted_aggregator import (
    LONGEST_REQUEST_SECONDS,
    Answer,
    Content,
    Delivery,
    Request,
)
from hubbub.conformance.world import FIELDS, BrokenError, ScenarioRule, World, fingerprint
from hubbub.files.regular_files import read_regular
from hubbub.mechanisms.unary import UnaryResponse
from hubbub.metrics.group import Group
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.metrics.periods import PeriodKind
from hubbub.sdk.runtime.clock import EARLIEST_DAY, LATEST_DAY
from hubbub.wire.batch import SINGLE_REPORT_BYTES, Batch
from hubbub.wire.problems import ProblemType

PAGE = Metric.string("page", Params(num_bits=32, num_hashes=1, num_cohorts=8, prob_p=0, prob_q=1, prob_f=0.5), **FIELDS)
"""Its reports are the permanent response."""
DARK = Metric.boolean("dark", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5), **FIELDS)
THEME = Metric.categorical(
    "theme", ("a", "b", "c", "d"), UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), lifetime_epsilon=2.2, **FIELDS
)
"""The limit leaves room for one value."""
UPDATED = Metric.boolean(
    "updated",
    UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5),
    group=Group("version", ("1.x", "2.x", "other")),
    **FIELDS,
)
WEEKLY = replace(UPDATED, name="weekly", period=PeriodKind.WEEK)
HELD_UPDATED = replace(UPDATED, name="held_updated", hold=3)
LABELLED = replace(fingerprint("labelled"), group=UPDATED.group)
EXPIRY = date(2026, 11, 27)
"""Four days after a scenario begins."""
EXPIRING = replace(DARK, name="expiring", expires=EXPIRY)
_RUNS = ((0, "1.9"), (0, "1.8"), (0, "2.0"), (1, "2.1"), (5, "3.0"), (8, "1.9"), (9, "2.0"))
"""Starts of an app: the day after a Monday, and the version."""
_RECORDING = ("2.0", "3.0")
_LABELS = ("1.x", "2.x", "2.x", "2.x", "2.x", "other", "other", "other", "1.x", "2.x", "2.x", "2.x")
_LABELS_OF_WEEKS = ("1.x", "1.x", "2.x")
"""The labels of the days, and of the weeks, that follow."""
_FIRST_TIME, _END_TIME = (datetime.combine(day, time(), UTC) for day in (EARLIEST_DAY, LATEST_DAY + timedelta(days=1)))
"""The first time that a clock may have, and the first that it may not have any more."""
_IMPOSSIBLE = (
    datetime(1970, 1, 1, tzinfo=UTC),
    _FIRST_TIME - timedelta(minutes=61),
    _END_TIME,
    datetime(9999, 12, 31, 22, 59, tzinfo=UTC),
)
"""Times of a clock that cannot be right; an hour later it is still wrong."""
CANARY = "canary-6b1f7a3c9e"


def one_report_a_period(world: World) -> None:
    """Each metric has one report for each day, recorded or not, until it expires."""
    world.agree()
    first = world.aggregator.now.date()
    for _ in range(3):
        world.record(PAGE, "v1")
    for _ in range(6):
        world.advance(days=1)
    reports = Counter((batch.metric, batch.period) for batch in world.batches)
    last = [request for request in world.whole_requests if request.time.date() >= EXPIRY]
    late = next((batch.period for batch in world.batches_of(last) if batch.metric == EXPIRING.name), None)
    if late is not None:
        raise BrokenError(
            f"{EXPIRING.name} expires on {EXPIRY}, and its report of {late} was sent on that day or later"
        )
    for metric in world.definitions:
        for day in (first, first + timedelta(days=1)):
            number = reports[metric.name, str(day)]
            if number != 1:
                raise BrokenError(
                    f"{metric.name} has {number} reports of {day}, where {'three values were' if metric is PAGE and day == first else 'no value was'} recorded"
                )
    repeated = next((key for key, number in reports.items() if number > 1), None)
    if repeated is not None:
        raise BrokenError(f"{repeated[0]} has {reports[repeated]} reports of {repeated[1]}")


def nothing_without_consent(world: World) -> None:
    """Nothing is sent that was recorded before consent, or after its withdrawal."""
    world.start()
    world.record(PAGE, "v1")
    world.advance(days=2)
    if world.aggregator.requests:
        raise BrokenError("a request was sent before consent was given")
    world.set_consent("on")
    world.record(PAGE, "v1")
    world.set_consent("off")
    world.advance(days=2)
    world.restart()
    world.advance(days=2)
    if world.aggregator.requests:
        raise BrokenError("a request was sent after consent was withdrawn")


def same_bytes_again(world: World) -> None:
    """After 503 and 408, and without an answer, the same bytes are sent again until the answer comes, also after a restart."""
    busy, slow = Answer.refusing(ProblemType.UNAVAILABLE), Answer.refusing(ProblemType.TOO_SLOW)
    answers = (busy, Answer(delivery=Delivery.LOST), slow, Answer(delivery=Delivery.RESET)) * 3
    sent = world.first_request(*answers)
    world.advance(hours=6)
    world.restart()
    _wait_for_attempts(world, sent, len(answers) + 1)
    world.advance(days=2)
    _check_attempts(world, sent, "503, a lost answer, 408 and a reset connection", len(answers) + 1)


def gives_up_slow_answers(world: World) -> None:
    """A request ends after ten seconds, whatever comes of its answer, and the same bytes are sent again."""
    sent = world.first_request(Answer(delivery=Delivery.SLOW))
    world.advance(days=1)
    if world.aggregator.has_waiting:
        raise BrokenError(
            f"a request still ran after {LONGEST_REQUEST_SECONDS:g} seconds, in which the answer came byte by byte: it may take ten"
        )
    _check_attempts(world, sent, "an answer without an end", 2)


def sets_large_reports_aside(world: World) -> None:
    """After 413 a report is not sent again, also if it may have been stored: it would be refused again and again."""
    too_large = Answer.refusing(ProblemType.TOO_LARGE)
    refused = world.first_request(too_large)
    world.advance(days=1)
    in_doubt = world.next_request(Answer(delivery=Delivery.LOST), too_large)
    world.advance(days=2)
    if len(world.attempts(refused.batch_id)) > 1:
        raise BrokenError("a report was sent again after 413")
    if len(world.attempts(in_doubt.batch_id)) > 2:
        raise BrokenError("a report was sent again after a lost answer and 413")


ANSWERED = tuple(
    Metric.boolean(f"answered_{number}", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.9), **FIELDS)
    for number in range(4)
)
"""Metrics with four batches a day: after a failure, one that waits can be sent a day later."""
_LONGEST_DAYS = 120


def believes_only_the_aggregator(world: World) -> None:
    """After each answer a report is sent again, unless the answer is an aggregator's own and final."""
    cases = {case.answer: case for case in answers_to_try()}
    # the answer that ends all batches of a metric comes first, when none waits to be sent again
    world.aggregator.answer_first_attempts(*sorted(cases, key=lambda answer: cases[answer].action != "drop-metric"))
    world.agree()
    given = world.aggregator.first_answers
    for _ in range(_LONGEST_DAYS):
        for _ in range(24):
            world.set_time(world.aggregator.now + timedelta(hours=1))
        kept = (batch_id for batch_id, answer in given.items() if not cases[answer].is_final)
        if len(given) == len(cases) and all(len(world.attempts(batch_id)) > 1 for batch_id in kept):
            break
    world.advance(days=3)  # in which none that ended is sent again
    if len(given) < len(cases):
        raise BrokenError(f"{len(given)} batches were sent in the days in which {len(cases)} should have been")
    for batch_id, answer in given.items():
        attempts, case = world.attempts(batch_id), cases[answer]
        if case.is_final and len(attempts) > 1:
            raise BrokenError(f"a report was sent again after {case.description}, which is final")
        if not case.is_final and len(attempts) < 2:
            raise BrokenError(f"a report was not sent again after {case.description}, which decides nothing")
        if any(request.body != attempts[0].body for request in attempts):
            raise BrokenError(f"a report was sent again with other bytes after {case.description}")


def _wait_for_attempts(world: World, sent: Request, number: int) -> None:
    """Let days pass until a batch was sent this number of times: after an answer to another batch, it may wait for a day each time."""
    for _ in range(2 * number):
        if len(world.attempts(sent.batch_id)) >= number:
            return
        world.advance(days=1)


def _check_attempts(world: World, sent: Request, answers: str, number: int) -> None:
    """Raise BrokenError unless the bytes of a request were sent this number of times: after each of these answers, and no more."""
    attempts = world.attempts(sent.batch_id)
    if len(attempts) < number:
        raise BrokenError(
            f"a batch was sent {len(attempts)} times, after {answers}: it must be sent until 200 or 202 comes"
        )
    if any(request.body != sent.body for request in attempts):
        raise BrokenError(
            "a batch was sent again with other bytes: its noise was drawn again, or its id stands for two contents"
        )
    if len(attempts) > number:
        raise BrokenError("a batch was sent again after 200")


def waits_as_asked(world: World) -> None:
    """After Retry-After of any answer, in seconds or as a date, nothing is sent before that time, of an hour at most."""
    late = format_datetime(world.aggregator.now + timedelta(days=300), usegmt=True)
    world.agree()
    for status, answer in (
        ("429", Answer.refusing(ProblemType.TOO_MANY, ("Retry-After", "7200"))),
        ("503", Answer.refusing(ProblemType.UNAVAILABLE, ("Retry-After", late))),
        ("504 of a proxy", Answer(504, (("Retry-After", "864000"),), Content("text/html", "<p>Gateway Timeout</p>"))),
    ):
        sent = world.next_request(answer)
        world.set_time(sent.time + timedelta(minutes=59))
        if len(world.attempts(sent.batch_id)) > 1:
            raise BrokenError(f"a batch was sent again within an hour after {status} with {answer.headers[0][1]}")
        _wait_for_attempts(world, sent, 2)
        if len(world.attempts(sent.batch_id)) < 2:
            raise BrokenError(f"a batch was not sent again within days after {status} with {answer.headers[0][1]}")


def drops_closed_periods(world: World) -> None:
    """After 410 of a closed period its batch is not sent again, unless the clocks differ; after that of a metric, none of the metric."""
    world.ahead = -timedelta(hours=36)
    kept = [
        world.first_request(Answer.refusing(ProblemType.PERIOD_CLOSED)),
        world.next_request(Answer.refusing(ProblemType.METRIC_EXPIRED)),
    ]
    world.ahead = timedelta()
    world.restart()
    for _ in range(2):
        world.advance(days=1)
    if any(len(world.attempts(request.batch_id)) < 2 for request in kept):
        raise BrokenError("a batch was dropped after an answer whose Date differs from the clock by 36 hours")
    sent = world.next_request(Answer.refusing(ProblemType.PERIOD_CLOSED))
    for _ in range(3):
        world.advance(days=1)
    if len(world.attempts(sent.batch_id)) > 1:
        raise BrokenError("a batch was sent again after 410 period-closed")
    world.aggregator.outage = Answer.refusing(ProblemType.UNAUTHORIZED)
    world.live_without_recording(3)
    before = len(world.whole_requests)
    world.aggregator.outage = Answer.refusing(ProblemType.METRIC_EXPIRED)
    world.set_time(world.aggregator.now + timedelta(hours=2))
    refused = world.whole_requests[before:]
    world.aggregator.outage = None
    world.live_without_recording(2)
    again = world.whole_requests[before + len(refused) :]
    if refused and any(
        batch.period <= str(refused[0].time.date() - timedelta(days=2)) for batch in world.batches_of(again)
    ):
        raise BrokenError("a batch was sent after another one of its metric was refused with 410 metric-expired")


def follows_no_redirect(world: World) -> None:
    """A redirect is no answer: nothing is sent to its address, and the batch is sent again."""
    sent = world.first_request(Answer(307, (("Location", "/elsewhere"),)))
    _wait_for_attempts(world, sent, 2)
    if any(request.path != "/v1/reports" for request in world.aggregator.requests):
        raise BrokenError("a request followed a redirect")
    if len(world.attempts(sent.batch_id)) < 2:
        raise BrokenError("a batch was not sent again after a redirect")


def one_identity(world: World) -> None:
    """The permanent response of a value stays the same over days, an end and a kill, and no period is reported twice."""
    batches = world.days_of(PAGE, ["v1"] * 6)
    if len({batch.rows for batch in batches}) > 1 or len({batch.cohorts for batch in batches}) > 1:
        raise BrokenError("the permanent response or the cohort of one value changed")
    _check_each_day(world, batches)


def budget_outlives_restarts(world: World) -> None:
    """With a limit for one value, all reports repeat it, whatever is recorded, also after an end and a kill."""
    batches = world.days_of(THEME, "abcdab")
    rows = {batch.rows for batch in batches}
    if len(rows) > 1:
        raise BrokenError(f"{len(rows)} permanent responses were sent, and lifetime_epsilon has room for one value")
    _check_each_day(world, batches)


def _check_each_day(world: World, batches: list[Batch]) -> None:
    """Raise BrokenError unless each day but the last two has one report."""
    today = world.aggregator.now.date()
    reports = Counter(batch.period for batch in batches)
    for ago in range(2, 7):
        day = str(today - timedelta(days=ago))
        if reports[day] != 1:
            raise BrokenError(f"there are {reports[day]} reports of {day}, {ago} days later")


def survives_its_clock(world: World) -> None:
    """A clock that is set back reopens no period that was reported, whatever was answered, that waits, or that may have been reported before a withdrawal."""
    world.agree()
    began = world.aggregator.now
    world.record(PAGE, "v1")
    world.advance(days=3)
    world.set_time(began)
    world.record(PAGE, "v2")
    world.restart()
    for day in range(1, 6):
        world.set_time(began + timedelta(days=day))
    lost = Answer(delivery=Delivery.LOST)
    _run_ahead(world, lost)
    _run_ahead(world, Answer.refusing(ProblemType.PERIOD_NOT_STARTED))
    _run_ahead(world, lost, withdraws=True)
    reports = Counter((batch.metric, batch.period) for batch in world.batches)
    repeated = next((key for key, number in reports.items() if number > 1), None)
    if repeated is not None:
        raise BrokenError(
            f"{repeated[0]} has {reports[repeated]} reports of {repeated[1]}, after the clock was set back"
        )


def _run_ahead(world: World, outage: Answer, *, withdraws: bool = False) -> None:
    """Let a client run four days ahead, with attempts that fail, and then for a week with the right time.

    withdraws : whether consent is withdrawn and given again before the clock is right
    """
    world.aggregator.outage = outage
    world.ahead = timedelta(days=4)
    world.restart()
    for _ in range(3):
        world.set_time(world.aggregator.now + timedelta(hours=2))
    if withdraws:
        world.renew_consent()
    world.aggregator.outage, world.ahead = None, timedelta()
    world.restart()
    world.live_without_recording(7)


def keeps_values_to_itself(world: World) -> None:
    """A value is in no request, and in no file of the directory."""
    world.agree()
    world.record(PAGE, CANARY)
    _check_files(world.directory)
    world.advance(days=2)
    world.restart()
    _check_files(world.directory)
    _ = world.batches
    for request in world.aggregator.requests:
        if CANARY.encode() in request.body or any(CANARY in value for header in request.headers for value in header):
            raise BrokenError("a request has the recorded value in clear")


def _check_files(directory: Path) -> None:
    for path in directory.rglob("*"):
        with suppress(OSError):  # no file, or deleted meanwhile
            if CANARY.encode() in read_regular(path):
                raise BrokenError(f"{path.name} has the recorded value in clear")


def requests_of_one_length(world: World) -> None:
    """Requests of one report have one length, and headers that identify nobody."""
    world.agree()
    for value in ("v", "a longer value " * 20):
        world.record(PAGE, value)
        world.advance(days=1)
    world.advance(days=1)
    _ = world.batches
    lengths = {len(request.body) for request in world.whole_requests}
    if lengths - {SINGLE_REPORT_BYTES}:
        raise BrokenError(
            f"bodies have {', '.join(map(str, sorted(lengths)))} bytes, and must have {SINGLE_REPORT_BYTES}"
        )
    if (
        len(
            {
                tuple(sorted((name.lower(), len(value)) for name, value in request.headers))
                for request in world.aggregator.requests
            }
        )
        > 1
    ):
        raise BrokenError("headers differ from request to request")
    with world.kit.beside() as kit, world.another(kit) as other:
        other.agree()
        other.advance(days=2)
        different = _headers(world) ^ _headers(other)
        other.stop()
    if different:
        raise BrokenError(f"two clients send the header {min(different)[0]} with different values")
    for request in world.aggregator.requests:
        revealing = next((name for name, _ in request.headers if name.lower() in ("cookie", "referer")), None)
        if revealing is not None:
            raise BrokenError(f"a request has the header {revealing}")


def _headers(world: World) -> set[tuple[str, str]]:
    """Headers of all requests, but for the addresses of the aggregator and of the page."""
    return {
        (name.lower(), value)
        for request in world.aggregator.requests
        for name, value in request.headers
        if name.lower() not in ("host", "origin")
    }


def labels_of_the_runs(world: World) -> None:
    """A period has the label of the first run in it, and without one that of the last run before it, whatever is recorded or held."""
    first = world.aggregator.now.date()
    first -= timedelta(days=first.weekday())
    world.aggregator.now = datetime.combine(first, time(9), UTC)
    for started, (day, version) in enumerate(_RUNS):
        if started:
            world.stop()
        world.aggregator.now = datetime.combine(first + timedelta(days=day), time(9 + started), UTC)
        world.groups = {"version": version}
        world.start()
        if not started:
            world.set_consent("on")
        if version in _RECORDING:
            world.record(UPDATED, True)
            world.record(HELD_UPDATED, True)
        world.record(LABELLED, "a")
    world.advance(days=22)
    renewed = world.today
    world.groups = {"version": "1.9"}
    world.restart()
    world.renew_consent()
    world.advance(days=2)
    corrected = world.today
    for ahead, version in ((3, "2.0"), (0, "1.9")):
        world.ahead, world.groups = timedelta(days=ahead), {"version": version}
        world.restart()
    world.advance(days=6)
    permanent = {world.rows(LABELLED).get(str(first + timedelta(days=day))) for day, _ in _RUNS}
    if len(permanent) > 1:
        raise BrokenError("reports of one value with different labels have different permanent responses")
    labels = {(batch.metric, batch.period): batch.group for batch in world.batches}
    expected = {
        (metric.name, str(first + timedelta(days=day))): label
        for metric in (UPDATED, HELD_UPDATED)
        for day, label in enumerate(_LABELS)
    }
    expected |= {
        (WEEKLY.name, str(first + timedelta(weeks=week))): label for week, label in enumerate(_LABELS_OF_WEEKS)
    }
    # a withdrawal forgets the runs before it, and a clock that is set back those from then on
    expected |= {(UPDATED.name, str(day)): _LABELS[0] for day in (renewed, corrected + timedelta(days=3))}
    for key, label in expected.items():
        if labels.get(key) != label:
            raise BrokenError(
                f"{key[0]} has the label {labels.get(key)} in the period {key[1]}, and {label} is that of its first run, or else of the last run before it"
            )


def waits_for_a_possible_clock(world: World) -> None:
    """A client whose clock cannot be right makes no report of these days, nor of the days up to the first possible one."""
    right = _FIRST_TIME
    for started, wrong in enumerate(_IMPOSSIBLE):
        world.aggregator.now = wrong
        if started:
            world.restart()
        else:
            world.agree()
        world.record(DARK, True)
        world.set_time(wrong + timedelta(hours=1))
    world.set_time(right)
    world.record(DARK, True)
    for _ in range(3):
        world.advance(days=1)
    first = str(right.date())
    early = next(
        (batch for batch in world.batches if not first <= batch.period <= str(world.aggregator.now.date())), None
    )
    if early is not None:
        raise BrokenError(
            f"{early.metric} has a report of {early.period}, and the first day with a possible clock was {first}"
        )
    if not any((batch.metric, batch.period) == (DARK.name, first) for batch in world.batches):
        raise BrokenError(f"there is no report of {first}, the first day with a possible clock")


RULES = (
    ScenarioRule(
        101,
        "one report for each metric and period",
        "client.md, Lifecycle of a report",
        "A metric sends one request per period, however often it records.",
        one_report_a_period,
        (PAGE, DARK, EXPIRING),
    ),
    ScenarioRule(
        102,
        "nothing without consent",
        "client.md, Consent",
        "records nothing and sends nothing.",
        nothing_without_consent,
        (PAGE, DARK),
    ),
    ScenarioRule(
        103,
        "the same bytes until an answer comes",
        "format.md, Batches",
        "Without an [answer of the aggregator](#answers-to-a-batch), a client sends the same bytes again under the same id.",
        same_bytes_again,
        (PAGE,),
    ),
    ScenarioRule(
        104,
        "waits as long as the aggregator asks",
        "client.md, Retry policy",
        "retry the same bytes after a backoff (full jitter, 30 s doubling to 1 h, added to Retry-After of up to 1 h; kept across restarts)",
        waits_as_asked,
        (PAGE,),
    ),
    ScenarioRule(
        105,
        "drops batches of closed periods",
        "client.md, Retry policy",
        "drop the batch",
        drops_closed_periods,
        (PAGE,),
    ),
    ScenarioRule(
        106,
        "follows no redirect",
        "format.md, Batches",
        "An answer is the aggregator's own only if it is one of these:",
        follows_no_redirect,
        (PAGE,),
    ),
    ScenarioRule(
        107,
        "one secret over restarts and kills",
        "format.md, Streams derived from the secret",
        "A stream is SHAKE-256 over framed(domain), framed(secret, 32 bytes), and the framed fields that follow.",
        one_identity,
        (PAGE,),
    ),
    ScenarioRule(
        108,
        "the ledger outlives restarts and kills",
        "client.md, Ledger",
        "The ledger records the epsilon that this client has spent, per metric definition.",
        budget_outlives_restarts,
        (THEME,),
    ),
    ScenarioRule(
        109,
        "a clock that is set back",
        "client.md, Clock errors",
        "No period is sent twice,",
        survives_its_clock,
        (PAGE, DARK),
    ),
    ScenarioRule(
        110,
        "no value in clear",
        "threat-model.md, Assets",
        "randomization before anything is sent; the user's account; no value is in logs or errors",
        keeps_values_to_itself,
        (PAGE,),
    ),
    ScenarioRule(
        111,
        "requests of one length",
        "format.md, Batches",
        "A client should send a single report uncompressed, and pad its body with spaces after the closing brace to 512 bytes.",
        requests_of_one_length,
        (PAGE, DARK),
    ),
    ScenarioRule(
        112,
        "gives up an answer after ten seconds",
        "client.md, Shutdown",
        "A request takes at most ten seconds, and the host app never waits for it.",
        gives_up_slow_answers,
        (PAGE,),
    ),
    ScenarioRule(
        113,
        "sets a report aside that is too large",
        "client.md, Retry policy",
        "split into halves with new ids; quarantine a single report",
        sets_large_reports_aside,
        (PAGE,),
    ),
    ScenarioRule(
        115,
        "only the aggregator's own answer is final",
        "format.md, Answers to a batch",
        "A client ends a report only after an answer of the aggregator that [is final](../how-to/client.md#retry-policy).",
        believes_only_the_aggregator,
        ANSWERED,
    ),
    ScenarioRule(
        116,
        "labels of periods with and without a run",
        "format.md, Labels",
        "So the label of a period does not depend on what was recorded, and does not say whether the app ran in it.",
        labels_of_the_runs,
        (UPDATED, HELD_UPDATED, WEEKLY, LABELLED),
    ),
    ScenarioRule(
        117,
        "a clock that cannot be right",
        "format.md, Clock rules",
        "The client records nothing, makes no report and notes no run.",
        waits_for_a_possible_clock,
        (PAGE, DARK),
    ),
)
