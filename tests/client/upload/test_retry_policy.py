"""Retry policy: every row of the table."""

from __future__ import annotations

from uuid import UUID

import pytest

from hubbub.conformance.answers import answer_cases
from hubbub.sdk.upload.retry_policy import (
    Action,
    UploadResponse,
    aggregator_date,
    backoff_seconds,
    decide,
    is_clock_wrong,
    retry_after_seconds,
)
from hubbub.testing import SeededBytes
from hubbub.wire.batch import Batch
from hubbub.wire.problems import ProblemType

A = Action
#   problem type                 of one report        of several           of several, in doubt
TABLE = [
    ("malformed", A.QUARANTINE, A.QUARANTINE, A.QUARANTINE),
    ("not-http", A.PAUSE, A.PAUSE, A.PAUSE),
    ("unauthorized", A.PAUSE, A.PAUSE, A.PAUSE),
    ("forbidden", A.PAUSE, A.PAUSE, A.PAUSE),
    ("cross-site", A.PAUSE, A.PAUSE, A.PAUSE),
    ("not-found", A.PAUSE, A.PAUSE, A.PAUSE),
    ("unknown-metric", A.PAUSE_METRIC, A.PAUSE_METRIC, A.PAUSE_METRIC),
    ("method-not-allowed", A.PAUSE, A.PAUSE, A.PAUSE),
    ("too-slow", A.RETRY, A.RETRY, A.RETRY),
    ("digest-mismatch", A.HOLD_METRIC, A.HOLD_METRIC, A.HOLD_METRIC),
    ("period-closed", A.DROP_BATCH, A.DROP_BATCH, A.DROP_BATCH),
    ("metric-expired", A.DROP_METRIC, A.DROP_METRIC, A.DROP_METRIC),
    ("too-large", A.QUARANTINE, A.SPLIT, A.QUARANTINE),
    ("unsupported-media-type", A.PAUSE, A.PAUSE, A.PAUSE),
    ("cohort-out-of-range", A.QUARANTINE, A.QUARANTINE, A.QUARANTINE),
    ("wrong-group", A.QUARANTINE, A.QUARANTINE, A.QUARANTINE),
    ("wrong-size", A.QUARANTINE, A.QUARANTINE, A.QUARANTINE),
    ("padding-set", A.QUARANTINE, A.QUARANTINE, A.QUARANTINE),
    ("no-reports", A.QUARANTINE, A.QUARANTINE, A.QUARANTINE),
    ("too-many-reports", A.QUARANTINE, A.SPLIT, A.QUARANTINE),
    ("period-misaligned", A.QUARANTINE, A.QUARANTINE, A.QUARANTINE),
    ("period-not-started", A.RETRY, A.RETRY, A.RETRY),
    ("invalid-query", A.PAUSE, A.PAUSE, A.PAUSE),
    ("implausible-report", A.QUARANTINE, A.QUARANTINE, A.QUARANTINE),
    ("too-many", A.RETRY, A.RETRY, A.RETRY),
    ("headers-too-large", A.PAUSE, A.PAUSE, A.PAUSE),
    ("internal-error", A.RETRY, A.RETRY, A.RETRY),
    ("unavailable", A.RETRY, A.RETRY, A.RETRY),
    ("disk-full", A.RETRY, A.RETRY, A.RETRY),
]
BY_SLUG = {problem.slug: problem for problem in ProblemType}
ONE, SEVERAL = (Batch(UUID(int=n), "m", "d", "2026-11-23", bytes(n), bytes(n)) for n in (1, 3))


@pytest.mark.parametrize(("slug", "one", "several", "doubtful"), TABLE)
def test_decide_returns_documented_action(slug: str, one: Action, several: Action, doubtful: Action) -> None:
    response = UploadResponse(BY_SLUG[slug].status, slug)
    for in_doubt in (False, True):
        assert decide(response, ONE, possibly_delivered=in_doubt) is one
        assert decide(UploadResponse(299, slug), SEVERAL, possibly_delivered=in_doubt) is A.RETRY
    assert decide(response, SEVERAL, possibly_delivered=False) is several
    assert decide(response, SEVERAL, possibly_delivered=True) is doubtful


def test_retry_table_covers_all_problem_types_and_actions() -> None:
    assert [row[0] for row in TABLE] == [problem.slug for problem in ProblemType]
    assert {row[2] for row in TABLE} | {A.ACCEPT} == set(Action)


@pytest.mark.parametrize("status", [None, *range(100, 600)])
def test_an_answer_that_is_not_the_aggregators_decides_nothing(status: int | None) -> None:
    """Neither a status alone, nor a name or a problem type that no aggregator sends with it, nor another batch's id."""
    slugs = {problem.slug for problem in ProblemType if problem.status != status}
    for slug in (None, "", "future-type", *slugs):
        for batch_id in (None, str(SEVERAL.batch_id)):
            response = UploadResponse(status, slug, batch_id=batch_id, date="Sat, 21 Nov 2026 12:00:00 GMT")
            assert decide(response, ONE, possibly_delivered=False) is A.RETRY
            assert aggregator_date(response, ONE) is None
    accepted = decide(UploadResponse(status, batch_id=str(ONE.batch_id)), ONE, possibly_delivered=False)
    assert accepted is (A.ACCEPT if status in (200, 202) else A.RETRY)


def test_every_answer_of_the_conformance_kit_has_its_action() -> None:
    """The actions in vectors.json follow from the table above, and from the few bodies that are an aggregator's own."""
    actions = {slug: one.name.lower().replace("_", "-").removesuffix("-batch") for slug, one, _, _ in TABLE}
    own = {
        **{(f"the problem {slug}", problem.status): actions[slug] for slug, problem in BY_SLUG.items()},
        **{(f"a problem as {media_type}", 422): "quarantine" for media_type in PROBLEM_MEDIA_TYPES},
        ("a problem in white space", 422): "quarantine",
        ("a problem with another field", 422): "quarantine",
        ("an acceptance", 202): "accept",
        ("an acceptance with a charset", 202): "accept",
        ("an acceptance of a batch that was stored", 200): "accept",
    }
    for case in answer_cases():
        assert case.action == own.get((case.body, case.answer.status), "retry"), case.description
    assert {(case.body, case.answer.status) for case in answer_cases()} >= set(own)


PROBLEM_MEDIA_TYPES = (
    "application/problem+json; charset=utf-8",
    "application/problem+json;charset=UTF-8;v=1",
    "Application/Problem+JSON",
    "application/problem+json ;",
)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 0.0),
        ("", 0.0),
        ("7", 7.0),
        (" 7 ", 7.0),
        ("-7", 0.0),
        ("86400", 3600.0),
        ("9" * 5000, 3600.0),
        ("\u0663", 0.0),
        ("soon", 0.0),
        ("Sat, 21 Nov 2026 12:10:00 GMT", 600.0),
        ("Sat, 21 Nov 2026 11:00:00 GMT", 0.0),
        ("Sat, 21 Nov 9999 12:10:00 GMT", 3600.0),
        ("Sat, 99 Nov 2026 12:10:00 GMT", 0.0),
    ],
)
def test_retry_after_is_parsed_and_clamped(header: str | None, seconds: float) -> None:
    assert retry_after_seconds(header, now=1795262400.0) == seconds  # 2026-11-21 12:00 UTC


def test_backoff_has_full_jitter_and_cap(unseen_seed: int) -> None:
    random_bytes = SeededBytes(unseen_seed)
    for failures, longest in ((1, 30), (2, 60), (4, 240), (8, 3600), (1000, 3600)):
        waits = [backoff_seconds(failures, 0.0, random_bytes) for _ in range(2000)]
        assert 0 <= min(waits) < 0.02 * longest  # alpha = .98**2000 < 1e-17
        assert 0.98 * longest < max(waits) < longest
    assert all(7 <= backoff_seconds(1, 7.0, random_bytes) < 37 for _ in range(100))


def test_clock_tolerance_is_one_day() -> None:
    now = 1795262400.0
    assert not is_clock_wrong(None, now)
    assert not is_clock_wrong("nonsense", now)
    assert not is_clock_wrong("Fri, 20 Nov 2026 12:00:00 GMT", now)
    assert is_clock_wrong("Fri, 20 Nov 2026 11:59:59 GMT", now)
    assert is_clock_wrong("Sun, 22 Nov 2026 12:00:01 GMT", now)
