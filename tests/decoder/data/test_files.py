"""Candidate and population files: contents, errors with line numbers, and atomic writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis.strategies import characters, dictionaries, integers, text

from hubbub import Metric, UnaryResponse
from hubbub_decoder import CandidateError, PopulationError
from hubbub_decoder.data.candidates import distinct_candidates, read_candidates, write_candidates
from hubbub_decoder.data.output_files import atomic_write, write_population
from hubbub_decoder.data.populations import (
    DISTRIBUTIONS,
    distribution_shares,
    draw_population,
    read_population,
)
from hubbub_decoder.kinds.operations import operations_of


def test_text_file_has_one_candidate_per_line_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_bytes("\ufeffa b\r\n\n ä,x \n#c".encode())
    assert read_candidates(path) == ["a b", " ä,x ", "#c"]


def test_only_line_feeds_separate_candidates(tmp_path: Path) -> None:
    """Other characters at which str.splitlines splits belong to the candidate."""
    inside = ["a\fb", "a\x1cb", "a\u2028b", "a\x85b", "a\rb"]
    path = tmp_path / "names.txt"
    path.write_bytes("\n".join(inside).encode() + b"\r\n")
    assert read_candidates(path) == inside
    write_candidates(inside, path)
    assert read_candidates(path) == inside
    with pytest.raises(CandidateError, match="has a line break"):
        write_candidates(["a\r"], path)


def test_csv_empty_cell_is_the_empty_string_and_blank_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    path.write_text('candidate\nv1\n""\n\nv2\n')
    assert read_candidates(path) == ["v1", "", "v2"]


def test_numpy_strings_become_python_strings() -> None:
    names, _ = distinct_candidates(np.array(["a", "b"]))
    assert [type(name) for name in names] == [str, str]


class PandasFrame:
    """The parts of a pandas.DataFrame that hold its columns; iterating over it yields their names."""

    ndim = 2

    def __init__(self, **columns: list[object]) -> None:
        self.columns = list(columns)
        self.iloc = self
        self._values = list(columns.values())

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __getitem__(self, position: tuple[slice, int]) -> list[object]:
        assert position[0] == slice(None)
        return self._values[position[1]]


class PolarsFrame:
    """The parts of a polars.DataFrame that hold its columns; iterating over it yields the columns."""

    def __init__(self, **columns: list[object]) -> None:
        self.columns = list(columns)
        self._values = columns

    def __iter__(self) -> Iterator[list[object]]:
        return iter(self._values.values())

    def __getitem__(self, name: str) -> list[object]:
        return self._values[name]


def arrow_batch(**columns: list[object]) -> pa.RecordBatch:
    return pa.record_batch(columns)


def arrow_table(**columns: list[object]) -> pa.Table:
    return pa.table(columns)


FRAMES = [PandasFrame, PolarsFrame, arrow_table, arrow_batch]


@pytest.mark.parametrize("frame", FRAMES)
def test_candidates_of_a_table_are_in_its_only_or_named_column(frame: Any) -> None:
    assert distinct_candidates(frame(site=["b", "a"])) == (["b", "a"], 0)
    assert distinct_candidates(frame(rank=[1, 2], Value=["b", "a"])) == (["b", "a"], 0)
    assert distinct_candidates(frame(value=["x", "y"], candidate=["b", "a"])) == (["b", "a"], 0)


@pytest.mark.parametrize("frame", FRAMES)
def test_rejects_a_table_of_unnamed_columns_by_their_names(frame: Any) -> None:
    with pytest.raises(CandidateError, match="with the columns rank, site, and none of them is candidate or value"):
        distinct_candidates(frame(rank=[1, 2], site=["b", "a"]))
    with pytest.raises(CandidateError, match="without columns"):
        distinct_candidates(frame())


@pytest.mark.parametrize(
    "candidates",
    [
        ("b", "a", "b"),
        (name for name in ("b", "a", "b")),
        np.array(["b", "a", "b"]),
        np.array(["b", "a", "b"], object),
        pa.array(["b", "a", "b"]),
        pa.array(["x", "b", "a", "b"])[1:],
        pa.chunked_array([["b"], ["a", "b"]]),
        pa.array(["b", "a", "b"]).dictionary_encode(),
    ],
)
def test_candidates_are_any_collection_of_strings(candidates: Any) -> None:
    assert distinct_candidates(candidates) == (["b", "a"], 1)


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        (["a", None], r"candidates\[1\] must be a string, got NoneType None\. Remove missing values"),
        (["a", float("nan")], r"candidates\[1\] must be a string, got float nan\. Remove missing values"),
        (np.array(["a", np.nan], object), r"candidates\[1\] must be a string, got float nan\. Remove missing values"),
        (pa.array(["a", None]), r"candidates\[1\] must be a string, got NoneType None\. Remove missing values"),
        (["a", 5], r"candidates\[1\] must be a string, got int 5\. Convert it"),
        ([b"a"], r"candidates\[0\] must be a string, got bytes b'a'\. Decode it"),
        (np.array([["a", "b"]]), r"candidates\[0\] must be a string, got ndarray .*one-dimensional"),
        (["a", "\ud800"], r"candidates\[1\] must be encodable as UTF-8, got '\\ud800'"),
    ],
)
def test_rejects_a_candidate_that_is_no_string_by_its_index(candidates: Any, message: str) -> None:
    with pytest.raises(CandidateError, match=message):
        distinct_candidates(candidates)


@pytest.mark.parametrize("candidates", [5, {"a": 1}, "ab", b"ab", 2.5, np.array("ab")])
def test_rejects_candidates_that_are_not_a_list(candidates: object) -> None:
    with pytest.raises(CandidateError, match="candidates must be a list of strings, got"):
        distinct_candidates(candidates)  # type: ignore[arg-type]  # an invalid type is tested


def test_csv_candidates_are_in_the_named_column(tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    path.write_text('rank,candidate\n1,"a,b"\n2,c\n\n')
    assert read_candidates(path) == ["a,b", "c"]
    path.write_text("name,rank\na,1\nc,2\n")
    with pytest.raises(CandidateError, match="has no column candidate or value but name, rank"):
        read_candidates(path)


def test_rejects_a_csv_without_header(tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    path.write_text("google.com\nbing.com\n")
    with pytest.raises(
        CandidateError,
        match=r"has no column candidate or value but google\.com.*save the file as \.txt with one candidate per line",
    ):
        read_candidates(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.txt", b"", "has no candidate"),
        ("c.txt", b"\n\n", "has no candidate"),
        ("c.csv", b"", "has no candidate"),
        ("c.csv", b"candidate\n", "has no candidate"),
        ("c.csv", b"rank,candidate\n1,a\n2\n", "line 3 has 1 columns"),
        ("c.csv", b"candidate\n" + b"x" * 200_000, r"is not valid CSV \(field larger"),
        ("c.txt", b"\x89PNG\r\n\x1a\n", r"is not UTF-8 text \(byte 0\)"),
        ("c.txt", b"PAR1\x00\x01", "is a binary file"),
        ("c.json", b'["a", "b"]', "is a JSON file"),
    ],
)
def test_rejects_candidate_files_without_candidates(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CandidateError, match=message) as problem:
        read_candidates(tmp_path / name)
    assert name in str(problem.value)


def test_missing_candidate_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match=r"none\.txt cannot be read: No such file"):
        read_candidates(tmp_path / "none.txt")


@pytest.mark.parametrize("path", [5, None, "a\0b"])
def test_candidate_file_must_be_a_path(path: Any) -> None:
    with pytest.raises(CandidateError, match="path must be the path of a text file"):
        read_candidates(path)


def test_population_adds_up_repeated_values(tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text("origin,value,count\nJFK,LAX,3\nEWR,LAX,4\nEWR,ORD,0\n")
    assert read_population(path) == ({"LAX": 7, "ORD": 0}, 0)


def test_population_distinguishes_no_value_from_the_empty_string(tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_bytes('\ufeffvalue,count\r\nLAX,3\r\n,4\r\n"",5\r\n\r\n,6\r\n'.encode())
    assert read_population(path) == ({"LAX": 3, "": 5}, 10)
    path.write_text("value,count\n,4\n")
    assert read_population(path) == ({}, 4)


@given(
    population=dictionaries(text(characters(exclude_categories=["Cs"], exclude_characters="\0")), integers(0, 10**9)),
    no_value=integers(0, 9),
)
@example(
    population={"": 1, "a,b": 2, 'say "a"': 3, "line\r\nbreak": 4, " a ": 5, "\ufeff": 6, "\\N": 7, "NA": 8}, no_value=9
)
def test_population_file_reads_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, population: dict[str, int], no_value: int
) -> None:
    total = sum(population.values()) + no_value
    assume(total > 0)
    path = tmp_path_factory.getbasetemp() / "population.csv"
    write_population(population, total, path)
    assert read_population(path) == (population, no_value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not valid CSV"),
        ("a,b\n1,2\n", "columns value and count, but has a,b"),
        ("value,count\nx,-1\n", "line 2: count must be a non-negative integer, got '-1'"),
        ("value,count\nx,1.5\n", "line 2: count must be a non-negative integer, got '1.5'"),
        ("value,count\nx,2\ny,\n", "line 3: count must be a non-negative integer, got ''"),
        ("value,count\nx\n", "is not valid CSV .*Expected 2 columns, got 1"),
        ("value,count\nx,0\n", "all counts are 0"),
        ("value,count\n", "all counts are 0"),
        ("\0", "is a binary file"),
    ],
)
def test_rejects_invalid_population_files(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(content)
    with pytest.raises(PopulationError, match=message):
        read_population(tmp_path / "p.csv")


def test_distributions_match_google_rappors_regression_tests() -> None:
    """Ratio of v1 to v2 for 10 values, by hand from its ComputePdf."""
    ratio = {name: (s := distribution_shares(name, 10))["v1"] / s["v2"] for name in DISTRIBUTIONS}
    assert ratio == pytest.approx(
        {
            "uniform": 1,
            "exp": np.exp(0.5),
            "gauss": np.exp((3**2 - 4**2) / (2 * (10 / 6) ** 2)),
            "zipf1": 2,
            "zipf1.5": 2**1.5,
        }
    )
    for name in DISTRIBUTIONS:
        assert sum(distribution_shares(name, 100).values()) == pytest.approx(1)


def test_drawn_population_has_the_requested_size() -> None:
    rng = np.random.default_rng(0)
    assert sum(draw_population(distribution_shares("exp", 30), 1000, rng).values()) == 1000
    assert draw_population({"a": 0.5}, 1000, rng)["a"] < 600


def test_population_of_a_categorical_metric_has_its_categories() -> None:
    rng = np.random.default_rng(0)
    os = Metric.categorical("os", ("a", "b"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0))
    assert list(operations_of(os).draw("zipf1", None, 100, rng)) == ["a", "b"]
    assert list(
        operations_of(Metric.boolean("b", UnaryResponse(prob_p=0, prob_q=1, prob_f=0))).draw("zipf1", 2, 100, rng)
    ) == [
        "true",
        "false",
    ]
    with pytest.raises(PopulationError, match=r"has 2 values, got 3\. Leave out num_values \(--values\)"):
        operations_of(os).draw("zipf1", 3, 100, rng)
    with pytest.raises(PopulationError, match="at least 1 value"):
        distribution_shares("zipf1", 0)
    with pytest.raises(PopulationError, match="distribution must be one of"):
        distribution_shares("cauchy", 3)


def test_atomic_write_keeps_the_old_file_when_interrupted(tmp_path: Path) -> None:
    """After Ctrl-C, a partial report file would be read as complete."""
    path = tmp_path / "reports.parquet"

    def interrupted() -> None:
        with atomic_write(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"before"]


def test_atomic_write_writes_into_pipes_and_devices(tmp_path: Path) -> None:
    """Otherwise a run as root would replace /dev/null by a file."""
    pipe, link = tmp_path / "pipe", tmp_path / "out.parquet"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with atomic_write(link) as file:
        file.write(b"all")
    assert os.read(reader, 10) == b"all"
    os.close(reader)
    assert (pipe.is_fifo(), link.is_symlink()) == (True, True)
