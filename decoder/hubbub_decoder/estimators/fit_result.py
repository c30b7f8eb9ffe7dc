"""Result of an estimator: shares with two kinds of variance and their totals; of strings also tests and nuisance parameters.

Estimators of strings return a `FitResult`; `results/build.py` turns it into a `Decoding`. A share is estimated with two variances, since two
questions can be asked of it (docs/explanation/mathematics.md, section 5):

    variances          : of the estimate of a population's share, from which the reports are a sample
    reporter_variances : of the estimate of the share among the reporters: smaller, by about x (1 - x) / N
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub_decoder.array_types import Flags, Floats, Indices
from hubbub_decoder.inference.error_law import ErrorCumulants, ErrorLaw, Sampling
from hubbub_decoder.inference.influence import Influence
from hubbub_decoder.inference.multiple_testing import CandidateTests, LeaveOneOutScores, score_candidates
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.random_string import RandomFilters
from hubbub_decoder.options import Target

_NOISE = 2.0  # standard errors above 0, up to which an estimate may be noise
_MAX_NULL_PART = 1e-6  # relative length of a contrast inside the null space, above which it counts as undetermined


@dataclass(frozen=True, eq=False)
class ShareEstimates:
    """Estimates of single shares of a population, with the candidates as random effects.

    shares          : (M,) each without its own prior; nan where the reports do not determine it
    variances       : (M,) of `shares`; nan or inf where the reports do not determine it
    posterior_means : (M,) with the prior
    fixed_effects   : (o,) shares of the unlisted strings and of "no value"
    """

    shares: Floats
    variances: Floats
    posterior_means: Floats
    fixed_effects: Floats


@dataclass(frozen=True, eq=False)
class Totals:
    """Sum of all candidates' shares, then the fixed effects: shares (1 + o,) and covariance (1 + o, 1 + o).

    error_with_more_reports : standard error of the sum with 100 times the reports; nan: unknown
    """

    shares: Floats
    covariance: Floats
    error_with_more_reports: float = np.nan


@dataclass(frozen=True)
class Crowding:
    """Limits that the bits of other strings set to the estimates of message passing, however many reports there are.

    cohorts     : number of cohorts with reports
    few_cohorts : whether no candidate was subtracted from the others because there are too many candidates for so few cohorts
    unsettled   : whether no candidate was subtracted because the iteration did not settle
    part        : of the observations' variance, that the strings cause that were not subtracted
    total_error : standard error that the listed total would have with 100 times the reports
    """

    cohorts: int
    few_cohorts: bool
    unsettled: bool
    part: float
    total_error: float


@dataclass(frozen=True, eq=False)
class Nuisance:
    """Nuisance parameters of a fit of strings: what explains the reports besides the shares that are asked for.

    expected          : (M + 1,) shares of the candidates and of the unlisted strings that together explain the reports best
    unlisted_variance : tau**2, the sum of squared shares of the unlisted strings, and its standard error
    crowding          : of message passing; None: another estimator
    """

    expected: Floats
    unlisted_variance: float
    unlisted_variance_error: float
    crowding: Crowding | None = None


@dataclass(frozen=True, eq=False)
class ShareFit:
    """Estimated shares of M candidates or categories, and of three totals.

    shares, variances, reporter_variances : (M,) unbiased, so possibly negative; nan where the reports do not determine the share
    totals, total_variances, total_reporter_variances : (3,) of the candidates together, the unlisted values, and both together
    """

    shares: Floats
    variances: Floats
    reporter_variances: Floats
    totals: Floats
    total_variances: Floats
    total_reporter_variances: Floats


@dataclass(frozen=True, eq=False)
class FitResult(ShareFit):
    """Fit of M candidates of a string metric (columns of a design matrix), with what their tests need.

    null_error : typical standard error of a candidate that no client reported, as a share of a population
    tests      : of the hypotheses that no client reported a candidate
    cumulants  : of the noise of the estimates, for its skewness
    nuisance   : parameters that are not asked for
    influence  : of one report on the estimates; None: unknown
    """

    null_error: float
    tests: CandidateTests
    cumulants: ErrorCumulants
    nuisance: Nuisance
    influence: Influence | None = None

    @classmethod
    def from_mixed_model(
        cls,
        estimates: ShareEstimates,
        unlisted_variance: tuple[float, float],
        tests: CandidateTests,
        totals: tuple[Floats, Floats, Floats],
        variances: Callable[[Floats, Floats], tuple[Floats, Floats]],
        crowding: Crowding | None = None,
        influence: Influence | None = None,
    ) -> FitResult:
        """Result of an estimator with the candidates as random effects.

        unlisted_variance : tau**2 and its standard error
        totals    : shares of the totals (3,), their variances as shares of a population, and among the reporters
        variances : function of the model's variances (M,) and the shares; returns variances for a population, and for the reporters
        """
        known = np.isfinite(estimates.variances)
        shares, raw = np.where(known, estimates.shares, np.nan), np.where(known, estimates.variances, np.nan)
        of_population, of_reporters = variances(raw, shares)
        return cls(
            shares=shares,
            variances=of_population,
            reporter_variances=of_reporters,
            totals=totals[0],
            total_variances=totals[1],
            total_reporter_variances=totals[2],
            null_error=float(np.sqrt(np.median(raw[known]))) if known.any() else np.inf,
            tests=tests._replace(p_values=np.where(known, tests.p_values, 1), retested=tests.retested & known),
            cumulants=ErrorCumulants.zero(len(shares)),
            nuisance=Nuisance(
                np.append(estimates.posterior_means, estimates.fixed_effects[0]), *unlisted_variance, crowding
            ),
            influence=influence,
        )

    @classmethod
    def from_fixed_effects(
        cls,
        solution: Floats,
        covariance: Floats,
        null_space: Floats,
        reporter_variances: Callable[[Floats], Floats],
        unlisted_variance: tuple[float, float],
    ) -> FitResult:
        """Result, not yet tested, of an estimator that has all shares as fixed effects.

        solution           : (M + 1,) shares of the candidates and of the unlisted strings
        covariance         : (M + 1, M + 1) theirs, as shares of a population
        reporter_variances : of the contrasts in the rows of a matrix (n, M + 1)
        unlisted_variance  : tau**2 and its standard error
        """
        size = len(solution) - 1
        single = np.eye(size + 1)
        sums = np.vstack([1 - single[-1], single[-1], np.ones(size + 1)])
        known, known_sums = (is_determined(contrasts, null_space) for contrasts in (single, sums))
        known, variances = known[:size], np.where(known, np.diag(covariance), np.nan)[:size]
        known_sums[0] &= size > 0  # the total of no candidates is not determined, rather than 0
        return cls(
            shares=np.where(known, solution[:size], np.nan),
            variances=variances,
            reporter_variances=np.where(known, reporter_variances(single[:-1]), np.nan),
            totals=np.where(known_sums, sums @ solution, np.nan),
            total_variances=np.where(known_sums, contrast_variances(sums, covariance), np.nan),
            total_reporter_variances=np.where(known_sums, reporter_variances(sums), np.nan),
            null_error=float(np.sqrt(np.median(variances[known]))) if known.any() else np.inf,
            tests=CandidateTests.unknown(size),
            cumulants=ErrorCumulants.zero(size),
            nuisance=Nuisance(solution, *unlisted_variance),
        )

    def error_law(self, evidence: Evidence, target: Target) -> ErrorLaw:
        """Return the law of the errors of the shares as those among all reporters, of which these clients are a sample, or of a population."""
        cumulants = replace(self.cumulants, variances=self.cumulants.variances * self._variance_inflation())
        if target == "population":
            sampling, variances = Sampling.of_clients(evidence.num_clients), self.variances
        else:
            sampling = Sampling.of_clients(evidence.num_clients, evidence.num_all_clients)
            variances = self.reporter_variances
        return ErrorLaw(self.shares, variances, cumulants, self.tests.null_distribution, sampling)

    def _variance_inflation(self) -> float:
        """Median ratio of the variances of estimates near 0 to those of each candidate alone: the part of other candidates and unlisted strings.

        An estimate x of noise alone is above 0 by chance. Its variance as a share among the reporters, Var - x (1 - x) / N, would be too small.
        """
        alone = self.cumulants.variances
        near_zero = (self.shares < _NOISE * np.sqrt(self.variances)) & (alone > 0)
        return max(1.0, float(np.median(self.variances[near_zero] / alone[near_zero]))) if near_zero.any() else 1.0

    def with_unlisted(self, number: int) -> FitResult:
        """Return the result with the last columns (`number`) counted as unlisted strings, not as candidates.

        The estimate of a string is nearly uncorrelated with the total of the others, since it hashes at random:
        Var(total without it) = Var(total) - Var(it).
        """
        listed = len(self.shares) - number
        moved = float(np.nansum(self.shares[listed:]))
        rest = np.array([1, 1, 0])
        return replace(
            self,
            shares=self.shares[:listed],
            variances=self.variances[:listed],
            reporter_variances=self.reporter_variances[:listed],
            tests=self.tests.take(slice(listed)),
            cumulants=self.cumulants.take(slice(listed)),
            totals=self.totals + moved * np.array([-1, 1, 0]),
            total_variances=np.maximum(self.total_variances - rest * self.variances[listed:].sum(), 0),
            total_reporter_variances=np.maximum(
                self.total_reporter_variances - rest * self.reporter_variances[listed:].sum(), 0
            ),
        )

    def expand(self, columns: Indices, size: int, p_value: float) -> FitResult:
        """Return the result for all `size` columns of a design of which only `columns` (M,) were fitted; the other shares are nan.

        p_value : of a column that was not fitted; nan: it does not count as tested
        """
        rows = np.full((3, size), np.nan)
        rows[:, columns] = self.shares, self.variances, self.reporter_variances
        shares, variances, reporter_variances = rows
        kept, of_kept = np.argsort(columns), self.influence
        return replace(
            self,
            shares=shares,
            variances=variances,
            reporter_variances=reporter_variances,
            tests=self.tests.expand(columns, size, p_value),
            cumulants=self.cumulants.expand(columns, size),
            influence=of_kept and (lambda some: of_kept(kept[np.searchsorted(columns, some, sorter=kept)])),
        )


def is_determined(contrasts: Floats, null_space: Floats) -> Flags:
    """Whether the reports determine each weighted sum of shares; contrasts : (n, M + 1) a row of weights each."""
    null_part = np.linalg.norm(contrasts @ null_space, axis=1)
    return np.asarray(null_part <= _MAX_NULL_PART * np.linalg.norm(contrasts, axis=1))


def contrast_variances(contrasts: Floats, covariance: Floats) -> Floats:
    """Variance a' Cov a of each contrast a, a row of `contrasts` (n, M + 1): (n,)."""
    return np.asarray(np.sum((contrasts @ covariance) * contrasts, axis=1))


def sum_totals(shares: Floats, covariance: Floats) -> tuple[Floats, Floats]:
    """Totals (3,) and their variances (3,), from the shares (2,) of the candidates together and of the unlisted strings, and their covariance."""
    sums = np.array([[1, 0], [0, 1], [1, 1]])
    return sums @ shares, contrast_variances(sums, covariance)


class PositionScores(Protocol):
    """Fit that scores strings by their positions in each cohort."""

    def scores(self, left_out: int | None = None) -> list[Floats]:
        """Part of each position in the score of a string without a prior, (p,) for each cohort; left_out : a candidate to leave out."""


def compare_with_random_strings(
    fit: PositionScores, estimates: ShareEstimates, positions: NDArray[np.integer], filters: RandomFilters
) -> CandidateTests:
    """Null distribution of the estimates of a fit, and the p-value of each candidate, (M,).

    positions : (m, h, M) of each candidate in each cohort
    """
    known = np.isfinite(estimates.variances)
    errors = np.sqrt(np.where(known, estimates.variances, np.nan))
    typical = float(np.median(errors[known])) if known.any() else 1.0
    scores = fit.scores()

    def leave_out(candidates: Indices) -> Iterator[LeaveOneOutScores]:
        for j in candidates.tolist():
            parts = [errors[j] * score for score in fit.scores(j)]
            own = [float(part[taken].sum()) for part, taken in zip(parts, positions[:, :, j], strict=True)]
            yield own, [filters.scores(part) for part in parts]

    random_scores = (filters.scores(typical * score) for score in scores)
    cohorts = sum(bool(score.any()) for score in scores)
    return score_candidates(estimates.shares, errors, random_scores, leave_out, filters, cohorts)
