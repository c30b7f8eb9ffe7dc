"""Many years of a yes/no metric at once, and the looks of `hubbub watch` at them, in closed form.

Counts are drawn as the sums of the clients that stay, are new in each period, join, or are replaced at once. The looks follow
docs/explanation/mathematics.md, equation (9.1) and section 15: `tests/decoder/watch/test_false_alarms.py` compares them with `look_at_shares`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from hubbub import Metric, UnaryResponse
from hubbub.metrics.periods import Period, PeriodKind
from hubbub.summary import BitCounts
from hubbub_decoder.watch.look import LOOKS_A_YEAR, WINDOWS, Rules

BASELINE = 26
NUM_CLIENTS = 20_000
SHARE = 0.3
STEP_STANDARD_ERRORS = 3.0
STEP_PERIODS = 3
NOISES = MappingProxyType(
    {
        "0%": UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0),
        "20%": UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5),
        "100%": UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5),
    }
)
"""Mechanisms by the part of a report's noise that is permanent."""

CLIENTS = ("stay", "new", "join", "turnover", "replaced")
"""Who reports: the same clients; others in each period; the same and more of them, up to four times as many; clients that report in six periods;
others after each 52 periods."""
LIFETIME = 6

Counts = NDArray[np.int64]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Years:
    """Ones (years, periods) of a metric, and its reports (periods,)."""

    metric: Metric
    ones: Counts
    reports: Counts

    def samples(self, year: int) -> list[BitCounts]:
        """The periods of one year."""
        days = days_of(self.metric.period, len(self.reports))
        counts = zip(self.reports.tolist(), self.ones[year].tolist(), days, strict=True)
        return [BitCounts(self.metric, [n], [[ones]], [day], closed=True) for n, ones, day in counts]


def days_of(kind: PeriodKind, number: int) -> list[str]:
    """First days of so many periods in a row."""
    period, days = Period.containing(kind, date(2026, 1, 5)), []
    for _ in range(number):
        days.append(str(period))
        period = period.next()
    return days


def years_without_change(noise: str, kind: PeriodKind, clients: str, number: int, rng: np.random.Generator) -> Years:
    """So many years after a baseline, in which clients are drawn from a population that does not change."""
    metric = Metric.boolean("dark", NOISES[noise], period=kind)
    num_periods = BASELINE + LOOKS_A_YEAR[kind]
    size = (number, num_periods)

    def drawn(num_clients: int, shape: tuple[int, ...]) -> Counts:
        """Permanent ones of new clients."""
        return _permanent_ones(metric, rng.binomial(num_clients, SHARE, shape), num_clients, rng)

    reports = np.full(num_periods, NUM_CLIENTS)
    if clients == "stay":
        permanent = np.broadcast_to(drawn(NUM_CLIENTS, (number, 1)), size)
    elif clients == "new":
        permanent = drawn(NUM_CLIENTS, size)
    elif clients == "replaced":
        generations = drawn(NUM_CLIENTS, (number, num_periods // (2 * BASELINE) + 1))
        permanent = generations[:, np.arange(num_periods) // (2 * BASELINE)]
    elif clients == "turnover":
        beginning = NUM_CLIENTS // LIFETIME
        begun = np.cumsum(drawn(beginning, (number, num_periods + LIFETIME)), axis=1)
        permanent, reports = begun[:, LIFETIME:] - begun[:, :-LIFETIME], np.full(num_periods, LIFETIME * beginning)
    else:
        joining = 3 * NUM_CLIENTS // (num_periods - 1)
        joined = np.cumsum(drawn(joining, (number, num_periods - 1)), axis=1)
        permanent = drawn(NUM_CLIENTS, (number, 1)) + np.hstack([np.zeros((number, 1), np.int64), joined])
        reports = reports + joining * np.arange(num_periods)
    return Years(metric, _reported_ones(metric, permanent, reports, rng), reports)


def standard_error(noise: str) -> float:
    """Of the share of one week in a population."""
    metric, m = Metric.boolean("dark", NOISES[noise], period=PeriodKind.WEEK), NUM_CLIENTS
    p, q = metric.params.mechanism.p_star, metric.params.mechanism.q_star
    ones = np.array([round(m * (p + (q - p) * SHARE))])
    return float(np.sqrt(_variances(metric, ones, np.array(m), 1, same_clients=True)[1][0]))


def steps(noise: str, clients: str, number: int, rng: np.random.Generator, size: float = STEP_STANDARD_ERRORS) -> Years:
    """So many baselines of weeks, and three weeks with a larger share, of clients that "stay" or are "new".

    size : of the step in standard errors of the share of one week
    """
    metric = Metric.boolean("dark", NOISES[noise], period=PeriodKind.WEEK)
    num_periods, m = BASELINE + STEP_PERIODS, NUM_CLIENTS
    step = size * standard_error(noise)
    if clients == "new":
        shares = np.where(np.arange(num_periods) < BASELINE, SHARE, SHARE + step)
        of_value = rng.binomial(m, shares, (number, num_periods))
        permanent = _permanent_ones(metric, of_value, m, rng)
    else:
        moved = round(step * m)
        kept = _permanent_ones(metric, rng.binomial(m - moved, SHARE / (1 - step), (number, 1)), m - moved, rng)
        before, after = (_permanent_ones(metric, np.full((number, 1), yes), moved, rng) for yes in (0, moved))
        permanent = np.hstack(
            [np.repeat(kept + before, BASELINE, axis=1), np.repeat(kept + after, STEP_PERIODS, axis=1)]
        )
    reports = np.full(num_periods, m)
    return Years(metric, _reported_ones(metric, permanent, reports, rng), reports)


def have_alarms(years: Years, rules: Rules) -> NDArray[np.bool_]:
    """Whether any look of each year after its baseline raises an alarm."""
    reach = norm.isf((1 - rules.confidence(years.metric, 1)) / 2)
    found = np.zeros(len(years.ones), bool)
    for changes, errors in look_through(years, rules):
        found |= np.abs(changes) > reach * errors
    return found


def look_through(years: Years, rules: Rules) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield the changes (years,) with their standard errors of each look after the baseline, by each window."""
    ones = np.pad(np.cumsum(years.ones, axis=1), [(0, 0), (1, 0)])
    reports = np.pad(np.cumsum(years.reports), (1, 0))
    for end in range(BASELINE + 1, len(reports)):
        for size in WINDOWS:
            cut = end - size
            start = max(0, cut - rules.baseline)
            sides = [
                _variances(
                    years.metric,
                    ones[:, last] - ones[:, first],
                    reports[last] - reports[first],
                    last - first,
                    same_clients=rules.same_clients,
                )
                for first, last in ((start, cut), (cut, end))
            ]
            yield sides[1][0] - sides[0][0], np.sqrt(sides[0][1] + sides[1][1])


def _variances(
    metric: Metric, ones: Counts, reports: Counts, num_periods: int, *, same_clients: bool
) -> tuple[Numbers, Numbers]:
    """Shares and their variances as shares of a population, from the sum of several periods."""
    mechanism = metric.params.mechanism
    p, q = mechanism.p_star, mechanism.q_star
    shares = (ones / reports - p) / (q - p)
    possible, repeated = np.clip(shares, 0, 1), num_periods if same_clients else 1
    instantaneous, permanent = mechanism.noise_variances(possible)
    of_noise = (instantaneous + repeated * permanent) / (reports * (q - p) ** 2)
    return shares, np.asarray(of_noise + possible * (1 - possible) * repeated / reports)


def _permanent_ones(metric: Metric, of_value: Counts, num_clients: int, rng: np.random.Generator) -> Counts:
    mechanism = metric.params.mechanism
    yes, no = mechanism.permanent_q, mechanism.permanent_p
    return np.asarray(rng.binomial(of_value, yes) + rng.binomial(num_clients - of_value, no))


def _reported_ones(metric: Metric, permanent: Counts, reports: Counts, rng: np.random.Generator) -> Counts:
    mechanism = metric.params.mechanism
    return np.asarray(rng.binomial(permanent, mechanism.prob_q) + rng.binomial(reports - permanent, mechanism.prob_p))
