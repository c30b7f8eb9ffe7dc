"""Every surface that shows a result, for every kind, with many reports, three, and none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure

from hubbub import HubbubError, KindWord, Metric
from hubbub.cli import main
from hubbub.summary import BitCounts
from hubbub.summary.summary_file import write_summary
from hubbub_decoder import Decoding, compare, decode, decode_each, simulate
from hubbub_decoder.report.write import write_report
from hubbub_decoder.results.decoding import summary_lines
from tests.support.every_kind import METRICS

NAMES = ["v1", "v2", "a value that nobody has"]
DAYS = ["2026-03-02", "2026-03-09", "2026-03-16"]
(PLUGINS,) = [metric for metric in METRICS if metric.name == "plugins"]
SINGLE = [metric for metric in METRICS if len(metric.blocks) == 1]


def values_of(metric: Metric) -> list[str]:
    if metric.kind.needs_candidates:
        return NAMES[:2]
    return ["1", "300"] if metric.kind.word is KindWord.ORDINAL else list(metric.kind.named_values[:2])


@pytest.mark.parametrize("number", [5_000, 1, 0], ids=["many", "three", "none"])
@pytest.mark.parametrize("metric", SINGLE, ids=lambda metric: metric.name)
def test_every_surface_shows_every_kind(metric: Metric, number: int, tmp_path: Path) -> None:
    """Or says why it cannot, with the metric's name; many reports are always decoded, and have a page. None have none."""
    rng = np.random.default_rng(3)
    population = dict.fromkeys(values_of(metric), number)
    summary = simulate(metric, population, rng, no_value=number, periods=DAYS)
    weeks = [simulate(metric, population, rng, no_value=number, periods=[day]) for day in DAYS]
    names = NAMES if metric.kind.needs_candidates else None

    def page() -> Decoding:
        decoding = decode(summary, names)
        write_report(decoding, tmp_path / "page.html", summary)
        assert metric.name in (tmp_path / "page.html").read_text()
        return decoding

    for make in (page, lambda: compare(weeks[0], weeks[1], names), lambda: decode_each(weeks, names)):
        try:
            result = make()
            shown = str(result)
            result.plot(Figure().subplots())
        except HubbubError as refused:
            shown = str(refused)
        assert metric.name in shown
    if number != 1:  # of three clients, the held-out group of a search may have none
        assert (tmp_path / "page.html").exists() == (number > 1)


def test_publish_every_kind(tmp_path: Path) -> None:
    summaries, candidates = tmp_path / "summaries", tmp_path / "candidates"
    summaries.mkdir()
    candidates.mkdir()
    for metric in SINGLE:
        if metric.kind.needs_candidates:
            (candidates / f"{metric.name}.txt").write_text("\n".join(NAMES))
        for day in DAYS[:2]:
            counts = simulate(metric, dict.fromkeys(values_of(metric), 500), np.random.default_rng(3), periods=[day])
            write_summary(replace(counts, closed=True), summaries / f"{metric.name} {day}.parquet")
    options = ["--candidates", str(candidates), "--out-dir", str(tmp_path / "site"), "--min-reports", "1"]
    done = CliRunner().invoke(main, ["publish", str(summaries), *options])
    assert done.exit_code == 0, done.output
    assert done.output.count("skipped: words@") == 2  # its strings are found by `hubbub discover`
    index = json.loads((tmp_path / "site" / "v1" / "index.json").read_text())
    published = {entry["metric"] for entry in index["metrics"]}
    assert published == {metric.name for metric in SINGLE} - {"words"}
    assert len(list((tmp_path / "site").glob("*@*/*.html"))) == 3 * len(published)


def test_mean_number_of_items_is_a_number_in_texts_and_warnings() -> None:
    """Ones in all reports are more items than there are; with three reports some item has no client."""
    params = PLUGINS.params
    every = BitCounts(PLUGINS, [1_000] * params.num_cohorts, [[1_000]] * params.num_cohorts)
    (warning,) = [warning for warning in decode(every).warnings if warning.kind == "impossible_totals"]
    assert "The estimate of the mean number of items of a client is 7.5, which is above 3 by more than" in warning.text
    assert "candidates" not in f"{warning}"
    few = decode(BitCounts(PLUGINS, [2, 1, 0], [[1], [0], [0]]))
    unknown = "Items of a client, on average: unknown, because no client was asked about some of the items."
    assert unknown in list(summary_lines(few))
