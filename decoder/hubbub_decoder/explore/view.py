"""A view: which periods of a metric are shown, how, and against which. It is the query of an address, so that a link carries all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from hubbub.errors import HubbubError
from hubbub.metrics.metric import folder_of
from hubbub.metrics.periods import OPEN_FOR
from hubbub.privacy import epsilon
from hubbub.privacy.pricing import shown_epsilon
from hubbub.text import did_you_mean, escape_untrusted
from hubbub_decoder.batch_decoding.tasks import Task
from hubbub_decoder.explore.job import Show
from hubbub_decoder.explore.summary_directory import MetricVersion, name_of
from hubbub_decoder.kinds.operations import operations_of

FORMATS = {"CSV": ".csv", "JSON": ".json", "Parquet": ".parquet", "PNG": ".png", "SVG": ".svg"}
"""Downloads with their suffixes."""
READING_TWICE = (
    "If you look again later, the difference between the two results comes only from the people whose reports arrived in between, "
    "so each of them is less hidden among others than in a closed period."
)
_SHOWS = {
    Show.SUM: "all these periods together",
    Show.PERIODS: "each period",
    Show.CHANGE: "change since an earlier period",
    Show.GROUPS: "each {}",
}


class ViewError(HubbubError):
    """The address asks for periods that there are not."""


@dataclass(frozen=True, slots=True)
class View:
    """A choice of the reader.

    first, last             : names of tasks, all between which are shown
    since_first, since_last : of CHANGE: those against which they are compared
    strings                 : digest of strings that the reader entered; "": those of the directory of candidates
    """

    show: Show
    first: str
    last: str
    since_first: str = ""
    since_last: str = ""
    strings: str = ""

    @classmethod
    def of_query(cls, query: Mapping[str, str], version: MetricVersion, now: datetime) -> View:
        """View of an address. Raises ViewError for unknown periods, and for a change since no period.

        Without a period, it is the newest one with enough reports.
        """
        names = list(map(name_of, version.tasks))
        default = name_of(version.tasks_with_enough_reports(now)[-1])
        try:
            show = Show(query.get("show") or Show.SUM)
            if show not in _shows(version):
                raise ValueError
        except ValueError:
            listed = ", ".join(_shows(version))
            raise ViewError(f"show={escape_untrusted(query['show'])} is none of {listed}.") from None
        last = query.get("to") or query.get("from") or default
        first = query.get("from") or last
        view = cls(show, first, last, strings=query.get("strings", ""))
        if show is Show.CHANGE:
            if first == names[0] != last in names and not query.get("since_from"):  # nothing is earlier
                view, first, query = replace(view, first=last), last, {**query, "since_from": names[0]}
            end = query.get("since_to") or query.get("since_from") or _before(names, first)
            view = replace(view, since_first=query.get("since_from") or end, since_last=end)
        for name in (view.first, view.last, view.since_first, view.since_last):
            if name and name not in names:
                raise ViewError(
                    f"{version.metric.name} has no period {escape_untrusted(name)}.{did_you_mean(name, names)}"
                )
        for start, end in ((view.first, view.last), (view.since_first, view.since_last)):
            if start and names.index(start) > names.index(end):
                raise ViewError(f"{start} is after {end}: choose the earlier {version.metric.period} first.")
        if show is Show.CHANGE:
            earlier, shown = view.samples(version)
            days = {day for task in shown for day in task.periods}
            if names.index(view.since_last) >= names.index(view.first) or any(
                days.intersection(task.periods) for task in earlier
            ):
                raise ViewError(
                    f"{view.since_last}, with which it is compared, is not before {view.first}: compare with an earlier {version.metric.period}."
                )
        return view

    @classmethod
    def nearest(cls, query: Mapping[str, str], version: MetricVersion, now: datetime) -> View:
        """View for the form of a page that refuses an address: what the address chooses, as far as there is such a choice."""
        names, default = list(map(name_of, version.tasks)), cls.of_query({}, version, now)
        first, last, since_first, since_last = (
            query[field] if query.get(field) in names else "" for field in ("from", "to", "since_from", "since_to")
        )
        show = Show(query["show"]) if query.get("show") in _shows(version) else default.show
        return cls(
            show,
            first or default.first,
            last or first or default.last,
            since_first,
            since_last,
            query.get("strings", ""),
        )

    def samples(self, version: MetricVersion) -> list[tuple[Task, ...]]:
        """Tasks of each sample of the job. Raises ViewError if two files have the same period."""
        shown = _between(version.tasks, self.first, self.last)
        if self.show is Show.PERIODS:
            return [(task,) for task in shown]
        if self.show is Show.GROUPS:
            names = set(map(name_of, shown))
            chosen = (tuple(task for task in value.tasks if name_of(task) in names) for value in version.groups)
            return [tasks for tasks in chosen if tasks]
        if self.show is Show.CHANGE:
            return [_between(version.tasks, self.since_first, self.since_last), shown]
        return [shown]

    def query(self, strings: str | None = None) -> str:
        """Query of the address of this view, or of the same view of other strings."""
        view = self if strings is None else replace(self, strings=strings)
        fields = {
            "show": view.show,
            "from": view.first,
            "to": view.last,
            "since_from": view.since_first,
            "since_to": view.since_last,
            "strings": view.strings,
        }
        return urlencode({name: value for name, value in fields.items() if value})

    def page(self, version: MetricVersion, now: datetime, *, is_shown: bool = True) -> dict[str, Any]:
        """What `view.html.j2` lets the reader choose; is_shown : whether the page shows this view, and not a message."""
        query, metric = self.query(), version.metric
        return {
            "period": str(metric.period),
            "periods": [{"name": name_of(task), "open": version.is_open(task, now)} for task in version.tasks],
            "shows": list(_shows(version).items()),
            "group": None if metric.group is None else metric.group.name,
            "groups": [
                (value.metric.group.value, f"../{value.folder}/") for value in version.groups if value.metric.group
            ],
            "whole": "" if version.is_whole else f"../{folder_of(metric.in_group(None))}/",
            "show": self.show,
            "first": self.first,
            "last": self.last,
            "since_first": "" if self._is_since_before(version) else self.since_first,
            "since_last": "" if self.since_last == self.since_first else self.since_last,
            "downloads": [(label, f"data{suffix}?{query}") for label, suffix in FORMATS.items()] if is_shown else [],
            "takes_strings": metric.kind.needs_candidates
            and operations_of(metric).reason_to_skip(has_candidates=True) is None,
            "post": f"strings?{query}",
            "strings": self.strings,
            "entered": "",
            "without_strings": f"./?{self.query(strings='')}",
            "arriving": self._arriving(version, now) if is_shown else None,
        }

    @property
    def file_name(self) -> str:
        """Name of its downloads, without metric and suffix."""
        shown = _range_name(self.first, self.last)
        if self.show is Show.CHANGE:
            return f"change-{_range_name(self.since_first, self.since_last)}-to-{shown}"
        return shown if self.show is Show.SUM else f"{self.show}-{shown}"

    def _is_since_before(self, version: MetricVersion) -> bool:
        """Whether it is compared with the one before: the form stays so when another one is chosen."""
        names = list(map(name_of, version.tasks))
        return bool(self.since_first) and self.since_first == self.since_last == names[names.index(self.first) - 1]

    def _arriving(self, version: MetricVersion, now: datetime) -> dict[str, str] | None:
        """What the page says of shown periods that are open, in words and in figures; None: all are closed."""
        shown = {name_of(task): version.is_open(task, now) for sample in self.samples(version) for task in sample}
        if not any(shown.values()):
            return None
        metric, number, num_open = version.metric, len(shown), sum(shown.values())
        which = f"this {metric.period}" if number == 1 else f"these {number} {metric.period}s"
        if num_open < number:
            which = f"{num_open} of {which}"
        return {
            "words": f"Reports of {which} are still arriving, so these shares can change until {OPEN_FOR.days} days after the end. {READING_TWICE}",
            "figures": "Who reads the counts of an open period twice learns the reports between, and the epsilon of a single one is then "
            f"{shown_epsilon(epsilon(metric))}, the local one, instead of the central epsilon. Publish closed periods only.",
        }


def _range_name(first: str, last: str) -> str:
    return (first if first == last else f"{first}-{last}").replace(" ", "-")


def _shows(version: MetricVersion) -> dict[Show, str]:
    """What can be shown, with its name for readers."""
    name = version.metric.group.name if version.groups and version.metric.group else ""
    return {show: label.format(name) for show, label in _SHOWS.items() if name or show is not Show.GROUPS}


def _before(names: Sequence[str], first: str) -> str:
    """Name before `first`; `first` itself if it is unknown. Raises ViewError if there is none."""
    if names[0] == first:
        raise ViewError(
            f"There is no period before {first} with which it could be compared. Choose later periods, or those to compare with."
        )
    return names[names.index(first) - 1] if first in names else first


def _between(tasks: Sequence[Task], first: str, last: str) -> tuple[Task, ...]:
    names = list(map(name_of, tasks))
    found = tuple(tasks[names.index(first) : names.index(last) + 1])
    seen: set[str] = set()
    for task in found:
        if not seen.isdisjoint(task.periods):
            raise ViewError(
                f"Two of the files between {first} and {last} have the same period. Choose periods of which each is in one file."
            )
        seen.update(task.periods)
    return found
