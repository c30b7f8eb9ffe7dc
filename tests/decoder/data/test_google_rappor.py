"""google/rappor's files: read as they are, refused with a reason where they are not.

tests/data/google_rappor ships with google/rappor's analysis app (Apache-2.0); r_decode.csv is what its R decoder makes of it.
"""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from tests.support.paths import DATA

from hubbub import Metric, Params
from hubbub.cli import main
from hubbub.encoding.hashing.google_md5 import bit_positions
from hubbub.summary import BitCounts, PatternCounts, Reports, read_collected, read_summary
from hubbub_decoder.data.google_rappor import (
    categories_of_map,
    is_google_md5_map,
    read_counts,
    read_map,
    read_map_design,
    read_params,
    read_reports,
    read_summary_files,
)
from hubbub_decoder.data.simulate import simulate_reports
from hubbub_decoder.errors import ForeignFileError
from hubbub_decoder.model.design_matrix import design_matrix

APP = DATA / "google_rappor"
SMALL = Params(num_bits=8, num_hashes=2, num_cohorts=4, prob_p=0.25, prob_q=0.75, prob_f=0.5, hash_scheme="google-md5")


def hubbub(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def imported(*arguments: object) -> Result:
    return hubbub("import", "google-rappor", *arguments)


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "given.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def md5_map(names: list[str], params: Params) -> str:
    """What bin/hash_candidates.py writes: places in the order of the hashes, coincident ones twice."""
    k = params.num_bits
    return "".join(
        ",".join([
            name,
            *(str(c * k + bit + 1) for c in range(params.num_cohorts)
              for bit in bit_positions(name.encode(), c, k, params.num_hashes)),
        ]) + "\n"
        for name in names
    )  # fmt: skip


def test_the_analysis_apps_parameters_counts_and_map_are_read() -> None:
    params = read_params(APP / "params.csv")
    assert params == Params(
        num_bits=128, num_hashes=2, num_cohorts=8, prob_p=0.5, prob_q=0.75, prob_f=0, hash_scheme="google-md5"
    )
    reports, ones = read_counts(APP / "counts.csv", params)
    assert reports.sum() == 10_000_000
    assert (reports[0], ones[0, 0], ones[0, 2]) == (1250276, 626224, 638341)
    names, positions = read_map(APP / "map.csv", params)
    assert len(names) == 300
    assert positions[0, :2].tolist() == [[72, 115], [46, 56]]  # "V_1",73,116,175,185: less 1, modulo 128
    assert positions[7, 0].tolist() == [63, 128]  # V_8 sets place 64 twice in cohort 0: one cell is left empty


def test_a_map_is_the_design_matrix_with_a_one_at_every_place() -> None:
    params = read_params(APP / "params.csv")
    design = read_map_design(APP / "map.csv", params)
    for row, column in zip(csv.reader((APP / "map.csv").read_text().splitlines()), range(300), strict=True):
        assert design.groups[column] == (row[0],)
        assert (design.matrix[:, [column]].nonzero()[0] + 1).tolist() == [int(cell) for cell in row[1:] if cell]


def test_a_map_that_google_rappors_clients_would_hash_is_known_as_such(tmp_path: Path) -> None:
    names = [f"v{i}" for i in range(40)]
    path = written(tmp_path, md5_map(names, SMALL))
    read, positions = read_map(path, SMALL)
    assert read == names
    assert is_google_md5_map(names, positions, SMALL)
    design = read_map_design(path, SMALL)
    assert design.groups == design_matrix(names, SMALL).groups
    assert (design.matrix != design_matrix(names, SMALL).matrix).nnz == 0
    assert not is_google_md5_map(["other", *names[1:]], positions, SMALL)


def test_candidates_with_the_same_places_share_a_column_and_a_repeated_line_counts_once(tmp_path: Path) -> None:
    path = written(tmp_path, "a,1,9,17,25\nb,1,9,17,25\na,25,17,9,1\n")
    assert read_map_design(path, SMALL).groups == (("a", "b"),)


def test_reports_are_read_with_their_most_significant_bit_first(tmp_path: Path) -> None:
    text = "client,cohort,bloom,prr,irr\n1,3,00000001,00000001,00000011\n2,0,00000000,00000000,10000000\n"
    ((cohorts, rows),) = read_reports(written(tmp_path, text), SMALL)
    assert cohorts.tolist() == [3, 0]
    assert rows.tolist() == [[0b11], [0b10000000]]


@pytest.mark.parametrize(("num_bits", "kind"), [(8, PatternCounts), (24, BitCounts)])
def test_reports_that_were_simulated_come_back_as_their_counts(
    num_bits: int, kind: type, tmp_path: Path, unseen_seed: int
) -> None:
    """Also with the columns of sum_bits.py, Windows line ends, quotes and a byte order mark."""
    params = Params(num_bits=num_bits, num_hashes=2, num_cohorts=4, prob_p=0.25, prob_q=0.75, prob_f=0.5,
                    hash_scheme="google-md5")  # fmt: skip
    metric = Metric.string("x", params)
    chunks = list(simulate_reports(metric, {"v1": 40, "v2": 7}, np.random.default_rng(unseen_seed)))
    expected = BitCounts.empty(metric)
    lines = ["\ufeffuser,cohort,irr"]
    for cohorts, rows in chunks:
        expected += BitCounts.of_rows(metric, cohorts.astype(np.uint8), rows.tobytes())
        for cohort, row in zip(cohorts, rows, strict=True):
            lines.append(f'"c","{cohort}","{int.from_bytes(row.tobytes(), "little"):0{num_bits}b}"')
    reports = written(tmp_path, "\r\n".join([*lines, ""]))
    summary = read_summary_files(metric, None, reports)
    assert isinstance(summary, kind)
    assert (summary.bit_counts() if isinstance(summary, PatternCounts) else summary) == expected

    table = np.column_stack([expected.reports, expected.ones])
    counts = tmp_path / "counts.csv"
    counts.write_text("".join(",".join(f"{n:.0e}" if n == 10 else str(n) for n in row) + "\r\n" for row in table))
    assert read_summary_files(metric, counts, None) == BitCounts(metric, expected.reports, expected.ones)
    assert read_summary_files(metric, counts, reports) == summary
    table[0, 0] += 1
    counts.write_text("".join(",".join(map(str, row)) + "\n" for row in table))
    with pytest.raises(ForeignFileError, match="is not the sum of the 47"):
        read_summary_files(metric, counts, reports)


@pytest.mark.parametrize(("client", "f"), [(None, 0.45), ("python", 58 / 128), ("cpp", 57 / 128)])
def test_f_is_what_the_client_made_of_it(client: str | None, f: float, tmp_path: Path) -> None:
    """google/rappor's permanent noise has 7 binary digits; Python rounds f up, C++ down."""
    path = written(tmp_path, "k,h,m,p,q,f\n8,2,4,.25,.75,.45\n")
    assert read_params(path, client).prob_f == pytest.approx(f, abs=2**-24)
    assert math.isclose(read_params(APP / "params.csv", client).prob_f, 0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("\r\n\r\n", "is empty"),
        (b"k,h,m,p,q,f\n8,2\xff", "is no CSV in UTF-8"),
        (b"PAR1\0\0", "line 1 is binary"),
        ("k,h,m,p,q\n8,2,4,.25,.75\n", "must be the header k,h,m,p,q,f and one line of six numbers"),
        ("k,h,m,p,q,f\n", "must be the header"),
        ("k,h,m,p,q,f\n8,2,4,.25,.75\n", "must be the header"),
        ("k,h,m,p,q,f\n8,2,4,.25,.25,.5\n", "prob_p and prob_q must differ, got 0.25 twice"),
        ("k,h,m,p,q,f\n8,2,4,.25,.75,1\n", "prob_f must be in .0, 1., got 1"),
        ("k,h,m,p,q,f\n8,2,4,.25,much,0\n", "line 2: q must be a number, got 'much'"),
        ("k,h,m,p,q,f\n8,2,4,.25,nan,0\n", "line 2: q must be a number, got 'nan'"),
        ("k,h,m,p,q,f\n8.5,2,4,.25,.75,0\n", "line 2: k must be a whole number from 0, got '8.5'"),
        ("k,h,m,p,q,f\n512,2,4,.25,.75,0\n", "num_bits <= 256"),
    ],
)
def test_parameters_that_are_none_are_refused(text: str | bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(ForeignFileError, match=f"given.csv: .*{why}"):
        read_params(written(tmp_path, text))


ROW = "5,1,2,3,4,5,0,0,0\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        (b"\0\0\0", "line 1 is binary"),
        (ROW * 3, "must have one line for each of m = 4 cohorts, got 3"),
        (ROW * 5, "must have one line for each of m = 4 cohorts, got 5"),
        ("5,1,2,3,4,5,0,0\n" * 4, "line 1 must have k . 1 = 9 numbers, .* got 8"),
        (ROW + "5,1,2,3,4,6,0,0,0\n" + ROW * 2, "line 2 has 6 ones in bit 4 of 5 reports"),
        (ROW * 3 + "5,1,2,x,4,5,0,0,0\n", "line 4: column 4 must be a number, got 'x'"),
        (ROW * 3 + "5,1,2,,4,5,0,0,0\n", "line 4: column 4 must be a number, got ''"),
        (ROW * 3 + "5,1,2,-3,4,5,0,0,0\n", "line 4: column 4 must be a whole number from 0, got '-3'"),
        (ROW * 3 + "5,1,2,2.5,4,5,0,0,0\n", "line 4: column 4 must be a whole number from 0, got '2.5'"),
        ("total,1,2,3,4,5,6,7,8\n" + ROW * 4, "line 1: column 1 must be a number, got 'total'"),
        ("5;1;2;3;4;5;0;0;0\n" * 4, "got 1: are these the counts of these parameters"),
    ],
)
def test_counts_that_are_none_are_refused(text: str | bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(ForeignFileError, match=f"given.csv: .*{why}"):
        read_counts(written(tmp_path, text), SMALL)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("a,1,2,9,10,17,18,25,33\n", "line 1: places are .* from 1 to m k = 32, got 33"),
        ("a,0,2,9,10,17,18,25,26\n", "from 1 to m k = 32, got 0"),
        ("a,1,2,3,10,17,18,25,26\n", "line 1 sets 3 bits in cohort 0, must be 1 to h = 2"),
        ("a,1,2,9,10,17,18\n", "line 1 sets 0 bits in cohort 3"),
        ("a,1,9,17,25\na,2,9,17,25\n", "line 2 gives 'a' other bits than before"),
        ("a,1,9,17,b\n", "line 1: place must be a number, got 'b'"),
    ],
)
def test_a_map_that_is_none_is_refused(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ForeignFileError, match=f"given.csv: .*{why}"):
        read_map(written(tmp_path, text), SMALL)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("1,0,00000000\n", "line 1 must name the columns cohort and irr"),
        ("client,cohort,irr\n1,4,00000000\n", "line 2: cohort must be below m = 4, got 4"),
        ("client,cohort,irr\n1,-1,00000000\n", "line 2: cohort must be a whole number from 0, got '-1'"),
        ("client,cohort,irr\n1,0,0000000\n", "line 2: the bits must be k = 8 digits 0 or 1, got 7"),
        ("client,cohort,irr\n1,0,00000002\n", "line 2: the bits must be k = 8 digits"),
        ("client,cohort,irr\n1,0\n", "line 2 must have 3 columns as the header has, got 2"),
    ],
)
def test_reports_that_are_none_are_refused(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ForeignFileError, match=f"given.csv: .*{why}"):
        list(read_reports(written(tmp_path, text), SMALL))


def test_the_command_says_what_it_wrote_and_how_to_decode_it(tmp_path: Path) -> None:
    out = tmp_path / "summary.parquet"
    result = imported("--params", APP / "params.csv", "--counts", APP / "counts.csv", "--map", APP / "map.csv",
                      "--out", out, "--json")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {
        "out": str(out), "metric": "google-rappor", "kind": "string", "num_reports": 10_000_000, "map_is_google_md5": False,
        "warnings": []
    }  # fmt: skip
    assert "has a hashing of its own: decode with --map" in result.stderr
    assert read_summary(out).metric.params == read_params(APP / "params.csv")


def test_swapped_chances_are_said_and_counts_of_nobody_and_other_formats_refused(tmp_path: Path) -> None:
    params, counts, out = tmp_path / "params.csv", tmp_path / "counts.csv", tmp_path / "s.parquet"
    params.write_text("k,h,m,p,q,f\n8,2,4,.75,.25,.5\n")
    counts.write_text("0,0,0,0,0,0,0,0,0\n" * 4)
    of_nobody = imported("--params", params, "--counts", counts, "--out", out)
    assert of_nobody.exit_code == 1
    assert "counts.csv: counts no report" in of_nobody.stderr
    assert not out.exists()
    counts.write_text(ROW * 4)
    swapped = imported("--params", params, "--counts", counts, "--out", out, "--json")
    assert swapped.exit_code == 0
    assert "has p = 0.75 above q = 0.25" in swapped.stderr
    assert "if the two are swapped" in json.loads(swapped.stdout)["warnings"][0]
    other = imported("--params", params, "--counts", counts, "--out", tmp_path / "s.csv")
    assert other.exit_code == 1
    assert "s.csv: must end in .parquet" in other.stderr
    assert not (tmp_path / "s.csv").exists()


def test_a_map_line_without_a_name_is_refused_and_a_number_may_be_a_name(tmp_path: Path) -> None:
    places = md5_map(["8080"], SMALL)
    assert read_map(written(tmp_path, places), SMALL)[0] == ["8080"]
    with pytest.raises(ForeignFileError, match="line 1 has h m = 8 numbers and no name"):
        read_map(written(tmp_path, places.split(",", 1)[1]), SMALL)


def test_candidates_are_written_only_where_their_names_say_their_bits(tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    refused = imported("--params", APP / "params.csv", "--counts", APP / "counts.csv", "--map", APP / "map.csv",
                       "--out", tmp_path / "s.parquet", "--candidates-out", names)  # fmt: skip
    assert refused.exit_code == 1
    assert "decode with --map" in refused.stderr
    assert not names.exists()
    assert not (tmp_path / "s.parquet").exists()

    (tmp_path / "params.csv").write_text("k,h,m,p,q,f\n8,2,4,.25,.75,.5\n")
    (tmp_path / "counts.csv").write_text(ROW * 4)
    taken = imported("--params", tmp_path / "params.csv", "--counts", tmp_path / "counts.csv",
                     "--map", written(tmp_path, md5_map(["v1", "v 2"], SMALL)), "--out", tmp_path / "s.parquet",
                     "--candidates-out", names)  # fmt: skip
    assert taken.exit_code == 0, taken.output
    assert names.read_text() == "v1\nv 2\n"


def test_wrong_usage_is_exit_2_and_a_wrong_file_exit_1(tmp_path: Path) -> None:
    out = ("--out", tmp_path / "s.parquet")
    assert imported("--params", APP / "params.csv", *out).exit_code == 2
    result = imported("--params", tmp_path / "none.csv", "--counts", APP / "counts.csv", *out)
    assert result.exit_code == 1
    assert "none.csv: cannot be read: No such file" in result.stderr
    assert "Example:\n    hubbub import google-rappor " in imported("--help").stdout


def test_the_analysis_apps_files_decode_with_one_command_to_what_googles_decoder_found(tmp_path: Path) -> None:
    """Of what is at least twice detectable both find all; every share R found is within 4 of its combined standard errors.

    R's estimates are constrained (no share below 0, sum at most 1) and refitted after selection, so they are not ours plus noise;
    4 standard errors of both leave room for that in 115 comparisons.
    """
    summary, saved = tmp_path / "summary.parquet", tmp_path / "decoding.csv"
    assert imported("--params", APP / "params.csv", "--counts", APP / "counts.csv", "--out", summary).exit_code == 0
    result = hubbub("decode", summary, "--map", APP / "map.csv", "--json", "--out", saved)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    ours = {estimate["candidate"]: estimate for estimate in told["estimates"]}
    theirs = {row["string"]: row for row in csv.DictReader((APP / "r_decode.csv").read_text().splitlines())}
    large = 2 * told["detection_limit"]
    found = {name for name, estimate in ours.items() if estimate["detected"]}
    for name, row in theirs.items():
        share, error = float(row["proportion"]), float(row["prop_std_error"])
        assert abs(share - ours[name]["share"]) < 4 * math.hypot(error, ours[name]["std_error"])
        assert share < large or name in found
    assert {name for name in found if ours[name]["share"] > large} <= set(theirs)
    assert len(found & set(theirs)) > 90
    assert "V_1" in saved.read_text()


def test_a_map_and_candidates_at_once_is_wrong_usage() -> None:
    assert hubbub("decode", "s.parquet", "--map", "m.csv", "--candidates", "c.txt").exit_code == 2


def test_a_map_of_other_parameters_is_refused_at_decoding(tmp_path: Path) -> None:
    imported("--params", APP / "params.csv", "--counts", APP / "counts.csv", "--out", tmp_path / "s.parquet")
    result = hubbub("decode", tmp_path / "s.parquet", "--map", written(tmp_path, "a,1,2,3\n"))
    assert result.exit_code == 1
    assert "is this the map of these parameters?" in result.stderr


def test_a_map_with_a_bit_for_every_candidate_makes_a_categorical_metric(tmp_path: Path) -> None:
    """Basic RAPPOR: 3 of 4 bits named, 4 cohorts of 1,000 reports: share (c/N - p*) / (q* - p*), p* = .375, q* = .625."""
    (tmp_path / "params.csv").write_text("k,h,m,p,q,f\n4,1,4,0.25,0.75,0.5\n")
    (tmp_path / "counts.csv").write_text("1000,500,425,375,400\n" * 4)
    names = {"red": 0, "green": 1, "blue": 3}
    rows = [",".join([name, *(str(c * 4 + bit + 1) for c in range(4))]) for name, bit in names.items()]
    (tmp_path / "map.csv").write_text("\n".join(rows) + "\n")
    given = ("--params", tmp_path / "params.csv", "--counts", tmp_path / "counts.csv", "--map", tmp_path / "map.csv")
    result = imported(*given, "--out", tmp_path / "s.parquet", "--candidates-out", tmp_path / "names.txt", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["kind"] == "categorical"
    summary = read_summary(tmp_path / "s.parquet")
    assert summary.metric.categories == ("red", "green", "bit 3", "blue")
    assert summary.num_reports == 4000
    decoded = hubbub("decode", tmp_path / "s.parquet", "--candidates", tmp_path / "names.txt", "--json")
    shares = {e["candidate"]: round(e["share"], 9) for e in json.loads(decoded.stdout)["estimates"]}
    assert shares == {"red": 0.5, "green": 0.2, "blue": 0.1}
    refused = hubbub("decode", tmp_path / "s.parquet", "--map", tmp_path / "map.csv")
    assert refused.exit_code == 2
    assert "leave --map out" in refused.output


@pytest.mark.parametrize(
    "rows",
    [
        ["a,1,9,17,25", "b,1,9,17,25"],  # one bit for both
        ["a,1,9,17,26", "b,2,10,18,25"],  # another bit in the last cohort
        ["a,1,2,9,17,25", "b,3,11,19,27"],  # two bits in the first
    ],
)
def test_any_other_map_stays_a_string_metrics(rows: list[str], tmp_path: Path) -> None:
    names, positions = read_map(written(tmp_path, "\n".join(rows)), SMALL)
    assert categories_of_map(names, positions, SMALL) is None


def test_a_map_of_one_cohort_is_categorical_only_if_it_names_every_bit(tmp_path: Path) -> None:
    params = replace(SMALL, num_cohorts=1)
    full = [f"c{bit},{bit + 1}" for bit in range(8)]
    assert categories_of_map(*read_map(written(tmp_path, "\n".join(full)), params), params) == tuple(
        f"c{i}" for i in range(8)
    )
    assert categories_of_map(*read_map(written(tmp_path, "\n".join(full[1:])), params), params) is None


def test_reports_of_many_bits_are_imported_as_reports(tmp_path: Path, unseen_seed: int) -> None:
    """k = 24: their likelihood says more than their counts, which both files have."""
    params = replace(SMALL, num_bits=24)
    (tmp_path / "params.csv").write_text("k,h,m,p,q,f\n24,2,4,0.25,0.75,0.5\n")
    rows = np.random.default_rng(unseen_seed).integers(0, 1 << 24, 50)
    (tmp_path / "reports.csv").write_text("cohort,irr\n" + "".join(f"{n % 4},{n:024b}\n" for n in rows.tolist()))
    result = imported(
        "--params", tmp_path / "params.csv", "--reports", tmp_path / "reports.csv", "--out", tmp_path / "r"
    )
    assert result.exit_code == 0, result.output
    read = read_collected(tmp_path / "r")
    assert isinstance(read, Reports)
    assert read.metric.params == params
    packed = np.column_stack([read.cohorts, read.rows.astype(np.int64) @ [1, 1 << 8, 1 << 16]])
    assert packed.tolist() == [[n % 4, n] for n in rows.tolist()]
