"""The decoder hashes whole dictionaries to exactly the bits that the client sets."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub import Params
from hubbub.hashing import murmur3_v1
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.model.vectorized_hashing import bit_positions, hash_positions
from tests.support import google_md5
from tests.support.paths import DATA

SCHEMES = {"murmur3-v1": murmur3_v1.bit_positions, "google-md5": google_md5.bit_positions}


def params(scheme: str, k: int, h: int, m: int) -> Params:
    return Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=0.25, prob_q=0.75, prob_f=0.5, hash_scheme=scheme)


@st.composite
def any_params(draw: st.DrawFn) -> Params:
    scheme = draw(st.sampled_from(sorted(SCHEMES)))
    k = draw(st.integers(8, 256 if scheme == "google-md5" else 1024))
    h = draw(st.integers(1, min(k - 1, 16 if scheme == "google-md5" else 20)))
    return params(scheme, k, h, draw(st.integers(1, 9)))


@given(any_params(), st.lists(st.text(max_size=80), min_size=1, max_size=8, unique=True))
def test_design_matrix_matches_the_scalar_hashes(params: Params, values: list[str]) -> None:
    dense = design_matrix(values, params).matrix.toarray().reshape(params.num_cohorts, params.num_bits, -1)
    column_of = {name: i for i, group in enumerate(design_matrix(values, params).groups) for name in group}
    for value in values:
        for cohort in range(params.num_cohorts):
            expected = set(SCHEMES[params.hash_scheme](value.encode(), cohort, params.num_bits, params.num_hashes))
            assert set(np.flatnonzero(dense[cohort, :, column_of[value]]).tolist()) == expected


def test_google_md5_matches_google_rappor_vectors() -> None:
    vectors = json.loads((DATA / "google_rappor_vectors.json").read_text())["bloom"]
    assert len(vectors) == 588
    for vector in vectors:
        value, cohort, k, h = (vector[name] for name in ("value_utf8_hex", "cohort", "num_bits", "num_hashes"))
        text = bytes.fromhex(value)
        assert google_md5.bit_positions(text, cohort, k, h) == vector["bits"], vector
        (bits,) = hash_positions([text], params("google-md5", k, h, 1), range(cohort, cohort + 1))[:, 0]
        assert set(bits.tolist()) - {k} == set(vector["bits"]), vector


@pytest.mark.parametrize("scheme", SCHEMES)
def test_chunked_hashing_equals_hashing_of_parts(scheme: str) -> None:
    values = [f"v{i}" for i in range(5000)]
    few = params(scheme, 32, 2, 3)
    whole = bit_positions(values, few)
    for part in (slice(0, 10), slice(4090, 4100), slice(4990, 5000)):
        assert np.array_equal(whole[part], bit_positions(values[part], few))


def test_murmur3_v1_columns_have_h_entries_per_cohort() -> None:
    design = design_matrix([f"v{i}" for i in range(300)], params("murmur3-v1", 64, 3, 16))
    assert set(design.matrix.sum(axis=0).tolist()) == {3 * 16}


def test_candidates_with_equal_bits_share_a_column() -> None:
    values = [f"v{i}" for i in range(100)]
    design = design_matrix(values, params("murmur3-v1", 8, 2, 1))
    assert sorted(name for group in design.groups for name in group) == sorted(values)
    assert len(design.groups) <= 28  # 8 choose 2
    dense = design.matrix.toarray()
    assert len(np.unique(dense, axis=1).T) == len(design.groups)


def test_google_md5_coincident_bits_count_once() -> None:
    few = params("google-md5", 8, 5, 1)
    values = [f"v{i}" for i in range(2000)]
    design = design_matrix(values, few)
    assert design.matrix.toarray().max() == 1
    assert len(np.unique(design.matrix.toarray(), axis=1).T) == len(design.groups)


def test_matrix_is_sparse_and_canonical() -> None:
    matrix = design_matrix([f"v{i}" for i in range(1000)], params("murmur3-v1", 128, 2, 64)).matrix
    assert matrix.shape == (128 * 64, 1000)
    assert matrix.nnz == 1000 * 64 * 2
    assert matrix.has_canonical_format
    assert matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes < 6 * matrix.nnz


def test_repr_has_the_shape_and_no_candidates() -> None:
    assert repr(design_matrix(["v1", "v2"], params("murmur3-v1", 128, 2, 64))) == (
        "<DesignMatrix of 2 candidates: 64 cohorts x 128 bits>"
    )
    assert repr(design_matrix([f"v{i}" for i in range(20)], params("murmur3-v1", 8, 1, 1))) == (
        "<DesignMatrix of 20 candidates in 8 columns: 1 cohort x 8 bits>"
    )
