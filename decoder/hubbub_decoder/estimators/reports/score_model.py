"""Mixed model of the score of retained reports, solved exactly: shares with normal priors near plausible shares.

Model: the mean score g of n clients at shares z (`likelihood_ratios.py`) is one normal observation of the shares x (M + 2,). A is the
information of a report, A_T the covariance of the mean score of a client's reports (A if each client has one), and B the covariance of the
score by the hashing of one unlisted string:

    y = F x + N(0, I + tau**2 diag(d))        A_T = R R'      R^-1 B R^-1' = U diag(d / n) U'
    F = sqrt(n) U' R^-1 A                     y = F z + sqrt(n) U' R^-1 g

Candidates have the priors N(mean_v, variance_v); the last two shares, of the unlisted strings and of "no value", are fixed effects.
The number of reports is random, as with pattern counts, so shares need not sum to 1.

Estimator: Henderson's equations, with W = diag(1 / (1 + tau**2 d)) and D = diag(1/variance), 0 for the fixed effects:

    P = (F'W F + D)^-1        x = P (F'W y + D mean)        F'W F = n A (A_T + n tau**2 B)^-1 A

How a string hashes is random, so a candidate with a prior is noise of known variance to the others. Each estimate is that of its *cavity*,
its own prior removed; so it is unbiased over the random hash:

    1/variance(x_v) = 1/P_vv - 1/variance_v        x_v = variance(x_v) (m_v / P_vv - mean_v / variance_v)        m_v : posterior mean

Variance:  an estimate is linear in the score, w'g, and its variance has the term w' A w / n, in which reporters and noise are random. It is
replaced by w' E_v Cov(x | v) w / n (the noise alone) plus x (1 - x) / n. With little noise the difference of both terms would be lost in
rounding.

docs/explanation/mathematics.md, equation (11.5) ("Many candidates"); decision 41. Source: Henderson 1975 (mixed model equations); Minka 2001 (the cavity).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from hubbub_decoder.array_types import Flags, Floats, Indices
from hubbub_decoder.estimators.fit_result import ShareEstimates, Totals
from hubbub_decoder.estimators.inverses import inverse_root
from hubbub_decoder.estimators.reports.bit_residuals import BitResiduals, HashMoments, Overdispersion

_MIN_EIGENVALUE = 1e-9  # relative to the largest
_RELATIVE_RIDGE = 1e-10
_MIN_INFORMATION = 1e-9  # relative; a share with less is not determined
_RANK_TOLERANCE = 1e-9  # length of what a column adds to the others, relative to its own; less is rounding
_SUM_WEIGHT = 1e4  # precision of the constraint that shares sum to 1, in that of a random number of reports
_MIN_ERROR_REPORTS = 0.1  # least standard error, in reports: simulated matrices are not more exact


@dataclass(frozen=True, eq=False)
class CandidatePriors:
    """Normal prior of each candidate's share: means (M,) and variances (M,) > 0."""

    means: Floats
    variances: Floats


@dataclass(frozen=True, eq=False)
class ScoreModel:
    """Score of n clients as r observations with noise N(0, I + tau**2 diag(spread)), before priors are given.

    y, features   : (r,) and (r, M + 2) F      spread : (r,) d
    of_score      : (r, M + 2) derivative of y by the score
    right_inverse : (M + 2, r) of F
    num_clients   : n      residuals, hashing : of the bits, which show tau**2
    excess        : (r, r) covariance of y by the noise alone, the reporters fixed, less I; None: not computed
    """

    y: Floats
    features: Floats
    spread: Floats
    of_score: Floats
    right_inverse: Floats
    num_clients: float
    residuals: BitResiduals
    hashing: HashMoments
    excess: Floats | None = None

    @classmethod
    def from_score(
        cls,
        z: Floats,
        score: Floats,
        information: Floats,
        covariance: Floats,
        hashing: HashMoments,
        noise: Floats | None,
        num_clients: float,
        residuals: BitResiduals,
    ) -> ScoreModel:
        """Model from the score g (M + 2,) at shares z, A and A_T (M + 2, M + 2), and B in `hashing`.

        covariance : (M + 2, M + 2) A_T = R R', of the mean score of a client's reports; A if each client has one
        noise      : (M + 2, M + 2) part of it that the noise alone makes
        """
        scale = np.sqrt(np.diag(covariance))
        values, vectors = linalg.eigh(covariance / np.outer(scale, scale))
        known = values > _MIN_EIGENVALUE * values[-1]
        inverse = vectors[:, known] / np.sqrt(values[known]) / scale[:, None]
        spread, turn = linalg.eigh(inverse.T @ hashing.scores @ inverse)
        of_score = np.sqrt(num_clients) * (inverse @ turn).T
        features = of_score @ information
        return cls(
            y=features @ z + of_score @ score,
            features=features,
            spread=num_clients * np.maximum(spread, 0),
            of_score=of_score,
            right_inverse=of_score.T / num_clients if covariance is information else np.linalg.pinv(features),
            num_clients=num_clients,
            residuals=residuals,
            hashing=hashing,
            excess=None if noise is None else of_score @ noise @ of_score.T / num_clients - np.eye(len(of_score)),
        )

    def with_sum_constraint(self) -> ScoreModel:
        """Return the model with one more observation: all shares sum to 1.

        It is for totals only. Priors of single shares do not sum to 1, and would shift the other shares.
        """
        total = np.sqrt(_SUM_WEIGHT * self.num_clients)
        return replace(
            self,
            y=np.append(self.y, total),
            features=np.vstack([self.features, np.full(self.features.shape[1], total)]),
            spread=np.append(self.spread, 0),
            of_score=np.pad(self.of_score, [(0, 1), (0, 0)]),
            right_inverse=np.pad(self.right_inverse, [(0, 0), (0, 1)]),
            excess=None if self.excess is None else np.pad(self.excess, (0, 1)),
        )

    def totals(self, priors: CandidatePriors, unlisted_variance: float, exchangeable: Flags) -> Totals:
        """Totals, with one more fixed effect: the mean of the exchangeable candidates (M,), its column F 1.

        Without it, the priors of hundreds of small shares would decide their sum. The last diagonal entry of R is what the other columns
        leave of that column; if it is 0, no candidate is exchangeable, or F 1 is a fixed column, and there is no such effect.

        Solved as least squares by a QR decomposition. The sum of all shares is known a thousand times better than the sum of the exchangeable
        ones, and normal equations would square that ratio and lose eight digits, in other ways on each processor.
        """
        m, size = len(priors.means), self.features.shape[1]
        roots = 1 / np.sqrt(1 + unlisted_variance * self.spread)[:, None]
        observed = roots * np.column_stack([self.features, self.features[:, :m] @ exchangeable])
        diagonal = np.append(
            1 / np.sqrt(priors.variances), _RANK_TOLERANCE * np.linalg.norm(observed[:, m:size], axis=0)
        )
        known = np.column_stack([np.diag(diagonal), np.zeros(size)])
        right = np.concatenate([roots[:, 0] * self.y, diagonal[:m] * priors.means, np.zeros(size - m)])
        augmented = np.column_stack([np.vstack([observed, known]), right])
        (triangle,) = linalg.qr(augmented, mode="r")
        kept = size + int(abs(triangle[size, size]) > _RANK_TOLERANCE * np.linalg.norm(observed[:, size]))
        root, projected = triangle[:kept, :kept], triangle[:kept, -1]  # R and Q'y
        sums = np.zeros((size + 1, size - m + 1))
        sums[:m, 0], sums[m:size, 1:], sums[size, 0] = 1, np.eye(size - m), exchangeable.sum()
        half = linalg.solve_triangular(root, sums[:kept], trans="T")
        shares, covariance = projected @ half, half.T @ half
        if self.excess is not None:
            reach = roots * (observed[:, :kept] @ linalg.solve_triangular(root, half))
            x, n = np.clip(shares, 0, 1), self.num_clients
            sampling = (np.diag(x) - np.outer(x, x)) / n + (_MIN_ERROR_REPORTS / n) ** 2 * np.eye(len(x))
            covariance += reach.T @ self.excess @ reach + sampling
        return Totals(shares, covariance)

    def variance_ratio(self, unlisted_variance: float, before: float) -> float:
        """Ratio of the observations' mean variance under one tau**2 to that under another."""
        mean = float(self.spread.mean())
        return (1 + unlisted_variance * mean) / (1 + before * mean)


class ScoreSolver:
    """Shares under given priors and tau**2, from Henderson's equations.

    shares : (M + 2,) posterior means of all shares
    """

    def __init__(self, model: ScoreModel, priors: CandidatePriors, unlisted_variance: float) -> None:
        self._model, self._priors, self._unlisted_variance = model, priors, unlisted_variance
        self._weighted = model.features / (1 + unlisted_variance * model.spread)[:, None]  # W F
        normal = model.features.T @ self._weighted
        size, self._listed = len(normal), len(priors.means)
        precision, pull = np.zeros(size), np.zeros(size)
        precision[: self._listed], pull[: self._listed] = 1 / priors.variances, priors.means / priors.variances
        ridge = _RELATIVE_RIDGE * max(normal.trace() / size, _RELATIVE_RIDGE)
        normal[np.diag_indices_from(normal)] += precision + ridge
        root = inverse_root(normal)
        self._posterior = root.T @ root  # P
        self._right = self._weighted.T @ model.y + pull
        self.shares: Floats = self._posterior @ self._right

    def without(self, candidates: Indices) -> Floats:
        """Posterior means (M + 2, D) given that the share of each of D candidates is 0."""
        columns = self._posterior[:, candidates]
        own = self._posterior[candidates, candidates]
        return np.asarray(self.shares[:, None] - columns * (self.shares[candidates] / own))

    def estimates(self, *, approximate: bool = False) -> ShareEstimates:
        """Estimates of all shares, each without its own prior; approximate : reporters and noise are both random."""
        m, n, excess = self._listed, self._model.num_clients, self._model.excess
        posterior_means, posterior_variances = self.shares[:m], np.diag(self._posterior)[:m]
        precision = 1 / posterior_variances - 1 / self._priors.variances
        known = precision > _MIN_INFORMATION / posterior_variances
        variances = 1 / np.where(known, precision, 1)
        shares = variances * (posterior_means / posterior_variances - self._priors.means / self._priors.variances)
        if excess is not None and not approximate:
            reach = self._weighted @ (self._posterior[:, :m] * (variances / posterior_variances))
            variances = np.maximum(variances + np.sum(reach * (excess @ reach), axis=0), 0)
            variances += (_MIN_ERROR_REPORTS / n) ** 2 + np.clip(shares, 0, 1) * (1 - np.clip(shares, 0, 1)) / n
        return ShareEstimates(
            shares=np.where(known, shares, np.nan),
            variances=np.where(known, variances, np.inf),
            posterior_means=posterior_means,
            fixed_effects=self.shares[m:],
        )

    def score_weights(self, candidates: Indices) -> Floats:
        """Weights of the score in the estimates of D candidates, each without its own prior, (D, M + 2)."""
        variances = np.diag(self._posterior)[candidates]
        own = 1 / (1 - variances / self._priors.variances[candidates])
        return np.asarray(own[:, None] * (self._posterior[candidates] @ self._weighted.T @ self._model.of_score))

    def overdispersion(self) -> Overdispersion:
        """Compare the residuals of the bits with their expected variance."""
        model = self._model
        reach = self._posterior[:-1] @ self._weighted.T  # of y in the posterior means
        hashed = model.right_inverse[:-1] * model.spread
        return model.residuals.overdispersion(
            self.shares[:-1],
            self._posterior[:-1, :-1],
            reach @ model.of_score,
            model.hashing,
            self._unlisted_variance,
            hashed @ reach.T,
        )
