"""The files that `hubbub pull` keeps: of one metric, and of all metrics, closed periods and groups in a directory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from hubbub.summary import ReportFile, Summary
    from hubbub_decoder.batch_decoding.tasks import Header
    from hubbub_decoder.data.pull import CollectedPeriod


@dataclass(frozen=True)
class Download:
    """Files of a metric that are kept equal to what an aggregator has."""

    url: str
    metric: str
    periods: tuple[str, ...]
    digest: str | None
    content: str | None

    def complete_files(
        self, out: Path, *, by_group: bool, num_reports: int | None = None
    ) -> dict[Path, ReportFile | Summary]:
        """Files of an earlier download that need none, because they are final or have this number of reports; none: download."""
        whole = self._asked(out, None)
        if whole is None or not (whole.closed or whole.num_reports == num_reports):
            return {}
        if not self.periods or {*self.periods} != {*whole.periods}:
            return {}
        values = whole.metric.group.values if by_group and whole.metric.group is not None else ()
        found = {
            path: self._asked(path, value) for path, value in zip(files_of_values(out, values), values, strict=True)
        }
        of_values = {path: part for path, part in found.items() if part is not None and part.closed >= whole.closed}
        if values and sum(part.num_reports for part in of_values.values()) != whole.num_reports:
            return {}
        return {**of_values, out: whole}

    def _asked(self, path: Path, value: str | None) -> Summary | None:
        """Summary of a file of this metric, value of its group and periods, or some of them, with the content that is asked for."""
        from hubbub.summary import BitCounts, PatternCounts

        found = self._held(path, value)
        is_asked = {None: True, "bits": isinstance(found, BitCounts), "patterns": isinstance(found, PatternCounts)}
        return found if is_asked.get(self.content, False) else None

    def _held(self, path: Path, value: str | None) -> Summary | None:
        """Summary of a file with reports of this metric, value of its group and periods, or some of them."""
        from hubbub.errors import SummaryError
        from hubbub.summary import read_summary

        try:
            found = read_summary(path)
        except SummaryError:
            return None
        group = None if found.metric.group is None else found.metric.group.value
        is_this = (found.metric.name, group) == (self.metric, value) and found.num_reports > 0
        is_version = self.digest in (None, found.metric.in_group(None).digest)
        return found if is_this and is_version and {*found.periods} <= {*(self.periods or found.periods)} else None

    def download(
        self, out: Path, count_bytes: Callable[[int], None], *, by_group: bool
    ) -> dict[Path, ReportFile | Summary]:
        """Download and write one file, or one for each value of the group that has reports, and last their sum.

        Counts are written after all of them have arrived, so that a connection that breaks changes no file. Counts only grow, so a file with
        more reports than the answer stays: the aggregator has deleted some.
        """
        from hubbub_decoder.data.output_files import write_summary_file
        from hubbub_decoder.model.evidence import combine

        if self.content == "reports":
            return self._download_reports(out, count_bytes, by_group=by_group)
        whole = self._counts(None, count_bytes)
        files = _files(out, whole, by_group=by_group)
        counts = {path: whole if value is None else self._counts(value, count_bytes) for path, value in files.items()}
        written: dict[Path, Summary] = {}
        for path, found in counts.items():
            value = files[path]
            held = self._held(path, value)
            if held is not None and held.num_reports > found.num_reports:
                continue
            if not found.num_reports and value is not None:
                # A file of something else is no part of the sum.
                path.unlink(missing_ok=True)
                continue
            write_summary_file(found, path)
            written[path] = found
        if out not in files and written:
            total = cast("Summary", combine([*written.values()]))
            total = replace(total, metric=total.metric.in_group(None), closed=total.closed and whole.closed)
            held = self._held(out, None)
            if held is None or held.num_reports <= total.num_reports:
                # Of all values, also if one has all reports.
                write_summary_file(total, out)
                written[out] = total
        return {**written}

    def _counts(self, value: str | None, count_bytes: Callable[[int], None]) -> Summary:
        """Counts of one value of the group, or of all; of reports that are asked for, the default counts."""
        from hubbub_decoder.data.pull import pull_summary

        return pull_summary(
            self.url,
            self.metric,
            periods=self.periods,
            digest=self.digest,
            group=value,
            kind=None if self.content == "reports" else self.content,
            count_bytes=count_bytes,
        )

    def _download_reports(
        self, out: Path, count_bytes: Callable[[int], None], *, by_group: bool
    ) -> dict[Path, ReportFile | Summary]:
        """Write one file of reports, or one for each value with reports; a file of another value is deleted, if it is of something else."""
        from hubbub_decoder.data.pull import pull_reports

        files = _files(out, self._counts(None, count_bytes), by_group=True) if by_group else {out: None}
        written: dict[Path, ReportFile | Summary] = {}
        for path, value in files.items():
            reports = pull_reports(
                self.url,
                self.metric,
                path,
                periods=self.periods,
                digest=self.digest,
                group=value,
                count_bytes=count_bytes,
            )
            if value is None or reports.num_reports:
                written[path] = reports
            else:
                path.unlink(missing_ok=True)
        return written


def _files(out: Path, whole: Summary, *, by_group: bool) -> dict[Path, str | None]:
    """Files of the values of a group, each with its value, if there are reports; else the file of all."""
    group = whole.metric.group
    if not by_group or group is None or not whole.num_reports:
        return {out: None}
    return dict(zip(files_of_values(out, group.values), group.values, strict=True))


def files_of_values(out: Path, values: Sequence[str]) -> list[Path]:
    """Files of the values of a group."""
    return [out.with_stem(f"{out.stem}-{value}") for value in values]


def period_file(directory: Path, metric: str, digest: str, period: str) -> Path:
    """File of all reports of a period; `files_of_values` names those of the values of its group."""
    return directory / f"{metric}@{digest[:8]}-{period}.parquet"


@dataclass(frozen=True)
class Mirror:
    """What became of the periods of an aggregator in a directory.

    written : the files of what was downloaded      kept : number of periods whose files were complete
    failed  : periods that are not in the directory as the aggregator has them, with the reason
    """

    written: dict[Path, ReportFile | Summary] = field(default_factory=dict)
    kept: int = 0
    failed: list[tuple[CollectedPeriod, str]] = field(default_factory=list)


def mirror_periods(
    url: str, periods: Sequence[CollectedPeriod], directory: Path, count_bytes: Callable[[int], None]
) -> Mirror:
    """Download what a directory does not have of these periods: a file for each, one for each value of its group, and their sum.

    A file is found by its content, so it may have another name. One that cannot be downloaded stays as it was, and the others follow, unless
    the aggregator does not answer any more.
    """
    from hubbub.errors import HubbubError
    from hubbub_decoder.data.output_files import make_directory
    from hubbub_decoder.data.pull import NoResponseError

    make_directory(directory, private=True)
    headers = _headers_by_period(directory)
    written: dict[Path, ReportFile | Summary] = {}
    failed: list[tuple[CollectedPeriod, str]] = []
    kept, silence = 0, ""
    for found in periods:
        if silence:
            failed.append((found, silence))
            continue
        request = Download(url, found.metric, (found.period,), found.digest, None)
        try:
            out = _file_of(found, directory, headers.get((found.metric, found.digest, found.period), {}))
            current = None if found.closed else found.num_reports
            if out.exists() and request.complete_files(out, by_group=True, num_reports=current):
                kept += 1
            else:
                written.update(request.download(out, count_bytes, by_group=True))
        except HubbubError as problem:
            failed.append((found, str(problem)))
            silence = str(problem) if isinstance(problem, NoResponseError) else ""
    return Mirror(written, kept, failed)


_PeriodKey = tuple[str, str, str]


def _headers_by_period(directory: Path) -> dict[_PeriodKey, dict[Path, Header]]:
    """Headers of the summaries and reports in a directory and below it, by name and digest of the metric, and by period."""
    from hubbub.errors import SummaryError
    from hubbub.files.regular_files import OddEntry, files_below
    from hubbub_decoder.batch_decoding.tasks import header_of

    headers: dict[_PeriodKey, dict[Path, Header]] = {}
    for path in files_below(directory, ".parquet"):
        if isinstance(path, OddEntry):
            continue
        try:
            header = header_of(path)
        except (SummaryError, OSError):
            # If it has the name of a file that is needed, it is downloaded again.
            continue
        for period in header.periods:
            key = header.metric.name, header.metric.in_group(None).digest, period
            headers.setdefault(key, {})[path] = header
    return headers


def _file_of(found: CollectedPeriod, directory: Path, headers: Mapping[Path, Header]) -> Path:
    """File of a period, all values of its group together. Raises OutputError if another file has counts of the period, too."""
    from hubbub_decoder.errors import OutputError

    wholes = (
        path for path, header in headers.items() if header.metric.group is None or header.metric.group.value is None
    )
    alone: Iterable[Path] = (path for path in wholes if headers[path].periods == (found.period,))
    out = next(iter(alone), period_file(directory, found.metric, found.digest, found.period))
    for path, header in headers.items():
        group = header.metric.group
        expected = out if group is None or group.value is None else files_of_values(out, [group.value])[0]
        if (path, header.periods) != (expected, (found.period,)):
            raise OutputError(
                f"{path} also has reports of {found.metric} of {found.period}, which would be counted twice. "
                f"Move it out of {directory}, or delete it."
            )
    return out
