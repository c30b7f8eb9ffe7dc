"""Predicted probability that a search finds a string, against searches."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import binom

from hubbub import Metric, Params
from hubbub.errors import ParameterError
from hubbub.metrics.definitions import parse_definitions
from hubbub.metrics.discovery import Discovery
from hubbub_decoder import PlanError, discover, plan, simulate
from hubbub_decoder.discovery.discover import discovery_of
from hubbub_decoder.discovery.power import detection_limit, detection_probability
from hubbub_decoder.planning.description import describe
from hubbub_decoder.planning.law.accuracy import DiscoveryAccuracy
from hubbub_decoder.planning.wishes import Wishes

ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def law_of(metric: Metric, reports: int) -> DiscoveryAccuracy:
    accuracy = describe(metric, num_reports=reports).accuracy
    assert isinstance(accuracy, DiscoveryAccuracy)
    return accuracy


def metric_of(epsilon: float, longest: int, step: int, symbols: int, num_bits: int = 256) -> Metric:
    b = math.ceil(2**24 / (1 + math.exp(epsilon))) / 2**24
    params = Params(
        num_bits=num_bits, num_hashes=1, num_cohorts=128, prob_p=0, prob_q=1, permanent_p=b, permanent_q=0.5
    )
    groups = Discovery(longest=longest, step=step, first=max(step, 2), alphabet=ALPHABET[:symbols])
    return Metric.string("words", params, discover=groups)


def test_probability_increases_with_share_and_reports() -> None:
    law = law_of(metric_of(4, 8, 2, 26), 1_000_000)
    assert law.discover is not None

    def probability(share: float, reports: float = 1e6, length: int = 8) -> float:
        return detection_probability(law.discover, 128, law.noise, reports, share, length)

    found = [probability(share) for share in np.geomspace(1e-4, 0.1, 12)]
    assert found[0] < 0.01
    assert found[-1] > 0.99
    assert np.all(np.diff(found) > -0.02)
    limit = law.detection_limit()
    assert probability(limit) == pytest.approx(0.9, abs=0.02)
    assert probability(limit, 4e6) > 0.95 > 0.5 > probability(limit, 2.5e5)


def test_limit_rises_where_larger_shares_fill_the_beam() -> None:
    """1 / (x ln(1/x)) strings are above x: 30 above .7 %, and 1,000 above .011 %, which is below all limits here."""
    law = law_of(metric_of(8, 8, 2, 26), 1_000_000)
    limits = [replace(law, beam=beam).detection_limit() for beam in (3, 30, 100, 1000, 10_000)]
    assert all(small >= large for small, large in pairwise(limits))
    assert limits[1] == pytest.approx(0.0069, rel=0.05)
    assert limits[1] > 2 * limits[3]
    assert replace(law, beam=1).detection_limit() == math.inf


def test_limit_is_infinite_where_no_string_is_found() -> None:
    law = law_of(metric_of(1, 8, 2, 26), 1_000)
    assert detection_limit(law.discover, 128, law.noise, 1_000, 0.8, 8) == math.inf


@pytest.mark.slow
def test_strings_are_found_where_the_law_predicts_it(unseen_seed: int) -> None:
    """Random tasks: a miss of a string of probability above .99, and a find below .01, is rarer than 1 in 10."""
    rng = np.random.default_rng(unseen_seed)
    misses, sure, finds, hidden = 0, 0, 0, 0
    for _ in range(6):
        length, symbols = int(rng.integers(3, 7)), int(rng.integers(12, 27))
        metric = metric_of(float(rng.uniform(3, 8)), 6, int(rng.integers(1, 3)), symbols)
        reports = int(rng.integers(100_000, 400_000))
        texts = list({"".join(rng.choice(list(ALPHABET[:symbols]), length)): 0 for _ in range(150)})
        shares = 1 / np.arange(1, len(texts) + 1)
        shares /= shares.sum()
        population = dict(zip(texts, map(int, rng.multinomial(reports, shares)), strict=True))
        counts, beam = simulate(metric, population, rng), int(rng.choice([30, 100, 1000]))
        found = discover(counts, target="population", beam=beam, max_candidates=100_000)
        detected = {estimate.candidate for estimate in found.detected}
        law = law_of(metric, reports)
        for text, share in zip(texts, shares, strict=True):
            predicted = detection_probability(law.discover, 128, law.noise, reports, float(share), length, beam)
            misses += predicted > 0.99 and text not in detected
            finds += predicted < 0.01 and text in detected
            sure, hidden = sure + (predicted > 0.99), hidden + (predicted < 0.01)
    assert sure > 20
    assert misses <= binom.isf(1e-6, sure, 0.1)
    assert finds <= binom.isf(1e-6, max(hidden, 1), 0.1)


@pytest.mark.slow
def test_plan_chooses_groups_within_epsilon() -> None:
    wishes = Wishes(epsilon=4.0, longitudinal=4.0, num_reports=1_000_000, longest=8, alphabet=ALPHABET, bits=512)
    planned = plan(wishes, name="command", expires=date(2099, 1, 1))
    groups = discovery_of(planned.metric)
    assert groups is not None
    assert groups.longest == 8
    assert parse_definitions(planned.toml())["command"].digest == planned.metric.digest
    other = metric_of(4, 8, 1, 26, 512)
    assert planned.description.detection_limit < law_of(other, 1_000_000).detection_limit()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"alphabet": "ab"}, "`alphabet` without `longest`"),
        ({"longest": 8, "num_candidates": 5}, "leave out `num_candidates`"),
        ({"longest": 8, "num_reports": None, "share": 0.1}, "`longest` needs `num_reports`"),
        ({"longest": 200, "alphabet": ALPHABET}, "each prefix group and the held-out group needs 8 cohorts"),
        ({"longest": 0, "alphabet": ALPHABET}, "longest must be an integer"),
        ({"longest": 8, "alphabet": "aa"}, "alphabet must be a string of 2 or more distinct characters"),
        ({"longest": 8, "alphabet": ALPHABET, "num_reports": 1_000}, "No string is found"),
    ],
)
def test_plan_rejects_wishes_of_discovery(fields: dict[str, object], message: str) -> None:
    wishes = {"epsilon": 1.0, "num_reports": 100_000} | fields
    with pytest.raises((PlanError, ParameterError), match=message):
        plan(Wishes(**wishes))  # type: ignore[arg-type]
