"""P-values of candidates, by comparison with random strings, and q-values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from scipy.stats import norm

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.inference.null_distribution import ErrorLaw, chance_to_look_there
from hubbub_decoder.model.random_string import RandomPlaces

_LIKELY = 0.1
_DOUBTED, _COHORTS = 20, 64  # how many at most in so many cohorts; in fewer, more
_ANYBODY = 1e-4

Chances = Callable[[Indices], Iterable[float]]
Seen = tuple[Sequence[float] | Floats, list[Floats]]
"""What each cohort says for a candidate that is left out of the model, and for random strings, in the candidate's standard errors."""


def tested(
    shares: Floats,
    errors: Floats,
    anybody: Iterable[Floats],
    left_out: Callable[[Indices], Iterable[Seen]],
    strings: RandomPlaces,
    cohorts: int,
) -> tuple[ErrorLaw, Floats]:
    """Return how random strings err, and how often one would look as frequent as each candidate: (M,), nan where nothing is known.

    shares, errors : (M,) estimates and their standard errors, nan where nothing is known
    anybody        : of each cohort, what random strings score, in standard errors of a typical candidate
    left_out       : of some candidates, each left out of the model
    cohorts        : that sent anything
    """
    known = ~np.isnan(errors)
    if not known.any():
        return ErrorLaw.of([]), np.full(len(known), np.nan)
    common = ErrorLaw.of(anybody, strings.chances)
    p, normal = (np.where(known, p_values(shares, errors, law), np.nan) for law in (common, None))

    def chances(some: Indices) -> Iterator[float]:
        for own, scores in left_out(some):
            yield chance_to_look_there(own, scores, strings.same, strings.chances)

    return common, p_values_by_themselves(p, normal, chances, cohorts, strings.alike(cohorts))


def p_values(shares: Floats, null_std_errors: Floats, law: ErrorLaw | None = None) -> Floats:
    """Return P(Z >= x / s), one-sided: how often a candidate that nobody reported looks at least so frequent.

    law : of Z; None: normal
    null_std_errors : s of each share were it 0; where s = 0, without any noise, a positive share is certain; nan where s is nan

    >>> p_values(np.array([0.0, 0.2]), np.array([0.1, 0.0])).tolist()
    [0.5, 0.0]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        z = shares / null_std_errors
    z = np.where((shares == 0) & (null_std_errors == 0), -np.inf, z)
    return law.tail(z) if law else np.asarray(norm.sf(z))


def p_values_by_themselves(p: Floats, normal: Floats, chances: Chances, cohorts: int, alike: float) -> Floats:
    """Return p-values, those that decide what is found replaced by what the candidate's cohorts say one by one, never below the normal's.

    What is estimated of the others may have taken up what a candidate has in common with a frequent string that nobody lists; all errors look small
    then. So those that may be found are compared with random strings in the same reports, the model without them (`chance_to_look_there`): first
    those about to be found, the least sure of them, then those that a normal law would find, the surest of them. No p is raised above 1/2, from where
    it would tell of how many are nothing.

    p       : by the law of random strings; nan where nothing is known         normal : by a normal law
    chances : of some candidates, each left out of the model
    alike   : the chance that a random string has the bits of a candidate in all cohorts; where it is not small p stays: any candidate may well be a
              frequent string of the same bits that nobody lists, and none could be found
    """
    if alike > _ANYBODY:
        return p
    judged, known = p.copy(), np.flatnonzero(~np.isnan(p))
    found, perhaps = (known[np.maximum(some[known], q_values(some[known])) <= _LIKELY] for some in (p, normal))
    perhaps = np.setdiff1d(perhaps, found)
    most = _DOUBTED * max(1, _COHORTS // cohorts)
    doubted = np.concatenate([found[np.argsort(-p[found])], perhaps[np.argsort(normal[perhaps])]])[:most]
    for j, chance in zip(doubted, chances(doubted), strict=True):
        judged[j] = max(float(normal[j]), min(chance, 0.5))
    return judged


def q_values(p: Floats) -> Floats:
    """Return the smallest false discovery rate at which each test is called found.

        q_(i) = pi_0 min over j >= i of p_(j) M / j        pi_0 = min(1, (1 + #{p > 1/2}) / (M / 2))        q = 1 where p > 1/2

    p sorted ascending, M tests; pi_0 estimates the share of candidates that nobody reported, from those above 1/2. What is above it
    is never found, however few they are: the rate is only held for rejections up to lambda.
    Source: Benjamini & Hochberg 1995; Storey, Taylor & Siegmund 2004, eq. 6 and theorem 3 with lambda = 1/2.

    >>> q_values(np.array([0.01, 0.9, 0.02])).tolist()
    [0.03, 1.0, 0.03]
    """
    if not len(p):
        return p
    null_share = min(1.0, 2 * (1 + float(np.sum(p > 0.5))) / len(p))
    order = np.argsort(p)
    scaled = p[order] * len(p) / np.arange(1, len(p) + 1)
    q = np.empty_like(p)
    q[order] = np.minimum(null_share * np.minimum.accumulate(scaled[::-1])[::-1], 1)
    q[p > 0.5] = 1
    return q
