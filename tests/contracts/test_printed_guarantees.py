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

from hubbub import Definitions, Metric, Policy, UnaryResponse, consent_notice
from hubbub.cli import main
from hubbub.cli.catalogue import catalogue_pages, metric_path
from hubbub.privacy import Guarantee, Observer, Unit, guarantees
from hubbub.privacy.guarantees import SAME_RUNS
from hubbub.privacy.plain_words import certainty_text
from hubbub.privacy.pricing import shown_epsilon
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
    assert ("`hold` in the definition gives a bound" in text) is not lifetime.is_unconditional
    assert f"for the {lifetime.observer}, {SAME_RUNS}" in text


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
    assert found >= 4


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
