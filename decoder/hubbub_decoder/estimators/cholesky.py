"""Inverses of large positive definite matrices, in place, by LAPACK."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from hubbub_decoder.array_types import Floats

_BLOCK = 256


def inverse(symmetric: Floats) -> Floats:
    """Invert a positive definite matrix, which is overwritten, in n**3 multiplications: Cholesky's factor, then LAPACK's inverse of it."""
    inverted, failed = linalg.lapack.dpotri(_factor(symmetric), lower=1, overwrite_c=1)
    _must_be_definite(failed, symmetric)
    for start in range(0, len(inverted), _BLOCK):  # what is below the diagonal, above it
        end = start + _BLOCK
        inverted[start:end, end:] = inverted[end:, start:end].T
        corner = inverted[start:end, start:end]
        corner[:] = np.tril(corner) + np.tril(corner, -1).T
    return np.asarray(inverted.T)


def inverse_root(symmetric: Floats) -> Floats:
    """Return L^-1, lower triangular, of a positive definite matrix L L', which is overwritten: two thirds of its inverse's work."""
    root, failed = linalg.lapack.dtrtri(_factor(symmetric), lower=1, overwrite_c=1)
    _must_be_definite(failed, symmetric)
    return np.asarray(root)


def _factor(symmetric: Floats) -> Floats:
    factor, failed = linalg.lapack.dpotrf(
        symmetric.T, lower=1, overwrite_a=1
    )  # its own transpose, as LAPACK lays it out
    _must_be_definite(failed, symmetric)
    return np.asarray(factor)


def _must_be_definite(failed: int, symmetric: Floats) -> None:
    if failed:
        raise np.linalg.LinAlgError(f"a covariance of {len(symmetric)} numbers is not positive definite")
