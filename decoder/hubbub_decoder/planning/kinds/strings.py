"""Planner of strings, and the search for their sizes: bits, hashes and cohorts, or bits and groups with `discover`.

More bits and cohorts separate strings better. But bits identify a client, and cohorts leave fewer reports among which one is hidden. So of
all sizes within 1 % of the smallest variance the plan takes the first in this order: 64 cohorts, more, fewer; in each, the fewest bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hubbub.errors import DefinitionError
from hubbub.metrics.discovery import MAX_STEP, Discovery
from hubbub.metrics.kinds import KindWord, StringKind
from hubbub.metrics.params import Params
from hubbub_decoder.errors import PlanError
from hubbub_decoder.planning.law.accuracy import MAX_REPORTS, Data, Population, StringAccuracy
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.probabilities import TOLERANCE, allowed_cohorts, chain_of, noise_of
from hubbub_decoder.planning.wishes import Design, KindPlanner, Wishes, planner_of

BITS = (8, 16, 32, 64, 128, 256, 512, 1024)
MAX_CANDIDATES = 10_000_000
_HASHES = (1, 2, 3)
_HELD_OUT = (0.05, 0.1, 0.15, 0.2)
_PATTERN_BITS = 16
_SHORT_LIST = 200  # an app rarely knows more values beforehand
_MUCH_MORE = 1.25


class StringPlanner(KindPlanner[StringKind], of=StringKind):
    """Planner of strings, which are looked up in a list of candidates or found without one."""

    cohorts = (64, 128, 256, 32, 16, 8)

    def problems(self, wishes: Wishes) -> Iterator[str]:
        if wishes.num_candidates > MAX_CANDIDATES:
            yield f"`num_candidates = {wishes.num_candidates:,}`: at most {MAX_CANDIDATES:,} can be planned. Pass fewer candidates."
        if wishes.longest is not None and wishes.num_candidates != 1:
            yield (
                f"`longest = {wishes.longest}` with `num_candidates = {wishes.num_candidates}`: strings are found without a list, "
                "so leave out `num_candidates`."
            )
        if wishes.central is not None and wishes.retained:
            yield (
                "`central` and `retained` exclude each other: a retained report may be the only one of its cohort in its commit, and then "
                "nothing hides it. Leave out one of them."
            )

    def true_ones(self, wishes: Wishes, hashes: int) -> tuple[int, tuple[int, ...]]:
        return wishes.bits, (0, hashes)

    def design(self, wishes: Wishes) -> Design:
        sizes = [bits for bits in BITS if bits <= wishes.bits]
        return self._design_of_list(wishes, sizes) if wishes.longest is None else self._design_of_groups(wishes, sizes)

    def _design_of_list(self, wishes: Wishes, sizes: Sequence[int]) -> Design:
        """Design for strings that are looked up in a list: the best number of hashes, then the first size within 1 % of the best.

        The law of bits orders sizes as that of reports does, and is fast, so sizes are compared by it also if reports are retained.
        """
        share, smallest, population = self.mean_share(wishes), self.smallest_share(wishes), self.population(wishes)
        chains = {h: chain_of(wishes, share, h) for h in _HASHES}
        h, chain = min(chains.items(), key=lambda item: noise_of(wishes, share, item[1], item[0]))
        cohorts = allowed_cohorts(wishes, _block(wishes, chain, h))

        def variance(bits: int, cohorts: int) -> float:
            return _law((bits, h, cohorts), chain, population).mean_variance(smallest)

        bound = TOLERANCE * min(variance(sizes[-1], m) for m in cohorts)
        k, m = next((k, m) for m in cohorts for k in sizes if variance(k, m) <= bound)
        return Design(chain, (k, h, m), share, smallest)

    def _design_of_groups(self, wishes: Wishes, sizes: Sequence[int]) -> Design:
        """Design for strings that are found without a list, and the smallest share that is found with probability .9.

        Lengths are compared with a tenth of the cohorts held out, then the held-out shares. Of the numbers of bits within 1 % of the best,
        the plan takes the fewest. Then the probabilities are chosen for the share that is found.
        """
        chain, population = chain_of(wishes, self.mean_share(wishes)), self.population(wishes)
        cohorts = max(allowed_cohorts(wishes, _block(wishes, chain, 1)))

        def limit(groups: Discovery, bits: int = sizes[-1]) -> float:
            law = replace(_law((bits, 1, cohorts), chain, population), data="bits")
            return law.with_groups(groups).detection_limit()

        possible = list(_possible_groups(wishes, cohorts))
        if not possible:
            raise PlanError(
                f"`longest = {wishes.longest}` with {cohorts} cohorts: each prefix group and the held-out group needs 8 cohorts, and no step has "
                "so few groups and prefixes. Pass a smaller `longest`, a smaller `alphabet`, or no `central`."
            )
        groups = min(possible, key=limit)
        held_out = [discovery for share in _HELD_OUT if _fits(discovery := replace(groups, held_out=share), cohorts)]
        groups = min(held_out or [groups], key=limit)
        best = limit(groups)
        if best > 1:
            raise PlanError(
                "No string is found with probability 0.9, even of a share of 30 %: the reports of each group are too few. "
                "Pass more `num_reports`, a larger `epsilon`, or a smaller `longest`."
            )
        bits, found = next((bits, share) for bits in sizes if (share := limit(groups, bits)) <= TOLERANCE * best)
        return Design(chain_of(wishes, found), (bits, 1, cohorts), found, wishes.share or found, groups)

    def advice(self, wishes: Wishes, smallest: float, reports_needed: float) -> Iterator[str]:
        """Yield what a categorical metric of the same values would need, where it needs much less."""
        categories = planner_of(KindWord.CATEGORICAL, has_shares=True)
        if wishes.longest is not None or not 2 <= wishes.num_candidates <= _SHORT_LIST:
            return
        listed = replace(wishes, kind=KindWord.CATEGORICAL, central=None, retained=False)
        design = categories.design(listed)
        law = categories.accuracy(
            categories.kind(design, categories=None, edges=None), self.population(wishes), retained=False
        )
        needed = law.clients_needed(smallest)
        more = f"{reports_needed:,.0f}" if reports_needed < math.inf else f"more than {MAX_REPORTS:.0e}"
        if reports_needed > _MUCH_MORE * needed:
            yield (
                f"If all {wishes.num_candidates} values are known before they are collected, a categorical metric needs {needed:,.0f} reports "
                f"to detect {100 * smallest:.3g} %, not {more}: its values share no bits."
            )

    def kind(self, design: Design, *, categories: Sequence[str] | None, edges: Sequence[float] | None) -> StringKind:
        k, h, m = design.size
        params = Params(num_bits=k, num_hashes=h, num_cohorts=m, mechanism=design.mechanism)
        return StringKind(params, design.discover)

    def accuracy(self, kind: StringKind, population: Population, *, retained: bool) -> StringAccuracy:
        params, discover = kind.params, kind.discover
        size = (params.num_bits, params.num_hashes, params.num_cohorts)
        law = _law(size, Chain.of_mechanism(params.mechanism), population, retained=retained)
        return law if discover is None else law.with_groups(discover)


def _block(wishes: Wishes, chain: Chain, hashes: int) -> Params:
    """Return the bits and the mechanism of the reports; their number changes no epsilon if values differ in 2 h bits."""
    return Params(num_bits=wishes.bits, num_hashes=hashes, num_cohorts=1, mechanism=chain.within_epsilons())


def _law(size: tuple[int, int, int], chain: Chain, population: Population, *, retained: bool = False) -> StringAccuracy:
    """Law of a size; an aggregator stores pattern counts of at most 16 bits."""
    data: Data = "patterns" if size[0] <= _PATTERN_BITS else "reports" if retained else "bits"
    return StringAccuracy(size=size, chain=chain, data=data, **population._asdict())


def _possible_groups(wishes: Wishes, cohorts: int) -> Iterator[Discovery]:
    """Yield all steps and first lengths that the definition allows."""
    longest = wishes.longest or 0
    for step in range(1, min(MAX_STEP, longest + 1) + 1):
        for first in range(step, min(MAX_STEP, longest + 1) + 1):
            try:
                groups = Discovery(longest=longest, step=step, first=first, alphabet=wishes.alphabet)
            except DefinitionError as error:
                if "prefixes to compare" not in str(error):
                    raise PlanError(f"{error}: pass another `longest` or `alphabet`.") from None
                break
            if _fits(groups, cohorts):
                yield groups


def _fits(groups: Discovery, cohorts: int) -> bool:
    try:
        groups.check_cohorts(cohorts)
    except DefinitionError:
        return False
    return True
