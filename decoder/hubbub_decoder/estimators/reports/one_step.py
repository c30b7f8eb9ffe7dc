"""Retained reports -> the full likelihood of the shares, every one left open, by its efficient score at plausible shares.

Conventions as in `mixture.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from hubbub.errors import SummaryError
from hubbub.summary import Reports
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.estimators.fit_result import FitResult, contrast_variances
from hubbub_decoder.estimators.reports.bit_residuals import BitResiduals
from hubbub_decoder.estimators.reports.likelihood_ratios import Mixture
from hubbub_decoder.estimators.reports.random_string_scores import RandomStrings
from hubbub_decoder.estimators.reports.report_pass import Retained
from hubbub_decoder.estimators.reports.simulated_information import Drawn, draw, hashing_of_one, information, noise
from hubbub_decoder.inference.shrinkage import best_guess
from hubbub_decoder.model.design_matrix import DesignMatrix

_THINNED = (64, 8, 1, 1, 1)  # looks at every 64th report, every 8th, then three times at all
_ENOUGH = 50  # reports a component, below which a look at fewer than all is worth little
_DRAWN, _DRAWN_EACH = 1 << 15, 24  # reports simulated for the information: so many, and so many a component,
_ROUGHLY = 4  # and a quarter of that for all looks but the last
_LITTLE = 1e-3  # the least share of unlisted strings, of no value, and of all candidates together, that weights expect
_LEAST_ERROR = 0.1  # reports: what is simulated is not known better, and nearly noiseless reports leave nothing else
_NULL = 1e-9


@dataclass(frozen=True, eq=False)
class _Look:
    """What the reports say, looked at with the weights of shares z.

    step : P g, from z to the estimate        projected : P, the inverse information of shares that sum to one
    covariance : of the estimate of the shares among the reporters        unexplained : directions without information
    """

    step: Floats
    projected: Floats
    covariance: Floats
    unexplained: Floats


def fit_reports(reports: Reports, design: DesignMatrix, num_reports: int | None = None, *, seed: int = 0) -> FitResult:
    """Fit the shares of candidates, unlisted strings and "no value" to the reports themselves.

        x_n = r(s_n) / f(s_n)        g = mean x - 1        A = E x x'        P = A^-1 - A^-1 1 1' A^-1 / (1' A^-1 1)
        z <- z + P g                 Cov z = P E_v Cov(x | v) P / n + tau**2 P B P, of the shares among those who reported

    E x = 1 + A (the true shares - z), whatever shares z weight the reports, so one step is unbiased; it is efficient where they are
    near the truth. z is what a population can have (`best_guess`), so that no weight leans on an estimate below 0; it is found in
    a few looks, the first at some of the reports. A and the covariance come from reports simulated at z, and so know nothing of
    the noise of g. B is the covariance that the hashing of one unlisted string, independent between cohorts, gives g.

    reports     : at least one      design : made for the same parameters      seed : of the simulated reports
    num_reports : of all cohorts, if `reports` are those of some cohorts

    Time O(n M h + M**3), memory O(n k / 8 + M**2). Source: the one-step estimator, Le Cam 1956; van der Vaart 1998, sec. 5.7.
    """
    params = reports.metric.params
    if design.params != params:
        raise SummaryError(
            "the design matrix was made for other parameters than the reports': hash the candidates anew"
        )
    n = reports.num_reports
    if n == 0:
        raise SummaryError("there is no report to fit")
    retained, mixture = Retained.of(reports), Mixture.of(design)
    rng = np.random.default_rng(seed)
    z = np.full(mixture.size, 0.5 / mixture.size)
    z[-2:] += 0.25
    expected = z
    enough = [every for every in _THINNED if every == 1 or n >= _ENOUGH * every * mixture.size]
    drawings = max(_DRAWN, _DRAWN_EACH * mixture.size)
    for more, every in zip(reversed(range(len(enough))), enough, strict=True):
        expected = z
        size = drawings // _ROUGHLY if more else drawings
        drawn = list(draw(mixture, retained.shares, expected, size, rng))
        look = _look(mixture, expected, drawn, retained.score(mixture, expected, every))
        estimate = expected + look.step
        z = _plausible(estimate, np.sqrt(np.maximum(np.diag(look.projected), 0) * every / n))
    among_reporters = look.covariance / n + (_LEAST_ERROR / n) ** 2 * np.eye(mixture.size)
    people = (np.diag(expected) - np.outer(expected, expected)) / n
    residuals = BitResiduals.of(reports.bit_counts(), design, estimate[:-1])
    misfit = residuals.misfit(estimate[:-1], (among_reporters + people)[:-1, :-1])
    scatter = max(0.0, misfit.step)
    if scatter > 0:
        hashing = hashing_of_one(mixture, expected, drawn, rng)
        among_reporters += scatter * look.projected @ hashing @ look.projected
    covariance, reporters_only = (among_reporters + people)[:-1, :-1], among_reporters[:-1, :-1]
    null_space = linalg.orth(look.unexplained[:-1]) if look.unexplained.size else look.unexplained[:-1]

    def reporter_variances(contrasts: Floats) -> Floats:
        """Take off the part of the people, in the proportion that these reports are of all."""
        population = contrast_variances(contrasts, covariance)
        sampling = population - contrast_variances(contrasts, reporters_only)
        return population - sampling * (n / (num_reports or n))

    found = FitResult.from_fixed_effects(
        estimate[:-1], covariance, null_space, reporter_variances, (scatter, misfit.error)
    )
    if not design.groups:
        return found
    errors = np.sqrt(found.variances)
    own = np.diag(look.projected)

    def without(some: Indices) -> Floats:
        return np.asarray(estimate[:, None] - look.projected[:, some] * (estimate[some] / own[some]))

    strings = RandomStrings.draw(retained, mixture, expected, rng)
    law, p = strings.test(estimate[:-2], errors, own[:-2] / errors, estimate, without)
    return found.with_tests(law, p)


def _plausible(estimate: Floats, errors: Floats) -> Floats:
    """Return shares that a population can have and every report a chance under: shrunk where they are mostly noise."""
    listed = estimate[:-2]
    guess = np.maximum(best_guess(listed, errors[:-2]).shares, _LITTLE / max(1, len(listed))) if len(listed) else listed
    z = np.concatenate([guess, np.maximum(estimate[-2:], _LITTLE)])
    return np.asarray(z / z.sum())


def _look(mixture: Mixture, z: Floats, drawn: list[Drawn], score: Floats) -> _Look:
    """Weigh the score with the information at z."""
    inverse, unexplained = _inverse(information(mixture, z, drawn))
    ones = inverse.sum(axis=1)
    projected = inverse - np.outer(ones, ones) / ones.sum()
    return _Look(projected @ score, projected, projected @ noise(mixture, z, drawn) @ projected, unexplained)


def _inverse(information: Floats) -> tuple[Floats, Floats]:
    """Invert, leaving out directions without information: (M + 2, M + 2), and those (M + 2, d)."""
    scale = np.sqrt(np.diag(information))
    values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    seen = values > _NULL * values[-1]
    half = vectors[:, seen] / np.sqrt(values[seen]) / scale[:, None]
    return half @ half.T, linalg.orth(vectors[:, ~seen] / scale[:, None])
