"""Prefixes from the n-grams of a group: each candidate prefix ends with an n-gram, which other strings may have as well.

The candidates are extensions of the prefixes of the group before, so their n-grams overlap with those of that group. The share x of an
n-gram, with variance s**2, is the sum of the shares of all strings that have it at this place. A candidate c has prior odds o_c, and its
prefix a share of mean mu_c and variance v_c. Let L be the likelihood ratio of x, for a share of any size against none, and b = ln(1 / s):

    r_c = x b N(x; mu_c, s**2 + v_c)                c alone has the n-gram, and the share of its prefix
    h_c = w r_c + (1 - w) P(mu_c > x)               c alone has the n-gram: the same share, or a smaller one
    P(x | c present) / P(x | no string) = L ( q_0 h_c + 1 - q_0 )
    P(x | c absent)  / P(x | no string) = q_0 + L ( q_0 A + q_2 )                   A = sum of o h over the other strings

q_0, q_1 = q_0 sum of o, and q_2 = 1 - q_0 - q_1 are the probabilities that none, one, and more than one of the other strings have the
n-gram. Strings whose prefix was lost are among them, with h = 1. The posterior odds of c are o_c times the ratio of the two lines.

The share of a prefix goes on in one of its extensions, whose n-gram has at least this share. So extension c of a present prefix is this
one with a probability proportional to its prior probability times the likelihood ratio of the share mu_c,

    L ( q_0 r_c + (1 - q_0) P(mu_c < x) ) / ( q_0 + L ( q_0 A + q_2 ) )

and c has the larger one of both probabilities. Without it a frequent n-gram, which many strings have, would add no evidence. A string
that ended before the n-gram keeps its probability and share: its clients report the end marker, as those of all ended strings do.

Source: Fanti, Pihur & Erlingsson 2016, sec. 5, has the n-grams, and joins those that overlap. docs/mathematics.md, equation (21.5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from hubbub.metrics.discovery import END
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.discovery.extensions import MAX_CERTAINTY, Candidates
from hubbub_decoder.discovery.prefix_shares import MAX_LOG_ODDS, SMALLEST_SCORE, PrefixShares, Prior

_LARGEST_RHO = 1 - 1e-6
_LOST = 1e-4  # probability that strings whose prefix was lost have an n-gram
_NO_EXTENSION = 1e-6  # likelihood ratio of a prefix whose share goes on in an extension that was not compared


@dataclass(frozen=True, eq=False)
class _Fit:
    """Shares of n-grams against those of the candidates' prefixes: (M,) each.

    same  : r, likelihood ratio of one share for both, against any share
    below : P(mu < x)
    alone : h, likelihood ratio if no other string has the n-gram
    means, variances : of the candidate's share: that of both together with the probability of `same`, else the smaller one
    """

    same: Floats
    below: Floats
    alone: Floats
    means: Floats
    variances: Floats

    @classmethod
    def of_shares(cls, x: Floats, std_errors: Floats, prior: Prior) -> _Fit:
        """Compare the shares x of the n-grams."""
        mu, v, own = prior.means, prior.variances, std_errors**2
        both = own + v
        z = (x - mu) / np.sqrt(both)
        breadth = -np.log(np.minimum(std_errors, 1 / math.e))
        same = x * breadth * np.exp(-(z**2) / 2) / np.sqrt(2 * math.pi * both)
        same = np.where(x > SMALLEST_SCORE * std_errors, same, 0.0)
        alone = prior.weight * same + (1 - prior.weight) * ndtr(-z)
        is_same = prior.weight * same / np.maximum(alone, np.finfo(float).tiny)
        of_same, smaller = (x * v + mu * own) / both, np.minimum(x, mu)
        variances = is_same * own * v / both + (1 - is_same) * np.where(x < mu, own, v)
        variances += is_same * (1 - is_same) * (of_same - smaller) ** 2
        return cls(same, ndtr(z), alone, is_same * of_same + (1 - is_same) * smaller, variances)


def join_ngrams(
    ngrams: Sequence[bytes], candidates: Candidates, estimate: Callable[[Sequence[bytes], Prior], PrefixShares]
) -> PrefixShares:
    """Posteriors of candidate prefixes from the estimates of the n-grams with which they end.

    ngrams   : of each candidate
    estimate : estimates of distinct fragments with a prior of each
    """
    prior, numbers = candidates.prior, dict[bytes, int]()
    of: Indices = np.array([numbers.setdefault(ngram, len(numbers)) for ngram in ngrams], np.int64)
    rho = np.minimum(1 / (1 + np.exp(-prior.log_odds)), _LARGEST_RHO)
    log_none = np.bincount(of, np.log1p(-rho)) + math.log1p(-_LOST)
    ngram_odds = np.log(-np.expm1(log_none)) - log_none
    found = estimate(list(numbers), _any_share(ngram_odds))
    fit = _Fit.of_shares(found.means[of], found.std_errors[of], prior)
    ratio = np.exp(np.clip(found.log_odds - ngram_odds, -MAX_LOG_ODDS, MAX_LOG_ODDS))[of]
    odds, lost = rho / (1 - rho), _LOST / (1 - _LOST)
    none = np.exp(log_none[of] - np.log1p(-rho))
    several = np.maximum(1 - none - none * _of_others(of, odds, lost), 0)
    absent = none + ratio * (none * _of_others(of, odds * fit.alone, lost) + several)
    present = ratio * (none * fit.alone + 1 - none)
    heir = _heirs(candidates.parents, rho, ratio * (none * fit.same + (1 - none) * fit.below) / absent)
    log_odds = np.maximum(prior.log_odds + np.log(present / absent), np.log(heir) - np.log1p(-heir))
    gone = of == numbers.get(END, -1)
    return PrefixShares(
        np.where(gone, prior.log_odds, np.minimum(log_odds, MAX_LOG_ODDS)),
        np.where(gone, prior.means, fit.means),
        np.where(gone, prior.variances, fit.variances),
        found.std_errors[of],
    )


def _any_share(log_odds: Floats) -> Prior:
    """Prior of n-grams, which may have any share."""
    size = len(log_odds)
    return Prior(log_odds, np.zeros(size), np.ones(size), np.full(size, np.finfo(float).tiny))


def _of_others(of: Indices, weights: Floats, lost: float) -> Floats:
    """Sum (M,) of the weights of the other candidates with the same n-gram, and of lost strings."""
    return np.asarray(np.maximum(np.bincount(of, weights)[of] - weights, 0) + lost)


def _heirs(parents: Indices, rho: Floats, ratio: Floats) -> Floats:
    """Probability (M,) that the share of the prefix goes on in each extension, given likelihood ratios. For whole strings it is negligible."""
    of, is_open = parents + 1, parents >= 0
    present = np.bincount(of, rho)
    total = np.bincount(of, rho * ratio) + _NO_EXTENSION * present
    heirs = MAX_CERTAINTY * np.minimum(present, 1)[of] * rho * ratio / total[of]
    return np.where(is_open, np.maximum(heirs, np.finfo(float).tiny), np.finfo(float).tiny)
