"""`SummaryIndex`: the summaries of a directory, of which those that the store knows are not read again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hubbub.errors import SummaryError
from hubbub.text import escape_untrusted
from hubbub_decoder.batch_decoding.tasks import Header, Task, content_hash, counts_hash, header_of
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.results_store.store import FileStamp, SummaryFile


class SummaryIndex:
    """Summaries by their paths. A file with the stamp of the last run is taken for the same.

    known : what the store remembers
    """

    def __init__(self, known: Mapping[str, SummaryFile]) -> None:
        self._known = known
        self._stamps: dict[str, FileStamp] = {}
        self._files: dict[str, SummaryFile] = {}

    def header(self, path: Path) -> Header:
        """Header of a file, as `header_of`."""
        stamp, known = FileStamp.of(path), self._known.get(_absolute(path))
        if known is not None and known.stamp == stamp:
            self._files[_absolute(path)] = known
            return Header(known.metric, (known.period,), known.num_reports)
        self._stamps[_absolute(path)] = stamp
        return header_of(path)

    def read(self, task: Task) -> SummaryFile:
        """Read the one file of a task of one period, unless the store knows it; `header` has seen the file.

        Raises SummaryError if it cannot be read, or if it was written meanwhile.
        """
        (path,), (period,) = task.files, task.periods
        known = self._files.get(_absolute(path))
        if known is not None:
            return known
        counts = Evidence(task.read()).counts
        try:
            content, stamp = content_hash(path), FileStamp.of(path)
        except OSError as problem:
            raise SummaryError(f"{escape_untrusted(path.name)} cannot be read: {problem.strerror}") from None
        if stamp != self._stamps[_absolute(path)]:
            raise SummaryError(f"{escape_untrusted(path.name)} was written while it was read. Run the command again")
        ones = counts.ones.sum(axis=0)
        found = SummaryFile(
            _absolute(path),
            stamp,
            content,
            task.metric,
            period,
            counts.closed,
            counts_hash(counts),
            counts.reports,
            ones,
        )
        self._files[_absolute(path)] = found
        return found

    def content_hash(self, path: Path) -> str:
        """SHA-256 of a file that was read, or of candidates. Raises OSError."""
        known = self._files.get(_absolute(path))
        return content_hash(path) if known is None else known.content_hash

    @property
    def new(self) -> list[SummaryFile]:
        """Files that the store does not know, as far as UTF-8 can encode their paths; the others are read in every run."""
        return [file for path, file in self._files.items() if file is not self._known.get(path) and path.isprintable()]

    @property
    def gone(self) -> list[str]:
        """Paths that the store knows, of files that are no longer there or are no longer the same."""
        return [path for path, file in self._known.items() if self._files.get(path) is not file]


def _absolute(path: Path) -> str:
    return str(path.absolute())
