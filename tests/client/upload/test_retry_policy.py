"""Retry policy: every row of the table."""

from __future__ import annotations

import pytest

from hubbub.sdk.upload.retry_policy import (
    Action,
    UploadResponse,
    backoff_seconds,
    decide,
    effective_status,
    is_clock_wrong,
    retry_after_seconds,
)
from hubbub.testing import SeededBytes
from hubbub.wire.problems import ProblemType

A = Action
#        status, problem type          not in doubt     in doubt
TABLE = [
    (200, None, A.ACCEPT, A.ACCEPT),
    (202, None, A.ACCEPT, A.ACCEPT),
    (None, None, A.RETRY, A.RETRY),
    (408, None, A.RETRY, A.RETRY),
    (408, "too-slow", A.RETRY, A.RETRY),
    (425, None, A.RETRY, A.RETRY),
    (429, None, A.RETRY, A.RETRY),
    (429, "too-many", A.RETRY, A.RETRY),
    (500, "internal-error", A.RETRY, A.RETRY),
    (502, None, A.RETRY, A.RETRY),
    (503, "unavailable", A.RETRY, A.RETRY),
    (504, None, A.RETRY, A.RETRY),
    (507, None, A.RETRY, A.RETRY),
    (507, "disk-full", A.RETRY, A.RETRY),
    (413, "too-large", A.SPLIT, A.RETRY),
    (413, None, A.SPLIT, A.RETRY),
    (422, "too-many-reports", A.SPLIT, A.RETRY),
    (400, "malformed", A.QUARANTINE, A.RETRY),
    (400, None, A.QUARANTINE, A.RETRY),
    (400, "not-http", A.PAUSE, A.PAUSE),
    (422, "cohort-out-of-range", A.QUARANTINE, A.RETRY),
    (422, "wrong-group", A.QUARANTINE, A.RETRY),
    (422, "wrong-size", A.QUARANTINE, A.RETRY),
    (422, "padding-set", A.QUARANTINE, A.RETRY),
    (422, "no-reports", A.QUARANTINE, A.RETRY),
    (422, "period-misaligned", A.QUARANTINE, A.RETRY),
    (422, "invalid-query", A.QUARANTINE, A.RETRY),
    (422, "implausible-report", A.QUARANTINE, A.RETRY),
    (422, "period-not-started", A.RETRY, A.RETRY),
    (401, "unauthorized", A.PAUSE, A.PAUSE),
    (403, "forbidden", A.PAUSE, A.PAUSE),
    (403, "cross-site", A.PAUSE, A.PAUSE),
    (404, "not-found", A.PAUSE, A.PAUSE),
    (404, None, A.PAUSE, A.PAUSE),
    (404, "unknown-metric", A.PAUSE_METRIC, A.PAUSE_METRIC),
    (405, "method-not-allowed", A.PAUSE, A.PAUSE),
    (407, None, A.PAUSE, A.PAUSE),
    (409, None, A.PAUSE, A.PAUSE),
    (409, "digest-mismatch", A.HOLD_METRIC, A.HOLD_METRIC),
    (410, None, A.PAUSE, A.PAUSE),
    (410, "period-closed", A.DROP_BATCH, A.DROP_BATCH),
    (410, "metric-expired", A.DROP_METRIC, A.DROP_METRIC),
    (415, "unsupported-media-type", A.PAUSE, A.PAUSE),
    (431, "headers-too-large", A.PAUSE, A.PAUSE),
]


@pytest.mark.parametrize(("status", "problem", "certain", "doubtful"), TABLE)
def test_decide_returns_documented_action(
    status: int | None, problem: str | None, certain: Action, doubtful: Action
) -> None:
    assert decide(status, problem, possibly_delivered=False) is certain
    assert decide(status, problem, possibly_delivered=True) is doubtful


def test_retry_table_covers_all_problem_types_and_actions() -> None:
    assert {(refusal.status, refusal.slug) for refusal in ProblemType} <= {(row[0], row[1]) for row in TABLE}
    assert {row[2] for row in TABLE} == set(Action)


def test_possibly_delivered_batch_is_never_split_or_quarantined() -> None:
    problems = (None, *(refusal.slug for refusal in ProblemType))
    actions = {
        (status, problem): decide(status, problem, possibly_delivered=True)
        for status in range(100, 600)
        for problem in problems
    }
    assert {case for case, action in actions.items() if action in (Action.SPLIT, Action.QUARANTINE)} == set()


@pytest.mark.parametrize("status", [100, 200, 201, 202, 204, 206, 301, 302, 307, 308])
def test_response_without_batch_id_is_ignored(status: int) -> None:
    """Captive portals exist."""
    assert effective_status(UploadResponse(status, batch_id="another"), "mine") is None
    assert effective_status(UploadResponse(status), "mine") is None
    assert effective_status(UploadResponse(status, batch_id="mine"), "mine") == (
        status if status in (200, 202) else None
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
