"""Moments of the scores of two parts within each cohort, from one pass over the reports."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.association.components import Sample
from hubbub_decoder.association.margins import MarginFit, contrasts, fit_margin


@dataclass(frozen=True, eq=False)
class CohortMoments:
    """Moments of the scores in contrasts, E'l with E of `margins.py`.

    sizes       : (m,) n_c reports of each cohort      points : of each part, (C,) z at which the scores are taken
    means       : of each part, (m, C - 1)             covariances : of each part, (m, C - 1, C - 1), divided by n_c - 1
    crosses     : (m, C1 - 1, C2 - 1) E1'S_c E2, sums of the products of both parts' scores, centred in the cohort
    """

    sizes: Indices
    points: tuple[Floats, Floats]
    means: tuple[Floats, Floats]
    covariances: tuple[Floats, Floats]
    crosses: Floats

    @classmethod
    def of_sample(cls, sample: Sample, points: tuple[Floats, Floats]) -> CohortMoments:
        """Moments of a sample. Time O(N (C1 + C2)**2)."""
        bases = [contrasts(len(point)) for point in points]
        m, dims = len(sample.sizes), [basis.shape[1] for basis in bases]
        sums = [np.zeros((m, d)) for d in dims]
        squares = [np.zeros((m, d, d)) for d in dims]
        crosses = np.zeros((m, *dims))
        for (cohort, first), (_, second) in zip(sample.blocks(0), sample.blocks(1), strict=True):
            scores = [
                basis.T @ (ratios / (point @ ratios))
                for basis, ratios, point in zip(bases, (first, second), points, strict=True)
            ]
            for part in (0, 1):
                sums[part][cohort] += scores[part].sum(axis=1)
                squares[part][cohort] += scores[part] @ scores[part].T
            crosses[cohort] += scores[0] @ scores[1].T
        n = np.maximum(sample.sizes, 1)[:, None]
        means = [each / n for each in sums]
        unbiased = np.maximum(sample.sizes - 1, 1)[:, None, None]
        covariances = [
            (square - n[..., None] * mean[:, :, None] * mean[:, None, :]) / unbiased
            for square, mean in zip(squares, means, strict=True)
        ]
        centred = crosses - n[..., None] * means[0][:, :, None] * means[1][:, None, :]
        return cls(sample.sizes, points, (means[0], means[1]), (covariances[0], covariances[1]), centred)

    @property
    def num_reports(self) -> int:
        """N."""
        return int(self.sizes.sum())

    def margin(self, part: int) -> MarginFit:
        """Shares of a part, from its scores alone."""
        n, means = self.sizes[:, None, None], self.means[part]
        raw = (self.covariances[part] * np.maximum(n - 1, 0) + n * means[:, :, None] * means[:, None, :]).sum(axis=0)
        total = (self.sizes[:, None] * means).sum(axis=0)
        return fit_margin(self.points[part], total / self.num_reports, raw / self.num_reports, self.num_reports)
