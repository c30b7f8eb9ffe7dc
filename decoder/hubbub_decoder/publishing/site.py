"""Publish the results of a directory of summaries as a static site, which changes by one rename.

SITE                       a symbolic link to one of the versions: what a web server shows
SITE.files/
    VERSION/               the last two versions, so that a reader of the older one still finds its files, unless it has a withdrawn page
    private/               mode 0700
        results.sqlite     the results, with all releases and withdrawals: the site is made from it and the events alone
        published.json     how many releases and which withdrawals the file of results had, so that an older one is not taken for it
        VERSION.json       what each file of a version depends on, of which the version is named by the hash

A run reads what is new, plans, decodes, records, and shows what the store has. What a run recorded before it was killed, the next run shows.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO

from hubbub.errors import SummaryError
from hubbub.files.private_file import make_private_directory
from hubbub.files.regular_files import OddEntry, files_below
from hubbub_decoder.batch_decoding.run import Outcome, Status, decode_tasks
from hubbub_decoder.batch_decoding.tasks import CANDIDATE_SUFFIXES, find_tasks, releases
from hubbub_decoder.data.events import Event
from hubbub_decoder.data.output_files import atomic_write
from hubbub_decoder.errors import OutputError
from hubbub_decoder.options import Options
from hubbub_decoder.publishing.groups import composed_epsilon
from hubbub_decoder.publishing.names import is_named
from hubbub_decoder.publishing.pages import SiteFile, site_files
from hubbub_decoder.publishing.plan import (
    BESIDE_KEPT,
    Change,
    PeriodResult,
    PeriodStatus,
    Plan,
    PlannedRelease,
    Published,
    Terms,
    changes,
    failed_or_withheld,
    plan_releases,
)
from hubbub_decoder.publishing.summary_index import SummaryIndex
from hubbub_decoder.results_store.store import FileStamp, PeriodKey, Release, ResultsStore, Run, StoredResult, text_hash

_PRIVATE, _STORE, _PUBLISHED = "private", "results.sqlite", "published.json"
_UNFINISHED, _REMOVED, _LINK, _LOCK = "unfinished", "removed", "link", "lock"
_NAME_DIGITS = 16
_VERSION_NAME = re.compile(f"[0-9a-f]{{{_NAME_DIGITS}}}")


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is published.

    candidates : directory with a file METRIC.txt or METRIC.csv for each string metric, or one file for all of them
    options    : of `decode`
    events     : that the pages of metrics mark
    """

    directory: Path
    candidates: Path | None
    options: Options
    events: tuple[Event, ...] = ()

    def stamp(self, terms: Terms) -> str | None:
        """SHA-256 of all that a run depends on beside the store, with the stamps of the files in place of their contents.

        A file that is written anew with the same size, times and inode is taken for the same, as by `make` and Git. None: the directory of
        the candidates cannot be listed, so a change of them would not be seen.
        """
        try:
            candidates = list(self._candidate_files())
        except OSError:
            return None
        entries = [_entry(entry) for entry in [*files_below(self.directory, ".parquet"), *candidates]]
        names = [sorted(chosen) for chosen in (terms.withheld, terms.withdrawn, terms.replaced)]
        fields = [
            releases(),
            asdict(self.options),
            terms.min_reports,
            names,
            str(self.candidates),
            entries,
            list(map(asdict, self.events)),
        ]
        return text_hash(json.dumps(fields))

    def _candidate_files(self) -> Iterator[Path]:
        if self.candidates is None:
            return
        if not self.candidates.is_dir():
            yield self.candidates
            return
        yield from sorted(path for path in self.candidates.iterdir() if path.suffix in CANDIDATE_SUFFIXES)


def _entry(entry: Path | OddEntry) -> tuple[str, FileStamp | str]:
    """Path of a file with its stamp, or with the reason why it cannot be read."""
    if isinstance(entry, OddEntry):
        return str(entry.path), entry.reason
    try:
        return str(entry.absolute()), FileStamp.of(entry)
    except OSError as problem:
        return str(entry.absolute()), str(problem.strerror)


Show = Callable[[Iterator[tuple[Outcome, str]], int], Iterable[tuple[Outcome, str]]]
"""Yields what it gets, with the number of items, and shows how many have passed."""


def publish(
    inputs: Inputs, site: Path, terms: Terms, *, processes: int = 1, show: Show = lambda items, _: items
) -> list[PeriodResult]:
    """Decode what may be published, write a new version of the site, and show it.

    The site shows what the store has, without what is withheld. So a published period stays as it was, and fails, if its inputs do not allow
    to publish it again. The files depend on the store, the events and this release of hubbub, and on no clock.

    Raises OutputError if the site cannot be written, if another process publishes it, for a `site` that this function did not make, and for a
    file of results that is missing or older than the site.
    Raises SummaryError if there is nothing to publish, and for a name in `terms` of which nothing is known.
    """
    with _files_of(site) as files, ResultsStore(files / _PRIVATE / _STORE) as store:
        _set_mode(files / _PRIVATE / _STORE, 0o600)
        _check_store(store, files, site)
        stamp = inputs.stamp(terms)
        last = store.last_run()
        if last is not None and last.inputs_hash == stamp and _is_shown(last.site_version, files, site):
            return [PeriodResult(name, PeriodStatus(status), reason) for name, status, reason in last.periods]
        plan, index = _plan(inputs, store, terms)
        if index.new or index.gone:
            store.write_summaries(index.new, index.gone)
        before = Published.of(store)
        store.withdraw(terms.withdrawn, [key for key in before.releases if is_named(before.name(key), terms.withdrawn)])
        results = {**plan.results, **{result.name: result for result in _record(plan, store, before, processes, show)}}
        published = Published.of(store)
        _write_published(store, published, files)
        version = _show(site_files(store, published, terms.withheld, inputs.events), files, site)
        _remove_versions(
            {name for name in _versions(files) - {version} if _has_page(name, published.withdrawn, files)}, files
        )
        found = sorted(results.values(), key=lambda result: result.name)
        if stamp is not None and not any(result.status is PeriodStatus.FAILED for result in found):
            store.remember_run(
                Run(stamp, version, tuple((result.name, result.status, result.reason) for result in found))
            )
    return found


def preview(inputs: Inputs, site: Path, terms: Terms) -> tuple[list[PeriodResult], list[Change]]:
    """What `publish` would do with each period, and which pages it would change; nothing is decoded or written.

    A decoding that will fail counts as published. Raises as `publish`.
    """
    with _unchanged_files_of(site) as files, ResultsStore(files / _PRIVATE / _STORE, copy=True) as store:
        _check_store(store, files, site)
        plan, _ = _plan(inputs, store, terms)
        before = Published.of(store, terms.withdrawn)
        stored = {file.path: file.inputs_hash for file in site_files(store, before, terms.withheld, inputs.events)}
        manifest = _manifest(files, site.readlink().name) if site.is_symlink() else {}
        shown = {f"{path.parent.name}/{path.stem}" for path in site.glob("*@*/*.html") if path.stem != "index"}
    outdated = {name for name in shown if manifest.get(f"{name}.html") != stored.get(f"{name}.html")}
    published = {
        release.period.name: PeriodResult(release.period.name, PeriodStatus.PUBLISHED) for release in plan.releases
    }
    results = sorted((published | {**plan.results}).values(), key=lambda result: result.name)
    return results, changes(plan, before, terms, shown, outdated)


def _plan(inputs: Inputs, store: ResultsStore, terms: Terms) -> tuple[Plan, SummaryIndex]:
    index = SummaryIndex(store.summaries())
    tasks, unreadable = find_tasks(
        inputs.directory, inputs.candidates, inputs.options, read_header=index.header, may_be_empty=True
    )
    published = Published.of(store)
    if not (tasks or unreadable or published.every):
        raise SummaryError("There is no summary to publish. `hubbub pull` writes one for each metric.")
    terms.check_names([*(task.name for task in tasks), *map(published.name, published.every)])
    return plan_releases(tasks, unreadable, index, Published.of(store, terms.withdrawn), terms), index


def _record(plan: Plan, store: ResultsStore, before: Published, processes: int, show: Show) -> Iterator[PeriodResult]:
    """Decode what has no result, record it, and yield what became of each period.

    The values of a group and their sum are recorded in one transaction, when all are decoded.
    """
    groups = dict[PeriodKey, list[PlannedRelease]]()
    for release in plan.releases:
        groups.setdefault(release.period.key.whole, []).append(release)
    releases = dict[PeriodKey, list[Release]]()
    for key, found in before.every.items():
        releases.setdefault(key.whole, []).extend(found)
    group_of = {release.period.name: key for key, group in groups.items() for release in group}
    tasks = [
        replace(release.period.task, counts=release.period.counts)
        for release in plan.releases
        if release.needs_decoding
    ]
    to_decode = {key: sum(release.needs_decoding for release in group) for key, group in groups.items()}
    decoded = dict[str, tuple[Outcome, str]]()
    for key in [key for key, number in to_decode.items() if not number]:
        yield from _record_group(groups[key], decoded, releases.get(key, []), store)
    for outcome, document in show(decode_tasks(tasks, processes), len(tasks)):
        key = group_of[outcome.name]
        decoded[outcome.name] = outcome, document
        to_decode[key] -= 1
        if not to_decode[key]:
            yield from _record_group(groups[key], decoded, releases.get(key, []), store)


def _record_group(
    group: Sequence[PlannedRelease],
    decoded: dict[str, tuple[Outcome, str]],
    before: Sequence[Release],
    store: ResultsStore,
) -> list[PeriodResult]:
    """Record a period of a definition, with all values of its group; decoded : is emptied of these      before : all of their releases.

    If one page of which the counts had to be replaced could not be decoded, no counts are recorded that are new to readers.
    """
    known, ended = {release.key for release in before}, list[tuple[PlannedRelease, Outcome | None, str]]()
    for release in group:
        outcome, document = decoded.pop(release.period.name, (None, ""))
        ended.append((release, None if outcome is not None and outcome.status is Status.DECODED else outcome, document))
    is_kept = any(release.replaces and failure for release, failure, _ in ended)
    results, recorded = list[PeriodResult](), list[tuple[PlannedRelease, str]]()
    for release, failure, document in ended:
        if failure is not None or (is_kept and release.has_new_counts):
            reason = BESIDE_KEPT if failure is None else failure.reason
            result = PeriodResult(release.period.name, PeriodStatus.FAILED, reason)
            is_known = release.period.key in known
            results.append(failed_or_withheld(result, release.period.name, ()) if is_known else result)
        else:
            recorded.append((release, document))
            results.append(PeriodResult(release.period.name, PeriodStatus.PUBLISHED))
    counts = {(release.key, release.counts_hash) for release in before}
    counts |= {(release.period.key, release.period.counts) for release, _ in recorded}
    is_changed = len(counts) > len({key for key, _ in counts})
    store.record(_results(recorded, before, replaced=is_changed))
    return results


def _results(
    recorded: Sequence[tuple[PlannedRelease, str]], before: Sequence[Release], *, replaced: bool
) -> Iterator[tuple[StoredResult | None, Release | None]]:
    """Yield what is new of each period: its result, and its release if a reader is shown something else than before."""
    for planned, document in recorded:
        period, own = planned.period, [release for release in before if release.key == planned.period.key]
        result = StoredResult(period.key, period.counts, planned.inputs_hash, document) if document else None
        result_hash = own[-1].result_hash if result is None else result.result_hash
        if own and own[-1].shows(period.counts, planned.smallest_cohort, result_hash):
            yield result, None
            continue
        metric, cohorts = period.task.metric, [*(release.smallest_cohort for release in own), planned.smallest_cohort]
        release = Release(
            period.key,
            period.counts,
            result_hash,
            period.num_reports,
            planned.smallest_cohort,
            epsilon=composed_epsilon(metric, cohorts[-1:], replaced=False),
            composed_epsilon=composed_epsilon(metric, cohorts, replaced=replaced),
        )
        yield result, release


@contextmanager
def _files_of(site: Path) -> Iterator[Path]:
    """Directory of the versions, which no other process changes until the end of the block."""
    files = _checked_files_of(site)
    with _explained(site, "written"):
        files.mkdir(exist_ok=True)
        make_private_directory(files / _PRIVATE)
        _set_mode(files / _PRIVATE, 0o700)
        with (files / _PRIVATE / _LOCK).open("wb") as lock:
            _lock(lock, site)
            _remove_leftovers(files)
            yield files


@contextmanager
def _unchanged_files_of(site: Path) -> Iterator[Path]:
    """Directory of the versions, which may not exist, and which no process changes until the end of the block; nothing is written."""
    files = _checked_files_of(site)
    with _explained(site, "read"), ExitStack() as stack:
        if (files / _PRIVATE / _LOCK).exists():
            _lock(stack.enter_context((files / _PRIVATE / _LOCK).open("rb")), site)
        yield files


@contextmanager
def _explained(site: Path, done: str) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise OutputError(f"{problem.filename or site} cannot be {done}: {problem.strerror}.") from None


def _lock(file: BinaryIO, site: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputError(f"{site} is being published or checked by another process. Wait until it ends.") from None


def _set_mode(path: Path, mode: int) -> None:
    if stat.S_IMODE(path.stat().st_mode) != mode:
        path.chmod(mode)


def _checked_files_of(site: Path) -> Path:
    """Directory of the versions of a site. Raises OutputError for a path that `publish` did not make."""
    files = site.parent / f"{site.name}.files"
    if not site.is_symlink() and site.exists():
        raise OutputError(f"{site} is not a site that `hubbub publish` made. Name a path where nothing is.")
    if site.is_symlink() and site.readlink().parent != Path(files.name):
        raise OutputError(f"{site} links to {site.readlink()}, which `hubbub publish` did not make. Name another path.")
    return files


def _check_store(store: ResultsStore, files: Path, site: Path) -> None:
    """Raise OutputError if the site has shown releases, or hidden withdrawn ones, of which the store knows nothing: it may only have more.

    `_write_published` runs after the store is written and before the site changes, so a run that is killed leaves a store that passes.
    """
    path, record = files / _PRIVATE / _STORE, files / _PRIVATE / _PUBLISHED
    found = sum(map(len, store.releases().values()))
    try:
        published = json.loads(record.read_text(encoding="utf-8"))
        releases, withdrawn = int(published["releases"]), frozenset(published["withdrawn"])
        is_other = found >= releases and store.releases_hash(releases) != published["releases_hash"]
    except FileNotFoundError:
        releases, withdrawn, is_other = int(site.is_symlink()), frozenset(), False
    except (ValueError, KeyError, TypeError):
        raise OutputError(f"{record} is damaged. Delete it if {path} is the newest there is.") from None
    missing = sorted(withdrawn - store.withdrawn())
    if is_other:
        problem = f"{path} has other releases than those with which {site} was published: the file is of another site, or of another backup"
    elif found < releases or missing:
        names = f" and no withdrawal of {', '.join(missing)}" if missing else ""
        problem = f"{path} has {found} releases{names}, and {site} was published with {releases} or more: the file is missing, or older than the site"
    else:
        return
    raise OutputError(
        f"{problem}. Restore the newest backup of it. If that is older, too, delete {record}, and repeat all withdrawals and replacements since "
        "the backup in the next run. If there is none, name another --out-dir."
    )


def _write_published(store: ResultsStore, published: Published, files: Path) -> None:
    """Write down what the store has, for `_check_store`."""
    number = sum(map(len, published.every.values()))
    about = {
        "releases": number,
        "releases_hash": store.releases_hash(number),
        "withdrawn": sorted(published.withdrawn),
    }
    with atomic_write(files / _PRIVATE / _PUBLISHED, private=True) as file:
        file.write(json.dumps(about, ensure_ascii=False).encode())
        file.flush()
        os.fsync(file.fileno())


def _is_shown(version: str, files: Path, site: Path) -> bool:
    return site.is_symlink() and site.readlink() == Path(files.name, version) and site.is_dir()


def _show(site_files: Sequence[SiteFile], files: Path, site: Path) -> str:
    """Write a version, link to it, and return its name. A file that the shown version has with the same inputs is linked, not made again.

    The name of a version is the hash of the inputs of all its files. Versions that are neither shown nor wanted are removed before a new one is
    written: after a kill at any step, there is at most one beside the shown version.
    """
    manifest = {file.path: file.inputs_hash for file in site_files}
    text = json.dumps(manifest, sort_keys=True)
    version = text_hash(text)[:_NAME_DIGITS]
    if _is_shown(version, files, site):
        return version
    shown = site.readlink().name if site.is_symlink() else ""
    is_whole = (files / version).is_dir() and bool(_manifest(files, version))
    kept = {shown, version} if is_whole else {shown} - {version}
    _remove_versions(_versions(files) - kept, files)
    if not is_whole:
        _write_version(version, text, site_files, files, shown)
    link = files / _LINK
    link.symlink_to(Path(files.name, version))
    link.replace(site)
    return version


def _write_version(version: str, manifest: str, site_files: Sequence[SiteFile], files: Path, shown: str) -> None:
    """Write a version, which has its name when it is complete."""
    new, known = files / _UNFINISHED, _manifest(files, shown)
    for file in site_files:
        place = new / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        if known.get(file.path) != file.inputs_hash or not _is_linked(files / shown / file.path, place):
            _write(place, file.content())
    _write(files / _PRIVATE / f"{version}.json", manifest.encode())
    new.rename(files / version)


def _versions(files: Path) -> set[str]:
    """Names of the versions, also of those that have only a directory or only a manifest."""
    names = {path.name for path in files.iterdir()} | {path.stem for path in (files / _PRIVATE).glob("*.json")}
    return {name for name in names if _VERSION_NAME.fullmatch(name)}


def _remove_versions(versions: Iterable[str], files: Path) -> None:
    """Remove versions, none of which has its name while only a part of it is left."""
    for version in versions:
        (files / _PRIVATE / f"{version}.json").unlink(missing_ok=True)
        if (files / version).is_dir():
            (files / version).rename(files / _REMOVED)
            shutil.rmtree(files / _REMOVED)


def _remove_leftovers(files: Path) -> None:
    """Remove what a killed run was writing or removing."""
    for path in (files / _UNFINISHED, files / _REMOVED):
        if path.exists():
            shutil.rmtree(path)
    (files / _LINK).unlink(missing_ok=True)


def _has_page(version: str, withdrawn: frozenset[str], files: Path) -> bool:
    """Whether a version has a page of a withdrawn period, or nobody knows which pages it has."""
    manifest = _manifest(files, version)
    return not manifest or any(is_named(name.removesuffix(".html"), withdrawn) for name in manifest if "@" in name)


def _manifest(files: Path, version: str) -> dict[str, str]:
    """What each file of a version depends on; nothing if the version has no such file, or a damaged one."""
    try:
        text = (files / _PRIVATE / f"{version}.json").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return {}
    found: dict[str, str] = json.loads(text) if text_hash(text)[:_NAME_DIGITS] == version else {}
    return found


def _is_linked(old: Path, new: Path) -> bool:
    """Give a file a second name, or a copy on a file system without hard links; False if it is gone."""
    try:
        os.link(old, new)
    except FileNotFoundError:
        return False
    except FileExistsError:
        raise
    except OSError:
        shutil.copyfile(old, new)
    return True


def _write(path: Path, content: bytes) -> None:
    """Write a new file durably: later versions link to it."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
