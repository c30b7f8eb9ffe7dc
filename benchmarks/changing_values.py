"""Values that change: variance and attack on a Bloom filter and on hashing to cells (LOLOHA), at one lifetime epsilon.

    python -m benchmarks.changing_values [--lifetime 8] [--values 10] [--epsilon 2] [--reports 30]

A client holds one permanent response for each thing that it reports: for each value, as many as it has (large filter);
for each of k Bloom filters of one bit, and one for "no value" (small filter); for each of g cells, "no value" among them.
The lifetime is the number of permanent responses times the epsilon of each.

N Var is that of a share near 0, with T reports of each client, all other candidates known and their hash bits uniform. It is exact:

    score(s) = (P(s | own bit) / P(s) - 1) / information        P(s) : mean over the bits or cells
    N Var    = Var( E[score | permanent response] ) + E[ Var(score | permanent response) ] / T

The attack compares two histories of V distinct values each, T reports of each value. They change, and return to earlier values, at the same times:

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

import click
import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from tests.support.changing_values import (
    FilterAttack,
    ResponseAttack,
    bit_loss,
    filter_attack,
    generalized_response,
    largest_enumerated_losses,
    pattern_differs,
    shared_response_loss,
    shares_above,
)

Floats = npt.NDArray[np.float64]

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
        one, every = shares_above(attack, lifetime, values, reports, CLIENTS, rng)
        click.echo(
            f"{name:24}{responses:>10}{lifetime / responses:>10.2f}{variances[0]:>10.3f}{variances[1]:>8.3f}{one:>18.1%}{every:>11.1%}"
        )

    each = lifetime / (values + 1)
    variances = [large_filter_variance(epsilon, each, number) for number in (1, reports)]
    for name, by_value in (("", False), (", by value", True)):
        attack = filter_attack(FILTER_BITS, epsilon, each, by_value=by_value)
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
