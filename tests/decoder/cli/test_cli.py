"""Commands simulate, pull and decode: files, results on stdout, messages on stderr, exit codes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from hubbub import Metric, Params, load_definitions
from hubbub.cli import main
from hubbub.summary import BitCounts, PatternCounts, read_collected, read_summary, summary_to_bytes, write_summary
from hubbub_decoder.estimators.reports import mixed_effects
from hubbub_decoder.simulation import simulate

DEFINITIONS = """
[[metric]]
name = "homepage"
kind = "string"
description = "Where do people start?"
owner = "you@example.org"
num_bits = 16
num_hashes = 2
num_cohorts = 16
prob_p = 0.25
prob_q = 0.75
prob_f = 0.25
expires = 2099-01-01

[[metric]]
name = "os"
kind = "categorical"
categories = ["linux", "macos", "windows"]
description = "What does it run on?"
owner = "you@example.org"
prob_p = 0.25
prob_q = 0.75
prob_f = 0.25
expires = 2099-01-01
"""
ZIPF = ("--distribution", "zipf1", "--values", 20)


def hubbub(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def read_csv(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def error_of(*arguments: object) -> str:
    result = hubbub(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    return result.stderr


@pytest.fixture
def definitions(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.toml"
    path.write_text(DEFINITIONS)
    return path


@pytest.fixture
def summary(definitions: Path, tmp_path: Path) -> Path:
    path = tmp_path / "summary.parquet"
    files = ("--out", path, "--truth-out", tmp_path / "truth.csv")
    result = hubbub("simulate", definitions, "homepage", "--reports", 100_000, *ZIPF, "--seed", 1, *files)
    assert result.exit_code == 0, result.output
    return path


@pytest.fixture
def candidates(tmp_path: Path) -> Path:
    path = tmp_path / "names.txt"
    path.write_text("".join(f"v{i}\n" for i in range(1, 31)))
    return path


def test_decodes_a_simulated_summary_to_the_true_shares(summary: Path, candidates: Path, tmp_path: Path) -> None:
    result = hubbub("decode", summary, "--candidates", candidates, "--json", "--out", tmp_path / "out.csv")
    assert result.exit_code == 0
    result_json = json.loads(result.stdout)
    truth = {row["value"]: float(row["share"]) for row in read_csv(tmp_path / "truth.csv")}
    assert result_json["estimates"][0]["candidate"] == "v1"
    for e in result_json["estimates"]:
        assert abs(e["share"] - truth.get(e["candidate"], 0)) < 6 * e["std_error"]
    saved = read_csv(tmp_path / "out.csv")
    assert float(saved[0]["share"]) == result_json["estimates"][0]["share"]
    assert "wrote" in result.stderr


def test_decodes_asymmetric_permanent_noise_of_several_periods(definitions: Path, tmp_path: Path) -> None:
    """The summary file holds the definition, and every error is within 6 standard errors."""
    definitions.write_text(DEFINITIONS.replace("prob_f = 0.25", "permanent_p = 0.05\npermanent_q = 0.5", 1))
    out, truth, estimates = (tmp_path / name for name in ("s.parquet", "truth.csv", "estimates.csv"))
    options = ("--reports", 100_000, *ZIPF, "--periods", 3, "--seed", 1)
    simulated = hubbub("simulate", definitions, "homepage", *options, "--out", out, "--truth-out", truth)
    assert simulated.exit_code == 0, simulated.output
    metric = read_summary(out).metric
    assert metric == load_definitions(definitions)["homepage"]
    assert metric.params.mechanism.prob_f is None
    decoded = hubbub("decode", out, "--candidates", truth, "--out", estimates)
    assert decoded.exit_code == 0, decoded.output
    true = {row["value"]: float(row["share"]) for row in read_csv(truth)}
    for row in read_csv(estimates):
        assert abs(float(row["share"]) - true[row["candidate"]]) < 6 * float(row["std_error"]), row


def test_decode_prints_the_table_to_stdout_and_all_rows_on_request(summary: Path, candidates: Path) -> None:
    short, long = (hubbub("decode", summary, "--candidates", candidates, *all_) for all_ in ([], ["--all"]))
    assert short.stdout.startswith("homepage: 100,000 reports; epsilon 3.154 per report, 7.784 per value")
    assert "v30" in long.stdout
    assert len(long.stdout.splitlines()) > len(short.stdout.splitlines())


def test_decode_for_the_population_has_wider_intervals(summary: Path, candidates: Path) -> None:
    decoded = {
        target: json.loads(hubbub("decode", summary, "--candidates", candidates, "--target", target, "--json").stdout)
        for target in ("reporters", "population")
    }
    first = {target: result["estimates"][0] for target, result in decoded.items()}
    assert decoded["population"]["target"] == "population"
    assert first["population"]["share"] == first["reporters"]["share"]
    assert first["population"]["std_error"] > first["reporters"]["std_error"]


def test_decode_by_lasso_leaves_candidates_out(summary: Path, tmp_path: Path) -> None:
    """16 cohorts of 16 bits: all of 203 candidates are estimated, and a lasso keeps some."""
    many = tmp_path / "many.txt"
    many.write_text("\n".join(["v1", "v2", "v3", *(f"absent{i}" for i in range(200))]), encoding="utf-8")
    command = ("decode", summary, "--candidates", many, "--json")
    everything, some = (json.loads(hubbub(*command, *more).stdout) for more in ((), ("--method", "lasso")))
    assert everything["num_kept"] is None
    assert some["num_kept"] < 203
    assert hubbub(*command, "--method", "ridge").exit_code == 2


def test_decode_reads_candidates_from_stdin(summary: Path, candidates: Path) -> None:
    command = ["decode", str(summary), "--json", "--candidates"]
    piped = CliRunner().invoke(main, [*command, "-"], input=candidates.read_bytes())
    assert json.loads(piped.stdout) == json.loads(hubbub(*command, candidates).stdout)


def test_decode_adds_up_summaries(summary: Path, candidates: Path) -> None:
    other = summary.with_name("other.parquet")
    write_summary(read_summary(summary), other)
    result_json = json.loads(hubbub("decode", summary, other, "--candidates", candidates, "--json").stdout)
    assert result_json["num_reports"] == 200_000


def test_decode_warns_about_inputs_with_the_same_reports(summary: Path, candidates: Path) -> None:
    def warnings(*paths: Path) -> list[str]:
        found = json.loads(hubbub("decode", *paths, "--candidates", candidates, "--json").stdout)["warnings"]
        return [f"{warning['text']} {warning['remedy']}" for warning in found if warning["kind"] == "repeated_inputs"]

    counts = read_summary(summary)
    assert isinstance(counts, BitCounts)

    def of(name: str, period: str, less: int = 0) -> Path:
        """The same counts, with up to `less` fewer reports per cohort."""
        path = summary.with_name(name)
        fewer = np.maximum(counts.reports - less, counts.ones.max(axis=1))
        write_summary(BitCounts(counts.metric, fewer, counts.ones, [period]), path)
        return path

    monday, again, tuesday = (
        of("a.parquet", "2026-01-05"),
        of("b.parquet", "2026-01-05", 9),
        of("c.parquet", "2026-01-06"),
    )
    assert warnings(summary) == warnings(monday, tuesday) == []
    assert warnings(summary, summary) == [
        f"{summary} and {summary} hold the same counts, and both were added. Every report counts twice, so intervals are too narrow. Name each file once."
    ]
    assert warnings(monday, tuesday, again) == [
        f"{monday} and {again} both hold reports of the period 2026-01-05. Reports that are in both files count twice. Use one file for each period."
    ]


def test_decode_adds_up_bit_and_pattern_counts(definitions: Path, summary: Path, candidates: Path) -> None:
    patterns = summary.with_name("patterns.parquet")
    options = ("--reports", 500, "--distribution", "exp", "--content", "patterns")
    hubbub("simulate", definitions, "homepage", *options, "--out", patterns)
    assert isinstance(read_summary(patterns), PatternCounts)
    result_json = json.loads(hubbub("decode", summary, patterns, "--candidates", candidates, "--json").stdout)
    assert result_json["num_reports"] == 100_500


def test_simulate_is_reproducible_only_with_a_seed(definitions: Path, tmp_path: Path) -> None:
    def simulated(*seed: object) -> BitCounts:
        out = tmp_path / "s.parquet"
        hubbub("simulate", definitions, "os", "--reports", 1000, "--distribution", "uniform", "--out", out, *seed)
        counts = read_summary(out)
        assert isinstance(counts, BitCounts)
        return counts

    assert simulated("--seed", 7) == simulated("--seed", 7)
    assert simulated() != simulated()


def test_simulate_uses_a_population_file_in_full_or_as_a_sample(definitions: Path, tmp_path: Path) -> None:
    population, out = tmp_path / "p.csv", tmp_path / "s.parquet"
    population.write_text("value,count\nlinux,30\nmacos,10\n")
    for more, expected in (([], 40), (["--reports", 500], 500)):
        result = hubbub("simulate", definitions, "os", "--population", population, "--out", out, "--json", *more)
        assert json.loads(result.stdout)["num_reports"] == expected


def test_simulate_names_the_values_that_become_another(tmp_path: Path) -> None:
    definitions, population, out = tmp_path / "m.toml", tmp_path / "p.csv", tmp_path / "s.parquet"
    definitions.write_text(
        '[[metric]]\nname = "os"\nkind = "categorical"\ndescription = "os"\nowner = "a"\nexpires = 2099-01-01\n'
        'categories = ["linux", "rest"]\nother = "rest"\nprob_p = 0\nprob_q = 1\nprob_f = 0.5\n'
    )
    population.write_text("value,count\nlinux,30\nplan9,10\nbeos,1\n,5\n")
    simulate = ("simulate", definitions, "os", "--population", population, "--out", out)
    assert "11 clients with a value that is not listed (plan9, beos)" in " ".join(hubbub(*simulate).stderr.split())
    population.write_text("value,count\nlinux,30\nrest,10\n,5\n")
    assert "not listed" not in hubbub(*simulate).stderr


@pytest.mark.parametrize("day", ["2026-11-31", "2026-11", "today", "20261130T00"])
def test_day_that_is_none_is_named(day: str, definitions: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "s.parquet")
    uniform = ("--reports", 10, "--distribution", "uniform")
    for command in (("simulate", definitions, "os", *uniform), ("pull", "http://127.0.0.1:9", "os")):
        result = hubbub(*command, *out, "--period", day)
        assert result.exit_code == 2
        assert f"{day!r} is no day: write a day of the calendar as YYYY-MM-DD" in result.stderr


@pytest.mark.parametrize("content", ["bits", "patterns", "reports"])
def test_simulated_directory_is_a_mirror(content: str, tmp_path: Path) -> None:
    """A file for each period and value, with the names of `pull --all`, and of counts their sum, which `publish` needs."""
    grouped, directory = tmp_path / "grouped.toml", tmp_path / "new"
    grouped.write_text(
        '[[metric]]\nname = "os"\nkind = "boolean"\nperiod = "week"\ndescription = "Whether it is Linux."\nowner = "o@example.org"\n'
        'expires = 2099-01-01\nprob_p = 0.25\nprob_q = 0.75\nprob_f = 0\ngroup = { name = "arm", values = ["a", "b", "other"] }\n'
    )
    drawn = [
        "--reports",
        50,
        "--distribution",
        "uniform",
        "--content",
        content,
        "--periods",
        2,
        "--period",
        "2026-11-29",
    ]
    for value in ("a", "b"):
        hubbub("simulate", grouped, "os", *drawn, "--group", value, "--out-dir", directory)
    digest = load_definitions(grouped)["os"].digest[:8]
    sums = [] if content == "reports" else [""]
    stems = {f"os@{digest}-{day}{end}" for day in ("2026-11-23", "2026-11-30") for end in ("-a", "-b", *sums)}
    assert {path.stem for path in directory.iterdir()} == stems
    for path in directory.iterdir():
        read = read_collected(path)
        assert read.metric.group is not None
        is_sum = not path.stem.endswith(("-a", "-b"))
        assert (read.num_reports, read.metric.group.value is None, len(read.periods)) == (50 + 50 * is_sum, is_sum, 1)
        assert content == "reports" or read.closed
    for wrong in ([], ["--out", tmp_path / "s.parquet", "--out-dir", directory]):
        assert "Pass --out FILE, or --out-dir DIRECTORY" in hubbub("simulate", grouped, "os", *drawn, *wrong).output


@pytest.mark.parametrize("content", ["bits", "reports"])
def test_simulated_group_and_period_are_those_of_a_pulled_summary(content: str, tmp_path: Path) -> None:
    """So a night of `decode-all` and `publish` can be tried without an aggregator."""
    grouped, out = tmp_path / "grouped.toml", tmp_path / "s.parquet"
    grouped.write_text(
        '[[metric]]\nname = "os"\nkind = "boolean"\nperiod = "week"\ndescription = "Whether it is Linux."\nowner = "o@example.org"\n'
        'expires = 2099-01-01\nprob_p = 0.25\nprob_q = 0.75\nprob_f = 0\ngroup = { name = "arm", values = ["a", "b", "other"] }\n'
    )
    drawn = ["--reports", 50, "--distribution", "uniform", "--content", content, "--out", out]
    for more, periods, value in (
        (["--period", "2026-11-29", "--group", "b"], ("2026-11-23",), "b"),
        (["--period", "2026-11-23", "--periods", 2], ("2026-11-23", "2026-11-30"), None),
    ):
        hubbub("simulate", grouped, "os", *drawn, *more)
        read = read_collected(out)
        assert read.metric.group is not None
        assert (tuple(read.periods), read.metric.group.value) == (periods, value)
    for wrong in (["--group", "c"], ["--period", "29.11.2026"], ["--period", "9999-12-31", "--periods", "2"]):
        result = hubbub("simulate", grouped, "os", *drawn, *wrong)
        assert isinstance(result.exception, SystemExit), "a traceback"
        assert result.exit_code
        assert wrong[1] in result.output


def test_pull_writes_the_downloaded_summary(
    aggregator: object, definitions: Path, summary: Path, tmp_path: Path
) -> None:
    aggregator.body = summary.read_bytes()  # type: ignore[attr-defined]  # the fixture's class is in conftest
    url = aggregator.url  # type: ignore[attr-defined]
    result = hubbub("pull", url, "homepage", "--out", tmp_path / "pulled.parquet", "--json")
    assert json.loads(result.stdout)["num_reports"] == 100_000
    assert read_summary(tmp_path / "pulled.parquet") == read_summary(summary)


def test_pull_names_the_reports_of_other_versions(
    aggregator: object, definitions: Path, summary: Path, tmp_path: Path
) -> None:
    """Nothing of them is in the file; those of other metrics, and of this version, are not named."""
    current = load_definitions(definitions)["homepage"].digest
    rows = [("homepage", current, 9), ("homepage", "a" * 64, 40), ("homepage", "a" * 64, 20), ("other", "b" * 64, 7)]
    periods = [
        {"metric": metric, "digest": digest, "period": f"2026-03-0{day}", "num_reports": number, "closed": True}
        for day, (metric, digest, number) in enumerate(rows, 1)
    ]
    aggregator.body = summary.read_bytes()  # type: ignore[attr-defined]  # the fixture's class is in conftest
    aggregator.periods = json.dumps({"periods": periods}).encode()  # type: ignore[attr-defined]
    url = aggregator.url  # type: ignore[attr-defined]
    pull = ("pull", url, "homepage", "--out", tmp_path / "pulled.parquet")
    told = " ".join(hubbub(*pull).stderr.split())
    assert f"60 reports of version aaaaaaaa are not in it: pass --digest {'a' * 64}, or --all" in told
    assert told.count("of version") == 1
    assert "of version" not in hubbub(*pull, "--digest", current).stderr


def test_decode_of_a_categorical_metric_needs_no_candidates(definitions: Path, tmp_path: Path) -> None:
    hubbub(
        "simulate", definitions, "os", "--reports", 9000, "--distribution", "uniform", "--out", tmp_path / "s.parquet"
    )
    result_json = json.loads(hubbub("decode", tmp_path / "s.parquet", "--json").stdout)
    assert {e["candidate"] for e in result_json["estimates"]} == {"linux", "macos", "windows"}


def test_decode_errors_are_messages_with_exit_code_1(
    summary: Path, candidates: Path, definitions: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    assert "empty.txt has no candidate" in error_of("decode", summary, "--candidates", empty)
    assert "is a binary file" in error_of("decode", summary, "--candidates", _binary(tmp_path))
    assert "Pass candidates (--candidates FILE)" in error_of("decode", summary)
    assert "not a Parquet file" in error_of("decode", definitions, "--candidates", candidates)
    assert "No such file" in error_of("decode", tmp_path / "none.parquet", "--candidates", candidates)
    assert "must end in .csv" in error_of("decode", summary, "--candidates", candidates, "--out", tmp_path / "o.txt")
    truncated = tmp_path / "half.parquet"
    truncated.write_bytes(summary.read_bytes()[:-100])
    assert "half.parquet: this is not a Parquet file, or it is damaged" in error_of(
        "decode", truncated, "--candidates", candidates
    )


def test_decode_keeps_its_inputs(summary: Path, tmp_path: Path) -> None:
    table = tmp_path / "names.csv"
    table.write_text("candidate\nv1\n")
    link = tmp_path / "link.csv"
    link.symlink_to(table)
    before = summary.read_bytes()
    for file in (summary, table, link):
        message = error_of("decode", summary, "--candidates", table, "--out", file)
        assert f"{file} is an input of this command, and would be lost. Name another file." in message
    assert "is an input" in error_of("compare", summary, summary, "--candidates", table, "--out", table)
    assert (summary.read_bytes(), table.read_text()) == (before, "candidate\nv1\n")


def test_names_of_written_files_are_printed_on_one_line_as_they_are(
    summary: Path, candidates: Path, definitions: Path, tmp_path: Path
) -> None:
    """rich would take [bold] and [/b] for markup, and break a line after 80 characters."""
    folder = tmp_path / ("long" * 20) / "a["
    folder.mkdir(parents=True)
    table, plot, simulated = folder / "b].csv", folder / "[bold].svg", folder / "b].parquet"
    decoded = hubbub("decode", summary, "--candidates", candidates, "--out", table, "--plot", plot)
    assert f"\nwrote {table}\nwrote {plot}\n" in decoded.stderr
    drawn = hubbub("simulate", definitions, "os", "--reports", 10, "--distribution", "uniform", "--out", simulated)
    assert f"wrote {simulated}: 10 reports of os\n" in drawn.stderr


def _binary(folder: Path) -> Path:
    path = folder / "binary.txt"
    path.write_bytes(b"a\0b")
    return path


def test_decode_rejects_summaries_of_different_definitions(summary: Path, candidates: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.parquet"
    params = Params(num_bits=16, num_hashes=1, num_cohorts=16, prob_p=0.25, prob_q=0.75, prob_f=0.25)
    write_summary(simulate(Metric.string("homepage", params), {"a": 10}, np.random.default_rng(0)), other)
    assert "different definitions cannot be added" in error_of("decode", summary, other, "--candidates", candidates)


def test_simulate_errors_are_messages_with_exit_code_1(definitions: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "s.parquet")
    uniform = ("--distribution", "uniform")
    assert "has no metric 'hompage'. Did you mean 'homepage'? Its metrics are homepage, os" in error_of(
        "simulate", definitions, "hompage", "--reports", 10, *uniform, *out
    )
    assert "Pass the number of reports with --reports" in error_of("simulate", definitions, "os", *uniform, *out)
    assert "No such file" in error_of("simulate", tmp_path / "none.toml", "os", "--reports", 10, *uniform, *out)
    assert "'v1' is not a value of this categorical metric (linux" in error_of(
        "simulate", definitions, "os", "--population", _population(tmp_path), *out
    )
    assert "cannot be written" in error_of(
        "simulate", definitions, "os", "--reports", 10, *uniform, "--out", tmp_path / "no" / "s.parquet"
    )
    assert not (tmp_path / "s.parquet").exists()
    assert "s.csv must end in .parquet" in error_of(
        "simulate", definitions, "os", "--reports", 10, *uniform, "--out", tmp_path / "s.csv"
    )
    assert "metrics.toml must end in .csv" in error_of(
        "simulate", definitions, "os", "--reports", 10, *uniform, *out, "--truth-out", definitions
    )
    assert "metrics.toml must end in .parquet" in error_of(
        "simulate", definitions, "os", "--reports", 10, *uniform, "--out", definitions
    )


def _population(folder: Path) -> Path:
    path = folder / "population.csv"
    path.write_text("value,count\nv1,3\n")
    return path


def test_failed_pull_writes_no_file(aggregator: object, tmp_path: Path) -> None:
    aggregator.body = b"no"  # type: ignore[attr-defined]
    url = aggregator.url  # type: ignore[attr-defined]
    assert "sent a response that is not a summary" in error_of("pull", url, "homepage", "--out", tmp_path / "s.parquet")
    assert not (tmp_path / "s.parquet").exists()
    assert "s.json must end in .parquet" in error_of("pull", url, "homepage", "--out", tmp_path / "s.json")


@pytest.mark.parametrize(
    "arguments",
    [
        ("decode",),
        ("simulate", "metrics.toml", "os", "--out", "s.parquet"),
        ("simulate", "metrics.toml", "os", "--out", "s.parquet", "--distribution", "exp", "--population", "p.csv"),
        ("simulate", "metrics.toml", "os", "--out", "s.parquet", "--population", "p.csv", "--values", "3"),
        ("pull", "http://127.0.0.1:1", "os"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    assert hubbub(*arguments).exit_code == 2


@pytest.mark.parametrize("out", ["no/e.csv", "folder.csv"])
def test_decode_checks_the_output_path_before_decoding(
    out: str, summary: Path, candidates: Path, tmp_path: Path
) -> None:
    (tmp_path / "folder.csv").mkdir()
    result = hubbub("decode", summary, "--candidates", candidates, "--out", tmp_path / out)
    assert result.exit_code == 1
    assert ("is a directory" if out == "folder.csv" else "there is no directory") in result.stderr
    assert "decoded" not in result.stderr


def test_decode_rejects_an_empty_summary(candidates: Path, tmp_path: Path) -> None:
    params = Params(num_bits=16, num_hashes=1, num_cohorts=16, prob_p=0.25, prob_q=0.75, prob_f=0.25)
    (tmp_path / "s.parquet").write_bytes(summary_to_bytes(BitCounts.empty(Metric.string("homepage", params))))
    assert "holds no report" in error_of("decode", tmp_path / "s.parquet", "--candidates", candidates)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bits", "patterns", "reports"])
def test_decode_adds_up_reports_and_counts_and_prints_the_form(
    kind: str, definitions: Path, candidates: Path, tmp_path: Path
) -> None:
    """Reports and counts add up to counts."""
    paths = [tmp_path / "reports.parquet", tmp_path / f"{kind}.parquet"]
    for seed, (content, path) in enumerate(zip(("reports", kind), paths, strict=True)):
        options = ("--reports", 5_000, *ZIPF, "--seed", seed, "--content", content)
        made = hubbub("simulate", definitions, "homepage", *options, "--out", path)
        assert made.exit_code == 0, made.output
    result = hubbub("decode", *paths, "--candidates", candidates, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["num_reports"] == 10_000
    forms = {
        "bits": "bit counts of 10,000 reports",
        "patterns": "pattern counts of 10,000 reports",
        "reports": "10,000 individual reports",
    }
    assert f"decoded {forms[kind]}" in result.stderr


def test_decode_warns_when_reports_are_decoded_from_their_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the maximum number of candidates there is no warning; with one more it is in the JSON and in the table."""
    (tmp_path / "metrics.toml").write_text(DEFINITIONS.replace("num_bits = 16", "num_bits = 32"))
    monkeypatch.setattr(mixed_effects, "MAX_CANDIDATES", 20)
    options = ("--reports", 1_000, *ZIPF, "--seed", 1, "--content", "reports")
    made = hubbub("simulate", tmp_path / "metrics.toml", "homepage", *options, "--out", tmp_path / "reports.parquet")
    assert made.exit_code == 0, made.output
    for number in (20, 21):
        (tmp_path / "names.txt").write_text("".join(f"v{i}\n" for i in range(number)))
        arguments = ("decode", tmp_path / "reports.parquet", "--candidates", tmp_path / "names.txt")
        warnings = json.loads(hubbub(*arguments, "--json").stdout)["warnings"]
        assert any(warning["kind"] == "unused_reports" for warning in warnings) == (number > 20)
    assert "Only the bit counts of these reports were used" in " ".join(hubbub(*arguments).stdout.split())


def test_simulate_writes_and_reads_a_population_with_reports_without_a_value(definitions: Path, tmp_path: Path) -> None:
    truth = tmp_path / "truth.csv"
    out = ("--out", tmp_path / "s.parquet", "--json")
    drawn = ("--reports", 300, "--distribution", "uniform", "--no-value", 100)
    hubbub("simulate", definitions, "os", *drawn, "--truth-out", truth, *out)
    assert truth.read_text().splitlines()[-1] == ",100,0.25"
    again = tmp_path / "again.csv"
    result = hubbub("simulate", definitions, "os", "--population", truth, "--truth-out", again, *out)
    assert json.loads(result.stdout)["num_reports"] == 400
    assert again.read_bytes() == truth.read_bytes()
    result = hubbub(
        "simulate", definitions, "os", "--population", truth, "--reports", 10_000, "--truth-out", again, *out
    )
    assert json.loads(result.stdout)["num_reports"] == 10_000
    without = int(again.read_text().splitlines()[-1].split(",")[1])
    assert abs(without - 2500) < 6 * 44  # six standard deviations of Binomial(10,000, 1/4)


def test_decode_compares_more_candidates_with_unlisted_strings(tmp_path: Path) -> None:
    """A string of 30 % is not a candidate: its row is printed, and the word that matches it, or that none does."""
    params = Params(num_bits=16, num_hashes=1, num_cohorts=16, prob_p=0.25, prob_q=0.75, prob_f=0)
    population = {"the": 300_000, "a": 50_000, "b": 20_000}
    counts = simulate(Metric.string("m", params), population, np.random.default_rng(1), no_value=600_000)
    summary, candidates, words, others = (tmp_path / name for name in ("m.parquet", "c.txt", "w.txt", "o.txt"))
    write_summary(counts, summary)
    candidates.write_text("a\nb\n")
    words.write_text("of\nthe\n")
    others.write_text("of\nand\n")
    found = hubbub("decode", summary, "--candidates", candidates, "--more-candidates", words)
    assert found.exit_code == 0
    assert "(unlisted)" in found.stdout
    assert "'the' of 2 words." in found.stdout
    assert (
        "none of 2 words matches."
        in hubbub("decode", summary, "--candidates", candidates, "--more-candidates", others).stdout
    )
    as_json = json.loads(
        hubbub("decode", summary, "--candidates", candidates, "--more-candidates", words, "--json").stdout
    )
    assert as_json["unlisted_strings"][0]["matches"] == ["the"]
    assert "cannot be read" in error_of(
        "decode", summary, "--candidates", candidates, "--more-candidates", tmp_path / "x"
    )


def test_decode_allows_for_forged_reports(summary: Path, candidates: Path) -> None:
    """A share is a percentage or a number; JSON, the table and the lines below it say how much was allowed for."""
    percent, number = (
        json.loads(hubbub("decode", summary, "--candidates", candidates, "--json", "--fabricated", share).stdout)
        for share in (".5%", "0.005")
    )
    plain = json.loads(hubbub("decode", summary, "--candidates", candidates, "--json").stdout)
    assert percent == number
    assert percent["fabricated"] == 0.005
    for wide, narrow in zip(percent["estimates"], plain["estimates"], strict=True):
        assert wide["low"] < narrow["low"] < narrow["high"] < wide["high"]
    text = hubbub("decode", summary, "--candidates", candidates, "--fabricated", ".5%").stdout
    assert "hold for the other reports if up to 0.5% of the 100,000 are forged" in " ".join(text.split())


@pytest.mark.parametrize("share", ["1", "100%", "-1%", "nan", "many", "", "1%%"])
def test_decode_refuses_a_share_that_is_none(share: str, summary: Path) -> None:
    result = hubbub("decode", summary, "--fabricated", share)
    assert result.exit_code == 2
    assert f"{share!r} is no share in [0, 1). Pass .1%, for example." in result.stderr


def test_decode_each_takes_no_forged_reports(summary: Path, candidates: Path) -> None:
    result = hubbub("decode", summary, "--candidates", candidates, "--by", "period", "--fabricated", "1%")
    assert result.exit_code == 2
    assert "--fabricated" in result.stderr
