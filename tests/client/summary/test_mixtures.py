"""Least-squares fit of a mixture: merged cells, and the shares that maximize the likelihood."""

from __future__ import annotations

import numpy as np
import pytest

from hubbub.summary.mixtures import TabulatedComponents, fit_shares


def test_merged_cells_are_fitted_as_one_cell(unseen_seed: int) -> None:
    """Weighted least squares over the rows of the table, those of the merged cells added up."""
    rng = np.random.default_rng(unseen_seed)
    table, counts, expected = rng.random((40, 3)), rng.integers(100, size=40), rng.uniform(1, 50, 40)
    merged = np.arange(40) < 7
    rows = np.vstack([table[7:], table[:7].sum(axis=0)])
    cells, numbers = np.append(expected[7:], expected[:7].sum()), np.append(counts[7:], counts[:7].sum())
    root = np.sqrt(cells)
    theta = np.linalg.lstsq(rows / root[:, None], numbers / root, rcond=None)[0]
    shares, rank = fit_shares(counts, TabulatedComponents(table), expected, merged)
    assert shares == pytest.approx(theta)
    assert rank == 3


def test_repeated_fits_end_at_the_largest_likelihood(unseen_seed: int) -> None:
    """There the derivative of the log-likelihood, R' (c / lambda), is 1 for each component, whose probabilities add up to 1."""
    rng = np.random.default_rng(unseen_seed)
    table = rng.dirichlet(np.ones(40), 3).T
    counts = rng.poisson(1e5 * table @ [0.5, 0.3, 0.2])
    expected = counts.sum() * table.mean(axis=1)
    for _ in range(30):
        expected = table @ fit_shares(counts, TabulatedComponents(table), expected)[0]
    assert table.T @ (counts / expected) == pytest.approx(1)


def test_components_that_are_mixtures_of_others_lower_the_rank(unseen_seed: int) -> None:
    table = np.random.default_rng(unseen_seed).dirichlet(np.ones(40), 2).T
    dependent = np.column_stack([table, table.mean(axis=1)])
    shares, rank = fit_shares(np.rint(1e6 * table[:, 0]).astype(np.int64), TabulatedComponents(dependent), table[:, 0])
    assert rank == 2
    assert dependent @ shares == pytest.approx(1e6 * table[:, 0], abs=10)
