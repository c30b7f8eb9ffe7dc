"""Results of fixed effects: what the null space leaves undetermined."""

from __future__ import annotations

import numpy as np
import pytest

from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.fit_result import FitResult


def fitted(solution: list[float], null_space: list[list[float]]) -> FitResult:
    size = len(solution)
    covariance: Floats = np.diag(np.arange(1.0, size + 1))
    return FitResult.from_fixed_effects(
        solution=np.array(solution),
        covariance=covariance,
        null_space=np.array(null_space).reshape(size, -1),
        reporter_variances=lambda contrasts: np.sum(contrasts**2, axis=1) / 2,
        unlisted_variance=(0.01, 0.001),
    )


def test_everything_is_determined_without_a_null_space() -> None:
    fit = fitted([0.3, 0.2, 0.1], [])
    assert fit.shares.tolist() == [0.3, 0.2]
    assert fit.variances.tolist() == [1, 2]
    assert fit.reporter_variances.tolist() == [0.5, 0.5]
    assert fit.totals == pytest.approx([0.5, 0.1, 0.6])
    assert fit.total_variances.tolist() == [3, 3, 6]
    assert fit.total_reporter_variances.tolist() == [1, 0.5, 1.5]
    assert fit.null_error == pytest.approx(np.sqrt(1.5))


def test_undetermined_shares_and_totals_are_nan() -> None:
    """The second candidate is confounded with the unlisted strings: only the first, and the sum of everything, are determined."""
    fit = fitted([0.3, 0.2, 0.1], [[0], [np.sqrt(0.5)], [-np.sqrt(0.5)]])
    assert fit.shares == pytest.approx([0.3, np.nan], nan_ok=True)
    assert fit.variances == pytest.approx([1, np.nan], nan_ok=True)
    assert fit.totals == pytest.approx([np.nan, np.nan, 0.6], nan_ok=True)
    assert fit.total_variances == pytest.approx([np.nan, np.nan, 6], nan_ok=True)
    assert fit.null_error == 1


def test_total_of_no_candidates_is_not_determined() -> None:
    fit = fitted([0.6], [])
    assert fit.totals == pytest.approx([np.nan, 0.6, 0.6], nan_ok=True)
    assert fit.null_error == np.inf
