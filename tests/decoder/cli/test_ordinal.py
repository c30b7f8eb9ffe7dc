"""An ordinal metric through the commands: plan, check, show, encode, simulate, decode, audit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from hubbub import Buckets, Estimand, KindWord, Metric, load_definitions
from hubbub.mechanisms.mechanism import Mechanism
from hubbub.mechanisms.subset import SubsetSelection
from hubbub.mechanisms.unary import UnaryResponse
from hubbub.metrics.kinds import ordinal_kind
from hubbub.privacy import epsilon, epsilon_permanent
from hubbub.summary import BitCounts
from hubbub_decoder import decode, describe, plan
from hubbub_decoder.planning.wishes import Wishes
from hubbub_decoder.simulation import simulate
from tests.decoder.cli.test_cli import error_of, hubbub
from tests.support.every_kind import buckets_of

DEFINITION = """
[[metric]]
name = "delay"
kind = "ordinal"
edges = [0, 10, 30, 60, 180]
unit = "min"
several = "max"
prob_p = 0.2
prob_q = 0.5
prob_f = 0
description = "Longest delay of a day."
owner = "you@example.org"
expires = 2099-01-01
"""


@pytest.fixture
def definitions(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.toml"
    path.write_text(DEFINITION)
    return path


@pytest.fixture
def summary(definitions: Path, tmp_path: Path) -> Path:
    population = tmp_path / "population.csv"
    population.write_text("value,count\n5,40000\n10 to 30,30000\n45.5,20000\n1e9,10000\n,5000\n")
    path = tmp_path / "delay.parquet"
    done = hubbub("simulate", definitions, "delay", "--population", population, "--seed", 1, "--out", path)
    assert done.exit_code == 0, done.output
    return path


def test_decode_shows_buckets_in_order_mean_and_quantiles(summary: Path) -> None:
    output = hubbub("decode", summary).stdout
    positions = [output.index(label) for label in ("below 10", "10 to 30", "30 to 60", "60 or more")]
    assert positions == sorted(positions)
    assert re.search(
        r"^Mean: [\d.]+ \.\. [\d.]+ min \(95% interval\), wherever\s+the\s+numbers\s+are\s+in\s+their\s+buckets;",
        output,
        re.MULTILINE,
    )
    assert re.search(r"^ 50% are below \d+ \.\. \d+ min \([\d.]+\)$", output, re.MULTILINE)
    assert "(noise alone: " in output
    assert "Total shares: buckets 9" in output


def test_decode_writes_numbers_as_json_and_plots_them(summary: Path, tmp_path: Path) -> None:
    plot, out = tmp_path / "delay.svg", tmp_path / "delay.json"
    document = json.loads(hubbub("decode", summary, "--json", "--plot", plot, "--out", out).stdout)
    numbers = document["numbers"]
    assert numbers == json.loads(out.read_text())["numbers"]
    assert [point["edge"] for point in numbers["distribution"]] == [10, 30, 60]
    assert [bucket["label"] for bucket in numbers["buckets"]] == ["below 10", "10 to 30", "30 to 60", "60 or more"]
    assert numbers["mean"]["low"] < numbers["mean"]["value"] < numbers["mean"]["high"]
    assert abs(numbers["mean"]["value"] - 29) < 6 * numbers["mean"]["std_error"]
    assert {quantile["probability"] for quantile in numbers["quantiles"]} >= {0.05, 0.5, 0.95}
    assert plot.read_text().lstrip().startswith("<?xml")
    assert document["metric"]["buckets"]["unit"] == "min"


def test_decode_of_too_few_reports_says_that_numbers_are_not_determined(definitions: Path, tmp_path: Path) -> None:
    path = tmp_path / "few.parquet"
    population = tmp_path / "population.csv"
    population.write_text("value,count\n,20\n")
    hubbub("simulate", definitions, "delay", "--population", population, "--seed", 3, "--out", path)
    assert "Mean and quantiles are not determined" in hubbub("decode", path).stdout
    assert json.loads(hubbub("decode", path, "--json").stdout)["numbers"]["mean"]["value"] is None


def test_plan_writes_a_definition_with_the_edges(tmp_path: Path) -> None:
    done = hubbub(
        "plan", "--edges", "0,1,5,10.5", "--epsilon", 2, "--reports", 10_000, "--share", 0.1, "--name", "clicks"
    )
    assert done.exit_code == 0, done.output
    path = tmp_path / "planned.toml"
    path.write_text(done.stdout)
    metric = load_definitions(path)["clicks"]
    assert buckets_of(metric).edges == (0, 1, 5, 10.5)
    assert hubbub("plan", path, "clicks").exit_code == 0


def test_plan_rejects_edges_that_are_no_numbers() -> None:
    result = hubbub("plan", "--edges", "0,ten", "--epsilon", 2, "--reports", 100)
    assert result.exit_code == 2
    assert "--edges must be numbers separated by commas, got '0,ten'" in result.stderr
    assert "edges must increase, got 5 before 3" in error_of(
        "plan", "--edges", "5,3,9", "--epsilon", 2, "--reports", 100
    )
    assert "an ordinal metric has 2 to 1024 buckets" in error_of(
        *("plan", "--kind", "ordinal", "--num-candidates", 1, "--epsilon", 2, "--reports", 100)
    )


def test_metrics_commands_show_buckets(definitions: Path) -> None:
    assert hubbub("metrics", "check", definitions).exit_code == 0
    (about,) = json.loads(hubbub("metrics", "show", definitions, "delay", "--json").stdout)
    assert about["buckets"]["edges"] == [0, 10, 30, 60, 180]


def test_encode_takes_numbers(definitions: Path) -> None:
    assert len(json.loads(hubbub("encode", definitions, "delay", "3.5", "1e9", "--json").stdout)) == 2
    assert "delay: a value of an ordinal metric must be a number such as 12.5" in error_of(
        "encode", definitions, "delay", "x"
    )
    assert "got NaN or an infinity" in error_of("encode", definitions, "delay", "nan")


def test_simulate_rejects_what_is_no_number_and_no_bucket(definitions: Path, tmp_path: Path) -> None:
    population = tmp_path / "population.csv"
    population.write_text("value,count\nlate,5\n")
    message = error_of("simulate", definitions, "delay", "--population", population, "--out", tmp_path / "x.parquet")
    assert (
        "delay: 'late' is neither a number nor a bucket of this ordinal metric (below 10, 10 to 30, 30 to 60" in message
    )


def test_simulate_draws_a_named_distribution_over_the_buckets(definitions: Path, tmp_path: Path) -> None:
    truth = tmp_path / "truth.csv"
    done = hubbub(
        *("simulate", definitions, "delay", "--reports", 1000, "--distribution", "gauss", "--seed", 1),
        *("--content", "reports", "--out", tmp_path / "x.parquet", "--truth-out", truth),
    )
    assert done.exit_code == 0, done.output
    assert "10 to 30," in truth.read_text()
    assert hubbub("decode", tmp_path / "x.parquet").exit_code == 0


def test_audit_compares_buckets(definitions: Path) -> None:
    result = hubbub("audit", definitions, "delay", "--trials", 20_000, "--confidence", 1 - 1e-7, "--json")
    assert result.exit_code == 0, result.output
    (audited,) = json.loads(result.stdout)
    assert audited["metric"] == "delay"


@pytest.mark.parametrize(
    "mechanism",
    [
        SubsetSelection(num_values=7, num_ones=1, prob_q=0.5),
        SubsetSelection(num_values=7, num_ones=2, prob_q=0.6, permanent_q=0.7),
        UnaryResponse(prob_p=0.2, prob_q=0.7, prob_f=0.5),
    ],
)
def test_plan_states_the_standard_errors_that_a_decoding_has(mechanism: Mechanism) -> None:
    """Against the decoding of the expected counts of equal shares: the same to 1 %."""
    metric = Metric("delay", ordinal_kind(Buckets((0, 1, 2, 4, 8, 16, 32)), mechanism))
    (note,) = describe(metric, num_reports=120_000).accuracy.notes()
    of_mean, of_distribution = map(float, re.findall(r"is (\S+) and that .* up to (\S+) %", note)[0])
    ones = round(20_000 * mechanism.q_star + 100_000 * mechanism.p_star)
    without = [sum_of_ones - 6 * ones] if (sum_of_ones := 120_000 * getattr(mechanism, "num_ones", 0)) else []
    numbers = decode(BitCounts(metric, [120_000], [[ones] * 6 + without])).numbers
    assert numbers is not None
    assert numbers.mean.std_error == pytest.approx(of_mean, rel=0.01)
    assert 100 * max(point.std_error for point in numbers.distribution) == pytest.approx(of_distribution, rel=0.01)


def planned_mean(tmp_path: Path, *more: object) -> Path:
    path = tmp_path / "planned.toml"
    done = hubbub(
        *("plan", "--edges", "0,240", "--estimate", "mean", "--epsilon", 1, "--reports", 100_000, "--name", "use"),
        *("--description", "Minutes of use", "--owner", "you@example.org", *more),
    )
    assert done.exit_code == 0, done.output
    path.write_text(done.stdout)
    return path


def test_plan_of_a_mean_keeps_the_epsilons_and_states_the_error(tmp_path: Path, unseen_seed: int) -> None:
    """The stated standard error is that of a decoding of evenly spread numbers, which is the square root of .9207 + 1/12 by N."""
    path = planned_mean(tmp_path, "--longitudinal", 4, "--values-per-client", 2)
    metric = load_definitions(path)["use"]
    assert buckets_of(metric) == Buckets((0, 240), default=0, estimate=Estimand.MEAN)
    assert epsilon(metric) <= 1
    assert epsilon_permanent(metric) <= 2
    wishes = Wishes(kind=KindWord.ORDINAL, estimate=Estimand.MEAN, epsilon=1, num_reports=100_000)
    (note,) = [note for note in plan(wishes, edges=(0, 240)).notes if "standard error of their mean" in note]
    found = re.search(r"their mean is ([\d.]+)\. ", note)
    assert found is not None
    assert float(found[1]) == pytest.approx(240 * ((0.9207 + 1 / 12) / 100_000) ** 0.5, rel=0.01)
    population = {repr(number): 1000 for number in range(1, 240, 2)}
    counts = simulate(plan(wishes, edges=(0, 240)).metric, population, np.random.default_rng(unseen_seed))
    numbers = decode(counts).numbers
    assert numbers is not None
    assert numbers.mean.std_error * (120_000 / 100_000) ** 0.5 == pytest.approx(float(found[1]), rel=0.02)
    assert hubbub("plan", path, "use").exit_code == 0


def test_mean_through_the_commands(tmp_path: Path) -> None:
    path, population, out = planned_mean(tmp_path), tmp_path / "population.csv", tmp_path / "use.parquet"
    population.write_text("value,count\n30,4000\n200,4000\n,2000\n")
    assert hubbub("metrics", "check", path).exit_code == 0
    done = hubbub(
        "simulate", path, "use", "--population", population, "--seed", 1, "--content", "reports", "--out", out
    )
    assert done.exit_code == 0, done.output
    document = json.loads(hubbub("decode", out, "--json").stdout)
    assert (document["estimates"], document["numbers"]["quantiles"]) == ([], [])
    assert document["no_value"]["share"] == 0
    assert abs(document["numbers"]["mean"]["value"] - 92) < 6 * document["numbers"]["mean"]["std_error"]
    assert "has no plot. Leave out --plot" in hubbub("decode", out, "--plot", tmp_path / "x.svg").stderr
    assert "no shares that could be compared" in error_of("compare", out, out)


def test_plan_rejects_a_mean_without_numbers_or_with_inner_edges() -> None:
    wanted = ("--estimate", "mean", "--epsilon", 2, "--reports", 100)
    assert "--estimate mean needs numbers, and a string metric has none" in error_of("plan", *wanted)
    assert "edges must be 2 numbers with estimate = 'mean', got 3" in error_of("plan", "--edges", "0,1,2", *wanted)
    assert "a metric with estimate = mean has one bit and needs no candidates" in error_of(
        "plan", "--kind", "ordinal", "--num-candidates", 4, *wanted
    )


def test_audit_of_a_mean_confirms_its_claim(tmp_path: Path) -> None:
    result = hubbub("audit", planned_mean(tmp_path), "use", "--trials", 20_000, "--confidence", 1 - 1e-7, "--json")
    assert result.exit_code == 0, result.output
    (audited,) = json.loads(result.stdout)
    assert audited["metric"] == "use"
    assert "value" in str(audited)
