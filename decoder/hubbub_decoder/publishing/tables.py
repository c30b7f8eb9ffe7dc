"""Files of a published site for programs: JSON and CSV of each metric, the list of metrics, and an Atom feed of the releases.

Their fields are stable within a version, which is a part of the address, `v1/`. docs/how-to/nightly.md describes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from hubbub.metrics.metric import Metric
from hubbub.privacy import Guarantee, published_guarantee
from hubbub.privacy.central import RELEASE_DELTA
from hubbub.text import DISTRIBUTION
from hubbub.wire.dates import parse_period
from hubbub.wire.json_values import json_value
from hubbub_decoder.data.csv_cells import csv_bytes
from hubbub_decoder.documents.atom import MAX_ENTRIES, AtomEntry, atom_feed
from hubbub_decoder.publishing.groups import composed_epsilon
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.estimates import Estimate
from hubbub_decoder.results_store.store import PeriodKey, Release

FORMAT = "hubbub-published"
VERSION = 1
FOLDER = f"v{VERSION}"
_ESTIMATE = (
    "candidate",
    "indistinguishable_from",
    "share",
    "std_error",
    "low",
    "high",
    "selection_adjusted_low",
    "selection_adjusted_high",
    "simultaneous_low",
    "simultaneous_high",
    "q_value",
    "detected",
    "forged_reports_needed",
)
_COLUMNS = (
    "metric",
    "digest",
    "group",
    "period",
    "num_reports",
    "confidence",
    "fdr",
    "central_epsilon",
    "delta",
    "releases",
    "composed_epsilon",
)


@dataclass(frozen=True, slots=True)
class PublishedPeriod:
    """A period of a metric version that is published, without its estimates.

    releases : all of the period, at least one; its decoding is of the last
    folder   : of its pages in the site
    replaced : whether different counts of the period were published, of this page or of another one of the metric version
    """

    metric: Metric
    period: str
    releases: tuple[Release, ...]
    folder: str
    replaced: bool = False

    @property
    def group(self) -> str | None:
        """Value of the metric's group; None: all values, or no group."""
        return None if self.metric.group is None else self.metric.group.value

    @property
    def key(self) -> PeriodKey:
        """Of its releases."""
        return self.releases[-1].key

    @property
    def name(self) -> str:
        """Of its page and of its result, without a suffix."""
        return f"{self.folder}/{self.period}"

    @property
    def address(self) -> str:
        """Of its page, relative to the front page."""
        return f"{self.name}.html"

    @property
    def num_reports(self) -> int:
        """Of the last release."""
        return self.releases[-1].num_reports

    @property
    def closed(self) -> str:
        """Time from which it can be published, RFC 3339."""
        return parse_period(self.metric.period, self.period).closes().strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def epsilons(self) -> tuple[float, float]:
        """Central epsilon of the last release, and of all releases of the period together."""
        cohorts = [release.smallest_cohort for release in self.releases]
        of_last = composed_epsilon(self.metric, cohorts[-1:], replaced=False)
        return of_last, composed_epsilon(self.metric, cohorts, replaced=self.replaced)


def by_page(periods: Iterable[PublishedPeriod]) -> dict[str, list[PublishedPeriod]]:
    """Return the periods of each page, by its folder."""
    found = dict[str, list[PublishedPeriod]]()
    for period in periods:
        found.setdefault(period.folder, []).append(period)
    return found


def guarantee_of_page(periods: Sequence[PublishedPeriod]) -> Guarantee:
    """Return the guarantee of the counts of all periods that one page has ever shown, for a person who reports in each of its periods.

    Only the reports of clients that report in each of them hide the person: they are at most those of the smallest cohort.
    """
    smallest = min(release.smallest_cohort for period in periods for release in period.releases)
    is_replaced = any(period.replaced for period in periods)
    return published_guarantee(periods[0].metric, [period.period for period in periods], smallest, replaced=is_replaced)


def metric_json(
    periods: Sequence[tuple[PublishedPeriod, Decoding]], pages: Mapping[str, Sequence[PublishedPeriod]]
) -> bytes:
    """JSON of the periods of a metric, in order of time, with its definitions by digest; pages : periods that each folder has ever shown."""
    first, _ = periods[0]
    document = {
        "format": FORMAT,
        "version": VERSION,
        "metric": first.metric.name,
        "definitions": {period.key.digest: period.metric.in_group(None).to_dict() for period, _ in periods},
        "all_periods": [
            {"page": folder, "group": of_page[0].group, "guarantee": guarantee_of_page(of_page).to_dict()}
            for folder, of_page in pages.items()
        ],
        "periods": [
            _about(period, decoding)
            | {"numbers": json_value(decoding.numbers), "estimates": [_fields(e) for e in decoding]}
            for period, decoding in periods
        ],
    }
    return _json(document)


def metric_csv(periods: Sequence[tuple[PublishedPeriod, Decoding]]) -> bytes:
    """CSV of the periods of a metric, one line for each estimate; candidates that cannot be told apart are joined by ` | `."""
    rows = [
        [*about.values(), *_cells(estimate)]
        for about, decoding in ((_about(period, decoding), decoding) for period, decoding in periods)
        for estimate in decoding
    ]
    return csv_bytes((*_COLUMNS, *_ESTIMATE), rows)


def _about(period: PublishedPeriod, decoding: Decoding) -> dict[str, Any]:
    """What holds for all shares of a period, by the names of the columns."""
    own, composed = period.epsilons
    versions = len({release.counts_hash for release in period.releases})
    values = (
        period.metric.name,
        period.key.digest,
        period.group,
        period.period,
        period.num_reports,
        decoding.confidence,
        decoding.fdr,
        own,
        RELEASE_DELTA,
        versions,
        composed,
    )
    return dict(zip(_COLUMNS, values, strict=True))


def _fields(estimate: Estimate) -> dict[str, Any]:
    return {name: json_value(getattr(estimate, name)) for name in _ESTIMATE}


def _cells(estimate: Estimate) -> Iterator[Any]:
    for value in _fields(estimate).values():
        yield " | ".join(value) if isinstance(value, list) else value


def index_json(metrics: Mapping[str, Sequence[PublishedPeriod]]) -> bytes:
    """JSON of all metrics with their last period, and the addresses of their files."""
    entries = []
    for name, published in metrics.items():
        last = next((period for period in reversed(published) if period.group is None), published[-1])
        entries.append(
            {
                "metric": name,
                "description": last.metric.description,
                "owner": last.metric.owner,
                "kind": str(last.metric.kind),
                "last_period": last.period,
                "num_reports": last.num_reports,
                "json": f"{name}.json",
                "csv": f"{name}.csv",
            }
        )
    return _json({"format": FORMAT, "version": VERSION, "hubbub": version(DISTRIBUTION), "metrics": entries})


def _json(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode()


def latest(published: Iterable[PublishedPeriod]) -> list[PublishedPeriod]:
    """The last periods that were closed, the latest first."""
    return sorted(published, key=lambda period: (period.closed, period.address), reverse=True)[:MAX_ENTRIES]


def feed(latest: Sequence[PublishedPeriod]) -> bytes:
    """Atom feed of periods, the latest first; its addresses are relative to that of the feed."""
    entries = [
        AtomEntry(
            f"{period.metric.title}, {period.period}",
            f"urn:hubbub:published:{period.metric.digest}:{period.period}",
            period.closed,
            " ".join(filter(None, (f"{period.num_reports:,} reports.", period.metric.description))),
            period.address,
        )
        for period in latest
    ]
    return atom_feed("Published metrics", "urn:hubbub:published", entries)
