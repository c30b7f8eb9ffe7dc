"""Events that charts over periods mark: releases of an app, and alarms of `hubbub watch`."""

from __future__ import annotations

import csv
import io
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from hubbub.files.regular_files import open_regular
from hubbub.metrics.periods import Period, PeriodKind
from hubbub.text import escape_untrusted, short_labels
from hubbub_decoder.data.csv_cells import csv_bytes, text_of_cell
from hubbub_decoder.errors import EventError

MAX_FILE_BYTES = 1 << 20
MAX_LABEL_CHARACTERS = 100
_COLUMNS = ("date", "label", "metric")


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """Something that happened on a day, YYYY-MM-DD; metric : name of the only one that it is about, "" for all."""

    day: str
    label: str
    metric: str = ""


def read_events(paths: Iterable[Path]) -> tuple[Event, ...]:
    """Events of CSV files with the columns `date` and `label`, and perhaps `metric`, in order of time; repeated ones count once.

    Raises EventError for a file that cannot be read or is too large, for other columns, and for a line without a day and a label.
    """
    return tuple(sorted({event for path in paths for event in _read(path)}))


def _read(path: Path) -> list[Event]:
    rows = csv.reader(io.StringIO(_text(path), newline=""))
    try:
        header = [name.strip().lower() for name in next(rows, [])]
        if sorted(header) not in ([*_COLUMNS], [*_COLUMNS[:2]]):
            found = escape_untrusted(", ".join(header)) if header else "nothing"
            raise EventError(
                f"{path}: line 1 must name the columns date and label, and may name metric, each once and no other, but has {found}. "
                "Write date,label in line 1, and a line such as 2026-10-05,2.1 for each event."
            )
        return [_event(path, rows.line_num, header, row) for row in rows if row]
    except csv.Error as problem:
        raise EventError(
            f"{path}: line {rows.line_num} is not valid CSV ({problem}). Write lines such as 2026-10-05,2.1."
        ) from None


def _text(path: Path) -> str:
    try:
        with open_regular(path) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as problem:
        raise EventError(f"{path} cannot be read: {problem.strerror}. Name a CSV file of events.") from None
    if len(data) > MAX_FILE_BYTES:
        raise EventError(f"{path} has more than {MAX_FILE_BYTES:,} bytes, the most that are read. Keep fewer events.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise EventError(f"{path} is not UTF-8 text (byte {problem.start}). Save it in that encoding.") from None


def _event(path: Path, line: int, header: Sequence[str], row: Sequence[str]) -> Event:
    if len(row) != len(header):
        raise EventError(
            f"{path}: line {line} must have {len(header)} cells, got {len(row)}: {_shown(row)}. Put a label with a comma in quotes."
        )
    cells = {name: text_of_cell(cell).strip() for name, cell in zip(header, row, strict=True)}
    day, label = cells["date"], cells["label"]
    try:
        is_day = date.fromisoformat(day).isoformat() == day and day < "9999"  # the period of a later day has no end
    except ValueError:
        is_day = False
    if not is_day:
        raise EventError(
            f"{path}: line {line}: date must be a day YYYY-MM-DD, got {_shown(row)}. Write 2026-10-05,2.1."
        )
    if not 0 < len(label) <= MAX_LABEL_CHARACTERS:
        raise EventError(
            f"{path}: line {line}: label must have 1 to {MAX_LABEL_CHARACTERS} characters, got {len(label):,}: {_shown(row)}. "
            "Write a short name, such as 2.1."
        )
    return Event(day, label, cells.get("metric", ""))


def _shown(row: Sequence[str]) -> str:
    text = ",".join(row)
    return escape_untrusted(repr(text if len(text) <= MAX_LABEL_CHARACTERS else f"{text[:MAX_LABEL_CHARACTERS]}..."))


def format_events(events: Iterable[Event]) -> bytes:
    """File that `read_events` reads. A label of more than `MAX_LABEL_CHARACTERS` is cut in the middle."""
    return csv_bytes(
        _COLUMNS, ((event.day, *short_labels([event.label], MAX_LABEL_CHARACTERS), event.metric) for event in events)
    )


def marked_periods(
    events: Iterable[Event], metric: str, periods: Sequence[str], kind: PeriodKind
) -> dict[str, list[Event]]:
    """Events of a metric by the first period that ends after their day: the first one whose reports may show what they changed.

    periods : first days, in order of time. An event before the first one, or after the last one, is left out.

    >>> week = [Event("2026-10-07", "2.1"), Event("2026-10-04", "2.0"), Event("2026-10-19", "2.2")]
    >>> {period: [event.label for event in found] for period, found in marked_periods(week, "theme", ["2026-10-05", "2026-10-12"], PeriodKind.WEEK).items()}
    {'2026-10-05': ['2.1']}
    """
    ends = [str(Period(date.fromisoformat(period), kind).next()) for period in periods]
    found = dict[str, list[Event]]()
    for event in sorted(events):
        number = bisect_right(ends, event.day)
        if event.metric in ("", metric) and number < len(periods) and periods[0] <= event.day:
            found.setdefault(periods[number], []).append(event)
    return dict(sorted(found.items()))
