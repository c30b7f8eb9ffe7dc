"""P-values of candidates, by comparison with random strings, and q-values.

Hypothesis of a test: no client reported the candidate. Three steps:

1. p_v = P(Z >= x_v / s_v), Z distributed as the estimate of a random string in the same reports (`null_distribution.py`)
2. candidates that would be discovered are tested again, each left out of the model (`collision_p_value`)
3. q-values from all p-values (Benjamini & Hochberg 1995, with the null share of Storey, Taylor & Siegmund 2004 at lambda = the rate)

docs/explanation/mathematics.md, equations (10.3) and (10.6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hubbub_decoder.array_types import Flags, Floats, Indices
from hubbub_decoder.inference.null_distribution import NullDistribution, collision_p_value
from hubbub_decoder.model.distributions import norm
from hubbub_decoder.model.random_string import RandomFilters

_RECHECK_BELOW = 0.1  # p- and q-value
_MAX_RECHECKED = 20  # candidates to test again, if there are many cohorts; with fewer, proportionally more
_MANY_COHORTS = 64
_MAX_COLLISION_PROBABILITY = 1e-4

LeaveOneOutScores = tuple[Sequence[float] | Floats, list[Floats]]
"""Scores of a candidate that is left out of the model (m,), and of random strings (m arrays), for each cohort, in its standard errors."""


class CandidateTests(NamedTuple):
    """Tests of M candidates.

    null_distribution : of error / standard error; None: normal
    p_values          : (M,) nan where nothing is known
    retested          : (M,) whether the p-value comes from a test with the candidate left out, and not from the null distribution
    least             : that a random string has a candidate's bits in all cohorts; a decoding has no smaller p-value
    """

    null_distribution: NullDistribution | None
    p_values: Floats
    retested: Flags
    least: float = 0.0

    @classmethod
    def unknown(cls, size: int) -> CandidateTests:
        """Tests of candidates about which nothing is known."""
        return cls(None, np.full(size, np.nan), np.zeros(size, bool))

    def take(self, columns: Indices | slice) -> CandidateTests:
        """Tests of some candidates."""
        return self._replace(p_values=self.p_values[columns], retested=self.retested[columns])

    def expand(self, columns: Indices, size: int, p_value: float) -> CandidateTests:
        """Tests of `size` candidates of which only `columns` (M,) were tested; `p_value` is that of the others."""
        p_values, retested = np.full(size, p_value), np.zeros(size, bool)
        p_values[columns], retested[columns] = self.p_values, self.retested
        return self._replace(p_values=p_values, retested=retested)


def score_candidates(
    shares: Floats,
    errors: Floats,
    random_scores: Iterable[Floats],
    leave_out: Callable[[Indices], Iterable[LeaveOneOutScores]],
    filters: RandomFilters,
    cohorts: int,
) -> CandidateTests:
    """Return the null distribution of the estimates, and the p-value of each candidate, (M,); nan where nothing is known.

    shares, errors : (M,) estimates and their standard errors; errors are nan where nothing is known
    random_scores  : for each cohort, scores of random strings, in standard errors of a typical candidate
    leave_out      : yields the scores of some candidates, each left out of the model
    cohorts        : number of cohorts with reports
    """
    known = ~np.isnan(errors)
    if not known.any():
        return CandidateTests.unknown(len(known))
    common = NullDistribution.from_scores(random_scores, filters.probabilities)
    p, normal = (np.where(known, p_values(shares, errors, null), np.nan) for null in (common, None))

    def recheck(candidates: Indices) -> Iterator[float]:
        for own, scores in leave_out(candidates):
            yield collision_p_value(own, scores, filters.identical_probability, filters.probabilities)

    collision_probability = filters.collision_probability(cohorts)
    retested = recheck_likely_candidates(p, normal, recheck, cohorts, collision_probability)
    return CandidateTests(common, retested, known & (retested != p), collision_probability)


def p_values(shares: Floats, null_std_errors: Floats, null: NullDistribution | None = None) -> Floats:
    """One-sided p-values P(Z >= x / s), (M,); nan where s is nan.

    null_std_errors : s of each share if it were 0; where s = 0 (no noise), a positive share has p-value 0
    null            : distribution of Z; None: standard normal

    >>> p_values(np.array([0.0, 0.2]), np.array([0.1, 0.0])).tolist()
    [0.5, 0.0]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        z = shares / null_std_errors
    z = np.where((shares == 0) & (null_std_errors == 0), -np.inf, z)
    return null.tail(z) if null else np.asarray(norm.sf(z))


def recheck_likely_candidates(
    p: Floats,
    normal: Floats,
    recheck: Callable[[Indices], Iterable[float]],
    cohorts: int,
    collision_probability: float,
) -> Floats:
    """P-values (M,) in which those of likely discoveries are replaced by `recheck`, never below the normal one.

    A fit may have taken up the bits that a candidate shares with a frequent unlisted string; then its errors look too small. So likely
    discoveries are compared with random strings in the same reports, with the candidate left out of the model. Candidates with p and
    q at most 0.1 come first, the least certain first. Then come those with the same under a normal null, the most certain first. A recheck raises no
    p-value above 1/2, where it would count as evidence that most candidates have share 0.

    p                     : by the null distribution of random strings; nan where nothing is known
    normal                : by a normal null
    recheck               : p-values of some candidates, each left out of the model
    collision_probability : that a random string has a candidate's bits in all cohorts. Above 1e-4, p stays: any candidate may be an
                            unlisted string with the same bits, and no candidate could be discovered
    """
    if collision_probability > _MAX_COLLISION_PROBABILITY:
        return p
    rechecked, known = p.copy(), np.flatnonzero(~np.isnan(p))
    likely, possible = (known[q_values(values[known], _RECHECK_BELOW) <= _RECHECK_BELOW] for values in (p, normal))
    possible = np.setdiff1d(possible, likely)
    limit = _MAX_RECHECKED * max(1, _MANY_COHORTS // cohorts)
    candidates = np.concatenate([likely[np.argsort(-p[likely])], possible[np.argsort(normal[possible])]])[:limit]
    for j, p_value in zip(candidates, recheck(candidates), strict=True):
        rechecked[j] = max(float(normal[j]), min(p_value, 0.5))
    return rechecked


def q_values(p: Floats, fdr: float, strata: Indices | None = None) -> Floats:
    """Q-values (M,) for detection at a false discovery rate: candidates with q <= fdr are discoveries.

        q_(i) = pi_0 min over j >= i of p_(j) M / (w_(j) j)        pi_0 = min(1, (max w + sum of w where p > fdr) / (M (1 - fdr)))
        q = 1 where p > fdr                                        w = 1 without strata

    p / w is sorted ascending. pi_0 estimates the share of candidates that no client reported, from those with p above lambda = fdr. The
    usual lambda = 1/2 is liberal under dependence: with null p-values that are equicorrelated at .3 it has .09 false discoveries at
    fdr = .05, and lambda = fdr has less than .05. No candidate with p > fdr is a discovery.

    strata : (M,) of the candidates, which give their tests the weights w of `stratum_weights`; None: all tests have weight 1

    Source: Benjamini & Hochberg 1995; Storey, Taylor & Siegmund 2004, equation 6; Blanchard & Roquain 2009, section 3.2; for weights
    Genovese, Roeder & Wasserman 2006.

    >>> q_values(np.array([0.01, 0.9, 0.02]), 0.05).round(12).tolist()
    [0.021052631579, 1.0, 0.021052631579]
    """
    if not len(p):
        return p
    weights, null_share = _weights_and_null_share(p, fdr, strata)
    weighted = np.divide(p, weights, out=np.full(len(p), np.inf), where=weights > 0)
    order = np.argsort(weighted)
    scaled = weighted[order] * len(p) / np.arange(1, len(p) + 1)
    q = np.empty_like(p)
    q[order] = np.minimum(null_share * np.minimum.accumulate(scaled[::-1])[::-1], 1)
    q[p > fdr] = 1
    return q


def family_q_values(p: Floats, weights: Floats) -> Floats:
    """Q-values (M, T) of T tests in each of M families, such as all changes of one candidate, at one false discovery rate of the families.

        p_v = min over t of p_vt / w_t     R of M families are the discoveries of Benjamini & Hochberg at the rate q
        q_vt = smallest q with p_vt / w_t <= q R / M

    q R / M is the level that the selection of R families leaves to each. At it, Bonferroni's tests find a change in exactly the R families.
    The mean over these families of the chance of a false change is at most q, however the tests of a family depend on each other.

    p : (M, T) nan where nothing is known; a family of nan only does not count in M      weights : (T,) w, with the sum 1

    Source: Benjamini & Bogomolov 2014. docs/explanation/mathematics.md, equation (19.7).

    >>> p = np.array([[0.001, 0.02], [0.4, 0.012], [0.5, 0.9], [np.nan, np.nan]])
    >>> family_q_values(p, np.array([0.5, 0.5])).round(12).tolist()  # .012 is in the second of two families: 3 x .024 / 2
    [[0.006, 0.06], [1.0, 0.036], [1.0, 1.0], [nan, nan]]
    """
    weighted, tested = p / weights, ~np.isnan(p).all(axis=1)
    size = int(tested.sum())
    if not size:
        return np.full_like(p, np.nan)
    ranks = np.arange(1, size + 1)
    smallest = np.sort(np.nanmin(weighted[tested], axis=1))
    of_rank = np.minimum.accumulate((smallest * size / ranks)[::-1])[::-1]
    # of the first R families; from there to the next family, the level q R / M grows with q
    rank = np.searchsorted(of_rank * ranks / size, weighted)
    between = np.divide(weighted * size, rank, out=np.full_like(weighted, np.inf), where=rank > 0)
    q = np.minimum(np.append(of_rank, np.inf)[rank], between)
    return np.where(np.isnan(p), np.nan, np.minimum(q, 1))


def largest_p_values(p: Floats, fdr: float, num_discoveries: int, strata: Indices | None = None) -> Floats:
    """Largest p-value, (M,), with which a discovery would still be one: w fdr R / (pi_0 M) of R discoveries, at most fdr; as in `q_values`.

    >>> largest_p_values(np.array([0.01, 0.9, 0.02]), 0.05, 2).round(4).tolist()
    [0.0475, 0.0475, 0.0475]
    """
    weights, null_share = _weights_and_null_share(p, fdr, strata)
    return np.minimum(weights * fdr * num_discoveries / (null_share * len(p)), fdr)


def _weights_and_null_share(p: Floats, fdr: float, strata: Indices | None) -> tuple[Floats, float]:
    """W (M,) and pi_0 of `q_values`."""
    weights = np.ones(len(p)) if strata is None else stratum_weights(p, fdr, strata)
    return weights, min(1.0, float(weights.max() + weights[p > fdr].sum()) / (len(p) * (1 - fdr)))


def stratum_weights(p: Floats, fdr: float, strata: Indices) -> Floats:
    """Weights of tests, (M,), with mean 1: the odds that a candidate of its stratum is present, estimated from the other candidates.

        w_v proportional to (1 - pi_v) / pi_v        pi_v = min(1, (1 + #{p_u > fdr}) / ((M_g - 1) (1 - fdr))) over u != v in stratum g

    A candidate's odds do not depend on its own p-value, and another candidate's odds are at most as large if it is above fdr. So the false
    discovery rate holds whether or not the strata are informative.
    Source: Hu, Zhao & Zhou 2010 for the odds; Nandi, Sarkar & Chen 2021 for odds that are estimated from the same p-values.
    """
    above = p > fdr
    tests, absent = np.bincount(strata) - 1, np.bincount(strata, above)[strata] - above
    null_shares = np.minimum(1, (1 + absent) / (np.maximum(tests, 1)[strata] * (1 - fdr)))
    odds = (1 - null_shares) / null_shares
    return np.asarray(odds / odds.mean()) if odds.any() else np.ones(len(p))
