"""Reporting periods."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub import Period, PeriodKind, ProblemType, RefusedError
from hubbub.wire.dates import parse_period

DAYS = st.dates(date(1990, 1, 1), date(2100, 1, 1))


@given(st.sampled_from(PeriodKind), DAYS)
def test_periods_partition_the_days(kind: PeriodKind, day: date) -> None:
    period = Period.containing(kind, day)
    assert period.start <= day < period.next().start
    assert Period.containing(kind, period.next().start) == period.next()
    assert parse_period(kind, str(period)) == period


def test_period_is_open_from_one_day_before_to_30_days_after() -> None:
    week = parse_period(PeriodKind.WEEK, "2012-12-31")
    assert week.opens() == datetime(2012, 12, 30, tzinfo=UTC)
    assert week.closes() == datetime(2013, 2, 6, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2013-1-1", "20130101", "2013-W01-1", "2013-02-30", "", "now", None, 20130101])
def test_rejects_other_date_formats(text: object) -> None:
    with pytest.raises(RefusedError, match="period must be a date YYYY-MM-DD") as caught:
        parse_period(PeriodKind.DAY, text)  # type: ignore[arg-type]
    assert caught.value.problem_type is ProblemType.MALFORMED


@pytest.mark.parametrize(("kind", "text"), [(PeriodKind.WEEK, "2013-01-01"), (PeriodKind.MONTH, "2013-01-02")])
def test_rejects_a_day_that_does_not_start_a_period(kind: PeriodKind, text: str) -> None:
    with pytest.raises(RefusedError, match=f"first day of a {kind}, got {text}") as caught:
        parse_period(kind, text)
    assert caught.value.problem_type is ProblemType.PERIOD_MISALIGNED
