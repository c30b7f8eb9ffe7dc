"""The demo's terminal tables: truth beside estimate, and what each flight gave away."""

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

SHOWN, BAR_WIDTH = 25, 24


def comparison_table(comparison: Comparison, names: Mapping[str, str], shown: int = SHOWN) -> RenderableType:
    """Draw the largest estimates of one metric beside their truth."""
    decoding = comparison.decoding
    rows = [estimate for estimate in decoding.estimates if estimate.share == estimate.share][:shown]
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(decoding.metric.name, no_wrap=True)
    table.add_column("", no_wrap=True, overflow="ellipsis", max_width=26, style="dim")
    for heading in ("truth", "estimate", f"{decoding.confidence:.0%} interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    scale = max((estimate.high for estimate in rows), default=1.0)
    for estimate in rows:
        table.add_row(
            " = ".join((estimate.candidate, *estimate.indistinguishable_from)),
            names.get(estimate.candidate, ""),
            f"{comparison.true_share(estimate):.2%}",
            f"{estimate.share:.2%}",
            f"{estimate.low:.2%} .. {estimate.high:.2%}",
            interval_bar(estimate, scale, BAR_WIDTH),
            style="" if comparison.is_covered(estimate) else "yellow",
        )
    return Group(
        Text(f"\n{decoding.metric.description}", style="bold"), table, Text(summary_line(comparison, len(rows)))
    )


def summary_line(comparison: Comparison, shown: int) -> str:
    """Say in a line how well the estimates hold."""
    decoding = comparison.decoding
    tested = len(decoding.estimates)
    there = sum(comparison.true_share(estimate) > 0 for estimate in decoding.estimates)
    parts = [f"{tested - shown} more candidates not shown"] if tested > shown else []
    if tested > 1:
        false = f" and {comparison.false_detections} of {tested - there} that nobody reported" if tested > there else ""
        parts.append(f"found {comparison.true_detections} of {there} that were reported{false}")
    parts.append(
        f"{comparison.covered} of {format_count(tested, 'interval')} {'holds' if tested == 1 else 'hold'} the truth"
    )
    return "; ".join(parts)


def privacy_table(comparisons: Sequence[Comparison]) -> Table:
    """Draw what one flight's reports can reveal about it, by metric and in total."""
    table = Table(
        title="What each flight gave away", box=None, pad_edge=False, header_style="dim", title_justify="left"
    )
    for heading in ("metric", "mechanism"):
        table.add_column(heading, no_wrap=True)
    table.add_column("epsilon per report", justify="right")
    table.add_column("per value", justify="right")
    for name, mechanism, report, value in privacy_rows(comparisons):
        table.add_row(name, mechanism, shown_epsilon(report), shown_epsilon(value))
    return table


def privacy_rows(comparisons: Sequence[Comparison]) -> Iterator[tuple[str, str, float, float]]:
    """Yield metric, mechanism, epsilon per report, epsilon per permanent response; last the totals over all metrics."""
    for comparison in comparisons:
        metric = comparison.decoding.metric
        p = metric.params
        mechanism = f"{metric.kind}: k={p.num_bits} h={p.num_hashes} m={p.num_cohorts} p={p.prob_p:g} q={p.prob_q:g} f={p.prob_f:g}"
        yield metric.name, mechanism, comparison.privacy.epsilon_report, comparison.privacy.epsilon_permanent
    reports = sequential(comparison.privacy.epsilon_report for comparison in comparisons)
    yield "all", "sequential composition", reports, sequential(c.privacy.epsilon_permanent for c in comparisons)
