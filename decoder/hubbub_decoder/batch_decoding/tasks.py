"""Tasks of batch decoding: the summaries of one definition and the same periods, with their candidates.

A metric with a group has a task for each value, and one for their sum.
"""

from __future__ import annotations

import errno
import hashlib
import json
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from hubbub.errors import HubbubError, SummaryError
from hubbub.files.regular_files import OddEntry, files_below, open_regular
from hubbub.metrics.metric import Metric, folder_of
from hubbub.summary import BitCounts, read_collected, report_file
from hubbub.text import DISTRIBUTION, escape_control_characters, escape_untrusted
from hubbub.wire.dates import parse_period
from hubbub.wire.problems import RefusedError
from hubbub_decoder.data.candidates import MAX_FILE_BYTES
from hubbub_decoder.errors import CandidateError
from hubbub_decoder.kinds.operations import operations_of
from hubbub_decoder.model.evidence import Collected, Evidence, combine
from hubbub_decoder.model.group_counts import GroupFiles
from hubbub_decoder.options import Options

CANDIDATE_SUFFIXES = (".txt", ".csv")
_SUFFIX = ".parquet"


@dataclass(frozen=True, slots=True)
class Task:
    """One decoding.

    files      : summaries or reports of one definition and the same periods, which are added up
    candidates : file with the candidates of a string metric; None: the metric has none, or needs none
    num_reports : of all files together, as their headers say
    counts     : `counts_hash` of the counts that the files must still have; None: any
    group      : files that show whether the sum over a group has all its values; None: there is no file of a value, or it is of one value
    """

    metric: Metric
    periods: tuple[str, ...]
    files: tuple[Path, ...]
    candidates: Path | None
    options: Options
    num_reports: int
    counts: str | None = None
    group: GroupFiles | None = None

    @property
    def name(self) -> str:
        """Path of the result without its suffix: metric, first 8 digits of the digest, value of its group, first and last period.

        Two versions of a metric have two folders, so that a new version changes no path.
        """
        first, last = (self.periods[0], self.periods[-1]) if self.periods else ("no period", "no period")
        return f"{folder_of(self.metric)}/{first if first == last else f'{first}..{last}'}"

    @property
    def reason_to_skip(self) -> str | None:
        """Reason why `decode` cannot estimate this metric; None: it can."""
        return operations_of(self.metric).reason_to_skip(has_candidates=self.candidates is not None)

    @property
    def other_command(self) -> str:
        """Command that estimates this metric by its definition; empty: `decode` does."""
        return operations_of(self.metric).other_command()

    @property
    def inputs(self) -> tuple[Path, ...]:
        """All files on which the result depends."""
        candidates = () if self.candidates is None else (self.candidates,)
        return *self.files, *candidates, *(() if self.group is None else self.group.paths)

    def read(self) -> Collected:
        """Sum of the files.

        Raises SummaryError if a file cannot be read, or has other counts than it must have, and for a sum over a group that has not all values.
        """
        if self.group is not None:
            self.group.check()
        collected = combine([read_collected(path) for path in self.files])
        if self.counts is not None and counts_hash(Evidence(collected).counts) != self.counts:
            raise SummaryError(f"{escape_untrusted(self.files[0].name)} was written meanwhile. Run the command again")
        return collected

    def fingerprint(self, hash_of: Callable[[Path], str]) -> str:
        """SHA-256, in hex, of all that the result depends on: the files' contents, the options, and the releases of hubbub and its libraries.

        hash_of : `content_hash`, or its results of the same run

        Raises OSError if a file cannot be read.
        """
        contents = [hash_of(path) for path in self.inputs]
        candidates = None if self.candidates is None else self.candidates.suffix.lower()
        fields = [releases(), asdict(self.options), contents, candidates]
        return hashlib.sha256(json.dumps(fields).encode()).hexdigest()


def content_hash(path: Path) -> str:
    """SHA-256 of a file's contents, in hex.

    Raises OSError, also for candidates that would be refused for their size.
    """
    with open_regular(path) as file:
        if path.suffix != _SUFFIX and os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MAX_FILE_BYTES >> 20} MiB", str(path))
        return hashlib.file_digest(file, "sha256").hexdigest()


def counts_hash(counts: BitCounts) -> str:
    """SHA-256 of the reports of each cohort and the ones of each cohort and bit, in hex: the same for the same counts in any file."""
    return hashlib.sha256(counts.reports.astype("<i8").tobytes() + counts.ones.astype("<i8").tobytes()).hexdigest()


@cache
def releases() -> tuple[str, ...]:
    """Releases of hubbub and of the libraries whose arithmetic a result depends on."""
    return tuple(version(name) for name in (DISTRIBUTION, "numpy", "scipy", "scikit-learn"))


@dataclass(frozen=True, slots=True)
class UnreadableFile:
    """A file that is no summary, with the reason."""

    path: Path
    reason: str

    @property
    def name(self) -> str:
        """Path as text without control characters, that UTF-8 can encode."""
        return escape_control_characters(str(self.path))


_Key = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of its counts; periods : first days."""

    metric: Metric
    periods: tuple[str, ...]
    num_reports: int


def find_tasks(
    directory: Path,
    candidates: Path | None,
    options: Options,
    read_header: Callable[[Path], Header] | None = None,
    *,
    may_be_empty: bool = False,
) -> tuple[list[Task], list[UnreadableFile]]:
    """Tasks of all .parquet files in a directory and below it, in the order of metric and period, and what is no summary or cannot be read.

    The sum over the values of a group has a task, which fails, also if there is no file of all values.

    candidates : directory with a file METRIC.txt or METRIC.csv for each string metric, or one file for all of them
    read_header : `header_of` (None), or one that remembers its results

    Raises SummaryError if there is no such directory, or no .parquet file in it, unless it may be empty.
    """
    if not directory.is_dir():
        raise SummaryError(f"{directory} is not a directory. Name the directory with the summaries to decode.")
    found: dict[_Key, tuple[Metric, list[Path]]] = {}
    num_reports: dict[Path, int] = {}
    unreadable: list[UnreadableFile] = []
    for path in files_below(directory, _SUFFIX):
        if isinstance(path, OddEntry):
            unreadable.append(UnreadableFile(path.path, path.reason))
            continue
        try:
            header = (read_header or header_of)(path)
        except SummaryError as problem:
            unreadable.append(UnreadableFile(path, str(problem)))
        except OSError as problem:
            unreadable.append(UnreadableFile(path, f"cannot be read: {problem.strerror}"))
        else:
            found.setdefault((header.metric.digest, header.periods), (header.metric, []))[1].append(path)
            num_reports[path] = header.num_reports
    groups = _groups_of_sums(found)
    for key, (metric, group) in groups.items():
        found.setdefault(key, (metric, list(map(Path, group.values))))
    if not (found or unreadable or may_be_empty):
        raise SummaryError(f"{directory} has no .parquet file. `hubbub pull` writes one for each metric.")
    tasks = [
        Task(
            metric,
            periods,
            tuple(files),
            _candidates_of(metric, candidates),
            options,
            sum(num_reports[path] for path in files),
            group=groups[metric.digest, periods][1] if (metric.digest, periods) in groups else None,
        )
        for (_, periods), (metric, files) in found.items()
    ]
    return sorted(tasks, key=lambda task: (task.metric.name, task.periods, task.metric.digest)), unreadable


def _groups_of_sums(found: Mapping[_Key, tuple[Metric, list[Path]]]) -> dict[_Key, tuple[Metric, GroupFiles]]:
    """Metric and files of each sum over a group of which there is a file of a value, also without a file of all values."""
    definitions: dict[str, tuple[Metric, list[_GroupPart]]] = {}
    for (_, periods), (metric, paths) in found.items():
        if metric.group is not None:
            whole = metric.in_group(None)
            parts = definitions.setdefault(whole.digest, (whole, []))[1]
            parts.append(_GroupPart(metric.group.value, frozenset(periods or [""]), periods, tuple(map(str, paths))))
    sums: dict[_Key, tuple[Metric, GroupFiles]] = {}
    for digest, (metric, parts) in definitions.items():
        by_period: dict[str, list[_GroupPart]] = {}
        for part in parts:
            for period in part.covers:
                by_period.setdefault(period, []).append(part)
        covered = set[str]()
        for first in sorted(parts, key=lambda part: part.value is not None):
            if first.value is None or not covered & first.covers:
                linked = _linked_parts(first, by_period)
                covered.update(*(part.covers for part in linked))
                wholes, values = (
                    tuple(sorted(path for part in linked if (part.value is None) is is_whole for path in part.paths))
                    for is_whole in (True, False)
                )
                if values:
                    periods = first.periods if wholes else tuple(sorted({*chain(*(part.periods for part in linked))}))
                    sums[digest, periods] = metric, GroupFiles(wholes, values)
    return sums


def _linked_parts(first: _GroupPart, by_period: Mapping[str, Sequence[_GroupPart]]) -> list[_GroupPart]:
    """A part and those that are compared with it: they share periods, also through other files, and none counts a period twice.

    A value's file has the periods in which it has reports, and a file of all values may have more, or other ones. Of several that overlap,
    such as a file of two days beside those of each, the one that adds the fewest other periods is taken, then the largest.
    """
    linked, counted, covered = list[_GroupPart](), set[tuple[str | None, str]](), set[str]()
    chosen, beside = [first], dict[_GroupPart, None]()
    while chosen:
        for part in chosen:
            new = {(part.value, period) for period in part.covers}
            if counted.isdisjoint(new):
                linked.append(part)
                counted |= new
                beside.update(dict.fromkeys(chain.from_iterable(by_period[period] for period in part.covers - covered)))
                covered |= part.covers
        free = [part for part in beside if counted.isdisjoint((part.value, period) for period in part.covers)]
        free.sort(key=lambda part: (len(part.covers - covered), -len(part.covers), part.periods))
        beside = dict.fromkeys(free)
        chosen = [part for part in free if part.covers <= covered] or free[:1]
    return linked


@dataclass(frozen=True, slots=True)
class _GroupPart:
    """Files of one value of a group, or of all (None), and the same periods; covers : the periods, and "" in place of none."""

    value: str | None
    covers: frozenset[str]
    periods: tuple[str, ...]
    paths: tuple[str, ...]


def header_of(path: Path) -> Header:
    """Header of a summary or report file, without reading its counts.

    Raises SummaryError for any other file, and for dates that begin no period: a period is a part of file names and of addresses in pages.
    """
    try:
        with open_regular(path) as file:
            footer = pq.read_metadata(file)
        about = json.loads(footer.metadata[b"hubbub"])
        metric, periods = Metric.from_dict(about["metric"]), tuple(sorted(map(str, about["periods"])))
        num_reports = footer.num_rows if about["counts"] == report_file.KIND else operator.index(about["num_reports"])
    except HubbubError as problem:
        raise SummaryError(f"its metric is invalid: {problem}") from None
    except OSError as problem:
        raise SummaryError(f"cannot be read: {problem.strerror or 'damaged'}") from None
    except (pa.ArrowException, KeyError, TypeError, ValueError):
        raise SummaryError("not a hubbub summary: use a file written by `hubbub pull` or `hubbub simulate`") from None
    for period in periods:
        try:
            parse_period(metric.period, period)
        except RefusedError as problem:
            raise SummaryError(f"its period {escape_untrusted(period)} cannot be used: {problem.detail}") from None
    return Header(metric, periods, num_reports)


def _candidates_of(metric: Metric, candidates: Path | None) -> Path | None:
    """File of candidates of a metric; it may be none that can be read, which the tasks of the metric then say."""
    if candidates is None or not metric.kind.needs_candidates:
        return None
    try:
        if not candidates.is_dir():
            return candidates
        paths = [candidates / f"{metric.name}{suffix}" for suffix in CANDIDATE_SUFFIXES]
        return next((path for path in paths if _is_entry(path)), None)
    except PermissionError as problem:
        raise CandidateError(
            f"{candidates} cannot be read: {problem.strerror}. Run the command as a user who can read the directory."
        ) from None


def _is_entry(path: Path) -> bool:
    """Whether there is anything at a path, also a link to nothing."""
    with suppress(FileNotFoundError):
        path.lstat()
        return True
    return False
