"""Candidate and population files: contents, errors with line numbers, and atomic writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubbub import Metric
from hubbub_decoder import CandidateError, PopulationError
from hubbub_decoder.data.candidates import distinct_candidates, read_candidates, write_candidates
from hubbub_decoder.data.output_files import atomic_write
from hubbub_decoder.data.populations import (
    DISTRIBUTIONS,
    distribution_shares,
    draw_from_distribution,
    draw_population,
    read_population,
)


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


@pytest.mark.parametrize("given", [5, {"a": 1}, "ab", b"ab", 2.5])
def test_rejects_candidates_that_are_not_a_list(given: object) -> None:
    with pytest.raises(CandidateError, match="candidates must be a list of strings, got"):
        distinct_candidates(given)  # type: ignore[arg-type]  # an invalid type is tested


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
    assert read_population(path) == {"LAX": 7, "ORD": 0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "columns value and count"),
        ("a,b\n1,2\n", "columns value and count"),
        ("value,count\nx,-1\n", "line 2: count must be a non-negative integer"),
        ("value,count\nx,1.5\n", "line 2: count must be a non-negative integer"),
        ("value,count\nx\n", "line 2: count must be a non-negative integer"),
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
    os = Metric.categorical("os", ("a", "b"), prob_p=0.25, prob_q=0.75, prob_f=0)
    assert list(draw_from_distribution(os, "zipf1", None, 100, rng)) == ["a", "b"]
    assert list(draw_from_distribution(Metric.boolean("b", prob_p=0, prob_q=1, prob_f=0), "zipf1", 2, 100, rng)) == [
        "true",
        "false",
    ]
    with pytest.raises(PopulationError, match=r"has 2 values, got 3\. Leave out num_values \(--values\)"):
        draw_from_distribution(os, "zipf1", 3, 100, rng)
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
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"before"]


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
