"""What the service says about itself, on stderr.

A line is an event of the service, never of a request: it carries no address, path, id or body, and there is no access
log. What a request can bring about (the store fails, something goes wrong that nobody foresaw) says nothing of it but
that it was; the same warning or error comes at most once a minute, with how often it came meanwhile, so that a flood of
requests is no flood of lines. Times are whole seconds.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")

_AGAIN_AFTER = 60.0
_MOST_REMEMBERED = 1_000
_OURS = ("hubbub_aggregator", "uvicorn.error")
_OF_EVERY_RECORD = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "color_message", "again"}


def configure(log_format: str, log_level: str) -> None:
    """Send what this process logs to stderr; other libraries' lines from `warning` on."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    handler.addFilter(RateLimitFilter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in _OURS:
        logging.getLogger(name).setLevel(log_level.upper())


def announce(log_format: str, url: str, local_url: str | None = None) -> None:
    """Print where the service listens, whatever the level, and where it answers reads without a token."""
    text = f"hubbub is listening on {url}"
    if log_format == "json":
        log_always(logging.getLogger(_OURS[0]), text, url=url, local_url=local_url)
    else:
        if local_url is not None:
            text += (
                f"\nhubbub answers reads without a token on {local_url} (this machine only: do not forward this port)"
            )
        print(text, file=sys.stderr, flush=True)  # noqa: T201  (not a line of the log: nothing stands before it)


def log_always(logger: logging.Logger, text: str, **fields: object) -> None:
    """Log for information, whatever the level: somebody asked for it, and waits."""
    logger.handle(logger.makeRecord(logger.name, logging.INFO, __file__, 0, text, (), None, extra=fields))


class TextLines(logging.Formatter):
    """`LEVEL logger: message`, and no time: whoever collects stderr adds it."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname} {record.name}: {_message_of(record)}"


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(int(record.created), UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message_of(record),
        }
        fields = {name: value for name, value in record.__dict__.items() if name not in _OF_EVERY_RECORD}
        return json.dumps(line | fields, default=str)


class RateLimitFilter(logging.Filter):
    """Lets the same warning or error pass once a minute, and counts those between."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._last: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        text, now = record.getMessage(), self._clock()
        at, held = self._last.get(text, (now - _AGAIN_AFTER, 0))
        if now - at < _AGAIN_AFTER:
            self._last[text] = at, held + 1
            return False
        if len(self._last) >= _MOST_REMEMBERED:
            self._last.clear()
        record.again = held
        self._last[text] = now, 0
        return True


def _message_of(record: logging.LogRecord) -> str:
    """Return the message, and of an exception its kind alone: its text may hold anything."""
    text = record.getMessage()
    kind = record.exc_info[0] if record.exc_info else None
    if kind is not None:
        text = f"{text.rstrip()} ({kind.__name__})"
    held = getattr(record, "again", 0)
    return f"{text} ({held} more times in between)" if held else text
