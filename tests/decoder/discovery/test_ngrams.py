"""Joins of prefixes with n-grams: the comparison of their shares, and searches of n-grams."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hubbub.metrics.discovery import END
from hubbub_decoder.discovery.extensions import SAME_SHARE, SAME_STRING, Candidates
from hubbub_decoder.discovery.ngrams import join_ngrams
from hubbub_decoder.discovery.prefix_shares import PrefixShares, Prior

STD_ERROR = 1e-4


def joined(
    candidates: dict[bytes, tuple[float, int]],
    mu: dict[int, float],
    ngrams: dict[bytes, float],
    num_whole: int = 0,
) -> dict[bytes, float]:
    """Posterior probabilities of candidates; (probability, number of the prefix) of each, shares of prefixes and of n-grams."""
    size = len(candidates)
    rho, parents = (np.array(column) for column in zip(*candidates.values(), strict=True))
    whole = np.arange(size) < num_whole
    prior = Prior(
        np.log(rho) - np.log1p(-rho),
        np.array([mu[parent] for parent in parents]),
        np.full(size, STD_ERROR**2),
        np.where(whole, SAME_STRING, SAME_SHARE),
    )

    def estimate(fragments: Sequence[bytes], of: Prior) -> PrefixShares:
        x = np.array([ngrams[fragment] for fragment in fragments])
        likelihood = np.minimum((x / STD_ERROR) ** 2 / 2, 40) - 2
        same = np.full(len(x), STD_ERROR)
        return PrefixShares(np.minimum(of.log_odds + likelihood, 30), x, same**2, same)

    ends = [fragment[-3:] if fragment[-1:] != END or num_whole == 0 else END for fragment in candidates]
    of_whole = Candidates(list(candidates), prior, np.where(whole, -1, parents))
    found = join_ngrams(ends, of_whole, estimate)
    return dict(zip(candidates, 1 / (1 + np.exp(-found.log_odds)), strict=True))


def test_join_chooses_the_ngram_with_the_share_of_the_prefix() -> None:
    """Two prefixes with shares of 2 % and .5 % and the same last symbol, and two n-grams with these shares."""
    candidates = {b"xabc": (1e-3, 0), b"xade": (1e-3, 0), b"yabc": (1e-3, 1), b"yade": (1e-3, 1)}
    found = joined(candidates, {0: 0.02, 1: 0.005}, {b"abc": 0.02, b"ade": 0.005})
    assert min(found[b"xabc"], found[b"yade"]) > 0.85
    assert max(found[b"xade"], found[b"yabc"]) < 0.1


def test_prefix_goes_on_in_a_frequent_ngram_of_many_strings() -> None:
    """The only n-gram that has at least the share of the prefix is shared with strings whose prefixes were lost."""
    found = joined({b"xabc": (1e-3, 0), b"xade": (1e-3, 0)}, {0: 0.02}, {b"abc": 0.3, b"ade": 0.0})
    assert found[b"xabc"] > 0.85 * 2e-3  # the probability of the prefix is that of its extensions
    assert found[b"xade"] < 0.1 * 1e-3


def test_absent_ngram_excludes_a_probable_extension() -> None:
    found = joined({b"xabc": (0.8, 0), b"xade": (0.01, 0)}, {0: 0.02}, {b"abc": 0.0, b"ade": 0.02})
    assert found[b"xade"] > 0.7
    assert found[b"xabc"] < 0.8


@pytest.mark.parametrize("probability", [0.2, 0.99])
def test_whole_strings_that_ended_before_keep_their_probability(probability: float) -> None:
    """Their n-gram is the end marker, which all ended strings report: it is no evidence for one of them."""
    whole = {f"{number}".encode() + END: (probability, number) for number in range(10)}
    found = joined(whole, dict.fromkeys(range(10), 0.01), {END: 0.3}, num_whole=10)
    assert list(found.values()) == pytest.approx([probability] * 10)
