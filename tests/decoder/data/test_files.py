"""Files of candidates and populations: read as written, or refused with the line and the reason."""

from __future__ import annotations

import os
from pathlib import Path

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


def test_text_has_a_candidate_a_line_taken_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_bytes("\ufeffa b\r\n\n ä,x \n#c".encode())
    assert read_candidates(path) == ["a b", " ä,x ", "#c"]


def test_only_line_ends_end_a_candidate(tmp_path: Path) -> None:
    """What str.splitlines takes for an end as well is part of a string that somebody may have reported."""
    inside = ["a\fb", "a\x1cb", "a\u2028b", "a\x85b", "a\rb"]
    path = tmp_path / "names.txt"
    path.write_bytes("\n".join(inside).encode() + b"\r\n")
    assert read_candidates(path) == inside
    write_candidates(inside, path)
    assert read_candidates(path) == inside
    with pytest.raises(CandidateError, match="has a line break"):
        write_candidates(["a\r"], path)


def test_an_empty_cell_is_the_empty_string_and_a_blank_line_is_nothing(tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    path.write_text('candidate\nv1\n""\n\nv2\n')
    assert read_candidates(path) == ["v1", "", "v2"]


def test_strings_of_numpy_are_strings() -> None:
    names, _ = distinct_candidates(np.array(["a", "b"]))
    assert [type(name) for name in names] == [str, str]


@pytest.mark.parametrize("given", [5, {"a": 1}, "ab", b"ab", 2.5])
def test_what_is_no_list_of_candidates_is_refused(given: object) -> None:
    with pytest.raises(CandidateError, match="candidates must be a list of strings, got"):
        distinct_candidates(given)  # type: ignore[arg-type]  # that is what is tested


def test_csv_has_them_in_the_named_column(tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    path.write_text('rank,candidate\n1,"a,b"\n2,c\n\n')
    assert read_candidates(path) == ["a,b", "c"]
    path.write_text("name,rank\na,1\nc,2\n")
    with pytest.raises(CandidateError, match="line 1 has no column candidate or value, but name, rank:"):
        read_candidates(path)


def test_the_first_candidate_of_a_csv_without_header_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    path.write_text("google.com\nbing.com\n")
    with pytest.raises(
        CandidateError,
        match=r"has no column candidate or value, but google\.com: .* save one candidate a line as \.txt",
    ):
        read_candidates(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.txt", b"", "holds no candidate"),
        ("c.txt", b"\n\n", "holds no candidate"),
        ("c.csv", b"", "holds no candidate"),
        ("c.csv", b"candidate\n", "holds no candidate"),
        ("c.csv", b"rank,candidate\n1,a\n2\n", "line 3 has 1 columns"),
        ("c.csv", b"candidate\n" + b"x" * 200_000, r"is no CSV \(field larger"),
        ("c.txt", b"\x89PNG\r\n\x1a\n", "byte 0 is not UTF-8"),
        ("c.txt", b"PAR1\x00\x01", "is binary"),
    ],
)
def test_a_file_without_usable_candidates_is_refused_by_name(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CandidateError, match=message) as problem:
        read_candidates(tmp_path / name)
    assert name in str(problem.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match=r"none\.txt: cannot be read: No such file"):
        read_candidates(tmp_path / "none.txt")


def test_a_population_adds_up_lines_of_one_value(tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text("origin,value,count\nJFK,LAX,3\nEWR,LAX,4\nEWR,ORD,0\n")
    assert read_population(path) == {"LAX": 7, "ORD": 0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "columns value and count"),
        ("a,b\n1,2\n", "columns value and count"),
        ("value,count\nx,-1\n", "line 2: count must be a whole number"),
        ("value,count\nx,1.5\n", "line 2: count must be a whole number"),
        ("value,count\nx\n", "line 2: count must be a whole number"),
        ("value,count\nx,0\n", "holds nobody"),
        ("value,count\n", "holds nobody"),
        ("\0", "is binary"),
    ],
)
def test_a_population_that_is_none_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(content)
    with pytest.raises(PopulationError, match=message):
        read_population(tmp_path / "p.csv")


def test_named_distributions_are_those_of_google_rappors_regression_tests() -> None:
    """By hand from its ComputePdf for 10 values: v1 over v2."""
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


def test_a_drawn_population_has_everybody_and_what_is_left_has_no_value() -> None:
    rng = np.random.default_rng(0)
    assert sum(draw_population(distribution_shares("exp", 30), 1000, rng).values()) == 1000
    assert draw_population({"a": 0.5}, 1000, rng)["a"] < 600


def test_categories_are_the_values_of_their_metric() -> None:
    rng = np.random.default_rng(0)
    os = Metric.categorical("os", ("a", "b"), prob_p=0.25, prob_q=0.75, prob_f=0)
    assert list(draw_from_distribution(os, "zipf1", None, 100, rng)) == ["a", "b"]
    assert list(draw_from_distribution(Metric.boolean("b", prob_p=0, prob_q=1, prob_f=0), "zipf1", 2, 100, rng)) == [
        "true",
        "false",
    ]
    with pytest.raises(PopulationError, match="has 2 values, asked were 3"):
        draw_from_distribution(os, "zipf1", 3, 100, rng)
    with pytest.raises(PopulationError, match="at least 1 value"):
        distribution_shares("zipf1", 0)
    with pytest.raises(PopulationError, match="distribution must be one of"):
        distribution_shares("cauchy", 3)


def test_a_file_that_is_not_finished_leaves_its_name_to_what_had_it(tmp_path: Path) -> None:
    """As when somebody presses Ctrl-C: half a file of reports would be read as all of them."""
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


def test_what_is_no_file_is_written_into_and_never_replaced(tmp_path: Path) -> None:
    """A pipe, or a device: root, who writes to /dev/null, would have a file in its place."""
    pipe, link = tmp_path / "pipe", tmp_path / "out.parquet"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with atomic_write(link) as file:
        file.write(b"all")
    assert os.read(reader, 10) == b"all"
    os.close(reader)
    assert (pipe.is_fifo(), link.is_symlink()) == (True, True)
