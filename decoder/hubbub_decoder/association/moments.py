"""Moments of the scores of two or three parts within each cohort, from one pass over the reports."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.association.components import Sample
from hubbub_decoder.association.margins import MarginFit, contrasts, fit_margin

Subset = tuple[int, ...]
"""Indices of two or three parts, ascending."""


def subsets(parts: Subset) -> Iterator[Subset]:
    """All subsets of two parts or more, the smaller first."""
    for number in range(2, len(parts) + 1):
        yield from itertools.combinations(parts, number)


@dataclass(frozen=True, eq=False)
class CohortMoments:
    """Moments of the scores in contrasts, E'l with E of `margins.py`.

    sizes       : (m,) n_c reports of each cohort      points : of each part, (C,) z at which the scores are taken
    means       : of each part, (m, C - 1)             covariances : of each part, (m, C - 1, C - 1), divided by n_c - 1
    crosses     : of each subset of the parts, (m, C1 - 1, C2 - 1[, C3 - 1]) S_c, sums of the products of the parts' scores, each
                  centred in the cohort
    """

    sizes: Indices
    points: tuple[Floats, ...]
    means: tuple[Floats, ...]
    covariances: tuple[Floats, ...]
    crosses: dict[Subset, Floats]

    @classmethod
    def of_sample(cls, sample: Sample, points: Sequence[Floats]) -> CohortMoments:
        """Moments of a sample. Time O(N (C1 + C2)**2), of three parts O(N C1 C2 C3)."""
        bases = [contrasts(len(point)) for point in points]
        m, dims, parts = len(sample.sizes), [basis.shape[1] for basis in bases], tuple(range(len(points)))
        sums = [np.zeros((m, d)) for d in dims]
        squares = [np.zeros((m, d, d)) for d in dims]
        raw = {subset: np.zeros((m, *(dims[part] for part in subset))) for subset in subsets(parts)}
        for blocks in zip(*map(sample.blocks, parts), strict=True):
            cohort = blocks[0][0]
            scores = [
                basis.T @ (ratios / (point @ ratios))
                for basis, (_, ratios), point in zip(bases, blocks, points, strict=True)
            ]
            for part, score in enumerate(scores):
                sums[part][cohort] += score.sum(axis=1)
                squares[part][cohort] += score @ score.T
            for subset, total in raw.items():
                product = scores[subset[0]]
                for part in subset[1:-1]:
                    product = (product[:, None] * scores[part]).reshape(-1, product.shape[1])
                total[cohort] += (product @ scores[subset[-1]].T).reshape(total.shape[1:])
        n = np.maximum(sample.sizes, 1)[:, None]
        means = [of_part / n for of_part in sums]
        unbiased = np.maximum(sample.sizes - 1, 1)[:, None, None]
        covariances = [
            (square - n[..., None] * mean[:, :, None] * mean[:, None, :]) / unbiased
            for square, mean in zip(squares, means, strict=True)
        ]
        return cls(sample.sizes, tuple(points), tuple(means), tuple(covariances), _centred(raw, n, means))

    @property
    def num_reports(self) -> int:
        """N."""
        return int(self.sizes.sum())

    def weights(self, order: int) -> Floats:
        """w_c with E S_c = w_c times the cumulant of `order` scores, (m,): n_c - 1, for three (n_c - 1)(n_c - 2) / n_c."""
        n = np.maximum(self.sizes, 1)
        return np.asarray(np.maximum(n - 1, 0) * (np.maximum(n - 2, 0) / n if order == 3 else 1.0))

    def margin(self, part: int) -> MarginFit:
        """Shares of a part, from its scores alone."""
        n, means = self.sizes[:, None, None], self.means[part]
        raw = (self.covariances[part] * np.maximum(n - 1, 0) + n * means[:, :, None] * means[:, None, :]).sum(axis=0)
        total = (self.sizes[:, None] * means).sum(axis=0)
        return fit_margin(self.points[part], total / self.num_reports, raw / self.num_reports, self.num_reports)


def _centred(raw: dict[Subset, Floats], sizes: Floats, means: list[Floats]) -> dict[Subset, Floats]:
    """Sums of products of centred scores, from sums of products of scores."""
    crosses: dict[Subset, Floats] = {}
    for subset, total in raw.items():
        letters = "abc"[: len(subset)]
        product = np.einsum(",".join(f"m{letter}" for letter in letters) + f"->m{letters}", *(means[k] for k in subset))
        crosses[subset] = total - sizes.reshape(-1, *(1 for _ in subset)) * product
        if len(subset) == 3:
            for letter, part in zip(letters, subset, strict=True):
                rest = letters.replace(letter, "")
                pair = crosses[tuple(k for k in subset if k != part)]
                crosses[subset] -= np.einsum(f"m{letter},m{rest}->m{letters}", means[part], pair)
    return crosses
