"""The joint guess: posterior means by enumeration, limits, and its error beside expectation-maximization."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from hubbub import Metric, Params
from hubbub.summary import Reports
from hubbub_decoder import associate, simulate
from hubbub_decoder.association.guess import Interactions, posterior_mean

Table = NDArray[np.float64]


def quadratic(table: Table, size: float) -> tuple[Table, Table]:
    """S (1,) and J (1, 1) of `size` reports without noise of a 2 x 2 table: D is known with variance x(1 - x) y(1 - y) / N."""
    x, y = table.sum(axis=1), table.sum(axis=0)
    information = size / (4 * x.prod() * y.prod())  # X = 2 D[0, 0], as each column of E is (1, -1) / sqrt(2)
    interaction = 2 * (table[0, 0] - x[0] * y[0])
    return np.array([information * interaction]), np.array([[information]])


def pair(x: Table, y: Table) -> Interactions:
    return Interactions.of_subsets([x, y], [(0, 1)])


def test_posterior_mean_of_two_by_two_is_near_that_by_integration() -> None:
    """Posterior of P[0, 0] by a grid in the log odds, for tables between independence and the boundary.

    Laplace's approximation is within .75 of the estimate's standard error (.65 at the boundary, where it is nearer independence).
    """
    x, y = np.array([0.6, 0.4]), np.array([0.7, 0.3])
    shares = np.linspace(0.3, 0.6, 20_002)[1:-1]  # P[0, 0] with these margins
    cells = np.array([shares, 0.6 - shares, 0.7 - shares, shares - 0.3])
    means = np.outer(x, y).ravel()[:, None]
    odds = (1 / cells).sum(axis=0)  # derivative of the log odds ratio
    for true, size in ((0.42, 50.0), (0.47, 50.0), (0.52, 50.0), (0.57, 50.0), (0.57, 5.0), (0.33, 200.0)):
        table = np.array([[true, 0.6 - true], [0.7 - true, true - 0.3]])
        cross, information = quadratic(table, size)
        std_error = np.sqrt(x.prod() * y.prod() / size)
        deviation = 2 * (shares - 0.42)
        likelihood = np.exp(cross[0] * deviation - information[0, 0] * deviation**2 / 2)
        mean, total = 0.42, 1.0  # u = 0, relative to its likelihood
        for u in np.arange(1, 8) / 8:
            prior = odds * np.exp(((1 - u) / u * means * np.log(cells / means)).sum(axis=0))
            prior /= prior.sum()
            mean, total = mean + (prior * likelihood * shares).sum(), total + (prior * likelihood).sum()
        expected = mean / total
        assert abs(posterior_mean(cross, information, pair(x, y))[0, 0] - expected) < 0.75 * std_error


def test_guess_without_information_is_independence() -> None:
    x, y = np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.4])
    assert np.allclose(posterior_mean(np.zeros(2), np.zeros((2, 2)), pair(x, y)), np.outer(x, y))


@pytest.mark.parametrize("share", [0.699999, 0.42, 1e-9])
def test_guess_with_much_information_is_the_estimate(share: float) -> None:
    """Tables at and near the boundary, within two standard errors of 1e6 reports."""
    table = np.array([[share, 0.7 - share], [0.7 - share, share - 0.4]]) if share > 0.4 else np.full((2, 2), 0.25)
    if share < 0.4:
        table = np.array([[share, 0.5 - share], [0.5 - share, share]])
    guess = posterior_mean(*quadratic(table, 1e6), pair(table.sum(axis=1), table.sum(axis=0)))
    assert guess.min() > 0
    assert np.allclose(guess.sum(axis=1), table.sum(axis=1))
    assert np.abs(guess - table).max() < 2 * 0.25 / 1e3


@pytest.mark.slow
def test_guess_of_strong_dependence_is_nearer_than_independence_and_estimate(unseen_seed: int) -> None:
    """30 tasks with a diagonal table and a test of little power: the sums of total variations differ by many standard errors."""
    rng = np.random.default_rng(unseen_seed)
    params = Params(num_bits=16, num_hashes=1, num_cohorts=8, prob_p=0.3, prob_q=0.7, prob_f=0.5)
    metric = Metric.joint("both", (Metric.string("a", params), Metric.string("b", params)))
    distances = []
    for _ in range(30):
        table = np.eye(4) * 0.2 + 0.0125
        names = [[f"{side}{rng.integers(10**9)}" for _ in range(4)] for side in "ab"]
        counts = rng.multinomial(6_000, table.ravel())
        clients = dict(zip([(a, b) for a in names[0] for b in names[1]], counts.tolist(), strict=True))
        found = associate(simulate(metric, clients, rng, form=Reports), {"a": names[0], "b": names[1]})
        true = np.zeros_like(found.joint.guess)
        true[:4, :4] = counts.reshape(4, 4) / 6_000
        product = np.outer(true.sum(axis=1), true.sum(axis=0))
        distances.append(
            [np.abs(estimate - true).sum() / 2 for estimate in (found.joint.guess, product, found.joint.shares)]
        )
    ours, product, plain = np.sum(distances, axis=0)
    assert ours < product
    assert ours < plain
