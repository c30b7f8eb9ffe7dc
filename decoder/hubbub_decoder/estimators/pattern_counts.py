"""Pattern counts + design matrix -> shares, by the full likelihood with random effects.

filters -> observations -> beliefs, on the leading directions -> observations at the shares found -> beliefs -> tau**2 and solution on all
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.params import Params
from hubbub.summary import PatternCounts
from hubbub.summary.pattern_counts import MAX_PATTERN_BITS
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.empirical_bayes import begin, learn, solve_on_more_directions, totals
from hubbub_decoder.estimators.fit_result import Fitted
from hubbub_decoder.estimators.mixed_model import MixedModel
from hubbub_decoder.estimators.patterns import (
    MAX_CELLS,
    FilterTable,
    Observations,
    filters_of,
    number_of_filters,
    observe,
)
from hubbub_decoder.estimators.solution import Solution
from hubbub_decoder.estimators.solving import solve
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.random_string import RandomPlaces

_LITTLE = 1e-3  # the least share of unlisted strings, and of no value, that weights expect
_KEPT, _BEYOND_BITS = 0.97, 4  # beliefs are found on the bits' own directions and a few more
_FEW = 300
"""Most candidates to find beliefs about on all directions."""
_DENSE, _WIDE = 5_000, 25_000_000
"""Most observations, and most observations x candidates, to solve on all directions; beyond, _DENSE of the leading ones are used."""


def is_small(params: Params) -> bool:
    """Say whether patterns of these parameters can be fitted whole: few bits, and few filters."""
    k = params.num_bits
    return k <= MAX_PATTERN_BITS and number_of_filters(params) << k <= MAX_CELLS


def fit_patterns(counts: PatternCounts, design: DesignMatrix) -> Fitted:
    """Fit all candidates of the design, more than the patterns have numbers if need be."""
    table = FilterTable.of(design.params)
    filter_of = filters_of(design, table)
    size = filter_of.shape[1]
    most = design.params.num_bits + _BEYOND_BITS

    def observed(expected: Floats) -> tuple[Observations, MixedModel]:
        observations = observe(counts, table, expected)
        few = observations if size <= _FEW else observations.leading_directions(table, _KEPT, most)
        return observations, _model(few, table, filter_of)

    average = np.tile(table.random + _LITTLE * (table.filters == 0), (len(filter_of), 1))
    learnt, seen = begin(observed(average)[1])
    observations, leading = observed(_expected(seen, table, filter_of))
    learnt, seen = learn(leading, learnt)
    sums = totals(leading, learnt, seen)
    tested = filter_of[:, None], RandomPlaces.of_filters(table.random)
    wide = observations.size > _DENSE and observations.size * size > _WIDE
    final = observations.leading_directions(table, 1.0, _DENSE // len(filter_of)) if wide else observations
    if final.size <= len(leading.y):
        return Fitted.of(solve(leading, learnt.beliefs, learnt.scatter), sums, learnt, *tested)
    learnt, solved = solve_on_more_directions(_model(final, table, filter_of), learnt)
    return Fitted.of(solved, sums, learnt, *tested)


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
