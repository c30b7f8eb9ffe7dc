"""What every result with rows does, of every class."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from typing import Any

import pyarrow.parquet as pq
import pytest

from hubbub_decoder.results.table_result import TableResult


def test_is_a_sequence_of_rows_with_names(result: TableResult[Any]) -> None:
    rows = list(result)
    assert len(rows) == len(result) > 0
    assert [result[i] for i in range(len(result))] == rows == list(result[:])
    assert result[-1] == rows[-1] == next(reversed(result))
    for row in rows:
        assert row in result
        for name in result._names(row):
            assert name in result
            assert result[name] == row
    with pytest.raises(IndexError):
        result[len(rows)]
    with pytest.raises(TypeError):
        result[1.5]  # type: ignore[call-overload]  # an invalid type is tested


def test_unknown_name_is_a_key_error_with_near_names(result: TableResult[Any]) -> None:
    name = result._names(result[0])[0]
    wrong = name + "x" if isinstance(name, str) else (name[0] + "x", *name[1:])
    assert wrong not in result
    with pytest.raises(KeyError) as caught:
        result[wrong]
    assert repr(wrong) in caught.value.args[0]
    assert repr(name) in caught.value.args[0]


def is_part(part: Any, whole: Any) -> bool:
    """Whether an object has some fields of another one, with equal values or parts of them."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(name in whole and is_part(value, whole[name]) for name, value in part.items())
    return bool(part == whole)


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_files_have_the_rows_of_the_data_frame(result: TableResult[Any], suffix: str, tmp_path: Any) -> None:
    result.save(tmp_path / f"x.{suffix}")
    table = result.to_table()
    assert table.num_rows >= len(result)
    if suffix == "json":
        text = (tmp_path / "x.json").read_text()
        assert '"nan"' not in text
        assert json.loads(text, parse_constant=pytest.fail) == json.loads(json.dumps(result.to_dict()))
        return
    if suffix == "parquet":
        stored = pq.read_table(tmp_path / "x.parquet")
        assert stored.column_names == table.column_names
        about = json.loads(stored.schema.metadata[f"hubbub-{type(result).__name__.lower()}".encode()])
        assert about["decoding" if type(result).__name__ == "Discoveries" else "metric"]
        assert is_part(about, json.loads(json.dumps(result.to_dict())))
        columns = stored.to_pydict()
    else:
        with (tmp_path / "x.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        columns = {name: [row[name] for row in rows] for name in rows[0]}
    for name, expected in table.to_pydict().items():
        for found, value in zip(columns[name], expected, strict=True):
            if isinstance(value, float):
                finite = math.isfinite(value)
                assert (float(found) == value) if finite else found in ("", value) or math.isnan(found)


def test_data_frames_have_every_row(result: TableResult[Any]) -> None:
    pandas, polars = result.to_pandas(), result.to_polars()
    assert len(pandas) == len(polars) == result.to_table().num_rows
    assert list(pandas.columns) == polars.columns


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_data_frames_need_a_package_that_hubbub_does_not(
    package: str, result: TableResult[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    method = f"{type(result).__name__}.to_{package}"
    sentence = f"{method} needs {package}, which is not installed: run pip install {package}, or use to_table."
    with pytest.raises(ModuleNotFoundError, match=re.escape(sentence)):
        getattr(result, f"to_{package}")()
    assert result.to_table().num_rows


def test_notebook_shows_a_result_once(result: TableResult[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The text that becomes HTML is not displayed as well, as rich does in Jupyter."""
    shown: list[str] = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda _segments, text: shown.append(text))
    assert result._repr_html_().startswith("<div")
    assert shown == []
