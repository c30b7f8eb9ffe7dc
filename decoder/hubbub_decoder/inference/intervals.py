"""Estimates and standard errors -> intervals, tests and what is called found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np
from scipy.stats import norm

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.inference.null_distribution import ErrorLaw

POWER = 0.9
_LIKELY = 0.1
_DOUBTED, _COHORTS = 20, 64  # how many at most in so many cohorts; in fewer, more
_ANYBODY = 1e-4

Chances = Callable[[Indices], Iterable[float]]
Target = Literal["reporters", "population"]


def among_reporters(variance: Floats, shares: Floats, num_reports: int | None) -> Floats:
    """Turn the variance of a share of a population that reports are drawn from into that of the share among the reports.

        Var_reporters = Var - x (1 - x) / N

    An estimate that is unbiased for the share among those who reported differs from the population's share by its own error
    and by theirs, x (1 - x) / N, which are uncorrelated. x is cut to [0, 1], the result to [0, inf).

    num_reports : N; None: the population is what is asked about, and the variance stays

    >>> among_reporters(np.array([0.01]), np.array([0.5]), num_reports=100).tolist()
    [0.0075]
    """
    if num_reports is None:
        return variance
    x = np.clip(shares, 0, 1)
    return np.maximum(variance - x * (1 - x) / num_reports, 0)


def of_poisson(variance: Floats, shares: Floats, num_reports: int | None, seen: int) -> Floats:
    """Do the same for a variance that counts the number of reports itself as chance: Var - x / N.

    For the population of which the reporters are a sample, what is left of it is Var - x**2 / N.

    seen : the number of reports there were

    >>> of_poisson(np.array([0.01]), np.array([0.5]), 100, 100).tolist()
    [0.005]
    """
    x = np.clip(shares, 0, 1)
    return np.maximum(variance - (x**2 if num_reports is None else x) / seen, 0)


def interval(shares: Floats, std_errors: Floats, level: float, law: ErrorLaw | None = None) -> tuple[Floats, Floats]:
    """Return shares - a std_errors and shares + b std_errors, not clipped: errors are above a, or below -b, with chance (1 - level) / 2 each.

    law : of errors; None: normal
    """
    beyond = (1 - level) / 2
    above, below = (law.above(beyond), law.below(beyond)) if law else (norm.isf(beyond),) * 2
    with np.errstate(invalid="ignore"):  # of none, that of no error reaches anywhere: level 1
        return shares - above * std_errors, shares + below * std_errors


def p_values(shares: Floats, null_std_errors: Floats, law: ErrorLaw | None = None) -> Floats:
    """Return P(Z >= x / s), one-sided: how often a candidate that nobody reported looks at least so frequent.

    law : of Z; None: normal
    null_std_errors : s of each share were it 0; where s = 0, without any noise, a positive share is certain; nan where s is nan

    >>> p_values(np.array([0.0, 0.2]), np.array([0.1, 0.0])).tolist()
    [0.5, 0.0]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        z = shares / null_std_errors
    z = np.where((shares == 0) & (null_std_errors == 0), -np.inf, z)
    return law.tail(z) if law else np.asarray(norm.sf(z))


def p_values_by_themselves(p: Floats, normal: Floats, chances: Chances, cohorts: int, alike: float) -> Floats:
    """Return p-values, those that decide what is found replaced by what the candidate's cohorts say one by one, never below the normal's.

    What is estimated of the others may have taken up what a candidate has in common with a frequent string that nobody lists; all errors look small
    then. So those that may be found are compared with random strings in the same reports, the model without them (`chance_to_look_there`): first
    those about to be found, the least sure of them, then those that a normal law would find, the surest of them. No p is raised above 1/2, from where
    it would tell of how many are nothing.

    p       : by the law of random strings; nan where nothing is known         normal : by a normal law
    chances : of some candidates, each left out of the model
    alike   : the chance that a random string has the bits of a candidate in all cohorts; where it is not small p stays: any candidate may well be a
              frequent string of the same bits that nobody lists, and none could be found
    """
    if alike > _ANYBODY:
        return p
    judged, known = p.copy(), np.flatnonzero(~np.isnan(p))
    found, perhaps = (known[np.maximum(some[known], q_values(some[known])) <= _LIKELY] for some in (p, normal))
    perhaps = np.setdiff1d(perhaps, found)
    most = _DOUBTED * max(1, _COHORTS // cohorts)
    doubted = np.concatenate([found[np.argsort(-p[found])], perhaps[np.argsort(normal[perhaps])]])[:most]
    for j, chance in zip(doubted, chances(doubted), strict=True):
        judged[j] = max(float(normal[j]), min(chance, 0.5))
    return judged


def q_values(p: Floats) -> Floats:
    """Return the smallest false discovery rate at which each test is called found.

        q_(i) = pi_0 min over j >= i of p_(j) M / j        pi_0 = min(1, (1 + #{p > 1/2}) / (M / 2))        q = 1 where p > 1/2

    p sorted ascending, M tests; pi_0 estimates the share of candidates that nobody reported, from those above 1/2. What is above it
    is never found, however few they are: the rate is only held for rejections up to lambda.
    Source: Benjamini & Hochberg 1995; Storey, Taylor & Siegmund 2004, eq. 6 and theorem 3 with lambda = 1/2.

    >>> q_values(np.array([0.01, 0.9, 0.02])).tolist()
    [0.03, 1.0, 0.03]
    """
    if not len(p):
        return p
    null_share = min(1.0, 2 * (1 + float(np.sum(p > 0.5))) / len(p))
    order = np.argsort(p)
    scaled = p[order] * len(p) / np.arange(1, len(p) + 1)
    q = np.empty_like(p)
    q[order] = np.minimum(null_share * np.minimum.accumulate(scaled[::-1])[::-1], 1)
    q[p > 0.5] = 1
    return q


def level_after_selection(fdr: float, detected: int, tests: int) -> float:
    """Return the level of intervals of the detected whose false coverage rate is at most `fdr`.

        1 - fdr detected / tests

    Source: Benjamini & Yekutieli 2005, theorem 2.

    >>> level_after_selection(0.05, detected=10, tests=100)
    0.995
    """
    return 1 - fdr * detected / tests


def detectable_share(null_std_error: float, num_tests: int, fdr: float, law: ErrorLaw | None = None) -> float:
    """Return the share of a candidate that would be found 9 times in 10, even if it were the only one.

        x = (z(1 - fdr / M) + z(.9)) s        the level of the first Benjamini-Hochberg step, that of Bonferroni; the first z is the law's

    >>> round(detectable_share(0.001, num_tests=100, fdr=0.05), 5)
    0.00457
    """
    first = law.above(fdr / num_tests) if law else norm.isf(fdr / num_tests)
    return float((first + norm.ppf(POWER)) * null_std_error)


def reports_to_detect(share: float, detectable: float, num_reports: int) -> int:
    """Return how many reports would make `share` the detectable one: errors shrink with the root of N.

    >>> reports_to_detect(0.001, detectable=0.002, num_reports=1000)
    4000
    """
    return math.ceil(num_reports * (detectable / share) ** 2)
