"""Pattern counts + design matrix -> shares, by the full likelihood with random effects.

filters -> observations -> beliefs, on the leading directions -> observations at the shares found -> beliefs -> solution on all, or,
of very many candidates, on all others
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.params import Params
from hubbub.summary import PatternCounts
from hubbub.summary.pattern_counts import MAX_PATTERN_BITS
from hubbub_decoder.design_matrix import DesignMatrix
from hubbub_decoder.error_law import ErrorLaw, chance_to_look_there
from hubbub_decoder.inference import p_values, p_values_by_themselves
from hubbub_decoder.mixed_model import Beliefs, MixedModel, Solution, Solved, Totals
from hubbub_decoder.patterns import MAX_CELLS, FilterTable, filters_of, number_of_filters, observe
from hubbub_decoder.prior import fit_prior

Floats = NDArray[np.float64]

_ROUNDS = 5, 6  # at most, on the observations at an average population and on those at the shares found
_SETTLED = 0.02
_STRIDE = 4.0  # tau**2 grows or shrinks by this factor a round at most
_PACE = 0.7  # how far beliefs move in a round; at 1 they swing
_OWN = 0.02  # no belief is wider than 1 / this many of the estimate's own variances, nor narrower than _SURE of one
_SURE = 1e-4
_STRONG = 3.5  # standard errors beyond which a candidate is not exchangeable with the others in a sum
_LITTLE = 1e-3  # the least share of unlisted strings, and of no value, that weights expect
_KEPT, _BEYOND_BITS = 0.97, 4  # beliefs are found on the bits' own directions and a few more
_FEW, _MANY = 300, 16_384
"""Most candidates to find beliefs about on all directions; most to estimate on those that beliefs were found on."""
_DENSE, _WIDE = 5_000, 25_000_000
"""Most observations, and most observations x candidates, to solve on all directions; more have it done on the leading ones."""


@dataclass(frozen=True, eq=False)
class PatternFit:
    """Shares of the reports, as drawn from a population.

    unlisted : tau**2, the sum of squared shares of strings without a candidate
    law      : how estimates of those who are nothing err
    p_values : (M,) of the hypothesis that nobody reported it; nan where nothing is known
    """

    solution: Solution
    totals: Totals
    unlisted: float
    law: ErrorLaw
    p_values: Floats


def is_small(params: Params) -> bool:
    """Say whether patterns of these parameters can be fitted whole: few bits, and few filters."""
    k = params.num_bits
    return k <= MAX_PATTERN_BITS and number_of_filters(params) << k <= MAX_CELLS


def fit_patterns(counts: PatternCounts, design: DesignMatrix) -> PatternFit:
    """Fit all candidates of the design, more than the patterns have numbers if need be."""
    table = FilterTable.of(design.params)
    filter_of = filters_of(design, table)
    size = filter_of.shape[1]
    beliefs, unlisted = Beliefs(np.zeros(size), np.full(size, 1e-4 / np.sqrt(max(size, 1)))), 1e-3
    expected = np.tile(table.random + _LITTLE * (table.filters == 0), (len(filter_of), 1))
    most = design.params.num_bits + _BEYOND_BITS
    for rounds in _ROUNDS:
        observations = observe(counts, table, expected)
        few, rest = (observations, None) if size <= _FEW else observations.parted(table, _KEPT, most)
        leading = MixedModel(few, table, filter_of)
        beliefs, unlisted, seen = _settle(leading, beliefs, unlisted, rounds)
        expected = _expected(seen, table, filter_of)
    strong = seen.shares > _STRONG * np.sqrt(seen.variances)
    totals = leading.solved(_alike(seen, beliefs, strong), unlisted).totals(~strong)
    if size > _MANY and rest is not None and rest.size:
        elsewhere = _elsewhere(MixedModel(rest, table, filter_of), seen, unlisted)
        solution = elsewhere.solution()
        if np.median(solution.variances) < np.median(seen.variances):
            return PatternFit(solution, totals, unlisted, *_tested(elsewhere, solution, table, filter_of))
    d = observations.size
    whole = _FEW < size <= _MANY and (d <= _DENSE or d * size <= _WIDE)
    model = MixedModel(observations, table, filter_of) if whole else leading
    solved = model.solved(beliefs, unlisted)
    solution = solved.solution()
    return PatternFit(solution, totals, unlisted, *_tested(solved, solution, table, filter_of))


def _tested(
    solved: Solved, solution: Solution, table: FilterTable, filter_of: NDArray[np.int16]
) -> tuple[ErrorLaw, Floats]:
    """Return how random strings err, and how often one would look as frequent as each candidate."""
    known = np.isfinite(solution.variances)
    if not known.any():
        return ErrorLaw.of([]), np.full(len(known), np.nan)
    errors = np.sqrt(np.where(known, solution.variances, np.nan))
    scores = solved.scores()
    common = ErrorLaw.of([float(np.nanmedian(errors)) * score for score in scores], table.random)
    p, normal = (np.where(known, p_values(solution.shares, errors, law), np.nan) for law in (common, None))

    def chances(some: NDArray[np.intp]) -> Iterator[float]:
        for j in some.tolist():
            parts = [errors[j] * score for score in solved.scores(j)]
            own = [float(part[chosen]) for part, chosen in zip(parts, filter_of[:, j], strict=True)]
            yield chance_to_look_there(own, parts, meets, table.random)

    meets = float(table.random.max())
    used = sum(bool(score.any()) for score in scores)
    return common, p_values_by_themselves(p, normal, chances, used, meets**used)


def _elsewhere(rest: MixedModel, seen: Solution, unlisted: float) -> Solved:
    """Estimate from the directions that taught no belief, whose noise is independent, believing what the others say.

    Where candidates are many times the directions, beliefs take up noise: who is believed to be nothing errs less for it, and who is
    not errs more than the model says, so that too many false ones stand out. Elsewhere the model is right about both.
    """
    _, v, mean, variance = _posterior(seen, 1.0)
    learnt = Beliefs(mean, np.maximum(variance, _SURE * v))
    unlisted = max(unlisted + rest.solved(learnt, unlisted).misfit().step, unlisted / _STRIDE)
    return rest.solved(learnt, unlisted)


def _settle(model: MixedModel, beliefs: Beliefs, unlisted: float, rounds: int) -> tuple[Beliefs, float, Solution]:
    """Estimate, learn from all estimates how large shares are, and believe so of each, in turns; tau**2 beside it."""
    error = np.inf
    for _ in range(rounds):
        solved = model.solved(beliefs, unlisted)
        seen, misfit = solved.solution(roughly=True), solved.misfit()
        beliefs = _learn(seen, misfit.ratio, beliefs)
        moved, unlisted = unlisted, float(np.clip(unlisted + misfit.step, unlisted / _STRIDE, unlisted * _STRIDE))
        was, error = error, float(np.median(seen.variances)) if len(seen.variances) else 1.0
        changes = misfit.ratio, model.variance_ratio(unlisted, moved), error / was
        if max(abs(change - 1) for change in changes) < _SETTLED:
            break
    return beliefs, unlisted, seen


def _learn(seen: Solution, misfit: float, was: Beliefs) -> Beliefs:
    """Return the normal beliefs that, joined with the estimates, have mean and variance of the posterior under a common prior.

        1/variance = 1/Var(x | estimate) - 1/v        mean/variance = E(x | estimate)/Var(x | estimate) - estimate/v

    (expectation propagation). Where the posterior is wider than the estimate's own error, a belief that says almost nothing stands in for
    one of negative variance.
    """
    if not len(seen.shares):
        return was
    x, v, mean, variance = _posterior(seen, misfit)
    variance = np.clip(variance, _SURE * v, v / (1 + _OWN))
    precision = _PACE * (1 / variance - 1 / v) + (1 - _PACE) / was.variances
    pull = _PACE * (mean / variance - x / v) + (1 - _PACE) * was.means / was.variances
    return Beliefs(pull / precision, 1 / precision)


def _posterior(seen: Solution, misfit: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Return estimates, their variances, and mean and variance of each share under a prior fitted to all of them."""
    x, v = np.nan_to_num(seen.shares), np.minimum(misfit * seen.variances, 1.0)
    return x, v, *fit_prior(x, v).given(x, v)


def _alike(seen: Solution, beliefs: Beliefs, strong: NDArray[np.bool_]) -> Beliefs:
    """Believe the same of all but the strong: mean 0, and the mean square that they have."""
    v = np.minimum(seen.variances, 1.0)
    squares = seen.posterior**2 + 1 / (1 / v + 1 / beliefs.variances)
    typical = float(squares[~strong].mean()) if not strong.all() else 1.0
    return Beliefs(np.where(strong, seen.posterior, 0), np.where(strong, v / _OWN, typical))


def _expected(seen: Solution, table: FilterTable, filter_of: NDArray[np.int16]) -> Floats:
    """Return the share of each filter in each cohort, cut to what a population can have: (m, F)."""
    shares = np.maximum(seen.posterior, 0)
    rest, none = (max(float(other), _LITTLE) for other in seen.others)
    nothing = none * (table.filters == 0)
    size = len(table.filters)
    found = np.array([np.bincount(chosen, shares, size) for chosen in filter_of]) + rest * table.random + nothing
    return np.asarray(found / found.sum(axis=1, keepdims=True))
