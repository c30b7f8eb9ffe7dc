"""Log lines: text and JSON, rate limited, without request data."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from hubbub_aggregator.monitoring.log_output import JsonLines, RateLimitFilter, TextLines


def record(
    message: str = "the store failed: %s", *args: object, level: int = logging.ERROR, **fields: object
) -> logging.LogRecord:
    made = logging.LogRecord("hubbub_aggregator.api.ingest", level, __file__, 1, message, args or ("gone",), None)
    made.__dict__.update(fields)
    return made


def test_json_log_line_has_the_fields_of_its_event() -> None:
    text = JsonLines().format(record(created=1718452800.987654, metrics=["a\n"], color_message="\033[1m"))
    assert "\n" not in text
    assert json.loads(text) == {
        "time": "2024-06-15T12:00:00+00:00",
        "level": "error",
        "logger": "hubbub_aggregator.api.ingest",
        "message": "the store failed: gone",
        "metrics": ["a\n"],
    }


@pytest.mark.parametrize("lines", [JsonLines(), TextLines()])
def test_log_has_only_the_type_of_an_exception(lines: logging.Formatter) -> None:
    try:
        raise ValueError("a private value")
    except ValueError:
        text = lines.format(record("it failed %s", "here", exc_info=sys.exc_info()))
    assert "it failed here (ValueError)" in text
    assert "private" not in text


def test_text_log_line_has_level_logger_and_message() -> None:
    assert TextLines().format(record()) == "ERROR hubbub_aggregator.api.ingest: the store failed: gone"


def test_repeated_warning_is_logged_once_a_minute_with_its_count() -> None:
    now = [0.0]
    once = RateLimitFilter(lambda: now[0])
    is_logged = [once.filter(record()) for _ in range(5)]
    assert is_logged == [True, False, False, False, False]
    assert once.filter(record("another: %s"))
    assert all(once.filter(record(level=logging.INFO)) for _ in range(3))
    now[0] = 60.0
    again = record()
    assert once.filter(again)
    assert TextLines().format(again).endswith("gone (4 more times since)")


def test_rate_limit_filter_needs_bounded_memory() -> None:
    once = RateLimitFilter(lambda: 0.0)
    for number in range(5_000):
        assert once.filter(record("%s", number))
    assert len(once._last) <= 1_000
