"""Planner of sets, and the law of the shares of their items."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hubbub.mechanisms.mechanism import Mechanism
from hubbub.mechanisms.privset import MAX_VALUES
from hubbub.metrics.kinds import SetKind
from hubbub.metrics.kinds.sets import MAX_ITEMS, HashedSetKind, RowKind
from hubbub.metrics.params import Params
from hubbub.metrics.rules import MAX_CLIENT_COHORTS
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.hashed_items import MAX_CANDIDATES
from hubbub_decoder.inference.error_law import ErrorLaw, Sampling
from hubbub_decoder.inference.intervals import DETECTION_POWER
from hubbub_decoder.model.distributions import binom
from hubbub_decoder.planning.kinds.one_hot import OneHotPlanner, law_fields
from hubbub_decoder.planning.law.accuracy import BitAccuracy, Population
from hubbub_decoder.planning.law.collisions import Shares, uneven_load_variance
from hubbub_decoder.planning.privset import PrivSetPlanner, is_hashed, max_items_of, rows_bits, sizes_of
from hubbub_decoder.planning.wishes import Design, Wishes

MAX_HASHED_OWN = 64
"""Largest number of own items where items are hashed: with more, clients often have several in a bucket."""
_NUMBERS_PER_CANDIDATE = 22  # so that the joint fit of hashed items adds a twentieth to a variance
_LARGE_MEAN = 1000.0
_MENTIONED = 1e-3


class SetPlanner(OneHotPlanner[SetKind], of=SetKind):
    """Planner of sets: each client answers for one item, or reports its whole set if `own` says how many items it has.

    The shares of all items add up to the mean number of items that a report may stand for; without `own`, to a half. Both are compared by the
    variance of a share: each item has the law of a boolean metric, of the clients that are asked about it or of all.
    """

    candidates = range(2, MAX_ITEMS + 1)
    rows = (PrivSetPlanner(),)
    rule = (
        f"a set metric has 2 to {MAX_ITEMS} items, and with `own`, the number of items of a client, at most {MAX_CANDIDATES:,}. "
        "Pass the number of items or their names."
    )
    unary = "one question, the item that a client is asked about"
    total_share = 0.5

    def allowed_candidates(self, wishes: Wishes) -> range:
        return self.candidates if wishes.own is None else range(2, MAX_CANDIDATES + 1)

    def problems(self, wishes: Wishes) -> Iterator[str]:
        yield from super().problems(wishes)
        sizes, m = sizes_of(wishes), max_items_of(wishes)
        if sizes is not None and sizes.largest > wishes.num_candidates:
            yield f"`own = {sizes}` of `num_candidates = {wishes.num_candidates}`: no client has more items than there are. Pass fewer."
        if is_hashed(wishes) and m > MAX_HASHED_OWN:
            yield (
                f"`own = {sizes}` with `num_candidates = {wishes.num_candidates}`: items and max_items = {m} are above {MAX_VALUES:,} together, so items "
                f"are hashed, and clients with more than {MAX_HASHED_OWN} would have several in a bucket. Pass fewer candidates, or "
                f"`own = {MAX_HASHED_OWN}`, of which clients with more report a random choice."
            )
        if wishes.num_candidates not in self.candidates and wishes.longitudinal is not None and wishes.hold is None:
            yield (
                f"`longitudinal = {wishes.longitudinal:g}` without `hold`: rows of whole sets have no permanent noise, so each report costs epsilon again. "
                "Pass `hold`, or leave out `longitudinal`."
            )

    def population(self, wishes: Wishes) -> Population:
        population, sizes = super().population(wishes), sizes_of(wishes)
        if sizes is None:
            return population
        return population._replace(shares=Shares.zipf(wishes.num_candidates, sizes.reported(sizes.max_items)))

    def shares(self, number: int, kind: SetKind) -> Shares:
        return (
            Shares.zipf(number, min(kind.mechanism.max_items, number))
            if isinstance(kind, RowKind)
            else super().shares(number, kind)
        )

    def true_ones(self, wishes: Wishes, hashes: int) -> tuple[int, tuple[int, ...]]:  # one bit, whatever is wished
        return 1, (0, hashes)

    def _size(self, wishes: Wishes) -> tuple[int, int, int]:
        return 1, 1, wishes.num_candidates

    def _row_size(self, wishes: Wishes, rows: Mechanism) -> tuple[int, int, int]:
        return rows_bits(wishes), 1, _cohorts(wishes) if is_hashed(wishes) else 1

    def _mechanisms(self, wishes: Wishes) -> dict[str, Callable[[Wishes], Design | None]]:
        mechanisms = super()._mechanisms(wishes)
        if wishes.num_candidates not in self.candidates:
            del mechanisms[self.unary]
        return mechanisms

    def _noise(self, wishes: Wishes, design: Design) -> float:
        kind = self.kind(design, categories=None, edges=None)
        return float(self.accuracy(kind, self.population(wishes), retained=False).variance(design.share))

    def _block(self, design: Design) -> Params:
        if design.rows is None:
            return super()._block(design)
        return self.kind(design, categories=None, edges=None).params

    def kind(self, design: Design, *, categories: Sequence[str] | None, edges: Sequence[float] | None) -> SetKind:
        blanks = design.mechanism.num_blanks
        if blanks and design.size[2] > 1:
            return SetKind.of_hashes(design.mechanism, design.size[2])
        number = design.size[0] - blanks if blanks else design.size[2]
        names = categories or [f"item {i + 1}" for i in range(number)]
        return SetKind.of_items(names, design.mechanism)

    def accuracy(self, kind: SetKind, population: Population, *, retained: bool) -> BitAccuracy:
        if isinstance(kind, HashedSetKind):
            cells = kind.num_cohorts, kind.mechanism.num_items
            return HashedItemAccuracy(cells=cells, **law_fields(kind, population))
        if isinstance(kind, RowKind):
            return BitAccuracy(**law_fields(kind, population))
        return ItemAccuracy(items=len(kind.items), **law_fields(kind, population))


def _cohorts(wishes: Wishes) -> int:
    """Return the smallest power of two of cohorts C >= 22 M / (k - 1)."""
    needed = _NUMBERS_PER_CANDIDATE * wishes.num_candidates / (MAX_VALUES - 1)
    return min(1 << math.ceil(math.log2(needed)), MAX_CLIENT_COHORTS)


@dataclass(frozen=True, eq=False, kw_only=True)
class HashedItemAccuracy(BitAccuracy):
    """Law of the shares of M hashed items, jointly fitted to B buckets of each of C cohorts; R = C (B - 1) independent numbers.

        Var = (1 / E[1 / v(L)] - x) / (N (1 - M / R))        v(L) = noise(x) / T + x + (noise(1) / T - noise(0) / T + 1) L

    L is the share of the clients with the other items of a bucket, each of which is there with probability 1 / B: equation (25.3). The variance is
    infinite for more candidates than the numbers tell apart.

    cells : (C, B)
    """

    cells: tuple[int, int]

    def variance(self, share: Floats | float) -> Floats:
        cohorts, buckets = self.cells
        x, per_client = np.atleast_1d(np.asarray(share, float)), self.repetition.per_client
        left = 1 - self.shares.count / (cohorts * (buckets - 1))
        if left <= 0:
            return np.full(np.shape(share), np.inf)
        absent, present = (float(self.chain.noise(ones, self.repetition)) / per_client for ones in (0.0, 1.0))
        slope = present - absent + 1
        of_cells = uneven_load_variance(self.shares, x, absent + slope * x, slope, 1 / buckets)
        return np.asarray((of_cells - x) / (self.clients * left)).reshape(np.shape(share))

    @property
    def _error_law(self) -> ErrorLaw:
        of_bit, of_share = float(super().variance(0.0)), float(self.variance(0.0))
        return self._law_of_count(self.clients * of_bit / of_share, Sampling())


@dataclass(frozen=True, eq=False, kw_only=True)
class ItemAccuracy(BitAccuracy):
    """Law of the shares of items, of which each client answers for one, so that n = Binomial(N, 1 / M) of the clients answer for an item.

        Var = E[1 / n] noise / T + x (1 - x) (E[1 / n] - 1 / N) N / (N - 1)        E[1 / n] given n >= 1, about M / N for N >> M

    An item without an answer has no estimate. So no share is detected with probability .9 where n = 0 has a probability above .1.
    """

    items: int

    def variance(self, share: Floats | float) -> Floats:
        x = np.asarray(share, float)
        return np.asarray(self.clients / self._asked * super().variance(x) + x * (1 - x) * self._sampling.variance)

    @property
    def _error_law(self) -> ErrorLaw:
        return self._law_of_count(self._asked, self._sampling)

    @property
    def _asked(self) -> float:
        """Clients that answer for an item, 1 / E[1 / n]."""
        return 1 / _mean_inverse(self.clients, self.items)

    @property
    def _sampling(self) -> Sampling:
        """Choice of the clients that answer for an item."""
        return Sampling.of_clients(self._asked, self.clients)

    def detection_limit(self) -> float:
        return super().detection_limit() if self._unanswered <= 1 - DETECTION_POWER else math.inf

    def power(self, share: float) -> float:
        return (1 - self._unanswered) * super().power(share)

    def notes(self) -> Iterator[str]:
        """Yield the probability that nobody answers for an item, from a thousandth on."""
        if self._unanswered >= _MENTIONED:
            yield (
                f"An item has {self._reports_of_a_share():.3g} reports on average, and none with probability {self._unanswered:.2g}. "
                "It then has no estimate. More clients or fewer items lower this."
            )

    @property
    def _unanswered(self) -> float:
        """P(n = 0)."""
        return float((1 - 1 / self.items) ** self.clients)

    def _reports_of_a_share(self) -> float:
        return self.clients / self.items


@lru_cache(maxsize=256)
def _mean_inverse(clients: float, items: int) -> float:
    """E[1 / n | n >= 1] of n = Binomial(N, 1 / M); above a mean of 1,000, by its expansion in the cumulants of n, to 1e-8.

    >>> round(_mean_inverse(2, 2), 12)  # n = 1, 2 with probabilities 1/2 and 1/4: (1/2 + 1/8) / (3/4)
    0.833333333333
    """
    mean, left = clients / items, 1 - 1 / items
    if mean > _LARGE_MEAN:
        return (1 + left / mean + left * (1 + left) / mean**2) / mean
    number = max(1, round(clients))
    n = np.arange(1, min(number, math.ceil(mean + 12 * math.sqrt(mean) + 30)) + 1)
    chances = binom.pmf(n, number, 1 / items)
    return float((chances / n).sum() / chances.sum())
