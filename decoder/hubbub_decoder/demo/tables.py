"""Terminal tables of the demo: estimates with true shares, and the privacy loss per flight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hubbub.privacy import sequential
from hubbub.privacy.pricing import shown_epsilon
from hubbub.text import format_count
from hubbub_decoder.demo.comparison import Comparison
from hubbub_decoder.results.table import interval_bar

MAX_ROWS, BAR_WIDTH = 25, 24


def comparison_table(comparison: Comparison, names: Mapping[str, str], max_rows: int = MAX_ROWS) -> RenderableType:
    """Table of the largest estimates of one metric with their true shares; yellow if the interval misses the true share."""
    decoding = comparison.decoding
    rows = [estimate for estimate in decoding.estimates if estimate.share == estimate.share][:max_rows]
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(decoding.metric.name, no_wrap=True)
    table.add_column("", max_width=26, style="dim")  # wraps on a narrow terminal, so that no figure is cut
    for heading in ("true share", "estimate", f"{decoding.confidence:.0%} interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    tested = decoding.metric.kind.needs_candidates
    table.add_column("detected" if tested else "", no_wrap=True)
    table.add_column("", no_wrap=True)
    scale = max((estimate.high for estimate in rows), default=1.0)
    for estimate in rows:
        table.add_row(
            " = ".join((estimate.candidate, *estimate.indistinguishable_from)),
            names.get(estimate.candidate, ""),
            f"{comparison.true_share(estimate):.2%}",
            f"{estimate.share:z.2%}",
            f"{estimate.low:z.2%} .. {estimate.high:z.2%}",
            "yes" if estimate.detected else "",
            interval_bar(estimate, scale, BAR_WIDTH),
            style="" if comparison.is_covered(estimate) else "yellow",
        )
    return Group(
        Text(f"\n{decoding.metric.description}", style="bold"), table, Text(summary_line(comparison, len(rows)))
    )


def summary_line(comparison: Comparison, shown: int) -> str:
    """Sentences about true and false detections, and the coverage of the intervals.

    shown : number of candidates in the table
    """
    decoding = comparison.decoding
    tested = len(decoding.estimates)
    present = sum(comparison.true_share(estimate) > 0 for estimate in decoding.estimates)
    sentences = [f"{tested - shown} more candidates are not shown."] if tested > shown else []
    if decoding.metric.kind.needs_candidates:
        absent = tested - present
        false = f" and {comparison.false_detections} of {absent} absent candidates" if absent else ""
        sentences.append(f"Detected {comparison.true_detections} of {present} reported candidates{false}.")
    contain = "contains" if tested == 1 else "contain"
    sentences.append(f"{comparison.covered_intervals} of {format_count(tested, 'interval')} {contain} the true share.")
    return " ".join(sentences)


def privacy_table(comparisons: Sequence[Comparison]) -> Table:
    """Table of the epsilons of one flight, by metric and in total."""
    table = Table(title="Privacy loss per flight", box=None, pad_edge=False, header_style="dim", title_justify="left")
    table.add_column("metric", no_wrap=True)
    table.add_column("mechanism")
    for heading in ("epsilon per report", "epsilon per value"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, mechanism, report, value in privacy_rows(comparisons):
        table.add_row(name, mechanism, shown_epsilon(report), shown_epsilon(value))
    return table


def privacy_rows(comparisons: Sequence[Comparison]) -> Iterator[tuple[str, str, float, float]]:
    """Yield metric, mechanism, epsilon per report and per permanent response; the last row has the totals over all metrics."""
    for comparison in comparisons:
        metric = comparison.decoding.metric
        params = metric.params
        mechanism = f"{metric.kind}: k={params.num_bits} h={params.num_hashes} m={params.num_cohorts} " + " ".join(
            f"{name}={each:g}" for name, each in params.mechanism.probabilities.items()
        )
        yield metric.name, mechanism, comparison.privacy.epsilon_report, comparison.privacy.epsilon_permanent
    per_report = sequential(comparison.privacy.epsilon_report for comparison in comparisons)
    per_value = sequential(comparison.privacy.epsilon_permanent for comparison in comparisons)
    yield "all", "sequential composition", per_report, per_value
