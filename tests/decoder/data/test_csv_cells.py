"""CSV files in a spreadsheet program: no cell begins a formula, and every string is read back as it was."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hubbub import Metric, UnaryResponse
from hubbub.summary import BitCounts, Reports
from hubbub_decoder import associate, compare, decode, decode_each, simulate
from hubbub_decoder.data.candidates import read_candidates
from hubbub_decoder.data.csv_cells import csv_bytes, text_of_cell
from hubbub_decoder.data.output_files import write_population
from hubbub_decoder.data.populations import read_joint_population, read_population
from hubbub_decoder.data.weights import read_weights
from tests.support.paths import REPOSITORY

NOISE: dict[str, Any] = {"prob_p": 0.2, "prob_q": 0.8, "prob_f": 0.1}
DANGEROUS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
"""First characters of cells that spreadsheet programs run or move: OWASP, "CSV Injection"."""

NAMES = st.text(
    st.sampled_from(DANGEROUS + "' \",;") | st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    min_size=1,
    max_size=6,
)
FORMULAS = ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "'=1", "''=1", "'tis", " =1", "\uff1d1", 'a"b', "a;=1", "\n"]


def cells_of(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode(), newline="")))


def require_no_formula(data: bytes, strings: Iterable[str]) -> None:
    """No cell but a number begins a formula, and the cells hold these strings."""
    cells = [cell for row in cells_of(data) for cell in row]
    for cell in cells:
        if cell.lstrip(" ")[:1] in tuple(DANGEROUS):
            float(cell)  # only numbers are negative
    assert set(strings) <= {text_of_cell(cell) for cell in cells}


@given(
    st.lists(
        st.lists(NAMES | st.just("") | st.floats() | st.none() | st.integers(), min_size=3, max_size=3), max_size=9
    )
)
@example([[*FORMULAS[i : i + 3]] for i in range(0, 12, 3)])
def test_cells_are_read_as_they_were_written(rows: list[list[Any]]) -> None:
    data = csv_bytes(["a", "b", "c"], rows)
    strings = [cell for row in rows for cell in row if isinstance(cell, str)]
    require_no_formula(data, strings)
    for row, read in zip(rows, cells_of(data)[1:], strict=True):
        for cell, shown in zip(row, read, strict=True):
            if isinstance(cell, str):
                assert text_of_cell(shown) == cell


@given(st.text(alphabet="'= -+a\t", max_size=6))
def test_reading_changes_only_protected_cells(text: str) -> None:
    """A cell that a person wrote stays as it is, unless it is an apostrophe in front of a formula."""
    assert text_of_cell(text) in (text, text[1:])
    if not text.startswith("'"):
        assert text_of_cell(text) == text


def choice(names: list[str]) -> Metric:
    return Metric.categorical("choice", tuple(names), UnaryResponse(**NOISE))


def counts(names: list[str], day: str, ones: int = 300) -> BitCounts:
    return BitCounts(choice(names), [1000], [[ones] * len(names)], periods=[day])


def joint(names: list[str], parts: int) -> Any:
    metric = Metric.joint(
        "joint", [Metric.categorical(f"part{n}", tuple(names), UnaryResponse(**NOISE)) for n in range(parts)]
    )
    clients = dict.fromkeys(itertools.product(names, repeat=parts), 60)
    return simulate(metric, clients, np.random.default_rng(1), form=Reports)


RESULTS: dict[str, Callable[[list[str]], Any]] = {
    "decode": lambda names: decode(counts(names, "2026-11-20")),
    "compare": lambda names: compare(counts(names, "2026-11-20"), counts(names, "2026-11-21", 350)),
    "decode_each": lambda names: decode_each([counts(names, "2026-11-20"), counts(names, "2026-11-21", 350)]),
    "associate": lambda names: associate(joint(names, 2)),
    "associate three": lambda names: associate(joint(names, 3)),
}


@pytest.mark.parametrize("kind", RESULTS)
def test_results_have_no_formula_and_keep_every_string(kind: str, tmp_path: Path) -> None:
    slow = kind.startswith("associate")

    @settings(max_examples=3 if slow else 8, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(NAMES, min_size=2, max_size=3, unique=True))
    @example(["=1+1", "-2", "'@x"])
    def check(names: list[str]) -> None:
        result = RESULTS[kind](names)
        result.save(tmp_path / "result.csv")
        require_no_formula((tmp_path / "result.csv").read_bytes(), names)
        if kind == "decode":
            assert read_candidates(tmp_path / "result.csv") == [estimate.candidate for estimate in result.estimates]
            result.save(tmp_path / "result.parquet")
            assert set(pq.read_table(tmp_path / "result.parquet")["candidate"].to_pylist()) == set(names)
        result.save(tmp_path / "result.json")
        assert all(json.dumps(name, ensure_ascii=False) in (tmp_path / "result.json").read_text() for name in names)

    check()


@given(st.dictionaries(NAMES | st.just(""), st.integers(1, 9), min_size=1))
@example(dict.fromkeys(FORMULAS, 1))
def test_populations_and_weights_keep_every_string(
    tmp_path_factory: pytest.TempPathFactory, population: dict[str, int]
) -> None:
    path = tmp_path_factory.getbasetemp() / "strings.csv"
    write_population(population, sum(population.values()), path)
    require_no_formula(path.read_bytes(), population)
    assert read_population(path) == (population, 0)
    path.write_bytes(csv_bytes(["candidate", "weight"], population.items()))
    assert read_weights(path) == population
    path.write_bytes(csv_bytes(["first", "second", "count"], [(value, value, 1) for value in population]))
    assert read_joint_population(path, ["first", "second"]) == {(value, value): 1 for value in population}


def test_only_one_module_writes_csv() -> None:
    writers = [
        path.name
        for package in ("client", "aggregator", "decoder")
        for path in sorted((REPOSITORY / package).rglob("*.py"))
        if any(word in path.read_text() for word in ("csv.writer", "DictWriter", "write_csv(", "to_csv("))
    ]
    assert writers == []
