"""Distinguishers of two values: log-likelihood ratios of reports, from the declared noise or learned from trials.

Statistic of a client: s_ei, the number of ones at bit i among its t reports of epoch e, and its cohort c. Given the value and the
cohort, bits and epochs are independent, so the score is a sum over them:

    score = cohort_table[c] + sum_e sum_i table[c, i, s_ei]

    cohort_table[c] = ln P(c | v) - ln P(c | w)        table[c, i, s] = ln P(s | c, bit i of v) - ln P(s | c, bit i of w)

    P(s | 1) = a Bin(s; t, q) + (1 - a) Bin(s; t, p)        P(s | 0) = b Bin(s; t, q) + (1 - b) Bin(s; t, p)

The bits of a row are not independent under some mechanisms (`Mechanism.has_independent_bits`). An epoch of rows then adds
ln P(rows | v) - ln P(rows | w) to the score (`Mechanism.log_likelihoods`), and its bits have no entries in the table.

The declared cohort does not depend on the value, so its ratio is 0. For the declared mechanism the score is the exact likelihood
ratio, and by the lemma of Neyman and Pearson no test is more powerful.
A distinguisher decides only how tight a bound is. The bound is valid for any distinguisher (`bound.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, chi2

from hubbub.encoding.bloom import bloom_bits
from hubbub.mechanisms.mechanism import Mechanism
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub_decoder.array_types import Bits, Floats
from hubbub_decoder.audit.clients import AuditedValue, ClientReports

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


@dataclass(frozen=True, slots=True)
class RowRatio:
    """Log-likelihood ratio of the rows of an epoch, under two values.

    mechanism : of the rows      bits : theirs in a report      values : bits of both values, from the first of these on
    """

    mechanism: Mechanism
    bits: slice
    values: tuple[int, int]

    def of(self, ones: NDArray[np.integer[Any]]) -> Floats:
        """(...,) ratio of epochs with counts of ones (..., k)."""
        logs = self.mechanism.log_likelihoods(ones[..., self.bits].astype(np.float64))
        first, second = self.values
        return np.asarray(logs[..., first] - logs[..., second])


@dataclass(frozen=True, slots=True)
class Distinguisher:
    """Score of a client: the sum of the entries at its cohort and at its counts of ones, and of the ratios of its rows.

    name         : shown in reports
    table        : (cohorts, k, t + 1) float, log-likelihood ratios of the first value against the second
    cohort_table : (cohorts,) float, the same of the cohort; empty if the cohort does not count
    rows         : ratios of the blocks whose bits depend on each other; the table is 0 at these
    """

    name: str
    table: Floats
    cohort_table: Floats = field(default_factory=lambda: np.zeros(0))
    rows: tuple[RowRatio, ...] = ()

    def scores(self, seen: Observations) -> Floats:
        """(n,) scores, rounded to 1e-6; 0 in cohorts that the tables do not have."""
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
        for of_rows in self.rows:
            scores += of_rows.of(seen.ones).sum(axis=1)
        return scores.round(6)


def count_probabilities(params: Params, reports: int) -> Floats:
    """(2, t + 1): P(s ones in t reports from one permanent response | true bit 0), and given 1.

    >>> count_probabilities(Params.one_hot(1, prob_p=0, prob_q=1, prob_f=0.5), 1)
    array([[0.75, 0.25],
           [0.25, 0.75]])
    """
    of_zero, of_one = (
        binom.pmf(np.arange(reports + 1), reports, rate) for rate in (params.mechanism.prob_p, params.mechanism.prob_q)
    )
    laws: Floats = np.array(
        [rate * of_one + (1 - rate) * of_zero for rate in (params.mechanism.permanent_p, params.mechanism.permanent_q)]
    )
    return laws


def declared_noise(metric: Metric, reports: int) -> Floats:
    """(2, k, t + 1) declared P(s | true bit) of each bit. The bits of a joint metric have the noise of their part."""
    return np.concatenate(
        [np.repeat(count_probabilities(block, reports)[:, None], block.num_bits, axis=1) for block in metric.blocks],
        axis=1,
    )


def num_cohorts(metric: Metric) -> int:
    """Number of cohorts that an audit tells apart: m, or with a group G m, where value g and cohort c are the number g m + c."""
    return len(metric.collections) * metric.num_cohorts


def true_bits(metric: Metric, value: AuditedValue) -> Bits:
    """(m, k) Bloom bits of a value in every cohort, the same for every value of a group."""
    k, width = metric.num_bits, metric.row_bytes
    rows = [bloom_bits(metric, value, cohort).to_bytes(width, "little") for cohort in range(metric.num_cohorts)]
    packed = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, width)
    bits = np.unpackbits(packed, axis=1, count=k, bitorder="little")
    return np.tile(bits, (len(metric.collections), 1))


def row_ratios(metric: Metric, bits: Bits, bits_other: Bits) -> tuple[RowRatio, ...]:
    """Ratios of the blocks of rows that differ between two values with given bits, (m, k); rows have no cohorts of their own."""
    ratios = []
    for start, block in zip(metric.kind.first_bits, metric.blocks, strict=True):
        if not block.mechanism.has_independent_bits:
            of_block = slice(start, start + block.num_bits)
            first, second = (int(pattern[0, of_block].argmax()) for pattern in (bits, bits_other))
            ratios += [RowRatio(block.mechanism, of_block, (first, second))] if first != second else []
    return tuple(ratios)


def declared_ratio(metric: Metric, bits: Bits, bits_other: Bits, reports: int) -> Distinguisher:
    """Exact likelihood ratio of two values with known bits, (m, k), for epochs of so many reports."""
    ratio = likelihood_ratio(
        "likelihood ratio of the declared noise", declared_noise(metric, reports), bits, bits_other
    )
    rows = row_ratios(metric, bits, bits_other)
    for row_ratio in rows:
        ratio.table[:, row_ratio.bits] = 0
    return replace(ratio, rows=rows)


def likelihood_ratio(name: str, laws: Floats, bits: Bits, bits_other: Bits) -> Distinguisher:
    """Distinguisher of two values with known Bloom bits, for noise with given laws.

    laws : (2, k, t + 1) P(s | true bit) of each bit        bits, bits_other : (m, k)
    """
    ratio = log_ratio(laws[1], laws[0])
    difference = bits.astype(np.int8) - bits_other.astype(np.int8)
    return Distinguisher(name, difference[:, :, None] * ratio)


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


def learned_noise(metric: Metric, histograms: list[NDArray[np.int64]], bits: list[Bits]) -> Floats:
    """(2, k, t + 1) laws of the count of ones given the true bit, estimated from trials of values with known Bloom bits.

    All bits of a part have one law. Without cohorts at the end of the histograms, the same bits are left out.

    histograms : of each value, (cohorts, k, t + 1)        bits : of each value, (m, k)
    """
    estimated = np.zeros((2, *histograms[0].shape[1:]))
    for start, block in zip(metric.kind.first_bits, metric.blocks, strict=True):
        of_part = slice(start, start + block.num_bits)
        for bit in (0, 1):
            law = 0.5 + sum(
                counts[:, of_part][true[: len(counts), of_part] == bit].sum(axis=0)
                for counts, true in zip(histograms, bits, strict=True)
            )
            estimated[bit, of_part] = law / law.sum()
    return estimated


def learned_ratios(counts: NDArray[np.int64], counts_other: NDArray[np.int64], epochs: int) -> Distinguisher:
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
    return Distinguisher(
        "learned for each cohort and bit",
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
