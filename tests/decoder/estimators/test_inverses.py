"""Pseudo-inverse of an information matrix: which eigenvalues belong to the null space, and what it leaves."""

from __future__ import annotations

import numpy as np
import pytest

from hubbub_decoder.estimators.inverses import inverse_root, pseudo_inverse

SPREAD = np.array([[1, 0.75, 0], [0.75, 1, 0], [0, 0, 1]])
"""Eigenvalues .25, 1 and 1.75."""


@pytest.mark.parametrize(
    ("relative_floor", "absolute_floor", "unknown"),
    [(0.1, 0.0, 0), (0.2, 0.0, 1), (0.1, 0.3, 1), (0.2, 0.1, 1), (0.0, 0.2, 0), (0.6, 0.0, 2)],
)
def test_an_eigenvalue_below_either_floor_is_unknown(
    relative_floor: float, absolute_floor: float, unknown: int
) -> None:
    """The relative floor counts from the largest eigenvalue."""
    inverse, null_space = pseudo_inverse(SPREAD, relative_floor, absolute_floor)
    assert null_space.shape == (3, unknown)
    assert np.linalg.matrix_rank(inverse) == 3 - unknown


def test_pseudo_inverse_of_a_singular_matrix_inverts_what_is_known() -> None:
    """Two equal columns of different scale: their difference is unknown, and every other contrast has its variance."""
    rng = np.random.default_rng(1)
    columns = rng.normal(size=(50, 3))
    design = np.column_stack([columns, 2 * columns[:, 0]])
    information = design.T @ design
    inverse, null_space = pseudo_inverse(information, 1e-9)
    assert null_space.T @ null_space == pytest.approx(np.eye(1))
    assert information @ null_space == pytest.approx(np.zeros((4, 1)), abs=1e-9)
    assert information @ inverse @ information == pytest.approx(information)


def test_inverse_root_is_that_of_the_cholesky_factor() -> None:
    root = inverse_root(SPREAD.copy())
    assert root @ SPREAD @ root.T == pytest.approx(np.eye(3))
    with pytest.raises(np.linalg.LinAlgError, match="is not positive definite"):
        inverse_root(np.array([[1.0, 2.0], [2.0, 1.0]]))
