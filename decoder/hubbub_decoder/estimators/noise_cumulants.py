"""Cumulants of the noise of each estimate, for the tails of its error: from expected counts, so that they follow no count.

An estimate is a weighted sum of counts. Its second and third cumulants are those sums of the counts' cumulants, with the weights squared
and cubed. The weights here are those of candidate v alone, beside the average unlisted string w (and, with patterns, "no value"): the
efficient score of v, less its projection on theirs.

    x^_v = sum_i a_i y_i / sum_i a_i b_i        a_i = (b_i - l w_i) / Var y_i        l : so that sum_i a_i w_i = 0

Other candidates add variance to an estimate, over many counts and with both signs, and no skewness to speak of. So the third cumulant is
this one, the variance at least this one. docs/explanation/mathematics.md, section 10.
"""

from __future__ import annotations

import numpy as np

from hubbub.metrics.params import Params
from hubbub.summary import PatternCounts
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.fit_result import FitResult
from hubbub_decoder.inference.error_law import ErrorCumulants
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.pattern_likelihood import FilterTable, filter_indices
from hubbub_decoder.model.repetition import Repetition

_STRONG = 2.0  # standard errors above 0, from which a share counts among those expected
_MIN_EXPECTED_SHARE = 1e-3  # of "no value" and of the unlisted strings
_MAX_PATTERNS = 1 << 20  # of all cohorts together; with more, the cumulants of every n-th cohort stand for all
_TINY = 1e-300


def bit_noise_cumulants(evidence: Evidence, design: DesignMatrix, fit: FitResult) -> ErrorCumulants:
    """Noise cumulants of estimates from bit counts, given the reporters.

    Var y = (mu v(q*) + (1 - mu) v(p*)) / (n (q* - p*)**2)        v(p) = p (1 - p), third cumulant v(p) (1 - 2 p)
    """
    params, n, repetition = evidence.params, evidence.counts.reports, evidence.repetition
    k, p, q = params.num_bits, params.mechanism.p_star, params.mechanism.q_star
    shares, unlisted = _expected_shares(fit, evidence.any_value_share, 1 / evidence.num_reports)
    w = np.tile(evidence.random_string.mean, len(n))
    mu = design.matrix @ shares + unlisted * w
    pi = p + (q - p) * mu
    reports = np.repeat(n, k).astype(float)
    used = reports > 0
    scale, size = q - p, np.where(used, reports, 1)
    g = np.where(used, size * scale**2 / np.maximum(pi * (1 - pi), _TINY), 0)
    effects = noise_effect(params, repetition, 1.0), noise_effect(params, repetition)
    instantaneous, permanent = params.mechanism.noise_variances(np.stack([np.zeros_like(mu), np.ones_like(mu), mu]))
    absent, present, expected = (instantaneous + repetition.per_response * permanent) / (size * scale**2)
    second, second_slope = np.where(used, expected, 0), np.where(used, present - absent, 0)
    of_one, of_zero = (
        effect**2 * c * (1 - c) * (1 - 2 * c) / (size**2 * scale**3) for c, effect in zip((q, p), effects, strict=True)
    )
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


def pattern_noise_cumulants(evidence: Evidence, design: DesignMatrix, fit: FitResult) -> ErrorCumulants:
    """Noise cumulants of estimates from pattern counts.

    In cohort c, with n reports and expected shares pi of the patterns, filter g has weights a = (R_g - l R w - l_0 R_0) / pi; l and l_0
    are those of an average string. The counts are Poisson. Strings hash at random, so all candidates have the cumulants of an average
    string. Reports of the candidate itself are taken as given, and take the place of others.
    """
    counts, table = evidence.require(PatternCounts), FilterTable.from_params(design.params)
    filter_of = filter_indices(design, table)
    used = np.flatnonzero(counts.counts.any(axis=1))
    used = used[:: -(-(len(used) << design.params.num_bits) // _MAX_PATTERNS)]
    reports, filter_of, size = counts.counts[used].sum(axis=1), filter_of[used], len(table.filters)
    shares, unlisted = _expected_shares(fit, float(fit.totals[2]), _MIN_EXPECTED_SHARE)
    no_value = max(1 - float(shares.sum()) - unlisted, _MIN_EXPECTED_SHARE)
    others = table.fixed_patterns @ np.array([unlisted, no_value])
    patterns = [_expected_patterns(table, np.bincount(filters, shares, size) + others) for filters in filter_of]
    fixed, gram = np.column_stack([table.mixture(theta) for theta in table.fixed_patterns.T]), np.zeros((2, 2))
    for pi, n in zip(patterns, reports, strict=True):
        gram += n * (fixed.T @ (fixed / pi[:, None]))
    average = fixed @ (np.linalg.pinv(gram) @ gram[0])
    sums = np.zeros(5)
    for pi, n in zip(patterns, reports, strict=True):
        sums += n * (_weighted_powers(table, average, pi) @ table.probabilities)
    length, variance, own_variance, third, own_third = sums * (counts.num_reports / max(1, reports.sum()))
    effect = noise_effect(design.params, evidence.repetition)
    values = (
        *(variance / length**2, (own_variance - variance) / length**2),
        *(effect**2 * third / length**3, effect**2 * (own_third - third) / length**3),
    )
    return ErrorCumulants(*(np.full(filter_of.shape[1], float(value)) for value in values))


def _weighted_powers(table: FilterTable, average: Floats, pi: Floats) -> Floats:
    """Sums over the patterns of powers of the weights a = (R - u) / pi of each filter, (5, F), u the average string's part.

    R a; pi a**2; R a**2 - (R a)**2; pi a**3; third cumulant of a under R. Powers of R - u are expanded, so that no table of the patterns
    is needed.
    """
    u, v = average / pi, 1 / pi
    r1, r2, r3, r4 = (
        {power: table.score(weights, number) for power, weights in terms}
        for number, terms in (
            (1, ((1, u), (2, u**2), (3, u**3))),
            (2, ((0, v), (1, u * v), (2, u**2 * v))),
            (3, ((0, v**2), (1, u * v**2))),
            (4, ((0, v**3),)),
        )
    )
    first = r2[0] - r1[1]
    second = r3[0] - 2 * r2[1] + r1[2]
    third = r4[0] - 3 * r3[1] + 3 * r2[2] - r1[3]
    squares = r2[0] - 2 * r1[1] + float(np.sum(average * u))
    cubes = r3[0] - 3 * r2[1] + 3 * r1[2] - float(np.sum(average * u**2))
    return np.array([first, squares, second - first**2, cubes, third - 3 * second * first + 2 * first**3])


def _expected_patterns(table: FilterTable, theta: Floats) -> Floats:
    """Expected share of each pattern in one cohort, (2**k,), positive; theta : (F,) shares of the filters, not negative."""
    pi = table.mixture(theta)
    return np.asarray(np.maximum(pi / pi.sum(), 1e-12))


def noise_effect(params: Params, repetition: Repetition, true_bit: float = 0.0) -> float:
    """Variance of the noise of a true bit, 0 or 1, with repeated reports, over that with a client for each report."""
    instantaneous, permanent = (float(part) for part in params.mechanism.noise_variances(np.array(true_bit)))
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
