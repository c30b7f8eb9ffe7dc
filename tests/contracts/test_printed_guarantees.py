"""Every surface prints the figures, the conditions and the observer of the same guarantees, and what holds whatever is recorded first."""

from __future__ import annotations

import io
import itertools
import json
import math
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import date
from html import unescape
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from hubbub import Client, Definitions, Metric, Policy, UnaryResponse, consent_notice
from hubbub.cli import main
from hubbub.cli.catalogue import catalogue_pages, metric_path
from hubbub.privacy import Guarantee, Observer, Unit, guarantee_of_days, guarantees, privacy_figures
from hubbub.privacy.guarantee import SAME_RUNS, AnyRecordings, SamePattern, UnchangedValue, guarantee_of_totals
from hubbub.privacy.ledger import Account
from hubbub.privacy.plain_words import certainty_text
from hubbub.privacy.pricing import shown_epsilon
from hubbub.sdk.storage.state import State
from hubbub.sdk.transparency.state_page import state_page
from hubbub.summary import BitCounts
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_decoder import decode
from hubbub_decoder.planning.definition import toml_lines
from hubbub_decoder.report.about import privacy_rows
from hubbub_decoder.results.decoding import headline
from tests.aggregator.conftest import running
from tests.support.every_kind import METRICS, NOISE
from tests.support.html import without_word_spans

FRESH = Metric.boolean("fresh", UnaryResponse(prob_p=0.4, prob_q=0.6, prob_f=0))
DEFINED = {
    metric.name: replace(
        metric, expires=date(2099, 1, 1), description="Question about it", owner="ada@example.org", purpose="A test"
    )
    for metric in (
        *(metric for metric in METRICS if len(metric.blocks) == 1),
        FRESH,
        Metric.boolean("weekly", UnaryResponse(**NOISE), hold=7),
    )
}


def of_operator(metric: Metric) -> list[Guarantee]:
    return [of for of in guarantees(metric, Policy()) if of.observer is Observer.OPERATOR]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guarantees")
    text = "\n".join("\n".join(toml_lines(metric)) for metric in DEFINED.values())
    (folder / "metrics.toml").write_text(text)
    return folder


def shown(folder: Path, *options: str) -> str:
    result = CliRunner().invoke(main, ["metrics", "show", str(folder / "metrics.toml"), *options])
    assert result.exit_code == 0, result.output
    return result.output


Surface = Callable[[Path, Metric], str]


def of_show(folder: Path, metric: Metric) -> str:
    return next(
        block
        for block in re.split(r"^(?=\S)", shown(folder), flags=re.MULTILINE)
        if block.startswith(f"{metric.name}  ")
    )


def of_catalogue(_: Path, metric: Metric) -> str:
    return text_of(catalogue_pages(Definitions([metric]), date(2026, 11, 23))[metric_path(metric.name)])


def of_dashboard(folder: Path, metric: Metric) -> str:
    with (
        closing(SqlStore.open(str(folder / f"{metric.name}.db"))) as store,
        running(Definitions([metric]), store, Settings(local_reads_without_token=True)) as aggregator,
    ):
        return text_of(aggregator.get(f"/metric/{metric.name}").body.decode())


def of_report(_: Path, metric: Metric) -> str:
    return "\n".join(" ".join(row) for row in privacy_rows(metric))


NUM_REPORTS, NUM_DAYS = 100_000, 7


def run_plan(folder: Path, metric: Metric, *options: str) -> str:
    """Print all figures of a plan, each row in one line."""
    words = ["plan", str(folder / "metrics.toml"), metric.name, "--reports", str(NUM_REPORTS), "--unit", f"{NUM_DAYS}d"]
    result = CliRunner().invoke(main, [*words, *options], env={"COLUMNS": "1000"})
    assert result.exit_code == 0, result.output
    return result.output


def of_plan(folder: Path, metric: Metric) -> str:
    return run_plan(folder, metric, "--explain")


def of_short_plan(folder: Path, metric: Metric) -> str:
    return run_plan(folder, metric)


def of_planned_page(folder: Path, metric: Metric) -> str:
    run_plan(folder, metric, "--html", str(folder / "plan.html"))
    page = (folder / "plan.html").read_text()
    return text_of(re.sub(r"<small>.*?</small>", "", page, flags=re.DOTALL))  # explanations


def of_inspect(folder: Path, metric: Metric) -> str:
    state = folder / f"state of {metric.name}"
    labels = {metric.group.name: metric.group.values[0]} if metric.group else None
    with Client(Definitions([metric]), state, "https://telemetry.example.org", groups=labels, environment={}) as client:
        client.set_consent("local")
        client.record(metric.name)
    result = CliRunner().invoke(main, ["inspect", str(state)])
    assert result.exit_code == 0, result.output
    return result.output


def of_state_page(folder: Path, metric: Metric) -> str:
    return of_known_state(folder, metric, Definitions([metric]))


def of_unknown_state(folder: Path, metric: Metric) -> str:
    return of_known_state(folder, metric, None)


def of_known_state(_: Path, metric: Metric, definitions: Definitions | None) -> str:
    """What the page says about three reports of two values or epochs, or of three periods."""
    figures = privacy_figures(metric, Policy())
    units = 3 if figures.unit == "period" else 2
    account = Account("", metric.digest, metric.name, metric.period, "2026-11-23", figures.unit, figures.epsilon_unit)
    state = State()
    state.accounts[account.key] = account._replace(units=units, reports=3, reserved_units=9)
    page = without_word_spans(state_page(state, definitions=definitions))
    (cell,) = re.findall(r'data-label="most that these reports can reveal">(.*?)</td>', page)
    assert "on which days the app runs" in page  # every condition demands equal runs
    return unescape(cell)


def of_notice(_: Path, metric: Metric) -> str:
    return consent_notice(Definitions([metric]), app="Example", recipient="Example Ltd")


def of_heading(_: Path, metric: Metric) -> str:
    return privacy_figures(metric, Policy()).sentence()


def text_of(page: str) -> str:
    return unescape(re.sub(r"<[^>]+>", " ", without_word_spans(page)))


@pytest.mark.parametrize("surface", [of_show, of_catalogue, of_dashboard, of_report])
@pytest.mark.parametrize("metric", DEFINED.values(), ids=lambda metric: metric.name)
def test_rows_are_those_of_the_guarantees(surface: Surface, metric: Metric, folder: Path) -> None:
    text, found = surface(folder, metric), of_operator(metric)
    places = []
    for guarantee in found:
        figure = re.escape(shown_epsilon(guarantee.epsilon))
        label = "[Ll]ifetime(?: epsilon)?" if guarantee.unit is Unit.LIFETIME else f"per {guarantee.unit}"
        row = re.search(rf"{label}\s+{figure}\s[^\n]*{re.escape(guarantee.condition.sentence)}", text)
        assert row, (guarantee, text)
        places.append(row.start())
    lifetime = found[-1]
    assert (min(places) == places[-1]) is lifetime.is_unconditional
    assert (
        "hold in the definition gives a bound" in " ".join(text.replace("`", "").split())
    ) is not lifetime.is_unconditional
    assert f"for the {lifetime.observer}, {SAME_RUNS}" in text


def pairs(*surfaces: Surface) -> pytest.MarkDecorator:
    """Each surface with each metric; but the page of a plan, whose drawings take seconds, with two."""
    found = [
        pytest.param(surface, metric, id=f"{surface.__name__}-{metric.name}")
        for surface, metric in itertools.product(surfaces, DEFINED.values())
        if surface is not of_planned_page or metric.name in ("dark", "weekly")
    ]
    return pytest.mark.parametrize(("surface", "metric"), found)


PLANS = (of_plan, of_short_plan, of_planned_page)


@pairs(*PLANS)
def test_plan_has_figures_and_conditions_of_the_guarantees(surface: Surface, metric: Metric, folder: Path) -> None:
    text = " ".join(surface(folder, metric).split())
    found = {f"epsilon of an? {of.unit}": of for of in of_operator(metric) if of.unit is not Unit.ENROLLMENT}
    found["lifetime epsilon"] = found.pop(f"epsilon of an? {Unit.LIFETIME}")
    found["epsilon of days"] = guarantee_of_days(metric, Policy(), NUM_DAYS)
    if surface is not of_short_plan:
        found["central epsilon"] = guarantee_of_totals(metric, 1, NUM_REPORTS // metric.params.num_cohorts)
        assert f"for the {Observer.SITE}, with delta = 1e-09" in text
    for label, guarantee in found.items():
        figure, condition = map(re.escape, (shown_epsilon(guarantee.epsilon), guarantee.condition.sentence))
        covered = "( of any 7 days in a row| under the default Policy)?"
        assert re.search(f"{label} {figure}{covered}, {condition}", text), (guarantee, text)
    assert len(re.findall(r"(?:epsilon of (?:an? \w+|days)|(?:lifetime|central) epsilon) [\dn]", text)) == len(found)
    assert f"observer {Observer.OPERATOR}, {SAME_RUNS}" in text


@pytest.mark.parametrize("metric", DEFINED.values(), ids=lambda metric: metric.name)
def test_state_has_figures_and_conditions_of_the_guarantees(metric: Metric, folder: Path) -> None:
    *_, enrollment, lifetime = of_operator(metric)
    total = SamePattern() if isinstance(lifetime.condition, SamePattern) else lifetime.condition
    bound = f"of {shown_epsilon(enrollment.epsilon)} reserved. It is a bound for the {Observer.OPERATOR}, {total.sentence}, {SAME_RUNS}"
    assert bound in of_inspect(folder, metric)
    figures = privacy_figures(metric, Policy())
    units = 3 if figures.unit == "period" else 2
    known, unknown = of_state_page(folder, metric), of_unknown_state(folder, metric)
    assert f", {lifetime.condition.plain}" in known
    assert f", {total.plain}" in unknown
    assert unknown.startswith(certainty_text(units * figures.epsilon_unit))


@pairs(
    of_show,
    of_catalogue,
    of_dashboard,
    of_report,
    of_heading,
    of_notice,
    *PLANS,
    of_inspect,
    of_state_page,
    of_unknown_state,
)
def test_no_condition_is_written_by_hand(
    surface: Surface, metric: Metric, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With other words in the conditions, no surface has the old ones."""
    conditions = (AnyRecordings(), SamePattern(metric.kind), SamePattern(), UnchangedValue(metric.kind))
    words = {text for condition in conditions for text in (condition.sentence, condition.plain)}
    for condition in conditions:
        renamed = property(lambda self: f"<{self.name}>")
        monkeypatch.setattr(type(condition), "sentence", renamed)
        monkeypatch.setattr(type(condition), "plain", renamed)
    text = surface(folder, metric)
    assert any(f"<{condition.name}>" in text for condition in conditions)
    assert not [phrase for phrase in words if phrase in text]


@pytest.mark.parametrize("metric", DEFINED.values(), ids=lambda metric: metric.name)
def test_heading_of_a_decoding_begins_with_what_holds_whatever_is_recorded(metric: Metric) -> None:
    counts = BitCounts(metric, [100] * metric.num_cohorts, [[50] * metric.num_bits] * metric.num_cohorts)
    decoding = decode(counts, ["a", "b"] if metric.kind.needs_candidates else None)
    console = Console(file=io.StringIO(), width=1000)
    console.print(decoding)
    heading = console.file.getvalue().splitlines()[0]  # type: ignore[attr-defined]
    assert heading.strip() == headline(decoding)
    *others, lifetime = of_operator(metric)
    total = shown_epsilon(lifetime.epsilon)
    begin = "lifetime epsilon " + total if lifetime.is_unconditional else "no epsilon whatever is recorded"
    assert heading.partition("; ")[2].startswith(begin)
    for guarantee in (*others, lifetime):
        assert shown_epsilon(guarantee.epsilon) in heading
    assert lifetime.condition.sentence in heading
    assert heading.strip().endswith(f"for the {lifetime.observer}, {SAME_RUNS}")


def test_json_has_every_guarantee(folder: Path) -> None:
    printed = {metric["name"]: metric["privacy"]["guarantees"] for metric in json.loads(shown(folder, "--json"))}
    definitions = Definitions(list(DEFINED.values()))
    with (
        closing(SqlStore.open(str(folder / "json.db"))) as store,
        running(definitions, store, Settings(local_reads_without_token=True)) as aggregator,
    ):
        served = {
            metric["name"]: metric["privacy"]["guarantees"] for metric in aggregator.get("/v1/metrics").json["metrics"]
        }
    expected = {name: [of.to_dict() for of in guarantees(metric, Policy())] for name, metric in DEFINED.items()}
    assert printed == served == expected
    (of_files,) = (of for of in expected["weekly"] if of["observer"] == Observer.FILES)
    assert of_files["epsilon"] == str(math.inf)


_HIDES_ABSENCE = re.compile(
    r"whether or not (any|some)thing was recorded|hides? that nothing was recorded|sends a report either way"
    r"|(existence|times?)\b[^.|]*\b(independent of|depends? on no)\b"
)


def test_pages_say_that_times_show_when_the_app_ran() -> None:
    """A page that says that reports hide "no value" says in the same sentence or the next one that they leave while the app runs."""
    root = Path(__file__).parents[2]
    pages = [root / "README.md", root / "clients/typescript/README.md", *(root / "docs").rglob("*.md")]
    found = 0
    for page in pages:
        lines = page.read_text().splitlines()
        for line, following in itertools.pairwise([*lines, ""]):
            if page.parent.name not in ("decisions", "progress") and _HIDES_ABSENCE.search(line):
                found += 1
                assert "the app runs" in line + following, (page, line)
    assert found >= 3


@pytest.mark.parametrize("metric", DEFINED.values(), ids=lambda metric: metric.name)
def test_notice_has_certainties_and_conditions_of_the_guarantees(metric: Metric) -> None:
    text = consent_notice(Definitions([metric]), app="Example", recipient="Example Ltd")
    (line,) = [line for line in text.splitlines() if line.startswith(f"- {metric.name}: ")]
    found = {of.unit: of for of in of_operator(metric)}
    lifetime = found[Unit.LIFETIME]
    until_withdrawal = found.get(Unit.VALUE, found[Unit.ENROLLMENT])
    assert f"from one report, {certainty_text(found[Unit.REPORT].epsilon)}" in line
    assert f"withdraw your consent, {lifetime.condition.plain}, {certainty_text(until_withdrawal.epsilon)}" in line
    assert f"any number of times, {lifetime.condition.plain}, {certainty_text(lifetime.epsilon)}" in line
    assert ("whether or not your answer changes" in line) is lifetime.is_unconditional
    # every condition demands equal runs
    assert "Example Ltd and your network provider can see on which days you use Example." in text
