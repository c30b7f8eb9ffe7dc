"""Every surface that shows a definition lists the same facts, of every kind."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from datetime import date
from html import unescape
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from hubbub import Definitions, Metric, Policy, consent_notice
from hubbub.cli import main
from hubbub.cli.catalogue import catalogue_pages, metric_path
from hubbub_decoder.planning.definition import toml_lines
from hubbub_decoder.planning.description import describe
from hubbub_decoder.planning.page import render_page
from hubbub_decoder.planning.tables import DescriptionTables
from hubbub_decoder.report.about import definition_rows
from tests.support.every_kind import METRICS
from tests.support.html import without_word_spans

CHARGED_BY_VALUE = [metric for metric in METRICS if metric.blocks[0].mechanism.has_permanent_noise]
WITHOUT_PARTS = [metric for metric in METRICS if len(metric.blocks) == 1]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_facts_name_every_part_once(metric: Metric) -> None:
    labels = [fact.label for fact in metric.facts()]
    assert len(set(labels)) == len(labels)
    for name in metric.kind.components:
        for label in ("value", "bits", "probabilities"):
            assert (f"{label} of {name}" if name else label) in labels


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_pages_list_every_fact(metric: Metric) -> None:
    pages = catalogue_pages(Definitions([replace(metric, expires=date(2099, 1, 1))]), date(2026, 11, 23))
    page = unescape(without_word_spans(pages[metric_path(metric.name)]))
    rows = dict(definition_rows(metric))
    for fact in metric.facts():
        assert fact.line() in page
        assert rows[fact.label.capitalize()] == fact.line()


@pytest.mark.parametrize("metric", WITHOUT_PARTS, ids=lambda metric: metric.name)
def test_show_lists_every_fact(metric: Metric, tmp_path: Path) -> None:
    described = replace(metric, expires=date(2099, 1, 1), description="What it is", owner="a@example.org")
    path = tmp_path / "metrics.toml"
    path.write_text("\n".join(toml_lines(described)))
    shown = CliRunner().invoke(main, ["metrics", "show", str(path)], catch_exceptions=False).output
    for fact in described.facts():
        assert f"  {fact.label}: {fact.line()}\n" in shown


@pytest.mark.parametrize("metric", CHARGED_BY_VALUE, ids=lambda metric: metric.name)
def test_notice_says_what_a_change_means_for_the_kind(metric: Metric) -> None:
    allowing = Policy(**dict.fromkeys(Policy.__slots__, math.inf))
    text = consent_notice(Definitions([replace(metric, hold=None)]), app="A", recipient="B", policy=allowing)
    change = metric.kind.change
    assert text.count(f"as long as {change.unchanged}") == 2
    assert f"; if {change.event}, practically certain that {change.known}." in text


@pytest.mark.parametrize("metric", WITHOUT_PARTS, ids=lambda metric: metric.name)
def test_plan_lists_every_fact(metric: Metric) -> None:
    description = describe(metric, num_reports=1000)
    printed = io.StringIO()
    Console(file=printed, width=250).print(DescriptionTables([description], explain=True))
    page = unescape(without_word_spans(render_page([description])))
    for fact in metric.facts():
        assert re.search(rf"^{fact.label} +{re.escape(fact.line())} *$", printed.getvalue(), re.MULTILINE)
        assert f'<th scope="row">{fact.label}</th><td class="text">{fact.line()}</td>' in page
