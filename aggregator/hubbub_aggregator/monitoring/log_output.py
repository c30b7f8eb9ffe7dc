"""Logging of the service on stderr: text or JSON lines, rate limited, without request data.

A line describes an event of the service, not a request. It has no address, path, id or body, and there is no access log.
An error that a request causes is logged without details of the request. The same warning or error is logged at most once
a minute, with the number of suppressed repetitions. Times are whole seconds.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from hubbub.wire.urls import mask_urls

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")

_REPEAT_INTERVAL_SECONDS = 60.0
_MAX_REMEMBERED_MESSAGES = 1_000
_LOGGERS = ("hubbub_aggregator", "uvicorn.error")
_STANDARD_FIELDS = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "color_message", "repetitions"}


def configure(log_format: str, log_level: str) -> None:
    """Send this process's log to stderr; of other libraries only warnings and errors."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    handler.addFilter(RateLimitFilter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(log_level.upper())


def announce(log_format: str, url: str, local_url: str | None = None) -> None:
    """Print the address of the service, at every log level, and that of the local listener."""
    text = f"hubbub is listening on {url}"
    if log_format == "json":
        log_always(logging.getLogger(_LOGGERS[0]), text, {"url": url, "local_url": local_url})
    else:
        if local_url is not None:
            text += (
                f"\nhubbub answers reads without a token on {local_url} (this machine only: do not forward this port)"
            )
        print(text, file=sys.stderr, flush=True)  # noqa: T201  (printed without a level, unlike log lines)


def log_always(logger: logging.Logger, text: str, fields: Mapping[str, object]) -> None:
    """Log an info line with fields at every log level: for deletions and for changes that an operator requested."""
    logger.handle(logger.makeRecord(logger.name, logging.INFO, __file__, 0, text, (), None, extra=fields))


class TextLines(logging.Formatter):
    """Lines `LEVEL logger: message`, without a time: the collector of stderr adds one."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname} {record.name}: {_message_of(record)}"


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(int(record.created), UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message_of(record),
        }
        fields = {name: value for name, value in record.__dict__.items() if name not in _STANDARD_FIELDS}
        fields = {name: mask_urls(value) if isinstance(value, str) else value for name, value in fields.items()}
        return json.dumps(line | fields, default=str)


class RateLimitFilter(logging.Filter):
    """Filter that passes the same warning or error once a minute, with the number of suppressed repetitions."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._last: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        text, now = record.getMessage(), self._clock()
        at, suppressed = self._last.get(text, (now - _REPEAT_INTERVAL_SECONDS, 0))
        if now - at < _REPEAT_INTERVAL_SECONDS:
            self._last[text] = at, suppressed + 1
            return False
        if len(self._last) >= _MAX_REMEMBERED_MESSAGES:
            self._last.clear()
        record.repetitions = suppressed
        self._last[text] = now, 0
        return True


def _message_of(record: logging.LogRecord) -> str:
    """Return the message, with the type of an exception; its text may contain data and is left out. Secrets in URLs are masked."""
    text = mask_urls(record.getMessage())
    kind = record.exc_info[0] if record.exc_info else None
    if kind is not None:
        text = f"{text.rstrip()} ({kind.__name__})"
    repetitions = getattr(record, "repetitions", 0)
    return f"{text} ({repetitions} more times since)" if repetitions else text
