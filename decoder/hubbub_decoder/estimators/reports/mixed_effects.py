"""Retained reports + design matrix -> shares, by the full likelihood with random effects.

bits -> beliefs -> score at the shares believed -> beliefs -> score at the shares found -> beliefs -> solution
"""

from __future__ import annotations

import numpy as np

from hubbub.summary import Reports
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.bit_counts import begin_with_bits
from hubbub_decoder.estimators.empirical_bayes import learn, totals
from hubbub_decoder.estimators.fit_result import Fitted
from hubbub_decoder.estimators.reports.bit_residuals import BitResiduals
from hubbub_decoder.estimators.reports.in_reports import InReports, ScoredReports
from hubbub_decoder.estimators.reports.likelihood_ratios import Mixture
from hubbub_decoder.estimators.reports.random_string_scores import RandomStrings
from hubbub_decoder.estimators.reports.report_pass import Retained
from hubbub_decoder.estimators.reports.simulated_information import draw, hashing_of_one, information, noise
from hubbub_decoder.estimators.solution import Solution, Totals
from hubbub_decoder.inference.shrinkage import best_guess
from hubbub_decoder.model.design_matrix import DesignMatrix

MAX_CANDIDATES = 1500

_DRAWN, _DRAWN_EACH = 1 << 15, 24  # reports simulated for the information: so many, and so many a candidate
_LITTLE = 1e-3  # the least share of unlisted strings, of no value, and of all candidates together, that weights expect


def fit_many(reports: Reports, design: DesignMatrix, *, seed: int = 0) -> Fitted:
    """Fit many candidates: to each, what is believed of the others is noise.

    reports : at least one      design : made for the same parameters      seed : of the simulated reports

    Time O(n M h + M**3), memory O(n k / 8 + M**2).
    """
    n, counts = reports.num_reports, reports.bit_counts()
    retained, mixture, rng = Retained.of(reports), Mixture.of(design), np.random.default_rng(seed)
    learnt, seen = begin_with_bits(counts, design)
    z = _plausible(seen, 1 - float(seen.posterior.sum() + seen.others[0]))
    for last in (False, True):
        expected = z
        drawn = list(draw(mixture, retained.shares, z, max(_DRAWN, _DRAWN_EACH * mixture.size), rng))
        a, b = information(mixture, z, drawn), hashing_of_one(mixture, z, drawn, rng)
        alone = noise(mixture, z, drawn) if last else None
        residuals = BitResiduals.of(counts, design, z[:-1])
        model = ScoredReports.of(z, retained.score(mixture, z), a, b, alone, n, residuals)
        learnt, seen = learn(model, learnt)
        z = _plausible(seen, float(seen.others[1]))
    solved, sums = InReports(model, learnt.beliefs, learnt.scatter), totals(model.adding_up(), learnt, seen)
    solution = solved.solution()
    errors = np.sqrt(np.where(np.isfinite(solution.variances), solution.variances, np.nan))
    strings = RandomStrings.draw(retained, mixture, expected, rng)
    plain = InReports(model, learnt.beliefs, 0.0)  # scores know nothing of tau**2
    scale = n * plain.solution(roughly=True).variances / errors
    law, p = strings.test(solution.shares, errors, scale, plain.shares, plain.without)
    listed_and_unlisted = Totals(sums.shares[:2], sums.covariance[:2, :2])
    return Fitted(solution, listed_and_unlisted, learnt.scatter, learnt.scatter_std, law, p)


def worth_fitting(design: DesignMatrix) -> bool:
    """Say whether the reports tell enough more than their bit counts to be worth the time."""
    return len(design.groups) <= MAX_CANDIDATES


def _plausible(seen: Solution, nothing: float) -> Floats:
    """Return shares that a population can have and every report a chance under, (M + 2,).

    Candidates have their best guess: mostly none, where a mean would lean on the few reports that look like them. What is missing is
    spread over all strings.
    """
    guess = np.maximum(best_guess(seen.shares, np.sqrt(seen.variances)).shares, _LITTLE / len(seen.shares))
    none = max(nothing, _LITTLE)
    z = np.append(guess, [max(1 - guess.sum() - none, _LITTLE), none])
    return np.asarray(z / z.sum())
