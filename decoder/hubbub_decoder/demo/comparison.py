"""Comparison of estimates with the true shares, and the documents that the demo prints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hubbub.privacy import PrivacyFigures, privacy_figures, sequential_composition
from hubbub.privacy.policy import Policy
from hubbub.privacy.pricing import shown_epsilon
from hubbub.text import format_count
from hubbub_decoder.documents.document import (
    INTERVAL_WIDTH,
    Bar,
    Column,
    Document,
    Row,
    Table,
    format_level,
    group_name,
)
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.estimates import Estimate

MAX_ROWS = 25


@dataclass(frozen=True, slots=True)
class Comparison:
    """Decoding of one metric, and the true share of each value among the reports."""

    decoding: Decoding
    truth: Mapping[str, float]

    def is_covered(self, estimate: Estimate) -> bool:
        """Whether the confidence interval contains the true share."""
        return estimate.low <= estimate.true_share(self.truth) <= estimate.high

    @property
    def true_detections(self) -> int:
        """Number of detected candidates with a true share above 0."""
        return sum(estimate.true_share(self.truth) > 0 for estimate in self.decoding.detected)

    @property
    def false_detections(self) -> int:
        """Number of detected candidates with a true share of 0."""
        return len(self.decoding.detected) - self.true_detections

    @property
    def covered_intervals(self) -> int:
        """Number of intervals that contain the true share, over all candidates."""
        return sum(map(self.is_covered, self.decoding.estimates))

    @property
    def privacy(self) -> PrivacyFigures:
        """Epsilons of the metric under the default policy."""
        return privacy_figures(self.decoding.metric, Policy())

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON-compatible values."""
        return {
            "metric": self.decoding.metric.name,
            "privacy": self.privacy.to_dict(),
            "true_detections": self.true_detections,
            "false_detections": self.false_detections,
            "covered_intervals": self.covered_intervals,
            "candidates": len(self.decoding.estimates),
            "true_shares": dict(self.truth),
            "decoding": self.decoding.to_dict(),
        }

    def document(self, names: Mapping[str, str], max_rows: int = MAX_ROWS) -> Document:
        """Largest estimates with their true shares; a row is marked if its interval misses the true share.

        names : long names of candidates
        """
        decoding = self.decoding
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
        rows = []
        for e in estimates:
            found, bar = "yes" if e.detected else "", Bar(e.low, e.share, e.high, end)
            about = (group_name(e.group), names.get(e.candidate, ""), e.true_share(self.truth))
            rows.append(Row((*about, e.share, (e.low, e.high), found, bar), "" if self.is_covered(e) else "missed"))
        line = self.summary(len(estimates))
        return Document(f"\n{decoding.metric.description}", Table(columns, tuple(rows)), (line,))

    def summary(self, shown: int) -> str:
        """Sentences about true and false detections, and the coverage of the intervals; shown : number of rows above."""
        decoding, tested = self.decoding, len(self.decoding)
        sentences = [f"{tested - shown} more candidates are not shown."] if tested > shown else []
        if decoding.is_tested:
            present = sum(estimate.true_share(self.truth) > 0 for estimate in decoding)
            absent = tested - present
            false = f" and {self.false_detections} of {absent} absent candidates" if absent else ""
            sentences.append(f"Detected {self.true_detections} of {present} reported candidates{false}.")
        contain = "contains" if tested == 1 else "contain"
        sentences.append(f"{self.covered_intervals} of {format_count(tested, 'interval')} {contain} the true share.")
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
            f"{name}={probability:g}" for name, probability in params.mechanism.probabilities.items()
        )
        yield metric.name, mechanism, comparison.privacy.epsilon_report, comparison.privacy.epsilon_permanent
    per_report = sequential_composition(comparison.privacy.epsilon_report for comparison in comparisons)
    per_value = sequential_composition(comparison.privacy.epsilon_permanent for comparison in comparisons)
    yield "all", "sequential composition", per_report, per_value
