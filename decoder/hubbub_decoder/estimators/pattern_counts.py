"""Pattern counts + design matrix -> shares, by the full likelihood with random effects.

filters -> observations -> beliefs, on the leading directions -> observations at the shares found -> beliefs -> tau**2 and solution on all
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.params import Params
from hubbub.summary import PatternCounts
from hubbub.summary.pattern_counts import MAX_PATTERN_BITS
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.empirical_bayes import begin, learn, solve_on_more_directions, totals
from hubbub_decoder.estimators.fit_result import FitResult, compare_with_random_strings
from hubbub_decoder.estimators.mixed_model import MixedModel, Observations, Solution
from hubbub_decoder.inference.intervals import poisson_variances
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.random_string import RandomPlaces, filter_probabilities

_LITTLE = 1e-3  # the least share of unlisted strings, and of no value, that weights expect
_KEPT, _BEYOND_BITS = 0.97, 4  # beliefs are found on the bits' own directions and a few more
_FEW = 300
"""Most candidates to find beliefs about on all directions."""
_DENSE, _WIDE = 5_000, 25_000_000
"""Most observations, and most observations x candidates, to solve on all directions; beyond, _DENSE of the leading ones are used."""
MAX_CELLS = 1 << 25
"""Most entries of the table P(pattern | filter) that are worth building."""

_TINY = 1e-12


def is_small(params: Params) -> bool:
    """Say whether patterns of these parameters can be fitted whole: few bits, and few filters."""
    k = params.num_bits
    return k <= MAX_PATTERN_BITS and number_of_filters(params) << k <= MAX_CELLS


def fit_patterns(counts: PatternCounts, design: DesignMatrix) -> FitResult:
    """Fit all candidates of the design, more than the patterns have numbers if need be."""
    table = FilterTable.of(design.params)
    filter_of = filters_of(design, table)
    size = filter_of.shape[1]
    most = design.params.num_bits + _BEYOND_BITS

    def observed(expected: Floats) -> tuple[Observations, MixedModel]:
        observations = observe(counts, table, expected)
        few = observations if size <= _FEW else split_directions(observations, table, _KEPT, most)
        return observations, _model(few, table, filter_of)

    average = np.tile(table.random + _LITTLE * (table.filters == 0), (len(filter_of), 1))
    learnt, seen = begin(observed(average)[1])
    observations, leading = observed(_expected(seen, table, filter_of))
    learnt, seen = learn(leading, learnt)
    sums = totals(leading, learnt, seen)
    wide = observations.size > _DENSE and observations.size * size > _WIDE
    final = split_directions(observations, table, 1.0, _DENSE // len(filter_of)) if wide else observations
    if final.size <= len(leading.y):
        solved = leading.solve(learnt.beliefs, learnt.scatter)
    else:
        learnt, solved = solve_on_more_directions(_model(final, table, filter_of), learnt)
    solution = solved.solution()
    tests = compare_with_random_strings(solved, solution, filter_of[:, None], RandomPlaces.of_filters(table.random))
    n, (listed, unlisted, nothing) = counts.num_reports, sums.shares
    variances = poisson_variances(np.diag(sums.covariance), sums.shares, n)
    of_sums = np.array([listed, unlisted, 1 - nothing]), *variances
    return FitResult.from_mixed_model(solution, learnt, tests, of_sums, lambda v, x: poisson_variances(v, x, n))


def _model(observations: Observations, table: FilterTable, filter_of: NDArray[np.int16]) -> MixedModel:
    return MixedModel(observations, filter_of[:, None], table.others, table.scatter)


def _expected(seen: Solution, table: FilterTable, filter_of: NDArray[np.int16]) -> Floats:
    """Return the share of each filter in each cohort, cut to what a population can have: (m, F)."""
    shares = np.maximum(seen.posterior, 0)
    rest, none = (max(float(other), _LITTLE) for other in seen.others)
    nothing = none * (table.filters == 0)
    size = len(table.filters)
    found = np.array([np.bincount(chosen, shares, size) for chosen in filter_of]) + rest * table.random + nothing
    return np.asarray(found / found.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class FilterTable:
    """Every filter a string can have, and what is reported under each.

    filters : (F,) ascending, 0 first
    random  : (F,) how likely a string that hashes anywhere has each; 0 for "no value"
    chance  : (2**k, F) P(pattern reported | filter)
    """

    filters: NDArray[np.int64]
    random: Floats
    chance: Floats

    @classmethod
    def of(cls, params: Params) -> FilterTable:
        """Enumerate the filters of a hash scheme.

        >>> params = Params(num_bits=8, num_hashes=2, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0)
        >>> table = FilterTable.of(params)
        >>> table.chance.shape, round(float(table.random[1]), 6)  # no value, and 28 pairs
        ((256, 29), 0.035714)
        """
        likely = filter_probabilities(params)
        filters = np.array([0, *sorted(likely)], np.int64)
        random = np.array([likely.get(int(each), 0.0) for each in filters])
        chance = np.ones((1 << params.num_bits, len(filters)))
        patterns = np.arange(1 << params.num_bits)[:, None]
        for bit in range(params.num_bits):
            one = np.where(filters >> bit & 1, params.q_star, params.p_star)
            chance *= np.where(patterns >> bit & 1, one, 1 - one)
        return cls(filters, random, chance)

    @property
    def others(self) -> Floats:
        """What is no candidate, by filter: a random string, and "no value"; (F, 2)."""
        return np.column_stack([self.random, self.filters == 0])

    @property
    def scatter(self) -> Floats:
        """Covariance of the indicator of a random string's filter: diag(r) - r r'."""
        return np.diag(self.random) - np.outer(self.random, self.random)


def number_of_filters(params: Params) -> int:
    """Say how many filters a string may have, "no value" among them, without building anything large."""
    from math import comb

    k, h = params.num_bits, params.num_hashes
    sizes = range(1, h + 1) if params.hash_scheme == "google-md5" else [h]
    return 1 + sum(comb(k, size) for size in sizes)


def filters_of(design: DesignMatrix, table: FilterTable) -> NDArray[np.int16]:
    """Return the index in `table.filters` of each candidate's filter in each cohort: (m, M)."""
    params = design.params
    k, (rows, columns) = params.num_bits, design.matrix.shape
    bits = np.zeros((rows // k, columns), np.int64)
    entries = design.matrix.tocoo()
    np.add.at(bits, (entries.row // k, entries.col), np.int64(1) << (entries.row % k).astype(np.int64))
    return np.searchsorted(table.filters, bits).astype(np.int16)


def observe(counts: PatternCounts, table: FilterTable, expected: Floats) -> Observations:
    """Whiten the score of each cohort's counts.

        I_c = n_c R' diag(1/pi_c) R        y_c = I_c**-1/2 R' diag(1/pi_c) counts_c        A_c = I_c**1/2        pi_c = R theta_c

    R is `table.chance`. At the true theta_c this is the efficient score; Newton's method on the likelihood is doing it again at
    the shares found.

    expected : (m, F) theta_c to take pi_c at, positive sums
    """
    responses, features = [], []
    for cohort, theta in zip(counts.counts, expected, strict=True):
        weighted = table.chance / np.maximum(table.chance @ theta, _TINY)[:, None]
        information = cohort.sum() * (table.chance.T @ weighted)
        values, vectors = np.linalg.eigh(information)
        known = values > _TINY * max(values[-1], _TINY)
        root = np.sqrt(values[known])
        responses.append((vectors[:, known].T @ (weighted.T @ cohort)) / root)
        features.append(root[:, None] * vectors[:, known].T)
    return Observations(tuple(responses), tuple(features))


def split_directions(observations: Observations, table: FilterTable, kept: float, most: int) -> Observations:
    """Keep, in every cohort, the directions that tell strings apart best, and that of their number.

    Directions are the eigenvectors of A V A', V the scatter of a random string's filter, the most telling first; so many that
    together they hold a share `kept` of its trace, `most` at the most. Near eps = 1 the bits alone hold 97 %: 8 numbers of 37.
    """
    pairs = list(zip(observations.responses, observations.features, strict=True))
    bases = [_leading(a, table, kept, most) for _, a in pairs]
    return Observations(
        tuple(basis.T @ y for basis, (y, _) in zip(bases, pairs, strict=True)),
        tuple(basis.T @ a for basis, (_, a) in zip(bases, pairs, strict=True)),
    )


def _leading(features: Floats, table: FilterTable, kept: float, most: int) -> Floats:
    """Return the leading directions, orthonormal, as columns."""
    if not len(features):
        return np.empty((0, 0))
    values, vectors = np.linalg.eigh(features @ table.scatter @ features.T)
    share = np.cumsum(values[::-1]) / values.sum()
    directions = vectors[:, ::-1][:, : min(int(np.searchsorted(share, kept)) + 1, most)]
    number = features @ table.random
    number -= directions @ (directions.T @ number)
    length = np.linalg.norm(number)
    if length > 1e-6 * np.linalg.norm(features):
        directions = np.column_stack([directions, number / length])
    return directions
