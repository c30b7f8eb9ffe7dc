"""Retained reports + design matrix -> shares, by the full likelihood with random effects.

bits -> beliefs -> score at the shares believed -> beliefs -> score at the shares found -> beliefs -> solution
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import linalg

from hubbub.summary import Reports
from hubbub_decoder.array_types import Flags, Floats, Indices
from hubbub_decoder.estimators.bit_counts import begin_with_bits
from hubbub_decoder.estimators.empirical_bayes import learn, totals
from hubbub_decoder.estimators.fit_result import FitResult, sum_totals
from hubbub_decoder.estimators.mixed_model import Beliefs, InShares, Misfit, MixedModel, Solution, Totals
from hubbub_decoder.estimators.reports.bit_residuals import BitResiduals
from hubbub_decoder.estimators.reports.likelihood_ratios import Mixture
from hubbub_decoder.estimators.reports.random_string_scores import RandomStrings
from hubbub_decoder.estimators.reports.report_pass import Retained
from hubbub_decoder.estimators.reports.simulated_information import draw, hashing_of_one, information, noise
from hubbub_decoder.inference.intervals import reporter_variance
from hubbub_decoder.inference.shrinkage import best_guess
from hubbub_decoder.model.design_matrix import DesignMatrix

MAX_CANDIDATES = 1500

_DRAWN, _DRAWN_EACH = 1 << 15, 24  # reports simulated for the information: so many, and so many a candidate
_LITTLE = 1e-3  # the least share of unlisted strings, of no value, and of all candidates together, that weights expect
_NULL = 1e-9
_MUCH = 1e4  # times what reports of a number left to chance would say
_LEAST_ERROR = 0.1  # reports: what is simulated is not known better, and nearly noiseless reports leave nothing else


def fit_many(reports: Reports, design: DesignMatrix, num_reports: int | None = None, *, seed: int = 0) -> FitResult:
    """Fit many candidates: to each, what is believed of the others is noise.

    reports     : at least one      design : made for the same parameters      seed : of the simulated reports
    num_reports : of all cohorts, if `reports` are those of some cohorts

    Time O(n M h + M**3), memory O(n k / 8 + M**2).
    """
    n, counts = reports.num_reports, reports.bit_counts()
    total = num_reports or n
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
    solved, sums = model.solve(learnt.beliefs, learnt.scatter), totals(model.adding_up(), learnt, seen)
    solution = solved.solution()
    errors = np.sqrt(np.where(np.isfinite(solution.variances), solution.variances, np.nan))
    strings = RandomStrings.draw(retained, mixture, expected, rng)
    plain = model.solve(learnt.beliefs, 0.0)  # scores know nothing of tau**2
    scale = n * plain.solution(roughly=True).variances / errors
    tests = strings.test(solution.shares, errors, scale, plain.shares, plain.without)
    summed, spread = sum_totals(sums.shares[:2], sums.covariance[:2, :2])
    of_sums = summed, spread, reporter_variance(spread, summed, total)
    return FitResult.from_mixed_model(
        solution, learnt, tests, of_sums, lambda v, x: (v, reporter_variance(v, x, total))
    )


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


class ScoredReports(MixedModel):
    """What n reports say of shares near z, as if one cohort had observed it: y = F x + N(0, I + tau**2 diag(spread)).

        A = R R'      R^-1 B R^-1' = U diag(spread / n) U'      F = sqrt(n) U' R'      y = F z + sqrt(n) U' R^-1 g

    g is the mean score of a report, A its information, B what the hashing of one unlisted string adds to its covariance. x_others are the
    unlisted and "no value". The number of reports counts as chance, as in pattern counts, and shares need not add up to one.

    num_reports : n      residuals : of the bits, which show tau**2
    excess      : (r, r) what the noise alone, the people fixed, makes more or less than I, where that is known
    """

    def __init__(
        self,
        y: Floats,
        features: Floats,
        spread: Floats,
        num_reports: int,
        residuals: BitResiduals,
        excess: Floats | None = None,
    ) -> None:
        size = features.shape[1]
        self.y, self.features, self.scatters = y, (features,), [np.diag(spread)]
        self.places, self.others = np.arange(size - 2)[None, None], features[:, -2:]
        self.spread, self.num_reports, self.residuals, self.excess = spread, num_reports, residuals, excess
        self._starts, self._size = [0, len(y)], size

    @classmethod
    def of(
        cls,
        z: Floats,
        score: Floats,
        information: Floats,
        hashing: Floats,
        noise: Floats | None,
        num_reports: int,
        residuals: BitResiduals,
    ) -> ScoredReports:
        """Take g, A and B as they are, (M + 2,) and (M + 2, M + 2); noise : covariance of one report's score, the people fixed."""
        scale = np.sqrt(np.diag(information))
        values, vectors = linalg.eigh(information / np.outer(scale, scale))
        known = values > _NULL * values[-1]
        inverse = vectors[:, known] / np.sqrt(values[known]) / scale[:, None]
        spread, turn = linalg.eigh(inverse.T @ hashing @ inverse)
        features = np.sqrt(num_reports) * ((scale[:, None] * vectors[:, known] * np.sqrt(values[known])) @ turn).T
        of_score = inverse @ turn
        y = features @ z + np.sqrt(num_reports) * (of_score.T @ score)
        excess = None if noise is None else of_score.T @ noise @ of_score - np.eye(len(y))
        return cls(y, features, num_reports * np.maximum(spread, 0), num_reports, residuals, excess)

    def solve(self, beliefs: Beliefs, scatter: float) -> InReports:
        return InReports(self, beliefs, scatter)

    def adding_up(self) -> ScoredReports:
        """Observe as well that shares add up to one. Beliefs about single shares do not, and would move the others: this is for sums."""
        total = np.sqrt(_MUCH * self.num_reports)
        features = np.vstack([self.features[0], np.full(self._size, total)])
        excess = None if self.excess is None else np.pad(self.excess, (0, 1))
        y, spread = np.append(self.y, total), np.append(self.spread, 0)
        return ScoredReports(y, features, spread, self.num_reports, self.residuals, excess)

    def whitened(self, unlisted: float) -> ScoredReports:
        shrunk = 1 / np.sqrt(1 + unlisted * self.spread)
        excess = None if self.excess is None else self.excess * np.outer(shrunk, shrunk)
        y, features, spread = self.y * shrunk, self.features[0] * shrunk[:, None], self.spread * shrunk**2
        return ScoredReports(y, features, spread, self.num_reports, self.residuals, excess)


class InReports(InShares):
    """Henderson's equations of the score, (F'F + prior) x = F'y + prior mean; tau**2 is seen in the bits.

    Where the noise is known, variances are those of the shares among the reporters, and of the reporters as a sample: what is nearly
    noiseless would otherwise be the difference of two large numbers, one of them simulated.
    """

    def __init__(self, model: ScoredReports, beliefs: Beliefs, unlisted: float) -> None:
        super().__init__(model, beliefs, unlisted)
        self._scored, self._unlisted = model.whitened(unlisted), unlisted

    @property
    def shares(self) -> Floats:
        """All shares, with what is believed: (M + 2,)."""
        return self._x

    def without(self, some: Indices) -> Floats:
        """Return all shares were each of some candidates known to be 0, (M + 2, D)."""
        columns = self._root.T @ self._root[:, some]
        return np.asarray(self._x[:, None] - columns * (self._x[some] / columns[some, range(len(some))]))

    def solution(self, *, roughly: bool = False) -> Solution:
        seen, excess = super().solution(), self._scored.excess
        if roughly or excess is None:
            return seen
        own = np.where(np.isfinite(seen.variances), seen.variances, 0)
        columns = self._root.T @ self._root[:, : self._listed]
        reach = self._scored.features[0] @ (columns * (own / np.diag(columns)))
        variances = np.maximum(seen.variances + np.sum(reach * (excess @ reach), axis=0), 0)
        x, n = np.clip(np.nan_to_num(seen.shares), 0, 1), self._scored.num_reports
        return replace(seen, variances=variances + (_LEAST_ERROR / n) ** 2 + x * (1 - x) / n)

    def totals(self, exchangeable: Flags) -> Totals:
        seen, excess = super().totals(exchangeable), self._scored.excess
        if excess is None:
            return seen
        weights, _, column = self._weights(exchangeable)
        reach = weights[:, :-1] @ self._scored.features[0].T + np.outer(weights[:, -1], column)
        x, n = np.clip(seen.shares, 0, 1), self._scored.num_reports
        people = (np.diag(x) - np.outer(x, x)) / n + (_LEAST_ERROR / n) ** 2 * np.eye(len(x))
        return Totals(seen.shares, seen.covariance + reach @ excess @ reach.T + people)

    def misfit(self) -> Misfit:
        root = self._root[:, :-1]
        return self._scored.residuals.misfit(self._x[:-1], root.T @ root, self._unlisted)
