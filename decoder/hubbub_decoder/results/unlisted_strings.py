"""Frequent unlisted strings of a decoding: share, and the signature that identifies the string among other words.

Signature: the bits of the string in each cohort, and the probability p_c that they are right. For any other word, the bits in each cohort
are random, whatever the reports are; they lie within the signature's bits with a known probability r_c:

    evidence = prod_c ( p_c [bits of the word within the signature's] / r_c + 1 - p_c )        expectation 1 for any other word

A word matches if its evidence exceeds 1,000 times the number of words: a false match has probability at most 1/1,000 in all (Markov,
Bonferroni). Two strings that cannot be told apart have one signature, with the bits of both.
docs/explanation/mathematics.md, section 16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hubbub.metrics.params import Params
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.unlisted_strings import UnlistedFit
from hubbub_decoder.inference.intervals import normal_interval
from hubbub_decoder.model.random_string import probability_within
from hubbub_decoder.model.vectorized_hashing import bit_positions
from hubbub_decoder.options import Options
from hubbub_decoder.result import Result
from hubbub_decoder.results.estimates import ShareEstimate

_EVIDENCE = 1000.0  # for each word that is compared
_MAX_PROBABILITY = 0.99  # of the found bits: a cohort whose reports mislead must not refute a word alone
_WORDS_AT_ONCE = 1 << 14


@dataclass(frozen=True, slots=True, eq=False)
class CohortBits(Result):
    """Bits of an unlisted string, or of two that cannot be told apart, in one cohort.

    Attributes
    ----------
    cohort
        The cohort.
    bits
        Positions of the bits.
    probability
        Probability that these are the bits.
    """

    cohort: int
    bits: tuple[int, ...]
    probability: float


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class UnlistedString(ShareEstimate):
    """Frequent string that is not a candidate, with its share and interval at `Decoding.confidence`.

    Attributes
    ----------
    share
        Unbiased estimate of the share. It is not clipped to [0, 1].
    std_error
        Standard error of the share.
    low
        Lower end of the confidence interval, not clipped.
    high
        Upper end of the confidence interval, not clipped.
    num_strings
        1, or 2 strings that cannot be told apart, with the share of both together.
    separated
        Whether its bits are known, so that it no longer widens the intervals of the candidates.
    signature
        Its bits in each cohort with reports.
    matches
        Words that have its bits (`Decoding.match_unlisted`), the likeliest first.
    """

    num_strings: int
    separated: bool
    signature: tuple[CohortBits, ...]
    matches: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Name of the row in tables."""
        return "(unlisted)" if self.num_strings == 1 else "(2 unlisted)"


def build_unlisted_string(found: UnlistedFit, num_bits: int, options: Options) -> UnlistedString:
    """Found string with its interval."""
    error = math.sqrt(found.variance if options.target == "population" else found.reporter_variance)
    low, high = normal_interval(found.share, error, options.confidence)
    signature = tuple(
        CohortBits(cohort, tuple(sorted({bit for bit in bits if bit < num_bits})), round(probability, 6))
        for cohort, bits, probability in zip(
            found.cohorts.tolist(),
            found.positions.transpose(1, 0, 2).reshape(len(found.cohorts), -1).tolist(),
            found.probabilities.tolist(),
            strict=True,
        )
    )
    return UnlistedString(found.share, error, low, high, found.number, found.separated, signature)


def matching_words(string: UnlistedString, words: Sequence[str], params: Params) -> tuple[str, ...]:
    """Words that have the bits of the string, the likeliest first.

    >>> params = Params(num_bits=16, num_hashes=1, num_cohorts=6, prob_p=0.25, prob_q=0.75, prob_f=0)
    >>> found = [CohortBits(c, (int(bit),), 1.0) for c, (bit,) in enumerate(bit_positions(["the"], params)[0])]
    >>> matching_words(UnlistedString(0.1, 0.01, 0.08, 0.12, 1, True, tuple(found)), ["of", "the", "and"], params)
    ('the',)
    """
    evidence = np.concatenate(
        [
            _log_evidence(string, words[start : start + _WORDS_AT_ONCE], params)
            for start in range(0, len(words), _WORDS_AT_ONCE)
        ]
        or [np.empty(0)]
    )
    matching = np.flatnonzero(evidence > math.log(_EVIDENCE * max(1, len(words))))
    return tuple(words[i] for i in matching[np.argsort(-evidence[matching], kind="stable")])


def _log_evidence(string: UnlistedString, words: Sequence[str], params: Params) -> Floats:
    """Log of the evidence that each word is the string, (words,)."""
    positions = bit_positions(words, params)
    k = params.num_bits
    total = np.zeros(len(words))
    for found in string.signature:
        p = min(found.probability, _MAX_PROBABILITY)
        within = np.isin(positions[:, found.cohort], [*found.bits, k]).all(axis=1)
        total += np.log(within * (p / probability_within(len(found.bits), params)) + 1 - p)
    return total
