"""Terminal tables of the demo: estimates with true shares, and the privacy loss per flight."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from hubbub.privacy import sequential
from hubbub.privacy.pricing import shown_epsilon
from hubbub.text import format_count
from hubbub_decoder.demo.comparison import Comparison
from hubbub_decoder.results.document import INTERVAL_WIDTH, Bar, Column, Document, Row, Table, format_level, group_name

MAX_ROWS = 25


def comparison_document(comparison: Comparison, names: Mapping[str, str], max_rows: int = MAX_ROWS) -> Document:
    """Largest estimates of one metric with their true shares; a row is marked if its interval misses the true share."""
    decoding = comparison.decoding
    estimates = [estimate for estimate in decoding.estimates if not math.isnan(estimate.share)][:max_rows]
    columns = (
        Column.names(decoding.metric.name),
        Column.names("", width=12),
        Column.shares("true share"),
        Column.shares("estimate"),
        Column.shares(f"{format_level(decoding.confidence)} interval", width=INTERVAL_WIDTH),
        Column("detected" if decoding.is_tested else "", "text", width=8),
        Column.bars(),
    )
    end = max((estimate.high for estimate in estimates), default=1.0)
    rows = tuple(
        Row(
            (
                group_name(e.group),
                names.get(e.candidate, ""),
                comparison.true_share(e),
                e.share,
                (e.low, e.high),
                "yes" if e.detected else "",
                Bar(e.low, e.share, e.high, end),
            ),
            "" if comparison.is_covered(e) else "missed",
        )
        for e in estimates
    )
    headline = f"\n{decoding.metric.description}"
    return Document(headline, Table(columns, rows), (summary_line(comparison, len(estimates)),))


def summary_line(comparison: Comparison, shown: int) -> str:
    """Sentences about true and false detections, and the coverage of the intervals.

    shown : number of candidates in the table
    """
    decoding = comparison.decoding
    tested = len(decoding.estimates)
    present = sum(comparison.true_share(estimate) > 0 for estimate in decoding.estimates)
    sentences = [f"{tested - shown} more candidates are not shown."] if tested > shown else []
    if decoding.is_tested:
        absent = tested - present
        false = f" and {comparison.false_detections} of {absent} absent candidates" if absent else ""
        sentences.append(f"Detected {comparison.true_detections} of {present} reported candidates{false}.")
    contain = "contains" if tested == 1 else "contain"
    sentences.append(f"{comparison.covered_intervals} of {format_count(tested, 'interval')} {contain} the true share.")
    return " ".join(sentences)


def privacy_document(comparisons: Sequence[Comparison]) -> Document:
    """Epsilons of one flight, by metric and in total."""
    columns = (
        Column.names("metric"),
        Column.names("mechanism", width=30),
        Column("epsilon per report", "number", shown_epsilon),
        Column("epsilon per value", "number", shown_epsilon),
    )
    return Document("\nPrivacy loss per flight", Table(columns, tuple(map(Row, privacy_rows(comparisons)))), ())


def privacy_rows(comparisons: Sequence[Comparison]) -> Iterator[tuple[str, str, float, float]]:
    """Yield metric, mechanism, epsilon per report and per permanent response; the last row has the totals over all metrics."""
    for comparison in comparisons:
        metric = comparison.decoding.metric
        params = metric.params
        mechanism = f"{metric.kind}: k={params.num_bits} h={params.num_hashes} m={params.num_cohorts} " + " ".join(
            f"{name}={each:g}" for name, each in params.probabilities.items()
        )
        yield metric.name, mechanism, comparison.privacy.epsilon_report, comparison.privacy.epsilon_permanent
    per_report = sequential(comparison.privacy.epsilon_report for comparison in comparisons)
    per_value = sequential(comparison.privacy.epsilon_permanent for comparison in comparisons)
    yield "all", "sequential composition", per_report, per_value
