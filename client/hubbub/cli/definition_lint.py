"""Lints of `hubbub metrics check`: placeholders, names, registry fields, expiry within a year, and a cap on epsilon."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import date, timedelta

from hubbub.metrics.kinds import Kind
from hubbub.metrics.metric import Metric
from hubbub.metrics.rules import is_placeholder
from hubbub.privacy.lifetime import privacy_figures
from hubbub.privacy.policy import Policy
from hubbub.privacy.pricing import ROUNDING_SLACK, shown_epsilon
from hubbub.text import escape_untrusted, format_count, format_names

_LONGEST_COLLECTION = timedelta(days=366)
"""One year, which may be a leap year."""

_VERSION = re.compile(r"(?<![a-z0-9])(?:v\d+(?:[._-]\d+)*|\d+(?:[._-]\d+)+)(?![a-z0-9])")
"""Version in a name, such as v2 and 3_1; not the 10 of top_10_pages, nor the 64 of x86_64."""
_IDENTIFIER = re.compile(r"\d{4,}|(?<![a-z0-9])(?=[a-f]*\d)[0-9a-f]{8,}(?![a-z0-9])")
"""Number of a user, year or day in a name, or hexadecimal digits."""
_WORD = re.compile(r"(?<=[._-])[^._-]+$")
"""Last word of a name."""


def name_warnings(metrics: Sequence[Metric]) -> Iterator[str]:
    """Yield a warning for each name with a version or a number, and one for metrics that differ in the last word of their names only."""
    for metric in metrics:
        found = _VERSION.search(metric.name) or _IDENTIFIER.search(metric.name)
        if found is not None:
            yield (
                f"{metric.name}: the name contains {found[0]}, and names are sent as they are. A version of the app is a `group`, a changed "
                "definition is a new version under the old name, and a value must not be in a name"
            )
    series: dict[tuple[str, Kind], list[str]] = {}
    for metric in metrics:
        series.setdefault((_WORD.sub("", metric.name), metric.kind), []).append(metric.name)
    for names in series.values():
        if len(names) > 1:
            yield (
                f"{format_names(names)} have one definition and differ in the last word of their names. If this word is a value, names "
                "send it as it is: use a set of items, a categorical metric, or a `group` for the arms of an A/B test"
            )


def registry_warnings(metrics: Sequence[Metric], today: date) -> Iterator[str]:
    """Yield a warning for all metrics without purpose or review, if the file uses these fields, and one for all late expiries."""
    if any(metric.purpose or metric.review for metric in metrics):
        incomplete = [metric.name for metric in metrics if not (metric.purpose and metric.review)]
        if incomplete:
            yield (
                f"{format_count(len(incomplete), 'metric')} without purpose or review ({format_names(incomplete)}): "
                "`hubbub metrics diff` cannot require a review of their changes. Set purpose, and review to the review's address"
            )
    latest = today + _LONGEST_COLLECTION
    late = [f"{metric.name} on {metric.expires}" for metric in metrics if (metric.expires or date.max) > latest]
    if late:
        yield (
            f"{format_count(len(late), 'metric')} with an expiry beyond a year ({format_names(late)}): they are collected for longer "
            f"than a year without a review. Set expires to {latest} or earlier, and renew it when it is near"
        )


def limit_problems(metrics: Sequence[Metric]) -> Iterator[str]:
    """Yield a problem for each later version whose `lifetime_epsilon` is above that of an earlier one of the same name."""
    lowest: dict[str, float] = {}
    for metric in metrics:
        limit, before = metric.lifetime_epsilon or math.inf, lowest.get(metric.name, math.inf)
        if limit > before:
            yield (
                f"{metric.name} ({metric.digest[:12]}): lifetime_epsilon is {'not set' if limit == math.inf else f'{limit:g}'}, and an earlier "
                f"version has {before:g}: clients keep the lowest limit that they have seen. Set lifetime_epsilon = {before:g}"
            )
        lowest[metric.name] = min(limit, before)


def placeholder_problems(metrics: Sequence[Metric]) -> Iterator[str]:
    """Yield a problem for each description, owner and purpose that is still a placeholder, such as those of `hubbub plan`."""
    for metric in metrics:
        for field in ("description", "owner", "purpose"):
            text = getattr(metric, field)
            if is_placeholder(text):
                yield (
                    f"{metric.name} ({metric.digest[:12]}): {field} is a placeholder, got {escape_untrusted(repr(text))}: users and reviewers "
                    f"read it. Write the {field} of this metric"
                )


def cap_problems(metrics: Sequence[Metric], max_epsilon: float) -> Iterator[str]:
    """Yield a problem for each metric with a unit (value, epoch or report) that costs more than a cap.

    The epsilon of a report is at most that of its unit. The lifetime epsilon is under the default Policy.
    """
    for metric in metrics:
        figures = privacy_figures(metric, Policy())
        if figures.epsilon_unit > max_epsilon + ROUNDING_SLACK:
            yield (
                f"{metric.name} ({metric.digest[:12]}): epsilon {shown_epsilon(figures.epsilon_unit)} per {figures.unit} is above "
                f"--max-epsilon = {max_epsilon:g} (lifetime epsilon {shown_epsilon(figures.epsilon_lifetime)}): reports reveal more "
                "than the project allows. Increase the noise (`hubbub plan --longitudinal`), or raise --max-epsilon"
            )
