"""Central epsilon: what shuffled reports, or their sums, reveal about one client.

Observer: sees the shuffled reports of the aggregator, or their sums. The bound does not hold against the operator of the aggregator,
which sees each report arrive; for the operator only the local epsilon holds.

Reports: n reports of one cohort, including this client's. Reports of other cohorts do not help against an observer that knows the
client's cohort, which is the same in all periods and metrics. The other n - 1 reports must exist and be genuine.

It is the smaller of bounds for one message of all reports: of the metric's own mechanism (`blanket.py`), and of every mechanism with the same
local epsilon (`amplification.py`). Reports with fresh noise, those of two epochs of `hold`, or any two without permanent noise, are also
independent mechanisms, whose curves of delta compose (`loss_distribution.py`). Every step is rounded up.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from hubbub.mechanisms.blanket import MAX_FACTORS, Blanket, joined
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.number_checks import check_integer
from hubbub.privacy.amplification import check_crowd, shuffle_amplification
from hubbub.privacy.blanket import blanket_curve, blanket_epsilon
from hubbub.privacy.loss import check_num_reports, epochs_of, epsilon_rounded_up
from hubbub.privacy.loss_distribution import LossDistribution, epsilon_of_independent

RELEASE_DELTA = 1e-9
"""Delta of the central epsilon of published counts."""
_MAX_LOCAL = 50.0
_MAX_REPORTS = 10**9
_TAIL = 0.02
"""Share of delta that is given to infinite losses."""


def central_epsilon(
    metric: Metric | Params, num_reports: int, delta: float, periods: float = 1, hold: int | None = None
) -> float:
    """Return the central epsilon: the shuffled reports, or their sums, of t periods are (epsilon, delta)-DP.

    Parameters
    ----------
    metric
        Metric, or the `Params` of one.
    num_reports
        n >= 1, number of clients of one cohort that report in all t periods.
    delta
        Probability that the bound fails, in (0, 1).
    periods
        t, an integer >= 1, or math.inf without `hold`.
    hold
        Periods after which a permanent response is drawn anew, an integer >= 1; None: never.

    Returns
    -------
    float
        Epsilon, rounded up: at most the local epsilon, eps(t) or the sum over the epochs. It bounds any two values that do not change
        in the t periods.

    Raises
    ------
    ParameterError
        An argument is out of range.

    Notes
    -----
    t reports of an unchanging value are one message, which is eps(t)-DP, and n clients' messages amplify eps(t).
    Shuffling whole messages and then each period separately is the same as shuffling each period. Composing t
    amplified eps(1) would be wrong if the t reports share their permanent noise, because the reports of the other clients do so as
    well. With fresh noise, of the epochs of `hold` or without permanent noise, composing them is right, and usually less. Delta is that of all
    periods together.

    References
    ----------
    Balle, Bell, Gascon, Nissim 2019, "The privacy blanket of the shuffle model" (arXiv 1903.02837), lemma 5.3; Feldman,
    McMillan, Talwar 2021, "Hiding among the clones" (arXiv 2012.12803), theorems 3.1 and 3.2.

    Examples
    --------
    >>> from hubbub.metrics.params import Params
    >>> params = Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.5, prob_q=0.75, prob_f=0.5)
    >>> [round(central_epsilon(params, n, 1e-9), 3) for n in (100, 10_000, 1_000_000)]
    [0.393, 0.035, 0.003]
    """
    check_num_reports(periods, "periods")
    check_crowd(num_reports, delta)
    if hold is not None:
        check_integer("hold", hold, 1, hint="pass the number of periods of an epoch, or None")
        check_integer("periods", periods, 1, hint="pass a finite number of periods, or hold = None")
    return _central(tuple(metric.blocks), num_reports, delta, epochs_of(periods, hold))


def _central(blocks: tuple[Params, ...], num_reports: int, delta: float, epochs: tuple[float, ...]) -> float:
    bound = _of_one_message(blocks, num_reports, delta, epochs)
    messages = independent_messages(blocks, epochs)
    return min(bound, epsilon_of_messages(blocks, num_reports, delta, messages)) if _are_several(messages) else bound


def _are_several(messages: tuple[tuple[float, int], ...]) -> bool:
    return sum(number for _, number in messages) > 1


@lru_cache(maxsize=1024)
def _of_one_message(blocks: tuple[Params, ...], num_reports: int, delta: float, epochs: tuple[float, ...]) -> float:
    """Return the central epsilon of an unchanging value, all of whose reports are one message."""
    local = _local(blocks, Counter(epochs).items())
    bound = shuffle_amplification(local, num_reports, delta)
    if local > _MAX_LOCAL:
        return bound
    blanket = _blanket(blocks, epochs)
    return (
        min(bound, blanket_epsilon(blanket, local, min(num_reports, _MAX_REPORTS), delta)) if blanket.weight else bound
    )


@lru_cache(maxsize=1024)
def epsilon_of_messages(
    blocks: tuple[Params, ...], num_reports: int, delta: float, messages: tuple[tuple[float, int], ...]
) -> float:
    """Return the central epsilon of any two histories of values, from the curve of each independent message."""
    local = _local(blocks, messages)
    total = sum(number for _, number in messages)
    found = []
    for reports, number in messages:
        of_one = _local(blocks, [(reports, 1)])
        if of_one > _MAX_LOCAL:
            return local
        curve = blanket_curve(
            _blanket(blocks, (reports,)), of_one, min(num_reports, _MAX_REPORTS), _TAIL * delta / total
        )
        found.append((LossDistribution.of_curve(curve), number))
    return min(local, epsilon_of_independent(found, delta))


def independent_messages(blocks: Sequence[Params], epochs: Sequence[float]) -> tuple[tuple[float, int], ...]:
    """Return (reports, number) of the messages with noise of their own: each epoch is one, or without permanent noise each report.

    >>> coin, fresh = (Params.one_hot(1, prob_p=0.25, prob_q=0.75, prob_f=f) for f in (0.5, 0))
    >>> independent_messages([coin], (3, 3, 1)), independent_messages([fresh], (7,))
    (((3, 2), (1, 1)), ((1, 7),))
    """
    if math.isinf(sum(epochs)) or any(block.mechanism.has_permanent_noise for block in blocks):
        return tuple(Counter(epochs).items())
    return ((1, int(sum(epochs))),)


def _local(blocks: Sequence[Params], messages: Iterable[tuple[float, int]]) -> float:
    return math.fsum(
        number * epsilon_rounded_up(block, reports) for block in blocks for reports, number in messages
    ) * (1 + 2**-50)


def _blanket(blocks: Sequence[Params], epochs: Sequence[float]) -> Blanket:
    if len(epochs) * sum(max(block.possible_ones) for block in blocks) > MAX_FACTORS:
        return Blanket(0.0, ())
    return joined(block.mechanism.blanket(block.num_bits, block.possible_ones, epochs) for block in blocks)


def release_epsilon(metric: Metric | Params, smallest_cohort: int, epochs: Sequence[float] = (1,)) -> float:
    """Return the central epsilon of the published sums of some periods, with delta 1e-9.

    With several messages of independent noise it bounds any two histories of values, otherwise an unchanging value. So the condition of a page does
    not depend on which bound is smaller.

    smallest_cohort : fewest reports of a cohort with reports. They are rounded down to two digits, which repeats cached bounds; fewer reports have
                      a larger epsilon, so the bound holds.
    epochs          : published reports of a client from each of its permanent responses, one for each period

    >>> coin = Params.one_hot(1, prob_p=0.25, prob_q=0.75, prob_f=0)
    >>> release_epsilon(coin, 1_234) == release_epsilon(coin, 1_200)
    True
    """
    check_crowd(smallest_cohort, RELEASE_DELTA)
    unit = int(10 ** max(0, len(str(smallest_cohort)) - 2))
    num_reports, blocks = smallest_cohort // unit * unit, tuple(metric.blocks)
    messages = independent_messages(blocks, epochs)
    if _are_several(messages):
        return epsilon_of_messages(blocks, num_reports, RELEASE_DELTA, messages)
    return _of_one_message(blocks, num_reports, RELEASE_DELTA, tuple(epochs))
