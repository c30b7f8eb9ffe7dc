"""Planners of categories and booleans, and what the planners of all kinds without a search for sizes have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, TypeVar

from hubbub.mechanisms.mechanism import Mechanism
from hubbub.metrics.kinds import BlockKind, BooleanKind, CategoricalKind
from hubbub.metrics.kinds.kind import row_bits
from hubbub.metrics.kinds.one_hot import name_of_rest
from hubbub.metrics.params import MAX_BITS, Params, one_hot_params
from hubbub_decoder.planning.law.accuracy import BitAccuracy, Population
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.probabilities import allowed_cohorts, chain_of, cohorts_central, noise_of
from hubbub_decoder.planning.subset_selection import SubsetPlanner
from hubbub_decoder.planning.wishes import Design, KindPlanner, RowPlanner, Wishes

ROWS: tuple[RowPlanner[Any], ...] = (SubsetPlanner(),)
"""Mechanisms that a kind whose values exclude each other offers besides unary encoding."""
_MOST_LOWERED = 64
_BISECTIONS = 10

K = TypeVar("K", bound=BlockKind)


class OneHotPlanner(KindPlanner[K]):
    """Planner of a kind with one bit for each of the candidates. Its size is given, so only the probabilities are searched.

    candidates, rule : possible numbers of candidates, and the message for any other
    rows : mechanisms with one row for all values that the reports may have in place of unary encoding
    unary : what a report is without them
    """

    candidates: ClassVar[range] = range(2, MAX_BITS + 1)
    rows: ClassVar[tuple[RowPlanner[Any], ...]] = ()
    rule: ClassVar[str]
    unary: ClassVar[str] = "unary encoding, one independent bit for each value"

    def problems(self, wishes: Wishes) -> Iterator[str]:
        if wishes.longest is not None:
            yield (
                f"`longest = {wishes.longest}` with `kind = {wishes.kind}`: only strings are found without a list. "
                "Pass `kind = string`, and leave out `num_candidates`."
            )
        if wishes.num_candidates not in self.allowed_candidates(wishes):
            given = "is missing" if wishes.num_candidates == 1 else f"is {wishes.num_candidates}"
            yield f"`num_candidates` {given}: {self.rule}"

    def allowed_candidates(self, wishes: Wishes) -> range:
        """Return the possible numbers of candidates."""
        return self.candidates

    def true_ones(self, wishes: Wishes, hashes: int) -> tuple[int, tuple[int, ...]]:
        return wishes.num_candidates, (0, hashes)

    def design(self, wishes: Wishes) -> Design:
        """Return the mechanism with the smallest variance; where a central epsilon is wished, each has the epsilon that this leaves."""
        mechanisms = self._mechanisms(wishes)
        found = {name: self._within_central(wishes, of) for name, of in mechanisms.items()}
        designs = {name: design for name, design in found.items() if design is not None}
        if not designs:
            block = self._unary(wishes)
            allowed_cohorts(wishes, self._block(block), (block.size[2],))  # raises
        noises = {name: self._noise(wishes, design) for name, design in designs.items()}
        best, *others = sorted(noises, key=noises.__getitem__)
        design = designs[best]
        if not others:
            return design
        other, equal = noises[others[0]] / noises[best], " at the same central epsilon" if wishes.central else ""
        chosen = f"{best[0].upper()}{best[1:]}, is chosen: {others[0]}, has {other:.2f} times its variance{equal}."
        return design._replace(other=other, reasons=(chosen, *design.reasons))

    def _mechanisms(self, wishes: Wishes) -> dict[str, Callable[[Wishes], Design | None]]:
        """Return the function that designs each mechanism, by what its reports are."""
        return {self.unary: self._unary} | {rows.name: partial(self._rows, rows) for rows in self.rows}

    def _noise(self, wishes: Wishes, design: Design) -> float:
        """Return the variance by which mechanisms are compared, in a unit that they have in common."""
        return noise_of(wishes, design.share, design.chain)

    def _size(self, wishes: Wishes) -> tuple[int, int, int]:
        (cohorts,) = self.cohorts
        return wishes.num_candidates, 1, cohorts

    def _unary(self, wishes: Wishes) -> Design:
        share = self.mean_share(wishes)
        return Design(chain_of(wishes, share), self._size(wishes), share, self.smallest_share(wishes))

    def _rows(self, planner: RowPlanner[Any], wishes: Wishes) -> Design | None:
        share = self.mean_share(wishes)
        rows = planner.best(wishes, share)
        if rows is None:
            return None
        law, notes = Chain.of_mechanism(rows), tuple(planner.notes(rows, wishes))
        return Design(law, self._row_size(wishes, rows), share, self.smallest_share(wishes), rows=rows, reasons=notes)

    def _row_size(self, wishes: Wishes, rows: Mechanism) -> tuple[int, int, int]:
        return self._size(wishes)

    def _within_central(self, wishes: Wishes, mechanism: Callable[[Wishes], Design | None]) -> Design | None:
        """Return the design with the largest epsilon that keeps the central epsilon; None: no epsilon above a 64th of the wished one does."""

        def hidden(epsilon: float) -> Design | None:
            design = mechanism(replace(wishes, epsilon=epsilon))
            most = wishes.central
            if design is None or most is None:
                return design
            return design if cohorts_central(wishes, self._block(design), design.size[2]) <= most else None

        found = hidden(wishes.epsilon)
        if found is not None or wishes.central is None:
            return found
        low, high = wishes.epsilon / _MOST_LOWERED, wishes.epsilon
        for _ in range(_BISECTIONS):
            middle = math.sqrt(low * high)
            design = hidden(middle)
            low, high = (low, middle) if design is None else (middle, high)
            found = found if design is None else design._replace(epsilon=middle)
        return found

    def _block(self, design: Design) -> Params:
        """Return the bits and the mechanism of the reports."""
        num_bits, mechanism = design.size[0], design.mechanism
        return one_hot_params(row_bits(num_bits, mechanism, has_no_value=True), mechanism)

    def accuracy(self, kind: K, population: Population, *, retained: bool) -> BitAccuracy:
        return BitAccuracy(**law_fields(kind, population))


class CategoricalPlanner(OneHotPlanner[CategoricalKind], of=CategoricalKind):
    """Planner of categories."""

    rows = ROWS
    rule = f"a categorical metric has 2 to {MAX_BITS} categories. Pass their number or their names, or `kind = string` for more."

    def kind(
        self, design: Design, *, categories: Sequence[str] | None, edges: Sequence[float] | None
    ) -> CategoricalKind:
        names = categories or [f"category {i + 1}" for i in range(design.size[0])]
        return CategoricalKind.one_hot(names, name_of_rest(names), design.mechanism)


class BooleanPlanner(OneHotPlanner[BooleanKind], of=BooleanKind):
    """Planner of booleans; half of the clients are taken to report true."""

    candidates = range(1, 2)
    rule = "a boolean metric has one bit and needs no candidates. Leave out num_candidates."
    total_share = 0.5

    def kind(self, design: Design, *, categories: Sequence[str] | None, edges: Sequence[float] | None) -> BooleanKind:
        return BooleanKind(one_hot_params(1, design.mechanism))


def law_fields(kind: BlockKind, population: Population) -> dict[str, Any]:
    """Return the chain and the population of a law of accuracy."""
    return {"chain": Chain.of_mechanism(kind.params.mechanism), **population._asdict()}
