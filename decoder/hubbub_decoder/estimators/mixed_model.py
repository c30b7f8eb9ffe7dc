"""Shares as a linear mixed model: what is believed of each candidate is normal, unlisted strings scatter.

    y_c = X_c x + F_c x_others + s_c        x_j ~ N(mean_j, variance_j)        s_c ~ N(0, I + tau**2 K_c)

x are the candidates' shares; x_others those of the unlisted strings, whose column of F is their average pattern, and of "no value", if that
has a pattern; K_c is the unlisted strings' scatter around their average.
What is believed of a candidate matters to the others only: how it hashes is chance, so to them it is noise of a known size. Its own
estimate always takes its own belief away again (its *cavity*), so it is unbiased over the random hash.

Source: Henderson 1975 (mixed model equations); Harville 1977 (restricted maximum likelihood); the cavity as in Minka 2001.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.estimators.patterns import Observations


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What is believed of each candidate's share beside what its own reports say: normal, (M,) and (M,) > 0."""

    means: Floats
    variances: Floats


class MixedModel:
    """Observations of all cohorts, d numbers, about M candidates.

    It is solved for the shares (Henderson's equations) or for the observations, whichever takes less arithmetic. The covariance of the
    latter is S = X diag(variance) X' + (I + tau**2 K), with P = S^-1 - S^-1 F (F'S^-1 F)^-1 F'S^-1; the d x M matrix X is never held
    then: candidates with the same places in two cohorts are added up first, and looked up last.

    observations : A_c and y_c of m cohorts, A_c with a column for each of p places
    places       : (m, h, M) the places a candidate takes in each cohort: its filter, or its bits
    others       : (p, o) what strings that are no candidate put there on average       scatter : (p, p) how the unlisted scatter there
    """

    def __init__(
        self, observations: Observations, places: NDArray[np.integer], others: Floats, scatter: Floats
    ) -> None:
        self.y, self.features = np.concatenate(observations.responses), observations.features
        self.places = places.astype(np.intp, copy=False)
        self.others = np.concatenate(self.features) @ others
        self.scatters = [a @ scatter @ a.T for a in self.features]
        self._starts = np.cumsum([0, *map(len, observations.responses)]).tolist()
        self._of_places, self._size = (others, scatter), len(others)

    def whitened(self, unlisted: float) -> MixedModel:
        """Return the same with noise I in place of I + tau**2 K; unlisted : tau**2."""
        roots = [np.linalg.inv(np.linalg.cholesky(np.eye(len(k)) + unlisted * k)) for k in self.scatters]
        responses = tuple(root @ self.y[rows] for root, rows in zip(roots, self.rows(), strict=True))
        features = tuple(root @ a for root, a in zip(roots, self.features, strict=True))
        return MixedModel(Observations(responses, features), self.places, *self._of_places)

    @property
    def candidates(self) -> int:
        """M."""
        return int(self.places.shape[2])

    def rows(self) -> Iterator[slice]:
        """Yield where each cohort's observations stand."""
        for start, end in pairwise(self._starts):
            yield slice(start, end)

    def variance_ratio(self, unlisted: float, before: float) -> float:
        """Return how much larger one tau**2 makes the observations' variances than another, on average."""
        scatter = sum(map(np.trace, self.scatters)) / len(self.y)
        return float((1 + unlisted * scatter) / (1 + before * scatter))

    def sums(self, shares: Floats) -> Floats:
        """Return X x, (d,)."""
        parts = zip(self.features, self.places, strict=True)
        return np.concatenate(
            [a @ reduce(np.add, [np.bincount(one, shares, self._size) for one in taken]) for a, taken in parts]
        )

    def scores(self, vectors: Floats, every: int = 1) -> Floats:
        """Return X'v, a row a candidate, or every n-th of them; v : (d,) or (d, n)."""
        parts = zip(self.rows(), self.features, self.places[:, :, ::every], strict=True)
        return np.asarray(
            sum(looked[one] for rows, a, taken in parts for looked in [a.T @ vectors[rows]] for one in taken)
        )

    def columns(self, some: Indices) -> Floats:
        """Return the columns of X of some candidates, (d, n)."""
        parts = zip(self.features, self.places, strict=True)
        return np.concatenate([a[:, taken[:, some]].sum(axis=1) for a, taken in parts])

    def lengths(self) -> Floats:
        """Return x'x for the column x of each candidate, (M,)."""
        total = np.zeros(self.candidates)
        for a, taken in zip(self.features, self.places, strict=True):
            table = a.T @ a
            for one in taken:
                for other in taken:
                    total += table[one, other]
        return total

    def gram(self, weights: Floats) -> Floats:
        """Return X diag(weights) X', (d, d)."""
        total = np.empty((len(self.y), len(self.y)))
        for rows, a, columns, b, pairs in self._pairs():
            together = reduce(np.add, [np.bincount(pair, weights, self._size**2) for pair in pairs])
            block = a @ together.reshape(self._size, self._size) @ b.T
            total[rows, columns], total[columns, rows] = block, block.T
        return total

    def squares(self, matrix: Floats, every: int = 1) -> Floats:
        """Return x'Ax for the column x of each candidate, or of every n-th, (M / n,); matrix : A, symmetric."""
        total = np.zeros(-(-self.candidates // every))
        for rows, a, columns, b, pairs in self._pairs(every):
            table = (1 if rows == columns else 2) * (a.T @ matrix[rows, columns] @ b)
            for pair in pairs:
                total += table.take(pair)
        return total

    def _pairs(self, every: int = 1) -> Iterator[tuple[slice, Floats, slice, Floats, Iterator[Indices]]]:
        """Yield of each two cohorts what turns places into observations, and every two places of the candidates there, as one number."""
        cohorts = list(zip(self.rows(), self.features, self.places[:, :, ::every], strict=True))
        for number, (rows, a, taken) in enumerate(cohorts):
            firsts = taken * self._size
            for columns, b, others in cohorts[: number + 1]:
                yield rows, a, columns, b, (first + other for first in firsts for other in others)
