"""What every page of a report says of its subject: the periods, the metric's privacy, its definition, and the provenance of the results."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import PeriodKind
from hubbub.privacy import privacy_figures
from hubbub.privacy.policy import Policy
from hubbub.privacy.pricing import shown_epsilon
from hubbub.text import DISTRIBUTION, escape_control_characters, escape_untrusted
from hubbub_decoder.results.decoding import Decoding

_MOST_ITEMS = 20
_MAX_FILES = 40


def about(
    metric: Metric,
    provenance: Iterable[tuple[str, str]],
    path: Sequence[tuple[str, str]],
    view: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What the template of every page of results gets; for the arguments see `render_decoding`."""
    return {
        "metric": metric,
        "privacy": list(privacy_rows(metric)),
        "definition": list(definition_rows(metric)),
        "provenance": list(provenance),
        "path": path,
        "view": view,
    }


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


def provenance_rows(
    decoding: Decoding, summaries: Sequence[Path], candidates: Sequence[Path], today: date | None = None
) -> Iterator[tuple[str, str]]:
    """Yield labels and texts: files by name and SHA-256, the options of `decode`, the release of hubbub and the UTC date, if it is given.

    candidates : files of candidates, or of a map
    """
    for path in summaries[:_MAX_FILES]:
        yield "Summary", _describe(path)
    if len(summaries) > _MAX_FILES:
        yield "More summaries", f"{len(summaries) - _MAX_FILES:,}"
    for path in candidates:
        yield "Candidates", _describe(path)
    repeated = {None: "", True: ", the same clients in all periods", False: ", other clients in each period"}
    yield (
        "Options",
        f"confidence {decoding.confidence:g}, false discovery rate {decoding.fdr:g}, target {decoding.target}{repeated[decoding.same_clients]}",
    )
    yield "Made with", f"hubbub {version(DISTRIBUTION)}{f' on {today.isoformat()} (UTC)' if today else ''}"


def _describe(path: Path) -> str:
    return f"{path.name}, SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}" if path.is_file() else str(path)


def period_text(metric: Metric, periods: Sequence[str]) -> str:
    """First days of the periods, as one phrase; reports of which no period is recorded are undated.

    >>> from hubbub import UnaryResponse
    >>> weekly = Metric.boolean("dark", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5), period="week")
    >>> period_text(weekly, []), period_text(weekly, ["2026-03-02"]), period_text(weekly, ["2026-03-02", "2026-03-09"])
    ('undated reports', 'week of 2026-03-02', 'weeks of 2026-03-02 to 2026-03-09 (2 weeks)')
    """
    if not periods:
        return "undated reports"
    of = "" if metric.period is PeriodKind.DAY else f"{metric.period}{'s' if len(periods) > 1 else ''} of "
    if len(periods) > 1:
        return f"{of}{periods[0]} to {periods[-1]} ({len(periods)} {metric.period}s)"
    return f"{of}{periods[0]}"
