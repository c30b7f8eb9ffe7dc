"""Strata of candidates by a weight that is known before the reports, such as the frequency in an earlier list.

Only the order of the weights is used. The first stratum has the 30 largest weights, and each further one has twice as many candidates
as all before it. Candidates without a weight are the last stratum. The meaning of the strata is estimated from the reports: `multiple_testing.py` weights their tests, `prior.py` fits the prior of each. docs/explanation/mathematics.md, section 17.
"""

from __future__ import annotations

import numpy as np

from hubbub_decoder.array_types import Floats, Indices

_FIRST_STRATUM, _GROWTH = 30, 3.0


def weight_strata(weights: Floats) -> Indices:
    """Stratum of each candidate, (M,), 0 for the largest weights; equal weights are ordered as the candidates are.

    weights : (M,) not negative, 0 where unknown

    >>> np.bincount(weight_strata(np.append(np.arange(400.0), np.zeros(5)))).tolist()
    [30, 60, 180, 129, 6]
    """
    rank = np.empty(len(weights), np.intp)
    rank[np.argsort(-weights, kind="stable")] = np.arange(len(weights))
    first = rank < _FIRST_STRATUM
    later = 1 + np.floor(np.log(np.maximum(rank, _FIRST_STRATUM) / _FIRST_STRATUM) / np.log(_GROWTH) + 1e-9)
    strata = np.where(weights > 0, np.where(first, 0, later), np.inf)
    return np.unique(strata, return_inverse=True)[1].astype(np.intp)
