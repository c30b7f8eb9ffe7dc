"""Each guarantee holds between all pairs of small raw histories that its condition admits.

A raw history is 1 to 4 periods of recordings: nothing, one value, two values, or no run of the app. The law of everything that leaves
(`tests/support/raw_histories.py`) shares no code with the encoder and the ledger. The product gives the conditions and epsilons alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from typing import Any

import numpy as np
import pytest

from hubbub import Buckets, Discovery, Estimand, Metric, Params, Policy, Several, SubsetSelection, UnaryResponse
from hubbub.encoding.bloom import ValueKey, bloom_bits
from hubbub.errors import ParameterError
from hubbub.metrics.group import Group
from hubbub.metrics.periods import PeriodKind, first_day, period_number
from hubbub.privacy.guarantee import Condition, Guarantee, Observer, RawHistory, Unit, guarantee_of_days, guarantees
from hubbub.privacy.pricing import unit_price
from tests.support.enumerate_mechanism import Floats, instantaneous_kernel, of_all_bits, permanent_kernel
from tests.support.raw_histories import Choices, Client, Fault, Law, Model, law_of, losses

PLAIN: dict[str, Any] = {"prob_p": 0, "prob_q": 1, "prob_f": 0.5}
NOISY: dict[str, Any] = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5}
ASYMMETRIC: dict[str, Any] = {"prob_p": 0.25, "prob_q": 0.75, "permanent_p": 0.125, "permanent_q": 0.5}
FRESH: dict[str, Any] = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0}
SLACK = 1e-9
Recordings = tuple[Any, ...] | None


# --- metrics, and what their recordings report ---------------------------------------------------------------------------


def one_at_random(value_of: Callable[[Any], Hashable]) -> Callable[[tuple[Any, ...]], Choices]:
    return lambda recordings: tuple(value_of(value) for value in recordings or (None,))


def one_client(choices: Callable[[tuple[Any, ...]], Choices]) -> tuple[Client, ...]:
    return (Client(0, 1.0, choices),)


def of_bits(metric: Metric, clients: tuple[Client, ...], filters: dict[Hashable, int], num_bits: int) -> Model:
    """Return the model of unary bits. A value has the filter that the test gives it: a hash is not computed."""
    permanent = of_all_bits(permanent_kernel(metric.blocks[0]), num_bits)
    return Model(metric, clients, filters, permanent, of_all_bits(instantaneous_kernel(metric.blocks[0]), num_bits))


def boolean(noise: dict[str, Any], **fields: Any) -> tuple[Model, list[Recordings]]:
    metric = Metric.boolean("m", UnaryResponse(**noise), **fields)
    model = of_bits(metric, one_client(one_at_random(bool)), {False: 0, True: 1}, 1)
    return model, [None, (), (True,), (False,), (True, False)]


def categorical(noise: dict[str, Any], **fields: Any) -> tuple[Model, list[Recordings]]:
    metric = Metric.categorical("m", ("a", "b"), UnaryResponse(**noise), other="b", **fields)
    clients = one_client(one_at_random(lambda value: "b" if value == "unknown" else value))
    return of_bits(metric, clients, {None: 0, "a": 1, "b": 2}, 2), [None, (), ("a",), ("b",), ("unknown",), ("a", "b")]


def ordinal(noise: dict[str, Any], **fields: Any) -> tuple[Model, list[Recordings]]:
    metric = Metric.ordinal("m", Buckets((0, 1, 2), default=0), UnaryResponse(**noise), **fields)
    clients = one_client(one_at_random(lambda number: 2 if (number or 0) >= 1 else 1))
    return of_bits(metric, clients, {1: 1, 2: 2}, 2), [None, (), (0.25,), (0.5,), (7,), (0.5, 1.5)]


def total(noise: dict[str, Any], **fields: Any) -> tuple[Model, list[Recordings]]:
    """A sum without a default: 0.6 and 0.6 are in the second bucket, and nothing is no bucket."""
    metric = Metric.ordinal("m", Buckets((0, 1, 2), several=Several.SUM), UnaryResponse(**noise), **fields)
    clients = one_client(lambda numbers: ((2 if sum(numbers) >= 1 else 1) if numbers else None,))
    return of_bits(metric, clients, {None: 0, 1: 1, 2: 2}, 2), [None, (), (0.6,), (1,), (0.6, 0.6)]


def mean(noise: dict[str, Any], **fields: Any) -> tuple[Model, list[Recordings]]:
    """Numbers 1 and 2 of 0 to 4: below 1, the thresholds of a cohort are all reached; 2.1 is between the thresholds of one cohort."""
    metric = Metric.ordinal("m", Buckets((0, 4), default=0, estimate=Estimand.MEAN), UnaryResponse(**noise), **fields)

    def reaches(threshold: float) -> Callable[[tuple[Any, ...]], Choices]:
        return one_at_random(lambda number: (number or 0) / 4 >= threshold)

    fine = 5
    thresholds = [(at + 1) / (16 * fine) for at in range(16 * fine)]
    clients = tuple(
        Client(at // fine, 1 / len(thresholds), reaches(threshold)) for at, threshold in enumerate(thresholds)
    )
    return of_bits(metric, clients, {False: 0, True: 1}, 1), [None, (), (1,), (2.1,), (0, 2.1)]


def items(noise: dict[str, Any], **fields: Any) -> tuple[Model, list[Recordings]]:
    metric = Metric.set("m", ("x", "y"), UnaryResponse(**noise), **fields)

    def has(item: str) -> Callable[[tuple[Any, ...]], Choices]:
        return lambda recordings: (any(item in recorded for recorded in recordings),)

    clients = tuple(Client(cohort, 0.5, has(item)) for cohort, item in enumerate(("x", "y")))
    recorded = [("x",), ("y",), ("x", "y"), ()]
    return of_bits(metric, clients, {False: 0, True: 1}, 1), [
        None,
        (),
        *((recording,) for recording in recorded),
        (("x",), ("y",)),
    ]


def string(noise: dict[str, Any], **fields: Any) -> tuple[Model, list[Recordings]]:
    """Strings of one hash each. The first two have equal bits, so only their permanent responses tell them apart."""
    metric = Metric.string("m", Params(num_bits=8, num_hashes=1, num_cohorts=1, **noise), **fields)
    return strings(metric, "s0", next(text for text in texts() if bits_of(metric, text) == bits_of(metric, "s0")))


def texts() -> list[str]:
    return [f"s{number}" for number in range(1, 100)]


def bits_of(metric: Metric, text: str) -> int:
    return int(metric.kind.true_bits(text, 0))


def strings(metric: Metric, first: str, equal: str) -> tuple[Model, list[Recordings]]:
    other = next(text for text in texts() if bits_of(metric, text) != bits_of(metric, first))
    clients = one_client(one_at_random(lambda value: value))
    model = of_bits(metric, clients, {None: 0, first: 1, equal: 1, other: 2}, 3)
    return model, [None, (), (first,), (equal,), (other,)]


def found_string(noise: dict[str, Any], **fields: Any) -> tuple[Model, list[Recordings]]:
    """Fragments of the first two strings are equal: the whole string is the value."""
    params = Params(num_bits=64, num_hashes=1, num_cohorts=128, **noise)
    metric = Metric.string("m", params, discover=Discovery(longest=8), **fields)
    equal = next(text for text in ("s0123", "s0124", "s0x") if bits_of(metric, text) == bits_of(metric, "s01"))
    return strings(metric, "s01", equal)


def rows(noise: dict[str, Any], **fields: Any) -> tuple[Model, list[Recordings]]:
    """Subset selection among a, b and "no value", with one one of three: the reported value is the permanent one with probability q."""
    a, q = (0.75, 1.0) if noise is PLAIN else (0.75, 0.625)
    mechanism = SubsetSelection(num_values=3, num_ones=1, prob_q=q, permanent_q=a)
    metric = Metric.categorical("m", ("a", "b"), mechanism, **fields)
    permanent, once = (np.full((3, 3), (1 - of) / 2) + np.eye(3) * (of - (1 - of) / 2) for of in (a, q))
    true: dict[Hashable, int] = {"a": 0, "b": 1, None: 2}
    return Model(metric, one_client(one_at_random(lambda value: value)), true, permanent, once), [
        None,
        (),
        ("a",),
        ("b",),
        ("a", "b"),
    ]


def joint(noise: dict[str, Any], **fields: Any) -> tuple[Model, list[Recordings]]:
    parts = [Metric.boolean(name, UnaryResponse(**noise)) for name in ("x", "y")]
    clients = one_client(one_at_random(lambda value: (False, False) if value is None else value))
    true: dict[Hashable, int] = {(x, y): x + 2 * y for x, y in itertools.product((False, True), repeat=2)}
    kernels = of_all_bits(permanent_kernel(parts[0].params), 2), of_all_bits(instantaneous_kernel(parts[0].params), 2)
    values = [(True, False), (False, True), (True, True)]
    return Model(Metric.joint("m", parts, **fields), clients, true, *kernels), [
        None,
        (),
        *((value,) for value in values),
    ]


def with_label(noise: dict[str, Any], **fields: Any) -> tuple[Model, list[Recordings]]:
    return boolean(noise, group=Group("version", ("1.x", "other")), **fields)


Maker = Callable[..., tuple[Model, list[Recordings]]]
MAKERS: dict[Maker, tuple[dict[str, Any], ...]] = {
    boolean: (PLAIN, NOISY, FRESH),
    categorical: (PLAIN, NOISY, FRESH, ASYMMETRIC),
    ordinal: (PLAIN, NOISY, FRESH),
    total: (PLAIN, ASYMMETRIC),
    mean: (PLAIN, NOISY),
    items: (PLAIN, NOISY),
    string: (PLAIN, ASYMMETRIC),
    found_string: (PLAIN,),
    rows: (PLAIN, NOISY),
    joint: (PLAIN, NOISY, FRESH),
    with_label: (PLAIN,),
}
CASES = [
    pytest.param(maker, noise, hold, id=f"{maker.__name__}-{noise}-{hold}")
    for maker, noises in MAKERS.items()
    for noise in noises
    for hold in (None, 1, 2)
]


# --- pairs of histories --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pairs:
    """All pairs of histories of one guarantee: whether its condition admits each, and the loss of what its unit shows."""

    guarantee: Guarantee
    histories: tuple[RawHistory, ...]
    admitted: Floats
    lost: Floats

    @property
    def excess(self) -> float:
        """Largest loss above epsilon between histories that are admitted."""
        return float(np.where(self.admitted > 0, self.lost, -np.inf).max() - self.guarantee.epsilon)

    @property
    def is_refused_in_vain(self) -> Floats:
        """(n, n): 1 where a pair is refused, although epsilon bounds their loss in both directions."""
        is_bounded = np.maximum(self.lost, self.lost.T) <= self.guarantee.epsilon + SLACK
        return np.where(self.admitted > 0, 0.0, is_bounded.astype(float))


def policy_of(metric: Metric, per_secret: int, in_all: int) -> Policy:
    price = unit_price(metric).epsilon
    return Policy(
        epsilon_report=math.inf,
        epsilon_enrollment=(per_secret + 0.25) * price,
        epsilon_metric=(in_all + 0.25) * price,
        epsilon_total=math.inf,
    )


def histories_of(
    recordings: Sequence[Recordings], periods: int, enrollments: tuple[int, ...]
) -> tuple[RawHistory, ...]:
    return tuple(RawHistory(history, enrollments) for history in itertools.product(recordings, repeat=periods))


@cache
def admitted_pairs(condition: Condition, histories: tuple[RawHistory, ...]) -> Floats:
    """(n, n): 1 where a condition admits a pair of histories, in either order."""
    admitted = np.zeros((len(histories),) * 2)
    for (row, first), (column, second) in itertools.combinations_with_replacement(enumerate(histories), 2):
        admitted[row, column] = admitted[column, row] = condition.admits(first, second)
    return admitted


def pairs_of(
    model: Model,
    recordings: Sequence[Recordings],
    periods: int,
    *,
    units: tuple[int, int] = (2, 3),
    enrollments: tuple[int, ...] = (),
    fault: Fault = Fault.NONE,
) -> Iterator[Pairs]:
    """Yield the pairs of each guarantee that bounds what some observer sees of these histories.

    units       : largest number of units under one secret, and under all
    enrollments : periods from which the client has a new secret; then only a lifetime and single reports are bounded
    """
    histories = histories_of(recordings, periods, enrollments)
    laws = [law_of(model, history, units, fault) for history in histories]
    for guarantee in guarantees(model.metric, policy_of(model.metric, *units)):
        is_of_one_secret = guarantee.unit in (Unit.EPOCH, Unit.VALUE, Unit.ENROLLMENT)
        if math.isinf(guarantee.epsilon) or (enrollments and is_of_one_secret):
            continue
        admitted = admitted_pairs(guarantee.condition, histories)
        lost = np.max([losses(seen) for seen in seen_laws(guarantee, model.metric, laws, periods)], axis=0)
        yield Pairs(guarantee, histories, admitted, lost)


def seen_laws(guarantee: Guarantee, metric: Metric, laws: Sequence[Law], periods: int) -> Iterator[list[Law]]:
    """Yield the laws of each part that the observer may see of a unit: each report, each epoch, the times alone, or all."""
    if guarantee.observer is Observer.NETWORK:
        yield [Law(tuple((day, day, "") for _, day, _ in law.schedule), np.ones(1)) for law in laws]
        return
    size = {Unit.REPORT: 1, Unit.EPOCH: metric.hold or 1}.get(guarantee.unit, periods)
    for start in range(0, periods, size):
        yield [law.of_reports(frozenset(range(start, start + size))) for law in laws]


# --- tests ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("maker", "noise", "hold"), CASES)
def test_no_admitted_pair_loses_more_than_epsilon(maker: Maker, noise: dict[str, Any], hold: int | None) -> None:
    """All pairs of histories of 1 to 3 periods, for a client with 1, 2 or 3 units under its secret."""
    model, recordings = maker(noise, hold=hold)
    for periods, units in [(1, (1, 2)), (2, (1, 2)), (2, (2, 3)), (3, (2, 3)), (3, (3, 3))]:
        for pairs in pairs_of(model, recordings, periods, units=units):
            assert pairs.admitted.sum() > 0
            assert pairs.excess <= SLACK, (pairs.guarantee, periods, units)


@pytest.mark.parametrize("noise", [PLAIN, FRESH])
@pytest.mark.parametrize("hold", [None, 1, 2])
def test_epsilon_is_reached_in_four_periods_of_a_boolean(noise: dict[str, Any], hold: int | None) -> None:
    model, recordings = boolean(noise, hold=hold)
    for pairs in pairs_of(model, recordings, 4, units=(2, 2)):
        assert pairs.excess <= SLACK
        assert math.isclose(pairs.excess, 0, abs_tol=SLACK) or pairs.guarantee.observer is Observer.NETWORK


@pytest.mark.parametrize("noise", [PLAIN, FRESH])
@pytest.mark.parametrize("hold", [1, 2, 3])
@pytest.mark.parametrize("num_days", [1, 2, 3, 4])
def test_epsilon_of_days_in_a_row_is_the_largest_loss(noise: dict[str, Any], hold: int, num_days: int) -> None:
    """All windows of five days, and all pairs of histories."""
    model, _ = boolean(noise, hold=hold)
    laws = [law_of(model, history, (5, 5)) for history in histories_of([(True,), (False,)], 5, ())]
    windows = [frozenset(range(start, start + num_days)) for start in range(6 - num_days)]
    lost = max(losses([law.of_reports(window) for law in laws]).max() for window in windows)
    assert math.isclose(lost, guarantee_of_days(model.metric, policy_of(model.metric, 5, 5), num_days).epsilon)


@pytest.mark.parametrize("period", PeriodKind)
@pytest.mark.parametrize("hold", [1, 2, 7, 30])
@pytest.mark.parametrize("num_days", [1, 2, 7, 28, 30, 31, 90])
def test_number_of_units_of_days_in_a_row(period: PeriodKind, hold: int, num_days: int) -> None:
    """All days of five years, with 28 days of February 2026. In months of 28 to 31 days one unit may be too many."""
    metric = Metric.boolean("m", UnaryResponse(**PLAIN), hold=hold, period=period)
    days = [date(2025, 1, 1) + timedelta(days=at) for at in range(5 * 365)]
    epochs = [period_number(period, str(first_day(period, day))) // hold for day in days]
    most = max(epochs[at + num_days - 1] - epochs[at] + 1 for at in range(len(days) - num_days))
    policy = Policy(epsilon_enrollment=math.inf, epsilon_metric=math.inf, epsilon_total=math.inf)
    number = guarantee_of_days(metric, policy, num_days).num_units
    assert most <= number <= most + (period is PeriodKind.MONTH)


def test_days_in_a_row_have_no_epsilon_if_values_are_charged() -> None:
    survey = Metric.boolean("m", UnaryResponse(**PLAIN))
    assert math.isinf(guarantee_of_days(survey, Policy(), 30).epsilon)
    assert math.isclose(
        guarantee_of_days(Metric.boolean("m", UnaryResponse(**FRESH)), Policy(), 10).epsilon, 10 * math.log(3)
    )
    with pytest.raises(ParameterError, match="num_days must be an integer"):
        guarantee_of_days(survey, Policy(), 0)


@pytest.mark.parametrize("maker", [boolean, categorical, string])
@pytest.mark.parametrize("noise", [PLAIN, NOISY, FRESH])
@pytest.mark.parametrize("hold", [None, 2])
def test_lifetime_has_no_condition_across_secrets(maker: Maker, noise: dict[str, Any], hold: int | None) -> None:
    model, recordings = maker(noise, hold=hold)
    for enrollments in [(1,), (2,), (1, 2)]:
        for pairs in pairs_of(model, recordings, 3, units=(2, 4), enrollments=enrollments):
            assert pairs.excess <= SLACK


def test_versions_have_no_condition_across_them() -> None:
    """Two periods of one version, then two of another, which has its own account and responses, as a new secret has."""
    model, recordings = categorical(PLAIN)
    both = pairs_of(model, recordings[1:4], 4, units=(2, 4), enrollments=(2,))
    (whole,) = (pairs for pairs in both if is_of_lifetime(pairs.guarantee))
    (of_version,) = filter(is_of_lifetime, guarantees(model.metric, policy_of(model.metric, 2, 2)))
    parts = [
        admitted_pairs(of_version.condition, tuple(RawHistory(history.periods[at]) for history in whole.histories))
        for at in (slice(2), slice(2, 4))
    ]
    each_is_admitted = parts[0] * parts[1] > 0
    assert float(whole.lost[each_is_admitted].max()) <= 2 * of_version.epsilon + SLACK
    assert (each_is_admitted == (whole.admitted > 0)).all()


def is_of_lifetime(guarantee: Guarantee) -> bool:
    return guarantee.unit is Unit.LIFETIME and guarantee.observer is Observer.OPERATOR


REFUSED: list[tuple[str, tuple[Recordings, ...], tuple[Recordings, ...]]] = [
    ("any recordings", (("a",), None), (("a",), ())),
    ("any recordings", (("a",), ("a",)), (("a",), None)),
    ("same pattern of equal values", (("a",), ("b",), ("a",)), (("a",), ("b",), ())),
    ("same pattern of equal values", (("a",), ("a",)), (("a",), ())),
    ("same pattern of equal values", (("a", "b"), ("a",)), (("a",), ("a",))),
    ("one unchanging value", (("a",), ("a",)), (("a",), ("b",))),
]


@pytest.mark.parametrize(("name", "first", "second"), REFUSED)
def test_a_pair_that_is_just_refused_loses_more(
    name: str, first: tuple[Recordings, ...], second: tuple[Recordings, ...]
) -> None:
    model, _ = categorical(PLAIN)
    laws = [law_of(model, RawHistory(periods), (3, 3)) for periods in (first, second)]
    found = [of for of in guarantees(model.metric, policy_of(model.metric, 3, 3)) if of.condition.name == name]
    assert found
    for guarantee in found:
        assert not guarantee.condition.admits(RawHistory(first), RawHistory(second))
        assert math.isinf(losses(laws).max())


def test_a_pair_with_other_probabilities_of_its_patterns_is_refused() -> None:
    """The second period repeats the first value with probability 1/2 and 9/10."""
    model, _ = boolean(PLAIN)
    first, second = RawHistory(((True, False), (True,))), RawHistory(((True, *(False,) * 9), (False,)))
    (lifetime,) = filter(is_of_lifetime, guarantees(model.metric, policy_of(model.metric, 2, 2)))
    assert not lifetime.condition.admits(first, second)
    assert losses([law_of(model, history, (2, 2)) for history in (first, second)]).max() > lifetime.epsilon + 1
    assert lifetime.condition.admits(first, RawHistory(((True, True, False, False), (False,))))


IN_VAIN: dict[Maker, int] = {
    **dict.fromkeys((boolean, categorical, ordinal, total, string, found_string, items, joint), 0),
    boolean: 176,
    categorical: 1528,
    ordinal: 640,
    mean: 36,
    rows: 414,
}
"""Pairs of three periods, in both orders, that are refused although epsilon bounds their loss. Each has a period with two recordings."""


@pytest.mark.parametrize("maker", IN_VAIN)
def test_condition_is_no_narrower_than_the_losses_are(maker: Maker) -> None:
    """Without instantaneous noise a report is its permanent response, so a pair of other patterns has a loss without bound.

    Only if a period reports one of several recordings, two different laws of patterns may have the same possible reports. The pairs that
    are so refused in vain are at most 4 in 100.
    """
    model, recordings = maker(PLAIN)
    for pairs in pairs_of(model, recordings, 3, units=(3, 3)):
        if pairs.guarantee.unit is not Unit.ENROLLMENT:
            continue
        refused = np.argwhere(pairs.is_refused_in_vain)
        assert all(
            any(len(of_period or ()) > 1 for at in pair for of_period in pairs.histories[at].periods)
            for pair in refused
        )
        assert len(refused) == IN_VAIN[maker]
        assert len(refused) <= 0.04 * (pairs.admitted == 0).sum()


FAULTS: list[tuple[Fault, Maker, dict[str, Any], int | None, tuple[int, ...]]] = [
    (Fault.EACH_CHANGE_DRAWS_ANEW, boolean, PLAIN, None, ()),
    (Fault.EACH_REPORT_DRAWS_ANEW, boolean, PLAIN, None, ()),
    (Fault.NEW_SECRET_REPEATS_RESPONSES, boolean, PLAIN, None, (1,)),
    (Fault.EQUAL_BITS_SHARE_A_RESPONSE, string, PLAIN, None, ()),
    (Fault.EQUAL_BITS_SHARE_A_RESPONSE, found_string, PLAIN, None, ()),
    (Fault.NOTHING_IS_SENT_WITHOUT_A_VALUE, boolean, NOISY, None, ()),
    (Fault.NOTHING_IS_SENT_WITHOUT_A_VALUE, boolean, NOISY, 2, ()),
    (Fault.LEAVES_LATER_WITHOUT_A_VALUE, categorical, NOISY, None, ()),
    (Fault.LABEL_DEPENDS_ON_THE_VALUE, with_label, PLAIN, None, ()),
    (Fault.EPOCH_REPORTS_NEW_VALUES, boolean, PLAIN, 2, ()),
]


@pytest.mark.parametrize(("fault", "maker", "noise", "hold", "enrollments"), FAULTS)
def test_a_faulty_client_breaks_a_guarantee(
    fault: Fault, maker: Maker, noise: dict[str, Any], hold: int | None, enrollments: tuple[int, ...]
) -> None:
    model, recordings = maker(noise, hold=hold)
    for of, is_broken in ((Fault.NONE, False), (fault, True)):
        found = list(pairs_of(model, recordings, 3, units=(2, 3), enrollments=enrollments, fault=of))
        assert (max(pairs.excess for pairs in found) > SLACK) is is_broken


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("hold", [None, 2])
def test_only_hold_and_no_permanent_noise_have_an_unconditional_guarantee(maker: Maker, hold: int | None) -> None:
    for noise in MAKERS[maker]:
        model, _ = maker(noise, hold=hold)
        (lifetime,) = filter(is_of_lifetime, guarantees(model.metric, policy_of(model.metric, 2, 3)))
        assert lifetime.is_unconditional == (hold is not None or not model.has_permanent_noise)


@pytest.mark.parametrize("maker", MAKERS)
def test_values_are_those_that_the_ledger_counts(maker: Maker) -> None:
    """Two values repeat one response exactly where the key of the ledger and of the permanent response is the same, in every cohort."""
    model, recordings = maker(PLAIN)
    metric = model.metric
    (condition,) = (of.condition for of in guarantees(metric, policy_of(metric, 2, 3)) if is_of_lifetime(of))
    values = [None, *(of_period[0] for of_period in recordings if of_period)]
    for first, second in itertools.product(values, repeat=2):
        are_equal = all(
            len({ValueKey(metric)(bloom_bits(metric, value, *client)) for value in (first, second)}) == 1
            for client in metric.kind.representative_clients(values)
        )
        assert condition.admits(RawHistory(((first,),) * 2), RawHistory(((first,), (second,)))) == are_equal
