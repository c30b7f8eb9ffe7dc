"""Printed epsilons of every surface, compared with the mechanism enumerated over periods and epochs.

Surfaces: `hubbub metrics show` as text and JSON, the aggregator's page, GET /v1/metrics, the decoder's headline.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from hubbub import Encoder, KindWord, Metric, Params, Policy, Secret, UnaryResponse, parse_definitions
from hubbub.client import collaborators
from hubbub.privacy import epsilon_lifetime, epsilon_permanent, privacy_figures
from hubbub.testing import deliver
from tests.client.conftest import Rig
from tests.client.conftest import rig as rig
from tests.support.enumerate_histories import (
    filters_of,
    is_close,
    largest_loss_while_unchanged,
    losses,
    outputs,
    same_patterns,
)
from tests.support.enumerate_mechanism import largest_loss, report_distribution
from tests.support.printed_figures import SURFACES, Figures, printed_figures

ALPHA = 1e-6
MANY = 20_000  # reports of one permanent response; approximates infinitely many
ROUNDING_SLACK = 0.001 + 1e-6


def known_metrics() -> Iterator[Metric]:
    """Metrics of every kind, with and without hold, with and without permanent noise."""
    noises: list[dict[str, Any]] = [
        {"prob_p": 0.0, "prob_q": 1.0, "prob_f": 0.5},
        {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5},
        {"prob_p": 0.4, "prob_q": 0.6, "prob_f": 0.0},
        {"prob_p": 0.1, "prob_q": 0.5, "prob_f": 0.25},
        {"prob_p": 0.2, "prob_q": 0.8, "permanent_p": 0.125, "permanent_q": 0.5},
        {"prob_p": 0.3, "prob_q": 0.6, "permanent_p": 0.4, "permanent_q": 0.9},
    ]
    for hold, (number, noise) in itertools.product((None, 1, 2, 7), enumerate(noises)):
        name, fields = f"n{number}_hold_{hold or 0}", {"hold": hold, "description": "d", "owner": "o"}
        if "prob_f" in noise:
            yield Metric.boolean(f"boolean_{name}", UnaryResponse(**noise), **fields)
        yield Metric.categorical(f"categorical_{name}", ("a", "b", "c"), UnaryResponse(**noise), **fields)
        params = Params(num_bits=8, num_hashes=2, num_cohorts=4, **noise)
        yield Metric.string(f"string_{name}", params, **fields)


def random_metrics(number: int, rng: random.Random) -> Iterator[Metric]:
    for i in range(number):
        p = rng.choice([0.0, rng.uniform(0.01, 0.5)])
        q = rng.choice([1.0, rng.uniform(p + 0.05, 0.99)])
        noise: dict[str, Any] = {"prob_p": p, "prob_q": q, "prob_f": rng.choice([0.0, 0.5, rng.uniform(0.01, 0.95)])}
        b, a = sorted(rng.uniform(0.01, 0.99) for _ in range(2))
        pair = {"prob_p": p, "prob_q": q, "permanent_p": b, "permanent_q": a}
        fields: dict[str, Any] = {"hold": rng.choice([None, 1, 2, 3, 30]), "description": "d", "owner": "o"}
        fields["period"] = rng.choice(["day", "week", "month"])
        kind = rng.choice(list(KindWord))
        if kind is KindWord.BOOLEAN:
            yield Metric.boolean(f"random_{i}", UnaryResponse(**noise), **fields)
            continue
        noise = rng.choice([noise, pair])
        if kind is KindWord.CATEGORICAL:
            categories = tuple(f"c{n}" for n in range(rng.randint(2, 9)))
            yield Metric.categorical(f"random_{i}", categories, UnaryResponse(**noise), **fields)
        else:
            k = rng.randint(8, 11)
            h = rng.choice([1, 2, 3, k - 1])
            params = Params(num_bits=k, num_hashes=h, num_cohorts=8, **noise)
            yield Metric.string(f"random_{i}", params, **fields)


@pytest.fixture(scope="module")
def metrics() -> dict[str, Metric]:
    from tests.conftest import commit_of_seeds

    drawn = random_metrics(60, random.Random(f"{commit_of_seeds()} printed epsilon"))  # noqa: S311
    return {metric.name: metric for metric in (*known_metrics(), *drawn)}


def as_toml(metric: Metric) -> str:
    params = metric.params
    lines = [
        f"{name} = {json.dumps(str(getattr(metric, name)))}"
        for name in ("name", "kind", "description", "owner", "period")
    ]
    noise = params.mechanism.fields
    lines += [f"{name} = {value!r}" for name, value in noise.items()]
    lines += ["expires = 2099-01-01"] + ([f"hold = {metric.hold}"] if metric.hold else [])
    if metric.kind.needs_candidates:
        lines += [f"{name} = {getattr(params, name)}" for name in ("num_bits", "num_hashes", "num_cohorts")]
    if metric.kind.word is KindWord.CATEGORICAL:
        lines += [f"categories = {json.dumps(metric.kind.labels)}"]
    return "[[metric]]\n" + "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def printed(
    metrics: dict[str, Metric], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Mapping[str, Figures]]:
    """Printed figures by surface, metric and label."""
    folder = tmp_path_factory.mktemp("printed")
    file = folder / "metrics.toml"
    file.write_text("\n".join(map(as_toml, metrics.values())))
    definitions = parse_definitions(file.read_text())
    assert [metric.digest for metric in definitions.versions()] == [metric.digest for metric in metrics.values()]
    return printed_figures(file, definitions, folder)


# --- enumerated figures --------------------------------------------------------------------------------------------


def enumerated(metric: Metric, policy: Policy) -> Figures:
    """True figures of a metric: worst cases by enumeration, and the number of units that fit into the policy."""
    report = largest_loss_while_unchanged(metric, 1)
    if metric.hold is not None:
        unit, label = largest_loss_while_unchanged(metric, metric.hold), "per epoch"
    elif metric.params.mechanism.has_permanent_noise:
        unit, label = largest_loss_while_unchanged(metric, MANY), "per value"
    else:
        unit, label = report, ""
    figures = {"per report": report} | ({label: unit} if label else {})
    fits = [math.floor(limit / unit + 1e-6) for limit in (policy.epsilon_enrollment, policy.epsilon_metric)]
    if report > policy.epsilon_report or not fits[0]:
        return figures | {"per enrollment": math.inf, "lifetime": math.inf}
    if label == "per value" and not metric.kind.needs_candidates:
        fits[0] = min(fits[0], len(filters_of(metric)))
    units = {"units per enrollment": fits[0], "units lifetime": fits[1]}
    return figures | units | {"per enrollment": fits[0] * unit, "lifetime": fits[1] * unit}


@pytest.mark.parametrize("surface", SURFACES)
def test_printed_epsilon_is_the_enumerated_epsilon_rounded_up(
    surface: str, printed: Mapping[str, Mapping[str, Figures]], metrics: dict[str, Metric]
) -> None:
    assert printed[surface].keys() == metrics.keys()
    for name, metric in metrics.items():
        true, shown = enumerated(metric, Policy()), printed[surface][name]
        assert shown.keys() == true.keys(), name
        for label, exact in true.items():
            assert shown[label] >= exact - 1e-9, (name, label, shown[label], exact)
            assert is_close(shown[label], exact) or shown[label] <= exact + ROUNDING_SLACK, (
                name,
                label,
                shown[label],
                exact,
            )


def test_test_metrics_cover_all_kinds(metrics: dict[str, Metric]) -> None:
    shapes = ((m, m.params) for m in metrics.values())
    combinations = {
        (m.kind.word, m.hold is None, p.mechanism.has_permanent_noise, p.mechanism.prob_f is None, p.hash_scheme)
        for m, p in shapes
    }
    assert len(combinations) == (3 + 3 + 2) * 2  # no noise, symmetric, asymmetric: booleans have two of the three
    refused = sum(Policy().objection(metric) is not None for metric in metrics.values())
    assert 10 < refused < len(metrics) - 40


# --- histories over several periods and epochs ---------------------------------------------------


def small_metrics() -> Iterator[Metric]:
    for metric in known_metrics():
        if metric.hold in (None, 1, 2):
            yield metric


@pytest.mark.parametrize("metric", list(small_metrics()), ids=lambda metric: metric.name)
def test_loss_of_histories_is_at_most_the_printed_cost_of_their_units(metric: Metric) -> None:
    """All histories of four periods over "no value" and two values, changing within an epoch and between epochs.

    With `hold` and at f = 0 every pair; without `hold` every pair that changes, and returns to earlier values, at the same times.
    """
    filters = filters_of(metric)
    values = sorted({0, filters[1], filters[-1]})
    histories = list(itertools.product(values, repeat=4))
    for start in range(metric.hold or 1):
        lost = losses([outputs(metric, history, start) for history in histories])
        figures = privacy_figures(metric, Policy())
        if figures.unit == "epoch":
            used = np.full(lost.shape, len({period // (metric.hold or 1) for period in range(start, start + 4)}))
        elif figures.unit == "period":
            used = np.full(lost.shape, 4)
        else:
            used = np.array([[len(set(history)) for _ in histories] for history in histories])
            lost = np.where(same_patterns(histories) > 0, lost, 0)
        claimed = used * figures.epsilon_unit
        assert (lost <= claimed + 1e-9).all()
        if figures.unit != "value" and start == 0 and not metric.kind.needs_candidates:
            assert is_close(float(lost.max()), float(claimed.max()))  # the bound is tight


def test_loss_over_epochs_is_the_sum_also_for_a_constant_value() -> None:
    """Three epochs of two periods: the loss of the joint outputs is the sum of the epochs' losses."""
    metric = Metric.boolean("b", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5), hold=2)
    lost = losses([outputs(metric, [bloom] * 6) for bloom in (0, 1)])
    assert is_close(float(lost.max()), 3 * largest_loss_while_unchanged(metric, 2))
    assert float(lost.max()) > epsilon_permanent(metric) + 1  # regression: this was printed as the lifetime bound


def test_enumeration_by_bits_equals_enumeration_of_reports() -> None:
    """Check of the enumerator against all outputs of two reports of two bits."""
    metric = Metric.categorical("c", ("a", "b"), UnaryResponse(prob_p=0.2, prob_q=0.9, prob_f=0.3))
    whole = largest_loss(report_distribution(metric.params, [0, 1, 2], 2))
    bits = losses([outputs(metric, [bloom, bloom]) for bloom in (0, 1, 2)]).max()
    assert is_close(whole, float(bits))
    assert is_close(whole, largest_loss_while_unchanged(metric, 2))


def test_loss_of_four_epochs_exceeds_that_of_one_permanent_response(unseen_seed: int) -> None:
    """Lower bound on the loss from encoded reports, hold = 1, f = .5, p = 0, q = 1; alpha = 1e-6."""
    survey = Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), hold=1)
    rng, n = random.Random(unseen_seed), 20_000  # noqa: S311
    all_ones = {
        value: sum(
            all(encoder.encode(value, epoch).bits[0] for epoch in range(4))
            for encoder in (Encoder(survey, Secret(rng.randbytes(32))) for _ in range(n))
        )
        for value in (True, False)
    }
    least = beta.ppf(ALPHA / 2, all_ones[True], n - all_ones[True] + 1)
    most = beta.isf(ALPHA / 2, all_ones[False] + 1, n - all_ones[False])
    lower_bound = math.log(least / most)
    claimed = epsilon_lifetime(survey, Policy(epsilon_metric=4.4))
    assert is_close(claimed, math.log(81))
    assert 3 * epsilon_permanent(survey) < lower_bound <= claimed


# --- reports and spending of a client --------------------------------------------------------------------------------


def plain(**fields: Any) -> list[Metric]:
    """Metrics without instantaneous noise: equal reports come from the same permanent response."""
    noise = {"prob_p": 0, "prob_q": 1, "prob_f": 0.5} | fields
    response = {name: noise[name] for name in ("prob_p", "prob_q", "prob_f")}
    params = Params(num_bits=64, num_hashes=1, num_cohorts=1, **response)
    categories = tuple(f"c{n}" for n in range(32))
    rest = {name: value for name, value in noise.items() if not name.startswith("prob_")}
    return [
        Metric.string("page", params, **rest),
        Metric.categorical("page", categories, UnaryResponse(**response), **rest),
    ]


CASES: list[tuple[Metric, Callable[[int], str]]] = [
    *((metric, lambda _: "c1") for hold in (1, 2, 5) for metric in plain(hold=hold)),
    *((metric, lambda day: f"c{day % 3}") for metric in plain(hold=3, period="week")),
    *((metric, lambda day: f"c{day % 30}") for metric in plain()),
    *((metric, lambda _: "c1") for metric in plain(prob_p=0.3, prob_q=0.7, prob_f=0)),
]


@pytest.mark.parametrize(("metric", "value"), CASES, ids=range(len(CASES)))
def test_client_sends_the_printed_units_and_spends_the_printed_epsilon(
    metric: Metric, value: Callable[[int], str], rig: Rig
) -> None:
    """Record until the client sends nothing; withdraw and grant consent; repeat until nothing is collected."""
    figures = privacy_figures(metric, Policy())
    units: list[int] = []
    rows: list[list[bytes]] = []
    total = 0.0
    for _ in range(4):
        client = rig.agreed(metric, policy=Policy())
        before = len(rig.transport.batches)
        for day in range(80):
            sent = len(rig.transport.batches)
            client.record(metric.name, value(day))
            deliver(client)
            rig.clock.move(days={"day": 1, "week": 7, "month": 31}[metric.period])
            if len(rig.transport.batches) == sent:
                break
        reports = [batch.rows for batch in rig.transport.batches[before:]]
        with collaborators(client).journal as state:
            (account,) = state.accounts.values()
            units.append(account.units - sum(units))
            total = account.spent
        rows.append(reports)
        client.set_consent("off")
        client.close()
    assert units[0] == figures.units_enrollment
    assert sum(units) == figures.units_lifetime
    assert total == pytest.approx(figures.epsilon_lifetime)
    match figures.unit:
        case "epoch":  # one permanent response per epoch, then no more reports
            hold = metric.hold or 1
            distinct = [len(set(reports)) for reports in rows]
            assert distinct == units
            assert all(
                hold * (n - 1) < len(reports) <= hold * n or not n for n, reports in zip(units, rows, strict=True)
            )
        case "value":  # one permanent response per value; the last one is repeated at the limit
            assert [len(set(reports)) for reports in rows[:-1]] == units[:-1]
            assert len(rows[0]) == 80
        case _:
            assert [len(reports) for reports in rows] == units
