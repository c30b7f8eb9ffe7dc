"""Every surface that shows a definition lists the same facts, of every kind."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from html import unescape
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubbub import Definitions, Metric
from hubbub.cli import main
from hubbub.cli.catalogue import catalogue_page
from hubbub_decoder.planning.definition import toml_lines
from hubbub_decoder.report.about import definition_rows
from tests.support.every_kind import METRICS

WITHOUT_PARTS = [metric for metric in METRICS if not metric.parts]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_facts_name_every_part_once(metric: Metric) -> None:
    labels = [fact.label for fact in metric.facts()]
    assert len(set(labels)) == len(labels)
    for part in metric.parts or (None,):
        for label in ("value", "bits", "probabilities"):
            assert (label if part is None else f"{label} of {part.name}") in labels


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_pages_list_every_fact(metric: Metric) -> None:
    page = unescape(catalogue_page(Definitions([replace(metric, expires=date(2099, 1, 1))]), date(2026, 11, 23)))
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
