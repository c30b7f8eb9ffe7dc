"""Values that change: variance of a small Bloom filter, and of hashing to cells (LOLOHA), at one lifetime epsilon.

    python -m benchmarks.changing_values [--lifetime 8] [--values 10] [--epsilon 2]

A client holds one permanent response for each thing that it reports: for each value, as many as it has (large filter);
for each of k Bloom filters of one bit, and one for "no value" (small filter); for each of g cells, "no value" among them.
The lifetime is the number of permanent responses times the epsilon of each.

N Var is that of a share near 0, with T reports of each client, all other candidates known and their hash bits uniform. It is exact:

    score(s) = (P(s | own bit) / P(s) - 1) / information        P(s) : mean over the bits or cells
    N Var    = Var( E[score | permanent response] ) + E[ Var(score | permanent response) ] / T

`any two` is ln of the largest ratio of probabilities between any two histories, those that change at other times included.

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

Floats = npt.NDArray[np.float64]

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


def any_two_histories(permanent: Floats) -> float:
    """Return ln of the largest ratio of two histories that each see every input, by enumeration of how their changes overlap.

    Equal outputs link inputs of the first history to inputs of the second. The worst links are stars: one input c of the first
    against a set D of the second, with max over s of P(s | c) / prod over d in D of P(s | d); the sets D are disjoint.
    """
    inputs = range(len(permanent))
    with np.errstate(divide="ignore"):
        log = np.log(permanent)
    worst = {
        (c, chosen): float((log[c] - log[list(chosen)].sum(axis=0)).max())
        for c in inputs
        for size in range(1, len(permanent) + 1)
        for chosen in itertools.combinations(inputs, size)
    }

    def best(left: tuple[int, ...], centres: tuple[int, ...]) -> float:
        if not left or not centres:
            return -math.inf if left else 0.0
        first, rest = left[0], left[1:]
        found = -math.inf
        for size in range(len(rest) + 1):
            for others in itertools.combinations(rest, size):
                remaining = tuple(each for each in rest if each not in others)
                for c in centres:
                    after = best(remaining, tuple(each for each in centres if each != c))
                    found = max(found, worst[c, (first, *others)] + after)
        return found

    return best(tuple(inputs), tuple(inputs))


def large_filter_variance(epsilon: float, permanent_epsilon: float, reports: int) -> float:
    """Return N Var of L-OSUE, the best large filter at share 0: OUE(einf) + (OUE(e1) - OUE(einf)) / T."""
    once, held = (4 * math.exp(e) / math.expm1(e) ** 2 for e in (min(epsilon, permanent_epsilon), permanent_epsilon))
    return held + (once - held) / reports


@click.command()
@click.option("--lifetime", default=8.0, help="Epsilon of all permanent responses of one client.")
@click.option("--values", default=10, help='Distinct values of one client, without "no value".')
@click.option("--epsilon", default=2.0, help="Epsilon of one report.")
def main(lifetime: float, values: int, epsilon: float) -> None:
    """Print N Var at 1 and 30 reports for each size of filter and number of cells."""
    click.echo(
        f'lifetime epsilon {lifetime:g}, {values} distinct values and "no value", epsilon {epsilon:g} per report'
    )
    click.echo(f"{'mechanism':24}{'responses':>10}{'eps each':>10}{'T = 1':>9}{'T = 30':>9}{'any two':>9}")
    each = lifetime / (values + 1)
    large = [large_filter_variance(epsilon, each, reports) for reports in (1, 30)]
    _print_row("large filter", values + 1, each, large, math.nan)
    for bits in BITS:
        responses = min(values, bits) + 1
        each = lifetime / responses
        pairs = list(small_filters(bits, min(epsilon, each), each))
        permanent, instantaneous = min(pairs, key=lambda pair: response_variance(pair[0], pair[1], 30))
        variances = [response_variance(permanent, instantaneous, reports) for reports in (1, 30)]
        worst = any_two_histories(_with_no_value(permanent, bits)) if bits <= 4 else math.nan
        _print_row(f"small filter, k = {bits}", responses, each, variances, worst)
    for cells in CELLS:
        responses = min(values + 1, cells)
        each = lifetime / responses
        permanent, instantaneous = cell_response(cells, min(epsilon, each), each)
        variances = [response_variance(permanent, instantaneous, reports) for reports in (1, 30)]
        worst = any_two_histories(permanent) if cells <= 5 else math.nan
        _print_row(f"cells, g = {cells}", responses, each, variances, worst)


def _with_no_value(permanent: Floats, bits: int) -> Floats:
    """Return the matrix with a row for the filter without ones."""
    outputs = bit_vectors(bits)
    one = float(permanent[0] @ outputs[:, 1])  # P(permanent 1 | 0)
    return np.vstack([permanent, bit_response(np.zeros((1, bits)), 0.0, one)])


def _print_row(name: str, responses: int, each: float, variances: list[float], worst: float) -> None:
    click.echo(
        f"{name:24}{responses:>10}{each:>10.2f}{variances[0]:>9.3f}{variances[1]:>9.3f}"
        f"{'-' if math.isnan(worst) else f'{worst:.2f}':>9}"
    )


if __name__ == "__main__":
    main()
