"""Weighted tests and priors of strata: the rate with right and wrong weights, more discoveries with right ones, and any order."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from hubbub import Metric, Params
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub_decoder import Decoding, decode
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.data.weights import weight_strata
from hubbub_decoder.inference.multiple_testing import q_values, stratum_weights
from hubbub_decoder.inference.prior import fit_prior
from hubbub_decoder.simulation import simulate

ALPHA = 1e-6
CANDIDATES, PRESENT, ERROR = 4000, 400, 0.001
TRUTH = np.concatenate([1 / np.arange(1, PRESENT + 1), np.zeros(CANDIDATES - PRESENT)])
TRUTH /= TRUTH.sum()


def strata_of(name: str, rng: np.random.Generator) -> Indices:
    ranks = 1 / np.arange(1.0, CANDIDATES + 1)
    weights = {"right": ranks, "shuffled": rng.permutation(ranks), "reversed": ranks[::-1]}[name]
    strata = weight_strata(weights)
    assert strata is not None
    return strata


def found(p: Floats, strata: Indices | None) -> tuple[int, float]:
    """Number of present candidates, and the share of absent ones, among the discoveries."""
    discoveries = q_values(p, 0.05, strata) <= 0.05
    false = int((discoveries & (TRUTH == 0)).sum())
    return int(discoveries.sum()) - false, false / max(1, int(discoveries.sum()))


@pytest.mark.parametrize("name", ["right", "shuffled", "reversed"])
def test_weighted_tests_keep_the_false_discovery_rate(name: str, unseen_seed: int) -> None:
    """Independent estimates of 400 present and 3,600 absent candidates, 400 runs; at most .05 + 4.8 standard errors (alpha = 1e-6)."""
    rng = np.random.default_rng(unseen_seed)
    runs = np.array([found(norm.sf(rng.normal(TRUTH, ERROR) / ERROR), strata_of(name, rng))[1] for _ in range(400)])
    assert runs.mean() <= 0.05 + norm.isf(ALPHA) * runs.std(ddof=1) / 20


def test_weighted_tests_find_more_with_a_right_list_and_hardly_fewer_with_a_wrong_one(unseen_seed: int) -> None:
    """60 runs with the same p-values. Gains of the right list are 40 %; a shuffled list costs 5 %, by the noise of its weights."""
    rng = np.random.default_rng(unseen_seed)
    numbers = np.zeros(3)
    for _ in range(60):
        p = norm.sf(rng.normal(TRUTH, ERROR) / ERROR)
        numbers += [found(p, None)[0], *(found(p, strata_of(name, rng))[0] for name in ("right", "shuffled"))]
    assert numbers[1] > 1.2 * numbers[0]
    assert numbers[2] > 0.85 * numbers[0]


def test_stratum_weights_average_one_and_ignore_the_own_p_value(unseen_seed: int) -> None:
    """A moved p-value changes the weight of its candidate only by the common factor, which the other strata show."""
    rng = np.random.default_rng(unseen_seed)
    p, strata = norm.sf(rng.normal(TRUTH, ERROR) / ERROR), strata_of("right", rng)
    weights = stratum_weights(p, 0.05, strata)
    assert weights.mean() == pytest.approx(1)
    for at in rng.choice(PRESENT, 20, replace=False):
        other = int(np.flatnonzero((strata != strata[at]) & (weights > 0))[0])
        for p_value in (0.0, 1.0):
            moved = stratum_weights(np.where(np.arange(CANDIDATES) == at, p_value, p), 0.05, strata)
            assert moved[at] / moved[other] == pytest.approx(weights[at] / weights[other])


FIELDS = (
    "share",
    "std_error",
    "low",
    "high",
    "p_value",
    "q_value",
    "detected",
    "posterior_median",
    "posterior_mean",
    "credible_low",
    "credible_high",
)


def figures(decoding: Decoding) -> dict[frozenset[str], list[float]]:
    """Estimates by the strings of each candidate, which have no order."""
    return {
        frozenset((e.candidate, *e.indistinguishable_from)): [float(getattr(e, name)) for name in FIELDS]
        for e in decoding
    }


@pytest.mark.parametrize("form", [BitCounts, PatternCounts, Reports])
@pytest.mark.parametrize(("bits", "cohorts", "size"), [(8, 2, 60), (16, 8, 40), (16, 8, 200)])
def test_order_and_equal_weights_change_no_result(
    form: type[BitCounts | PatternCounts | Reports], bits: int, cohorts: int, size: int, unseen_seed: int
) -> None:
    """Collisions, few and many candidates; equal weights, distinct ones, and ties with some candidates unknown."""
    rng = np.random.default_rng(unseen_seed)
    metric = Metric.string(
        "s", Params(num_bits=bits, num_hashes=2, num_cohorts=cohorts, prob_p=0.25, prob_q=0.75, prob_f=0)
    )
    names = [f"v{i}" for i in range(size)]
    population = {name: int(rng.integers(8000, 16000) / (i + 1)) for i, name in enumerate(names[: size // 4])}
    collected = simulate(metric, population, rng, form=form)
    plain = figures(decode(collected, names))
    several = (
        None,
        dict.fromkeys(names, 3.0),
        {name: float(size - i) for i, name in enumerate(names)},
        {name: float(rng.integers(1, 4)) for name in names[:: rng.integers(1, 3)]},
    )
    for number, weights in enumerate(several):
        listed = figures(decode(collected, names, weights=weights)) if number else plain
        shuffled = figures(decode(collected, rng.permutation(names).tolist(), weights=weights))
        assert shuffled.keys() == listed.keys()
        for candidate, figure in listed.items():
            assert shuffled[candidate] == pytest.approx(figure, abs=1e-7, nan_ok=True), (number, candidate)
        if number == 1:
            assert np.array_equal(list(listed.values()), list(plain.values()), equal_nan=True)


@pytest.mark.slow
def test_priors_of_strata_have_smaller_errors_with_a_right_list_only(unseen_seed: int) -> None:
    """Squared error of posterior means, 20 runs: a shuffled list costs nothing but the noise of its weights."""
    rng = np.random.default_rng(unseen_seed)
    errors, v = np.zeros(3), np.full(CANDIDATES, ERROR**2)
    for _ in range(20):
        x = rng.normal(TRUTH, ERROR)
        for i, strata in enumerate((None, strata_of("right", rng), strata_of("shuffled", rng))):
            errors[i] += np.sum((fit_prior(x, v, strata).posterior(x, v)[0] - TRUTH) ** 2)
    assert errors[1] < 0.7 * errors[0]
    assert errors[2] < 1.1 * errors[0]
