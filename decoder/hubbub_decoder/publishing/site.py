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
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from pathlib import Path

from hubbub.errors import HubbubError, SummaryError
from hubbub.files.private_file import make_private_directory
from hubbub.files.regular_files import open_regular
from hubbub.privacy.central import RELEASE_DELTA
from hubbub.privacy.pricing import shown_epsilon
from hubbub.text import did_you_mean, escape_untrusted
from hubbub_decoder.batch_decoding.run import Outcome, Status, run_tasks
from hubbub_decoder.batch_decoding.tasks import Task, UnreadableFile, content_hash, folder_of
from hubbub_decoder.errors import CandidateError, OutputError
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.publishing.groups import Candidate, reasons_of_incomplete_groups, reasons_to_withhold, releases_of
from hubbub_decoder.publishing.releases import (
    Release,
    ReleaseLog,
    is_named,
    is_replaced,
    reason_to_withhold,
    short_names,
)
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
    """What is published. Names are METRIC, or METRIC/PERIOD.

    min_reports : of a period
    withheld    : of what is not shown as long as they are given
    withdrawn   : of what is never shown again
    replaced    : of what is published with other counts, in place of those that were
    """

    min_reports: int
    withheld: frozenset[str] = frozenset()
    withdrawn: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()

    def check_names(self, periods: Iterable[str]) -> None:
        """Raise SummaryError for a name of none of these periods: a misspelled one would publish what it should withhold."""
        known = sorted({name for period in periods for name in short_names(period)})
        for name in sorted(self.withheld | self.withdrawn | self.replaced):
            if name not in known:
                raise SummaryError(
                    f"No summary and no published page is of {escape_untrusted(name)}.{did_you_mean(name, known)} "
                    "Check --withhold, --withdraw and --replace."
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
    *,
    processes: int = 1,
    show: Callable[[Iterator[Outcome], int], Iterator[Outcome]] = lambda outcomes, _: outcomes,
) -> list[PeriodResult]:
    """Decode what may be published, write a new version of the site, and show it.

    tasks : with the suffix .json      show : outcomes of decodings with their number, as they pass

    The site shows what the log of releases lists, without what is withheld. So a published period stays as it was, and fails, if its inputs
    do not allow to publish it again.

    The files depend on the summaries, the candidates, the options and this release of hubbub, and on no clock: a summary says whether its
    periods were closed.

    Raises OutputError if the site cannot be written, if another process publishes it, and for a `site` that this function did not make.
    Raises SummaryError if there is nothing to publish, and for a name in `terms` of which nothing is known.
    """
    with _files_of(site) as files:
        private = files / _PRIVATE
        log = ReleaseLog(private / _LOG)
        if not (tasks or unreadable or log.names):
            raise SummaryError("There is no summary to publish. `hubbub pull` writes one for each metric.")
        terms.check_names([*(task.name for task in tasks), *log.names])
        before = log.published()
        log.withdraw(terms.withdrawn)
        found = [_candidate(task, terms, log) for task in _with_own_files(tasks)]
        results = {result.name: result for result in found if isinstance(result, PeriodResult)}
        candidates = [candidate for candidate in found if isinstance(candidate, Candidate)]
        changed = {
            candidate.task.name
            for candidate in candidates
            if _is_changed(log.of(candidate.task.name), candidate.release, terms)
        }
        incomplete = reasons_of_incomplete_groups(candidates, before.keys(), changed)
        results |= {name: PeriodResult(name, PeriodStatus.FAILED, reason) for name, reason in incomplete.items()}
        candidates = [candidate for candidate in candidates if candidate.task.name not in incomplete]
        withheld = reasons_to_withhold(candidates, terms.min_reports, before.keys())
        results |= {name: PeriodResult(name, PeriodStatus.WITHHELD, reason) for name, reason in withheld.items()}
        chosen = list(releases_of(candidates, withheld, before.keys()))
        to_decode = [replace(task, suffixes=(release.suffix,)) for task, release in chosen if task.name not in changed]
        outcomes = {each.name: each for each in show(run_tasks(to_decode, (), private, processes), len(to_decode))}
        shown = {name: of for name, of in log.published().items() if not is_named(name, terms.withheld)}
        for task, release in chosen:
            outcome, releases = outcomes.get(task.name, _CHANGED), log.of(task.name)
            if outcome.status in (Status.DECODED, Status.UNCHANGED):
                results[task.name] = PeriodResult(task.name, PeriodStatus.PUBLISHED)
                shown[task.name] = releases if releases[-1:] == (release,) else (*releases, release)
            else:
                results[task.name] = PeriodResult(task.name, PeriodStatus.FAILED, outcome.reason)
        results |= {name: _result_of_published(name, results.get(name), name in shown) for name in before}
        _delete_results(private, {releases[-1].result for releases in (*shown.values(), *log.published().values())})
        every = (*shown.values(), *(log.of(name) for name in log.names))
        replaced = {releases[-1].whole for releases in every if is_replaced(releases)}
        _write_version(files / _UNFINISHED, private, shown.values(), replaced)
        for releases in shown.values():
            log.add_missing(releases)
        _show_version(files, site)
    failed = [PeriodResult(file.name, PeriodStatus.FAILED, file.reason) for file in unreadable]
    return sorted([*results.values(), *failed], key=lambda each: each.name)


_CHANGED = Outcome(
    "", Status.FAILED, "its counts differ from those that were published, and a reader of both learns the reports between. "
    "Restore the summary, or pass --replace with the name of the metric: the difference then protects reports by their local epsilon alone",
)  # fmt: skip
_OPEN = (
    "its file does not say that the period was closed when the reports were counted, and who reads an open period twice learns the reports "
    "between. When the aggregator has closed it, pull or fold the counts again"
)
_WITHHELD, _WITHDRAWN = "--withhold names it", "--withdraw named it, which is for good"
_MISSING = "its summary is missing: no file of the directory that can be read has this period of this definition alone. Restore the file"


def _result_of_published(name: str, result: PeriodResult | None, is_shown: bool) -> PeriodResult:
    """Result of a period that was published before; result : of this run, None without a summary."""
    if not is_shown:
        return result or PeriodResult(name, PeriodStatus.WITHHELD, "--withhold or --withdraw names it")
    if result is not None and result.status is PeriodStatus.PUBLISHED:
        return result
    reason = (_MISSING if result is None else result.reason).removesuffix(".")
    remedy = f"What was published stays; --withdraw {short_names(name)[1]} takes it off the site"
    return PeriodResult(name, PeriodStatus.FAILED, f"{reason}. {remedy}")


def _with_own_files(tasks: Sequence[Task]) -> list[Task]:
    """Tasks without the sums over groups that were computed from files of their values: such a sum shows no missing value."""
    of_values = [task for task in tasks if task.metric.group and task.metric.group.value]
    files = {file for task in of_values for file in task.files}
    return [task for task in tasks if task in of_values or files.isdisjoint(task.files)]


def _candidate(task: Task, terms: Terms, log: ReleaseLog) -> Candidate | PeriodResult:
    """Release of the counts of a task, or why there is none."""
    reason = _WITHDRAWN if is_named(task.name, log.withdrawn) else None
    reason = reason or (_WITHHELD if is_named(task.name, terms.withheld) else task.reason_to_skip)
    try:
        reason = reason or reason_to_withhold(task.periods)
        if reason is None:
            _check_approved(task.candidates)
            if len(task.files) > 1:
                names = ", ".join(escape_untrusted(file.name) for file in task.files)
                raise SummaryError(
                    f"several files have this period, where one has all its reports: keep one of {names}"
                )
            counts = Evidence(task.read()).counts
            candidate = Candidate.of(task, counts)
            if counts.closed or candidate.release.counts in {release.counts for release in log.of(task.name)}:
                return candidate
            reason = _OPEN
    except HubbubError as problem:
        return PeriodResult(task.name, PeriodStatus.FAILED, str(problem))
    return PeriodResult(task.name, PeriodStatus.WITHHELD, reason)


def _check_approved(candidates: Path | None) -> None:
    """Raise CandidateError for a table of results: strings that `hubbub discover` found are published when somebody has listed them."""
    try:
        with open_regular(candidates) if candidates is not None else nullcontext(io.BytesIO()) as file:
            header = file.readline(1_000).strip().split(b",")
    except OSError as problem:
        raise CandidateError(f"{candidates} cannot be read: {problem.strerror}.") from None
    if b"share" in header:
        raise CandidateError(f"{candidates} is a table of results. List the strings that may be published, one a line.")


def _is_changed(before: tuple[Release, ...], release: Release, terms: Terms) -> bool:
    """Whether other counts of the period were published, and must not be replaced."""
    return bool(before) and release.counts != before[-1].counts and not is_named(release.name, terms.replaced)


def _delete_results(private: Path, kept: set[str]) -> None:
    """Delete the results of what was withdrawn or replaced, or decoded by a run that did not publish it."""
    for path in private.glob("*/*.json"):
        if path.relative_to(private).as_posix() not in kept:
            path.unlink()


def _write_version(
    place: Path, private: Path, shown: Iterable[tuple[Release, ...]], replaced: Collection[tuple[str, str]]
) -> None:
    """Write all files of a version; shown : all releases of each period      replaced : metric versions and periods of changed counts."""
    shutil.rmtree(place, ignore_errors=True)
    (place / FOLDER).mkdir(parents=True)
    (place / SHARED_SCRIPT).write_text(shared_script(), encoding="utf-8")
    cards: list[MetricCard] = []
    by_metric: dict[str, list[Published]] = {}
    for name, group in groupby(sorted(shown, key=_order), key=lambda releases: _order(releases)[0]):
        both = [_published(private, releases, replaced) for releases in group]
        by_metric[name] = periods = [each for each, _ in both]
        decodings = [decoding for _, decoding in both]
        for each, decoding in zip(periods, decodings, strict=True):
            _write_period(place, each, decoding)
        for folder in dict.fromkeys(each.folder for each in periods):
            of_folder = [(each, d) for each, d in zip(periods, decodings, strict=True) if each.folder == folder]
            _write_metric(place, of_folder, {each.folder for each in periods})
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
    (place / "feed.xml").write_bytes(feed([each for periods in by_metric.values() for each in periods]))
    (place / "index.html").write_text(render_front(cards, shared_scripts("")), encoding="utf-8")


def _order(releases: tuple[Release, ...]) -> tuple[str, str, str]:
    """Metric, period and folder."""
    last = releases[-1]
    return short_names(last.name)[0], last.period, last.folder


def _published(
    private: Path, releases: tuple[Release, ...], replaced: Collection[tuple[str, str]]
) -> tuple[Published, Decoding]:
    """A period with its kept result, without the bits by which unlisted strings could be recognized: nobody approved these."""
    last = releases[-1]
    path = private / last.result
    try:
        decoding = Decoding.from_dict(json.loads(path.read_bytes()))
    except (HubbubError, OSError, ValueError, KeyError, TypeError):
        raise OutputError(
            f"{path} is missing or damaged, and the site stays as it was. Restore the file from a backup, or delete it and restore its summary, "
            f"and run `hubbub publish` again. --withdraw {short_names(last.name)[1]} takes the period off the site."
        ) from None
    unlisted = tuple(replace(found, signature=(), matches=()) for found in decoding.unlisted_strings)
    page = Published(decoding.metric, last.period, releases, last.folder, last.whole in replaced)
    return page, replace(decoding, unlisted_strings=unlisted)


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
