"""Files of a site, made from the store and the events alone. Each has the hash of all that it depends on, so that a file which stays the same is not made again."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

from hubbub.errors import HubbubError
from hubbub.metrics.metric import folder_of
from hubbub.privacy.central import RELEASE_DELTA
from hubbub.privacy.guarantee import SAME_RUNS, UnchangedValue
from hubbub.privacy.pricing import shown_epsilon
from hubbub_decoder.batch_decoding.tasks import releases
from hubbub_decoder.data.events import Event
from hubbub_decoder.errors import OutputError
from hubbub_decoder.publishing.groups import is_replaced
from hubbub_decoder.publishing.names import METRICS_FILE, is_named, short_names
from hubbub_decoder.publishing.plan import Published
from hubbub_decoder.publishing.tables import (
    FOLDER,
    PublishedPeriod,
    by_page,
    feed,
    guarantee_of_page,
    index_json,
    latest,
    metric_csv,
    metric_json,
)
from hubbub_decoder.report.about import period_text, provenance_rows
from hubbub_decoder.report.decoding_page import render_decoding
from hubbub_decoder.report.highlights import Highlights
from hubbub_decoder.report.metric_page import PeriodRow, render_metric
from hubbub_decoder.report.published_page import MetricCard, render_front
from hubbub_decoder.report.rendering import SHARED_SCRIPT, shared_script, shared_scripts
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results_store.store import ResultsStore, text_hash

_KEPT_DECODINGS = 4096
Read = Callable[[PublishedPeriod], Decoding]
"""Decoding of a period."""


@dataclass(frozen=True, slots=True)
class SiteFile:
    """A file of a site.

    path        : below the site
    inputs_hash : of all that its content depends on
    content     : returns it
    """

    path: str
    inputs_hash: str
    content: Callable[[], bytes]


def site_files(
    store: ResultsStore, published: Published, withheld: Collection[str], events: Sequence[Event]
) -> list[SiteFile]:
    """Files of the site of what was published, without what is withheld.

    Their contents raise OutputError if a result is damaged. Raises OutputError if two have the same path.
    """
    read = lru_cache(_KEPT_DECODINGS)(partial(_decoding, store))
    found = dict[str, SiteFile]()
    every = _periods(published)
    shown = [period for period in every if period.key in published.releases and not is_named(period.name, withheld)]
    for path, inputs, content in _files(shown, by_page(every), events, read):
        if path in found:
            raise OutputError(f"{path} would be of two pages of the site. Pass --withhold METRIC for one of them.")
        found[path] = SiteFile(path, text_hash(json.dumps([releases(), path, inputs])), content)
    return list(found.values())


def _periods(published: Published) -> list[PublishedPeriod]:
    """Periods that were ever published, in the order of metric, period and folder."""
    replaced = {(key.digest, key.period) for key, found in published.every.items() if is_replaced(found)}
    found = list[PublishedPeriod]()
    for key, of_period in published.every.items():
        metric, folder = published.metrics[key.digest, key.group_value], published.name(key).rpartition("/")[0]
        found.append(PublishedPeriod(metric, key.period, of_period, folder, (key.digest, key.period) in replaced))
    return sorted(found, key=lambda period: (period.metric.name, period.period, period.folder))


def _decoding(store: ResultsStore, period: PublishedPeriod) -> Decoding:
    """Decoding of a period without unlisted strings' bits and suggested spellings: nobody approved these."""
    last = period.releases[-1]
    try:
        decoding = Decoding.from_dict(json.loads(store.document(last.key, last.result_hash)))
    except (HubbubError, ValueError, KeyError, TypeError) as problem:
        name = short_names(period.name)[1]
        raise OutputError(f"{problem}, or pass --withdraw {name} to take the period off the site.") from None
    unlisted = tuple(replace(found, signature=(), matches=()) for found in decoding.unlisted_strings)
    return replace(decoding, unlisted_strings=unlisted, suggestions=())


_File = tuple[str, Any, Callable[[], bytes]]
"""Path, JSON values of all that a file depends on beside its path and the release of hubbub, and its content."""


_Ever = Mapping[str, Sequence[PublishedPeriod]]
"""Periods of each folder that were ever published: readers know them, also those that were taken off."""


def _files(periods: Sequence[PublishedPeriod], ever: _Ever, events: Sequence[Event], read: Read) -> Iterator[_File]:
    yield SHARED_SCRIPT, None, lambda: shared_script().encode()
    of_metric = {name: list(group) for name, group in groupby(periods, key=lambda period: period.metric.name)}
    for name, group in of_metric.items():
        yield from _files_of_metric(name, group, ever, events, read)
    every = [_facts(period) for period in periods]
    yield f"{FOLDER}/{METRICS_FILE}.json", every, partial(_index, of_metric, read)
    yield "feed.xml", every, partial(_feed, periods, read)
    cards = [_whole(group) for group in of_metric.values()]
    known = [_facts(period) for group in cards for period in ever[group[-1].folder]]
    yield "index.html", [every, known], partial(_front, cards, ever, read)


def _facts(period: PublishedPeriod) -> list[Any]:
    """All that the files of a period depend on: its releases, whose last one names the decoding by its hash."""
    of_releases = [(release.counts_hash, release.smallest_cohort, release.num_reports) for release in period.releases]
    return [period.name, of_releases, period.releases[-1].result_hash, period.replaced]


def _files_of_metric(
    name: str, periods: list[PublishedPeriod], ever: _Ever, events: Sequence[Event], read: Read
) -> Iterator[_File]:
    folders = by_page(periods)
    for period in periods:
        yield period.address, _facts(period), partial(_page_of_period, period, read)
    for folder, own in folders.items():
        facts = [[_facts(period) for period in some] for some in (own, ever[folder])]
        inputs = [sorted(folders), *facts, list(map(asdict, events))]
        yield f"{folder}/index.html", inputs, partial(_page_of_metric, own, ever[folder], set(folders), events, read)
    every = [_facts(period) for period in periods]
    pages = {folder: ever[folder] for folder in folders}
    known = [_facts(period) for page in pages.values() for period in page]
    yield f"{FOLDER}/{name}.json", [every, known], lambda: metric_json(_with_decodings(periods, read), pages)
    yield f"{FOLDER}/{name}.csv", every, lambda: metric_csv(_with_decodings(periods, read))


def _with_decodings(periods: Sequence[PublishedPeriod], read: Read) -> list[tuple[PublishedPeriod, Decoding]]:
    return [(_as_decoded(period, read), read(period)) for period in periods]


def _as_decoded(period: PublishedPeriod, read: Read) -> PublishedPeriod:
    """Period with the metric of its decoding: description and owner may have changed since, and are no part of the digest."""
    return replace(period, metric=read(period).metric)


def _page_of_period(period: PublishedPeriod, read: Read) -> bytes:
    decoding = read(period)
    own, composed = period.epsilons
    provenance = [
        (
            "Central epsilon of the published counts of this period",
            f"{shown_epsilon(own)}, with delta {RELEASE_DELTA:g}",
        ),
        ("Central epsilon of all counts of the period that were published", shown_epsilon(composed)),
        *provenance_rows(decoding, (), ()),
    ]
    links = [("All metrics", "../index.html"), (period.metric.name, "index.html")]
    return render_decoding(decoding, shared_scripts("../"), provenance=provenance, path=links).encode()


def _about_all_periods(periods: Sequence[PublishedPeriod]) -> tuple[str, str]:
    """Return the epsilon of one person over all periods that a page has ever shown, and the conditions under which it is a bound."""
    guarantee, number = guarantee_of_page(periods), len(periods)
    name = f"epsilon of all {number} published periods together" if number > 1 else "epsilon of the published period"
    person = (
        f"what they reveal about one person who reports in {'each of them under one secret' if number > 1 else 'it'}"
    )
    figure, condition = shown_epsilon(guarantee.epsilon), f"{guarantee.condition.sentence}, {SAME_RUNS}"
    if guarantee.num_clients == 1 and not guarantee.delta:
        return (
            f"Local {name}",
            f"{figure}. Different counts of one period were published. It bounds {person}: {condition}",
        )
    others = (
        f"the {guarantee.num_clients:,} clients of the smallest cohort report in each of them, too, each under one secret"
        + (", and their values do not change either" if isinstance(guarantee.condition, UnchangedValue) else "")
        if number > 1
        else f"the {guarantee.num_clients:,} reports of the smallest cohort are genuine"
    )
    text = f"{figure}, with delta {guarantee.delta:g}. It bounds {person}: {condition}; if {others}"
    return f"Central {name}", text


def _page_of_metric(
    periods: Sequence[PublishedPeriod],
    ever: Sequence[PublishedPeriod],
    folders: set[str],
    events: Sequence[Event],
    read: Read,
) -> bytes:
    """Page of a metric version, or of one value of its group; ever : periods that it has ever shown      folders : of all pages of the metric."""
    decodings = [read(period) for period in periods]
    rows = [PeriodRow.from_decoding(read(period), f"{period.period}.html") for period in periods]
    metric = decodings[0].metric
    page = render_metric(
        metric,
        rows,
        [decoding.to_dict() for decoding in decodings],
        shared_scripts("../"),
        provenance=[_about_all_periods(ever)],
        path=[("All metrics", "../index.html")],
        groups=[
            (
                collected.group.value or "",
                f"../{folder_of(collected)}/index.html" if folder_of(collected) in folders else "",
            )
            for collected in metric.collections
            if collected.group is not None and collected is not metric
        ],
        events=events,
    )
    return page.encode()


def _whole(periods: Sequence[PublishedPeriod]) -> Sequence[PublishedPeriod]:
    """Periods of all values of a group; the others if there is none."""
    return [period for period in periods if period.group is None] or periods


def _last(periods: Sequence[PublishedPeriod]) -> PublishedPeriod:
    return _whole(periods)[-1]


def _index(of_metric: dict[str, list[PublishedPeriod]], read: Read) -> bytes:
    return index_json({name: [_as_decoded(_last(periods), read)] for name, periods in of_metric.items()})


def _feed(periods: Sequence[PublishedPeriod], read: Read) -> bytes:
    return feed([_as_decoded(period, read) for period in latest(periods)])


def _front(metrics: Sequence[Sequence[PublishedPeriod]], ever: _Ever, read: Read) -> bytes:
    """Front page; metrics : periods of each metric."""
    cards = []
    for periods in metrics:
        period = periods[-1]
        decoding = read(period)
        cards.append(
            MetricCard(
                decoding.metric,
                f"{period.folder}/index.html",
                f"{FOLDER}/{decoding.metric.name}",
                period_text(decoding.metric, [period.period]),
                len(periods),
                shown_epsilon(period.epsilons[0]),
                shown_epsilon(guarantee_of_page(ever[period.folder]).epsilon),
                Highlights.of(decoding),
            )
        )
    return render_front(cards, shared_scripts("")).encode()
