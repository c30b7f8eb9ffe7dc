"""`hubbub metrics diff`, and the registry checks and cap of `hubbub metrics check`."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hubbub import Metric, Policy, UnaryResponse, load_definitions
from hubbub.cli import main
from hubbub.cli.definition_lint import cap_problems, name_warnings, placeholder_problems, registry_warnings
from hubbub.privacy.certificates import certificate
from tests.support.paths import DATA

FILE = DATA / "metrics.toml"
TODAY = date(2026, 11, 23)
MONTHLY = Metric.boolean("dark", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), hold=1, expires=date(2027, 11, 24))


def hubbub(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.parametrize(("expires", "number"), [("2027-11-24", 0), ("2027-11-25", 1), (None, 1)])
def test_expiry_beyond_a_year_is_one_warning(expires: str | None, number: int) -> None:
    day = None if expires is None else date.fromisoformat(expires)
    warnings = list(registry_warnings([MONTHLY, replace(MONTHLY, name="late", expires=day)], TODAY))
    assert len(warnings) == number
    for warning in warnings:
        assert warning.startswith(f"1 metric with an expiry beyond a year (late on {expires}): ")
        assert "Set expires to 2027-11-24 or earlier" in warning


def test_missing_purpose_or_review_is_one_warning_in_a_file_with_reviews() -> None:
    reviewed = replace(MONTHLY, purpose="Theme", review="https://example.org/reviews/1")
    assert list(registry_warnings([MONTHLY], TODAY)) == []
    assert list(registry_warnings([reviewed], TODAY)) == []
    without_review = replace(reviewed, name="half", review="")
    (warning,) = registry_warnings([reviewed, replace(MONTHLY, name="bare"), without_review], TODAY)
    assert warning.startswith("2 metrics without purpose or review (bare, half): ")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("homepage_v2", "v2"),
        ("crash-1.2.3", "1.2.3"),
        ("start_2_0_time", "2_0"),
        ("user_12345", "12345"),
        ("theme-2026", "2026"),
        ("plan_4f3a09bc", "4f3a09bc"),
        ("top_10_pages", None),
        ("x86_64", None),
        ("http2", None),
        ("vim_mode", None),
        ("feedback_facade", None),
    ],
)
def test_name_with_a_version_or_a_number_is_a_warning(name: str, found: str | None) -> None:
    warnings = list(name_warnings([replace(MONTHLY, name=name)]))
    assert [warning.split(",")[0] for warning in warnings] == [f"{name}: the name contains {found}"] * (
        found is not None
    )


def test_metrics_that_differ_in_the_last_word_are_one_warning() -> None:
    other = Metric.categorical("uses_shell", ("zsh", "fish"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))
    named = [replace(MONTHLY, name=name) for name in ("uses_vim", "dark", "uses_git", "old.dark")]
    (warning,) = name_warnings([*named, other])
    assert warning.startswith("uses_vim, uses_git have one definition and differ in the last word of their names. ")


@pytest.mark.parametrize("field", ["description", "owner", "purpose"])
@pytest.mark.parametrize("text", ["TODO", "todo: write it", " TODO later", "...", "-"])
def test_placeholder_is_a_problem(field: str, text: str) -> None:
    written = replace(
        MONTHLY, description="Whether the dark theme is on", owner="ada@example.org", purpose="Choose one"
    )
    assert list(placeholder_problems([written])) == []
    changed: dict[str, Any] = {field: text}
    (problem,) = placeholder_problems([replace(written, **changed)])
    assert problem.startswith(f"dark ({MONTHLY.digest[:12]}): {field} is a placeholder, got {text!r}: ")


def test_cap_bounds_the_epsilon_of_a_unit() -> None:
    """The two-coin survey: ln 3 = 1.0986 for an epoch of one report. Equality is allowed."""
    assert list(cap_problems([MONTHLY], 1.0986122886681098)) == []
    (problem,) = cap_problems([MONTHLY], 1.09)
    assert problem.startswith(
        f"dark ({MONTHLY.digest[:12]}): epsilon 1.099 per epoch is above --max-epsilon = 1.09 (lifetime epsilon 39.551): "
    )


def test_check_exits_with_1_above_the_cap() -> None:
    assert hubbub("metrics", "check", FILE, "--max-epsilon", "4.4").exit_code == 0
    refused = hubbub("metrics", "check", FILE, "--max-epsilon", "4.3")
    assert refused.exit_code == 1
    assert "Error: homepage (4630902792b4): epsilon 4.395 per value is above --max-epsilon = 4.3" in refused.stderr
    assert "valid" not in refused.stdout
    as_json = hubbub("metrics", "check", FILE, "--max-epsilon", "4.3", "--json")
    assert as_json.exit_code == 1
    assert [problem.split(" ")[0] for problem in json.loads(as_json.stdout)["problems"]] == ["homepage"]
    for cap in ("0", "nan"):
        assert hubbub("metrics", "check", FILE, "--max-epsilon", cap).exit_code == 2


def test_check_caps_every_version_that_is_collected(tmp_path: Path) -> None:
    first, homepage, *_ = FILE.read_text().split("[[metric]]")
    versions = tmp_path / "metrics.toml"
    versions.write_text("[[metric]]".join((first, homepage, homepage.replace("prob_f = 0.5", "prob_f = 0.75"))))
    refused = hubbub("metrics", "check", versions, "--max-epsilon", "3")
    assert refused.stderr.count("Error: homepage (4630902792b4)") == refused.stderr.count("Error: ") == 1
    versions.write_text(versions.read_text().replace("2099-01-01", "2020-01-01", 1))
    assert hubbub("metrics", "check", versions, "--max-epsilon", "3").exit_code == 0


def test_check_json_lists_every_version_with_its_digest(tmp_path: Path) -> None:
    _, homepage, *_ = FILE.read_text().split("[[metric]]")
    versions = tmp_path / "metrics.toml"
    versions.write_text("[[metric]]".join(("", homepage, homepage.replace("prob_f = 0.5", "prob_f = 0.75"))))
    old, current = load_definitions(versions).versions()
    assert json.loads(hubbub("metrics", "check", versions, "--json").stdout)["metrics"] == [
        {"name": "homepage", "digest": old.digest, "current": False},
        {"name": "homepage", "digest": current.digest, "current": True},
    ]


def test_diff_prints_rounded_probabilities(tmp_path: Path) -> None:
    changed = tmp_path / "metrics.toml"
    changed.write_text(FILE.read_text().replace("prob_p = 0.25", "prob_p = 0.1719237", 1))
    assert "\n  prob_p: 0.25 -> 0.171924\n" in hubbub("metrics", "diff", FILE, changed).stdout
    fields = json.loads(hubbub("metrics", "diff", FILE, changed, "--json").stdout)["changes"][0]["fields"]
    assert fields["prob_p"][1] == round(0.1719237 * 2**24) / 2**24


def test_diff_states_epsilon_before_and_after(tmp_path: Path) -> None:
    changed = tmp_path / "metrics.toml"
    changed.write_text(FILE.read_text().replace("prob_f = 0.5", "prob_f = 0.75", 1))
    result = hubbub("metrics", "diff", FILE, changed)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    digest = load_definitions(changed)["homepage"].digest[:12]
    assert lines[:2] == [f"homepage 4630902792b4 -> {digest}: meaning changed", "  prob_f: 0.5 -> 0.75"]
    assert lines[2].startswith("  before: no epsilon whatever is recorded; epsilon 2.044 per report, 4.395 per value, ")
    assert lines[3].startswith("  after:  no epsilon whatever is recorded; epsilon 1.006 per report, 2.044 per value, ")
    assert [line.split(": ")[1] for line in lines[4:]] == ["unchanged", "unchanged"]
    as_json = hubbub("metrics", "diff", FILE, changed, "--json")
    assert as_json.exit_code == 1
    printed = json.loads(as_json.stdout)
    change = printed["changes"][0]
    assert (change["metric"], change["change"], change["fields"]) == (
        "homepage",
        "meaning changed",
        {"prob_f": [0.5, 0.75]},
    )
    assert change["before"]["digest"] == load_definitions(FILE)["homepage"].digest
    assert change["after"]["privacy"]["epsilon_unit"] < change["before"]["privacy"]["epsilon_unit"]
    assert result.stderr.splitlines() == [f"Error: {problem}" for problem in printed["problems"]]


@pytest.mark.parametrize(
    ("lifetime", "told"), [("5", "have sent one report"), ("9", "have sent 3 or more reports"), ("", "")]
)
def test_diff_warns_of_clients_without_room_for_a_new_version(lifetime: str, told: str, tmp_path: Path) -> None:
    """A value costs 2 log 3 = 2.197. After R reports, R + 1 values may be spent at the end of the period."""
    old, new = tmp_path / "old.toml", tmp_path / "new.toml"
    table = (
        '[[metric]]\nname = "feature"\nkind = "categorical"\ncategories = ["a", "b", "c", "d"]\ndescription = "d"\nowner = "o@example.org"\nexpires = 2099-01-01\n'
        "prob_p = 0.25\nprob_q = 0.75\nprob_f = 0.5\n" + (f"lifetime_epsilon = {lifetime}\n" if lifetime else "")
    )
    old.write_text(table)
    new.write_text(table + table.replace("prob_f", 'period = "week"\nprob_f'))
    result = hubbub("metrics", "diff", old, new)
    assert result.exit_code == 0
    assert (told in result.stderr) if told else not result.stderr
    assert len(json.loads(hubbub("metrics", "diff", old, new, "--json").stdout)["warnings"]) == bool(told)


def test_diff_of_a_file_with_itself_changes_nothing() -> None:
    same = hubbub("metrics", "diff", FILE, FILE)
    assert (same.exit_code, same.stderr) == (0, "")
    assert [line.split(": ")[1] for line in same.stdout.splitlines()] == ["unchanged"] * 3
    assert json.loads(hubbub("metrics", "diff", FILE, FILE, "--json").stdout)["problems"] == []


def test_diff_prints_removed_metrics_without_after(tmp_path: Path) -> None:
    fewer = tmp_path / "metrics.toml"
    fewer.write_text(FILE.read_text().rpartition("[[metric]]")[0])
    removed = json.loads(hubbub("metrics", "diff", FILE, fewer, "--json").stdout)["changes"][-1]
    assert (removed["metric"], removed["change"], removed["after"]) == ("dark_mode", "removed", None)
    added = hubbub("metrics", "diff", fewer, FILE).stdout.splitlines()
    assert added[-2].endswith(": added")
    assert added[-1].startswith("  after:  no epsilon whatever is recorded; epsilon 1.099 per report")


def test_diff_of_an_invalid_file_is_one_error_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text(FILE.read_text().replace("prob_f = 0.5", "prob_f = 1", 1))
    for arguments in ((FILE, broken), (broken, FILE), (FILE, tmp_path / "missing.toml")):
        refused = hubbub("metrics", "diff", *arguments)
        assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)


def test_show_prints_purpose_and_review_if_set(tmp_path: Path) -> None:
    reviewed = tmp_path / "metrics.toml"
    fields = 'purpose = "Choose start pages"\nreview = "https://example.org/reviews/1"\nnum_bits = 128'
    reviewed.write_text(FILE.read_text().replace("num_bits = 128", fields))
    shown = hubbub("metrics", "show", reviewed).stdout
    assert shown.count("\n  purpose: Choose start pages\n  review: https://example.org/reviews/1\n") == 1
    assert (shown.count("purpose:"), shown.count("review:")) == (1, 1)
    about = json.loads(hubbub("metrics", "show", reviewed, "--json").stdout)
    assert [metric.get("review") for metric in about] == ["https://example.org/reviews/1", None, None]


def test_show_and_diff_escape_control_characters_of_a_definitions_file(tmp_path: Path) -> None:
    """A terminal would hide the epsilons after the escape sequence `conceal`."""
    concealed = tmp_path / "metrics.toml"
    concealed.write_text(FILE.read_text().replace('description = "', 'description = "\\u001b[8m\\u202e\\n'))
    for arguments in (("show", concealed), ("diff", FILE, concealed)):
        shown = CliRunner().invoke(main, ["metrics", *map(str, arguments)], color=True).stdout
        assert r"\x1b[8m\u202e" in shown
        assert not {"\x1b", "\u202e"} & set(shown)


def test_certificate_is_written_for_the_current_version(tmp_path: Path) -> None:
    out = tmp_path / "homepage.json"
    shown = hubbub("metrics", "certificate", FILE, "homepage", "--out", out, "--reports", "3", "--json")
    metric = load_definitions(FILE)["homepage"]
    assert shown.exit_code == 0
    assert json.loads(out.read_text()) == certificate(metric, Policy(), num_reports=3)
    assert json.loads(shown.stdout) == {
        "out": str(out),
        "digest": metric.digest,
        "statements": json.loads(out.read_text())["statements"],
    }
    for arguments, message in (
        (("nope", "--out", out), "has no metric 'nope'"),
        (("homepage", "--out", tmp_path), "it is a directory"),
        (("homepage", "--out", FILE), "the name of a JSON file must end in .json"),
        (("homepage", "--out", tmp_path / "none" / "a.json"), "give a file in a directory that you can write"),
        (("homepage", "--out", out, "--reports", "1001"), "num_reports must be an integer in"),
    ):
        before = out.read_bytes()
        failed = hubbub("metrics", "certificate", FILE, *arguments)
        assert failed.exit_code == 1
        assert message in failed.stderr
        assert out.read_bytes() == before
