"""Import of google/rappor's files, and errors for malformed ones.

tests/data/google_rappor ships with google/rappor's analysis app (Apache-2.0); r_decode.csv is the result of its R decoder.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from hubbub import Metric, Params
from hubbub.cli import main
from hubbub.summary import BitCounts, PatternCounts, Reports, read_collected, read_summary
from hubbub_decoder import decode
from hubbub_decoder.data.google_rappor import (
    collected_metric,
    read_counts,
    read_map,
    read_params,
    read_reports,
    read_summary_files,
)
from hubbub_decoder.errors import ForeignFileError
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.model.evidence import combine
from hubbub_decoder.simulation import simulate_reports
from tests.support.google_md5 import bit_positions
from tests.support.paths import DATA

APP = DATA / "google_rappor"
APP_FILES = ("--params", APP / "params.csv", "--counts-file", APP / "counts.csv", "--map", APP / "map.csv")
SMALL = Params(num_bits=8, num_hashes=2, num_cohorts=4, prob_p=0.25, prob_q=0.75, prob_f=0.5, hash_scheme="google-md5")


def hubbub(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def imported(*arguments: object) -> Result:
    return hubbub("import", "google-rappor", *arguments)


def write_file(folder: Path, text: str | bytes) -> Path:
    path = folder / "given.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def md5_map(names: list[str], params: Params) -> str:
    """Output of bin/hash_candidates.py: positions in the order of the hashes, coincident ones twice."""
    k = params.num_bits
    return "".join(
        ",".join(
            [
                name,
                *(
                    str(c * k + bit + 1)
                    for c in range(params.num_cohorts)
                    for bit in bit_positions(name.encode(), c, k, params.num_hashes)
                ),
            ]
        )
        + "\n"
        for name in names
    )


def test_reads_parameters_counts_and_map_of_the_analysis_app() -> None:
    params = read_params(APP / "params.csv")
    assert params == Params(
        num_bits=128, num_hashes=2, num_cohorts=8, prob_p=0.5, prob_q=0.75, prob_f=0, hash_scheme="google-md5"
    )
    reports, ones = read_counts(APP / "counts.csv", params)
    assert reports.sum() == 10_000_000
    assert (reports[0], ones[0, 0], ones[0, 2]) == (1250276, 626224, 638341)
    known = read_map(APP / "map.csv", params)
    assert len(known.names) == 300
    assert known.positions[0, :2].tolist() == [[72, 115], [46, 56]]  # "V_1",73,116,175,185: minus 1, modulo 128
    assert known.positions[7, 0].tolist() == [63, 128]  # V_8 has position 64 twice in cohort 0


def test_map_positions_are_the_ones_of_the_design_matrix() -> None:
    params = read_params(APP / "params.csv")
    design = read_map(APP / "map.csv", params).design()
    for row, column in zip(csv.reader((APP / "map.csv").read_text().splitlines()), range(300), strict=True):
        assert design.groups[column] == (row[0],)
        assert (design.matrix[:, [column]].nonzero()[0] + 1).tolist() == [int(cell) for cell in row[1:] if cell]


def test_recognizes_a_map_of_google_md5_hashes(tmp_path: Path) -> None:
    names = [f"v{i}" for i in range(40)]
    path = write_file(tmp_path, md5_map(names, SMALL))
    known = read_map(path, SMALL)
    assert known.names == names
    assert known.is_google_md5
    design = known.design()
    assert design.groups == design_matrix(names, SMALL).groups
    assert (design.matrix != design_matrix(names, SMALL).matrix).nnz == 0
    assert not replace(known, names=["other", *names[1:]]).is_google_md5


def test_candidates_with_equal_positions_share_a_column(tmp_path: Path) -> None:
    path = write_file(tmp_path, "a,1,9,17,25\nb,1,9,17,25\na,25,17,9,1\n")
    assert read_map(path, SMALL).design().groups == (("a", "b"),)


def test_reads_reports_with_the_most_significant_bit_first(tmp_path: Path) -> None:
    text = "client,cohort,bloom,prr,irr\n1,3,00000001,00000001,00000011\n2,0,00000000,00000000,10000000\n"
    ((cohorts, rows),) = read_reports(write_file(tmp_path, text), SMALL)
    assert cohorts.tolist() == [3, 0]
    assert rows.tolist() == [[0b11], [0b10000000]]


@pytest.mark.parametrize(("num_bits", "kind"), [(8, PatternCounts), (24, BitCounts)])
def test_summary_of_simulated_reports_equals_their_counts(
    num_bits: int, kind: type, tmp_path: Path, unseen_seed: int
) -> None:
    """With the columns of sum_bits.py, CRLF line ends, quotes and a byte order mark."""
    params = Params(
        num_bits=num_bits, num_hashes=2, num_cohorts=4, prob_p=0.25, prob_q=0.75, prob_f=0.5, hash_scheme="google-md5"
    )
    metric = Metric.string("x", params)
    chunks = list(simulate_reports(metric, {"v1": 40, "v2": 7}, np.random.default_rng(unseen_seed)))
    expected = BitCounts.empty(metric)
    lines = ["\ufeffuser,cohort,irr"]
    for cohorts, rows in chunks:
        expected += BitCounts.from_rows(metric, cohorts.astype(np.uint8), rows.tobytes())
        for cohort, row in zip(cohorts, rows, strict=True):
            lines.append(f'"c","{cohort}","{int.from_bytes(row.tobytes(), "little"):0{num_bits}b}"')
    reports = write_file(tmp_path, "\r\n".join([*lines, ""]))
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
def test_client_option_rounds_f(client: str | None, f: float, tmp_path: Path) -> None:
    """google/rappor's permanent noise has 7 binary digits; Python rounds f up, C++ down."""
    path = write_file(tmp_path, "k,h,m,p,q,f\n8,2,4,.25,.75,.45\n")
    assert read_params(path, client).mechanism.prob_f == pytest.approx(f, abs=2**-24)
    assert read_params(APP / "params.csv", client).mechanism.prob_f == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\r\n\r\n", "is empty"),
        (b"k,h,m,p,q,f\n8,2\xff", "is not CSV in UTF-8"),
        (b"PAR1\0\0", "line 1 is binary"),
        ("k,h,m,p,q\n8,2,4,.25,.75\n", "must have the header k,h,m,p,q,f and one line of six numbers"),
        ("k,h,m,p,q,f\n", "must have the header"),
        ("k,h,m,p,q,f\n8,2,4,.25,.75\n", "must have the header"),
        ("k,h,m,p,q,f\n8,2,4,.25,.25,.5\n", "prob_p and prob_q must differ, got 0.25 twice"),
        ("k,h,m,p,q,f\n8,2,4,.25,.75,1\n", "prob_f must be in .0, 1., got 1"),
        ("k,h,m,p,q,f\n8,2,4,.25,much,0\n", "line 2: q must be a number, got 'much'"),
        ("k,h,m,p,q,f\n8,2,4,.25,nan,0\n", "line 2: q must be a number, got 'nan'"),
        ("k,h,m,p,q,f\n8.5,2,4,.25,.75,0\n", "line 2: k must be a non-negative integer, got '8.5'"),
        ("k,h,m,p,q,f\n256,17,4,.25,.75,0\n", "google-md5 with 256 bits has at most 16 hashes, got 17"),
        (
            "k,h,m,p,q,f\n264,9,4,.25,.75,0\n",
            "google-md5 with 264 bits has at most 8 hashes, got 9: each takes 2 bytes",
        ),
    ],
)
def test_rejects_malformed_parameters(text: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ForeignFileError, match=f"given.csv.*{message}"):
        read_params(write_file(tmp_path, text))


ROW = "5,1,2,3,4,5,0,0,0\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (b"\0\0\0", "line 1 is binary"),
        (ROW * 3, "must have one line for each of m = 4 cohorts, got 3"),
        (ROW * 8, "has 8 lines, 2 for each of m = 4 cohorts. If the clients have 8 cohorts, write m = 8"),
        (ROW * 5, "must have one line for each of m = 4 cohorts, got 5"),
        ("5,1,2,3,4,5,0,0\n" * 4, "line 1 must have k . 1 = 9 numbers .* got 8"),
        (ROW + "5,1,2,3,4,6,0,0,0\n" + ROW * 2, "line 2 has 6 ones of bit 4, but only 5 reports"),
        (ROW * 3 + "5,1,2,x,4,5,0,0,0\n", "line 4: column 4 must be a number, got 'x'"),
        (ROW * 3 + "5,1,2,,4,5,0,0,0\n", "line 4: column 4 must be a number, got ''"),
        (ROW * 3 + "5,1,2,-3,4,5,0,0,0\n", "line 4: column 4 must be a non-negative integer, got '-3'"),
        (ROW * 3 + "5,1,2,2.5,4,5,0,0,0\n", "line 4: column 4 must be a non-negative integer, got '2.5'"),
        ("total,1,2,3,4,5,6,7,8\n" + ROW * 4, "line 1: column 1 must be a number, got 'total'"),
        ("5 1 2 3 4 5 0 0 0\n" * 4, "got 1. Check that the counts belong to these parameters"),
    ],
)
def test_rejects_malformed_counts(text: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ForeignFileError, match=f"given.csv.*{message}"):
        read_counts(write_file(tmp_path, text), SMALL)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a,1,2,9,10,17,18,25,33\n", "line 1: positions are .* from 1 to m k = 32, got 33"),
        ("a,0,2,9,10,17,18,25,26\n", "from 1 to m k = 32, got 0"),
        ("a,1,2,3,10,17,18,25,26\n", "line 1 sets 3 bits in cohort 0, must be 1 to h = 2"),
        ("a,1,2,9,10,17,18\n", "line 1 sets 0 bits in cohort 3"),
        ("a,1,9,17,25\na,2,9,17,25\n", "line 2 gives 'a' other bits than an earlier line"),
        ("a,1,9,17,b\n", "line 1: position must be a number, got 'b'"),
    ],
)
def test_rejects_malformed_maps(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ForeignFileError, match=f"given.csv.*{message}"):
        read_map(write_file(tmp_path, text), SMALL)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("1,0,00000000\n", "line 1 must name the columns cohort and irr"),
        ("client,cohort,irr\n1,4,00000000\n", "line 2: cohort must be below m = 4, got 4"),
        ("client,cohort,irr\n1,-1,00000000\n", "line 2: cohort must be a non-negative integer, got '-1'"),
        ("client,cohort,irr\n1,0,0000000\n", "line 2: the bits must be k = 8 digits, each 0 or 1, got '0000000'"),
        ("client,cohort,irr\n1,0,00000002\n", "line 2: the bits must be k = 8 digits"),
        ("client,cohort,irr\n1,0\n", "line 2 must have 3 columns like the header, got 2"),
    ],
)
def test_rejects_malformed_reports(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ForeignFileError, match=f"given.csv.*{message}"):
        list(read_reports(write_file(tmp_path, text), SMALL))


def sizes_of_clients(rng: np.random.Generator) -> tuple[int, int, int]:
    """Draw k, h and m that a client of google/rappor accepts.

    Python's has 1 to 32 bits and any number of cohorts. That of C++ has any multiple of 8 bits and a power of two; above 256 bits a hash
    takes two of MD5's 16 bytes. One bit is that of a boolean.
    """
    if rng.random() < 0.6:
        return int(rng.integers(1, 33)), int(rng.integers(1, 17)), int(rng.integers(1, 129))
    k = 8 * int(rng.integers(1, 129))
    return k, int(rng.integers(1, 17 if k <= 256 else 9)), 1 << int(rng.integers(0, 8))


def test_reports_of_every_size_are_imported_and_decoded(tmp_path: Path, unseen_seed: int) -> None:
    """Reports by hashes and noise that share no code with the decoder: each share is within 7 standard errors, which is wrong once in 1e11."""
    rng = np.random.default_rng(unseen_seed)
    for k, h, m in [sizes_of_clients(rng) for _ in range(8)]:
        p, q, f = ((0.5, 0.75, 0.25), (0.25, 0.75, 0.0), (0.75, 0.25, 0.0), (0.0, 1.0, 0.5))[rng.integers(4)]
        names, number = ["v1", "v2", "v3"], 4000
        value, cohort = rng.choice(4, number, p=[0.4, 0.3, 0.1, 0.2]), rng.integers(0, m, number)
        true = np.zeros((4, m, k), bool)
        for v, name in enumerate(names):
            for c in range(m):
                true[v, c, bit_positions(name.encode(), c, k, h)] = True
        permanent = np.where(rng.random((number, k)) < f, rng.random((number, k)) < 0.5, true[value, cohort])
        sent = rng.random((number, k)) < np.where(permanent, q, p)
        digits = [row.tobytes().decode() for row in np.where(sent[:, ::-1], b"1", b"0")]
        reports = write_file(
            tmp_path, "cohort,irr\n" + "".join(f"{c},{b}\n" for c, b in zip(cohort, digits, strict=True))
        )
        (tmp_path / "params.csv").write_text(f"k,h,m,p,q,f\n{k},{h},{m},{p},{q},{f}\n")
        params = read_params(tmp_path / "params.csv")
        metric = collected_metric("x", params)
        summary = read_summary_files(metric, None, reports, params)
        assert summary.num_reports == number
        found = decode(summary, names if k > 1 else None)
        shares = {name: float(np.mean(value == v)) for v, name in enumerate(names)}
        if k == 1:
            shares = {"true": sum(shares.values())}
        for estimate in found:
            if math.isfinite(estimate.std_error):
                error = estimate.share - sum(shares[name] for name in estimate.group or (estimate.candidate,))
                assert abs(error) <= 7 * estimate.std_error + 1e-9, (k, h, m, p, q, f, estimate)


@pytest.mark.parametrize("given", ["--counts-file", "--reports-file"])
@pytest.mark.parametrize("has_map", [False, True])
def test_one_bit_is_a_boolean(given: str, has_map: bool, tmp_path: Path) -> None:
    """128 cohorts of 100 reports with 40 ones: (2/5 - 3/8) / (5/8 - 3/8) = 10 %, with the standard error sqrt(2/5 3/5 / 12800) / (1/4) = 1.73 %."""
    (tmp_path / "params.csv").write_text("k,h,m,p,q,f\n1,1,128,.25,.75,.5\n")
    rows = ["100,40"] * 128 if given == "--counts-file" else ["cohort,irr"]
    rows += [f"{c},{int(i < 40)}" for c in range(128) for i in range(100)] if given == "--reports-file" else []
    (tmp_path / "map.csv").write_text(",".join(["TRUE", *(str(c + 1) for c in range(128))]) + "\n")
    options: list[object] = ["--params", tmp_path / "params.csv", given, write_file(tmp_path, "\n".join(rows) + "\n")]
    options += ["--map", tmp_path / "map.csv"] if has_map else []
    result = imported(*options, "--out", tmp_path / "s.parquet", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["kind"] == "boolean"
    assert "has k = 1: the metric is boolean. Decode it without candidates." in result.stderr
    decoded = json.loads(hubbub("decode", tmp_path / "s.parquet", "--target", "population", "--json").stdout)
    (estimate,) = decoded["estimates"]
    assert (round(estimate["share"], 9), round(estimate["std_error"], 4)) == (0.1, 0.0173)
    refused = imported(
        *options, "--map", tmp_path / "map.csv", "--candidates-out", tmp_path / "c", "--out", tmp_path / "s.parquet"
    )
    assert refused.exit_code == 1
    assert "belongs to k = 1, a boolean, which has no candidates. Leave out --candidates-out." in refused.stderr


INVALID = {
    "c0,0,,0": "invalid bits",
    "c0,0,,0000000": "invalid bits",
    "c0,0,,00000002": "invalid bits",
    "c0,4,,00000000": "invalid cohort",
    "c0,-1,,00000000": "invalid cohort",
    "c0,,,00000000": "invalid cohort",
    "c0,0": "other columns",
    "c0,0,,0,0": "other columns",
}
"""Rows that are no reports, and the reason that is counted."""


@pytest.mark.parametrize("num_bits", [8, 24])
def test_invalid_rows_are_counted_by_reason_if_the_option_asks_for_it(
    num_bits: int, tmp_path: Path, unseen_seed: int
) -> None:
    """Without it, the first of them ends the command. With it, the file, its sums, the result and its document have the numbers."""
    rng = np.random.default_rng(unseen_seed)
    bad = [row for row in INVALID for _ in range(int(rng.integers(0, 3)))] or ["c0,0,,0"]
    good = [f"c,{n % 4},,{n % 256:0{num_bits}b}" for n in range(400)]
    rows = [*good, *bad]
    rng.shuffle(rows)
    (tmp_path / "params.csv").write_text(f"k,h,m,p,q,f\n{num_bits},2,4,.25,.75,.5\n")
    reports = write_file(tmp_path, "\n".join(["client,cohort,bloom,irr", *rows]) + "\n")
    files = ("--params", tmp_path / "params.csv", "--reports-file", reports, "--out", tmp_path / "s.parquet")
    refused = imported(*files)
    assert refused.exit_code == 1
    assert "--drop-invalid-rows" in refused.stderr
    assert not (tmp_path / "s.parquet").exists()

    result = imported(*files, "--drop-invalid-rows", "--json")
    assert result.exit_code == 0, result.output
    expected = {reason: sum(INVALID[row] == reason for row in bad) for reason in {INVALID[row] for row in bad}}
    assert json.loads(result.stdout)["dropped_rows"] == expected
    assert json.loads(result.stdout)["num_reports"] == 400
    assert "left out of " in result.stderr
    collected = read_collected(tmp_path / "s.parquet")
    assert collected.dropped_rows == collected.bit_counts().dropped_rows == expected
    assert combine([collected, collected]).dropped_rows == {reason: 2 * number for reason, number in expected.items()}
    (tmp_path / "names.txt").write_text("v1\nv2\n")
    arguments = ("decode", tmp_path / "s.parquet", "--candidates", tmp_path / "names.txt")
    (warning,) = (w for w in json.loads(hubbub(*arguments, "--json").stdout)["warnings"] if w["kind"] == "dropped_rows")
    assert all(f"{n} row{'s' * (n > 1)} with {reason}" in warning["text"] for reason, n in expected.items())
    shown = " ".join(hubbub(*arguments).output.split())
    assert f"{len(bad) / (400 + len(bad)):.1%} of all" in shown


def test_rows_of_counts_are_not_left_out(tmp_path: Path) -> None:
    refused = imported(*APP_FILES, "--out", tmp_path / "s.parquet", "--drop-invalid-rows")
    assert refused.exit_code == 2
    assert "a line of --counts-file is a whole cohort" in " ".join(refused.output.split())


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_other_separators_and_gzip_are_read(separator: str, compressed: bool, tmp_path: Path) -> None:
    texts = {
        "params.csv": "\ufeffk,h,m,p,q,f\r\n8,2,4,.25,.75,.5\r\n",
        "counts.csv": ROW * 4,
        "map.csv": md5_map(["v1", "v2"], SMALL),
    }
    for name, text in texts.items():
        data = text.replace(",", separator).encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if compressed else data)
    params = read_params(tmp_path / "params.csv")
    assert params == SMALL
    reports, ones = read_counts(tmp_path / "counts.csv", params)
    assert (reports.sum(), ones.sum()) == (20, 60)
    assert read_map(tmp_path / "map.csv", params).is_google_md5


@pytest.mark.parametrize("end", [12, -9, -3])
def test_a_damaged_gzip_file_is_named(end: int, tmp_path: Path) -> None:
    with pytest.raises(ForeignFileError, match="is a damaged gzip file"):
        read_counts(write_file(tmp_path, gzip.compress((ROW * 400).encode())[:end]), SMALL)


def test_import_prints_the_output_file_and_how_to_decode_it(tmp_path: Path) -> None:
    out = tmp_path / "summary.parquet"
    result = imported(*APP_FILES, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {
        "out": str(out),
        "metric": "google-rappor",
        "kind": "string",
        "num_reports": 10_000_000,
        "dropped_rows": {},
        "map_is_google_md5": False,
        "warnings": [],
    }
    assert "differs from the hashes of google/rappor's clients. Decode with --map" in result.stderr
    assert read_summary(out).metric.params == read_params(APP / "params.csv")


def test_import_warns_about_swapped_probabilities_and_rejects_empty_counts(tmp_path: Path) -> None:
    params, counts, out = tmp_path / "params.csv", tmp_path / "counts.csv", tmp_path / "s.parquet"
    params.write_text("k,h,m,p,q,f\n8,2,4,.75,.25,.5\n")
    counts.write_text("0,0,0,0,0,0,0,0,0\n" * 4)
    empty = imported("--params", params, "--counts-file", counts, "--out", out)
    assert empty.exit_code == 1
    assert "counts.csv has no reports" in empty.stderr
    assert not out.exists()
    counts.write_text(ROW * 4)
    swapped = imported("--params", params, "--counts-file", counts, "--out", out, "--json")
    assert swapped.exit_code == 0
    assert "has p = 0.75 > q = 0.25" in swapped.stderr
    assert "If the two were swapped" in json.loads(swapped.stdout)["warnings"][0]["text"]
    other = imported("--params", params, "--counts-file", counts, "--out", tmp_path / "s.csv")
    assert other.exit_code == 1
    assert "s.csv must end in .parquet" in other.stderr
    assert not (tmp_path / "s.csv").exists()


def test_rejects_a_map_line_without_name_and_accepts_a_number_as_name(tmp_path: Path) -> None:
    line = md5_map(["8080"], SMALL)
    assert read_map(write_file(tmp_path, line), SMALL).names == ["8080"]
    with pytest.raises(ForeignFileError, match="line 1 has h m = 8 numbers and no name"):
        read_map(write_file(tmp_path, line.split(",", 1)[1]), SMALL)


def test_writes_candidates_only_for_google_md5_maps(tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    rejected = imported(*APP_FILES, "--out", tmp_path / "s.parquet", "--candidates-out", names)
    assert rejected.exit_code == 1
    assert "decode with --map" in rejected.stderr
    assert not names.exists()
    assert not (tmp_path / "s.parquet").exists()

    (tmp_path / "params.csv").write_text("k,h,m,p,q,f\n8,2,4,.25,.75,.5\n")
    (tmp_path / "counts.csv").write_text(ROW * 4)
    files = ("--params", tmp_path / "params.csv", "--counts-file", tmp_path / "counts.csv")
    md5 = write_file(tmp_path, md5_map(["v1", "v 2"], SMALL))
    accepted = imported(*files, "--map", md5, "--out", tmp_path / "s.parquet", "--candidates-out", names)
    assert accepted.exit_code == 0, accepted.output
    assert names.read_text() == "v1\nv 2\n"


def test_import_exits_with_2_for_wrong_usage_and_1_for_a_wrong_file(tmp_path: Path) -> None:
    out = ("--out", tmp_path / "s.parquet")
    assert imported("--params", APP / "params.csv", *out).exit_code == 2
    result = imported("--params", tmp_path / "none.csv", "--counts-file", APP / "counts.csv", *out)
    assert result.exit_code == 1
    assert "none.csv cannot be read: No such file" in result.stderr
    assert "Example:\n    hubbub import google-rappor " in imported("--help").stdout


def test_decodes_the_analysis_app_like_google_rappor(tmp_path: Path) -> None:
    """Both detect all candidates above twice the detection limit; every share of R is within 4 combined standard errors.

    R's estimates are constrained (shares above 0, sum at most 1) and refitted after selection, so they differ from ours by more
    than noise. 4 standard errors of both allow for that in 115 comparisons.
    """
    summary, saved = tmp_path / "summary.parquet", tmp_path / "decoding.csv"
    assert (
        imported("--params", APP / "params.csv", "--counts-file", APP / "counts.csv", "--out", summary).exit_code == 0
    )
    result = hubbub("decode", summary, "--map", APP / "map.csv", "--json", "--out", saved)
    assert result.exit_code == 0, result.output
    decoding = json.loads(result.stdout)
    ours = {estimate["candidate"]: estimate for estimate in decoding["estimates"]}
    theirs = {row["string"]: row for row in csv.DictReader((APP / "r_decode.csv").read_text().splitlines())}
    large = 2 * decoding["detection_limit"]
    detected = {name for name, estimate in ours.items() if estimate["detected"]}
    for name, row in theirs.items():
        share, error = float(row["proportion"]), float(row["prop_std_error"])
        assert abs(share - ours[name]["share"]) < 4 * math.hypot(error, ours[name]["std_error"])
        assert share < large or name in detected
    assert {name for name in detected if ours[name]["share"] > large} <= set(theirs)
    assert len(detected & set(theirs)) > 90
    assert "V_1" in saved.read_text()


def test_map_and_candidates_exclude_each_other() -> None:
    assert hubbub("decode", "s.parquet", "--map", "m.csv", "--candidates", "c.txt").exit_code == 2


def test_decode_rejects_a_map_of_other_parameters(tmp_path: Path) -> None:
    imported("--params", APP / "params.csv", "--counts-file", APP / "counts.csv", "--out", tmp_path / "s.parquet")
    result = hubbub("decode", tmp_path / "s.parquet", "--map", write_file(tmp_path, "a,1,2,3\n"))
    assert result.exit_code == 1
    assert "Check that the map belongs to these parameters." in result.stderr


def test_map_with_one_bit_per_candidate_gives_a_categorical_metric(tmp_path: Path) -> None:
    """Basic RAPPOR: 3 of 4 bits named, 4 cohorts of 1,000 reports: share (c/N - p*) / (q* - p*), p* = .375, q* = .625."""
    (tmp_path / "params.csv").write_text("k,h,m,p,q,f\n4,1,4,0.25,0.75,0.5\n")
    (tmp_path / "counts.csv").write_text("1000,500,425,375,400\n" * 4)
    names = {"red": 0, "green": 1, "blue": 3}
    rows = [",".join([name, *(str(c * 4 + bit + 1) for c in range(4))]) for name, bit in names.items()]
    (tmp_path / "map.csv").write_text("\n".join(rows) + "\n")
    given = (
        "--params",
        tmp_path / "params.csv",
        "--counts-file",
        tmp_path / "counts.csv",
        "--map",
        tmp_path / "map.csv",
    )
    result = imported(*given, "--out", tmp_path / "s.parquet", "--candidates-out", tmp_path / "names.txt", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["kind"] == "categorical"
    summary = read_summary(tmp_path / "s.parquet")
    assert summary.metric.kind.labels == ("red", "green", "bit 3", "blue")
    assert summary.num_reports == 4000
    decoded = hubbub("decode", tmp_path / "s.parquet", "--candidates", tmp_path / "names.txt", "--json")
    shares = {e["candidate"]: round(e["share"], 9) for e in json.loads(decoded.stdout)["estimates"]}
    assert shares == {"red": 0.5, "green": 0.2, "blue": 0.1}
    rejected = hubbub("decode", tmp_path / "s.parquet", "--map", tmp_path / "map.csv")
    assert rejected.exit_code == 2
    assert "Leave out --map" in rejected.output


@pytest.mark.parametrize(
    "rows",
    [
        ["a,1,9,17,25", "b,1,9,17,25"],  # one bit for both
        ["a,1,9,17,26", "b,2,10,18,25"],  # another bit in the last cohort
        ["a,1,2,9,17,25", "b,3,11,19,27"],  # two bits in the first
    ],
)
def test_other_maps_give_a_string_metric(rows: list[str], tmp_path: Path) -> None:
    assert read_map(write_file(tmp_path, "\n".join(rows)), SMALL).categories is None


def test_map_of_one_cohort_is_categorical_if_every_bit_has_a_name(tmp_path: Path) -> None:
    params = replace(SMALL, num_cohorts=1)
    full = [f"c{bit},{bit + 1}" for bit in range(8)]
    assert read_map(write_file(tmp_path, "\n".join(full)), params).categories == tuple(f"c{i}" for i in range(8))
    assert read_map(write_file(tmp_path, "\n".join(full[1:])), params).categories is None


def test_imports_reports_of_more_than_16_bits_as_reports(tmp_path: Path, unseen_seed: int) -> None:
    """k = 24: decoding from reports is more precise than from bit counts."""
    params = replace(SMALL, num_bits=24)
    (tmp_path / "params.csv").write_text("k,h,m,p,q,f\n24,2,4,0.25,0.75,0.5\n")
    rows = np.random.default_rng(unseen_seed).integers(0, 1 << 24, 50)
    (tmp_path / "reports.csv").write_text("cohort,irr\n" + "".join(f"{n % 4},{n:024b}\n" for n in rows.tolist()))
    result = imported(
        "--params", tmp_path / "params.csv", "--reports-file", tmp_path / "reports.csv", "--out", tmp_path / "r"
    )
    assert result.exit_code == 0, result.output
    read = read_collected(tmp_path / "r")
    assert isinstance(read, Reports)
    assert read.metric.params == params
    packed = np.column_stack([read.cohorts, read.rows.astype(np.int64) @ [1, 1 << 8, 1 << 16]])
    assert packed.tolist() == [[n % 4, n] for n in rows.tolist()]
