"""Planners of the kinds whose values have a bit of their own: categories, booleans, buckets, and the one bit of a mean or of an item."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar

from hubbub.metrics.buckets import Buckets, Estimand
from hubbub.metrics.kinds import BlockKind, BooleanKind, CategoricalKind, MeanKind, OrdinalKind, SetKind, ordinal_kind
from hubbub.metrics.kinds.kind import row_bits
from hubbub.metrics.kinds.sets import MAX_ITEMS
from hubbub.metrics.params import MAX_BITS, MEAN_COHORTS, Params, one_hot_params
from hubbub_decoder.planning.law.accuracy import (
    BitAccuracy,
    ItemAccuracy,
    MeanAccuracy,
    OrdinalAccuracy,
    Population,
)
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.probabilities import allowed_cohorts, chain_of, cohorts_central, noise_of, rows_of
from hubbub_decoder.planning.wishes import Design, KindPlanner, Wishes

K = TypeVar("K", bound=BlockKind)


class OneHotPlanner(KindPlanner[K]):
    """Planner of a kind with one bit for each of the candidates. Its size is given, so only the probabilities are searched.

    candidates, rule : possible numbers of candidates, and the message for any other
    has_rows : whether the reports may be rows of subset selection
    """

    candidates: ClassVar[range] = range(2, MAX_BITS + 1)
    has_rows: ClassVar[bool] = False
    rule: ClassVar[str]

    def problems(self, wishes: Wishes) -> Iterator[str]:
        if wishes.longest is not None:
            yield (
                f"`longest = {wishes.longest}` with `kind = {wishes.kind}`: only strings are found without a list. "
                "Pass `kind = string`, and leave out `num_candidates`."
            )
        if wishes.num_candidates not in self.candidates:
            yield f"`num_candidates = {wishes.num_candidates}`: {self.rule}"

    def true_ones(self, wishes: Wishes, hashes: int) -> tuple[int, tuple[int, ...]]:
        return wishes.num_candidates, (0, hashes)

    def design(self, wishes: Wishes) -> Design:
        share = self.mean_share(wishes)
        (cohorts,) = self.cohorts
        unary = Design(chain_of(wishes, share), (wishes.num_candidates, 1, cohorts), share, self.smallest_share(wishes))
        designs = [unary]
        if self.has_rows and (rows := rows_of(wishes, share)) is not None:
            designs.append(unary._replace(chain=Chain.of_mechanism(rows), rows=rows))
        most = wishes.central
        hidden = [each for each in designs if most is None or cohorts_central(wishes, _block(each), cohorts) <= most]
        if not hidden:
            allowed_cohorts(wishes, _block(unary))  # raises
        return min(hidden, key=lambda each: noise_of(wishes, share, each.chain))

    def accuracy(self, kind: K, population: Population, **_of_strings: Any) -> BitAccuracy:
        return BitAccuracy(**_law_fields(kind, population))


class CategoricalPlanner(OneHotPlanner[CategoricalKind], of=CategoricalKind):
    """Planner of categories."""

    has_rows = True
    rule = f"a categorical metric has 2 to {MAX_BITS} categories. Pass another number, or `kind = string` for more."

    def kind(self, design: Design, *, categories: Sequence[str] | None, **_of_others: Any) -> CategoricalKind:
        names = categories or [f"category {i + 1}" for i in range(design.size[0])]
        return CategoricalKind.one_hot(names, None, design.mechanism)


class BooleanPlanner(OneHotPlanner[BooleanKind], of=BooleanKind):
    """Planner of booleans; half of the clients are taken to report true."""

    candidates = range(1, 2)
    rule = "a boolean metric has one bit and needs no candidates. Leave out num_candidates."
    total_share = 0.5

    def kind(self, design: Design, **_of_others: Any) -> BooleanKind:
        return BooleanKind(one_hot_params(1, design.mechanism))


class SetPlanner(OneHotPlanner[SetKind], of=SetKind):
    """Planner of sets: each item has the law of a boolean metric of its own clients, and half of them are taken to use it at most."""

    candidates = range(2, MAX_ITEMS + 1)
    rule = f"a set metric has 2 to {MAX_ITEMS} items. Pass another number."
    total_share = 0.5

    def true_ones(self, wishes: Wishes, hashes: int) -> tuple[int, tuple[int, ...]]:  # noqa: ARG002  (one bit, whatever is wished)
        return 1, (0, hashes)

    def design(self, wishes: Wishes) -> Design:
        share, items = self.mean_share(wishes), wishes.num_candidates
        design = Design(chain_of(wishes, share), (1, 1, items), share, self.smallest_share(wishes))
        allowed_cohorts(wishes, _block(design), (items,))  # raises if the clients of an item do not hide each other
        return design

    def kind(self, design: Design, *, categories: Sequence[str] | None, **_of_others: Any) -> SetKind:
        names = categories or [f"item {i + 1}" for i in range(design.size[2])]
        return SetKind.of_items(names, design.mechanism)

    def accuracy(self, kind: SetKind, population: Population, **_of_strings: Any) -> ItemAccuracy:
        return ItemAccuracy(items=len(kind.items), **_law_fields(kind, population))


class NumberPlanner(OneHotPlanner[OrdinalKind | MeanKind]):
    """Planner of numbers in buckets."""

    law: ClassVar[type[OrdinalAccuracy | MeanAccuracy]]

    def kind(self, design: Design, *, edges: Sequence[float] | None, **_of_others: Any) -> OrdinalKind | MeanKind:
        return ordinal_kind(self._buckets(tuple(edges or range(design.size[0] + 1))), design.mechanism)

    def _buckets(self, edges: tuple[float, ...]) -> Buckets:
        return Buckets(edges)

    def accuracy(
        self, kind: OrdinalKind | MeanKind, population: Population, **_of_strings: Any
    ) -> OrdinalAccuracy | MeanAccuracy:
        return self.law(buckets=kind.buckets, **_law_fields(kind, population))


class OrdinalPlanner(NumberPlanner, of=OrdinalKind):
    """Planner of the distribution of numbers."""

    rule = f"an ordinal metric has 2 to {MAX_BITS} buckets. Pass another number."
    law = OrdinalAccuracy


class MeanPlanner(NumberPlanner, of=MeanKind):
    """Planner of the mean of numbers, whose one bit has the law of a boolean."""

    candidates = range(1, 2)
    rule = "a metric with estimate = mean has one bit and needs no candidates. Leave out num_candidates."
    law = MeanAccuracy
    total_share = 0.5
    cohorts = (MEAN_COHORTS,)

    def _buckets(self, edges: tuple[float, ...]) -> Buckets:
        return Buckets(edges, default=edges[0], estimate=Estimand.MEAN)


def _block(design: Design) -> Params:
    """Return the bits and the mechanism of the reports."""
    num_bits, mechanism = design.size[0], design.mechanism
    return one_hot_params(row_bits(num_bits, mechanism, has_no_value=True), mechanism)


def _law_fields(kind: BlockKind, population: Population) -> dict[str, Any]:
    return {"chain": Chain.of_mechanism(kind.params.mechanism), **population._asdict()}
