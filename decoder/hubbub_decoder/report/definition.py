"""Definition of a metric and its privacy in words, for the pages of a report."""

from __future__ import annotations

from collections.abc import Iterator

from hubbub.metrics.kinds import CategoricalKind
from hubbub.metrics.metric import Metric
from hubbub.privacy import privacy_figures
from hubbub.privacy.policy import Policy
from hubbub.privacy.pricing import shown_epsilon
from hubbub.text import escape_untrusted, format_count


def privacy_rows(metric: Metric) -> Iterator[tuple[str, str, str]]:
    """Yield label, epsilon and meaning of each privacy figure under the default policy."""
    for row in privacy_figures(metric, Policy()).rows():
        yield row.label, shown_epsilon(row.epsilon), row.note


def definition_rows(metric: Metric) -> Iterator[tuple[str, str]]:
    """Yield label and text of each field; fields without a value are left out."""
    params = metric.params
    yield "Kind", str(metric.kind)
    yield "Reporting period", str(metric.period)
    if metric.hold is not None:
        yield "Epoch (hold)", f"{metric.hold} periods"
    if isinstance(metric.kind, CategoricalKind):
        categories, other = metric.kind.categories, metric.kind.other
        shown = ", ".join(map(escape_untrusted, categories[:20]))
        yield "Categories", shown + (f" and {len(categories) - 20} more" if len(categories) > 20 else "")
        if other is not None:
            yield "Category of unknown values", escape_untrusted(other)
    if metric.kind.needs_candidates:
        sizes = ((params.num_bits, "bit"), (params.num_hashes, "hash"), (params.num_cohorts, "cohort"))
        yield "Bloom filter", ", ".join(format_count(number, noun) for number, noun in sizes)
    yield "Hash scheme", params.hash_scheme
    yield (
        "Permanent response",
        f"P(1 | 1) = {params.mechanism.permanent_q:.6g}, P(1 | 0) = {params.mechanism.permanent_p:.6g}",
    )
    yield "Response of a report", f"P(1 | 1) = {params.mechanism.prob_q:.6g}, P(1 | 0) = {params.mechanism.prob_p:.6g}"
    for label, text in (("Owner", metric.owner), ("Purpose", metric.purpose)):
        if text:
            yield label, text
    yield "Expires", metric.expires.isoformat() if metric.expires else "no date"
    yield "Digest", metric.digest
