"""Weights of candidates that are known before the reports, such as the frequencies of an earlier list, and their strata.

Only the order of the weights is used. The first stratum has the 30 largest weights, and each further one has twice as many candidates
as all before it. Candidates with equal weights are in the same stratum, and candidates without a weight are the last one.
The meaning of the strata is estimated from the reports: `multiple_testing.py` weights their tests, `prior.py` fits the prior of each.
docs/explanation/mathematics.md, section 17.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path

import numpy as np

from hubbub.text import escape_untrusted
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.data.candidates import read_text
from hubbub_decoder.data.csv_cells import text_of_cell
from hubbub_decoder.errors import CandidateError

_COLUMNS = ("candidate", "weight")


def read_weights(path: str | Path) -> dict[str, float]:
    """Read a CSV file with the columns `candidate` and `weight`; weights of a repeated candidate are added up.

    Raises CandidateError for other columns, and for a weight that is negative or no finite number.
    """
    rows = csv.reader(io.StringIO(read_text(path), newline=""))
    header = [name.strip().lower() for name in next(rows, [])]
    if not {*_COLUMNS} <= {*header}:
        raise CandidateError(
            f"{path}: line 1 must name the columns candidate and weight, but has {escape_untrusted(', '.join(header)) if header else 'nothing'}. "
            "Add the header."
        )
    name_column, weight_column = (header.index(name) for name in _COLUMNS)
    weights: dict[str, float] = {}
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        try:
            weight = float(row[weight_column])
            candidate = text_of_cell(row[name_column])
        except (ValueError, IndexError):
            weight, candidate = math.nan, ""
        if not (math.isfinite(weight) and weight >= 0):
            raise CandidateError(
                f"{path}: line {number}: weight must be a finite number of at least 0, got {escape_untrusted(','.join(row))!r}. "
                "Write lines of candidate,weight with a count or a share."
            )
        weights[candidate] = weights.get(candidate, 0.0) + weight
    return weights


def group_weights(weights: Mapping[str, float], groups: Sequence[tuple[str, ...]]) -> Floats:
    """Weights of groups of candidates, (M,): the largest weight of a candidate in each; 0 for those without a weight.

    With the sum, a group of several candidates would stand out although all candidates have the same weight.

    Raises CandidateError unless `weights` is a mapping of strings to finite numbers of at least 0, one of them of a candidate.
    """
    if hasattr(weights, "iloc") and hasattr(weights, "to_dict"):  # a pandas Series with the candidates as its index
        weights = weights.to_dict()
    if not isinstance(weights, Mapping):
        raise CandidateError(
            f"weights must be a dict of candidate and weight, got {type(weights).__name__}. `read_weights` reads a file."
        )
    for candidate, weight in weights.items():
        number = isinstance(weight, Real) and not isinstance(weight, bool)
        if not isinstance(candidate, str) or not number or not (math.isfinite(weight) and weight >= 0):
            raise CandidateError(
                f"weights[{escape_untrusted(repr(candidate))}] must be a finite number of at least 0, got {weight!r}. "
                "Pass the count or the share of each candidate in an earlier list."
            )
    of_groups = np.array(
        [max((float(weights.get(candidate, 0.0)) for candidate in group), default=0.0) for group in groups]
    )
    if not of_groups.any():
        raise CandidateError(
            f"None of the {len(weights):,} weights is of a candidate, so they cannot inform the decoding. "
            "Compare their spelling with the candidates', or leave the weights out."
        )
    return of_groups


_FIRST_STRATUM, _GROWTH = 30, 3.0


def weight_strata(weights: Floats) -> Indices | None:
    """Stratum of each candidate, (M,), 0 for the largest weights; None if all candidates are in the same one.

    Equal weights have the mean of their ranks, so the strata do not depend on the order of the candidates.

    weights : (M,) not negative, 0 where unknown

    >>> np.bincount(weight_strata(np.append(np.arange(400.0), np.zeros(5)))).tolist()
    [30, 60, 180, 129, 6]
    """
    _, of, sizes = np.unique(-weights, return_inverse=True, return_counts=True)
    rank = (np.cumsum(sizes) - (sizes + 1) / 2)[of]
    first = rank < _FIRST_STRATUM
    later = 1 + np.floor(np.log(np.maximum(rank, _FIRST_STRATUM) / _FIRST_STRATUM) / np.log(_GROWTH) + 1e-9)
    strata = np.where(weights > 0, np.where(first, 0, later), np.inf)
    distinct, indices = np.unique(strata, return_inverse=True)
    return indices.astype(np.intp) if len(distinct) > 1 else None
