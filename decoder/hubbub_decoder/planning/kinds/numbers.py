"""Planners of numbers in buckets and of their mean, and the laws of both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hubbub.mechanisms.mechanism import Mechanism
from hubbub.metrics.buckets import Buckets, Estimand
from hubbub.metrics.kinds import MeanKind, OrdinalKind, ordinal_kind
from hubbub.metrics.kinds.numbers import MEAN_COHORTS
from hubbub.metrics.params import MAX_BITS
from hubbub_decoder.planning.kinds.one_hot import ROWS, OneHotPlanner, law_fields
from hubbub_decoder.planning.law.accuracy import DETECTION_LIMIT, BitAccuracy, Population, percent_text
from hubbub_decoder.planning.wishes import Design


class NumberPlanner(OneHotPlanner[OrdinalKind | MeanKind]):
    """Planner of numbers in buckets."""

    def kind(
        self, design: Design, *, categories: Sequence[str] | None, edges: Sequence[float] | None
    ) -> OrdinalKind | MeanKind:
        return ordinal_kind(self._buckets(tuple(edges or range(design.size[0] + 1))), design.mechanism)

    def _buckets(self, edges: tuple[float, ...]) -> Buckets:
        return Buckets(edges)


class OrdinalPlanner(NumberPlanner, of=OrdinalKind):
    """Planner of the distribution of numbers."""

    rows = ROWS
    rule = f"an ordinal metric has 2 to {MAX_BITS} buckets. Pass their number or their edges."

    def accuracy(self, kind: OrdinalKind | MeanKind, population: Population, *, retained: bool) -> OrdinalAccuracy:
        mechanism = kind.params.mechanism
        return OrdinalAccuracy(buckets=kind.buckets, mechanism=mechanism, **law_fields(kind, population))


class MeanPlanner(NumberPlanner, of=MeanKind):
    """Planner of the mean of numbers, whose one bit has the law of a boolean."""

    candidates = range(1, 2)
    rule = "a metric with estimate = mean has one bit and needs no candidates. Leave out num_candidates."
    total_share = 0.5
    cohorts = (MEAN_COHORTS,)

    def accuracy(self, kind: OrdinalKind | MeanKind, population: Population, *, retained: bool) -> MeanAccuracy:
        return MeanAccuracy(buckets=kind.buckets, **law_fields(kind, population))

    def _buckets(self, edges: tuple[float, ...]) -> Buckets:
        return Buckets(edges, default=edges[0], estimate=Estimand.MEAN)


@dataclass(frozen=True, eq=False, kw_only=True)
class OrdinalAccuracy(BitAccuracy):
    """Law of the shares of buckets, and of the mean and the distribution of the numbers in them."""

    buckets: Buckets
    mechanism: Mechanism

    def notes(self) -> Iterator[str]:
        """Yield the standard errors of the mean and of the distribution function, where every bucket has the same share.

        Var(mean) = V sum_i (c_i - c)**2        Var(F) = V k / 4 at the middle edge        V: Var(x_i) - Cov(x_i, x_j) of shares of 1/k
        """
        k, centers = len(self.buckets), np.array(self.buckets.centers)
        error = math.sqrt(float(self.variance(1 / k)) - self._covariance(1 / k))
        of_mean = error * float(np.sqrt(((centers - centers.mean()) ** 2).sum()))
        yield (
            f"With numbers spread evenly over the {k} buckets, the standard error of their mean is {of_mean:.3g} and that of the "
            f"distribution function up to {100 * error * math.sqrt(k) / 2:.3g} %. Fewer buckets lower both."
        )

    def _covariance(self, share: float) -> float:
        """Covariance of the noise of two shares of this size; 0 for independent bits."""
        instantaneous, permanent = (
            (1 - 2 * share) * neither + 2 * share * one for neither, one in self.mechanism.noise_covariances()
        )
        debiased = (instantaneous + self.repetition.per_response * permanent) / float(
            self.chain.q_star - self.chain.p_star
        ) ** 2
        return debiased / (self.clients * self.repetition.per_client)


@dataclass(frozen=True, eq=False, kw_only=True)
class MeanAccuracy(BitAccuracy):
    """Law of a mean: the share of the clients whose number reaches their threshold is the place of the mean in the range."""

    buckets: Buckets

    @property
    def width(self) -> float:
        """Difference of the two ends of the range."""
        low, high = self.buckets.edges
        return high - low

    def rows(self) -> Iterator[tuple[str, str]]:
        error, unit = self.std_error(0.0), " of the range"
        yield DETECTION_LIMIT, f"{percent_text(self.detection_limit())}{unit}"
        yield "standard error of the mean", f"{percent_text(error)}{unit}: {error * self.width:.3g}"

    def notes(self) -> Iterator[str]:
        """Yield the standard error of the mean of the reporters, where numbers are spread evenly over the range.

        Var(mean) = (e_1 - e_0)**2 (V + 1 / (12 N))        V: noise of a share of 1/2        1 / 12 = int t (1 - t) dt - 1 / 12
        """
        of_mean = self.width * math.sqrt(float(self.variance(0.5)) + 1 / (12 * self.clients))
        yield (
            f"With numbers spread evenly over the range, the standard error of their mean is {of_mean:.3g}. A smaller range lowers it. "
            "The detection limit above is that of a share of the range."
        )
