"""Summaries of a directory: the versions of metrics, each with its periods, as they are at the moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from hubbub.metrics.metric import Metric, folder_of
from hubbub.wire.dates import parse_period
from hubbub_decoder.batch_decoding.tasks import Task, UnreadableFile, content_hash, find_tasks, header_of
from hubbub_decoder.options import Options

_MAX_REMEMBERED = 1 << 16
T = TypeVar("T")


def remembered(function: Callable[[Path], T]) -> Callable[[Path], T]:
    """Function of a file's content that remembers its values while a file keeps its time and size."""

    @lru_cache(_MAX_REMEMBERED)
    def value(path: Path, _modified: int, _size: int) -> T:
        return function(path)

    def of_file(path: Path) -> T:
        state = path.stat()
        return value(path, state.st_mtime_ns, state.st_size)

    return of_file


@dataclass(frozen=True, slots=True)
class MetricVersion:
    """A definition with the decodings of its periods, or one value of its group.

    tasks  : at least one, in order of time
    groups : one for each value, in the order of the definition; () of a metric without a group, and of one value
    """

    tasks: tuple[Task, ...]
    groups: tuple[MetricVersion, ...] = ()

    @property
    def metric(self) -> Metric:
        """The definition."""
        return self.tasks[0].metric

    @property
    def folder(self) -> str:
        """Part of its addresses: name and first digits of the digest."""
        return folder_of(self.metric)

    @property
    def is_whole(self) -> bool:
        """Whether it is not of one value of a group."""
        return self.metric.group is None or self.metric.group.value is None

    def is_open(self, task: Task, now: datetime) -> bool:
        """Whether more reports of the periods of a task may be accepted."""
        return any(now < parse_period(self.metric.period, day).closes() for day in task.periods)

    def tasks_with_enough_reports(self, now: datetime) -> tuple[Task, ...]:
        """Tasks that are shown without being asked for, the last one first of all: the closed ones, and open ones with enough reports.

        These are at least half as many as those of the last closed task, or of the largest one while none is closed.
        """
        closed = [task for task in self.tasks if not self.is_open(task, now)]
        usual = closed[-1] if closed else max(reversed(self.tasks), key=lambda task: task.num_reports)
        enough = max(usual.num_reports / 2, 1)
        return tuple(
            task for task in self.tasks if task is usual or task.num_reports >= enough or not self.is_open(task, now)
        )


def name_of(task: Task) -> str:
    """Periods of a task, as its pages and its addresses name them."""
    return task.name.partition("/")[2]


class SummaryDirectory:
    """Directory of summaries and a directory, or a file, of candidates. It reads again what has changed."""

    def __init__(self, directory: Path, candidates: Path | None, options: Options) -> None:
        self._directory, self._candidates, self._options = directory, candidates, options
        self._header_of, self.hash_of = remembered(header_of), remembered(content_hash)

    def read(self) -> tuple[dict[str, MetricVersion], list[UnreadableFile]]:
        """Versions of metrics by folder, and the files that are no summaries; raises SummaryError if there is no such directory."""
        tasks, unreadable = find_tasks(
            self._directory, self._candidates, self._options, read_header=self._header_of, may_be_empty=True
        )
        versions: dict[str, MetricVersion] = {}
        for folder, group in groupby(
            sorted(tasks, key=lambda task: (folder_of(task.metric), task.name)), key=lambda task: folder_of(task.metric)
        ):
            versions[folder] = MetricVersion(tuple(group))
        for folder, version in versions.items():
            values = [
                versions.get(folder_of(collection)) for collection in version.metric.collections if version.metric.group
            ]
            if version.is_whole and any(values):
                versions[folder] = replace(version, groups=tuple(filter(None, values)))
        return versions, unreadable
