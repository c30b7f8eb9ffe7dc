"""Influence of one retained report: the row of bits that moves an estimate most, by a local search.

An estimate is linear in the mean score of the reports (`one_step.py`, `score_model.py`). One report more, with the row s in cohort c, changes it by

    w'(r(s) / f(s) - 1 - g) / n        w (M + 2,) : weights of the score        g : mean score

and stands for x + w'(r(s) / f(s) - 1 - g). The ratio is no linear function of the bits where strings set several, so its maximum is searched: from
the candidate's own bits, all flips that raise it are made at once, or the best one alone, until none does. Only the most promising cohorts
are searched. docs/explanation/mathematics.md, equation (23.2).
"""

from __future__ import annotations

import numpy as np

from hubbub_decoder.array_types import Bits, Flags, Floats, Indices
from hubbub_decoder.estimators.reports.likelihood_ratios import Mixture
from hubbub_decoder.inference.influence import ReportInfluence

_SEARCHED_COHORTS = 3
_SEARCH_MARGIN = 1.2  # a search is no proof, and the shares z that weight the score move with forged reports: 1.11 times as much was found


def influence_of_rows(
    mixture: Mixture, z: Floats, used: Flags, candidates: Indices, weights: Floats, estimates: Floats, num_reports: int
) -> ReportInfluence:
    """Influence of one report on the estimates of D candidates; the lowest share is not searched, and is nan.

    weights : (D, M + 2) w      estimates : (D,) x - w'g      used : (m,) cohorts with reports
    """
    cohorts = np.flatnonzero(used)
    values = np.array([_values_of_own_bits(mixture, z, cohort, candidates, weights) for cohort in cohorts.tolist()])
    size = len(candidates)
    highest, at, rows = np.empty(size), np.empty(size, np.intp), np.empty((size, mixture.params.num_bits), np.uint8)
    for d, candidate in enumerate(candidates.tolist()):
        likely = np.argsort(-values[:, d])[:_SEARCHED_COHORTS].tolist()
        found = [(*_climb(mixture, z, int(cohorts[c]), candidate, weights[d]), c) for c in likely]
        highest[d], rows[d], at[d] = max(found, key=lambda climbed: climbed[0])
    unknown, reports = np.full(size, np.nan), np.full(size, float(num_reports))
    return ReportInfluence(unknown, estimates + _SEARCH_MARGIN * highest, at, rows, reports)


def _own_bits(mixture: Mixture, cohort: int, candidates: Indices) -> Bits:
    """Likeliest rows of each candidate, (k, D): its bits alone are set, or unset if p > q."""
    mechanism = mixture.params.mechanism
    rows = np.full((mixture.params.num_bits + 1, len(candidates)), mechanism.q_star < mechanism.p_star, np.uint8)
    rows[mixture.positions[cohort, candidates].T, np.arange(len(candidates))] ^= 1
    return rows[:-1]


def _values(mixture: Mixture, z: Floats, cohort: int, rows: Bits, weights: Floats) -> Floats:
    """w'(r / f - 1) of rows (k, n): (n,) for weights (M + 2,)."""
    ratios = mixture.ratios(rows, mixture.positions[cohort])
    return np.asarray(weights @ ratios / (z @ ratios) - weights.sum())


def _values_of_own_bits(mixture: Mixture, z: Floats, cohort: int, candidates: Indices, weights: Floats) -> Floats:
    ratios = mixture.ratios(_own_bits(mixture, cohort, candidates), mixture.positions[cohort])
    return np.asarray(np.einsum("dv,vd->d", weights, ratios) / (z @ ratios) - weights.sum(axis=1))


def _climb(mixture: Mixture, z: Floats, cohort: int, candidate: int, weights: Floats) -> tuple[float, Bits]:
    """Largest value that the search finds in a cohort, and its row (k,)."""
    row = _own_bits(mixture, cohort, np.array([candidate]))
    value = float(_values(mixture, z, cohort, row, weights)[0])
    flips = np.eye(len(row), dtype=np.uint8)
    while True:
        flipped = _values(mixture, z, cohort, row ^ flips, weights)
        better = flipped > value + 1e-9 * abs(value)
        if not better.any():
            return value, row[:, 0]
        proposals = np.column_stack([row[:, 0] ^ better.astype(np.uint8), row[:, 0] ^ flips[flipped.argmax()]])
        reached = _values(mixture, z, cohort, proposals, weights)
        row, value = proposals[:, [reached.argmax()]], float(reached.max())
