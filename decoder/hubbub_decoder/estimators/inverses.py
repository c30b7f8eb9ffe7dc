"""Inverses of large symmetric matrices: positive definite ones in place by LAPACK, others without their null space."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from hubbub_decoder.array_types import Floats


def inverse_root(symmetric: Floats) -> Floats:
    """L^-1, lower triangular, of a positive definite matrix L L' (n, n), which is overwritten."""
    root, failed = linalg.lapack.dtrtri(_factor(symmetric), lower=1, overwrite_c=1)
    _check_definite(failed, symmetric)
    return np.asarray(root)


def pseudo_inverse(information: Floats, relative_floor: float, absolute_floor: float = 0.0) -> tuple[Floats, Floats]:
    """Inverse (n, n) of an information matrix without its null space, and an orthonormal basis (n, d) of that space.

    The matrix is scaled to unit diagonal first. An eigenvalue belongs to the null space where it is at most `relative_floor` times the
    largest, or `absolute_floor`.
    """
    scale = np.sqrt(np.diag(information))
    scale[scale == 0] = 1
    values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    known = values > max(relative_floor * values[-1], absolute_floor)
    half = vectors[:, known] / np.sqrt(values[known]) / scale[:, None]
    unknown = vectors[:, ~known] / scale[:, None]
    # older SciPy has no orthonormal basis of no vectors
    return half @ half.T, linalg.orth(unknown) if unknown.size else unknown


def _factor(symmetric: Floats) -> Floats:
    """Lower Cholesky factor, in place."""
    transposed = symmetric.T  # LAPACK's column order, without a copy
    factor, failed = linalg.lapack.dpotrf(transposed, lower=1, overwrite_a=1)
    _check_definite(failed, symmetric)
    return np.asarray(factor)


def _check_definite(failed: int, symmetric: Floats) -> None:
    if failed:
        raise np.linalg.LinAlgError(
            f"a covariance matrix of {len(symmetric)} numbers is not positive definite: nothing can be estimated; report this summary as a bug"
        )
