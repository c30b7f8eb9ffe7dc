"""What a mixed model says once it is solved under some beliefs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from hubbub_decoder.array_types import Flags, Floats


@dataclass(frozen=True, eq=False)
class Solution:
    """What the model says of single shares of a population that the reports are drawn from.

    shares    : (M,) each candidate's, its own belief taken away     variances : (M,) theirs; nan, inf where nothing is known
    posterior : (M,) with it                                         others    : x_others (o,)
    """

    shares: Floats
    variances: Floats
    posterior: Floats
    others: Floats


@dataclass(frozen=True, eq=False)
class Totals:
    """The candidates together, then x_others: shares (1 + o,) and their covariance."""

    shares: Floats
    covariance: Floats


@dataclass(frozen=True, slots=True)
class Misfit:
    """How residuals compare with what tau**2 and the beliefs explain.

        ratio = r'S^-1 K S^-1 r / tr(P K)        step = (r'S^-1 K S^-1 r - tr(P K)) / sum_c tr(P_cc K_c P_cc K_c)

    ratio : of the variance that estimates really have to the one they claim      step : to add to tau**2 (scoring; 0 at its restricted
    maximum likelihood)      error : tau**2's standard error, sqrt(2 / sum_c tr(P_cc K_c P_cc K_c))
    """

    ratio: float
    step: float
    error: float

    @classmethod
    def of(cls, squares: list[float], blocks: list[Floats]) -> Misfit:
        """Add up the cohorts' r'S^-1 K S^-1 r and P_cc K_c."""
        expected, curvature = (sum(map(f, blocks)) for f in (np.trace, lambda b: np.sum(b * b.T)))
        found = sum(squares)
        if not found > 0 < expected or not curvature > 0:
            return cls(1.0, 0.0, np.inf)
        return cls(float(found / expected), float((found - expected) / curvature), float(np.sqrt(2 / curvature)))


class Solved(ABC):
    """A model solved under some beliefs."""

    @abstractmethod
    def solution(self, *, roughly: bool = False) -> Solution:
        """Estimate every share; roughly: the own variance of some of very many may stand for all, since all hash at random."""

    @abstractmethod
    def scores(self, without: int | None = None) -> list[Floats]:
        """Return A'P(y - X mean) of each cohort: what each of its places adds to the score of a string about which nothing is believed.

        without : a candidate, to be left out of the model: P_{-j} r_{-j} = P r + P x_j posterior_j / (1 - s_j x_j'P x_j), s_j its belief's variance
        """

    @abstractmethod
    def misfit(self) -> Misfit:
        """Compare residuals with what is expected of them."""

    @abstractmethod
    def totals(self, exchangeable: Flags) -> Totals:
        """Sum up, the exchangeable candidates given a mean of their own: one more unknown, its column X 1.

        A belief about hundreds of small shares would otherwise decide their sum.
        """
