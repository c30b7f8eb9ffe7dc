"""What is printed first about a number holds wherever the numbers are in their buckets: terminal, JSON, page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hubbub import Buckets, Metric, UnaryResponse
from hubbub.summary import BitCounts
from hubbub_decoder import Decoding, decode
from hubbub_decoder.report.metric_page import read_means
from hubbub_decoder.report.write import write_report
from hubbub_decoder.results.decoding import summary_lines
from hubbub_decoder.results.ordinal import QUANTILES, number_texts
from hubbub_decoder.simulation import simulate

CONFIDENCE = 1 - 1e-6
"""Of 20 tasks with 8 intervals each, one misses with a probability below 2e-4."""

NUMBER = r"(-?[\d.]+(?:e[+-]?\d+)?)"


@pytest.fixture(params=range(20))
def task(request: pytest.FixtureRequest) -> tuple[BitCounts, float, list[float]]:
    """Counts of numbers of which most have one value anywhere in a bucket, with their mean and quantiles."""
    rng = np.random.default_rng(request.param)
    k = int(rng.integers(2, 12))
    edges = np.cumsum([0, *rng.integers(1, 60, k)]).astype(float)
    middles = (edges[:-1] + edges[1:]) / 2
    spike = int(rng.integers(k))
    place = rng.choice([edges[spike], edges[spike] * 0.02 + edges[spike + 1] * 0.98, middles[spike]])
    numbers = np.where(rng.random(60_000) < rng.uniform(0.3, 0.95), place, rng.choice(middles, 60_000))
    buckets = Buckets(tuple(edges.tolist()), unit="ms", default=float(edges[0]) if rng.random() < 0.5 else None)
    metric = Metric.ordinal("delay", buckets, UnaryResponse(prob_p=0.1, prob_q=0.8, prob_f=0))
    counts = np.bincount(np.searchsorted(edges, numbers, side="right") - 1, minlength=k)
    population = [*zip(buckets.labels, counts.tolist(), strict=True)]
    summary = simulate(metric, dict(population), np.random.default_rng(request.param))
    return summary, float(numbers.mean()), np.quantile(numbers, QUANTILES, method="inverted_cdf").tolist()


def first_interval(text: str) -> tuple[float, float]:
    """The first interval of a text, or its first number twice if it stands before any interval."""
    found = re.search(rf"{NUMBER}(?: \.\. {NUMBER})?", text)
    assert found is not None
    return float(found[1]), float(found[2] or found[1])


def assert_all_hold(lines: list[str], truths: list[float]) -> None:
    """The first interval of each line contains the truth, up to the four digits that are printed."""
    assert len(lines) == len(truths)
    for line, truth in zip(lines, truths, strict=True):
        low, high = first_interval(line)
        assert low - 1e-3 * abs(low) <= truth <= high + 1e-3 * abs(high), (line, truth)


def test_the_first_interval_holds_in_the_terminal(task: tuple[BitCounts, float, list[float]]) -> None:
    summary, mean, quantiles = task
    lines = list(summary_lines(decode(summary, confidence=CONFIDENCE)))
    means = [line.removeprefix("Mean: ") for line in lines if line.startswith("Mean: ")]
    rows = [line.partition(" are below ")[2] for line in lines if " are below " in line]
    assert_all_hold([*means, *rows], [mean, *quantiles])


def test_the_first_interval_holds_in_json(task: tuple[BitCounts, float, list[float]]) -> None:
    summary, mean, quantiles = task
    numbers = decode(summary, confidence=CONFIDENCE).to_dict()["numbers"]
    fields = [list(numbers["mean"].items()), *([*quantile.items()][1:] for quantile in numbers["quantiles"])]
    for (low, high, *_), truth in zip(fields, [mean, *quantiles], strict=True):
        assert (low[0], high[0]) == ("lowest", "highest")
        assert low[1] <= truth <= high[1]


def test_the_first_interval_holds_on_pages(task: tuple[BitCounts, float, list[float]], tmp_path: Path) -> None:
    summary, mean, quantiles = task
    decoding: Decoding = decode(replace(summary, periods=("2026-03-02",)), confidence=CONFIDENCE)
    write_report(decoding, tmp_path / "page.html", summary)
    text = (tmp_path / "page.html").read_text(encoding="utf-8").partition("<script")[0]
    sentence = text.partition("<p>Mean: ")[2].partition("</p>")[0]
    rows = text.partition("<caption>Quantiles")[2].partition("<tbody>")[2].partition("</tbody>")[0].split("<tr>")[1:]
    cells = [row.partition("</td>")[2].partition(">")[2] for row in rows]
    assert_all_hold([sentence, *cells], [mean, *quantiles])
    ((_, shown),) = read_means([decoding.to_dict()])
    assert_all_hold([number_texts(shown)[0]], [mean])
