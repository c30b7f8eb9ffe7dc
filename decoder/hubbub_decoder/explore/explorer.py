"""What `hubbub explore` knows: the metrics of a directory, their cards and their pages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any

from hubbub.errors import HubbubError
from hubbub.wire.json_values import from_json_value
from hubbub_decoder.batch_decoding.tasks import Task, UnreadableFile
from hubbub_decoder.data.events import read_events
from hubbub_decoder.explore.answers import Answers
from hubbub_decoder.explore.cache import Cache
from hubbub_decoder.explore.decoding_process import FailedError
from hubbub_decoder.explore.front_page import FAILED, SKIPPED, WAITING, Card
from hubbub_decoder.explore.job import Job, Show
from hubbub_decoder.explore.summary_directory import MetricVersion, SummaryDirectory, remembered
from hubbub_decoder.explore.view import View, ViewError
from hubbub_decoder.kinds.operations import operations_of
from hubbub_decoder.report.highlights import Highlights

_MOST_ENTERED = 20_000  # bytes
HISTORY = 12
"""Periods of which a card shows the largest share."""


class Explorer:
    """Metrics of a directory, with answers of the decoding process; events : files whose events the charts over periods mark."""

    def __init__(
        self, summaries: SummaryDirectory, cache: Cache, answers: Answers, events: Sequence[Path] = ()
    ) -> None:
        self.summaries, self.cache, self.answers = summaries, cache, answers
        self._events, self._events_in = events, remembered(lambda path: read_events([path]))
        self._inputs: set[str] = set()
        self._reading = Lock()  # an older listing must not delete the answers of a newer one
        self._highlights: dict[tuple[str, ...], Highlights] = {}  # by inputs

    def read(self) -> tuple[dict[str, MetricVersion], list[UnreadableFile]]:
        """Versions of metrics by folder, and files that are no summaries; answers of files that are gone are deleted."""
        with self._reading:
            versions, unreadable = self.summaries.read()
            inputs = set[str]()
            for task in (task for version in versions.values() for task in version.tasks):
                with suppress(OSError):  # its own page and card say so
                    inputs.update(self._inputs_of(task))
            if inputs != self._inputs:
                self._highlights = {used: found for used, found in self._highlights.items() if inputs.issuperset(used)}
                self.cache.keep(inputs)
                self._inputs = inputs
            return versions, unreadable

    def _inputs_of(self, task: Task) -> tuple[str, ...]:
        return tuple(map(self.summaries.hash_of, task.inputs))

    def entered(self, strings: str) -> str:
        """Strings of an address as they were entered, if they fit into a form of a page."""
        path = self.cache.strings(strings) if strings else None
        return path.read_text(encoding="utf-8") if path and path.stat().st_size <= _MOST_ENTERED else ""

    def job(self, version: MetricVersion, view: View, suffix: str, page: dict[str, Any] | None = None) -> Job:
        """Job of a view. Raises ViewError for a view that cannot be decoded, and EventError for a damaged file of events."""
        job = self._job(view.show, view.samples(version), suffix, page, view.strings)
        if view.show is not Show.PERIODS or page is None:
            return job
        return replace(job, events=tuple(sorted({event for path in self._events for event in self._events_in(path)})))

    def _job(
        self,
        show: Show,
        samples: list[tuple[Task, ...]],
        suffix: str = ".json",
        page: dict[str, Any] | None = None,
        strings: str = "",
    ) -> Job:
        task = samples[0][0]
        entered = self.cache.strings(strings) if strings else None
        if strings and entered is None:
            raise ViewError("The strings of this address are not kept any more: enter them again.")
        candidates = list(filter(None, (task.candidates, entered)))
        reason = operations_of(task.metric).reason_to_skip(has_candidates=bool(candidates))
        if reason is not None:
            raise ViewError(f"{task.metric.name} cannot be shown: {reason}.")
        files = [[path for task in sample for path in task.files] for sample in samples]
        groups = tuple(dict.fromkeys(task.group for sample in samples for task in sample if task.group))
        paths = [*chain.from_iterable(files), *candidates, *(path for group in groups for path in group.paths)]
        return Job(
            show,
            tuple(tuple(map(str, sample)) for sample in files),
            tuple(map(str, candidates)),
            tuple(map(self.summaries.hash_of, paths)),
            task.options,
            suffix,
            page,
            groups,
        )

    def cards(self, versions: Mapping[str, MetricVersion], now: datetime) -> list[Card]:
        """Card of each version; it is waiting if its last period is not decoded."""
        shown = [version for version in versions.values() if version.is_whole]
        names = [version.metric.name for version in shown]
        return [self._card(version, now, names.count(version.metric.name) > 1) for version in shown]

    def _card(self, version: MetricVersion, now: datetime, with_digest: bool) -> Card:
        tasks = _history(version, now)
        state, reason, history = WAITING, "", list[Highlights | None]()
        for task in tasks:
            try:
                history.append(self._highlights_of(task))
            except (ViewError, FailedError, OSError) as problem:
                history.append(None)
                if task is tasks[-1]:
                    state, reason = (SKIPPED if isinstance(problem, ViewError) else FAILED), problem_text(problem)
        last = history[-1]
        return Card(
            metric=version.metric,
            address=f"{version.folder}/",
            title=version.folder if with_digest else version.metric.name,
            periods=tasks[-1].periods,
            is_open=version.is_open(tasks[-1], now),
            state=state if last is None else last.state,
            history=tuple(history),
            reason=reason,
        )

    def _highlights_of(self, task: Task) -> Highlights | None:
        """Highlights of a task; None: they are not known yet. Raises ViewError or FailedError if there are none."""
        inputs = self._inputs_of(task)
        if inputs not in self._highlights:
            answer = self.answers.known(self._job(Show.HIGHLIGHTS, [(task,)]))
            if answer is None:
                return None
            self._highlights[inputs] = from_json_value(Highlights, json.loads(answer))
        return self._highlights[inputs]

    def unknown_highlights(self, versions: Mapping[str, MetricVersion], now: datetime) -> Iterator[Job]:
        """Yield the jobs of all cards whose answers are not known: the last periods of all metrics first."""
        histories = [_history(version, now)[::-1] for version in versions.values() if version.is_whole]
        for number in range(HISTORY):
            for tasks in histories:
                if number < len(tasks):
                    with suppress(HubbubError, OSError):
                        if self._highlights_of(tasks[number]) is None:
                            yield self._job(Show.HIGHLIGHTS, [(tasks[number],)])


def _history(version: MetricVersion, now: datetime) -> tuple[Task, ...]:
    """The last periods with enough reports."""
    return version.tasks_with_enough_reports(now)[-HISTORY:]


def problem_text(problem: Exception) -> str:
    """Message of an error; of a file that cannot be read, with its name."""
    return f"{problem.filename} cannot be read: {problem.strerror}." if isinstance(problem, OSError) else str(problem)


def strings_of(text: str) -> str:
    """Strings that were entered, one per line, without empty lines. Raises ViewError if there is none.

    >>> strings_of("a\\r\\n\\r\\nb")
    'a\\nb\\n'
    """
    lines = [line for line in text.replace("\r\n", "\n").split("\n") if line]
    if not lines:
        raise ViewError("No string was entered. Write one per line.")
    return "".join(f"{line}\n" for line in lines)
