"""Publish the results of a directory of summaries as a static site, which changes by one rename.

SITE                       a symbolic link to one of the versions: what a web server shows
SITE.files/
    000001/, 000002/       the last two versions, so that a reader of the older one still finds its files
    private/               decoded results, kept while their inputs stay the same; and the log of all releases, mode 0700
"""

from __future__ import annotations

import fcntl
import io
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from pathlib import Path

from hubbub.errors import HubbubError, SummaryError
from hubbub.files.private_file import make_private_directory
from hubbub.privacy.central import RELEASE_DELTA
from hubbub.privacy.pricing import shown_epsilon
from hubbub.summary import read_collected
from hubbub.text import did_you_mean, escape_untrusted
from hubbub_decoder.batch_decoding.run import Outcome, Status, result_paths, run_tasks
from hubbub_decoder.batch_decoding.tasks import Task, UnreadableFile, content_hash, folder_of
from hubbub_decoder.errors import CandidateError, OutputError
from hubbub_decoder.model.evidence import Evidence, combine
from hubbub_decoder.publishing.groups import Candidate, reasons_to_withhold, releases_of
from hubbub_decoder.publishing.releases import Release, ReleaseLog, reason_to_withhold
from hubbub_decoder.publishing.tables import FOLDER, Published, feed, index_json, metric_csv, metric_json
from hubbub_decoder.report.about import period_text, provenance_rows
from hubbub_decoder.report.decoding_page import render_decoding
from hubbub_decoder.report.highlights import Highlights
from hubbub_decoder.report.metric_page import PeriodRow, render_metric
from hubbub_decoder.report.published_page import MetricCard, render_front
from hubbub_decoder.report.rendering import SHARED_SCRIPT, shared_script, shared_scripts
from hubbub_decoder.results.decoding import Decoding

_KEPT_VERSIONS = 2
_LOG, _PRIVATE, _UNFINISHED = "releases.jsonl", "private", "unfinished"


@dataclass(frozen=True, slots=True)
class Terms:
    """What is published.

    min_reports : of a period
    withheld    : names of metrics of which nothing is published
    replaced    : names of metrics of which changed counts replace those that were published
    """

    min_reports: int
    withheld: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()

    def check_names(self, names: Iterable[str]) -> None:
        """Raise SummaryError if a metric that is to be withheld or replaced is none of these: a misspelled name would publish it."""
        known = sorted(set(names))
        for name in sorted(self.withheld | self.replaced):
            if name not in known:
                raise SummaryError(
                    f"No summary is of a metric {escape_untrusted(name)}.{did_you_mean(name, known)} Check --withhold and --replace."
                )


class PeriodStatus(StrEnum):
    """What became of a period."""

    PUBLISHED = "published"
    WITHHELD = "withheld"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PeriodResult:
    """Status of a period of a metric version, or of a file that is no summary; reason : why it is not published, or what is wrong."""

    name: str
    status: PeriodStatus
    reason: str = ""


def publish(
    tasks: Sequence[Task],
    unreadable: Sequence[UnreadableFile],
    site: Path,
    terms: Terms,
    now: datetime,
    *,
    processes: int = 1,
    show: Callable[[Iterator[Outcome], int], Iterator[Outcome]] = lambda outcomes, _: outcomes,
) -> list[PeriodResult]:
    """Decode what may be published, write a new version of the site, and show it.

    tasks : with the suffix .json      now : UTC      show : outcomes of decodings with their number, as they pass

    The files depend on the summaries, the candidates, the options and this release of hubbub, and on the time only by what is closed.

    Raises OutputError if the site cannot be written, if another process publishes it, and for a `site` that this function did not make.
    """
    with _files_of(site) as files:
        private = files / _PRIVATE
        log = ReleaseLog(private / _LOG)
        results = [PeriodResult(file.name, PeriodStatus.FAILED, file.reason) for file in unreadable]
        found = [_candidate(task, terms, now) for task in tasks]
        results += [each for each in found if isinstance(each, PeriodResult)]
        candidates = [each for each in found if isinstance(each, Candidate)]
        withheld = reasons_to_withhold(candidates, terms.min_reports)
        results += [PeriodResult(name, PeriodStatus.WITHHELD, reason) for name, reason in withheld.items()]
        chosen = list(releases_of(candidates, withheld))
        to_decode = [task for task, release in chosen if not _is_changed(log.of(release), release, task, terms)]
        outcomes = {each.name: each for each in show(run_tasks(to_decode, (), private, processes), len(to_decode))}
        published: list[Published] = []
        for task, release in chosen:
            outcome, releases = outcomes.get(task.name, _CHANGED), log.of(release)
            if outcome.status in (Status.DECODED, Status.UNCHANGED):
                results.append(PeriodResult(task.name, PeriodStatus.PUBLISHED))
                releases = releases if releases[-1:] == (release,) else (*releases, release)
            else:
                results.append(PeriodResult(task.name, PeriodStatus.FAILED, outcome.reason))
            if (
                releases and result_paths(private, task)[0].is_file()
            ):  # also of a period that failed now and was published before
                published.append(Published(task.metric, task.periods[0], releases, task.name.partition("/")[0]))
        _delete_results(private, {each.name for each in published})
        _write_version(files / _UNFINISHED, private, published)
        for each in published:
            log.add_missing(each.releases)
        _show_version(files, site)
    return sorted(results, key=lambda each: each.name)


_CHANGED = Outcome(
    "", Status.FAILED, "its counts differ from those that were published, and a reader of both learns the reports between. The published result "
    "stays. Restore the summary, or pass --replace with the name of the metric: the difference then protects reports by their local epsilon alone",
)  # fmt: skip


def _candidate(task: Task, terms: Terms, now: datetime) -> Candidate | PeriodResult:
    """Release of the counts of a task, or why there is none."""
    reason = "--withhold names the metric" if task.metric.name in terms.withheld else task.reason_to_skip
    try:
        reason = reason or reason_to_withhold(task.metric, task.periods, now)
        if reason is None:
            _check_approved(task.candidates)
            counts = Evidence(combine([read_collected(path) for path in task.files])).counts
            return Candidate(task, Release.of(counts, task.periods[0]), counts.reports)
    except HubbubError as problem:
        return PeriodResult(task.name, PeriodStatus.FAILED, str(problem))
    return PeriodResult(task.name, PeriodStatus.WITHHELD, reason)


def _check_approved(candidates: Path | None) -> None:
    """Raise CandidateError for a table of results: strings that `hubbub discover` found are published when somebody has listed them."""
    try:
        with candidates.open("rb") if candidates is not None else nullcontext(io.BytesIO()) as file:
            header = file.readline(1_000).strip().split(b",")
    except OSError as problem:
        raise CandidateError(f"{candidates} cannot be read: {problem.strerror}.") from None
    if b"share" in header:
        raise CandidateError(f"{candidates} is a table of results. List the strings that may be published, one a line.")


def _is_changed(before: tuple[Release, ...], release: Release, task: Task, terms: Terms) -> bool:
    """Whether other counts of the period were published, and must not be replaced."""
    return bool(before) and release.counts != before[-1].counts and task.metric.name not in terms.replaced


def _delete_results(private: Path, published: set[str]) -> None:
    """Delete the results of everything that is not published any more."""
    for path in private.glob("*/*.json"):
        if path.relative_to(private).with_suffix("").as_posix() not in published:
            path.unlink()


def _write_version(place: Path, private: Path, published: Sequence[Published]) -> None:
    """Write all files of a version."""
    shutil.rmtree(place, ignore_errors=True)
    (place / FOLDER).mkdir(parents=True)
    (place / SHARED_SCRIPT).write_text(shared_script(), encoding="utf-8")
    cards: list[MetricCard] = []
    by_metric: dict[str, list[Published]] = {}
    for name, group in groupby(
        sorted(published, key=lambda each: (each.metric.name, each.period, each.folder)),
        key=lambda each: each.metric.name,
    ):
        by_metric[name] = periods = list(group)
        decodings = [_decoding(private, each) for each in periods]
        for each, decoding in zip(periods, decodings, strict=True):
            _write_period(place, each, decoding)
        for folder in dict.fromkeys(each.folder for each in periods):
            of_folder = [(each, d) for each, d in zip(periods, decodings, strict=True) if each.folder == folder]
            _write_metric(place, of_folder, {each.folder for each in periods})
        both = list(zip(periods, decodings, strict=True))
        (place / FOLDER / f"{name}.json").write_bytes(metric_json(both))
        (place / FOLDER / f"{name}.csv").write_bytes(metric_csv(both))
        whole = [(each, decoding) for each, decoding in both if each.group is None]
        last, decoding = (whole or both)[-1]
        epsilon, address = shown_epsilon(last.epsilons[0]), f"{last.folder}/index.html"
        highlights = Highlights.of(decoding)
        cards.append(
            MetricCard(
                last.metric,
                address,
                f"{FOLDER}/{name}",
                period_text(last.metric, [last.period]),
                len(whole or both),
                epsilon,
                highlights,
            )
        )
    (place / FOLDER / "index.json").write_bytes(index_json(by_metric))
    (place / "feed.xml").write_bytes(feed(published))
    (place / "index.html").write_text(render_front(cards, shared_scripts("")), encoding="utf-8")


def _decoding(private: Path, each: Published) -> Decoding:
    """Result of a period, without the bits by which unlisted strings could be recognized: nobody approved these."""
    path = private / f"{each.name}.json"
    try:
        decoding = Decoding.from_dict(json.loads(path.read_bytes()))
    except (HubbubError, OSError, ValueError, KeyError, TypeError):
        raise OutputError(f"{path} is damaged. Delete it, and run `hubbub publish` again.") from None
    return replace(
        decoding,
        unlisted_strings=tuple(replace(found, signature=(), matches=()) for found in decoding.unlisted_strings),
    )


def _write_period(place: Path, each: Published, decoding: Decoding) -> None:
    own, composed = each.epsilons
    provenance = [
        ("Central epsilon of the published counts", f"{shown_epsilon(own)}, with delta {RELEASE_DELTA:g}"),
        ("Central epsilon of all counts of the period that were published", shown_epsilon(composed)),
        *provenance_rows(decoding, (), ()),
    ]
    links = [("All metrics", "../index.html"), (each.metric.name, "index.html")]
    page = render_decoding(decoding, shared_scripts("../"), provenance=provenance, path=links)
    (place / each.folder).mkdir(exist_ok=True)
    (place / each.address).write_text(page, encoding="utf-8")


def _write_metric(place: Path, periods: Sequence[tuple[Published, Decoding]], folders: set[str]) -> None:
    """Write the page of a metric version, or of one value of its group; folders : of all pages of the metric."""
    rows = [PeriodRow.from_decoding(decoding, f"{each.period}.html") for each, decoding in periods]
    first, _ = periods[0]
    page = render_metric(
        first.metric,
        rows,
        [decoding.to_dict() for _, decoding in periods],
        shared_scripts("../"),
        path=[("All metrics", "../index.html")],
        groups=[
            (each.group.value or "", f"../{folder_of(each)}/index.html" if folder_of(each) in folders else "")
            for each in first.metric.collections
            if each.group is not None and each is not first.metric
        ],
    )
    (place / first.folder / "index.html").write_text(page, encoding="utf-8")


@contextmanager
def _files_of(site: Path) -> Iterator[Path]:
    """Directory of the versions, which no other process changes until the end of the block."""
    files = site.parent / f"{site.name}.files"
    if not site.is_symlink() and site.exists():
        raise OutputError(f"{site} is not a site that `hubbub publish` made. Name a path where nothing is.")
    if site.is_symlink() and site.readlink().parent != Path(files.name):
        raise OutputError(f"{site} links to {site.readlink()}, which `hubbub publish` did not make. Name another path.")
    try:
        files.mkdir(exist_ok=True)
        make_private_directory(files / _PRIVATE)
        with (files / _PRIVATE / "lock").open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OutputError(f"{site} is being published by another process. Wait until it ends.") from None
            yield files
    except OSError as problem:
        raise OutputError(f"{problem.filename or site} cannot be written: {problem.strerror}.") from None


def _show_version(files: Path, site: Path) -> None:
    """Give the new version its number and link to it, unless it has the same files as the version that is shown."""
    new = files / _UNFINISHED
    if site.exists() and _content(site.resolve()) == _content(new):
        shutil.rmtree(new)
        return
    numbers = sorted(int(path.name) for path in files.iterdir() if path.name.isdecimal())
    version = new.rename(files / f"{max(numbers, default=0) + 1:06}")
    link = files / "link"
    link.unlink(missing_ok=True)
    link.symlink_to(Path(files.name, version.name))
    link.replace(site)
    for number in numbers[: 1 - _KEPT_VERSIONS]:
        shutil.rmtree(files / f"{number:06}")


def _content(place: Path) -> dict[str, str]:
    """SHA-256 of all files by their relative paths."""
    paths = sorted(path for path in place.rglob("*") if path.is_file())
    return {path.relative_to(place).as_posix(): content_hash(path) for path in paths}
