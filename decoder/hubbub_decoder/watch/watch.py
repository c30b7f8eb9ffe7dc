"""A run of `hubbub watch`: which periods are due, a look at each of them, and which alarms are new."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any

from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import OPEN_FOR, Period
from hubbub.wire.json_values import from_json_value, json_value
from hubbub_decoder.kinds.operations import Candidates
from hubbub_decoder.model.evidence import Collected
from hubbub_decoder.options import Progress, ignore_progress
from hubbub_decoder.results_store.store import Look
from hubbub_decoder.watch.look import Alarm, Rows, Rules, look_at_reports, look_at_shares, rows_to_watch

MISSING_AFTER = timedelta(days=2)
"""Time after a period is due from which its missing summary is an alarm: until then it may not be downloaded yet."""


@dataclass(frozen=True, slots=True)
class PeriodLook:
    """One look at a period.

    num_reports : 0 if it has no summary
    alarms      : also those that continue
    detectable  : as in `SharesLook`
    """

    period: str
    num_reports: int
    alarms: tuple[Alarm, ...]
    detectable: float = math.nan

    def stored(self) -> Look:
        """What the next run has to know."""
        return Look(self.period, self.num_reports, json.dumps(json_value(self.alarms), ensure_ascii=False))


@dataclass(frozen=True, slots=True)
class WatchResult:
    """Looks of one run.

    num_known   : periods that were looked at in earlier runs
    num_waiting : periods with reports that may still get some
    """

    metric: Metric
    looks: tuple[PeriodLook, ...]
    num_known: int
    num_waiting: int

    @property
    def new_alarms(self) -> tuple[Alarm, ...]:
        """Alarms that the look before did not have, in order of time."""
        return tuple(alarm for look in self.looks for alarm in look.alarms if alarm.is_new)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        looks = [
            {**json_value(look), "alarms": [{**json_value(alarm), "is_new": alarm.is_new} for alarm in look.alarms]}
            for look in self.looks
        ]
        numbers = {"new_alarms": len(self.new_alarms), "known": self.num_known, "waiting": self.num_waiting}
        return {"metric": self.metric.to_dict(), "digest": self.metric.digest, **numbers, "looks": looks}


def watch(
    metric: Metric,
    samples: Sequence[Collected],
    candidates: Candidates,
    rules: Rules,
    known: Mapping[str, Look],
    now: datetime,
    *,
    open_after: timedelta | None = None,
    progress: Progress = ignore_progress,
) -> WatchResult:
    """Look at each period that is due and that no earlier run looked at, in order of time.

    A period that had no summary is looked at again when it has one: nothing was tested yet.

    samples    : with reports, of one period each, in order of time
    known      : looks of earlier runs, by period
    open_after : time after the end of a period from which it is due although it is open; None: only closed periods are

    Raises as `rows_to_watch`.
    """
    by_period = {sample.periods[0]: sample for sample in samples}
    due = _due_periods(samples, metric, now, open_after)
    rows = rows_to_watch(metric, candidates, rules)
    before, looks, num_known = tuple[Alarm, ...](), list[PeriodLook](), 0
    for number, period in enumerate(due):
        sample = by_period.get(period)
        if period in known and (known[period].num_reports or sample is None):
            before, num_known = stored_alarms(known[period]), num_known + 1
            continue
        progress(f"looking at {period}", number / len(due))
        earlier = [sample for sample in samples if sample.periods[0] < period]
        look = _look_at(period, earlier, sample, rows, rules)
        since = {alarm.key: alarm.since for alarm in before}
        before = tuple(replace(alarm, since=since.get(alarm.key, period)) for alarm in look.alarms)
        looks.append(replace(look, alarms=before))
    return WatchResult(metric, tuple(looks), num_known, len({*by_period} - {*due}))


def stored_alarms(look: Look) -> tuple[Alarm, ...]:
    """Alarms of a look that the database remembers, also those that continue."""
    alarms: tuple[Alarm, ...] = from_json_value(tuple[Alarm, ...], json.loads(look.alarms))
    return alarms


def _look_at(
    period: str, earlier: Sequence[Collected], sample: Collected | None, rows: Rows, rules: Rules
) -> PeriodLook:
    num_reports = 0 if sample is None else sample.num_reports
    alarms = look_at_reports(period, num_reports, earlier, rules)
    if sample is None:
        return PeriodLook(period, num_reports, alarms)
    shares = look_at_shares((*earlier, sample), rows, rules)
    return PeriodLook(period, num_reports, (*alarms, *shares.alarms), shares.detectable)


def _due_periods(
    samples: Sequence[Collected], metric: Metric, now: datetime, open_after: timedelta | None
) -> list[str]:
    """Periods from the first one with reports on that get no more reports, also those without a summary, in order of time."""
    wait = OPEN_FOR if open_after is None else open_after
    by_period = {sample.periods[0]: sample for sample in samples}
    due = {day for day, sample in by_period.items() if sample.closed}
    period = Period(date.fromisoformat(samples[0].periods[0]), metric.period)
    while period.closes(wait) <= now:
        day = str(period)
        is_missing = day not in by_period and period.closes(wait + MISSING_AFTER) <= now
        if is_missing or (day in by_period and open_after is not None):
            due.add(day)
        period = period.next()
    return sorted(due)
