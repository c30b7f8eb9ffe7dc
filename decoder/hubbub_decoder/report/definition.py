"""Definition of a metric and its privacy in words, for the pages of a report."""

from __future__ import annotations

from collections.abc import Iterator

from hubbub.metrics.metric import Metric
from hubbub.privacy import privacy_figures
from hubbub.privacy.policy import Policy
from hubbub.privacy.pricing import shown_epsilon
from hubbub.text import escape_control_characters, escape_untrusted

_MOST_ITEMS = 20


def privacy_rows(metric: Metric) -> Iterator[tuple[str, str, str]]:
    """Yield label, epsilon and meaning of each privacy figure under the default policy."""
    for row in privacy_figures(metric, Policy()).rows():
        yield row.label, shown_epsilon(row.epsilon), row.note


def definition_rows(metric: Metric) -> Iterator[tuple[str, str]]:
    """Yield label and text of each fact and field; fields without a value are left out, and a list ends after 20 items."""
    yield "Kind", str(metric.kind)
    for fact in metric.facts():
        yield fact.label.capitalize(), escape_control_characters(fact.line(_MOST_ITEMS, escape_untrusted))
    for label, text in (("Owner", metric.owner), ("Purpose", metric.purpose)):
        if text:
            yield label, text
    yield "Expires", metric.expires.isoformat() if metric.expires else "no date"
    yield "Digest", metric.digest
