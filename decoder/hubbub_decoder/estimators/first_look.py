"""Shares by each cohort's own numbers: what a mixed model says where no belief ties the cohorts together."""

from __future__ import annotations

import numpy as np

from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.mixed_model import MixedModel
from hubbub_decoder.estimators.solution import Misfit, Solution

STRONG = 3.5
"""Standard errors beyond which a candidate is not taken for one of many alike."""
_LEAST_ROWS = 4  # observations for each candidate that is estimated together with others


def look(model: MixedModel, known: Floats, scatter: float) -> tuple[Solution, Misfit]:
    """Take some shares as known and all other strings for scatter, and estimate one candidate at a time.

        y - X known = F x_others + s        s ~ N(0, I + tau**2 K)        tau**2 : the sum of squared shares that are not known
        x_j = known_j + x_j'P (y - X known) / x_j'P x_j, with variance 1 / x_j'P x_j

    It is unbiased over the random hash as the whole model is, and less efficient: collisions are noise. The covariance of the
    observations has no entries between cohorts, so it costs next to nothing.

    known : (M,)        scatter : tau**2
    """
    white = model.whitened(scatter)
    fixed, triangle = np.linalg.qr(white.others)
    left = white.y - white.sums(known)
    effects = fixed.T @ left
    left -= fixed @ effects
    information = white.lengths() - np.sum(white.scores(fixed) ** 2, axis=1)
    told = information > 0
    variances = 1 / np.where(told, information, 1)
    shares = known + variances * white.scores(left)
    parts = [(left[rows], fixed[rows], k) for rows, k in zip(white.rows(), white.scatters, strict=True)]
    misfit = Misfit.of([float(r @ k @ r) for r, _, k in parts], [k - f @ (f.T @ k) for _, f, k in parts])
    others = np.linalg.lstsq(triangle, effects, rcond=None)[0]
    return Solution(np.where(told, shares, np.nan), np.where(told, variances, np.inf), known, others), misfit


def joint_shares(model: MixedModel, scores: Floats, scatter: float) -> Floats:
    """Estimate the strong candidates together and return their shares, (M,); 0 for every other candidate.

    A candidate that collides with a frequent one is strong by itself and often nothing beside it. Subtracting what each says by itself would
    subtract the frequent one several times over.

        minimize  |y - F x_others - X_strong x|**2 of the whitened model        strong : the largest scores above 3.5, d / 4 at most

    scores : (M,) shares in standard errors, each estimated by itself        scatter : tau**2
    """
    shares = np.zeros(model.candidates)
    strong = np.flatnonzero(scores > STRONG)
    strong = strong[np.argsort(-scores[strong])[: len(model.y) // _LEAST_ROWS]]
    white = model.whitened(scatter)
    columns = np.column_stack([white.others, white.columns(strong)])
    shares[strong] = np.linalg.lstsq(columns, white.y, rcond=None)[0][white.others.shape[1] :]
    return shares
