"""Declared law of the reports of one unchanging value: of rows, of bits, of pairs of bits, and of repeats.

A client of cohort c has the true bits B of the value. Its reports of one epoch come from one permanent response, epochs are independent, and
so are the blocks of a joint metric.

    ln P(reports | value)      = sum over epochs and blocks of `Mechanism.log_probabilities`
    P(s ones in t reports | 1) = a Bin(s; t, q) + (1 - a) Bin(s; t, p)            P(s | 0): b in place of a
    P(ones in two reports | 1) = a q**2 + (1 - a) p**2 of one epoch, (q*)**2 of two
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from hubbub.encoding.bloom import bloom_bits
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub_decoder.array_types import Bits, Floats
from hubbub_decoder.audit.clients import AuditedValue
from hubbub_decoder.errors import AuditError
from hubbub_decoder.random_state import seeded

Flags = NDArray[np.bool_]
_RESPONSES = 32
"""Permanent responses of a value, which are all equal by chance with probability 2**-31 or less if they are random."""


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


def response_bits(metric: Metric, value: AuditedValue) -> Bits:
    """(m, k) true bits after each permanent response without noise: the true set of a whole set, or no change.

    Raises AuditError for a value of which the permanent response is random without being noise: a set that blanks fill up.
    """
    bits = true_bits(metric, value)
    for start, block in zip(metric.kind.first_bits, metric.blocks, strict=True):
        of_block = slice(start, start + block.num_bits)
        if block.mechanism.has_independent_bits or block.mechanism.has_permanent_noise:
            continue
        num_bytes, respond = block.mechanism.permanent_response(block.num_bits)
        rng = seeded(0)
        words = [rng.bytes(num_bytes) for _ in range(_RESPONSES)]
        for cohort, row in enumerate(bits[:, of_block]):
            own = int.from_bytes(np.packbits(row, bitorder="little").tobytes(), "little")
            response, *others = {respond(own, word) for word in words}
            if others:
                raise AuditError(
                    f"{metric.name}: the true set of {value!r} has random blanks, so its rows have no single law. "
                    "Audit sets of max_items items, and no value"
                )
            bits[cohort, of_block] = [response >> bit & 1 for bit in range(block.num_bits)]
    return bits


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


@dataclass(frozen=True)
class ReportLaw:
    """Law of T consecutive reports of one value, from the start of an epoch.

    metric : definition      value : of all reports
    """

    metric: Metric
    value: AuditedValue

    @cached_property
    def truth(self) -> Flags:
        """(cohorts, k) true bits, which decide the law."""
        return response_bits(self.metric, self.value).astype(bool)

    @cached_property
    def blocks(self) -> list[tuple[slice, Params]]:
        """Bits of each block, with its parameters."""
        ends = [*self.metric.kind.first_bits, self.metric.num_bits]
        return [(slice(*pair), block) for pair, block in zip(pairwise(ends), self.metric.blocks, strict=True)]

    def epochs(self, reports: int) -> list[slice]:
        """Reports of each epoch."""
        hold = self.metric.hold or reports
        return [slice(start, min(start + hold, reports)) for start in range(0, reports, hold)]

    def in_one_epoch(self, first: int, second: int) -> bool:
        """Whether two reports come from one permanent response."""
        hold = self.metric.hold
        return hold is None or first // hold == second // hold

    def log_probabilities(self, cohorts: NDArray[np.int64], bits: Bits) -> Floats:
        """(n,) ln P(reports | value, cohort) of clients with reports (n, T, k)."""
        truth, reports = self.truth[cohorts], bits.view(bool)
        logs = np.zeros(len(bits))
        for epoch in self.epochs(bits.shape[1]):
            for of_block, block in self.blocks:
                logs += block.mechanism.log_probabilities(reports[:, epoch, of_block], truth[:, of_block])
        return logs

    @cached_property
    def has_independent_noise(self) -> Flags:
        """(k,) whether the noise of a bit is independent of that of all other bits."""
        return np.concatenate(
            [np.full(block.num_bits, block.mechanism.has_independent_bits) for _, block in self.blocks]
        )

    @cached_property
    def ones(self) -> Floats:
        """(2, k) probability of a one in a report, given the true bit."""
        return np.concatenate(
            [np.tile([[block.mechanism.p_star], [block.mechanism.q_star]], block.num_bits) for _, block in self.blocks],
            axis=1,
        )

    def ones_in_both(self, first: int, second: int) -> Floats:
        """(2, k) probability of ones at a bit in two reports, given the true bit."""
        if not self.in_one_epoch(first, second):
            return self.ones**2
        return np.concatenate(
            [np.repeat(count_probabilities(block, 2)[:, 2:], block.num_bits, axis=1) for _, block in self.blocks],
            axis=1,
        )

    def pairs(self, first: int, second: int) -> Floats:
        """(3, k, k) probability of ones at bit i of one report and bit j of another, or the same; nan if it is unknown.

        Of the bits, none is true, bit i is true, or both are. Reports of one epoch share the permanent noise.
        """
        zero, one = self.ones
        law = np.stack([np.outer(zero, zero), np.outer(one, zero), np.outer(one, one)])
        for of_block, block in self.blocks:
            if not block.mechanism.has_independent_bits:
                instantaneous, permanent = np.array(block.mechanism.noise_covariances())
                shared = instantaneous * (first == second) + permanent * self.in_one_epoch(first, second)
                law[:, of_block, of_block] += np.array([*shared, np.nan])[:, None, None]
        return law

    def log_repeats(self, *, of_one_response: bool) -> Floats:
        """(cohorts,) ln of the probability that two reports are equal, of one permanent response or of two."""
        logs = np.zeros(len(self.truth))
        for of_block, block in self.blocks:
            logs += [
                block.mechanism.log_repeat(block.num_bits, ones)
                if of_one_response
                else block.mechanism.log_collision(block.num_bits, ones, 1)
                for ones in self.truth[:, of_block].sum(axis=1).tolist()
            ]
        return logs
