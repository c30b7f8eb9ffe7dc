"""`hubbub watch`: which periods are looked at, what is an alarm, and which alarms are new."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from scipy.stats import binom

from hubbub import Buckets, Metric, Params, UnaryResponse
from hubbub.cli import main
from hubbub.errors import ParameterError, SummaryError
from hubbub.metrics.buckets import Estimand
from hubbub.metrics.kinds import JointKind, MeanKind
from hubbub.metrics.periods import Period, PeriodKind
from hubbub.summary import BitCounts, write_summary
from hubbub_decoder import simulate
from hubbub_decoder.results_store.store import Look
from hubbub_decoder.watch.look import LOOKS_A_YEAR, POWER, Rules, look_at_shares
from hubbub_decoder.watch.watch import MISSING_AFTER, PeriodLook, WatchResult, watch
from tests.support.every_kind import METRICS
from tests.support.every_result import candidates_of, population_of, summary_of
from tests.support.watched_years import days_of, have_alarms, standard_error, steps

NOISE = UnaryResponse(prob_p=0.1, prob_q=0.9, prob_f=0)
THEME = Metric.categorical("theme", ("dark", "light", "auto"), NOISE, period="week")
DARK = Metric.boolean("dark", NOISE, period="week")
PAGE = Metric.string("page", Params(num_bits=32, num_hashes=1, num_cohorts=8, prob_p=0.1, prob_q=0.9, prob_f=0))
CLIENTS = 20_000
WEEKS = days_of(PeriodKind.WEEK, 40)
LONG_AFTER = datetime(2026, 10, 5, tzinfo=UTC)
"""Week 39 ended on this day; week 34 and those before are closed."""


def counts(
    shares: Sequence[float | None], seed: int, clients: int = CLIENTS, *, closed: bool = True
) -> list[BitCounts]:
    """Counts of weeks in which "dark" has these shares, without the weeks of None."""
    rng = np.random.default_rng(seed)
    found = []
    for week, share in zip(WEEKS, shares, strict=False):
        if share is not None:
            dark = round(clients * share)
            other = (clients - dark) // 2
            sample = simulate(THEME, {"dark": dark, "light": other, "auto": other}, rng, periods=[week])
            found.append(
                BitCounts(THEME, sample.bit_counts().reports, sample.bit_counts().ones, sample.periods, closed=closed)
            )
    return found


def run(samples: Sequence[BitCounts], known: dict[str, Look] | None = None, rules: Rules | None = None) -> WatchResult:
    """One run, at a time when no week without a summary is missing."""
    last = datetime.fromisoformat(samples[-1].periods[0]).replace(tzinfo=UTC)
    return watch(THEME, samples, None, rules or Rules(), known or {}, last)


def alarms(look: PeriodLook) -> list[tuple[str, str, str, bool]]:
    return [(alarm.rule, alarm.value, alarm.side, alarm.is_new) for alarm in look.alarms]


def test_level_of_an_interval_divides_the_false_alarms_of_a_year() -> None:
    """(looks a year) (windows) (values and bands) levels add up to the rate."""
    for period, looks in LOOKS_A_YEAR.items():
        for bands in ({}, {"dark": (0.1, 0.2)}):
            rules = Rules(false_alarms=0.04, bands=bands)
            level = 1 - rules.confidence(Metric.boolean("dark", NOISE, period=period), 3)
            assert level * looks * 2 * (3 + len(bands)) == pytest.approx(0.04)
    for period, looks in LOOKS_A_YEAR.items():
        starts = [datetime.fromisoformat(day) for day in days_of(period, 4000 if period is PeriodKind.DAY else 600)]
        by_year = [sum(start.year == year for start in starts) for year in range(2027, 2036)]
        assert max(by_year) <= looks


def test_a_leap_is_an_alarm_once_and_a_return_is_another(unseen_seed: int) -> None:
    """A leap of 20 points is 43 standard errors of a week, .0047; the threshold is 3.8. Noise alone raises no alarm up to 6."""
    result = run(counts([0.3] * 6 + [0.5, 0.5] + [0.3], unseen_seed), rules=Rules(false_alarms=1e-6))
    by_period = {look.period: alarms(look) for look in result.looks}
    assert all(by_period[week] == [] for week in WEEKS[:6])
    assert ("change", "dark", "above", True) in by_period[WEEKS[6]]
    assert ("change", "light", "below", True) in by_period[WEEKS[6]]
    assert ("change", "dark", "above", False) in by_period[WEEKS[7]]
    assert {alarm.period for alarm in result.new_alarms} >= {WEEKS[6]}
    assert not any(
        alarm.period == WEEKS[7] and alarm.side == "above" and alarm.value == "dark" for alarm in result.new_alarms
    )


def test_a_second_run_looks_at_new_periods_alone(unseen_seed: int) -> None:
    """It continues as one run over all periods: the alarms, and since when each is given, are the same."""
    samples = counts([0.3] * 6 + [0.5, 0.5], unseen_seed)
    at_once = run(samples)
    first = run(samples[:7])
    known = {look.period: look.stored() for look in first.looks}
    second = run(samples, known)
    assert [look.period for look in second.looks] == [WEEKS[7]]
    assert [*first.to_dict()["looks"], *second.to_dict()["looks"]] == at_once.to_dict()["looks"]
    assert second.num_known == 7
    known |= {look.period: look.stored() for look in second.looks}
    assert run(samples, known).looks == ()


def test_a_share_outside_its_band_is_an_alarm(unseen_seed: int) -> None:
    """The share of dark is 30%: 43 standard errors from 50%, 21 from 20% and 40%."""
    (sample,) = counts([0.3], unseen_seed)
    for band, found in {(0.5, 1.0): ["below"], (0.0, 0.2): ["above"], (0.2, 0.4): []}.items():
        look = look_at_shares([sample], None, Rules(bands={"dark": band}))
        assert [alarm.side for alarm in look.alarms] == found
        assert [alarm.rule for alarm in look.alarms] == ["band"] * len(found)
        assert [alarm.reference for alarm in look.alarms] == [band[0] if side == "below" else band[1] for side in found]


def test_smaller_changes_than_the_smallest_that_matters_are_no_alarm(unseen_seed: int) -> None:
    """A step of 10 points, 21 standard errors: an alarm unless 15 points matter."""
    samples = counts([0.3] * 4 + [0.4], unseen_seed)
    for smallest, found in {0.0: True, 0.05: True, 0.15: False}.items():
        look = look_at_shares(samples, None, Rules(smallest_change=smallest))
        assert any(alarm.value == "dark" for alarm in look.alarms) is found


def test_fewer_reports_and_missing_periods_are_alarms(unseen_seed: int) -> None:
    """The week with 40% of the reports, and the weeks without a summary once they can be missing: one alarm as long as they last."""
    few = counts([None] * 5 + [0.3], unseen_seed, clients=8_000)
    samples = [*counts([0.3] * 5, unseen_seed), *few]
    result = watch(THEME, samples, None, Rules(), {}, LONG_AFTER)
    found = {look.period: alarms(look) for look in result.looks}
    reports = ("reports", "", "below", True)
    assert [week for week in found if reports in found[week]] == [WEEKS[5]]
    assert found[WEEKS[6]] == [("reports", "", "below", False)]
    assert max(found) == max(week for week in WEEKS if _closes(week) + MISSING_AFTER <= LONG_AFTER)
    assert [look.num_reports for look in result.looks][5:7] == [8_000, 0]
    late = counts([None] * 6 + [0.3], unseen_seed)
    known = {look.period: look.stored() for look in result.looks}
    again = watch(THEME, [*samples, *late], None, Rules(), known, LONG_AFTER)
    assert [look.period for look in again.looks] == [WEEKS[6]]  # it has arrived, and is tested for the first time
    assert alarms(again.looks[0]) == []


def _closes(week: str) -> datetime:
    return datetime.fromisoformat(week).replace(tzinfo=UTC) + timedelta(days=37)


def test_open_periods_wait_unless_open_after_is_passed(unseen_seed: int) -> None:
    samples = [*counts([0.3] * 3, unseen_seed), *counts([None] * 3 + [0.3], unseen_seed, closed=False)]
    end = datetime.fromisoformat(WEEKS[4]).replace(tzinfo=UTC)
    for days, number in {None: 3, 3: 4}.items():
        wait = None if days is None else timedelta(days=days)
        result = watch(THEME, samples, None, Rules(), {}, end + timedelta(days=3), open_after=wait)
        assert (len(result.looks), result.num_waiting) == (number, 4 - number)
    early = watch(THEME, samples, None, Rules(), {}, end + timedelta(days=2), open_after=timedelta(days=3))
    assert (len(early.looks), early.num_waiting) == (3, 1)


def test_detectable_change_is_found_with_the_stated_probability(unseen_seed: int) -> None:
    """5,000 lasting steps of the size that a look prints: .9 are found by the window of three, and some more by the newest week alone."""
    rng = np.random.default_rng(unseen_seed)
    detectable = look_at_shares(steps("0%", "new", 1, rng, size=0.0).samples(0), None, Rules()).detectable
    error = standard_error("0%")
    found = have_alarms(steps("0%", "new", 5000, rng, size=detectable / error), Rules()).sum()
    assert binom.ppf(1e-6, 5000, POWER) <= found


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"false_alarms": 0}, "false_alarms must be a number in"),
        ({"baseline": 0}, "baseline must be an integer"),
        ({"smallest_change": 1}, "smallest_change must be"),
        ({"fewest_reports": -1}, "fewest_reports must be"),
        ({"bands": {"dark": (0.3, 0.2)}}, "the band of 'dark' must be"),
    ],
)
def test_rules_out_of_range_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ParameterError, match=says):
        replace(Rules(), **wrong)


def test_a_band_of_an_unknown_value_and_a_mean_are_refused(unseen_seed: int) -> None:
    samples = counts([0.3], unseen_seed)
    with pytest.raises(ParameterError, match="theme has no value 'drak' for a band"):
        look_at_shares(samples, None, Rules(bands={"drak": (0.1, 0.2)}))
    mean = Metric.ordinal("minutes", Buckets((0, 60), default=0, estimate=Estimand.MEAN), NOISE, period="week")
    with pytest.raises(SummaryError, match="mean"):
        look_at_shares(
            [simulate(mean, {"5": 10}, np.random.default_rng(unseen_seed), periods=WEEKS[:1])], None, Rules()
        )


def test_strings_are_watched(unseen_seed: int) -> None:
    """A string goes from 20% to 60%."""
    rng = np.random.default_rng(unseen_seed)
    samples = [
        simulate(PAGE, {"a": round(CLIENTS * share), "b": round(CLIENTS * (0.8 - share))}, rng, periods=[day])
        for day, share in zip(days_of(PeriodKind.DAY, 5), [0.2] * 4 + [0.6], strict=True)
    ]
    look = look_at_shares(samples, ["a", "b", "c"], Rules())
    assert {(alarm.value, alarm.side) for alarm in look.alarms} == {("a", "above"), ("b", "below")}


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["watch", *arguments])


def test_command_ends_with_3_at_a_new_alarm_and_then_with_0(tmp_path: Path, unseen_seed: int) -> None:
    files = list[str]()
    for number, sample in enumerate(counts([0.3] * 6 + [0.5], unseen_seed)):
        files.append(str(tmp_path / f"{number}.parquet"))
        write_summary(sample, files[-1])
    database = str(tmp_path / "watch.sqlite")
    before = invoke(*files[:6], "--database", database, "--false-alarms", "1e-6")
    assert before.exit_code in (0, 3)  # of weeks without a summary, when the clock is later
    result = invoke(*files, "--database", database, "--band", "dark", "20%", "100%", "--json")
    assert result.exit_code == 3, result.output
    found = json.loads(result.stdout)
    changes = [alarm for look in found["looks"] for alarm in look["alarms"] if alarm["rule"] == "change"]
    assert {(alarm["value"], alarm["side"]) for alarm in changes} >= {("dark", "above")}
    assert found["new_alarms"] >= 1
    again = invoke(*files, "--database", database)
    assert again.exit_code == 0
    assert "no new period" in again.stdout
    refused = invoke(*files, "--database", database, "--band", "dark", "20%", "101%")
    assert refused.exit_code == 2


def is_refused(metric: Metric) -> bool:
    """Whether a metric has no shares of single values."""
    return isinstance(metric.kind, JointKind | MeanKind)


def four_periods(metric: Metric) -> list[str]:
    """First days of successive periods, so late that none is missing after them."""
    longest = timedelta(days=31 if metric.period is PeriodKind.MONTH else 7)
    found = [Period.containing(metric.period, (datetime.now(UTC) - 4 * longest).date())]
    while len(found) < 4:
        found.append(found[-1].next())
    return [str(period) for period in found]


def write_four(metric: Metric, directory: Path, seed: int) -> list[str]:
    """Files of four periods with 200,000 clients each: in the last one, 40 % change from the first value to the second."""
    rng, values, files = np.random.default_rng(seed), list(population_of(metric)), list[str]()
    if len(values) == 1:  # the only other value of a boolean metric, and of one with two categories
        values += [value for value in metric.kind.named_values if value not in values]
    for number, period in enumerate(four_periods(metric)):
        first, second = (40_000, 140_000) if number == 3 else (120_000, 60_000)
        clients: dict[Any, int] = dict(zip(values, (first, second), strict=False))
        counts = simulate(metric, clients, rng, no_value=20_000, periods=[period]).bit_counts()
        files.append(str(directory / f"{number}.parquet"))
        write_summary(BitCounts(metric, counts.reports, counts.ones, counts.periods, closed=True), files[-1])
    return files


@pytest.mark.parametrize("metric", [m for m in METRICS if not is_refused(m)], ids=lambda metric: metric.name)
def test_every_kind_is_watched(metric: Metric, tmp_path: Path, unseen_seed: int) -> None:
    """At a rate of 1e-6, both changes are found, their intervals hold the truth, and no other value is named."""
    files, names = write_four(metric, tmp_path, unseen_seed), candidates_of(metric)
    options = ["--database", str(tmp_path / "watch.sqlite"), "--false-alarms", "1e-6", "--json"]
    if names:
        (tmp_path / "names.txt").write_text("\n".join(names))
        options += ["--candidates", str(tmp_path / "names.txt")]
    result = invoke(*files, *options)
    assert result.exit_code == 3, result.output
    found = {alarm["value"]: alarm for look in json.loads(result.stdout)["looks"] for alarm in look["alarms"]}
    labels = names or metric.kind.labels or metric.kind.named_values
    assert set(found) == {*labels[:2]}
    for value, change in zip(labels, (-0.4, 0.4), strict=False):
        assert found[value]["period"] == four_periods(metric)[3]
        assert found[value]["low"] <= change <= found[value]["high"]


@pytest.mark.parametrize("metric", [*filter(is_refused, METRICS)], ids=lambda metric: metric.name)
def test_kinds_without_shares_are_refused_with_the_next_step(metric: Metric, tmp_path: Path) -> None:
    write_summary(summary_of(metric).bit_counts(), tmp_path / "day.parquet")
    refused = invoke(str(tmp_path / "day.parquet"), "--database", str(tmp_path / "watch.sqlite"))
    assert refused.exit_code == 1
    assert re.match(rf"Error: {metric.name}: .* (Use|Decode) ", refused.stderr), refused.stderr


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_summary_without_period_is_refused(metric: Metric, tmp_path: Path) -> None:
    one_report = np.eye(1, metric.num_cohorts, dtype=np.int64)[0]
    ones = np.zeros((metric.num_cohorts, metric.num_bits), np.int64)
    write_summary(BitCounts(metric, one_report, ones), tmp_path / "undated.parquet")
    refused = invoke(str(tmp_path / "undated.parquet"), "--database", str(tmp_path / "watch.sqlite"))
    assert refused.exit_code == 1
    assert f"{metric.name}: a summary has no period" in refused.stderr
    assert "hubbub pull" in refused.stderr


def test_what_cannot_be_watched_is_refused_before_a_period_is_due(unseen_seed: int) -> None:
    """A run says it on its first night, and not when the first period is closed."""
    samples = counts([0.3], unseen_seed, closed=False)
    with pytest.raises(ParameterError, match="theme has no value 'drak' for a band"):
        run(samples, rules=Rules(bands={"drak": (0.1, 0.2)}))
    mean = Metric.ordinal("minutes", Buckets((0, 60), default=0, estimate=Estimand.MEAN), NOISE, period="week")
    sample = simulate(mean, {"5": 10}, np.random.default_rng(unseen_seed), periods=WEEKS[:1])
    with pytest.raises(SummaryError, match="mean"):
        watch(mean, [sample], None, Rules(), {}, datetime.fromisoformat(WEEKS[0]).replace(tzinfo=UTC))


@pytest.mark.parametrize("options", [[], ["--independent-clients"]], ids=["same clients", "independent clients"])
@pytest.mark.parametrize(
    ("num_periods", "clients", "says"),
    [
        (3, CLIENTS, "is printed at the fourth period with reports"),
        (4, 4, "With so few reports, no change at all is found"),
        (4, CLIENTS, "A lasting change of "),
    ],
)
def test_power_is_always_printed(
    num_periods: int, clients: int, says: str, options: list[str], tmp_path: Path, unseen_seed: int
) -> None:
    """Also if the last week has no summary."""
    files = list[str]()
    for number, sample in enumerate(counts([0.3] * num_periods, unseen_seed, clients)):
        files.append(str(tmp_path / f"{number}.parquet"))
        write_summary(sample, files[-1])
    result = invoke(*files, "--database", str(tmp_path / "watch.sqlite"), "--open-after", "0", *options)
    assert says in result.stdout, result.output
