"""What a run of `hubbub publish` will do with each period, and why. The plan depends on the summaries, the options and the store, on no clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from hubbub.errors import HubbubError, SummaryError
from hubbub.metrics.metric import Metric
from hubbub.text import did_you_mean, escape_control_characters, escape_untrusted
from hubbub_decoder.batch_decoding.tasks import Task, UnreadableFile
from hubbub_decoder.publishing.complete_period import (
    CompletePeriod,
    CountedPeriod,
    complete_periods,
    read_period,
    tasks_of_files,
)
from hubbub_decoder.publishing.groups import reasons_to_withhold, smallest_cohorts
from hubbub_decoder.publishing.names import is_named, page_name, short_names
from hubbub_decoder.publishing.summary_index import SummaryIndex
from hubbub_decoder.results_store.store import PeriodKey, Release, ResultsStore


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
    """What became of a period.

    It is shown; it is open, or has too few reports; its metric is estimated by another command; --withhold or --withdraw names it; or it could
    not be published.
    """

    PUBLISHED = "published"
    WAITING = "waiting"
    SKIPPED = "skipped"
    WITHHELD = "withheld"
    WITHDRAWN = "withdrawn"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PeriodResult:
    """Status of a period of a metric version, or of a file that is no summary; reason : why it is not published, or what is wrong."""

    name: str
    status: PeriodStatus
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Published:
    """What the store has published, without what was withdrawn.

    metrics  : by the digest of the definition and the value of the group
    releases : all of each period, at least one
    every    : also those that were withdrawn
    withdrawn : names
    inputs   : `StoredResult.inputs_hash`
    """

    metrics: Mapping[tuple[str, str], Metric]
    releases: Mapping[PeriodKey, tuple[Release, ...]]
    every: Mapping[PeriodKey, tuple[Release, ...]]
    withdrawn: frozenset[str]
    inputs: Mapping[PeriodKey, str]

    @classmethod
    def of(cls, store: ResultsStore, withdrawn: frozenset[str] = frozenset()) -> Published:
        """What a store has published; withdrawn : more names that count as withdrawn."""
        metrics, every, names = store.metrics(), store.releases(), store.withdrawn() | withdrawn
        shown = {key: found for key, found in every.items() if not is_named(_name(metrics, key), names)}
        return cls(metrics, shown, every, names, store.inputs_hashes())

    def name(self, key: PeriodKey) -> str:
        """Path of the page of a period, without its suffix."""
        return _name(self.metrics, key)

    def counts(self) -> dict[PeriodKey, frozenset[str]]:
        """Hashes of all counts of each period that were published."""
        return {key: frozenset(release.counts_hash for release in releases) for key, releases in self.every.items()}


def _name(metrics: Mapping[tuple[str, str], Metric], key: PeriodKey) -> str:
    return page_name(metrics[key.digest, key.group_value].name, key)


@dataclass(frozen=True, slots=True)
class PlannedRelease:
    """A period that is to be shown.

    smallest_cohort : of its release, and of all earlier ones with the same counts
    inputs_hash     : of the result
    published_counts : hash of the last counts of the period that were published; None: it is the first release
    change          : why what readers see changes; "" if it stays
    needs_decoding  : whether the store has no result of these inputs
    """

    period: CompletePeriod
    smallest_cohort: int
    inputs_hash: str
    published_counts: str | None
    change: str
    needs_decoding: bool

    @property
    def has_new_counts(self) -> bool:
        """Whether these counts are not those that were published last."""
        return self.published_counts != self.period.counts

    @property
    def replaces(self) -> bool:
        """Whether these counts replace others that were published."""
        return self.published_counts is not None and self.has_new_counts


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does.

    releases : of what is to be shown       results : of all other periods and files
    """

    releases: tuple[PlannedRelease, ...]
    results: Mapping[str, PeriodResult]


_CHANGED = (
    "its counts differ from those that were published, and a reader of both learns the reports between. Restore the summary, or pass --replace "
    "with the name of the metric: the difference then protects reports by their local epsilon alone"
)
BESIDE_KEPT = (
    "another page of the same metric and period keeps the counts that were published, because those that had to replace them could not be "
    "published, and a reader of both would learn the reports between"
)
_WITHHELD, _WITHDRAWN = "--withhold names it", "--withdraw named it, which is for good"
_MISSING = "its summary is missing: no file of the directory that can be read has this period of this definition alone. Restore the file"


def plan_releases(
    tasks: Sequence[Task],
    unreadable: Sequence[UnreadableFile],
    index: SummaryIndex,
    before: Published,
    terms: Terms,
) -> Plan:
    """Plan of a run. before : what was published, without what `terms` withdraw."""
    results = {file.name: PeriodResult(file.name, PeriodStatus.FAILED, file.reason) for file in unreadable}
    counted, inputs = list[CountedPeriod](), dict[PeriodKey, str]()
    shown, hash_of = before.counts(), cache(index.content_hash)
    for task in tasks_of_files(tasks):
        found = _counted(task, index, before, terms, shown)
        if isinstance(found, PeriodResult):
            results[task.name] = found
            continue
        try:
            inputs[found.key] = task.fingerprint(hash_of)
        except OSError as problem:
            name = escape_control_characters(str(problem.filename))
            told = f"{name} cannot be read: {problem.strerror}"
            results[task.name] = PeriodResult(task.name, PeriodStatus.FAILED, told)
        else:
            counted.append(found)
    last = {key: releases[-1].counts_hash for key, releases in before.releases.items()}
    changed = {
        period.key: reason for period in counted if (reason := _reason_to_keep(period, last.get(period.key), terms))
    }
    complete, incomplete = complete_periods(counted, last, changed)
    withheld = reasons_to_withhold(complete, terms.min_reports, before.releases.keys())
    new = {period.key for period in complete if last.get(period.key) != period.counts}
    kept = {key.whole for key in new & last.keys() & withheld.keys()}
    incomplete |= {key: BESIDE_KEPT for key in new - withheld.keys() if key.whole in kept}
    cohorts = smallest_cohorts(complete, withheld | incomplete, before.releases.keys())
    names = {period.key: period.name for period in counted}
    for status, reasons in ((PeriodStatus.FAILED, incomplete), (PeriodStatus.WAITING, withheld)):
        results |= {names[key]: PeriodResult(names[key], status, reason) for key, reason in reasons.items()}
    releases = [
        _planned(period, cohorts[period.key], inputs[period.key], before)
        for period in complete
        if period.key in cohorts
    ]
    planned = {release.period.key for release in releases}
    for key in before.releases.keys() - planned:
        name = before.name(key)
        results[name] = failed_or_withheld(results.get(name), name, terms.withheld)
    for name in (before.name(key) for key in before.every.keys() - before.releases.keys()):
        if is_named(name, terms.withdrawn):
            results[name] = PeriodResult(name, PeriodStatus.WITHDRAWN, _WITHDRAWN)
    return Plan(tuple(releases), results)


def _counted(
    task: Task, index: SummaryIndex, before: Published, terms: Terms, shown: Mapping[PeriodKey, frozenset[str]]
) -> CountedPeriod | PeriodResult:
    """Counts of a task, or why it has none that are published."""
    if is_named(task.name, before.withdrawn):
        return PeriodResult(task.name, PeriodStatus.WITHDRAWN, _WITHDRAWN)
    if is_named(task.name, terms.withheld):
        return PeriodResult(task.name, PeriodStatus.WITHHELD, _WITHHELD)
    if task.other_command:
        return PeriodResult(task.name, PeriodStatus.SKIPPED, task.reason_to_skip or "")
    try:
        found = read_period(task, index.read, shown, terms.min_reports)
    except HubbubError as problem:
        return PeriodResult(task.name, PeriodStatus.FAILED, str(problem))
    return PeriodResult(task.name, PeriodStatus.WAITING, found) if isinstance(found, str) else found


def _reason_to_keep(period: CountedPeriod, published: str | None, terms: Terms) -> str | None:
    """Why the counts of a period do not replace those that were published; None: they do, or are the same, or the first."""
    if published in (None, period.counts):
        return None
    if not is_named(period.name, terms.replaced):
        return _CHANGED
    if period.num_reports < terms.min_reports:
        return f"its counts differ from those that were published, and have fewer than {terms.min_reports:,} reports"
    return None


def _planned(period: CompletePeriod, smallest_cohort: int, inputs: str, before: Published) -> PlannedRelease:
    """Planned release; smallest_cohort : of tonight. What readers have learned from earlier releases of the same counts, they still know."""
    releases = before.releases.get(period.key, ())
    known = [release.smallest_cohort for release in releases if release.counts_hash == period.counts]
    smallest_cohort = min([smallest_cohort, *known])
    is_decoded = bool(releases) and before.inputs.get(period.key) == inputs
    if not releases:
        change = f"its {period.num_reports:,} reports are complete"
    elif period.counts != releases[-1].counts_hash:
        change = "--replace accepts its changed counts"
    elif not is_decoded:
        change = "its candidates, the options, the bytes of its summary or the release of hubbub changed"
    elif smallest_cohort != releases[-1].smallest_cohort:
        change = "its epsilon changes with the values of its group that readers know"
    else:
        change = ""
    published = releases[-1].counts_hash if releases else None
    return PlannedRelease(period, smallest_cohort, inputs, published, change, not is_decoded)


def failed_or_withheld(result: PeriodResult | None, name: str, withheld: Collection[str]) -> PeriodResult:
    """Result of a period that was published before, and that this run does not publish again; result : None without a summary."""
    if is_named(name, withheld):
        return PeriodResult(name, PeriodStatus.WITHHELD, _WITHHELD)
    reason = (_MISSING if result is None else result.reason).removesuffix(".")
    remedy = f"What was published stays; --withdraw {short_names(name)[1]} takes it off the site"
    return PeriodResult(name, PeriodStatus.FAILED, f"{reason}. {remedy}")


class ChangeKind(StrEnum):
    """What a run does to a page of a period."""

    APPEARS = "appears"
    CHANGES = "changes"
    DISAPPEARS = "disappears"


@dataclass(frozen=True, slots=True)
class Change:
    """A page of a period that a run adds, changes or takes off the site, with the reason."""

    name: str
    kind: ChangeKind
    reason: str


def changes(plan: Plan, before: Published, terms: Terms, shown: Set[str], outdated: Set[str]) -> list[Change]:
    """What a plan changes, in the order of the names.

    before   : as for the plan      shown : pages that the site has now
    outdated : of these, the ones that differ from what the store has
    """
    planned = {release.period.name: release.change for release in plan.releases}
    known = {before.name(key) for key in before.releases}
    later = {name for name in known | planned.keys() if not is_named(name, terms.withheld)}
    found = [
        Change(name, ChangeKind.DISAPPEARS, _WITHDRAWN if is_named(name, before.withdrawn) else _WITHHELD)
        for name in shown - later
    ]
    found += [Change(name, ChangeKind.APPEARS, planned.get(name) or _RETURNS) for name in later - shown]
    beside = _names_beside_replaced(plan, before)
    for name in later & shown:
        reason = planned.get(name) or (_REPLACED if name in beside else "")
        if reason or name in outdated:
            found.append(Change(name, ChangeKind.CHANGES, reason or _OUTDATED))
    return sorted(found, key=lambda change: change.name)


_RETURNS = "no option withholds it any more"
_REPLACED = (
    "--replace accepts changed counts of the same metric and period, so its composed epsilon is that of a report"
)
_OUTDATED = "the release of hubbub changed, or a run recorded it and did not end"


def _names_beside_replaced(plan: Plan, before: Published) -> set[str]:
    """Pages of the metric versions and periods of which counts are replaced, also of another value of the group."""
    replaced = {release.period.key.whole for release in plan.releases if release.replaces}
    return {before.name(key) for key in before.releases if key.whole in replaced}
