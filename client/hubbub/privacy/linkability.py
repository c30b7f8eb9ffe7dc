"""Linkability: how well reports of one client can be linked by their permanent bits.

Attacker: has individual reports without order or addresses, and compares two sets of them. Reports of one client share their
permanent bits; those of two clients are independent. All clients report the same unchanging value, so only permanent noise differs.

    I = mutual information between t reports and t other reports of one client, in nats; I adds up over the k independent bits, and over parts
    P(correct match among n clients) <= (I + ln 2) / ln n          Fano's inequality

So e**I is the effective group size: near 1, reports cannot be linked; reports of one client can be found among about e**I clients.
As t grows, I tends to the entropy of all permanent bits, (k - h) H(b) + h H(a) of a value, which identify the client under one secret.

Conventions: a permanent bit is one with probability a = permanent_q if the true bit is one, with probability b = permanent_p if it
is zero. H(x) = -x ln x - (1-x) ln(1-x).
"""

from __future__ import annotations

import math

from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.number_checks import check_integer
from hubbub.privacy.loss import check_num_reports

LINKABLE_GROUP_SIZE = 100
"""Effective group size of two reports from which `linkability_warning` warns."""


def effective_group_size(metric: Metric | Params, num_reports: float = 1) -> float:
    """Return e**I, the effective group size.

    It is the number of clients among which t reports identify t other reports of the same client and value.

    Parameters
    ----------
    metric
        Metric, or the `Params` of one.
    num_reports
        t, an integer >= 1, or math.inf for all of the permanent bits.

    Returns
    -------
    float
        e**I >= 1. The value 1 means that reports cannot be linked, as at f = 0, where there is no permanent noise.

    Raises
    ------
    ParameterError
        `num_reports` is out of range.

    Examples
    --------
    >>> from hubbub.metrics.params import Params
    >>> usual, two_coins = (Params.one_hot(100, prob_p=p, prob_q=1 - p, prob_f=0.5) for p in (0.4, 0))
    >>> round(effective_group_size(usual), 3), effective_group_size(two_coins) > 1e24
    (1.047, True)
    """
    return math.exp(min(mutual_information(metric, num_reports), 700.0))


def mutual_information(metric: Metric | Params, num_reports: float = 1) -> float:
    """Return I in nats, for the value ("no value" included) for which it is largest."""
    check_num_reports(num_reports)
    return math.fsum(
        block.mechanism.mutual_information(block.num_bits, block.possible_ones, num_reports) for block in metric.blocks
    )


def match_probability_bound(metric: Metric | Params, group_size: int, num_reports: float = 1) -> float:
    """Return an upper bound of the probability of linking t reports of one client to t others.

    Parameters
    ----------
    metric
        Metric, or the `Params` of one.
    group_size
        n, the number of clients in the group, an integer >= 2.
    num_reports
        t, an integer >= 1, or math.inf for all of the permanent bits.

    Returns
    -------
    float
        Probability in [0, 1].

    Raises
    ------
    ParameterError
        An argument is out of range.

    Notes
    -----
    With I, the logarithm of `effective_group_size`, the bound is::

        min(1, (I + ln 2) / ln n)

    References
    ----------
    Fano's inequality, Cover and Thomas 2006, theorem 2.10.1, for a uniformly drawn client.
    """
    check_integer("group_size", group_size, 2, hint="pass the number of clients of the group")
    return min(1.0, (mutual_information(metric, num_reports) + math.log(2)) / math.log(group_size))


def linkability_warning(metric: Metric) -> str | None:
    """Return a warning if two reports of one client can be linked, else None. With `hold = 1` each report has new permanent bits."""
    group_size = 1 if metric.hold == 1 else effective_group_size(metric)
    if group_size < LINKABLE_GROUP_SIZE:
        return None
    return (
        f"{metric.name}: two reports of one client can be linked by their permanent noise, among up to {group_size:,.3g} clients. "
        f"To reduce this, bring prob_p and prob_q closer together, use fewer bits, or set hold = 1"
    )


def group_warning(metric: Metric) -> str | None:
    """Return what the public label of a metric reveals, None for a metric without a group.

    >>> from hubbub.metrics.group import Group
    >>> from hubbub import UnaryResponse
    >>> dark = Metric.boolean("dark", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), group=Group("version", ("1.x", "other")))
    >>> group_warning(dark).partition(":")[0]
    'dark'
    """
    if metric.group is None:
        return None
    name = metric.group.name
    linked = (
        f" Permanent noise links the reports of one client, so a reader of the reports can also see when its {name} changed."
        if metric.reports_per_unit > 1
        else ""
    )
    return (
        f"{metric.name}: {name} is sent in clear with each report.{linked} A reader of the counts can compute those of any value from the sum and the "
        f"others, and the central epsilon is that of the smallest cohort of the smallest value. Nothing needs to be done if {name} is not sensitive "
        f"and each value has many clients; otherwise use fewer values, or make {name} a part of a joint metric (docs/how-to/groups.md)"
    )
