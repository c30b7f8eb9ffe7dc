"""Approximate message passing: all shares, the prior of shares and the variance of unlisted strings, from whitened counts by cohort.

Model, for cohorts c = 1 .. m with whitened observations y_c (r_c,):

    y_c = X_c x + F_c f + s_c        x_v ~ G        s_c ~ N(0, I + tau**2 K_c)        K_c = A_c V A_c'

    x (M,)   shares of the candidates, with a common prior G (`inference/prior.py`)
    f (o,)   fixed effects: the share of the unlisted strings, whose column is A_c w, and that of "no value"
    X_c      sum of the columns of A_c at a candidate's positions in cohort c (its filter, or its bits)
    w, V     mean and covariance of the indicator of a random string's positions
    tau**2   sum of squared shares of the unlisted strings

How a string hashes is random, so a candidate of which the share is uncertain by V_v is noise V_v K_c to the others. In one iteration:

    r_c = y_c - X_c mean - F_c f + (sum_v V_v) K_c S_c^-1 r_c (of the iteration before)
    t   = the maximum-likelihood estimate for r_c ~ N(0, S_c)        S_c = I + t K_c        tau**2 = t - sum_v V_v
    x_v = mean_v + sum_c b_vc'A_c'S_c^-1 r_c / J_v        J_v = sum_c b_vc'A_c'S_c^-1 A_c b_vc - what f takes up        Var x_v = 1 / J_v
    G, then mean_v and V_v = mean and variance of the posterior of x_v under G

The last term of r_c (Onsager's) removes each candidate's own part of its mean from the residuals that it is compared with. So x_v is an
estimate without a prior of its own, unbiased over the random hash. b_vc is the indicator of v's positions less w: f has the share of
all strings together as its first component, and is fitted by least squares in each iteration.

An iteration costs O(M m h**2), and holds no matrix of candidates. docs/explanation/mathematics.md, equations (7.4) and (7.5); decision 70. Source: Donoho, Maleki &
Montanari 2009; Rangan 2011 (generalized approximate message passing); Vila & Schniter 2013 (prior by empirical Bayes).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.estimators.fit_result import Crowding, ShareEstimates, Totals
from hubbub_decoder.inference.influence import Extremes, ReportInfluence
from hubbub_decoder.inference.prior import fit_prior
from hubbub_decoder.model.observations import Observations

_DAMPING = ((0.7, 30), (0.2, 60), (0.05, 110))  # weights of the new posteriors, each with its number of iterations
_MAX_SCORING_STEPS = 20
_SCORING_TOLERANCE = 1e-3  # relative change of the observations' variance
# change of the means in standard errors, and relative one of the observations' variance, over the weight
_CONVERGENCE_TOLERANCE = 0.03
_MIN_INFORMATION = 1e-6  # relative to the largest; a share with less is not determined
_RELATIVE_RIDGE, _MIN_SPREAD = 1e-10, 1e-9
_MIN_COHORTS_WHEN_CROWDED = 8
_STRONG_STANDARD_ERRORS = 3.5  # a share above is not exchangeable with the others
# of a posterior mean by the estimate: a column of its own; and the least that counts
_MIN_SLOPE, _LEAST_SLOPE = 0.05, 1e-4
_MIN_COHORTS_FOR_BOUND, _WIDE_TOLERANCE = 16, 1.5  # with fewer, attacks moved estimates by up to 1.35 bounds
_SEARCHED_COHORTS = 4  # in which the row is sought that moves an estimate most
_ROWS_PER_STRONG_CANDIDATE, _MAX_STRONG = 4, 300  # candidates with their own unknown in the totals
_MORE_REPORTS = 100.0  # times as many, to tell whether more reports would determine the totals


@dataclass(frozen=True, eq=False)
class HashedCohorts:
    """Whitened observations of m cohorts, rotated to the eigenvectors of K_c, so that each S_c is diagonal.

    responses     : (m, r)      rows beyond a cohort's own are 0
    features      : (m, r, p)   columns of the p positions
    transforms    : (m, r, p)   of the statistics that the responses were made from
    spreads       : (m, r)      eigenvalues of K_c
    fixed         : (m, r, o)   F_c
    random_string : (p,)        w
    positions     : (m, h, M)   of the candidates
    strata        : (M,)        of the candidates, each with its own prior of shares; None: one prior
    signed        : whether x are changes of shares, of either sign
    """

    responses: Floats
    features: Floats
    transforms: Floats
    spreads: Floats
    fixed: Floats
    random_string: Floats
    positions: NDArray[np.integer]
    strata: Indices | None = None
    signed: bool = False

    @classmethod
    def from_observations(
        cls,
        observations: Observations,
        positions: NDArray[np.integer],
        fixed_patterns: Floats,
        covariance: Floats,
        strata: Indices | None = None,
        *,
        signed: bool = False,
    ) -> HashedCohorts:
        """Rotate the observations.

        fixed_patterns : (p, o) average pattern over positions of the unlisted strings, w, and of "no value"
        covariance     : (p, p) V
        """
        shape = len(observations.features), max(map(len, observations.features), default=0)
        responses, spreads = np.zeros(shape), np.zeros(shape)
        features = np.zeros((*shape, len(fixed_patterns)))
        transforms = features if observations.transforms is observations.features else np.zeros_like(features)
        rows = zip(observations.responses, observations.features, observations.transforms, strict=True)
        for c, (y, a, transform) in enumerate(rows):
            values, vectors = np.linalg.eigh(a @ covariance @ a.T)
            spreads[c, : len(y)], responses[c, : len(y)] = np.maximum(values, 0), vectors.T @ y
            features[c, : len(y)], transforms[c, : len(y)] = vectors.T @ a, vectors.T @ transform
        positions = positions.astype(np.intp, copy=False)
        fixed, random_string = features @ fixed_patterns, fixed_patterns[:, 0]
        return cls(responses, features, transforms, spreads, fixed, random_string, positions, strata, signed)

    @property
    def num_candidates(self) -> int:
        """M."""
        return int(self.positions.shape[2])

    @property
    def size(self) -> int:
        """Number of observations in which random strings differ, d."""
        return int((self.spreads > _MIN_SPREAD * self.spreads.max(initial=0)).sum())

    @property
    def num_used(self) -> int:
        """Number of cohorts with reports."""
        return int(self.spreads.any(axis=1).sum())

    def columns(self, candidates: Indices) -> Floats:
        """A_c b_v of some candidates less that of a random string, (m, r, D)."""
        own = np.array(
            [a[:, at].sum(axis=1) for a, at in zip(self.features, self.positions[:, :, candidates], strict=True)]
        )
        return np.asarray(own - self.fixed[:, :, :1])

    def predict(self, shares: Floats) -> Floats:
        """X x - F_1 sum x, (m, r), of shares x (M,): their deviation from as many random strings."""
        size = len(self.random_string)
        tables = np.array([sum(np.bincount(one, shares, size) for one in taken) for taken in self.positions])
        return self._times_features(tables - shares.sum() * self.random_string)

    def _times_features(self, tables: Floats) -> Floats:
        return np.asarray((self.features @ tables[:, :, None])[:, :, 0])

    def scores(self, weighted: Floats) -> Floats:
        """A_c'v_c of each cohort, (m, p); weighted : v (m, r)."""
        return np.asarray((weighted[:, None] @ self.features)[:, 0])

    def scores_of_fixed(self, weights: Floats) -> Floats:
        """A_c'S_c^-1 F_c of each cohort, (m, o, p)."""
        return np.asarray((weights[:, :, None] * self.fixed).transpose(0, 2, 1) @ self.features)

    def gather(self, tables: Floats) -> Floats:
        """Sum over cohorts of the entries of tables (m, p) at each candidate's positions, less that of a random string, (M,)."""
        total = np.full(self.num_candidates, -float((tables @ self.random_string).sum()))
        for table, taken in zip(tables, self.positions, strict=True):
            for one in taken:
                total += table.take(one)
        return total

    def information(self, weights: Floats) -> Floats:
        """Sum over cohorts of b'A_c' diag(weights_c) A_c b, b the indicator of a candidate's positions less w, (M,)."""
        average = self.fixed[:, :, 0]
        total = self.gather(-2 * self.scores(weights * average))
        total -= float((weights * average**2).sum())
        h, size = self.positions.shape[1], len(self.random_string)
        for c, taken in enumerate(self.positions):
            weighted = weights[c, :, None] * self.features[c]
            own = np.einsum("rp,rp->p", weighted, self.features[c])
            table = (2 * (self.features[c].T @ weighted)).ravel() if h > 1 else own
            for i, one in enumerate(taken):
                total += own.take(one)
                for other in taken[:i]:
                    total += table.take(one * size + other)
        return total


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Posterior means and variances (M,) of the candidates' shares, and tau**2."""

    means: Floats
    variances: Floats
    unlisted_variance: float


class RowStatistics(Protocol):
    """Statistics of one report: what a row of bits adds to those of its cohort.

    max_part_of_strings : part of the variance, caused by other strings, up to which no attack was found that exceeds the bound
    """

    @property
    def max_part_of_strings(self) -> float:
        """In [0, 1]."""

    def likely(self, cohort: int, candidates: Indices, weights: Floats) -> Floats:
        """Weighted sums of the likeliest row of each candidate, (D,), by which cohorts are searched; inf: all are. weights : (D, p)."""

    def extremes(self, cohort: int, weights: Floats) -> Extremes:
        """Extremes over all rows of the weighted sums, (D,); weights : (D, p)."""


@dataclass(frozen=True, eq=False)
class MessagePassingFit:
    """Settled messages: estimates, and what tests and totals need.

    estimates         : of all shares, with the fixed effects of the unlisted strings and of "no value"
    beliefs           : posteriors and tau**2 that follow from them
    variance          : t, and its standard error, which is that of tau**2
    means             : (M,) of the messages that the residuals were computed with
    weights           : (m, r) diagonal of S_c^-1
    weighted          : (m, r) S_c^-1 r_c
    effect_covariance : (o, o) (F'S^-1 F)^-1
    settled           : whether the iteration settled; if not, or with too many candidates for few cohorts, no candidate was subtracted
    """

    cohorts: HashedCohorts
    estimates: ShareEstimates
    beliefs: Beliefs
    variance: float
    variance_error: float
    means: Floats
    weights: Floats
    weighted: Floats
    effect_covariance: Floats
    settled: bool = True

    def scores(self, left_out: int | None = None) -> list[Floats]:
        """A_c'S_c^-1 r_c of each cohort, (p,): the part of each position in the score of a string without a prior.

        left_out : a candidate to leave out: its mean goes back to the residuals, and f is fitted again
        """
        cohorts, scores = self.cohorts, self.cohorts.scores(self.weighted)
        if left_out is None:
            return list(scores)
        taken = cohorts.positions[:, :, left_out]
        columns = np.take_along_axis(cohorts.features, taken[:, None], axis=2).sum(axis=2)
        returned = self.weights * columns * self.means[left_out]
        effects = self.effect_covariance @ np.einsum("cro,cr->o", cohorts.fixed, returned)
        return list(scores + cohorts.scores(returned - self.weights * (cohorts.fixed @ effects)))

    def totals(self) -> Totals:
        """Totals of all candidates and of the fixed effects, by least squares.

        Unknowns are the strong candidates (above 3.5 standard errors), the mean of all others, and the fixed effects. The deviations of the
        others from their mean sum to 0, and are noise (sum E (x_v - mean)**2) K_c. So no prior decides the sum of hundreds of small shares.
        """
        cohorts, estimates, beliefs = self.cohorts, self.estimates, self.beliefs
        strong = _strong_candidates(estimates, cohorts)
        weak = np.ones(cohorts.num_candidates, bool)
        weak[strong] = False
        deviations = beliefs.means[weak] - (beliefs.means[weak].mean() if weak.any() else 0)
        noise = beliefs.unlisted_variance + float(np.sum(deviations**2 + beliefs.variances[weak]))
        columns = [cohorts.fixed.reshape(-1, cohorts.fixed.shape[2])]
        if weak.any():
            mean = cohorts.predict(weak / weak.sum()) + cohorts.fixed[:, :, 0]
            columns.append(mean.reshape(-1, 1))
        of_strong = np.concatenate(
            [
                a[:, taken].sum(axis=1)
                for a, taken in zip(cohorts.features, cohorts.positions[:, :, strong], strict=True)
            ]
        )
        design = np.column_stack([*columns, of_strong])
        weighted, inverse = _weighted_inverse(design, 1 + noise * cohorts.spreads)
        solution = inverse @ (weighted.T @ cohorts.responses.ravel())
        o = cohorts.fixed.shape[2]
        sums = np.zeros((1 + o, len(inverse)))
        sums[1:, :o], sums[0, o:] = np.eye(o), 1
        separable = self.subtracted and cohorts.num_candidates <= cohorts.size
        remaining = beliefs.unlisted_variance if separable else noise
        _, with_more = _weighted_inverse(design, 1 / _MORE_REPORTS + remaining * cohorts.spreads)
        return Totals(sums @ solution, sums @ inverse @ sums.T, float(np.sqrt(sums[0] @ with_more @ sums[0])))

    def influence(self, candidates: Indices, rows: RowStatistics, reports: NDArray[np.int64]) -> ReportInfluence:
        """Influence of one report on the estimates of D candidates.

        rows : what a row adds to the statistics of a cohort      reports : (m,) of each cohort
        """
        weights, expected = self._response_weights(candidates)
        used = np.flatnonzero(reports).tolist()
        of_statistics = [weights[c] @ self.cohorts.transforms[c] for c in used]
        constants = np.array([weights[c] @ expected[c] / reports[c] for c in used])
        likely = np.array([rows.likely(c, candidates, of_rows) for c, of_rows in zip(used, of_statistics, strict=True)])
        is_searched = likely - constants >= np.sort(likely - constants, axis=0)[-_SEARCHED_COHORTS:][0]

        def changes() -> Iterator[Extremes]:
            for c, of_rows, constant, some in zip(used, of_statistics, constants, is_searched, strict=True):
                yield rows.extremes(c, of_rows[some]).less(constant[some]).among(some)

        found = ReportInfluence.from_changes(self.estimates.shares[candidates], changes(), int(reports.sum()))
        is_exact = self.cohorts.num_used >= _MIN_COHORTS_FOR_BOUND and self._part_of_strings <= rows.max_part_of_strings
        return found if is_exact else replace(found, tolerance=_WIDE_TOLERANCE)

    def _response_weights(self, candidates: Indices) -> tuple[Floats, Floats]:
        """Weights of the responses in the estimates of D candidates, (m, D, r), and the responses that the fit expects, (m, r).

        A candidate's mean follows its estimate with the slope V_v / Var x_v, as under a normal prior of precision L_v = 1 / V_v - 1 / Var x_v. So
        an estimate is that of least squares in which all others have these priors. Those with a small slope are noise, V_v K_c each.

            P = (Z'W Z + diag(L))^-1        l_v = (P Z'W)_v / (1 - L_v P_vv)        Z : F, and the columns with a slope
        """
        cohorts, variances = self.cohorts, np.minimum(self.estimates.variances, 1.0)
        slopes = self.beliefs.variances / variances
        following = np.flatnonzero(slopes > _MIN_SLOPE)
        taken = np.union1d(following[np.argsort(-slopes[following])[:_MAX_STRONG]], candidates)
        noise = self.beliefs.unlisted_variance + float(np.delete(self.beliefs.variances, taken).sum())
        w, o = 1 / (1 + noise * cohorts.spreads), cohorts.fixed.shape[2]
        z = np.concatenate([cohorts.fixed, cohorts.columns(taken)], axis=2).reshape(w.size, -1)
        prior = np.zeros(o + len(taken))
        prior[o:] = (1 / np.clip(slopes[taken], _LEAST_SLOPE, 1) - 1) / variances[taken]
        weighted = w.reshape(-1, 1) * z
        inverse = _ridge_inverse(z.T @ weighted + np.diag(prior))
        at = o + np.searchsorted(taken, candidates)
        own = inverse[at] / (1 - prior[at] * inverse[at, at])[:, None]
        solution = inverse @ (weighted.T @ cohorts.responses.ravel())
        residuals = cohorts.responses - (z @ solution).reshape(w.shape)
        return (weighted @ own.T).reshape(*w.shape, -1).transpose(0, 2, 1), cohorts.responses - w * residuals

    @property
    def subtracted(self) -> bool:
        """Whether candidates were subtracted from each other."""
        return self.settled and not _is_crowded(self.cohorts)

    @property
    def _part_of_strings(self) -> float:
        """Part of the observations' variance that the bits of the strings cause that were not subtracted."""
        return 1 - 1 / _variance_ratio(self.cohorts, self.variance, 0.0)

    def crowding(self, totals: Totals) -> Crowding:
        """What the bits of other strings do to the estimates."""
        crowded, error = _is_crowded(self.cohorts), totals.error_with_more_reports
        return Crowding(self.cohorts.num_used, crowded, not self.settled, self._part_of_strings, error)


def too_crowded(num_cohorts: int, num_candidates: int, num_observations: int) -> bool:
    """Whether no candidate may be subtracted: in fewer than 8 cohorts, with more candidates than half of the observations.

    The frequent strings that share a candidate's positions are few then. Their sum is not normal, and a posterior would take it for the
    candidate's own share.
    """
    return num_cohorts < _MIN_COHORTS_WHEN_CROWDED and 2 * num_candidates > num_observations


def pass_messages(cohorts: HashedCohorts) -> MessagePassingFit:
    """Iterate until the posterior means and the variance of the observations settle.

    With a constant weight of the new posteriors, tasks with many candidates for few cohorts swing for ever, so the weight falls. What does
    not settle then either is no estimate: no candidate is subtracted, and all other strings stay noise. The same holds where there are too
    many candidates for few cohorts.

    Each fit starts from nothing, also after one with other weights. Its residuals would be the small difference of large numbers where
    reports are many, and the Onsager term of a fit that has not settled exactly is far larger than they are.
    """
    if _is_crowded(cohorts):
        return _match_without_subtraction(cohorts)
    beliefs, carried, variance = _nothing(cohorts), np.zeros_like(cohorts.responses), 0.0
    for damping, iterations in _DAMPING:
        for _ in range(iterations):
            before = beliefs
            fit = estimate_given_beliefs(cohorts, before, carried, variance, damping)
            beliefs, changed = fit.beliefs, _variance_ratio(cohorts, fit.variance, variance)
            carried, variance = beliefs.variances.sum() * cohorts.spreads * fit.weighted, fit.variance
            if max(abs(changed - 1), _movement(before, fit)) < damping * _CONVERGENCE_TOLERANCE:
                return fit
    return replace(_match_without_subtraction(cohorts), settled=False)


def _is_crowded(cohorts: HashedCohorts) -> bool:
    return too_crowded(cohorts.num_used, cohorts.num_candidates, cohorts.size)


def _match_without_subtraction(cohorts: HashedCohorts) -> MessagePassingFit:
    """Estimate each candidate with all other strings as noise.

    In a single cohort nothing is determined: candidates of one position are one column there, so columns never share a position, and the
    positions of the others are not random.
    """
    fit = estimate_given_beliefs(cohorts, _nothing(cohorts), np.zeros_like(cohorts.responses), 0.0)
    fit = replace(fit, beliefs=replace(_nothing(cohorts), unlisted_variance=fit.variance))
    if cohorts.num_used > 1:
        return fit
    unknown = np.full(cohorts.num_candidates, np.nan)
    return replace(fit, estimates=replace(fit.estimates, shares=unknown, variances=np.full_like(unknown, np.inf)))


def estimate_given_beliefs(
    cohorts: HashedCohorts, beliefs: Beliefs, carried: Floats, variance: float, damping: float = 1.0
) -> MessagePassingFit:
    """Estimates from the residuals given the beliefs, and the beliefs given the estimates.

    carried : Onsager's term, (m, r)      variance : t of the iteration before      damping : weight of the new beliefs
    """
    unexplained = cohorts.responses - cohorts.predict(beliefs.means) + carried
    for _ in range(_MAX_SCORING_STEPS):
        weights, before = 1 / (1 + variance * cohorts.spreads), variance
        residuals, effects, covariance = _subtract_fixed_effects(cohorts, unexplained, weights)
        step, error = _scoring_step(cohorts, weights, weights * residuals, covariance)
        variance = max(before + step, 0.0)
        if abs(_variance_ratio(cohorts, variance, before) - 1) < _SCORING_TOLERANCE:
            break
    weighted = weights * residuals
    information = cohorts.information(weights)
    shared = np.array([cohorts.gather(scores) for scores in np.moveaxis(cohorts.scores_of_fixed(weights), 0, 1)])
    information -= np.einsum("ov,op,pv->v", shared, covariance, shared)
    known = information > _MIN_INFORMATION * information.max(initial=0)
    variances = 1 / np.where(known, information, 1)
    shares = beliefs.means + variances * cohorts.gather(cohorts.scores(weighted))
    estimates = ShareEstimates(
        shares=np.where(known, shares, np.nan),
        variances=np.where(known, variances, np.inf),
        posterior_means=beliefs.means,
        fixed_effects=effects - np.eye(1, len(effects))[0] * beliefs.means.sum(),
    )
    return MessagePassingFit(
        cohorts=cohorts,
        estimates=estimates,
        beliefs=_updated(beliefs, estimates, before, damping, cohorts),
        variance=before,
        variance_error=error,
        means=beliefs.means,
        weights=weights,
        weighted=weighted,
        effect_covariance=covariance,
    )


def _strong_candidates(estimates: ShareEstimates, cohorts: HashedCohorts) -> Indices:
    """Candidates above 3.5 standard errors: the largest scores, at most a quarter of the observations and 300."""
    scores = estimates.shares / np.sqrt(estimates.variances)
    scores = np.abs(scores) if cohorts.signed else scores
    strong = np.flatnonzero(scores > _STRONG_STANDARD_ERRORS)
    most = min(_MAX_STRONG, cohorts.size // _ROWS_PER_STRONG_CANDIDATE)
    return np.sort(strong[np.argsort(-scores[strong])[:most]])


def _nothing(cohorts: HashedCohorts) -> Beliefs:
    """No candidate has a share, with certainty."""
    nothing = np.zeros(cohorts.num_candidates)
    return Beliefs(nothing, nothing, 0.0)


def _subtract_fixed_effects(
    cohorts: HashedCohorts, responses: Floats, weights: Floats
) -> tuple[Floats, Floats, Floats]:
    """Residuals (m, r) of responses (m, r), the fixed effects (o,) fitted to them, and the effects' covariance (o, o)."""
    weighted = weights[:, :, None] * cohorts.fixed
    covariance = _ridge_inverse(np.einsum("cro,crp->op", cohorts.fixed, weighted))
    effects = covariance @ np.einsum("cro,cr->o", weighted, responses)
    return responses - cohorts.fixed @ effects, effects, covariance


def _scoring_step(
    cohorts: HashedCohorts, weights: Floats, weighted: Floats, effect_covariance: Floats
) -> tuple[float, float]:
    """Step of Fisher scoring for t, and its standard error; the fixed effects take up their part of the expected squares.

    step = (r'S^-1 K S^-1 r - tr(P K)) / tr(S^-1 K S^-1 K)        error = sqrt(2 / tr(S^-1 K S^-1 K))
    """
    spreads = cohorts.spreads
    of_effects = np.einsum("cr,cro,crp->op", spreads * weights**2, cohorts.fixed, cohorts.fixed)
    expected = float((spreads * weights).sum() - np.sum(of_effects * effect_covariance))
    curvature = float(((spreads * weights) ** 2).sum())
    if not curvature > 0:
        return 0.0, np.inf
    return (float((spreads * weighted**2).sum()) - expected) / curvature, float(np.sqrt(2 / curvature))


def _updated(
    beliefs: Beliefs, estimates: ShareEstimates, variance: float, damping: float, cohorts: HashedCohorts
) -> Beliefs:
    """Posteriors under a prior fitted to all estimates, and the part of t that the earlier posteriors do not explain."""
    unlisted_variance = max(variance - float(beliefs.variances.sum()), 0.0)
    if not len(estimates.shares):
        return Beliefs(beliefs.means, beliefs.variances, unlisted_variance)
    x, v = np.nan_to_num(estimates.shares), np.minimum(estimates.variances, 1.0)
    means, variances = fit_prior(x, v, cohorts.strata, signed=cohorts.signed).fitted_posterior(x, v)
    damping = damping if beliefs.variances.any() else 1.0
    return Beliefs(
        beliefs.means + damping * (means - beliefs.means),
        beliefs.variances + damping * (variances - beliefs.variances),
        unlisted_variance,
    )


def _movement(before: Beliefs, fit: MessagePassingFit) -> float:
    """Root mean square of the change of the means, in standard errors."""
    changes = (fit.beliefs.means - before.means) / np.sqrt(fit.estimates.variances)
    return float(np.sqrt(np.mean(changes**2))) if len(changes) else 0.0


def _variance_ratio(cohorts: HashedCohorts, after: float, before: float) -> float:
    """Ratio of the observations' mean variance 1 + t mean(spreads) under two values of t."""
    mean = float(cohorts.spreads.sum()) / max(1, cohorts.size)
    return (1 + after * mean) / (1 + before * mean)


def _weighted_inverse(design: Floats, variances: Floats) -> tuple[Floats, Floats]:
    """W X and (X'W X)^-1 of a design X (m r, u), with W the inverse of the observations' variances (m, r)."""
    weighted = design / variances.reshape(-1, 1)
    return weighted, _ridge_inverse(design.T @ weighted)


def _ridge_inverse(normal: Floats) -> Floats:
    """Inverse of normal equations; a direction without information gets a huge variance."""
    scale = 1 / np.sqrt(np.maximum(normal.diagonal(), np.finfo(float).tiny))
    scaled = normal * np.outer(scale, scale)
    scaled[np.diag_indices_from(scaled)] += _RELATIVE_RIDGE
    return np.asarray(np.linalg.inv(scaled) * np.outer(scale, scale))
