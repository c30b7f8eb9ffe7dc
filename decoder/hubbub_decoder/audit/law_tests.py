"""Tests of reports against the declared law: rows, repeats, bits, pairs of bits, and the reports of one client.

A sample has the reports of n clients of one value. Counts of clients are binomial, because clients are independent, and their tails are exact.

    impossible reports       a row of probability 0 refutes at once
    rows                     clients with one row of a report, or of all reports, each row r at the share P(r) of the level
    repeats among clients    clients whose row an earlier client with the same true bits sent
    repeats of neighbours    clients whose row is that of the client so many calls before
    likelihood ratios        clients whose ratio of two values reaches a threshold
    single bits              ones of each bit of each report, and of each cohort
    pairs of bits            ones at two bits of a report, or of the first report and a later one
    lags                     ones at one bit in two reports of a client, one bit at a time and all bits together
    repeats within a client  equal rows in two reports
    cohorts                  clients of each cohort, and of each value

Repeats: given the rows of earlier clients, client i repeats one with the probability M_i, the sum of P(r) over their different rows. So

    exp(theta R - (e**theta - 1) sum M_i)                 R : repeats

has a mean of at most 1 for each theta, and so has its average over several theta, E. By Markov's inequality P(E >= 1 / p) <= p.
Source: Howard, Ramdas, McAuliffe, Sekhon 2020, "Time-uniform Chernoff bounds via nonnegative supermartingales" (arXiv 1808.03204).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, logsumexp
from scipy.stats import hypergeom

from hubbub_decoder.array_types import Bits, Floats
from hubbub_decoder.audit.clients import AuditedValue, ClientReports, value_text
from hubbub_decoder.audit.distinguisher import DeclaredRatio
from hubbub_decoder.audit.evidence import Comparisons, NoiseTest, binomial_tails
from hubbub_decoder.audit.laws import Flags, ReportLaw
from hubbub_decoder.audit.loss_law import loss_law

_BYTES_OF_AN_INTEGER = 8
_LAGS_OF_NEIGHBOURS = tuple(1 << power for power in range(9))
_MAX_PAIR_OPERATIONS = 2e10
_MAX_ATOMS = 1_000
_MAX_THRESHOLDS = 64
_GRID = 1e-6
"""Grid of scores."""
_SMALLEST_TAIL, _LARGEST_LOG = 1e-290, 700.0
"""Limits of floats."""
_REPEAT_FACTORS = 1 + 2.0 ** np.arange(-10, 300, 3)
"""e**theta of the repeats: from a thousandth more repeats than the law expects, to one where it expects 1e-90."""
_NOT_DECLARED = "The noise does not have the declared law. Compare the client with the definition"


@dataclass(frozen=True, slots=True)
class Sample:
    """Reports of n clients with one value.

    law     : declared law of these reports
    cohorts : (n,)                    bits : (n, T, k)
    moved   : (n,) whether the cohort changed from one report to another
    """

    law: ReportLaw
    cohorts: NDArray[np.int64]
    bits: Bits
    moved: Flags

    @property
    def truth(self) -> Flags:
        """(n, k) true bits of each client."""
        return self.law.truth[self.cohorts]

    @property
    def value(self) -> str:
        """Value in words."""
        return value_text(self.law.value)


def law_tests(samples: Sequence[Sample]) -> list[NoiseTest]:
    """All tests of some samples of one metric."""
    tests = [
        compare_possible_reports(samples),
        compare_rows(samples),
        compare_repeats_among_clients(samples),
        compare_neighbours(samples),
        compare_likelihood_ratios(samples),
        compare_single_bits(samples),
        compare_pairs_of_bits(samples),
        compare_cohorts(samples),
    ]
    several = [sample for sample in samples if sample.bits.shape[1] > 1]
    if several:
        tests += [compare_lags(several), compare_repeats_within_clients(several)]
    return tests


def compare_possible_reports(samples: Sequence[Sample]) -> NoiseTest:
    """Test whether all reports of a client have a positive probability, and one cohort."""
    found, number = Comparisons("impossible reports"), 0
    for sample in samples:
        impossible = np.isneginf(sample.law.log_probabilities(sample.cohorts, sample.bits)).sum()
        number += len(sample.cohorts)
        for count, what in (
            (impossible, "reports that the mechanism cannot make"),
            (sample.moved.sum(), "several cohorts"),
        ):
            if found.add(float(count == 0)) is not None:
                found.finding = f"{count:,} of {len(sample.cohorts):,} clients of {sample.value} have {what}"
    return found.result(f"none in {number:,} clients", f"One is enough to tell values apart. {_NOT_DECLARED}")


def compare_rows(samples: Sequence[Sample]) -> NoiseTest:
    """Test the number of clients with each row of a report, and of all reports; the true bits are one of the rows."""
    found, distinct = Comparisons("rows of reports"), 0
    for sample in samples:
        reports = sample.bits.shape[1]
        for report in range(reports):
            distinct += _add_rows(found, sample, slice(report, report + 1), f"report {report + 1}")
        if reports > 1:
            distinct += _add_rows(found, sample, slice(0, reports), f"the sequence of {reports} reports")
    return found.result(f"{distinct:,} different rows are as frequent as declared", _NOT_DECLARED)


def _add_rows(found: Comparisons, sample: Sample, reports: slice, what: str) -> int:
    """Add the numbers of clients with each row of some reports, by their true bits, and return the number of different rows."""
    rows, truth = sample.bits[:, reports], sample.truth
    pattern = _distinct(np.packbits(truth, axis=1))[2]
    sizes = np.bincount(pattern)
    packed = np.packbits(rows.reshape(len(rows), -1), axis=1)
    first, counts, _ = _distinct(np.concatenate([pattern.astype(np.uint32)[:, None].view(np.uint8), packed], axis=1))
    logs = sample.law.log_probabilities(sample.cohorts[first], rows[first])
    n = sizes[pattern[first]]
    at = found.add(_row_tails(counts, n, np.minimum(logs, 0.0)) * len(sizes), number=1)
    if at is not None:
        row, size = first[at], n[at]
        bare = ", that of the value without noise" if (rows[row] == truth[row]).all() else ""
        found.finding = (
            f"{what} of {counts[at]:,} of {size:,} clients of {sample.value} has one row{bare}, "
            f"and {_rounded(size * math.exp(logs[at]))} were expected"
        )
    return len(first)


def _row_tails(counts: NDArray[np.integer[Any]], clients: NDArray[np.integer[Any]], logs: Floats) -> Floats:
    """P-values of the numbers of clients with a row over the share P(row) of the level, at most 1.

    A tail below the smallest float has the union bound  C(n, count) P(row)**count.
    """
    tails = binomial_tails(counts, clients, np.exp(logs))
    with np.errstate(divide="ignore"):
        exact = np.log(tails)
    union = gammaln(clients + 1) - gammaln(counts + 1) - gammaln(clients - counts + 1) + counts * logs
    rare = clients * np.exp(logs) < 1
    weighted = np.where(rare & (tails < _SMALLEST_TAIL), union, exact) - np.maximum(logs, -_LARGEST_LOG)
    return np.asarray(np.exp(np.minimum(weighted, 0.0)))


def compare_repeats_among_clients(samples: Sequence[Sample]) -> NoiseTest:
    """Test whether clients repeat the first report of clients with the same true bits more often than by chance."""
    columns = [
        (
            np.packbits(sample.truth, axis=1),
            np.packbits(sample.bits[:, 0], axis=1),
            sample.law.log_probabilities(sample.cohorts, sample.bits[:, :1]),
        )
        for sample in samples
    ]
    truth, rows, logs = (np.concatenate(arrays) for arrays in zip(*columns, strict=True))
    first, _, _ = _distinct(np.concatenate([truth, rows], axis=1))
    pattern = _distinct(truth)[2]
    is_first = np.zeros(len(rows), bool)
    is_first[first] = True
    order = np.argsort(pattern, kind="stable")
    before = np.concatenate([[0.0], np.cumsum(np.where(is_first, np.exp(logs), 0.0)[order])])[:-1]
    starts = np.flatnonzero(np.diff(pattern[order], prepend=-1))
    known = np.clip(before - np.repeat(before[starts], np.diff(np.append(starts, len(order)))), 0, 1)
    repeats, expected = int((~is_first).sum()), float(known.sum())
    exponents = repeats * np.log(_REPEAT_FACTORS) - (_REPEAT_FACTORS - 1) * expected
    log_e = float(logsumexp(exponents)) - math.log(len(_REPEAT_FACTORS))
    text = f"{repeats:,} of {len(rows):,} clients repeat the row of an earlier client with the same true bits, and {_rounded(expected)} were expected"
    found = Comparisons("repeats among clients", finding=text)
    found.add(math.exp(-min(max(log_e, 0.0), _LARGEST_LOG)))
    return found.result(
        text,
        "The noise has too few different values, so an observer can try them all. Draw it from the operating system's generator",
    )


def compare_neighbours(samples: Sequence[Sample]) -> NoiseTest:
    """Test whether clients repeat the first report of a client a few calls before them, if both have the same true bits.

    Clients 2 l i + j and 2 l i + l + j, of which j < l, are disjoint pairs, so the number of equal ones is binomial.
    """
    found = Comparisons("repeats of neighbours")
    for sample in samples:
        rows, pattern = sample.bits[:, 0], _distinct(np.packbits(sample.truth, axis=1))[2]
        logs = sample.law.log_repeats(of_one_response=False)[sample.cohorts]
        for lag, start in product(_LAGS_OF_NEIGHBOURS, (0, 1)):
            first = np.arange(max(0, len(rows) - lag))
            first = first[first // lag % 2 == start]
            first = first[pattern[first] == pattern[first + lag]]
            equal = (rows[first] == rows[first + lag]).all(axis=1)
            for log in np.unique(logs[first]):
                of_law = logs[first] == log
                count, pairs = int(equal[of_law].sum()), int(of_law.sum())
                if found.add(binomial_tails(count, pairs, min(1.0, math.exp(log)))) is not None:
                    found.finding = (
                        f"of {pairs:,} pairs of clients of {sample.value} that are {lag} calls apart, {count:,} send the same row, "
                        f"and {_rounded(pairs * math.exp(log))} were expected"
                    )
    return found.result(f"as declared in {found.number:,.0f} comparisons", "Draw the noise of each client anew")


def compare_likelihood_ratios(samples: Sequence[Sample]) -> NoiseTest:
    """Test the law of the likelihood ratio of whole rows, of each value and the next one."""
    found, pairs = Comparisons("likelihood ratios of rows"), 0
    laws = list({sample.law.value: sample.law for sample in samples}.values())
    for sample in samples:
        other = laws[(laws.index(sample.law) + 1) % len(laws)]
        law = loss_law(sample.law.metric, sample.law.truth, other.truth, 1, 1)
        simulated = not all(block.mechanism.has_independent_bits for _, block in other.blocks)
        if simulated or not 1 < len(law.loss) <= _MAX_ATOMS:
            continue
        scores = DeclaredRatio(sample.law, other).scores(ClientReports(sample.cohorts, sample.bits[:, :1]))
        thresholds = law.loss[np.unique(np.linspace(1, len(law.loss) - 1, _MAX_THRESHOLDS).astype(int))] - _GRID
        chances = np.array([law.first[law.loss >= threshold].sum() for threshold in thresholds]).clip(0, 1)
        counts = (scores[:, None] >= thresholds).sum(axis=0)
        pairs += 1
        at = found.add(binomial_tails(counts, len(scores), chances))
        if at is not None:
            found.finding = (
                f"the likelihood ratio of {sample.value} and {value_text(other.value)} reaches {thresholds[at]:.3f} in {counts[at]:,} of "
                f"{len(scores):,} clients, and {len(scores) * chances[at]:,.0f} were expected"
            )
    return found.result(f"as declared in {pairs} samples", _NOT_DECLARED)


def compare_single_bits(samples: Sequence[Sample]) -> NoiseTest:
    """Test the number of ones at each bit of each report, and of the first report in each cohort."""
    found = Comparisons("single bits")
    for sample in samples:
        truth, bits, law = sample.truth, sample.bits, sample.law
        k, cohorts = bits.shape[2], len(law.truth)
        for true in (0, 1):
            ones, clients = ((truth == true)[:, None] & (bits == 1)).sum(axis=0), (truth == true).sum(axis=0)
            at = _add_bits(found, ones, clients, law.ones[true])
            if at is not None:
                found.finding = f"bit {at[1]} of report {at[0] + 1} of {sample.value} {found.finding}"
            for report, counts in enumerate(ones, start=1):
                _add_all_bits(found, law, counts, clients, law.ones[true], f"of report {report} of {sample.value}")
        cells = (sample.cohorts[:, None] * k + np.arange(k)).ravel()
        ones = np.bincount(cells, bits[:, 0].ravel(), cohorts * k).reshape(-1, k)
        clients = np.bincount(sample.cohorts, minlength=cohorts)[:, None]
        at = _add_bits(found, ones, clients, np.where(law.truth, law.ones[1], law.ones[0]))
        if at is not None:
            found.finding = f"bit {at[1]} of {sample.value} in cohort {at[0]} {found.finding}"
    return found.result(f"as declared in {found.number:,.0f} comparisons", _NOT_DECLARED)


def _add_bits(found: Comparisons, ones: ArrayLike, clients: ArrayLike, chances: ArrayLike) -> tuple[int, ...] | None:
    """Add numbers of clients with ones, and return the index of a new smallest p-value, with the numbers as its finding."""
    x, n, p = np.broadcast_arrays(ones, clients, chances)
    at = found.add(binomial_tails(x, n, p))
    if at is not None:
        found.finding = f"shows a one in {x[at]:,.0f} of {n[at]:,.0f} clients, and {n[at] * p[at]:,.0f} were expected"
    return at


def _add_all_bits(
    found: Comparisons, law: ReportLaw, counts: ArrayLike, clients: ArrayLike, chances: ArrayLike, where: str
) -> None:
    """Add the sums over all bits of independent noise with one probability of a one: they are binomial, too."""
    x, n, p = np.broadcast_arrays(counts, clients, chances)
    for chance in np.unique(p[law.has_independent_noise]):
        pooled = law.has_independent_noise & (p == chance)
        if _add_bits(found, x[pooled].sum(), n[pooled].sum(), chance) is not None:
            found.finding = f"any bit {where} {found.finding}"


def compare_pairs_of_bits(samples: Sequence[Sample]) -> NoiseTest:
    """Test the number of clients with ones at two bits, of the first report and of the same or a later one, by the true bits at both."""
    found = Comparisons("pairs of bits")
    for sample in samples:
        reports, k = sample.bits.shape[1:]
        most = max(1, int(_MAX_PAIR_OPERATIONS / (reports * k**2)))
        truth, bits = sample.truth[:most].astype(np.float32), sample.bits[:most].astype(np.float32)
        groups = (1 - truth, truth)
        for first, second in ((0, 0), (1, 0), (0, 1), (1, 1)):
            clients, ones = groups[first].T @ groups[second], (groups[first] * bits[:, 0]).T
            for report in range(reports):
                neither, either, true = sample.law.pairs(0, report)
                law = ((neither, either.T), (either, true))[first][second]
                # in one report, the pair of bits i and j is that of j and i
                other = np.triu(np.ones((k, k), bool), 1) if report == 0 and first == second else ~np.eye(k, dtype=bool)
                used = (clients > 0) & ~np.isnan(law) & other
                if not used.any() or (report == 0 and first < second):
                    continue
                both = ones @ (groups[second] * bits[:, report])
                at = _add_bits(found, both[used], clients[used], law.clip(0, 1)[used])
                if at is not None:
                    i, j = np.argwhere(used)[at]
                    of_report = "" if report == 0 else f" of report {report + 1}"
                    found.finding = (
                        f"the pair of bits {i} and {j}{of_report} of {sample.value} {found.finding}".replace(
                            "a one", "two ones"
                        )
                    )
    return found.result(f"as declared in {found.number:,.0f} comparisons", _NOT_DECLARED)


def compare_lags(samples: Sequence[Sample]) -> NoiseTest:
    """Test the number of ones at one bit in two reports: a permanent response is drawn once, and the noise of each report anew."""
    found = Comparisons("lags")
    for sample in samples:
        truth, bits, law = sample.truth, sample.bits.astype(bool), sample.law
        for first, second in combinations(range(bits.shape[1]), 2):
            both = bits[:, first] & bits[:, second]
            for true, chances in enumerate(law.ones_in_both(first, second)):
                clients, counts = (truth == true).sum(axis=0), ((truth == true) & both).sum(axis=0)
                where = f"of {sample.value} in both reports {first + 1} and {second + 1}"
                at = _add_bits(found, counts, clients, chances)
                if at is not None:
                    found.finding = f"bit {at[0]} {where} {found.finding}"
                _add_all_bits(found, law, counts, clients, chances, where)
    return found.result(
        f"as declared in {found.number:,.0f} comparisons",
        "Draw the permanent response once for a value and an epoch, and the noise of each report anew",
    )


def compare_repeats_within_clients(samples: Sequence[Sample]) -> NoiseTest:
    """Test the number of clients with equal rows in two reports."""
    found = Comparisons("repeats within a client")
    for sample in samples:
        for first, second in combinations(range(sample.bits.shape[1]), 2):
            equal = (sample.bits[:, first] == sample.bits[:, second]).all(axis=1)
            logs = sample.law.log_repeats(of_one_response=sample.law.in_one_epoch(first, second))
            for log in np.unique(logs):
                of_law = (logs == log)[sample.cohorts]
                count, clients = int(equal[of_law].sum()), int(of_law.sum())
                if found.add(binomial_tails(count, clients, min(1.0, math.exp(log)))) is not None:
                    found.finding = (
                        f"reports {first + 1} and {second + 1} of {sample.value} are equal in {count:,} of {clients:,} clients, "
                        f"and {_rounded(clients * math.exp(log))} were expected"
                    )
    return found.result(f"as declared in {found.number:,.0f} comparisons", "Draw the noise of each report anew")


def compare_cohorts(samples: Sequence[Sample]) -> NoiseTest:
    """Test whether cohorts are uniform, and labels independent of the value."""
    found, metric = Comparisons("cohorts"), samples[0].law.metric
    m, numbers = metric.num_cohorts, len(samples[0].law.truth)
    of_value: dict[AuditedValue, NDArray[np.int64]] = {}
    for sample in samples:
        counts = np.bincount(sample.cohorts, minlength=numbers)
        of_value[sample.law.value] = of_value.get(sample.law.value, 0) + counts
    names, counts = [value_text(value) for value in of_value], np.array(list(of_value.values()))
    cohorts, sizes = counts.reshape(len(names), -1, m).sum(axis=1), counts.sum(axis=1)
    at = found.add(binomial_tails(cohorts, sizes[:, None], 1 / m))
    if at is not None:
        found.finding = f"{cohorts[at]:,} of {sizes[at[0]]:,} clients of {names[at[0]]} are in cohort {at[1]}, and {sizes[at[0]] / m:,.0f} were expected"
    if numbers > m:
        everyone, total = counts.sum(axis=0), int(counts.sum())
        law = hypergeom(total, everyone, sizes[:, None])
        at = found.add(np.minimum(1.0, 2 * np.minimum(law.cdf(counts), law.sf(counts - 1))))
        if at is not None:
            found.finding = (
                f"{counts[at]:,} of {sizes[at[0]]:,} clients of {names[at[0]]} have the label and cohort of number {at[1]}, "
                f"and {everyone[at[1]] * sizes[at[0]] / total:,.0f} were expected"
            )
    return found.result(
        f"as declared in {found.number:,.0f} comparisons", "A cohort and a label must not depend on the value"
    )


def _rounded(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _distinct(keys: NDArray[np.uint8]) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """First places, counts and inverse of the different rows of bytes."""
    width = max(keys.shape[1], _BYTES_OF_AN_INTEGER)
    padded = np.zeros((len(keys), width), np.uint8)
    padded[:, : keys.shape[1]] = keys
    # integers are sorted much faster than bytes
    kind = np.dtype(np.uint64) if width == _BYTES_OF_AN_INTEGER else np.dtype((np.void, width))
    packed = padded.view(kind).ravel()
    _, first, inverse, counts = np.unique(packed, return_index=True, return_inverse=True, return_counts=True)
    return first, counts, inverse.ravel()
