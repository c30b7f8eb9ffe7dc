"""Columns of pandas, polars, pyarrow and numpy as candidates and as values, whole or as slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from hubbub import Metric, Params, UnaryResponse
from hubbub.summary import BitCounts
from hubbub_decoder import PopulationError, compare, decode, decode_each, simulate
from hubbub_decoder.data.candidates import distinct_candidates
from hubbub_decoder.data.populations import count_values

STRING = Metric.string("site", Params(num_bits=16, num_hashes=2, num_cohorts=8, prob_p=0.25, prob_q=0.75, prob_f=0.25))
SURVEY = Metric.categorical("site", ("a", "b", "c"), UnaryResponse(prob_p=0.1, prob_q=0.9, prob_f=0.5))
NAMES = ["unused", "a", "b", "c"]
COLUMNS: list[Callable[[Sequence[str | None]], Any]] = [
    list,
    tuple,
    pd.Series,
    lambda names: pd.Series(names, dtype="string"),
    lambda names: pd.Series(names, dtype="category"),
    pd.Index,
    pl.Series,
    pa.array,
    lambda names: pa.chunked_array([names]),
    lambda names: np.array(names, object),
]


def summary(metric: Metric, day: str = "2026-03-02") -> BitCounts:
    return simulate(metric, {"a": 3000, "b": 2000, "c": 500}, np.random.default_rng(int(day[-1])), periods=[day])


@pytest.mark.parametrize("column", COLUMNS)
def test_slices_of_columns_are_lists_of_candidates(column: Callable[[Sequence[str]], Any]) -> None:
    assert distinct_candidates(column(NAMES)[1:]) == (NAMES[1:], 0)


@pytest.mark.parametrize("column", [pd.Series, lambda names: pa.chunked_array([names])])
@pytest.mark.parametrize("metric", [STRING, SURVEY])
def test_every_function_accepts_slices_of_columns(column: Callable[[Sequence[str]], Any], metric: Metric) -> None:
    names, counts, other = column(NAMES)[1:], summary(metric), summary(metric, "2026-03-03")
    expected = decode(counts, NAMES[1:])
    assert decode(counts, names).to_dict() == expected.to_dict()
    assert compare(counts, other, names).to_dict() == compare(counts, other, NAMES[1:]).to_dict()
    assert decode_each([counts], names)["2026-03-02"].to_dict() == expected.to_dict()


@pytest.mark.parametrize("column", COLUMNS)
def test_columns_of_values_are_counted(column: Callable[[Sequence[str | None]], Any]) -> None:
    assert count_values(column(["a", "b", None, "a"])) == ({"a": 2, "b": 1}, 1)
    assert count_values(column(["x", "b", "a"])[1:]) == ({"b": 1, "a": 1}, 0)


def test_value_counts_of_pandas_are_a_population() -> None:
    values = pd.Series(["a", "b", "a"])
    assert count_values(values.value_counts()) == ({"a": 2, "b": 1}, 0)
    assert count_values(pd.Series([True, False, True])) == ({"true": 2, "false": 1}, 0)
    assert count_values(pd.Series([True, False, True]).value_counts()) == ({"true": 2, "false": 1}, 0)
    simulated, expected = (
        simulate(STRING, population, np.random.default_rng(3)) for population in (values, {"a": 2, "b": 1})
    )
    np.testing.assert_array_equal(simulated.ones, expected.ones)


def test_series_of_numbers_without_values_is_rejected() -> None:
    with pytest.raises(PopulationError, match="must be a string, a bool or None, got 0"):
        count_values(pd.Series([3, 4]))


def test_series_of_weights_orders_the_candidates() -> None:
    counts, weights = summary(STRING), {"a": 3.0, "b": 2.0}
    of_series, of_dict = (decode(counts, NAMES, weights=mapping) for mapping in (pd.Series(weights), weights))
    assert of_series.to_dict() == of_dict.to_dict()
