"""One-step estimator from retained reports, all shares as fixed effects: for few candidates.

Model:     the mixture of `likelihood_ratios.py` with shares z (M + 2,); x = r / f for one report
Estimator: one step of Fisher scoring from shares z that a population can have (`plausible_shares`)

    z_hat = z + P g        g = mean x - 1        A = E x x'        P = A^-1 - A^-1 1 1' A^-1 / (1' A^-1 1)

    E x = 1 + A (true shares - z) for any z, so one step is unbiased; it is efficient where z is near the truth. z is found in a few
    rounds, the first ones on a sample of the reports.
Variance:  Cov z_hat = P E_v Cov(x | v) P / n + tau**2 P B P as shares among the reporters; plus (diag(z) - z z') / n of a population.
With several reports of a client, x is the mean of theirs and n the number of clients (`model/repetition.py`).

A, E_v Cov(x | v) and B come from simulated reports (`simulated_information.py`), tau**2 from the bits (`bit_residuals.py`).
docs/explanation/mathematics.md, equations (11.1) and (11.2). Source: Le Cam 1956; van der Vaart 1998, section 5.7.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from hubbub.errors import SummaryError
from hubbub.summary import Reports
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.estimators.fit_result import FitResult, contrast_variances
from hubbub_decoder.estimators.inverses import pseudo_inverse
from hubbub_decoder.estimators.noise_cumulants import noise_effect
from hubbub_decoder.estimators.reports.bit_residuals import BitResiduals
from hubbub_decoder.estimators.reports.likelihood_ratios import Mixture, plausible_shares
from hubbub_decoder.estimators.reports.report_scores import RandomStringScores, SortedReports
from hubbub_decoder.estimators.reports.row_influence import influence_of_rows
from hubbub_decoder.estimators.reports.simulated_information import (
    SimulatedReports,
    client_covariance,
    draw_reports,
    hash_moments,
    information,
    noise_covariance,
    sample_size,
    score_cumulants,
)
from hubbub_decoder.inference.influence import ReportInfluence
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.repetition import Repetition
from hubbub_decoder.random_state import seeded

_ROUNDS = (64, 8, 1, 1, 1)  # each round uses every n-th report
_MIN_REPORTS_PER_COMPONENT = 50  # for a round on a sample
_EARLY_ROUND_FRACTION = 4  # of the simulated reports are used in all rounds but the last
_MIN_ERROR_REPORTS = 0.1  # least standard error, in reports: simulated matrices are not more exact
_MIN_EIGENVALUE = 1e-9  # relative to the largest


@dataclass(frozen=True, eq=False)
class _ScoringStep:
    """One scoring step from shares z.

    start : (M + 2,) z      step : (M + 2,) P g, from z to the estimate
    projected : (M + 2, M + 2) P, inverse information of shares that sum to 1
    covariance : (M + 2, M + 2) P E_v Cov(x | v) P      null_space : (M + 2, d) directions without information
    inflation : (M + 2,) variance of a client's mean score over that of one report
    """

    start: Floats
    step: Floats
    projected: Floats
    covariance: Floats
    null_space: Floats
    inflation: Floats

    @property
    def estimate(self) -> Floats:
        """The shares z + P g (M + 2,)."""
        return self.start + self.step


def fit_reports_one_step(evidence: Evidence, design: DesignMatrix) -> FitResult:
    """Estimate the shares of the candidates, the unlisted strings and "no value" from the reports.

    evidence : at least one report      design : made for the same parameters

    Raises SummaryError for a design of other parameters, or without reports. Time O(n M h + M**3), memory O(n k / 8 + M**2).
    """
    if design.params != evidence.params:
        raise SummaryError(
            "the design matrix was made for other parameters than the reports': hash the candidates anew"
        )
    n, clients, all_clients = evidence.num_reports, evidence.num_clients, evidence.num_all_clients
    if n == 0:
        raise SummaryError("there is no report to fit")
    ordered, mixture = SortedReports.from_reports(evidence.require(Reports)), Mixture.from_design(design)
    rng = seeded(0)  # the same reports are always fitted alike
    step, simulated = _last_round(evidence, ordered, mixture, rng)
    expected, estimate = step.start, step.estimate
    among_reporters = step.covariance / clients + (_MIN_ERROR_REPORTS / n) ** 2 * np.eye(mixture.size)
    sampling = (np.diag(expected) - np.outer(expected, expected)) / clients
    residuals = BitResiduals.from_evidence(evidence, design, estimate[:-1])
    hashing = hash_moments(mixture, expected, simulated, residuals, rng)
    of_population = (among_reporters + sampling)[:-1, :-1]
    overdispersion = residuals.overdispersion(estimate[:-1], of_population, step.projected[:-1], hashing)
    unlisted_variance = max(0.0, overdispersion.step)
    among_reporters += unlisted_variance * step.projected @ hashing.scores @ step.projected
    covariance, of_reporters = (among_reporters + sampling)[:-1, :-1], among_reporters[:-1, :-1]
    null_space = linalg.orth(step.null_space[:-1]) if step.null_space.size else step.null_space[:-1]

    def reporter_variances(contrasts: Floats) -> Floats:
        """Take off the part of sampling reporters, in the proportion that these reports are of all."""
        whole = contrast_variances(contrasts, covariance)
        of_sampling = whole - contrast_variances(contrasts, of_reporters)
        return whole - of_sampling * (clients / all_clients)

    fit = FitResult.from_fixed_effects(
        estimate[:-1], covariance, null_space, reporter_variances, (unlisted_variance, overdispersion.error)
    )
    if not design.groups:
        return fit
    own = np.diag(step.projected)

    def without(candidates: Indices) -> Floats:
        return np.asarray(estimate[:, None] - step.projected[:, candidates] * (estimate[candidates] / own[candidates]))

    strings = RandomStringScores.draw(ordered, mixture, expected, rng)
    std_errors = np.sqrt(fit.variances)
    effective = n / noise_effect(design.params, evidence.repetition)

    def influence(candidates: Indices) -> ReportInfluence:
        weights, start = step.projected[candidates], expected[candidates]
        return influence_of_rows(mixture, expected, evidence.used, candidates, weights, start, n)

    return replace(
        fit,
        tests=strings.test(estimate[:-2], std_errors, own[:-2] / std_errors, estimate, without),
        cumulants=score_cumulants(mixture, expected, simulated, effective),
        influence=influence,
    )


def _last_round(
    evidence: Evidence, ordered: SortedReports, mixture: Mixture, rng: np.random.RandomState
) -> tuple[_ScoringStep, list[SimulatedReports]]:
    """Scoring step from shares near the truth, and the reports that were simulated at them.

    Each round starts from shares that a population can have, by the estimate of the one before.
    """
    n, repetition = evidence.num_reports, evidence.repetition
    z = np.full(mixture.size, 0.5 / mixture.size)
    z[-2:] += 0.25
    rounds = [every for every in _ROUNDS if every == 1 or n >= _MIN_REPORTS_PER_COMPONENT * every * mixture.size]
    for rounds_left, every in zip(reversed(range(len(rounds))), rounds, strict=True):
        size = sample_size(mixture) // _EARLY_ROUND_FRACTION if rounds_left else sample_size(mixture)
        simulated = list(draw_reports(mixture, ordered.shares, z, size, rng, repetition))
        step = _scoring_step(mixture, z, simulated, ordered.score(mixture, z, every), repetition)
        errors = np.sqrt(np.maximum(np.diag(step.projected), 0) * every * step.inflation / evidence.num_clients)
        estimate = step.estimate
        z = plausible_shares(estimate[:-2], errors[:-2], no_value=estimate[-1], unlisted=estimate[-2])
    return step, simulated


def _scoring_step(
    mixture: Mixture, z: Floats, simulated: list[SimulatedReports], score: Floats, repetition: Repetition
) -> _ScoringStep:
    """Scoring step from z with the score g (M + 2,) and the information of reports simulated at z."""
    of_report = information(mixture, z, simulated)
    inverse, null_space = pseudo_inverse(of_report, _MIN_EIGENVALUE)
    ones = inverse.sum(axis=1)
    projected = inverse - np.outer(ones, ones) / ones.sum()
    noise = noise_covariance(mixture, z, simulated, repetition)
    inflation = np.diag(client_covariance(of_report, noise, z, repetition)) / np.diag(of_report)
    covariance = projected @ noise @ projected
    return _ScoringStep(z, projected @ score, projected, covariance, null_space, inflation)
