"""Estimators of the changes of all shares between two samples, from the changes of their counts.

Model, for cohort j, with y the debiased bit shares:

    y_Bj - y_Aj = X_j d + w d_o + e_j        Cov e_j = S_0j - 2 s K_j + t V        (`covariance.py`)

d (M,) are the changes, d_o that of the unlisted strings, t the sum of their squared changes. A string that is not listed and keeps its share
is not in this model, however frequent: both samples hash it alike. So the change is estimated without the error that it adds to either share.

Estimator: generalized least squares for few candidates; message passing with a prior on both sides of 0 for many.
Variance:  as shares of populations; less `sampling_variance` among the reporters.

The overlap s, the share of clients with the same value in both samples, is estimated from the variance of the change of their counts.
The permanent noise of a client that keeps its value is the same in both samples, so it cancels in the change.
No client is linked: only the variance of the residuals over the m k bits is used. It equals the correlation of the residuals of both
samples less the error of hashing that they share, sigma**2 corr - tau**2 = sigma**2 - Var (r_B - r_A) / 2. At equal samples, share 0:

    N Var (change) = 2 (V_prr (1 - s) + V_irr)        s.e.(s) = sqrt(2 / (m k)) (V_irr + (1 - s) V_prr) / V_prr

Unlisted strings that changed (t > 0) make s look smaller, and the change's variance no smaller than it is.
docs/explanation/mathematics.md, section 19, equations (19.3) and (19.4) for the overlap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from hubbub_decoder.array_types import Floats
from hubbub_decoder.comparison.covariance import CohortChange, Sample, cohort_changes, sampling_variance
from hubbub_decoder.comparison.results import Overlap
from hubbub_decoder.estimators.fit_result import FitResult, compare_with_random_strings, sum_totals
from hubbub_decoder.estimators.least_squares import (
    Observation,
    compare_with_filters,
    invert_information,
    normal_equations,
    use_fixed_effects,
)
from hubbub_decoder.estimators.message_passing import HashedCohorts, MessagePassingFit, pass_messages
from hubbub_decoder.inference.multiple_testing import CandidateTests
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.observations import Observations
from hubbub_decoder.model.random_string import RandomFilters

_STEPS = 4  # of s, and of t
_MOVED_STANDARD_ERRORS = 3.0


@dataclass(frozen=True, eq=False)
class ChangeFit:
    """Changes (M,) with their variances, the overlap, and tests of both sides.

    fit              : changes in place of shares; its tests are those of an increase
    decreases        : tests of a decrease
    """

    fit: FitResult
    decreases: CandidateTests
    overlap: Overlap


def fit_changes(before: Sample, after: Sample, design: DesignMatrix, known: Overlap | None) -> ChangeFit:
    """Changes of the shares of all columns of the design.

    known : share of clients with the same value in both samples, if it need not be estimated
    """
    moved: Floats | None = None
    for _ in range(2):
        cohorts = list(cohort_changes(before, after, design, moved))
        fixed = use_fixed_effects(before.evidence, design) and use_fixed_effects(after.evidence, design)
        fit = (_fit_fixed_effects if fixed else _fit_messages)(before, after, design, cohorts, known)
        changes, errors = fit.fit.shares, np.sqrt(fit.fit.variances)
        surely = np.abs(changes) > _MOVED_STANDARD_ERRORS * errors
        if not surely.any():
            break
        moved = np.where(surely, np.abs(changes), 0.0)
    return fit


def _fit_fixed_effects(
    before: Sample, after: Sample, design: DesignMatrix, cohorts: list[CohortChange], known: Overlap | None
) -> ChangeFit:
    """Generalized least squares: s by the method of moments, then t, the sum of squared changes of unlisted strings."""
    random_string = before.evidence.random_string
    rows, size = sum(len(cohort.change) for cohort in cohorts), len(design.groups)

    def observations(s: float, t: float, *, of_overlap: bool) -> Iterator[Observation]:
        for cohort in cohorts:
            covariance = cohort.covariance(s) + t * random_string.covariance
            trace = partial(_trace_of_product, -cohort.common) if of_overlap else random_string.trace_of_product
            yield cohort.change, cohort.bits, covariance, trace

    def solve(s: float, t: float, *, of_overlap: bool) -> tuple[Floats, Floats, Floats, float, float]:
        normal = normal_equations(observations(s, t, of_overlap=of_overlap), random_string.mean, size)
        covariance, null_space = invert_information(normal.information)
        solution = covariance @ normal.moment
        return solution, covariance, null_space, *normal.excess(solution, rows, rows - size - 1 + null_space.shape[1])

    overlap = known
    if overlap is None:
        share = 0.0
        for _ in range(_STEPS):
            *_, step, error = solve(share, 0.0, of_overlap=True)
            exact, share = share + step, min(max(share + step, 0.0), 1.0) if error < math.inf else 0.0
        overlap = Overlap.estimated(exact, error)
    changed = 0.0
    for _ in range(_STEPS):
        unlisted_variance = changed
        solution, covariance, null_space, step, error = solve(overlap.low, unlisted_variance, of_overlap=False)
        changed = max(0.0, unlisted_variance + step) if error < math.inf else 0.0
        if changed == unlisted_variance:
            break

    def reporter_variances(contrasts: Floats) -> Floats:
        of_population = np.einsum("ij,jk,ik->i", contrasts, covariance, contrasts)
        sums = [replace(sample, expected=contrasts @ sample.possible_shares()) for sample in (before, after)]
        return np.asarray(np.maximum(of_population - sampling_variance(sums[0], sums[1], overlap.low), 0))

    fit = FitResult.from_fixed_effects(solution, covariance, null_space, reporter_variances, (unlisted_variance, error))
    filters = RandomFilters.from_params(design.params)

    def tests(sign: int) -> CandidateTests:
        def signed() -> Iterator[Observation]:
            for y, bits, s, trace in observations(overlap.low, unlisted_variance, of_overlap=False):
                yield sign * y, bits, s, trace

        turned = replace(fit, shares=sign * fit.shares)
        return compare_with_filters(
            turned, sign * solution, covariance, signed, random_string.mean, filters, len(cohorts)
        )

    return ChangeFit(replace(fit, tests=tests(1)), tests(-1), overlap)


def _trace_of_product(matrix: Floats, root: Floats) -> float:
    """tr(A matrix A') of A = root."""
    return float(np.sum((root @ matrix) * root))


def _fit_messages(
    before: Sample, after: Sample, design: DesignMatrix, cohorts: list[CohortChange], known: Overlap | None
) -> ChangeFit:
    """Message passing: s from the variance of the residuals above that of s = 1."""
    used, random_string = before.evidence.used & after.evidence.used, before.evidence.random_string
    k = design.params.num_bits
    fixed_patterns, covariance = np.append(random_string.mean, 0)[:, None], np.zeros((k + 1, k + 1))
    covariance[:k, :k] = random_string.covariance  # position k is no bit
    positions = design.positions()[used].transpose(0, 2, 1)

    def passed(overlap: float) -> MessagePassingFit:
        responses, features = [], []
        for cohort in cohorts:
            whitener = np.linalg.inv(np.linalg.cholesky(cohort.covariance(overlap)))
            responses.append(whitener @ cohort.change)
            features.append(np.pad(whitener, [(0, 0), (0, 1)]))
        whiteners = tuple(features)
        observations = Observations(tuple(responses), whiteners, whiteners)
        hashed = HashedCohorts.from_observations(observations, positions, fixed_patterns, covariance, signed=True)
        return pass_messages(hashed)

    overlap = known
    if overlap is None:
        at_most = passed(1.0)
        per_unit = sum(float(c.common.trace()) for c in cohorts) / (random_string.covariance.trace() * len(cohorts))
        step, error = at_most.beliefs.unlisted_variance, at_most.variance_error
        overlap = Overlap.estimated(1 - step / per_unit, error / per_unit) if per_unit else Overlap.unknown()
    fit = passed(overlap.low)
    filters = RandomFilters.from_params(design.params)
    tests, decreases = (
        compare_with_random_strings(changes, changes.estimates, fit.cohorts.positions, filters)
        for changes in (fit, _turned(fit))
    )
    totals = fit.totals()
    sums, variances = sum_totals(totals.shares, totals.covariance)
    drawn = sampling_variance(before, after, overlap.low)
    of_totals = _sampling_of_totals(before, after, overlap)
    result = FitResult.from_mixed_model(
        fit.estimates,
        (fit.beliefs.unlisted_variance, fit.variance_error),
        tests,
        totals=(sums, variances, np.maximum(variances - of_totals, 0)),
        variances=lambda variance, _: (variance, np.maximum(variance - drawn[:-1], 0)),
    )
    return ChangeFit(result, decreases, overlap)


def _sampling_of_totals(before: Sample, after: Sample, overlap: Overlap) -> Floats:
    """Sampling variances (3,) of the changes of the candidates together, of the unlisted strings, and of both."""
    totals = []
    for sample in (before, after):
        x = sample.possible_shares()
        totals.append(replace(sample, expected=np.array([x[:-1].sum(), x[-1], x.sum()])))
    return sampling_variance(totals[0], totals[1], overlap.low)


def _turned(fit: MessagePassingFit) -> MessagePassingFit:
    """The fit of the changes from the second sample to the first."""
    estimates = replace(
        fit.estimates,
        shares=-fit.estimates.shares,
        posterior_means=-fit.estimates.posterior_means,
        fixed_effects=-fit.estimates.fixed_effects,
    )
    return replace(fit, estimates=estimates, means=-fit.means, weighted=-fit.weighted)
