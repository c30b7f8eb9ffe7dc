"""Distinguishers of two values: the log-likelihood ratio of whole rows of the declared law, or one learned from trials.

    declared    score = ln P(reports | v, cohort) - ln P(reports | w, cohort)                                 (`laws.py`)
    learned     score = cohort_table[c] + sum_e sum_i table[c, i, s_ei]     s_ei: ones at bit i in epoch e

The declared cohort does not depend on the value. For the declared mechanism the score is the exact likelihood ratio, and by the lemma of
Neyman and Pearson no test is more powerful. A distinguisher decides only how tight a bound is. The bound is valid for any distinguisher
(`bound.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from hubbub_decoder.array_types import Floats
from hubbub_decoder.audit.clients import ClientReports
from hubbub_decoder.audit.laws import ReportLaw

DECLARED_RATIO = "likelihood ratio of the declared noise"
_MAX_RATIO = 40.0
"""Largest |log-likelihood ratio| of one bit: stands for an impossible count, and keeps sums finite."""


@dataclass(frozen=True, slots=True)
class Observations:
    """Counts of ones of n clients.

    cohorts : (n,) int                  ones : (n, epochs, k), each in [0, t]
    """

    cohorts: NDArray[np.int64]
    ones: NDArray[np.uint16]

    @classmethod
    def of(cls, reports: ClientReports, per_epoch: int) -> Observations:
        """Ones among each `per_epoch` consecutive reports of a client."""
        n, total, k = reports.bits.shape
        return cls(
            reports.cohorts, reports.bits.reshape(n, total // per_epoch, per_epoch, k).sum(axis=2, dtype=np.uint16)
        )


class Distinguisher(Protocol):
    """Score of a client. `name` is shown in reports."""

    @property
    def name(self) -> str: ...

    def scores(self, made: ClientReports) -> Floats:
        """(n,) scores, rounded to 1e-6."""
        ...


@dataclass(frozen=True, slots=True)
class DeclaredRatio:
    """Exact likelihood ratio of the declared laws of two values; 40 or -40 where only one of them can make the reports."""

    first: ReportLaw
    second: ReportLaw
    name: str = DECLARED_RATIO

    def scores(self, made: ClientReports) -> Floats:
        with np.errstate(invalid="ignore"):
            ratio = np.subtract(*(law.log_probabilities(made.cohorts, made.bits) for law in (self.first, self.second)))
        return np.nan_to_num(ratio, nan=0.0, posinf=_MAX_RATIO, neginf=-_MAX_RATIO).round(6)


@dataclass(frozen=True, slots=True)
class LearnedRatio:
    """Sum of the entries at the cohort of a client and at its counts of ones.

    table        : (cohorts, k, t + 1) float, log-likelihood ratios of the first value against the second
    cohort_table : (cohorts,) float, the same of the cohort
    """

    table: Floats
    cohort_table: Floats = field(default_factory=lambda: np.zeros(0))
    name: str = "learned for each cohort and bit"

    def scores(self, made: ClientReports) -> Floats:
        """(n,) scores, rounded to 1e-6; 0 in cohorts that the tables do not have."""
        seen = Observations.of(made, self.table.shape[2] - 1)
        known = seen.cohorts < len(self.cohort_table)
        scores = np.zeros(len(seen.cohorts))
        scores[known] = self.cohort_table[seen.cohorts[known]]
        informative = (self.table != 0).any(axis=2)
        for cohort in np.unique(seen.cohorts):
            if cohort >= len(self.table) or not informative[cohort].any():
                continue
            bits = np.flatnonzero(informative[cohort])
            clients = np.flatnonzero(seen.cohorts == cohort)
            counts = seen.ones[clients][:, :, bits]
            scores[clients] += self.table[cohort][bits, counts].sum(axis=(1, 2))
        return scores.round(6)


def log_ratio(first: Floats, second: Floats) -> Floats:
    """ln(first / second) in [-40, 40], 0 where both are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(first) - np.log(second)
    clipped: Floats = np.clip(
        np.nan_to_num(ratio, nan=0.0, posinf=_MAX_RATIO, neginf=-_MAX_RATIO), -_MAX_RATIO, _MAX_RATIO
    )
    return clipped


def count_histogram(seen: Observations, cohorts: int, reports: int) -> NDArray[np.int64]:
    """(cohorts, k, t + 1) numbers of clients and epochs with s ones. Clients of later cohorts are left out."""
    inside = seen.cohorts < cohorts
    ones, (k, size) = seen.ones[inside], (seen.ones.shape[2], reports + 1)
    cells = (seen.cohorts[inside][:, None, None] * k + np.arange(k)) * size + ones
    return np.bincount(cells.ravel(), minlength=cohorts * k * size).reshape(cohorts, k, size)


def learned_ratios(counts: NDArray[np.int64], counts_other: NDArray[np.int64], epochs: int) -> LearnedRatio:
    """Distinguisher learned from histograms of two values, without a model of the client.

    A bit of a cohort counts if its two histograms differ at the level of one false alarm among all bits (G-test, t degrees
    of freedom). A cohort counts if its two numbers of clients differ at the level of one false alarm among all cohorts. The ratio is
    that of the frequencies, with half a count added to each.
    """
    cohorts, k, _ = counts.shape
    clients, clients_other = (histograms[:, 0].sum(axis=1) // epochs for histograms in (counts, counts_other))
    inside, inside_other = (
        np.stack([numbers.sum() - numbers, numbers], axis=1) for numbers in (clients, clients_other)
    )
    return LearnedRatio(
        _significant_ratios(counts, counts_other, 1 / (cohorts * k)),
        _significant_ratios(inside, inside_other, 1 / cohorts)[:, 1],
    )


def _significant_ratios(counts: NDArray[np.int64], counts_other: NDArray[np.int64], level: float) -> Floats:
    """ln of the ratio of two frequencies along the last axis; 0 where the two histograms do not differ at a level (G-test)."""
    size = counts.shape[-1]
    rates, rates_other = (
        (histograms + 0.5) / (histograms.sum(axis=-1, keepdims=True) + 0.5 * size)
        for histograms in (counts, counts_other)
    )
    both = (counts + counts_other + 1.0) / (counts + counts_other + 1.0).sum(axis=-1, keepdims=True)
    g = 2 * (counts * np.log(rates / both) + counts_other * np.log(rates_other / both)).sum(axis=-1)
    differs = chi2.sf(g, size - 1) < level
    ratios: Floats = np.where(differs[..., None], log_ratio(rates, rates_other), 0.0)
    return ratios
