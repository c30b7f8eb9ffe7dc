"""Weights of candidates: files, refused input, and the strata that they give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubbub import Metric, ParameterError, Params, UnaryResponse
from hubbub_decoder import CandidateError, decode
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.data.weights import group_weights, read_weights, weight_strata
from hubbub_decoder.simulation import simulate

STRING = Metric.string("s", Params(num_bits=16, num_hashes=2, num_cohorts=8, prob_p=0.25, prob_q=0.75, prob_f=0))


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "weights.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_read_weights_adds_up_repeated_candidates(tmp_path: Path) -> None:
    path = written(tmp_path, 'rank,Weight,candidate\n1,10,"a, b"\n2,0.5,c\n\n3,2,c\n')
    assert read_weights(path) == {"a, b": 10, "c": 2.5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must name the columns candidate and weight, but has nothing"),
        ("candidate,count\na,1\n", "but has candidate, count"),
        ("candidate,weight\na,-1\n", "line 2: weight must be a finite number of at least 0, got 'a,-1'"),
        ("candidate,weight\na,1\nb,nan\n", "line 3: weight"),
        ("candidate,weight\na\n", "line 2: weight"),
    ],
)
def test_read_weights_refuses_other_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CandidateError, match=message):
        read_weights(written(tmp_path, text))


@pytest.mark.parametrize("weights", [["a"], {"a": -1}, {"a": "1"}, {"a": float("inf")}, {1: 1}, {"b": 1}, {}])
def test_group_weights_refuses_other_weights(weights: Any) -> None:
    with pytest.raises(CandidateError, match="weights"):
        group_weights(weights, [("a",)])


def test_group_weights_takes_the_largest_of_indistinguishable_candidates() -> None:
    assert group_weights({"a": 1, "b": 2, "x": 9}, [("a", "b"), ("c",)]).tolist() == [2, 0]


def strata_of(weights: Floats) -> Indices:
    strata = weight_strata(weights)
    assert strata is not None
    return strata


def test_weight_strata_use_the_order_only() -> None:
    weights = np.random.default_rng(0).permutation(np.arange(1.0, 501))
    assert np.array_equal(strata_of(weights), strata_of(np.exp(weights / 50)))
    assert np.bincount(strata_of(weights)).tolist() == [30, 60, 180, 230]
    assert sorted(weights[strata_of(weights) == 0]) == list(range(471, 501))
    assert strata_of(np.append(weights, 0))[-1] == 4


def test_equal_weights_have_the_same_stratum() -> None:
    """25 distinct weights and 375 equal ones: the equal ones have the mean rank 212, between 90 and 270."""
    assert strata_of(np.append(np.arange(25.0) + 2, np.ones(375))).tolist() == [0] * 25 + [1] * 375
    assert weight_strata(np.ones(400)) is None


def test_decode_keeps_estimates_of_few_candidates_with_weights() -> None:
    """Few candidates are fixed effects, which have no prior."""
    names = [f"v{i}" for i in range(5)]
    counts = simulate(STRING, dict.fromkeys(names[:3], 3000), np.random.default_rng(0))
    plain, weighted = (decode(counts, names, weights=weights) for weights in (None, {"v0": 2, "v1": 1.5}))
    assert [(e.candidate, e.share, e.low, e.high, e.p_value) for e in plain] == [
        (e.candidate, e.share, e.low, e.high, e.p_value) for e in weighted
    ]


@pytest.mark.slow
def test_decode_detects_more_with_the_right_weights(unseen_seed: int) -> None:
    """1,000 candidates of which 100 are present, zipf1, three populations.

    In 20 runs with other seeds a population had 15.3 more finds with weights (standard deviation 4.3), and .35 (.04) of the squared
    error, so the sum of three is 6 standard deviations from a failure.
    """
    rng = np.random.default_rng(unseen_seed)
    params = Params(num_bits=64, num_hashes=2, num_cohorts=32, prob_p=0.25, prob_q=0.75, prob_f=0)
    found, errors = np.zeros(2), np.zeros(2)
    for run in range(3):
        names = [f"{unseen_seed}-{run}-{i}" for i in range(1000)]
        people = {name: 30_000 // rank for rank, name in enumerate(names[:100], start=1)}
        counts = simulate(Metric.string("s", params), people, rng)
        for i, weights in enumerate((None, people)):
            decoding = decode(counts, names, weights=weights)
            found[i] += len(decoding.detected)
            truth = [people.get(e.candidate, 0) / counts.num_reports for e in decoding]
            errors[i] += sum((e.posterior_mean - share) ** 2 for e, share in zip(decoding, truth, strict=True))
    assert found[1] > found[0]
    assert errors[1] < 0.7 * errors[0]


def test_decode_refuses_weights_of_categories() -> None:
    yes = Metric.boolean("yes", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    with pytest.raises(
        ParameterError, match="weights is for the candidates of a string metric, and a boolean metric has none"
    ):
        decode(simulate(yes, {"true": 50}, np.random.default_rng(0)), weights={"true": 1})
