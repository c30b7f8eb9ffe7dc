"""Files of events, such as releases: which are read, what the refusal of others says, and which period shows an event."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from hubbub.cli import main
from hubbub.metrics.periods import Period, PeriodKind
from hubbub.text import escape_untrusted, short_labels
from hubbub_decoder import EventError
from hubbub_decoder.data.events import (
    MAX_FILE_BYTES,
    MAX_LABEL_CHARACTERS,
    Event,
    format_events,
    marked_periods,
    read_events,
)

RELEASE = Event("2026-10-05", "2.1")


@pytest.mark.parametrize(
    ("content", "events"),
    [
        ("date,label\n2026-10-05,2.1\n", [RELEASE]),
        ("\ufeffLabel, Date\r\n2.1,2026-10-05\r\n\r\n2.1,2026-10-05\r\n", [RELEASE]),
        ('date,label\n2026-10-06,"<b>2.2, ""beta"""\n2026-10-05,2.1', [RELEASE, Event("2026-10-06", '<b>2.2, "beta"')]),
        ("date,label\n2026-10-05,'=1+1\n", [Event("2026-10-05", "=1+1")]),
        ("metric,date,label\ntheme,2026-10-05,2.1\n", [Event("2026-10-05", "2.1", "theme")]),
        ("date,label\n", []),
    ],
    ids=["a line", "a spreadsheet's", "quotes and order", "a formula", "of a metric", "no event yet"],
)
def test_events_are_read_in_order_of_time_and_once(content: str, events: list[Event], tmp_path: Path) -> None:
    path = tmp_path / "releases.csv"
    path.write_bytes(content.encode())
    assert read_events([path, path]) == tuple(events)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", r"line 1 must name the columns date and label, .* has nothing\. Write date,label in line 1"),
        (b"2026-10-05,2.1\n", r"has 2026-10-05, 2\.1\. Write date,label in line 1"),
        (b"date,label,date\n", r"each once and no other, but has date, label, date\."),
        (b"date;label\n2026-10-05;2.1\n", r"has date;label\."),
        (
            b"date,label\n2026-10-05,2.1\ndate,label\n",
            r"line 3: date must be a day YYYY-MM-DD, got 'date,label'\. Write 2026",
        ),
        (b"date,label\n5.10.2026,2.1\n", r"line 2: date must be a day YYYY-MM-DD, got '5\.10\.2026,2\.1'\. Write 2026"),
        (b"date,label\n2026-02-30,2.1\n", r"line 2: date must be a day .* got '2026-02-30,2\.1'"),
        (b"date,label\n20261005,2.1\n", r"line 2: date must be a day .* got '20261005,2\.1'"),
        (b"date,label\n9999-12-31,2.1\n", r"line 2: date must be a day .* got '9999-12-31,2\.1'"),
        (b"date,label\n2026-10-05, \n", r"line 2: label must have 1 to 100 characters, got 0: .* Write a short name"),
        (b"date,label\n2026-10-05," + b"x" * 101, r"line 2: label must have 1 to 100 characters, got 101: "),
        (
            b"date,label\n2026-10-05,2.1, beta\n",
            r"line 2 must have 2 cells, got 3: .* Put a label with a comma in quotes",
        ),
        (b"date,label\n2026-10-05\n", r"line 2 must have 2 cells, got 1: '2026-10-05'"),
        (
            b'date,label\n2026-10-05,"' + b"x" * 200_000,
            r"line \d is not valid CSV .* Write lines such as 2026-10-05,2\.1",
        ),
        (b"date,label\n2026-10-05,\xff\n", r"is not UTF-8 text \(byte 22\)\. Save it in that encoding"),
        (b"x" * (MAX_FILE_BYTES + 1), r"has more than 1,048,576 bytes, the most that are read\. Keep fewer events"),
    ],
)
def test_refusal_of_a_bad_file_has_value_rule_and_next_step(content: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "releases.csv"
    path.write_bytes(content)
    with pytest.raises(EventError, match=f"releases.csv.*{told}") as caught:
        read_events([path])
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("none", "fifo", "."):
        with pytest.raises(EventError, match=r"cannot be read: .* Name a CSV file of events"):
            read_events([tmp_path / name])


@pytest.mark.parametrize("kind", PeriodKind)
@given(days=st.lists(st.integers(0, 400), max_size=20), shown=st.sets(st.integers(0, 400), min_size=1, max_size=12))
def test_an_event_is_marked_at_the_first_shown_period_that_ends_after_it(
    kind: PeriodKind, days: list[int], shown: set[int]
) -> None:
    """For every event by the definition; one before the first period, or after the last one, is marked at none."""
    first = date(2026, 1, 1)
    periods = sorted({Period.containing(kind, first + timedelta(days=number)) for number in shown})
    events = {Event(str(first + timedelta(days=number)), f"event {number}", "a" * (number % 2)) for number in days}
    others = {Event(event.day, event.label, "b") for event in events}
    found = marked_periods(events | others, "a", [*map(str, periods)], kind)
    expected = dict[str, list[Event]]()
    for event in sorted(events):
        later = [period for period in periods if period.next().start > date.fromisoformat(event.day)]
        if later and event.day >= str(periods[0]):
            expected.setdefault(str(later[0]), []).append(event)
    assert found == expected
    assert list(found) == sorted(found)


@given(
    st.lists(st.builds(Event, st.dates().map(str), st.text(min_size=1, max_size=300), st.sampled_from(["", "theme"])))
)
def test_written_events_are_read(events: list[Event]) -> None:
    """Labels without characters that white space or a limit takes away."""
    kept = [replace(event, label=escape_untrusted(event.label).strip() or "x") for event in events]
    kept = [
        replace(event, label=short_labels([event.label], MAX_LABEL_CHARACTERS)[0])
        for event in kept
        if event.day < "9999"
    ]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "events.csv"
        path.write_bytes(format_events(kept))
        assert read_events([path]) == tuple(sorted({*kept}))


def test_decode_refuses_events_without_a_page_over_periods(tmp_path: Path) -> None:
    path = tmp_path / "releases.csv"
    path.write_text("date,label\n2026-10-05,2.1\n")
    for options in ([], ["--by", "period"], ["--out", "page.html"], ["--by", "period", "--out", "trend.csv"]):
        result = CliRunner().invoke(main, ["decode", "none.parquet", "--events", str(path), *options])
        assert result.exit_code == 2
        assert "Pass --by period and --out FILE.html" in result.stderr


@pytest.mark.parametrize("command", ["decode", "explore", "publish"])
def test_commands_refuse_a_bad_file_before_the_work(command: str, tmp_path: Path) -> None:
    (tmp_path / "releases.csv").write_text("date,label\n5.10.2026,2.1\n")
    out = {
        "decode": ["--by", "period", "--out", str(tmp_path / "trend.html")],
        "explore": ["--port", "0"],
        "publish": ["--out-dir", str(tmp_path / "site")],
    }
    arguments = [command, str(tmp_path), "--events", str(tmp_path / "releases.csv"), *out[command]]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, [path.name for path in tmp_path.iterdir()]) == (1, ["releases.csv"])
    assert "date must be a day YYYY-MM-DD, got '5.10.2026,2.1'" in result.stderr
