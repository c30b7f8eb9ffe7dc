"""Shares of the items of sets: errors of the law, coverage of items and of their mean number, false discoveries."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from hubbub import Metric, PrivSet, UnaryResponse
from hubbub_decoder import decode, describe, simulate

ALPHA, RUNS, CLIENTS = 1e-6, 150, 20_000


@pytest.mark.slow
@pytest.mark.parametrize("target", ["reporters", "population"])
@pytest.mark.parametrize(("epsilon", "items"), [(1.0, 10), (2.0, 30), (4.0, 30)])
def test_items_have_the_errors_of_the_law(epsilon: float, items: int, target: str, unseen_seed: int) -> None:
    """At most 1.03 sqrt(items (e^eps / (e^eps - 1)**2 + x (1 - x)) / N), coverage in [.94, .96], at most 5 % false; alpha = 1e-6 each.

    Half of the items are used, by clients with one to all of them; as shares of a population, who is drawn is random.
    """
    p, rng = 1 / (math.exp(epsilon) + 1), np.random.default_rng(unseen_seed)
    names = [f"i{n}" for n in range(items)]
    metric = Metric.set("plugins", names, UnaryResponse(prob_p=p, prob_q=1 - p, prob_f=0))
    nested = {",".join(names[: 1 + n]): (CLIENTS // items if n < items // 2 else 0) for n in range(items)}
    truth = np.array([sum(list(nested.values())[n:]) for n in range(items)]) / CLIENTS
    squares, covered, mean_covered, false = [], [], [], []
    for _ in range(RUNS):
        clients = nested
        if target == "population":
            chances = np.array([*nested.values()]) / CLIENTS
            drawn = rng.multinomial(CLIENTS, [*chances, 1 - chances.sum()])
            clients = dict(zip(nested, drawn.tolist(), strict=False))
        counts = simulate(metric, clients, rng, no_value=CLIENTS - sum(clients.values()))
        decoding = decode(counts, target=target)  # type: ignore[arg-type]
        rows = [decoding[name] for name in names]
        squares.append([(row.share - x) ** 2 for row, x in zip(rows, truth, strict=True)])
        covered.append([row.low <= x <= row.high for row, x in zip(rows, truth, strict=True)])
        mean_covered.append(decoding.listed_total.low <= truth.sum() <= decoding.listed_total.high)
        absent = sum(bool(row.detected) and x == 0 for row, x in zip(rows, truth, strict=True))
        false.append(absent / max(1, len(decoding.detected)))
    bound = items * (math.exp(epsilon) / math.expm1(epsilon) ** 2 + truth * (1 - truth)) / CLIENTS
    ratios = (np.array(squares) / bound).mean(axis=1)
    reach = norm.isf(ALPHA) / math.sqrt(RUNS)
    assert ratios.mean() <= 1.03**2 + reach * ratios.std(ddof=1)
    law = describe(metric, num_reports=CLIENTS).accuracy
    assert (np.array(squares).mean() / law.variance(truth).mean()) == pytest.approx(
        1, abs=reach * ratios.std(ddof=1) + 0.05
    )
    shares = np.array(covered).mean(axis=1)
    assert 0.94 - reach * shares.std(ddof=1) <= shares.mean() <= 0.96 + reach * shares.std(ddof=1)
    assert np.mean(mean_covered) >= 0.95 - norm.isf(ALPHA) * math.sqrt(0.95 * 0.05 / RUNS)
    assert np.mean(false) <= 0.05 + reach * np.std(false, ddof=1)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["reporters", "population"])
@pytest.mark.parametrize(("num_ones", "epsilon"), [(1, 4.0), (3, 2.0), (6, 1.0)])
def test_whole_sets_have_the_errors_of_the_law(num_ones: int, epsilon: float, target: str, unseen_seed: int) -> None:
    """Coverage in [.94, .96], variance of the law, mean number covered, at most 5 % false; alpha = 1e-6 each.

    Clients have none to all of the first 6 of 30 items, so shares are from 0 to 1, and sizes differ.
    """
    rng, m, names = np.random.default_rng(unseen_seed), 6, [f"i{n}" for n in range(30)]
    rows = math.comb(36, num_ones), math.comb(30, num_ones)
    odds = math.exp(epsilon) * (rows[0] - rows[1]) / rows[1]
    mechanism = PrivSet(num_values=36, max_items=m, num_ones=num_ones, prob_hit=odds / (1 + odds))
    metric = Metric.set("packages", names, mechanism)
    nested = {",".join(names[: 1 + n]): CLIENTS // 10 for n in range(m)} | {"": 4 * (CLIENTS // 10)}
    nested[",".join(names[:m])] += nested.pop("") // 2
    truth = (
        np.array([sum(number for own, number in nested.items() if name in own.split(",")) for name in names]) / CLIENTS
    )
    ratios, covered, mean_covered, false = [], [], [], []
    law = describe(metric, num_reports=CLIENTS).accuracy
    for _ in range(RUNS):
        clients = nested
        if target == "population":
            chances = np.array([*nested.values()]) / CLIENTS
            drawn = rng.multinomial(CLIENTS, [*chances, 1 - chances.sum()])
            clients = dict(zip(nested, drawn.tolist(), strict=False))
        counts = simulate(metric, clients, rng, no_value=CLIENTS - sum(clients.values()))
        decoding = decode(counts, target=target)  # type: ignore[arg-type]
        found = [decoding[name] for name in names]
        sampling = truth * (1 - truth) / CLIENTS if target == "population" else 0.0
        squares = np.array([(row.share - x) ** 2 for row, x in zip(found, truth, strict=True)])
        ratios.append(np.mean(squares / (law.variance(truth) + sampling)))
        covered.append(np.mean([row.low <= x <= row.high for row, x in zip(found, truth, strict=True)]))
        mean_covered.append(decoding.listed_total.low <= truth.sum() <= decoding.listed_total.high)
        absent = sum(bool(row.detected) and x == 0 for row, x in zip(found, truth, strict=True))
        false.append(absent / max(1, len(decoding.detected)))
    reach = norm.isf(ALPHA / 2) / math.sqrt(RUNS)
    assert np.mean(ratios) == pytest.approx(1, abs=reach * np.std(ratios, ddof=1))
    spread = reach * np.std(covered, ddof=1)
    assert 0.94 - spread <= np.mean(covered) <= 0.96 + spread
    assert np.mean(mean_covered) >= 0.95 - norm.isf(ALPHA) * math.sqrt(0.95 * 0.05 / RUNS)
    assert np.mean(false) <= 0.05 + reach * np.std(false, ddof=1)
