"""Mean, quantiles and distribution function of an ordinal metric, from the shares of its buckets.

Model:     x^ are the unbiased shares of the k buckets (`categories.py`), with covariance V. d = sum x is the share with a value.
Weights:   w' x for a number w_i of each bucket: its representative c_i for the mean, 1 up to an edge for the distribution function
Ratio:     theta = w' x / d. Its interval holds the theta that |w' x^ - theta d^| <= z s(theta) does not reject (Fieller 1954), with

               s(theta)**2 = w' V w - 2 theta w' V 1 + theta**2 1' V 1

Quantile:  the y with F(y) = t, F linear within a bucket. Its interval holds the y at which F(y) = t is not rejected (Woodruff 1952).
           w has 1 for each bucket below y, and the part below y of the bucket of y. It reaches from the first such y to the last

If the metric has a `default`, every report has a value, so d = 1 is known. x^ is then the least-squares estimate under this constraint:

               x~ = x^ - V 1 (1' x^ - 1) / (1' V 1)        V~ = V - V 1 1' V / (1' V 1)

With estimate = "mean" a report has one bit, and the mean is that of the cohorts' shares: `estimate_mean`.

docs/explanation/mathematics.md, equations (22.1) to (22.6). Sources: Fieller 1954; Woodruff 1952, "Confidence intervals for medians and other position measures";
Ding, Kulkarni, Yekhanin 2017, "Collecting telemetry data privately", sections 3 and 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.buckets import Buckets
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.categories import RowNoise, category_shares, count_law, law_of_mean, row_covariance
from hubbub_decoder.inference.shrinkage import project_to_total
from hubbub_decoder.inference.smoothing import smooth_shares
from hubbub_decoder.model.distributions import norm
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.options import Target

Counts = NDArray[np.int64]
_ROUNDING = 1e-12
_MIN_REPORTS = 30
"""Of each group of cohorts with neighbouring thresholds, for a variance of its share."""


@dataclass(frozen=True, slots=True)
class IntervalEstimate:
    """Estimate with its standard error and interval; nan where the reports do not determine it."""

    value: float
    std_error: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class BucketShares:
    """Shares of the buckets among all reports, (k,), and their covariance (k, k).

    guess : (k,) smoothed shares, nonnegative, with the total of `shares` cut to [0, 1]; biased
    """

    buckets: Buckets
    shares: Floats
    covariance: Floats
    guess: Floats

    def ratio(self, weights: Floats, level: float) -> IntervalEstimate:
        """Weighted sum of the shares among the reports with a value, w' x / d; its interval is cut to the range of the weights."""
        z = float(norm.isf((1 - level) / 2))
        of_total = self.covariance.sum(axis=1)
        total, var_total = float(self.shares.sum()), float(of_total.sum())
        a, var_a, cov = (
            float(weights @ self.shares),
            float(weights @ self.covariance @ weights),
            float(weights @ of_total),
        )
        lowest, highest = float(weights.min()), float(weights.max())
        square = total**2 - z**2 * var_total
        if total <= 0 or square <= 0:
            return IntervalEstimate(math.nan, math.nan, lowest, highest)
        value = a / total
        middle = (a * total - z**2 * cov) / square
        reach = math.sqrt(max(middle**2 - (a**2 - z**2 * var_a) / square, 0.0))
        error = math.sqrt(max(var_a - 2 * value * cov + value**2 * var_total, 0.0)) / total
        low, high = (min(max(end, lowest), highest) for end in (middle - reach, middle + reach))
        return IntervalEstimate(value, error, low, high)

    def distribution(self, level: float) -> list[IntervalEstimate]:
        """Share of the values below each edge between two buckets, e_1 .. e_(k-1)."""
        below = np.tri(len(self.shares) - 1, len(self.shares))
        return [self.ratio(weights, level) for weights in below]

    def quantile(self, t: float, level: float) -> tuple[float, float, float]:
        """Number with a share t of the values below it: that of the smoothed shares, and the ends of its interval."""
        edges = np.array(self.buckets.edges)
        cumulative = np.concatenate([[0.0], np.cumsum(self.guess)])
        total = cumulative[-1]
        value = math.nan if total <= 0 else float(_first_crossing(cumulative / total, edges, t))
        low, high = self._inverted_test(t, float(norm.isf((1 - level) / 2)))
        return value, low, high

    def _inverted_test(self, t: float, z: float) -> tuple[float, float]:
        """First and last y at which |w(y)' x^ - t d^| <= z s(y). In a bucket, both sides are quadratic in the part f below y."""
        x, v = self.shares, self.covariance
        edges = np.array(self.buckets.edges)
        before = np.tri(len(x), k=-1)  # row i: the buckets before bucket i
        constant = before - t  # weights at f = 0, with the total subtracted
        t0 = constant @ x
        of_constant = constant @ v
        s0, s1, s2 = np.einsum("ij,ij->i", of_constant, constant), 2 * np.diag(of_constant), np.diag(v)
        roots = _quadratic_roots(x**2 - z**2 * s2, 2 * t0 * x - z**2 * s1, t0**2 - z**2 * s0)
        inside = (roots >= 0) & (roots <= 1)
        difference = t0 + roots * x
        places = edges[:-1] + roots * np.diff(edges)
        total, error = float(x.sum()), z * math.sqrt(max(float(v.sum()), 0.0))
        rising, falling = (places[inside & (sign * difference <= _ROUNDING)] for sign in (1, -1))
        low = edges[0] if total <= error else rising.min(initial=edges[-1])
        high = edges[-1] if total <= error else falling.max(initial=edges[0])
        return float(min(low, high)), float(max(low, high))


def fit_buckets(evidence: Evidence, buckets: Buckets, target: Target) -> BucketShares:
    """Shares of the buckets with their covariance, among the reporters or of a population."""
    n, params = evidence.num_reports, evidence.params
    shares = category_shares(
        evidence.counts.ones[0][: len(evidence.metric.kind.labels)], n, params.mechanism.p_star, params.mechanism.q_star
    )
    present = project_to_total(shares, min(max(float(shares.sum()), 0.0), 1.0))
    covariance = row_covariance(present, n, params, evidence.repetition)
    variances = np.diag(covariance)
    if target == "population":
        clients = evidence.num_clients
        covariance = covariance + (np.diag(present) - np.outer(present, present)) / clients
        variances = variances + present / clients  # of Poisson numbers; a known total makes them multinomial
    known = buckets.default is not None
    total = 1.0 if known else min(max(float(shares.sum()), 0.0), 1.0)
    smoothed = smooth_shares(shares, variances, total, known=known)
    if known:
        shares, covariance = _with_known_total(shares, covariance)
    return BucketShares(buckets, shares, covariance, smoothed)


def estimate_mean(evidence: Evidence, buckets: Buckets, target: Target, level: float) -> IntervalEstimate:
    """Mean of the numbers, cut to the range, of a metric with estimate = "mean": among the reporters, or of a population.

    Model:     the true bit of a client with the fraction u in cohort c is 1 if u >= (c + U) / m, with U ~ uniform(0, 1) and c uniform.
    Estimator: unbiased, with x_g the share of true bits in group g of G groups of neighbouring cohorts

        mean = e_0 + (e_1 - e_0) u^        u^ = sum_g x_g / G        x_g = (c_g / n_g - p*) / (q* - p*)

    Variance:  noise V(x_g) of a report (`RowNoise`), and the choice of clients with their thresholds; T reports of each client

        Var u^ = sum_g (V(x_g) + T x_g (1 - x_g)) / (n_g G**2)        less T s**2 / N among the reporters

    s**2 is the variance of u, which thresholds add to bits but not to the mean of the reporters. It is taken from its lower limit given
    the x_g, which are averages of P(u >= t) over a range of t:

        s**2 >= sum_g (2 g + 1) x_g / G**2 - u^**2 - 1 / (4 G**2)

    G = m unless a group then has fewer than 30 reports. Intervals hold the means that the law of section 10 does not reject
    (`categories.law_of_mean`), and are cut to the range.
    """
    mechanism, repetition = evidence.params.mechanism, evidence.repetition
    reports, ones = _grouped(evidence.counts.reports, evidence.counts.ones[:, 0])
    size, of_bit = len(reports), RowNoise.of_mechanism(mechanism, repetition)
    p, q = mechanism.p_star, mechanism.q_star
    if q < p:
        p, q, ones = 1 - p, 1 - q, reports - ones
    of_groups = count_law(ones, reports.astype(float), (p, q), (of_bit.absent, of_bit.present))
    present, spread = np.clip(of_groups.shares, 0, 1), 0.0
    if target == "reporters":
        square = float(((2 * np.arange(size) + 1) @ present) / size**2)
        spread = max(square - float(present.mean()) ** 2 - 1 / (4 * size**2), 0.0)
    law = law_of_mean(of_groups, reports / repetition.per_client, spread / evidence.num_clients)
    lowest, highest = buckets.edges
    width = highest - lowest
    low, high = (float(ends[0]) for ends in law.interval(level, law.p_values(), np.zeros(1, bool)))
    low, high = (min(max(lowest + width * end, lowest), highest) for end in (low, high))
    return IntervalEstimate(
        lowest + width * float(law.shares[0]), width * math.sqrt(float(law.variances[0])), low, high
    )


def _grouped(reports: Counts, ones: Counts) -> tuple[Counts, Counts]:
    """Numbers of reports and of ones in the most groups of neighbouring cohorts, m / 2**i, of which each has 30 reports; else in one."""
    while len(reports) > 1 and reports.min() < _MIN_REPORTS:
        width = 2 if len(reports) % 2 == 0 else len(reports)
        reports, ones = (counts.reshape(-1, width).sum(axis=1) for counts in (reports, ones))
    return reports, ones


def _with_known_total(shares: Floats, covariance: Floats) -> tuple[Floats, Floats]:
    """Least-squares estimate of shares that add up to 1, and its covariance. Rows with the same number of ones add up to 1 already."""
    of_total = covariance.sum(axis=1)
    variance = of_total.sum()
    if variance <= _ROUNDING * np.trace(covariance):
        return shares, covariance
    gain = of_total / variance
    return shares - gain * (shares.sum() - 1), covariance - np.outer(gain, of_total)


def _first_crossing(cumulative: Floats, edges: Floats, t: float) -> float:
    """Smallest y with a linearly interpolated distribution function of at least t."""
    i = max(1, int(np.searchsorted(cumulative, t)))
    i = min(i, len(edges) - 1)
    step = cumulative[i] - cumulative[i - 1]
    part = 0.0 if step <= 0 else (t - cumulative[i - 1]) / step
    return float(edges[i - 1] + min(max(part, 0.0), 1.0) * (edges[i] - edges[i - 1]))


def _quadratic_roots(a: Floats, b: Floats, c: Floats) -> Floats:
    """Real roots (2, n) of a f**2 + b f + c; nan where there is none."""
    discriminant = b**2 - 4 * a * c
    discriminant = np.where(np.abs(discriminant) <= _ROUNDING * b**2, 0, discriminant)  # a double root: no noise
    with np.errstate(divide="ignore", invalid="ignore"):
        half = -(b + np.copysign(np.sqrt(discriminant), b)) / 2
        return np.array([half / a, c / half])
