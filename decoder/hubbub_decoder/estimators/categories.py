"""Closed-form estimator for categorical, boolean and ordinal metrics: one bit for each category or bucket, no hashing.

Model:     c_i of N reports have bit i set; c_i = Binomial(X_i, q*) + Binomial(N - X_i, p*), X_i the reporters with category i
Estimator: x_i = (c_i / N - p*) / (q* - p*), unbiased for X_i / N
Variance:  of the summed estimates of a categories with true share s, given the reporters (`total_variance`):

    Var = (s q* (1 - q*) + (a - s) p* (1 - p*)) / (N (q* - p*)**2)        plus s (1 - s) / N as the share of a population

Intervals: shares at which neither tail of c_i is below (1 - level) / 2 (Clopper & Pearson 1934, of the law above). The noise of different
bits is independent given the reporters, so intervals at the level**(1/a) cover a categories jointly (Sidak 1967). As shares of a
population the c_i are multinomial, and the level is 1 - (1 - level) / a (Bonferroni).

With T reports of each client the permanent noise and the sampling of clients repeat (`model/repetition.py`): q* (1 - q*), p* (1 - p*) and
s (1 - s) are replaced, and intervals have the cumulants of fewer reports, each counted as often as the variance is larger.

No category is tested for share 0: all of them are known, and each has its interval. docs/explanation/mathematics.md, equation (9.1), and section 15.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from hubbub.mechanisms.mechanism import Mechanism
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub_decoder.array_types import Floats
from hubbub_decoder.errors import CandidateError
from hubbub_decoder.estimators.fit_result import ShareFit
from hubbub_decoder.inference.error_law import ErrorCumulants, ErrorLaw, Sampling
from hubbub_decoder.model.distributions import binom
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.repetition import ONCE, Repetition
from hubbub_decoder.options import Target

# of a count; above it, a shifted gamma law with a continuity correction has tails right to 1 %
_MAX_EXACT_VARIANCE = 400.0
_WINDOW = 12  # standard deviations of a binomial count that are summed


def select_categories(metric: Metric, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Categories to decode: those asked for, or all (None); a boolean metric has one, "true", an ordinal metric its buckets, a set its items.

    Raises CandidateError for a name that is no category of the metric.
    """
    names = metric.kind.estimated_values
    for name in asked or ():
        if name not in names:
            raise CandidateError(
                f"{metric.name}: {name!r} is not one of its {metric.kind.value_nouns} ({', '.join(names[:8])}"
                f"{', ...' if len(names) > 8 else ''}): leave candidates out to decode all of them"
            )
    return names if asked is None else tuple(asked)


def fit_categories(evidence: Evidence, selected: Sequence[str]) -> ShareFit:
    """Estimate the shares of the selected categories; the others together count as unlisted."""
    n, params, names = evidence.num_reports, evidence.params, evidence.metric.kind.labels
    repetition = evidence.repetition
    shown = np.array([names.index(name) for name in selected])
    hidden = np.setdiff1d(np.arange(len(names)), shown)
    ones = evidence.counts.ones[0][: len(names)]  # a bit of "no value" may follow
    shares = category_shares(ones, n, params.mechanism.p_star, params.mechanism.q_star)
    totals = np.array([shares[some].sum() for some in (shown, hidden, slice(None))])
    population, reporters = _variances(shares[shown], [1] * len(shown), n, params, repetition)
    of_totals, of_totals_among_reporters = _variances(
        totals, [len(shown), len(hidden), len(names)], n, params, repetition
    )
    return ShareFit(
        shares=shares[shown],
        variances=population,
        reporter_variances=reporters,
        totals=totals,
        total_variances=of_totals,
        total_reporter_variances=of_totals_among_reporters,
    )


def _variances(
    shares: Floats, sizes: Sequence[int], num_reports: int, params: Params, repetition: Repetition
) -> tuple[Floats, Floats]:
    """Variances of sums of `sizes` categories, (n,) each: as shares of a population, and as shares among the reporters."""
    pairs = zip(shares.tolist(), sizes, strict=True)
    reporters = np.array([total_variance(share, size, num_reports, params, repetition) for share, size in pairs])
    sampling = np.clip(shares, 0, 1) * np.clip(1 - shares, 0, 1) / repetition.num_clients(num_reports)
    return reporters + sampling, reporters


def category_shares(ones: NDArray[np.int64], num_reports: int, p_star: float, q_star: float) -> Floats:
    """Unbiased shares x_i = (c_i / N - p*) / (q* - p*), (k,), of counts c (k,).

    >>> category_shares(np.array([40]), 100, p_star=0.25, q_star=0.75).round(12).tolist()  # two coins
    [0.3]
    """
    return np.asarray((ones / num_reports - p_star) / (q_star - p_star), np.float64)


def total_variance(share: float, size: int, num_reports: int, params: Params, repetition: Repetition = ONCE) -> float:
    """Variance of the summed estimates of `size` categories that have a true share `share`, given the reporters.

        Var = ( s V_1 + (a - s) V_0 + 2 (a - 1) s C_1 + (a - 1) (a - 2 s) C_0 ) / (N (q* - p*)**2)        a = size, s = share cut to [0, 1]

    V_1 = q* (1 - q*) and V_0 = p* (1 - p*) where each report has another client (`RowNoise`). A report has one true bit among them with
    probability s, and none otherwise. C_0 and C_1 are the covariances of two bits, 0 if the mechanism's bits are independent.

    >>> survey = Params.one_hot(1, prob_p=0, prob_q=1, prob_f=0.5)
    >>> round(total_variance(0.3, 1, 100, survey), 12)  # 3/16 / (100 / 4), whatever the share
    0.0075
    """
    s = min(max(share, 0.0), 1.0)
    noise = RowNoise.of_mechanism(params.mechanism, repetition)
    return noise.of_total(s, size) / (num_reports * (params.mechanism.q_star - params.mechanism.p_star) ** 2)


def row_covariance(shares: Floats, num_reports: int, params: Params, repetition: Repetition) -> Floats:
    """Covariance (k, k) of the estimated shares of all categories, given the reporters; shares : true ones, (k,), in [0, 1]."""
    noise = RowNoise.of_mechanism(params.mechanism, repetition)
    either = np.add.outer(shares, shares)
    covariance = noise.neither + either * (noise.one - noise.neither)
    covariance[np.diag_indices_from(covariance)] = noise.absent + shares * (noise.present - noise.absent)
    return np.asarray(covariance / (num_reports * (params.mechanism.q_star - params.mechanism.p_star) ** 2))


@dataclass(frozen=True, slots=True)
class RowNoise:
    """Covariance that the noise of a report adds to the counts of its bits, of which at most one is truly one.

    absent, present : variance of a bit whose true bit is zero, and one
    neither, one    : covariance of two bits where neither true bit is one, and where one is
    """

    absent: float
    present: float
    neither: float
    one: float

    @classmethod
    def of_mechanism(cls, mechanism: Mechanism, repetition: Repetition = ONCE) -> RowNoise:
        """Noise of a report, of which the permanent part repeats in the other reports of its client."""
        stages = mechanism.noise_variances(np.array([0.0, 1.0])), np.array(mechanism.noise_covariances())
        (absent, present), (neither, one) = (
            instantaneous + repetition.per_response * permanent for instantaneous, permanent in stages
        )
        return cls(float(absent), float(present), float(neither), float(one))

    def of_total(self, share: float, size: int) -> float:
        """Variance of the sum over `size` bits, of which a report has a true one with probability `share`."""
        independent = share * self.present + (size - share) * self.absent
        pairs_with_one = 2 * (size - 1) * share
        covariances = pairs_with_one * self.one + (size * (size - 1) - pairs_with_one) * self.neither
        return max(independent + covariances, 0.0)  # of a total that is known, rounding may leave less


def category_intervals(
    evidence: Evidence, selected: Sequence[str], level: float, target: Target
) -> tuple[Floats, Floats]:
    """Confidence intervals of the selected categories, (a,) and (a,), each at `level`.

    Exact for counts of a variance up to 400, and of a population, if each report has another client. Otherwise, reports and counts are
    divided by the design effect, the ratio of the count's variance to that of as many clients (Rao & Scott 1981). An end beyond 0 or 1 is
    not clipped: it is that of the shifted gamma law.
    """
    n, params, names = evidence.num_reports, evidence.params, evidence.metric.kind.labels
    repetition = evidence.repetition
    ones, tail = evidence.counts.ones[0][[names.index(name) for name in selected]], (1 - level) / 2
    of_row = RowNoise.of_mechanism(params.mechanism, repetition)
    noise = of_row.absent, of_row.present
    if params.mechanism.q_star < params.mechanism.p_star:
        ones, p, q = n - ones, 1 - params.mechanism.p_star, 1 - params.mechanism.q_star
    else:
        p, q = params.mechanism.p_star, params.mechanism.q_star
    if target == "population":
        return _population_intervals(ones, n, (p, q), noise, repetition.per_client, tail)
    law = count_law(ones, n, (p, q), noise)
    low, high = law.interval(level, law.p_values(), np.zeros(len(ones), bool))
    for i, count in enumerate(ones.tolist() if repetition == ONCE else ()):
        share = min(max((count / n - p) / (q - p), 0), 1)
        if n * (share * q * (1 - q) + (1 - share) * p * (1 - p)) <= _MAX_EXACT_VARIANCE:
            low[i], high[i] = _exact_interval(count, n, p, q, tail, (low[i], high[i]))
    return low, high


def _population_intervals(
    ones: NDArray[np.int64],
    n: int,
    probabilities: tuple[float, float],
    noise: tuple[float, float],
    per_client: float,
    tail: float,
) -> tuple[Floats, Floats]:
    """Clopper & Pearson's intervals of the probability of a one, as shares; reports and counts divided by the design effect."""
    p, q = probabilities
    shares = np.clip((ones / n - p) / (q - p), 0, 1)
    of_clients = shares * (1 - shares) * (q - p) ** 2
    once = p * (1 - p) + shares * (q * (1 - q) - p * (1 - p)) + of_clients
    effect = np.where(once > 0, noise[0] + shares * (noise[1] - noise[0]) + per_client * of_clients, 1) / np.where(
        once > 0, once, 1
    )
    with_one, without = ones / effect, (n - ones) / effect
    low = np.where(ones > 0, betaincinv(np.maximum(with_one, 1e-300), without + 1, tail), 0)
    high = np.where(ones < n, betaincinv(with_one + 1, np.maximum(without, 1e-300), 1 - tail), 1)
    return (low - p) / (q - p), (high - p) / (q - p)


def simultaneous_level(level: float, categories: int, *, independent: bool) -> float:
    """Level of each of some intervals, so that all of them cover with probability `level`: Sidak's if their errors are independent, else Bonferroni's.

    >>> [round(simultaneous_level(0.95, 2, independent=independent), 6) for independent in (True, False)]
    [0.974679, 0.975]
    """
    size = max(1, categories)
    return float(level ** (1 / size)) if independent else 1 - (1 - level) / size


def count_law(
    ones: NDArray[np.int64] | Floats,
    reports: Floats | float,
    probabilities: tuple[float, float],
    noise: tuple[float, float],
    sampling: Sampling = Sampling(),  # noqa: B008  (frozen)
) -> ErrorLaw:
    """Law of the shares of single bits, (a,), from their variances and third cumulants; a step is one count.

    reports       : of each bit, a number or (a,)
    probabilities : p* < q* of a one
    noise         : variance of a count from a report whose true bit is 0, and 1. Where it is d times that of a bit, n / d reports count d
                    times each, and a step is d counts
    """
    p, q = probabilities
    (absent, third_absent), (present, third_present) = (
        (variance, variance**2 / (chance * (1 - chance)) * (1 - 2 * chance) if 0 < chance < 1 else 0.0)
        for chance, variance in zip(probabilities, noise, strict=True)
    )
    shares, once = (ones / reports - p) / (q - p), np.ones(len(ones))
    cumulants = ErrorCumulants(
        *(
            once * (value / (reports ** (power - 1) * (q - p) ** power))
            for value, power in (
                (absent, 2),
                (present - absent, 2),
                (third_absent, 3),
                (third_present - third_absent, 3),
            )
        )
    )
    at = np.clip(shares, 0, 1)
    of_noise = absent + at * (present - absent)
    variances = cumulants.variances + at * cumulants.variance_slopes + sampling.variance * at * (1 - at)
    of_coins = p * (1 - p) + at * (q * (1 - q) - p * (1 - p))
    effects = np.divide(of_noise, of_coins, out=np.ones_like(at), where=of_coins > 0)
    return ErrorLaw(shares, variances, cumulants, None, sampling, effects / (reports * (q - p)))


def law_of_mean(law: ErrorLaw, clients: Floats, less: float = 0.0) -> ErrorLaw:
    """Law of the mean x of the shares of J bits, (1,), each of which other clients report; as a share of a population.

        Var = (sum of the noise, linear in x) / J**2 + r x (1 - x) v        v = sum 1 / (n_j J**2)
        r   = (sum x_j (1 - x_j) / (n_j J**2) - less) / (x (1 - x) v)        x_j = (n_j x^_j + 1) / (n_j + 2)

    The draw of the clients is that of equal shares times r, which the estimates show. One more client with and without each bit keeps r
    from 0 where all the few clients of each bit are alike (Agresti & Coull 1998).

    law     : of the shares      clients : (J,) n_j of each
    less    : variance of the clients' mean itself, if it is known who reports
    """
    size, of = len(law.shares), law.cumulants

    def mean(values: Floats, power: int) -> Floats:
        return np.array([np.mean(values) / size ** (power - 1)])

    shares = mean(law.shares, 1)
    guess = (np.clip(law.shares, 0, 1) * clients + 1) / (clients + 2)
    equal, of_all = guess.mean() * (1 - guess.mean()), mean(1 / clients, 2)
    ratio = np.maximum(mean(guess * (1 - guess) / clients, 2) - less, 0) / (equal * of_all)
    cumulants = ErrorCumulants(
        mean(of.variances, 2), mean(of.variance_slopes, 2), mean(of.third, 3), mean(of.third_slopes, 3)
    )
    at = np.clip(shares, 0, 1)
    sampling = Sampling(ratio * of_all, ratio * mean(1 / clients**2, 3))
    variances = cumulants.variances + at * cumulants.variance_slopes + sampling.variance * at * (1 - at)
    steps = mean(np.broadcast_to(law.steps, size), 2)
    return ErrorLaw(shares, variances, cumulants, None, sampling, steps)


def _exact_interval(
    count: int, n: int, p: float, q: float, tail: float, beyond: tuple[float, float]
) -> tuple[float, float]:
    """Smallest and largest X / n with P(C >= count) and P(C <= count) above `tail`; the ends of `beyond` where that is 0 or n."""

    def at_least(c: int, with_category: int) -> float:
        center, spread = with_category * q, _WINDOW * (1 + math.sqrt(with_category * q * (1 - q)))
        some = np.arange(max(0, math.floor(center - spread)), min(with_category, math.ceil(center + spread)) + 1)
        return float(binom.pmf(some, with_category, q) @ binom.sf(c - 1 - some, n - with_category, p))

    low = _first(lambda x: at_least(count, x) > tail, n)
    high = _first(lambda x: 1 - at_least(count + 1, x) <= tail, n) - 1
    lower = low / n if low > 0 else min(beyond[0], 0.0)
    if high == n:
        return lower, max(beyond[1], 1.0)
    return lower, high / n if high >= 0 else min(beyond[1], -0.5 / n)


def _first(holds: Callable[[int], bool], n: int) -> int:
    """Smallest x in 0 .. n for which a monotone predicate holds; n + 1 if none."""
    low, high = 0, n + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
