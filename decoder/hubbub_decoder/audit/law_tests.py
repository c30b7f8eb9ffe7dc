"""Tests of reports against the declared law: rows, repeats, bits, pairs of bits, and the reports of one client.

A sample has the reports of n clients of one value. Counts of clients are binomial, because clients are independent, and their tails are exact.

    impossible reports       a row of probability 0 refutes at once
    rows                     clients with one row, each row r at the share P(r) of the level
    repeats among clients    clients whose row an earlier client with the same true bits sent
    likelihood ratios        clients whose ratio of two values reaches a threshold
    single bits              ones of each bit of each report, and of each cohort
    pairs of bits            ones at two bits of a report
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp
from scipy.stats import hypergeom

from hubbub_decoder.array_types import Bits, Floats
from hubbub_decoder.audit.clients import value_text
from hubbub_decoder.audit.evidence import Comparisons, NoiseTest, binomial_tails
from hubbub_decoder.audit.laws import Flags, ReportLaw
from hubbub_decoder.audit.loss_law import loss_law

_MAX_PAIR_OPERATIONS = 2e10
_MAX_ATOMS = 1_000
_MAX_THRESHOLDS = 64
_REPEAT_FACTORS = 1 + 2.0 ** np.arange(-10, 900, 2)
"""e**theta of the repeats: from a thousandth more repeats than the law expects, to one where it expects 1e-270."""
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
        test_of_possible_reports(samples),
        test_of_rows(samples),
        test_of_repeats_among_clients(samples),
        test_of_likelihood_ratios(samples),
        test_of_single_bits(samples),
        test_of_pairs_of_bits(samples),
        test_of_cohorts(samples),
    ]
    several = [sample for sample in samples if sample.bits.shape[1] > 1]
    if several:
        tests += [test_of_lags(several), test_of_repeats_within_clients(several)]
    return tests


def test_of_possible_reports(samples: Sequence[Sample]) -> NoiseTest:
    """Test whether all reports of a client have a positive probability, and one cohort."""
    found, number = Comparisons("impossible reports"), 0
    for sample in samples:
        logs = sample.law.log_probabilities(sample.cohorts, sample.bits)
        impossible, moved = int(np.isneginf(logs).sum()), int(sample.moved.sum())
        number += len(logs)
        for count, what in ((impossible, "reports that the mechanism cannot make"), (moved, "reports of several cohorts")):
            found.add(
                float(count == 0), lambda _, count=count, what=what, sample=sample: f"{count:,} of {len(sample.cohorts):,} clients of {sample.value} have {what}"
            )
    return found.result(f"none in {number:,} clients", "One is enough to tell values apart. " + _NOT_DECLARED)


def test_of_rows(samples: Sequence[Sample]) -> NoiseTest:
    """Test the number of clients with each row of their first report, those of the true bits among them."""
    found, distinct = Comparisons("rows of reports"), 0
    for sample in samples:
        for report in range(sample.bits.shape[1]):
            rows, logs = sample.bits[:, report], sample.law.log_probabilities(sample.cohorts, sample.bits[:, report : report + 1])
            patterns, inverse = np.unique(np.packbits(sample.truth, axis=1), axis=0, return_inverse=True)
            inverse = inverse.ravel()
            sizes = np.bincount(inverse)
            keys = np.concatenate([inverse[:, None].view(np.uint8).reshape(len(rows), -1), np.packbits(rows, axis=1)], axis=1)
            first, counts = _distinct(keys)[:2]
            distinct += len(first)
            n, log_chance = sizes[inverse[first]], np.minimum(logs[first], 0.0)
            tails = np.log(np.maximum(binomial_tails(counts, n, np.exp(log_chance)), 1e-300))
            union = gammaln(n + 1) - gammaln(counts + 1) - gammaln(n - counts + 1) + counts * log_chance  # of `counts` clients
            at_least = np.where((tails < -600) & (n * np.exp(log_chance) < 1), union, tails) - np.where(np.isneginf(log_chance), -1e9, log_chance)
            found.add(
                np.exp(np.minimum(at_least, 0.0)) * len(patterns),
                lambda at, sample=sample, first=first, counts=counts, n=n, logs=logs, report=report, rows=rows: (
                    f"report {report + 1} of {counts[at[0]]:,} of {n[at[0]]:,} clients of {sample.value} has the same row"
                    f"{', that of the value without noise' if (rows[first[at[0]]] == sample.truth[first[at[0]]]).all() else ''}, and "
                    f"{n[at[0]] * math.exp(logs[first[at[0]]]):.3g} were expected"
                ),
                number=1,
            )
    return found.result(f"{distinct:,} different rows are as frequent as declared", _NOT_DECLARED)


def test_of_repeats_among_clients(samples: Sequence[Sample]) -> NoiseTest:
    """Test whether clients repeat the first report of clients with the same true bits more often than by chance."""
    truth, rows, logs = (
        np.concatenate(arrays)
        for arrays in zip(
            *(
                (
                    np.packbits(sample.truth, axis=1),
                    np.packbits(sample.bits[:, 0], axis=1),
                    sample.law.log_probabilities(sample.cohorts, sample.bits[:, :1]),
                )
                for sample in samples
            ),
            strict=True,
        )
    )
    first, _, _ = _distinct(np.concatenate([truth, rows], axis=1))
    is_first = np.zeros(len(rows), bool)
    is_first[first] = True
    pattern = _distinct(truth)[2]
    order = np.argsort(pattern, kind="stable")
    mass = np.cumsum(np.where(is_first, np.exp(logs), 0.0)[order])
    starts = np.flatnonzero(np.diff(pattern[order], prepend=-1))
    before = np.concatenate([[0.0], mass])[:-1]
    seen = np.clip(before - np.repeat(before[starts], np.diff(np.append(starts, len(order)))), 0, 1)
    repeats, expected = int((~is_first).sum()), float(seen.sum())
    log_e = logsumexp(repeats * np.log(_REPEAT_FACTORS) - (_REPEAT_FACTORS - 1) * expected) - math.log(len(_REPEAT_FACTORS))
    found = Comparisons("repeats among clients")
    found.add(
        math.exp(-max(0.0, min(float(log_e), 700.0))),
        lambda _: f"{repeats:,} of {len(rows):,} clients repeat the row of an earlier client with the same true bits, and {expected:.3g} were expected",
    )
    return found.result(
        f"{repeats:,} of {len(rows):,} clients repeat a row, and {expected:.3g} were expected",
        "The noise has too few different values, so an observer can try them all. Draw it from the operating system's generator",
    )


def test_of_likelihood_ratios(samples: Sequence[Sample]) -> NoiseTest:
    """Test the law of the likelihood ratio of whole rows, of each value and the next one."""
    found, laws = Comparisons("likelihood ratios of rows"), list({sample.law.value: sample.law for sample in samples}.values())
    pairs = 0
    for sample in samples:
        other = laws[(laws.index(sample.law) + 1) % len(laws)] if sample.law in laws else laws[0]
        if other.value == sample.law.value or not all(block.mechanism.has_independent_bits for _, block in other.blocks):
            continue
        law = loss_law(sample.law.metric, sample.law.truth, other.truth, 1, 1)
        if len(law.loss) > _MAX_ATOMS:
            continue
        pairs += 1
        report = sample.bits[:, :1]
        scores = sample.law.log_probabilities(sample.cohorts, report) - other.log_probabilities(sample.cohorts, report)
        thresholds = law.loss[np.unique(np.linspace(0, len(law.loss) - 1, _MAX_THRESHOLDS).astype(int))]
        chances = np.array([law.first[law.loss >= threshold - 1e-6].sum() for threshold in thresholds]).clip(0, 1)
        chances[chances > 1 - 1e-9] = 1.0
        counts = (np.nan_to_num(scores, nan=0.0)[:, None] >= thresholds - 1e-6).sum(axis=0)
        usable = (chances > 0) & (chances < 1)
        if usable.any():
            found.add(
                binomial_tails(counts, len(scores), chances)[usable],
                lambda at, sample=sample, other=other, counts=counts[usable], chances=chances[usable], n=len(scores): (
                    f"the likelihood ratio of {sample.value} and {value_text(other.value)} reaches a threshold in {counts[at[0]]:,} of {n:,} clients, "
                    f"and {n * chances[at[0]]:,.0f} were expected"
                ),
            )
    return found.result(f"as declared for {pairs} values", _NOT_DECLARED)


def test_of_single_bits(samples: Sequence[Sample]) -> NoiseTest:
    """Test the number of ones at each bit of each report, and of the first report in each cohort."""
    found = Comparisons("single bits")
    for sample in samples:
        truth, bits, law = sample.truth, sample.bits, sample.law
        k = bits.shape[2]
        for true in (0, 1):
            trials = (truth == true).sum(axis=0)
            ones = ((truth == true)[:, None, :] & (bits == 1)).sum(axis=0)
            _add_bits(found, ones, trials, law.ones[true], lambda at, sample=sample: f"bit {at[1]} of report {at[0] + 1} of {sample.value}")
        cells = (sample.cohorts[:, None] * k + np.arange(k)).ravel()
        size = len(law.truth) * k
        ones = np.bincount(cells, bits[:, 0].ravel(), size).reshape(-1, k)
        trials = np.bincount(sample.cohorts, minlength=len(law.truth))[:, None]
        _add_bits(found, ones, trials, np.where(law.truth, law.ones[1], law.ones[0]), lambda at, sample=sample: f"bit {at[1]} of {sample.value} in cohort {at[0]}")
    return found.result(f"as declared in {found.number:,.0f} comparisons", _NOT_DECLARED)


def _add_bits(found: Comparisons, ones: Floats, trials: Floats, chances: Floats, where: Callable[[tuple[int, ...]], str]) -> None:
    ones, trials, chances = np.broadcast_arrays(ones, trials, chances)
    found.add(
        binomial_tails(ones, trials, chances),
        lambda at: (
            f"{where(at)} is a one in {ones[at]:,.0f} of {trials[at]:,.0f} clients, and {trials[at] * chances[at]:,.0f} were expected"
        ),
    )


def test_of_pairs_of_bits(samples: Sequence[Sample]) -> NoiseTest:
    """Test the number of clients with ones at two bits of the first report, by the true bits at both."""
    found = Comparisons("pairs of bits")
    for sample in samples:
        k, chances = sample.bits.shape[2], sample.law.pairs()
        most = max(1, int(_MAX_PAIR_OPERATIONS / k**2))
        truth, ones = sample.truth[:most].astype(np.float32), sample.bits[:most, 0].astype(np.float32)
        of = {true: (group, group * ones) for true, group in ((0, 1 - truth), (1, truth))}
        for number, (first, second) in enumerate(((0, 0), (1, 0), (1, 1))):
            trials = (of[first][0].T @ of[second][0]).round().astype(np.int64)
            counts = (of[first][1].T @ of[second][1]).round().astype(np.int64)
            used = (trials > 0) & ~np.isnan(chances[number]) & ~np.eye(k, dtype=bool)
            used &= True if first != second else np.triu(np.ones((k, k), bool))
            if not used.any():
                continue
            places = np.argwhere(used)
            found.add(
                binomial_tails(counts[used], trials[used], chances[number].clip(0, 1)[used]),
                lambda at, sample=sample, places=places, counts=counts[used], trials=trials[used], law=chances[number][used]: (
                    f"bits {places[at[0]][0]} and {places[at[0]][1]} of {sample.value} are both ones in {counts[at[0]]:,} of {trials[at[0]]:,} clients, "
                    f"and {trials[at[0]] * law[at[0]]:,.0f} were expected"
                ),
            )
    return found.result(f"as declared in {found.number:,.0f} comparisons", _NOT_DECLARED)


def test_of_lags(samples: Sequence[Sample]) -> NoiseTest:
    """Test the number of ones at one bit in two reports of a client: a permanent response is drawn once, and the noise of each report anew."""
    found = Comparisons("lags")
    for sample in samples:
        truth, bits, law = sample.truth, sample.bits.astype(bool), sample.law
        independent = np.concatenate([np.full(block.num_bits, block.mechanism.has_independent_bits) for _, block in law.blocks])
        for first, second in combinations(range(bits.shape[1]), 2):
            both, chances = bits[:, first] & bits[:, second], law.ones_in_both(first, second)
            where = f"in reports {first + 1} and {second + 1} of {sample.value}"
            for true in (0, 1):
                trials, counts = (truth == true).sum(axis=0), ((truth == true) & both).sum(axis=0)
                _add_bits(found, counts[None], trials[None], chances[true][None], lambda at, where=where: f"bit {at[1]} {where}")
                for chance in np.unique(chances[true][independent]):
                    pooled = independent & (chances[true] == chance)
                    _add_bits(found, counts[pooled].sum(), trials[pooled].sum(), chance, lambda _, where=where: f"any bit {where}")
    return found.result(f"as declared in {found.number:,.0f} comparisons", "The permanent response must be drawn once for a value and an epoch, and the noise of each report anew")


def test_of_repeats_within_clients(samples: Sequence[Sample]) -> NoiseTest:
    """Test the number of clients with equal rows in two reports."""
    found = Comparisons("repeats within a client")
    for sample in samples:
        for first, second in combinations(range(sample.bits.shape[1]), 2):
            equal = (sample.bits[:, first] == sample.bits[:, second]).all(axis=1)
            logs = sample.law.log_repeats(first, second)
            for log in np.unique(logs):
                of_law = (logs == log)[sample.cohorts]
                count, trials = int(equal[of_law].sum()), int(of_law.sum())
                found.add(
                    binomial_tails(count, trials, min(1.0, math.exp(log))),
                    lambda _, count=count, trials=trials, log=log, first=first, second=second, sample=sample: (
                        f"reports {first + 1} and {second + 1} of {sample.value} are equal in {count:,} of {trials:,} clients, and {trials * math.exp(log):.3g} were expected"
                    ),
                )
    return found.result(f"as declared in {found.number:,.0f} comparisons", "Draw the noise of each report anew")


def test_of_cohorts(samples: Sequence[Sample]) -> NoiseTest:
    """Test whether cohorts are uniform, and labels independent of the value."""
    found, metric = Comparisons("cohorts"), samples[0].law.metric
    m, all_numbers = metric.num_cohorts, len(samples[0].law.truth)
    counts = np.array([np.bincount(sample.cohorts, minlength=all_numbers) for sample in samples])
    of_value = np.zeros((0, all_numbers), np.int64)
    for value in dict.fromkeys(sample.law.value for sample in samples):
        mine = np.array([sample.law.value == value for sample in samples])
        of_value = np.concatenate([of_value, counts[mine].sum(axis=0)[None]])
    names = [value_text(value) for value in dict.fromkeys(sample.law.value for sample in samples)]
    cohorts, sizes = of_value.reshape(len(names), -1, m).sum(axis=1), of_value.sum(axis=1)
    if m > 1:
        found.add(
            binomial_tails(cohorts, sizes[:, None], 1 / m),
            lambda at: f"{cohorts[at]:,} of {sizes[at[0]]:,} clients of {names[at[0]]} are in cohort {at[1]}, and {sizes[at[0]] / m:,.0f} were expected",
        )
    if all_numbers > m:
        everyone, total = of_value.sum(axis=0), int(of_value.sum())
        low, high = (
            hypergeom.cdf(of_value, total, everyone, sizes[:, None]),
            hypergeom.sf(of_value - 1, total, everyone, sizes[:, None]),
        )
        found.add(
            np.minimum(1.0, 2 * np.minimum(low, high)),
            lambda at: f"{of_value[at]:,} of {sizes[at[0]]:,} clients of {names[at[0]]} have label and cohort number {at[1]}, and {everyone[at[1]] * sizes[at[0]] / total:,.0f} were expected",
        )
    return found.result(f"as declared in {found.number:,.0f} comparisons", "A cohort and a label must not depend on the value")


def _distinct(keys: NDArray[np.uint8]) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """First places, counts and inverse of the different rows of bytes."""
    packed = np.ascontiguousarray(keys).view(np.dtype((np.void, keys.shape[1]))).ravel()
    _, first, inverse, counts = np.unique(packed, return_index=True, return_inverse=True, return_counts=True)
    return first, counts, inverse.ravel()
