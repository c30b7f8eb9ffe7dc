"""Likelihood ratios of a report: by hand, and against an enumeration of all strings and all reports."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from hubbub import Params
from hubbub_decoder.array_types import Bits, Floats
from hubbub_decoder.estimators.reports.likelihood_ratios import Mixture, plausible_shares
from hubbub_decoder.model.design_matrix import design_matrix

NAMES = ["a", "b", "c"]


def mixture_of(scheme: str, hashes: int) -> Mixture:
    params = Params(
        num_bits=8, num_hashes=hashes, num_cohorts=2, prob_p=0.25, prob_q=0.75, prob_f=0.2, hash_scheme=scheme
    )
    return Mixture.from_design(design_matrix(NAMES, params))


def all_reports(num_bits: int) -> Bits:
    return np.array(list(product((False, True), repeat=num_bits))).T


def ratio(bits: set[int], reports: Bits, params: Params) -> Floats:
    """P(s | these bits) / P(s | no bits) of each report, bit by bit."""
    p, q = params.mechanism.p_star, params.mechanism.q_star
    return np.asarray(np.prod([np.where(reports[i], q / p, (1 - q) / (1 - p)) for i in bits], axis=0))


@pytest.mark.parametrize("hashes", [1, 2, 3])
@pytest.mark.parametrize("scheme", ["murmur3-v1", "google-md5"])
def test_ratios_agree_with_an_enumeration_of_all_strings(scheme: str, hashes: int) -> None:
    """Candidates bit by bit; the unlisted string as the mean over all sets of bits that a string can have; "no value" as 1."""
    mixture, reports = mixture_of(scheme, hashes), all_reports(8)
    found = mixture.ratios(reports, mixture.positions[0])
    assert found.shape == (len(NAMES) + 2, 256)
    for row, positions in zip(found, mixture.positions[0].tolist(), strict=False):
        assert row == pytest.approx(ratio({i for i in positions if i < 8}, reports, mixture.params))
    strings = combinations(range(8), hashes) if scheme == "murmur3-v1" else product(range(8), repeat=hashes)
    every = [ratio(set(bits), reports, mixture.params) for bits in strings]
    assert found[-2] == pytest.approx(np.mean(every, axis=0))
    assert found[-1].tolist() == [1] * 256


def test_plausible_shares_are_positive_and_sum_to_one() -> None:
    """Shares of clear candidates are kept, a share below 0 becomes small, and the rest is unlisted."""
    z = plausible_shares(np.array([0.5, 0.2, -0.1]), np.full(3, 1e-4), no_value=0.1)
    assert z.sum() == pytest.approx(1)
    assert z == pytest.approx([0.5, 0.2, 0, 0.2, 0.1], abs=2e-3)
    assert (z > 0).all()
    impossible = plausible_shares(np.array([0.9, 0.4]), np.full(2, 1e-4), no_value=-0.2, unlisted=-0.1)
    assert (impossible > 0).all()
    assert impossible.sum() == pytest.approx(1)
