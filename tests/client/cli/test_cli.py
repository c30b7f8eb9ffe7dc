"""Commands of the client: results on stdout, errors as one line on stderr."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from hubbub.cli import main
from hubbub.errors import HubbubError
from hubbub.sdk.storage.state_reader import read_state
from tests.support.paths import DATA

METRICS = DATA / "metrics.toml"


def hubbub(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


def test_check_and_show_accept_asymmetric_responses(tmp_path: Path) -> None:
    """eps of one report: ln(q*(1-p*) / (p*(1-q*))) = 2.031; of all: ln(a (1-b) / (b (1-a))) = ln 49, for the one hash."""
    asymmetric = tmp_path / "metrics.toml"
    table = METRICS.read_text().split("[[metric]]")[1].replace("num_hashes = 2", "num_hashes = 1")
    noise = {
        "prob_p = 0.25": "prob_p = 0.1",
        "prob_q = 0.75": "prob_q = 0.9",
        "prob_f = 0.5": "permanent_p = 0.02\npermanent_q = 0.5",
    }
    for old, new in noise.items():
        assert old in table
        table = table.replace(old, new)
    asymmetric.write_text("[[metric]]" + table)
    assert hubbub("metrics", "check", asymmetric).exit_code == 0
    shown = hubbub("metrics", "show", asymmetric).stdout
    assert "p = 0.1, q = 0.9, permanent_p = 0.02, permanent_q = 0.5\n" in shown
    assert re.search(r"per report +2\.031 ", shown)
    assert re.search(r"per value +3\.892 ", shown)
    (about,) = json.loads(hubbub("metrics", "show", asymmetric, "--json").stdout)
    assert "prob_f" not in about
    assert (about["permanent_p"], about["permanent_q"]) == (round(0.02 * 2**24) / 2**24, 0.5)
    asymmetric.write_text(asymmetric.read_text().replace("permanent_p = 0.02", "permanent_p = 0.6"))
    refused = hubbub("metrics", "check", asymmetric)
    assert refused.exit_code == 1
    assert "homepage: permanent_p must be below permanent_q, got 0.6 and 0.5" in refused.stderr


def test_show_prints_parameters_and_epsilon() -> None:
    shown = hubbub("metrics", "show", METRICS, "homepage")
    assert shown.exit_code == 0
    figures = dict(re.findall(r"^    (per \w+|lifetime epsilon) +([\d.]+)  ", shown.stdout, flags=re.MULTILINE))
    assert figures == {
        "per report": "2.044",
        "per value": "4.395",
        "per enrollment": "17.578",
        "lifetime epsilon": "39.551",
    }
    assert "any number of reports of one unchanging value, from one permanent response" in shown.stdout
    assert "f = 0.5\n" in shown.stdout
    assert "effective group size of two reports of one value: 12.7 clients" in shown.stdout
    assert "without hold, changes of the value are visible in linked reports" in shown.stdout
    about = json.loads(hubbub("metrics", "show", METRICS, "dark_mode", "--json").stdout)
    assert about[0]["privacy"]["epsilon_report"] == pytest.approx(1.0986, abs=1e-4)


def test_show_prints_central_epsilon() -> None:
    shown = hubbub("metrics", "show", METRICS, "homepage", "--reports", "1000000").stdout
    about = json.loads(hubbub("metrics", "show", METRICS, "homepage", "--reports", "1000000", "--json").stdout)[0]
    assert about["reports_per_cohort"] == 1_000_000 // about["num_cohorts"]
    assert about["central_epsilon"] < about["privacy"]["epsilon_report"]
    (printed,) = re.findall(r"central epsilon = ([\d.]+) at delta = 1e-09, for", shown)
    assert about["central_epsilon"] <= float(printed) <= about["central_epsilon"] + 0.001
    assert "not against the operator of the aggregator" in shown


def test_show_prints_infinity_as_valid_json(tmp_path: Path) -> None:
    unmemoized = tmp_path / "m.toml"
    unmemoized.write_text(METRICS.read_text().replace("prob_f = 0.5", "prob_f = 0"))
    about = json.loads(hubbub("metrics", "show", unmemoized, "homepage", "--json").stdout)
    assert about[0]["privacy"]["epsilon_permanent"] == "inf"


def test_check_prints_one_line_if_valid_and_one_error_if_not(tmp_path: Path) -> None:
    renewed = tmp_path / "renewed.toml"
    renewed.write_text(METRICS.read_text().replace("2099-01-01", f"{datetime.now(UTC).date() + timedelta(days=300)}"))
    fine = hubbub("metrics", "check", renewed)
    assert fine.stdout.endswith("valid: 3 definitions, 3 metrics\n")
    assert fine.stderr == ""
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(METRICS.read_text().replace("prob_f = 0.5", "prob_f = 1", 1))
    result = hubbub("metrics", "check", wrong)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "homepage: prob_f must be in [0, 1), got 1" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("written", "instead", "warning"),
    [
        (
            "prob_q = 0.75\nprob_f = 0.5",
            "prob_q = 0.5\nprob_f = 0",
            "under the default Policy: homepage: a period costs epsilon = ",
        ),
        ("expires = 2099-01-01", "expires = 2020-01-01", "homepage: expired on 2020-01-01"),
        (
            "prob_q = 0.75\nprob_f = 0.5",
            "prob_q = 1\nprob_f = 0.75",
            "homepage: two reports of one client can be linked by their permanent noise, among up to ",
        ),
    ],
)
def test_check_warns_about_expired_exhausted_and_linkable_metrics(
    tmp_path: Path, written: str, instead: str, warning: str
) -> None:
    odd = tmp_path / "odd.toml"
    assert written in METRICS.read_text()
    odd.write_text(METRICS.read_text().replace(written, instead, 1))
    result = hubbub("metrics", "check", odd)
    assert result.exit_code == 0
    assert f"warning: {warning}" in result.stderr
    assert json.loads(hubbub("metrics", "check", odd, "--json").stdout)["warnings"][0].startswith(warning)


@pytest.mark.parametrize(("num_cohorts", "number"), [(1, 1), (2, 1), (4, 0)])
def test_check_warns_about_string_metrics_with_few_cohorts(num_cohorts: int, number: int, tmp_path: Path) -> None:
    file = tmp_path / "metrics.toml"
    file.write_text(METRICS.read_text().replace("num_cohorts = 64", f"num_cohorts = {num_cohorts}", 1))
    result = hubbub("metrics", "check", file)
    assert result.exit_code == 0
    warning = (
        f"warning: homepage: num_cohorts = {num_cohorts}: a detected candidate may be a frequent unlisted string. "
        "Use 8 or more cohorts"
    )
    assert result.stderr.count(warning) == number


def test_check_fails_for_a_metric_that_the_default_policy_blocks(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked.toml"
    blocked.write_text(METRICS.read_text().replace("prob_p = 0.25", "prob_p = 0.0001", 1))
    result = hubbub("metrics", "check", blocked)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Error: under the default Policy: homepage: a report costs epsilon = " in result.stderr
    assert result.stderr.count("No client reports this metric") == 1


@pytest.mark.parametrize("number", [5, 6, 60])
def test_check_fails_once_for_all_metrics_beyond_the_total(number: int, tmp_path: Path) -> None:
    """The total suffices for five of these, and for two values of the sixth: one finding names all others, and says why."""
    many = tmp_path / "many.toml"
    homepage = METRICS.read_text().partition("[[metric]]")[2].partition("[[metric]]")[0]
    many.write_text("".join("[[metric]]" + homepage.replace('"homepage"', f'"page{n}"') for n in range(number)))
    result = hubbub("metrics", "check", many)
    assert result.exit_code == (number > 6)
    warned = [line for line in result.stderr.splitlines() if line.startswith("warning: under the default Policy")]
    assert [line.split(": ")[2] for line in warned] == (["page5"] if number > 5 else [])
    errors = [line.removeprefix("Error: ") for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert json.loads(hubbub("metrics", "check", many, "--json").stdout)["problems"] == errors
    assert len(errors) == (number > 6)
    for error in errors:
        names = ", ".join(f"page{n}" for n in range(6, number))
        assert f"no client reports {number - 6} of {number} metrics ({names}): " in error
        assert "Policy.epsilon_total = 100" in error


def test_encode_prints_reports_and_rejects_unknown_metrics() -> None:
    reports = json.loads(hubbub("encode", METRICS, "dark_mode", "true", "false", "--json").stdout)
    assert [len(report["bits"]) for report in reports] == [1, 1]
    assert len(json.loads(hubbub("encode", METRICS, "homepage", "--json").stdout)) == 1
    for arguments, message in (
        (("encode", METRICS, "weight", "3"), "has no metric 'weight'. Its metrics are homepage, os, dark_mode"),
        (("encode", METRICS, "dark_mode", "yes"), "a value of a boolean metric must be true or false"),
    ):
        refused = hubbub(*arguments)
        assert refused.exit_code == 1
        assert message in refused.stderr


def test_wrong_usage_exits_with_2() -> None:
    assert hubbub("encode").exit_code == 2
    assert hubbub("no-such-command").exit_code == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [("--help",), ("metrics", "show", METRICS)])
def test_full_disk_is_one_error_line(arguments: tuple[str | Path, ...]) -> None:
    program = Path(sys.executable).with_name("hubbub")
    for unbuffered in ("", "1"):
        with Path("/dev/full").open("w") as full:
            result = subprocess.run(
                [program, *arguments],
                env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert (result.returncode, result.stderr) == (1, "Error: cannot write the output: No space left on device\n")


def test_all_required_options_that_are_missing_are_named() -> None:
    assert "Missing option '--app', '--recipient'." in hubbub("metrics", "notice", METRICS).stderr
    assert "Missing option '--recipient'." in hubbub("metrics", "notice", METRICS, "--app", "a").stderr


@pytest.mark.parametrize("command", ["decode", "compare"])
def test_html_is_written_by_out(command: str) -> None:
    assert "Did you mean '--out page.html'?" in hubbub(command, "--html", "page.html", "a", "b").stderr
    assert "--out page.html" not in hubbub("pull", "--html", "page.html").stderr


def test_error_for_directory_without_state_differs_from_missing_directory(tmp_path: Path) -> None:
    assert "holds no client's state (there is no journal in it)" in hubbub("inspect", tmp_path).stderr


def test_unreadable_state_is_one_error_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    for look in ("open", "read_bytes", "is_file", "is_dir", "stat"):
        monkeypatch.setattr(Path, look, refuse)
    with pytest.raises(
        HubbubError, match=r"cannot be read \(Permission denied\): run the command as the user of the app"
    ):
        read_state(tmp_path)


def test_file_errors_have_one_form_in_all_commands() -> None:
    """click does not check files, because its messages and exit codes differ from those of hubbub."""
    context = click.Context(main)
    commands = [main.get_command(context, name) for name in main.list_commands(context)]
    commands += [sub for group in commands if isinstance(group, click.Group) for sub in group.commands.values()]
    paths = [
        option.type
        for command in commands
        if command
        for option in command.params
        if isinstance(option.type, click.Path)
    ]
    assert len(paths) > 20
    assert not any(path.readable for path in paths)


def test_metrics_show_prints_one_client_in_the_singular(tmp_path: Path) -> None:
    file = tmp_path / "metrics.toml"
    file.write_text(
        '[[metric]]\nname = "dark"\nkind = "boolean"\ndescription = "d"\nowner = "o"\nexpires = 2099-01-01\n'
        "prob_p = 0\nprob_q = 1\nprob_f = 0.5\nhold = 1\n"
    )
    shown = hubbub("metrics", "show", file).stdout
    assert "effective group size of two reports of one value: 1 client\n" in shown
    assert "by a factor of at most" in shown
