"""Sparse design matrix of the candidates: the bits that each sets in each cohort.

    E y = X x        X[cohort * k + bit, column] = 1 where the candidates of the column set the bit

x (M,) are shares, y the debiased bit shares of all cohorts. A column is a group of candidates with equal bits in every cohort, since no
report can distinguish them. docs/explanation/mathematics.md, equation (2.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hubbub.metrics.params import Params
from hubbub.text import format_count
from hubbub_decoder.array_types import Indices
from hubbub_decoder.model.vectorized_hashing import Positions, bit_positions


@dataclass(frozen=True, eq=False, repr=False)
class DesignMatrix:
    """Bits of M groups of candidates in m cohorts.

    Parameters
    ----------
    params
        Parameters of the metric.
    groups
        The M groups: the candidates of each column. There is more than one where no report can distinguish them.
    matrix
        Shape (m * k, M), CSC of int8 with the entries 0 and 1.
    strata
        Shape (M,), stratum of each column by a weight known before the reports. Each stratum has its own prior of
        shares. None: one stratum.
    """

    params: Params
    groups: tuple[tuple[str, ...], ...]
    matrix: sparse.csc_array
    strata: Indices | None = None

    def __repr__(self) -> str:
        params = self.params
        names, columns = sum(map(len, self.groups)), len(self.groups)
        merged = "" if names == columns else f" in {columns:,} columns"
        shape = f"{format_count(params.num_cohorts, 'cohort')} x {format_count(params.num_bits, 'bit')}"
        return f"<DesignMatrix of {format_count(names, 'candidate')}{merged}: {shape}>"

    def take(self, columns: Indices) -> DesignMatrix:
        """Return the design matrix of some columns."""
        groups, strata = tuple(self.groups[column] for column in columns), self.strata
        return DesignMatrix(self.params, groups, self.matrix[:, columns], None if strata is None else strata[columns])

    def with_unnamed(self, positions: Indices) -> DesignMatrix:
        """Return the design matrix with more columns, of strings without a name.

        positions : shape (strings, m, h), positions of the bits. The position k is no bit.
        """
        columns = _to_csc(positions, self.params.num_bits)
        matrix = sparse.hstack([self.matrix, columns], format="csc")
        strata = self.strata
        if strata is not None:
            strata = np.append(strata, np.full(len(positions), strata.max(initial=-1) + 1))
        return DesignMatrix(self.params, (*self.groups, *((),) * len(positions)), sparse.csc_array(matrix), strata)

    def positions(self) -> Indices:
        """Return the positions of the bits of each column in each cohort.

        returns : shape (m, M, h), padded with k where there are fewer than h
        """
        k, m, columns = self.params.num_bits, self.params.num_cohorts, self.matrix.shape[1]
        cohort, bit = np.divmod(self.matrix.indices, k)
        column = np.repeat(np.arange(columns, dtype=np.int32), np.diff(self.matrix.indptr))
        # The bits of a cohort stand together in a column.
        is_first = np.append(True, (cohort[1:] != cohort[:-1]) | (column[1:] != column[:-1]))[: len(bit)]
        first = np.flatnonzero(is_first)
        nth = np.arange(len(bit)) - np.repeat(first, np.diff(first, append=len(bit)))
        positions = np.full((m, columns, int(nth.max(initial=0)) + 1), k, np.intp)
        positions[cohort, column, nth] = bit
        return positions

    def blocks(self) -> Iterator[sparse.csr_array]:
        """Yield the rows of each cohort.

        yields : shape (k, M), as floats
        """
        k = self.params.num_bits
        rows = self.matrix.tocsr()
        for start in range(0, rows.shape[0], k):
            yield rows[start : start + k].astype(np.float64)


def design_matrix(candidates: Sequence[str], params: Params) -> DesignMatrix:
    """Design matrix of distinct candidates; at most h entries for each column and cohort.

    Needs about 7 bytes for each candidate, cohort and hash: 1e5 x 128 x 2 take 180 MB.

    >>> params = Params(num_bits=16, num_hashes=2, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    >>> design_matrix(["v1"], params).matrix.indices.tolist()
    [2, 13]
    """
    return design_from_positions(candidates, bit_positions(candidates, params), params)


def design_from_positions(candidates: Sequence[str], positions: Positions, params: Params) -> DesignMatrix:
    """Design matrix of candidates whose bits are known; positions : (M, m, h) as `bit_positions` returns them."""
    first, column_of = _group_identical(positions)
    groups: list[list[str]] = [[] for _ in first]
    for candidate, column in zip(candidates, column_of, strict=True):
        groups[column].append(candidate)
    return DesignMatrix(params, tuple(map(tuple, groups)), _to_csc(positions[first], params.num_bits))


def _group_identical(positions: Positions) -> tuple[Indices, Indices]:
    """Return the first candidate of each distinct column, in the order of the candidates, and the column of each candidate."""
    if not len(positions):
        return np.empty(0, np.intp), np.empty(0, np.intp)
    flat = np.ascontiguousarray(positions).reshape(len(positions), -1)
    rows = flat.view(np.dtype((np.void, flat.shape[1] * flat.itemsize))).ravel()
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse]


def _to_csc(positions: NDArray[np.signedinteger], num_bits: int) -> sparse.csc_array:
    """Matrix (m * k, M) of positions (M, m, h); position k is no bit."""
    columns, m, h = positions.shape
    rows = (positions + num_bits * np.arange(m, dtype=np.int32)[:, None]).reshape(columns, m * h)
    real = positions.reshape(columns, m * h) < num_bits
    ends = np.concatenate(([0], np.cumsum(real.sum(axis=1)))).astype(np.int32 if real.size < 1 << 31 else np.int64)
    indices = rows.ravel() if ends[-1] == rows.size else rows[real]
    return sparse.csc_array((np.ones(len(indices), np.int8), indices, ends), shape=(m * num_bits, columns))
