"""Index of a report directory: status of all metrics, problems, and the catalogue of definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hubbub.metrics.metric import Metric
from hubbub.privacy import privacy_figures
from hubbub.privacy.policy import Policy
from hubbub.privacy.pricing import shown_epsilon
from hubbub_decoder.report.metric_page import PeriodRow
from hubbub_decoder.report.rendering import Scripts, render


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric with its periods in order of time; address : of its page."""

    metric: Metric
    address: str
    periods: tuple[PeriodRow, ...]

    @property
    def last(self) -> PeriodRow | None:
        """Latest period that was decoded."""
        return next((row for row in reversed(self.periods) if row.status == "OK"), None)

    def count(self, status: str) -> int:
        """Number of periods with a status."""
        return sum(row.status == status for row in self.periods)

    @property
    def epsilons(self) -> tuple[str, str]:
        """Epsilon of a report, and lifetime epsilon under the default policy, as text."""
        figures = privacy_figures(self.metric, Policy())
        return shown_epsilon(figures.epsilon_report), shown_epsilon(figures.epsilon_lifetime)


@dataclass(frozen=True, slots=True)
class Problem:
    """Periods of a metric with one status and one reason; or a file that is no summary."""

    name: str
    status: str
    periods: str
    reason: str


def render_index(
    metrics: Sequence[MetricRow],
    problems: Sequence[Problem],
    scripts: Scripts,
    *,
    template: str = "index.html.j2",
    data: Mapping[str, Any] | None = None,
    **variables: Any,
) -> str:
    """HTML page that lists all metrics.

    template        : one that extends `index.html.j2` by a block above the lists
    data, variables : of this block: JSON values for its chart, and its own variables
    """
    return render(
        template,
        scripts,
        data or {},
        metrics=metrics,
        problems=problems,
        counts={status: sum(row.count(status) for row in metrics) for status in ("OK", "SKIPPED")}
        | {"FAILED": sum(row.count("FAILED") for row in metrics) + sum(not each.periods for each in problems)},
        path=(),
        **variables,
    )
