"""How well reports of one person can be matched by their content: the permanent bits are the same in all of them.

Somebody who has individual reports, in any order and without addresses, compares two: of one person they show the same permanent bits,
of two people independent ones. Both are taken to report the same unchanging value, so that nothing but the permanent noise tells them apart.

The measure is the mutual information between t reports and t other reports of one person, I nats. To find a person's reports among
those of n people, one match for each, succeeds with chance at most (I + ln 2) / ln n (Fano's inequality); so I against ln n, or e**I
against n, says in how large a crowd one person's reports can be told from others'. Where e**I is near 1 they can hardly be matched at all.

Conventions: g = f/2; a permanent bit is one with chance 1-g where the true bit is one, g where it is zero; bits are independent, so
I adds up over them. As t grows it tends to k (-g ln g - (1-g) ln(1-g)), the entropy of all permanent bits: they identify the client under one secret.
"""

from __future__ import annotations

import math

from hubbub.errors import ParameterError
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params

LINKABLE_GROUP_SIZE = 100
"""Where two reports tell apart one of so many people or more, they are as good as signed."""


def effective_group_size(params: Params, reports: float = 1) -> float:
    """Return e**I, of how many people t reports and t others of the same value tell one: 1 is none, and f = 0 has no noise to know one by.

    reports : t, a whole number from 1, or math.inf for all of the permanent bits

    >>> usual, two_coins = (Params.one_hot(100, prob_p=p, prob_q=1 - p, prob_f=0.5) for p in (0.4, 0))
    >>> round(effective_group_size(usual), 3), effective_group_size(two_coins) > 1e24
    (1.047, True)
    """
    return math.exp(min(mutual_information(params, reports), 700.0))


def mutual_information(params: Params, reports: float = 1) -> float:
    """Return I, in nats, of the value ("no value" among them) for which it is largest."""
    if not (reports == math.inf or (reports >= 1 and float(reports).is_integer())):
        raise ParameterError(f"reports must be a whole number from 1, or math.inf, got {reports}")
    g = params.prob_f / 2
    zero, one = (_bit_information(params.prob_p, params.prob_q, chance, reports) for chance in (g, 1 - g))
    k, h = params.num_bits, params.num_hashes
    return max(0.0, k * zero, (k - h) * zero + h * one)


def match_probability_bound(params: Params, crowd: int, reports: float = 1) -> float:
    """Bound the chance to find a person's t reports among those of so many people by t others: Fano's inequality.

    Source: Cover and Thomas 2006, theorem 2.10.1, for a uniform person, whose mutual information with what is seen is at most I.
    """
    if isinstance(crowd, bool) or not isinstance(crowd, int) or crowd < 2:
        raise ParameterError(f"a crowd has a whole number of people, at least 2, got {crowd!r}")
    return min(1.0, (mutual_information(params, reports) + math.log(2)) / math.log(crowd))


def linkability_warning(metric: Metric) -> str | None:
    """Say that two reports of a metric are as good as signed, or None; `hold = 1` draws the permanent bits anew for each."""
    crowd = 1 if metric.hold == 1 else effective_group_size(metric.params)
    if crowd < LINKABLE_GROUP_SIZE:
        return None
    return (
        f"{metric.name}: two reports of one person can be matched: by their permanent noise alone they tell one of {crowd:,.3g} people "
        f"from the others: bring prob_p and prob_q closer together, take fewer bits, or hold = 1"
    )


def _bit_information(p: float, q: float, chance: float, reports: float) -> float:
    """Return the mutual information of two counts of ones, given a permanent bit that is one with this chance."""
    if chance in (0, 1):
        return 0.0
    if math.isinf(reports):
        return -chance * math.log(chance) - (1 - chance) * math.log(1 - chance) if p != q else 0.0
    t = int(reports)
    if_zero, if_one = (tuple(_binomial(t, s, rate) for s in range(t + 1)) for rate in (p, q))
    alone = [(1 - chance) * zero + chance * one for zero, one in zip(if_zero, if_one, strict=True)]
    terms = []
    for s in range(t + 1):
        for u in range(t + 1):
            both = (1 - chance) * if_zero[s] * if_zero[u] + chance * if_one[s] * if_one[u]
            if both > 0:
                terms.append(both * math.log(both / (alone[s] * alone[u])))
    return math.fsum(terms)


def _binomial(n: int, s: int, rate: float) -> float:
    return math.comb(n, s) * rate**s * (1 - rate) ** (n - s)
