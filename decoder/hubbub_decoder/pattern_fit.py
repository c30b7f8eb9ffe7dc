"""Pattern counts + design matrix -> shares, by the full likelihood with random effects.

filters -> observations -> variances, on the leading directions -> observations at the shares found -> solution on all
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.params import Params
from hubbub.summary import PatternCounts
from hubbub.summary.pattern_counts import MAX_PATTERN_BITS
from hubbub_decoder.design_matrix import DesignMatrix
from hubbub_decoder.mixed_model import Glance, MixedModel, Solution, Variances
from hubbub_decoder.patterns import MAX_CELLS, FilterTable, filters_of, number_of_filters, observe

Floats = NDArray[np.float64]

_STRONG = 3.5  # standard errors beyond which a candidate is no noise of a known shape to the others any more
_LOOKS, _TURNS, _STEPS = 2, 3, 8
_SETTLED = 0.05
_HASTE = 1.5  # the fixed point of restricted maximum likelihood approaches from one side, slowly
_LITTLE = 1e-3  # the least share of unlisted strings, and of no value, that weights expect
_KEPT, _BEYOND_BITS = 0.97, 4  # the variances are found on the bits' own directions and a few more
_FEW, _WHOLE = 300, 4_000
"""Most candidates to find variances for, and to fit, on all directions; more have it done on the leading ones."""


@dataclass(frozen=True, eq=False)
class PatternFit:
    """Shares of the reports, as drawn from a population.

    solution  : of the mixed model      weak : (M,) which candidates were random effects to the others
    variances : sigma**2 and tau**2
    """

    solution: Solution
    weak: NDArray[np.bool_]
    variances: Variances


def is_small(params: Params) -> bool:
    """Say whether patterns of these parameters can be fitted whole: few bits, and few filters."""
    k = params.num_bits
    return k <= MAX_PATTERN_BITS and number_of_filters(params) << k <= MAX_CELLS


def fit_patterns(counts: PatternCounts, design: DesignMatrix) -> PatternFit:
    """Fit all candidates of the design, more than the patterns have numbers if need be."""
    table = FilterTable.of(design.params)
    filter_of = filters_of(design, table)
    size = filter_of.shape[1]
    weak, variances = np.ones(size, np.bool_), Variances(weak=1e-4 / np.sqrt(max(size, 1)), unlisted=1e-3)
    expected = np.tile(table.random + _LITTLE * (table.filters == 0), (len(filter_of), 1))
    for _ in range(_LOOKS):
        observations = observe(counts, table, expected)
        most = design.params.num_bits + _BEYOND_BITS
        leading = MixedModel(
            observations if size <= _FEW else observations.leading(table, _KEPT, most), table, filter_of
        )
        weak, variances, seen = _settle(leading, weak, variances)
        expected = _expected(seen, table, filter_of)
    model = MixedModel(observations, table, filter_of) if _FEW < size <= _WHOLE else leading
    return PatternFit(model.solve(weak, variances), weak, variances)


def _settle(
    model: MixedModel, weak: NDArray[np.bool_], variances: Variances
) -> tuple[NDArray[np.bool_], Variances, Glance]:
    """Find the variances by restricted maximum likelihood, and who is weak under them, in turns."""
    for _ in range(_TURNS):
        for _ in range(_STEPS):
            growth = model.growth(weak, variances)
            variances = Variances(
                _grown(variances.weak, growth.weak, 1 / len(weak)) if weak.any() else variances.weak,
                _grown(variances.unlisted, growth.unlisted, 1.0),
            )
            if max(abs(np.log(growth.weak)), abs(np.log(growth.unlisted))) < _SETTLED:
                break
        seen = model.glance(weak, variances)
        was, weak = weak, ~(seen.z > _STRONG)
        if np.array_equal(was, weak):
            break
    return weak, variances, seen


def _grown(variance: float, growth: float, most: float) -> float:
    return float(np.clip(variance * np.clip(growth, 0.05, 20) ** _HASTE, 1e-12, most))


def _expected(seen: Glance, table: FilterTable, filter_of: NDArray[np.int16]) -> Floats:
    """Return the share of each filter in each cohort, cut to what a population can have: (m, F)."""
    shares = np.maximum(seen.posterior, 0)
    rest, none = (max(float(other), _LITTLE) for other in seen.others)
    nothing = none * (table.filters == 0)
    size = len(table.filters)
    found = np.array([np.bincount(chosen, shares, size) for chosen in filter_of]) + rest * table.random + nothing
    return np.asarray(found / found.sum(axis=1, keepdims=True))
