"""Values that change: variance and attack on a Bloom filter and on hashing to cells (LOLOHA), at one lifetime epsilon.

    python -m benchmarks.changing_values [--lifetime 8] [--values 10] [--epsilon 2] [--reports 30]

A client holds one permanent response for each thing that it reports: for each value, as many as it has (large filter);
for each of k Bloom filters of one bit, and one for "no value" (small filter); for each of g cells, "no value" among them.
The lifetime is the number of permanent responses times the epsilon of each.

N Var is that of a share near 0, with T reports of each client, all other candidates known and their hash bits uniform. It is exact:

    score(s) = (P(s | own bit) / P(s) - 1) / information        P(s) : mean over the bits or cells
    N Var    = Var( E[score | permanent response] ) + E[ Var(score | permanent response) ] / T

The attack compares two histories of V distinct values each, T reports of each value, that change at the same times:

    one other : the second history has another value in place of the first        all other : in place of all

`above` is the share of clients whose reports change the odds of the two histories by more than e**lifetime (exact likelihoods). The
lifetime is a bound if it is 0. Values with equal bits or cells have one permanent response, which an observer sees: two histories
with another pattern of equal bits have a ratio without bound as T grows, and `pattern_differs` is the chance of that.

Sources: Arcolezi et al. 2023 (LOLOHA, arXiv 2210.00262); docs/decisions/0083.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import click
import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import logsumexp

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

CLIENTS = 2_000
FILTER_BITS = 128
ENUMERATED = ((2, 2), (2, 4), (2, 8), (3, 2), (3, 4), (4, 4))
"""Cells and periods of the enumerated histories."""
HASHES = {
    "k = 128, h = 1": 128,
    "k = 1,024, h = 1": 1_024,
    "k = 128, h = 2": math.comb(128, 2),
    **{f"g = {cells}": cells for cells in (2, 3, 4)},
}
"""Number of equally likely filters or cells of a value."""
TINY = 1e-300
ROUNDING_SLACK = 1e-9
CELLS = range(2, 10)
BITS = range(2, 8)
PERMANENT_ONES = np.linspace(0.3, 0.98, 18)
INSTANTANEOUS_ONES = np.append(np.linspace(0.3, 0.98, 18), 1.0)


def response_variance(permanent: Floats, instantaneous: Floats, reports: int) -> float:
    """Return N Var of a share near 0.

    permanent     : (inputs, responses), P(permanent response | input)      instantaneous : (responses, reports), P(report | permanent response)
    """
    given_input = permanent @ instantaneous
    mean = given_input.mean(axis=0)
    ratio = np.divide(given_input[0], mean, out=np.ones_like(mean), where=mean > 0) - 1
    score = ratio / (given_input[0] @ ratio)
    of_permanent, weight = instantaneous @ score, permanent.mean(axis=0)
    between = weight @ of_permanent**2 - (weight @ of_permanent) ** 2
    within = weight @ (instantaneous @ score**2 - of_permanent**2)
    return float(between + within / reports)


def generalized_response(cells: int, keep: float) -> Floats:
    """Return the matrix of generalized randomized response: `keep` on the diagonal."""
    matrix = np.full((cells, cells), (1 - keep) / (cells - 1))
    np.fill_diagonal(matrix, keep)
    return matrix


def cell_response(cells: int, epsilon: float, permanent_epsilon: float) -> tuple[Floats, Floats]:
    """Return the permanent and instantaneous matrices of LOLOHA with epsilon of one report and of one permanent response."""
    permanent = generalized_response(cells, math.exp(permanent_epsilon) / (math.exp(permanent_epsilon) + cells - 1))
    if epsilon >= permanent_epsilon:
        return permanent, np.eye(cells)

    def excess(keep: float) -> float:
        both = permanent @ generalized_response(cells, keep)
        return math.log(both[0, 0] / both[0, 1]) - epsilon

    return permanent, generalized_response(cells, brentq(excess, 1 / cells + 1e-12, 1.0))


def bit_response(inputs: Floats, one: float, zero: float) -> Floats:
    """Return P(bits | input) for all bit vectors: a bit is one with probability `one` where the input is one, else `zero`."""
    outputs = bit_vectors(inputs.shape[1])
    ones = np.where(inputs == 1, one, zero)[:, None, :]
    chances: Floats = np.where(outputs == 1, ones, 1 - ones).prod(axis=2)
    return chances


def bit_vectors(bits: int) -> Floats:
    """Return all bit vectors, (2**bits, bits)."""
    return np.array(list(itertools.product([0.0, 1.0], repeat=bits)))


def bit_loss(one: float, zero: float) -> float:
    """Return epsilon of a bit vector in which two inputs differ in two bits."""
    return math.log(one / zero * (1 - zero) / (1 - one)) if zero > 0 and one < 1 else math.inf


def small_filters(bits: int, epsilon: float, permanent_epsilon: float) -> Iterator[tuple[Floats, Floats]]:
    """Yield matrices of filters of one bit: a grid over P(permanent 1 | 1) and q; P(permanent 1 | 0) and p follow from the epsilons."""
    for a in PERMANENT_ONES:
        b = 1 / (1 + (1 - a) / a * math.exp(permanent_epsilon))
        permanent = bit_response(np.eye(bits), a, b)
        if epsilon >= permanent_epsilon:
            yield permanent, np.eye(1 << bits)
            continue
        for q in INSTANTANEOUS_ONES:

            def excess(p: float, a: float = a, b: float = b, q: float = q) -> float:
                return bit_loss((1 - a) * p + a * q, (1 - b) * p + b * q) - epsilon

            highest = q - 1e-9
            if excess(0.0) >= 0 >= excess(highest):
                yield permanent, bit_response(bit_vectors(bits), q, brentq(excess, 0.0, highest))


def shared_response_loss(permanent: Floats, instantaneous: Floats, reports: int) -> float:
    """Return a lower bound of the loss between values v, w in two cells and values v, x in one cell, with T reports of each value.

    It is ln of the ratio of the reports "cell 0, T times; then cell 1, T times".
    """
    own, other = instantaneous[:, 0] ** reports, instantaneous[:, 1] ** reports
    apart = math.log(permanent[0] @ own) + math.log(permanent[1] @ other)
    together = float(permanent[0] @ (own * other))
    return apart - math.log(together) if together > 0 else math.inf


def largest_enumerated_losses(permanent: Floats, instantaneous: Floats, periods: int) -> tuple[float, float]:
    """Return the largest loss between two histories of cells: any two, and two that change at the same times. By enumeration."""
    cells = len(permanent)
    histories = list(itertools.product(range(cells), repeat=periods))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log([_output_chances(history, permanent, instantaneous) for history in histories])
        losses = np.nanmax(logs[:, None] - logs[None], axis=2)
    changes = [tuple(map(history.index, history)) for history in histories]
    same = np.array([[first == second for second in changes] for first in changes])
    return float(losses.max()), float(losses[same].max())


def _output_chances(history: tuple[int, ...], permanent: Floats, instantaneous: Floats) -> Floats:
    """Return the probability of every sequence of reports; periods of one cell share its permanent response."""
    joint: Floats = np.ones((len(permanent),) * len(history))
    for cell in set(history):
        at = [period for period, each in enumerate(history) if each == cell]
        group = permanent[cell]
        for _ in at:
            group = group[..., None] * instantaneous.reshape(len(permanent), *(1,) * (group.ndim - 1), -1)
        shape = [len(permanent) if period in at else 1 for period in range(len(history))]
        joint = joint * group.sum(axis=0).reshape(shape)
    return joint.ravel()


@dataclass(frozen=True)
class ResponseAttack:
    """Attack on a mechanism of few inputs: a permanent response of each input, reports with the counts of all outputs.

    permanent : (inputs, responses)      instantaneous : (responses, outputs)
    """

    permanent: Floats
    instantaneous: Floats

    @property
    def inputs(self) -> int:
        """Number of bits or cells of a hash."""
        return len(self.permanent)

    def draw(self, history: Indices, reports: int, rng: np.random.Generator) -> Floats:
        """Draw the counts of outputs (V, outputs) of a history of inputs (V,), with `reports` of each."""
        responses = [rng.choice(len(self.instantaneous), p=row) for row in self.permanent]
        return np.array([rng.multinomial(reports, self.instantaneous[responses[each]]) for each in history], float)

    def log_likelihood(self, counts: Floats, history: Indices, reports: int) -> float:  # noqa: ARG002
        """Return ln P(counts | history), up to a constant."""
        log_once = np.log(np.maximum(self.instantaneous, TINY))
        with np.errstate(divide="ignore"):
            log_permanent = np.log(self.permanent)
        return sum(
            float(logsumexp(log_permanent[each] + log_once @ counts[history == each].sum(axis=0)))
            for each in np.unique(history)
        )


@dataclass(frozen=True)
class FilterAttack:
    """Attack on a large filter with one hash, of which each bit is independent given the permanent response's true bits.

    permanent : (2, 2) P(permanent bit | true bit)      instantaneous : (2, 2) P(reported bit | permanent bit)      inputs : bits, k
    by_value  : whether each value has its own permanent response; False: values with equal bits share one
    """

    permanent: Floats
    instantaneous: Floats
    inputs: int
    by_value: bool

    def draw(self, history: Indices, reports: int, rng: np.random.Generator) -> Floats:
        """Draw the ones (V, k) in `reports` reports of each filter of a history (V,)."""
        response_of, bits = self._responses(history)
        responses = (rng.random(bits.shape) < self.permanent[bits, 1]).astype(np.intp)
        chances = self.instantaneous[responses[response_of], 1]
        return np.asarray(rng.binomial(reports, chances), np.float64)

    def log_likelihood(self, counts: Floats, history: Indices, reports: int) -> float:
        """Return ln P(counts | history), up to a constant."""
        log_permanent, log_once = (np.log(np.maximum(each, TINY)) for each in (self.permanent, self.instantaneous))
        response_of, bits = self._responses(history)
        ones = np.zeros(bits.shape)
        np.add.at(ones, response_of, counts)
        zeros = reports * np.bincount(response_of)[:, None] - ones
        parts = log_permanent[bits] + ones[..., None] * log_once[:, 1] + zeros[..., None] * log_once[:, 0]
        return float(np.logaddexp(parts[..., 0], parts[..., 1]).sum())

    def _responses(self, history: Indices) -> tuple[Indices, Indices]:
        """Return the permanent response of each value (V,), and the true bits of each response (n, k)."""
        key = np.arange(len(history)) if self.by_value else history
        _, first, response_of = np.unique(key, return_index=True, return_inverse=True)
        return response_of, (np.arange(self.inputs) == history[first][:, None]).astype(np.intp)


def shares_above(
    attack: ResponseAttack | FilterAttack, lifetime: float, values: int, reports: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the shares of clients above the lifetime: one other value, all other values. Hashes are uniform and independent."""
    above = np.zeros(2)
    for _ in range(CLIENTS):
        first, second = rng.integers(attack.inputs, size=(2, values))
        counts = attack.draw(first, reports, rng)
        own = attack.log_likelihood(counts, first, reports)
        for column, other in enumerate((np.append(second[:1], first[1:]), second)):
            above[column] += own - attack.log_likelihood(counts, other, reports) > lifetime + ROUNDING_SLACK
    one, every = above / CLIENTS
    return float(one), float(every)


def pattern_differs(values: int, filters: int) -> tuple[float, float]:
    """Return the probabilities that two histories differ in which of V values share a filter or cell: one other value, all other.

    All filters are equally likely. Where the patterns differ, the ratio of the histories has no bound as T grows.

    >>> [round(chance, 4) for chance in pattern_differs(2, 3)]  # one of the two pairs in one cell, 2 x 1/3 x 2/3
    [0.4444, 0.4444]
    """

    def distinct(number: int) -> list[float]:
        chances = [1.0]
        for _ in range(number):
            chances = [
                (chances[d] * d if d < len(chances) else 0.0) / filters
                + (chances[d - 1] * (filters - d + 1) / filters if d else 0.0)
                for d in range(len(chances) + 1)
            ]
        return chances

    new = [((filters - d) / filters) ** 2 + d / filters**2 for d in range(values)]
    one = 1 - math.fsum(map(math.prod, zip(distinct(values - 1), new, strict=True)))
    same = 0.0
    for blocks, chance in enumerate(distinct(values)):
        if chance > 0:
            same += chance * math.exp(sum(math.log(filters - i) for i in range(blocks)) - values * math.log(filters))
    return one, 1 - same


def filter_attack(epsilon: float, permanent_epsilon: float, *, by_value: bool) -> FilterAttack:
    """Return the attack on L-OSUE: P(permanent 1 | 1) = 1/2, q = 1 - p."""
    b = 1 / (math.exp(permanent_epsilon) + 1)

    def excess(p: float) -> float:
        return bit_loss(0.5, (1 - b) * p + b * (1 - p)) - epsilon

    p = 0.0 if epsilon >= permanent_epsilon else brentq(excess, 0.0, 0.5 - 1e-9)
    return FilterAttack(np.array([[1 - b, b], [0.5, 0.5]]), np.array([[1 - p, p], [p, 1 - p]]), FILTER_BITS, by_value)


def large_filter_variance(epsilon: float, permanent_epsilon: float, reports: int) -> float:
    """Return N Var of L-OSUE, the best large filter at share 0: OUE(einf) + (OUE(e1) - OUE(einf)) / T."""
    once, held = (4 * math.exp(e) / math.expm1(e) ** 2 for e in (min(epsilon, permanent_epsilon), permanent_epsilon))
    return held + (once - held) / reports


@click.command()
@click.option("--lifetime", default=8.0, help="Epsilon of all permanent responses of one client.")
@click.option("--values", default=10, help='Distinct values of one client, without "no value".')
@click.option("--epsilon", default=2.0, help="Epsilon of one report.")
@click.option("--reports", default=30, help="Reports of each value, T.")
@click.option("--seed", default=1, help="Seed of the attack.")
def main(lifetime: float, values: int, epsilon: float, reports: int, seed: int) -> None:
    """Print N Var at 1 and T reports, and the success of the attack, for each size of filter and number of cells."""
    rng = np.random.default_rng(seed)
    click.echo(
        f'lifetime epsilon {lifetime:g}, {values} distinct values and "no value", epsilon {epsilon:g} per report; {CLIENTS:,} clients'
    )
    click.echo(
        f"{'mechanism':24}{'responses':>10}{'eps each':>10}{'N Var: 1':>10}{f'{reports}':>8}{'above: one other':>18}{'all other':>11}"
    )

    def print_row(name: str, responses: int, variances: list[float], attack: ResponseAttack | FilterAttack) -> None:
        one, every = shares_above(attack, lifetime, values, reports, rng)
        click.echo(
            f"{name:24}{responses:>10}{lifetime / responses:>10.2f}{variances[0]:>10.3f}{variances[1]:>8.3f}{one:>18.1%}{every:>11.1%}"
        )

    each = lifetime / (values + 1)
    variances = [large_filter_variance(epsilon, each, number) for number in (1, reports)]
    for name, by_value in (("", False), (", by value", True)):
        attack = filter_attack(epsilon, each, by_value=by_value)
        print_row(f"filter, k = {FILTER_BITS}{name}", values + 1, variances, attack)
    for bits in BITS:
        responses = min(values, bits) + 1
        each = lifetime / responses
        pairs = list(small_filters(bits, min(epsilon, each), each))
        best = min(pairs, key=lambda pair: response_variance(pair[0], pair[1], reports))
        variances = [response_variance(*best, number) for number in (1, reports)]
        print_row(f"small filter, k = {bits}", responses, variances, ResponseAttack(*best))
    chosen = {}
    for cells in CELLS:
        responses = min(values + 1, cells)
        each = lifetime / responses
        chosen[cells] = cell_response(cells, min(epsilon, each), each)
        variances = [response_variance(*chosen[cells], number) for number in (1, reports)]
        print_row(f"cells, g = {cells}", responses, variances, ResponseAttack(*chosen[cells]))
    click.echo(f"\n{'ratio without bound':24}{'one other':>10}{'all other':>11}")
    for name, filters in HASHES.items():
        one, every = pattern_differs(values, filters)
        click.echo(f"{name:24}{one:>10.2%}{every:>11.2%}")
    click.echo(
        f"\n{'largest loss':14}{'any two':>10}{'same changes':>14}{'g eps each':>12}    two cells against one, {reports} reports"
    )
    for cells, periods in ENUMERATED:
        any_two, same = largest_enumerated_losses(*chosen[cells], periods)
        loss = shared_response_loss(*chosen[cells], reports)
        click.echo(f"{f'g = {cells}, T = {periods}':14}{any_two:>10.3f}{same:>14.3f}{lifetime:>12.3f}{loss:>14.1f}")


if __name__ == "__main__":
    main()
