"""Cumulants of the noise of each estimate, for the tails of its error: from expected counts, so that they follow no count.

An estimate is a weighted sum of counts. Its second and third cumulants are those sums of the counts' cumulants, with the weights squared
and cubed. The weights here are those of candidate v alone, beside the average unlisted string w (and, with patterns, "no value"): the
efficient score of v, less its projection on theirs.

    x^_v = sum_i a_i y_i / sum_i a_i b_i        a_i = (b_i - l w_i) / Var y_i        l : so that sum_i a_i w_i = 0

Other candidates add variance to an estimate, over many counts and with both signs, and no skewness to speak of. So the third cumulant is
this one, the variance at least this one. docs/mathematics.md, section 10.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubbub.metrics.params import Params
from hubbub.summary import BitCounts, PatternCounts
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.estimators.fit_result import FitResult
from hubbub_decoder.inference.error_law import ErrorCumulants
from hubbub_decoder.model.bit_covariance import bit_noise
from hubbub_decoder.model.bit_products import BitProductSums
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.pattern_likelihood import FilterTable, filter_indices
from hubbub_decoder.model.random_string import RandomStringMoments
from hubbub_decoder.model.repetition import Repetition

_STRONG = 2.0  # standard errors above 0, from which a share counts among those expected
_MIN_EXPECTED_SHARE = 1e-3  # of "no value" and of the unlisted strings
_TINY = 1e-300


def bit_noise_cumulants(counts: BitCounts, design: DesignMatrix, fit: FitResult) -> ErrorCumulants:
    """Noise cumulants of estimates from bit counts, given the reporters.

    Var y = (mu v(q*) + (1 - mu) v(p*)) / (n (q* - p*)**2)        v(p) = p (1 - p), third cumulant v(p) (1 - 2 p)
    """
    params, n = counts.metric.params, counts.reports
    k, p, q = params.num_bits, params.p_star, params.q_star
    random_string = RandomStringMoments.from_params(params)
    shares, unlisted = _expected_shares(fit, random_string.any_value_share(counts), 1 / counts.num_reports)
    w = np.tile(random_string.mean, len(n))
    mu = design.matrix @ shares + unlisted * w
    pi = p + (q - p) * mu
    reports = np.repeat(n, k).astype(float)
    used = reports > 0
    scale, size = q - p, np.where(used, reports, 1)
    g = np.where(used, size * scale**2 / np.maximum(pi * (1 - pi), _TINY), 0)
    repetition = Repetition.from_periods(counts.metric, counts.periods)
    effect = noise_effect(params, repetition)
    instantaneous, permanent = bit_noise(np.stack([np.zeros_like(mu), np.ones_like(mu), mu]), params)
    absent, present, expected = (instantaneous + repetition.per_response * permanent) / (size * scale**2)
    second, second_slope = np.where(used, expected, 0), np.where(used, present - absent, 0)
    of_one, of_zero = (effect**2 * c * (1 - c) * (1 - 2 * c) / (size**2 * scale**3) for c in (q, p))
    third, third_slope = np.where(used, mu * of_one + (1 - mu) * of_zero, 0), np.where(used, of_one - of_zero, 0)
    g2, g3 = g**2, g**3
    columns = (
        *(g, w * g),
        *(g2 * second, w * g2 * second),
        *(g3 * third, w * g3 * third, w**2 * g3 * third),
        *(g2 * second_slope, w * g2 * second_slope, w**2 * g2 * second_slope),
        *(w**power * g3 * third_slope for power in range(4)),
    )
    of_bits = (design.matrix.T @ np.column_stack(columns)).T
    w2 = float(np.sum(w**2 * g))
    level = of_bits[1] / w2 if w2 > 0 else np.zeros(of_bits.shape[1])
    length = np.maximum(of_bits[0] - level * of_bits[1], _TINY)
    b2, b3, s2, s3 = of_bits[2:4], of_bits[4:7], of_bits[7:10], of_bits[10:14]
    variances = b2[0] - 2 * level * b2[1] + level**2 * np.sum(w**2 * g2 * second)
    thirds = b3[0] - 3 * level * b3[1] + 3 * level**2 * b3[2] - level**3 * np.sum(w**3 * g3 * third)
    variance_slopes = s2[0] - 2 * level * s2[1] + level**2 * s2[2]
    third_slopes = s3[0] - 3 * level * s3[1] + 3 * level**2 * s3[2] - level**3 * s3[3]
    return ErrorCumulants(
        variances=np.maximum(variances - shares * variance_slopes, 0) / length**2,
        variance_slopes=variance_slopes / length**2,
        third=(thirds - shares * third_slopes) / length**3,
        third_slopes=third_slopes / length**3,
    )


def pattern_noise_cumulants(counts: PatternCounts, design: DesignMatrix, fit: FitResult) -> ErrorCumulants:
    """Noise cumulants of estimates from pattern counts.

    In cohort c, with n reports and expected shares pi of the patterns, filter g has weights a = (R_g - l R w - l_0 R_0) / pi; l and l_0
    are those of an average string. The counts are Poisson. Strings hash at random, so all candidates have the cumulants of an average
    string. Reports of the candidate itself are taken as given, and take the place of others.
    """
    params = design.params
    table, n = FilterTable.from_params(params), counts.counts.sum(axis=1)
    filter_of, size = filter_indices(design, table), len(table.filters)
    shares, unlisted = _expected_shares(fit, float(fit.totals[2]), _MIN_EXPECTED_SHARE)
    no_value = max(1 - float(shares.sum()) - unlisted, _MIN_EXPECTED_SHARE)
    others = table.fixed_patterns @ np.array([unlisted, no_value])
    expected = [np.bincount(filters, shares, size) + others for filters in filter_of]
    patterns = [np.maximum(table.mixture(theta / theta.sum()), 1e-12) for theta in expected]
    fixed = np.column_stack([table.mixture(each) for each in table.fixed_patterns.T])
    gram = sum(reports * fixed.T @ (fixed / pi[:, None]) for pi, reports in zip(patterns, n, strict=True))
    average = fixed @ (np.linalg.pinv(gram) @ gram[:, 0])  # an average candidate is an average string
    moments = _FilterMoments.from_params(params, table)
    parts = zip(patterns, n, strict=True)
    sums = sum(reports * (moments(pi, average) @ table.probabilities) for pi, reports in parts)
    length, variance, third, own_variance, own_third = sums
    effect = noise_effect(params, Repetition.from_periods(counts.metric, counts.periods))
    values = (
        *(variance / length**2, (own_variance - variance) / length**2),
        *(effect**2 * third / length**3, effect**2 * (own_third - third) / length**3),
    )
    return ErrorCumulants(*(np.full(filter_of.shape[1], float(value)) for value in values))


@dataclass(frozen=True, eq=False)
class _FilterMoments:
    """Moments of the weight a = (R_g - u) / pi of a pattern, for each filter g; sums are taken bit by bit.

    sums    : over patterns s, of v_s R_gs**j for j = 1 .. 4
    indices : of the filters in each
    """

    sums: tuple[BitProductSums, ...]
    indices: tuple[Indices, ...]

    @classmethod
    def from_params(cls, params: Params, table: FilterTable) -> _FilterMoments:
        """Sums for all filters of the table."""
        p, q = params.p_star, params.q_star
        chances = np.array([[1 - p, p], [1 - q, q]])
        sums = tuple(BitProductSums.of_functions(chances**j, params.num_bits, params.num_hashes) for j in range(1, 5))
        return cls(sums, tuple(each.indices(table.filters) for each in sums))

    def __call__(self, pi: Floats, u: Floats) -> Floats:
        """Rows (5, F): E_g a; sums of pi a**2 and of pi a**3; variance and third cumulant of a under g."""

        def total(power: int, values: Floats) -> Floats:
            return np.asarray(self.sums[power - 1](values)[self.indices[power - 1]])

        ratio = u / pi
        r1, r2 = total(1, ratio), total(2, 1 / pi)
        r1_2, r2_1, r3 = total(1, ratio**2), total(2, ratio / pi), total(3, 1 / pi**2)
        r1_3, r2_2, r3_1, r4 = total(1, ratio**3), total(2, ratio**2 / pi), total(3, ratio / pi**2), total(4, 1 / pi**3)
        first = r2 - r1
        second = r3 - 2 * r2_1 + r1_2
        third = r4 - 3 * r3_1 + 3 * r2_2 - r1_3
        return np.array([
            first, r2 - 2 * r1 + np.sum(ratio * u), r3 - 3 * r2_1 + 3 * r1_2 - np.sum(ratio**2 * u),
            second - first**2, third - 3 * second * first + 2 * first**3,
        ])  # fmt: skip


def noise_effect(params: Params, repetition: Repetition) -> float:
    """Variance of the noise of a zero bit with repeated reports, over that with a client for each report."""
    instantaneous, permanent = (float(part) for part in bit_noise(np.array(0.0), params))
    total = instantaneous + permanent
    return (instantaneous + repetition.per_response * permanent) / total if total > 0 else 1.0


def _expected_shares(fit: FitResult, some_value: float, least: float) -> tuple[Floats, float]:
    """Shares of the candidates (M,) and of the unlisted strings, to compute weights from: estimates below 2 standard errors are noise.

    some_value : share of the reports with a value; nan: all      least : share of the unlisted strings, at least
    """
    x, s = np.nan_to_num(fit.shares), np.sqrt(np.nan_to_num(fit.variances))
    shares = np.where(x > _STRONG * s, x, 0)
    shares = shares / max(1.0, float(shares.sum()) + least)
    listed = float(shares.sum())
    return shares, max(least, min(1.0, some_value if np.isfinite(some_value) else 1.0) - listed)
