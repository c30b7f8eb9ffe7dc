"""google/rappor's reports of several variables: bits, cohorts, refusals, and the way to `hubbub associate`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from hubbub.cli import main
from hubbub.summary import BitCounts, Reports, read_reports, write_summary
from hubbub_decoder import simulate
from hubbub_decoder.data.google_rappor import read_params
from hubbub_decoder.data.google_rappor_joint import joint_metric, read_joint_reports
from hubbub_decoder.errors import ForeignFileError

PARAMS = "k,h,m,p,q,f\n16,2,4,0.2,0.8,0.25\n"
VARIABLES = {"name": "string", "clicked": "boolean"}


def written(folder: Path, text: str) -> tuple[Path, Path]:
    (folder / "params.csv").write_text(PARAMS)
    (folder / "reports.csv").write_text(text)
    return folder / "params.csv", folder / "reports.csv"


def test_bits_are_read_from_the_last_and_cohorts_modulo_m(tmp_path: Path) -> None:
    text = "client,cohort,name,clicked\n1,5,1000000000000011,1\n2,2,0000000000000000,FALSE\n"
    params, path = written(tmp_path, text)
    reports = read_joint_reports(path, joint_metric("assoc", VARIABLES, read_params(params)))
    assert reports.cohorts.tolist() == [1, 2]
    assert reports.rows.tolist() == [[0b11, 0b10000000, 1], [0, 0, 0]]
    assert reports.part("name").rows.tolist() == [[0b11, 0b10000000], [0, 0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,cohort,name\n1,1,0000000000000000\n", "must name the columns clicked"),
        ("cohort,name,clicked\n1,0000000000000002,1\n", "line 2: the bits of name must be k = 16 digits"),
        ("cohort,name,clicked\n1,0000000000000001,11\n", "line 2: the bits of clicked must be k = 1 digits"),
        ("cohort,name,clicked\n1,0000000000000001\n", "line 2 must have 3 columns"),
        ("cohort,name,clicked\n", "has no reports"),
    ],
)
def test_malformed_reports_are_refused(text: str, message: str, tmp_path: Path) -> None:
    params, path = written(tmp_path, text)
    with pytest.raises(ForeignFileError, match=message):
        read_joint_reports(path, joint_metric("assoc", VARIABLES, read_params(params)))


def test_imported_reports_are_associated(tmp_path: Path) -> None:
    """Simulated under google/rappor's hashes, written as its CSV, imported by the command: the same rows, and a dependence."""
    params, path = written(tmp_path, "")
    metric = joint_metric("assoc", VARIABLES, read_params(params))
    clients = {("red", "true"): 2500, ("blue", "false"): 2500}
    sent = simulate(metric, clients, np.random.default_rng(0), form=Reports)
    bits = np.unpackbits(sent.rows, axis=1, count=17, bitorder="little")
    lines = [f"{c},{''.join(map(str, row[15::-1]))},{row[16]}" for c, row in zip(sent.cohorts, bits, strict=True)]
    path.write_text("\n".join(["cohort,name,clicked", *lines, "0,,0"]) + "\n")
    (tmp_path / "names.txt").write_text("red\nblue\n")
    out = tmp_path / "assoc.parquet"
    options = [
        "--params",
        str(params),
        "--reports-file",
        str(path),
        "--variable",
        "name=string",
        "--variable",
        "clicked=boolean",
    ]
    imported = CliRunner().invoke(
        main, ["import", "google-rappor", *options, "--name", "assoc", "--out", str(out), "--drop-invalid-rows"]
    )
    assert imported.exit_code == 0, imported.output
    assert np.array_equal(read_reports(out).rows, sent.rows)
    shown = CliRunner().invoke(main, ["associate", str(out), "--part-candidates", f"name={tmp_path / 'names.txt'}"])
    assert "name and clicked depend on each other" in " ".join(shown.output.split())
    assert "1 row of the imported file was left out as invalid, 0.0% of all: 1 row with invalid bits" in " ".join(
        shown.output.split()
    )


def test_a_column_is_found_in_any_case_and_invalid_rows_are_left_out(tmp_path: Path) -> None:
    """R names a column flag..HTTPS; of two columns with the same letters, the one that is written alike is taken."""
    text = "client,cohort,name,flag..HTTPS,Name\nc0,0,,0,\nc1,x,0000000000000001,1,\nc2,5,0000000000000001,TRUE,\n"
    params, path = written(tmp_path, text)
    metric = joint_metric("assoc", {"name": "string", "flag..https": "boolean"}, read_params(params))
    dropped = Counter[str]()
    reports = read_joint_reports(path, metric, dropped)
    assert reports.rows.tolist() == [[1, 0, 1]]
    assert dropped == reports.dropped_rows == {"invalid bits": 1, "invalid cohort": 1}
    with pytest.raises(ForeignFileError, match="Pass --drop-invalid-rows"):
        read_joint_reports(path, metric)


def test_counts_are_not_associated(tmp_path: Path) -> None:
    params, _ = written(tmp_path, "")
    metric = joint_metric("assoc", VARIABLES, read_params(params))
    write_summary(BitCounts.empty(metric), tmp_path / "s.parquet")
    refused = CliRunner().invoke(main, ["associate", str(tmp_path / "s.parquet")])
    assert refused.exit_code == 1
    assert "counts of bits do not show which values came together" in " ".join(refused.output.split())


def test_a_string_of_one_bit_is_refused(tmp_path: Path) -> None:
    params, _ = written(tmp_path, "")
    params.write_text("k,h,m,p,q,f\n1,1,4,0.2,0.8,0.25\n")
    with pytest.raises(ForeignFileError, match="Pass --variable name=boolean"):
        joint_metric("assoc", VARIABLES, read_params(params))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--variable", "name=text"], "--variable must be NAME=string or NAME=boolean"),
        (["--variable", "name=string", "--map", "params.csv"], "--variable needs --reports-file, and excludes"),
        (["--variable", "flag..HTTPS=boolean", "--variable", "b=boolean"], "Write --variable with lower-case letters"),
    ],
)
def test_wrong_variables_are_refused(options: list[str], message: str, tmp_path: Path) -> None:
    params, path = written(tmp_path, "cohort,name\n")
    files = ["--params", str(params), "--reports-file", str(path), "--out", str(tmp_path / "x.parquet")]
    refused = CliRunner().invoke(main, ["import", "google-rappor", *files, *options])
    assert refused.exit_code != 0
    assert message in " ".join(f"{refused.output} {refused.exception}".split())
