"""A mechanism in a file of its own works on every way from a definition to a decoding, also if its bits depend on each other."""

from __future__ import annotations

import numpy as np
import pytest

from hubbub import Buckets, DefinitionError, Encoder, Metric, Params, Secret, UnaryResponse, parse_definitions
from hubbub.mechanisms.subset import SubsetSelection
from hubbub.metrics.kinds import StringKind, ordinal_kind
from hubbub.privacy import epsilon
from hubbub.summary import BitCounts, Reports
from hubbub_decoder import decode
from hubbub_decoder.audit.audit import audit_metric
from hubbub_decoder.estimators.categories import RowNoise
from hubbub_decoder.planning.definition import toml_lines
from hubbub_decoder.simulation import simulate, simulate_reports

MECHANISM = SubsetSelection(num_values=4, num_ones=2, prob_q=0.75)
AGE = Metric(
    "age", ordinal_kind(Buckets((0, 1, 7, 30, 365), default=0), MECHANISM), owner="a@example.org", description="Age"
)
POPULATION = {"0": 5_000, "3": 3_000, "10": 2_000}


def test_definition_names_its_mechanism() -> None:
    unary = Metric.ordinal(
        "age", Buckets((0, 1, 7, 30, 365), default=0), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0)
    )
    assert Metric.from_dict(AGE.to_dict()) == AGE
    assert AGE.digest != unary.digest
    assert (AGE.params.canonical()["mechanism"], unary.params.canonical().get("mechanism")) == ("subset", None)
    text = "\n".join(toml_lines(AGE)).replace("# expires = YYYY-MM-DD", "expires = 2030-01-01")
    assert parse_definitions(text)["age"].digest == AGE.digest
    with pytest.raises(DefinitionError, match=r"mechanism must be one of .+, got 'grr'"):
        parse_definitions(text.replace('"subset"', '"grr"'))


def test_covariance_of_a_row_is_that_of_its_rows(unseen_seed: int) -> None:
    """100,000 simulated rows: each covariance is right to 6 standard errors of at most 1 / (2 sqrt n)."""
    rng = np.random.RandomState(np.random.PCG64(unseen_seed))
    rows = next(MECHANISM.simulate(np.zeros((100_000, 1), np.intp), 4, 1, rng))
    covariance, noise = np.cov(rows.T), RowNoise.of_mechanism(MECHANISM)
    expected = [noise.present, noise.one, noise.absent, noise.neither]
    assert [covariance[0, 0], covariance[0, 1], covariance[1, 1], covariance[1, 2]] == pytest.approx(
        expected, abs=0.0095
    )


def test_encoder_and_simulation_have_one_law(unseen_seed: int) -> None:
    """The share of reports with the true bit is q in both, to 5 standard errors."""
    secret, rng = Secret(bytes(32)), np.random.default_rng(unseen_seed)
    encoder = Encoder(AGE, secret, lambda number: rng.bytes(number))
    encoded = np.array([list(encoder.encode(3.0).bits) for _ in range(2_000)])
    simulated = np.concatenate([Reports(AGE, *block).rows for block in simulate_reports(AGE, {"3": 2_000}, rng)])
    for has_bit, bits in (
        (encoded[:, 1], encoded.sum(axis=1)),
        (simulated[:, 0] >> 1 & 1, np.bitwise_count(simulated[:, 0])),
    ):
        assert has_bit.mean() == pytest.approx(0.75, abs=5 * (0.75 * 0.25 / 2_000) ** 0.5)
        assert (bits == 2).all()


def test_decoding_knows_that_every_row_has_the_same_number_of_ones(unseen_seed: int) -> None:
    counts = simulate(AGE, POPULATION, np.random.default_rng(unseen_seed), periods=["2026-03-01", "2026-03-02"])
    assert isinstance(counts, BitCounts)
    assert counts.ones.sum() == 2 * counts.num_reports == 40_000
    decoding = decode(counts)
    assert decoding.listed_total.share == pytest.approx(1, abs=1e-12)
    assert decoding.listed_total.std_error == pytest.approx(0, abs=1e-9)
    assert decoding["below 1"].share == pytest.approx(0.5, abs=6 * decoding["below 1"].std_error)


def test_mean_is_known_where_the_shares_add_up_to_1(unseen_seed: int) -> None:
    rng = np.random.default_rng(unseen_seed)
    for _ in range(30):
        numbers = decode(simulate(AGE, POPULATION, rng)).numbers
        assert numbers is not None
        assert numbers.mean is not None
        assert np.isfinite([numbers.mean.value, numbers.mean.std_error]).all()


def test_audit_agrees_with_its_epsilon(unseen_seed: int) -> None:
    """A false alarm has probability 1e-6. At .6 of the claim the bound is 6 standard errors of ln(P_v / P_w) low."""
    found = audit_metric(AGE, num_reports=1, trials=20_000, confidence=1 - 1e-6, seed=unseen_seed % 2**32)
    assert not found.refuted
    assert 0.6 * epsilon(AGE) < found.bound.epsilon <= epsilon(AGE)


def test_strings_refuse_it() -> None:
    wide = Params(
        num_bits=8, num_hashes=1, num_cohorts=1, mechanism=SubsetSelection(num_values=8, num_ones=2, prob_q=0.75)
    )
    with pytest.raises(DefinitionError, match="bits are independent"):
        StringKind(wide)
