"""Effort of the search for unlisted strings, counted in evaluations of the likelihood of all bits."""

from __future__ import annotations

import numpy as np
import pytest

from hubbub import Metric, Params
from hubbub_decoder.inference.residual_bits import ResidualBits
from hubbub_decoder.inference.unlisted_search import find_strings
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.simulation import simulate


def test_a_standard_error_costs_less_than_five_searches_of_the_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs the best tau**2 at six sums of shares, which are near the one at the estimate: six searches of everything were wasted."""
    params = Params(num_bits=64, num_hashes=1, num_cohorts=16, prob_p=0.2, prob_q=0.7, prob_f=0)
    population = {"a": 30_000, "b": 20_000, **{f"v{i}": 1_000 for i in range(50)}}
    counts = simulate(Metric.string("page", params), population, np.random.default_rng(0))
    residuals = ResidualBits.from_evidence(Evidence(counts), np.zeros((16, 64)), 1.0)
    found = find_strings(residuals, 1.0)
    assert found is not None
    evaluations = [0]
    original = ResidualBits.log_likelihood

    def counted(self: ResidualBits, *arguments: object) -> float:
        evaluations[0] += 1
        return original(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ResidualBits, "log_likelihood", counted)
    residuals.best_others(found.shares)
    one, evaluations[0] = evaluations[0], 0
    assert 0 < found.std_error() < 0.05
    assert evaluations[0] < 5 * one
    assert one < 40
