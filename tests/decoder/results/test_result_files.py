"""Every kind of result in every format: what was not tested and what is not known are null, and are read back as such."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hubbub_decoder import Association, Decoding, Discoveries, Trends
from hubbub_decoder.results.loadable import Loadable
from hubbub_decoder.results.table_result import TableResult
from tests.support.every_result import results

TESTED = {
    "homepage",
    "words",
    "plugins",
    "packages",
    "extensions",
    "os_and_page.page",
    "theme_and_page.page",
    "screened",
}
"""Metrics whose candidates are tested: strings and items. Those of a closed list, numbers among them, are not."""


@pytest.fixture(params=sorted(results()))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def result(name: str) -> TableResult[Any]:
    return results()[name]


def refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} in JSON")


def json_rows(result: TableResult[Any]) -> Sequence[Mapping[str, Any]]:
    """Rows of the JSON file, of all decodings; a nan in the file is an error."""
    document = json.loads(result.to_bytes(".json"), parse_constant=refuse)
    parts = document["decodings"] if isinstance(result, Trends) else [document.get("decoding", document)]
    rows = "estimates" if isinstance(result, Decoding | Discoveries | Trends) else "changes"
    return [row for part in parts for row in part["cells" if isinstance(result, Association) else rows]]


def has_rows(result: TableResult[Any]) -> bool:
    """Whether there is a table; a mean has none."""
    return len(result) > 0


def test_what_was_not_tested_is_null_in_every_format(name: str, result: TableResult[Any]) -> None:
    """A row has an answer exactly where it has a q value. Changes are tested for every kind."""
    if isinstance(result, Association) or not has_rows(result):
        return
    csv_file = csv.DictReader(io.StringIO(result.to_bytes(".csv").decode(), newline=""))
    of_csv = [{"True": True, "False": False, "": None}[row["detected"]] for row in csv_file]
    frame, polars = result.to_pandas(), result.to_polars()
    written = {
        "python": [row["detected"] for row in result._cells()],
        "csv": of_csv,
        "parquet": pq.read_table(io.BytesIO(result.to_bytes(".parquet")))["detected"].to_pylist(),
        "pandas": [None if answer is pd.NA else bool(answer) for answer in frame["detected"]],
        "polars": polars["detected"].to_list(),
    }
    answers = written["python"]
    assert {form: values == answers for form, values in written.items()} == dict.fromkeys(written, True)
    assert [row["detected"] for row in json_rows(result)].count(None) == answers.count(None)
    assert [answer is None for answer in answers] == [math.isnan(row["q_value"]) for row in result._cells()]
    metric, _, way = name.partition(", ")
    assert any(answer is not None for answer in answers) is (metric in TESTED or way == "changes")


def test_no_number_is_nan_in_a_file(result: TableResult[Any]) -> None:
    """Null is what databases and data frames leave out of an average; the average of a column with a nan is nan."""
    json.loads(result.to_bytes(".json"), parse_constant=refuse)
    if not has_rows(result):
        return
    table = pq.read_table(io.BytesIO(result.to_bytes(".parquet")))
    numbers = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    assert numbers
    assert [
        column for column in numbers if any(math.isnan(x) for x in table[column].to_pylist() if x is not None)
    ] == []
    json.loads(next(iter(table.schema.metadata.values())), parse_constant=refuse)
    rows = list(csv.reader(io.StringIO(result.to_bytes(".csv").decode(), newline="")))
    assert not {"nan", "NaN", "None"} & {cell for row in rows for cell in row}


def test_files_that_say_false_where_nothing_was_tested_are_read_as_not_tested(result: TableResult[Any]) -> None:
    """Earlier files have `"detected": false` in every row without a q value, and no collision probability."""
    if not isinstance(result, Loadable):
        return
    document = json.loads(result.to_bytes(".json"))
    earlier = json.loads(
        json.dumps(document),
        object_hook=lambda row: {**row, "detected": row["detected"] or False} if "detected" in row else row,
    )
    assert type(result).from_dict(earlier) == type(result).from_dict(document) == result
    if isinstance(result, Decoding):
        del earlier["collision_probability"]
        assert Decoding.from_dict(earlier) == replace(result, collision_probability=0.0)


def test_posterior_shares_are_known_or_a_reason_is_given(result: TableResult[Any]) -> None:
    """Of every candidate with a share; the reasons are the findings of undetermined totals, and a bound on forged reports."""
    if not isinstance(result, Decoding):
        return
    known = [estimate for estimate in result if not math.isnan(estimate.share)]
    reasons = [warning for warning in result.warnings if warning.kind == "undetermined_totals"]
    is_explained = bool(reasons or result.fabricated)
    assert {math.isnan(estimate.posterior_mean) for estimate in known} <= {is_explained}
    assert all(0 <= estimate.posterior_mean <= 1 for estimate in known if not is_explained)
    if result.fabricated and result.metric.kind.has_exclusive_values:
        assert (
            any("posterior shares are left out" in line for line in result.document().lines)
            or result.metric.params.num_bits == 1
        )
