"""Fit with frequent unlisted strings as columns without a name: fit, search the residuals, add the string found, and fit again.

A frequent unlisted string inflates tau**2 and with it every standard error. `inference/unlisted_search.py` finds its bits in each cohort;
as a column of the design it is one more share to estimate. Only bit counts are searched: those of patterns and reports hold nearly all
that the reports reveal about single strings.

docs/explanation/mathematics.md, section 16; decision 72.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.estimators.fit_result import FitResult
from hubbub_decoder.inference.residual_bits import ResidualBits
from hubbub_decoder.inference.unlisted_search import FoundStrings, find_strings
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.random_string import RandomFilters

MAX_STRINGS = 10
"""Most unlisted strings to add."""

_MAX_ROUNDS = 3  # of fitting a string and looking for its bits again
_MAX_COMMON_BITS = 0.75  # of a string's bits; more are those of a column
_MIN_REMAINING_PART = 0.3
_MAX_COLLISION_PROBABILITY = 1e-4
"""Largest chance that a random string has a given string's bits in all cohorts. Above it, strings have no identity."""


@dataclass(frozen=True, eq=False)
class UnlistedFit:
    """A string, or two that cannot be told apart, with the share from the fit or from the search.

    number    : of strings, 1 or 2
    share, variance, reporter_variance : of all of them together
    separated : the share is that of a column of the fit, and not that of the search
    cohorts   : (c,) with reports      positions : (number, c, h) most probable bits, k where there are fewer
    probabilities : (c,) that these are the bits; of two strings, of both together
    """

    number: int
    share: float
    variance: float
    reporter_variance: float
    separated: bool
    cohorts: Indices
    positions: Indices
    probabilities: Floats


def fit_with_unlisted_strings(
    evidence: Evidence, design: DesignMatrix, fit_design: Callable[[DesignMatrix], FitResult]
) -> tuple[FitResult, tuple[UnlistedFit, ...]]:
    """Result for the candidates of the design, and the unlisted strings that were found.

    evidence   : that `fit_design` fits; its bit counts are searched
    fit_design : fit of a design
    """
    fit, added = fit_design(design), list[FoundStrings]()
    cohorts = np.flatnonzero(evidence.used)
    if RandomFilters.from_params(design.params).collision_probability(len(cohorts)) > _MAX_COLLISION_PROBABILITY:
        return fit, ()
    extended, strings = design, tuple[UnlistedFit, ...]()
    while len(extended.groups) < len(design.groups) + MAX_STRINGS:
        found = _search(evidence, extended, fit)
        if found is None:
            break
        if not found.mostly_located:
            strings = (_from_search(found, cohorts, _remaining_part(found.residuals, fit)),)
            break
        before, extended = extended, _extend(extended, found, evidence)
        fit = fit_design(extended)
        for _ in range(0 if found.located else _MAX_ROUNDS):
            again = _search(evidence, extended, fit, len(found.positions))
            if again is None or not again.mostly_located:
                break
            settled, found = np.array_equal(again.positions, found.positions), again
            if settled:
                break
            extended = _extend(before, found, evidence)
            fit = fit_design(extended)
        added.append(found)
        if not found.located_together:
            break
    strings = (*_from_fit(fit, added, len(design.groups), cohorts), *strings)
    return fit.with_unlisted(len(extended.groups) - len(design.groups)), strings


def _extend(design: DesignMatrix, found: FoundStrings, evidence: Evidence) -> DesignMatrix:
    """Design with a column for each string found; it has no bit in cohorts without reports."""
    positions = np.full((len(found.positions), len(evidence.used), found.positions.shape[2]), design.params.num_bits)
    positions[:, evidence.used] = found.positions
    return design.with_unnamed(positions)


def _search(evidence: Evidence, design: DesignMatrix, fit: FitResult, left_out: int = 0) -> FoundStrings | None:
    """Search the bits that the fit does not explain.

    left_out : number of the last columns to count as average unlisted strings
    returns  : None also for a string with most bits of a column: that column's share is not estimated well, and nothing is unlisted
    """
    expected = fit.nuisance.expected
    if not np.isfinite(expected).all() or (design.groups and not expected[:-1].any()):
        return None  # no candidate was subtracted, so each may look like an unlisted string
    kept = len(design.groups) - left_out
    unlisted = expected[-1] + expected[kept:-1].sum()
    largest, error = fit.totals[1] + expected[kept:-1].sum(), math.sqrt(fit.total_variances[1])
    largest = min(1.0, largest + 4 * error) if math.isfinite(largest + error) else 1.0
    if largest <= 0:
        return None
    columns = design.matrix[:, :kept]
    listed = (columns @ expected[:kept]).reshape(len(evidence.used), -1)
    found = find_strings(ResidualBits.from_evidence(evidence, listed, unlisted), largest)
    if found is None:
        return None
    bits = _extend(design, found, evidence).matrix[:, len(design.groups) :].astype(float)
    common = np.asarray((columns.T @ bits).todense())
    return None if (common > _MAX_COMMON_BITS * bits.sum(axis=0)).any() else found


def _remaining_part(residuals: ResidualBits, fit: FitResult) -> float:
    """Part of an unlisted string's share that is left in the residuals: estimates of the candidates have absorbed the rest.

    Residuals of a fit have the part 1 - rho of the variance of the observations, and of the share of a string with random bits.
    """
    return min(1.0, max(residuals.variance_ratio(fit.nuisance.unlisted_variance), _MIN_REMAINING_PART))


def _from_fit(fit: FitResult, added: list[FoundStrings], first: int, cohorts: Indices) -> tuple[UnlistedFit, ...]:
    """Unlisted strings with the shares of their columns; two strings that cannot be told apart are one row."""
    strings = []
    for found in added:
        columns = slice(first, first + len(found.positions))
        first = columns.stop
        if not found.located_together:
            strings.append(_from_search(found, cohorts, 1.0))
            continue
        parts = [columns] if not found.located else [slice(i, i + 1) for i in range(columns.start, columns.stop)]
        for number, part in enumerate(parts):
            strings.append(
                UnlistedFit(
                    part.stop - part.start,
                    float(fit.shares[part].sum()),
                    float(fit.variances[part].sum()),
                    float(fit.reporter_variances[part].sum()),
                    True,
                    cohorts,
                    found.positions[[number]] if found.located else found.positions,
                    found.probabilities if found.located else found.unlabelled,
                )
            )
    return tuple(sorted(strings, key=lambda string: -string.share))


def _from_search(found: FoundStrings, cohorts: Indices, remaining_part: float) -> UnlistedFit:
    """Strings whose bits are not known everywhere: the share is that of the search, which sums over all bits."""
    variance = (found.std_error() / remaining_part) ** 2
    return UnlistedFit(
        number=len(found.shares),
        share=float(found.shares.sum()) / remaining_part,
        variance=variance,
        reporter_variance=variance,
        separated=False,
        cohorts=cohorts,
        positions=found.positions,
        probabilities=found.unlabelled,
    )
