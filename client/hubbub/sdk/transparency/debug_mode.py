"""Debug mode (`HUBBUB_DEBUG=1`): a temporary state, no connection to another machine, and reports on stderr.

- The state directory of the app is not opened. State and secret are in a temporary directory, which is deleted at exit. Consent starts as
  off, so the app asks for it again.
- Each recording prints the report that would be sent if its period ended now: the randomized bits, never the value.
- `close` and the end of the program send the reports of the current periods at once, if the aggregator's URL is a loopback address.
  Otherwise they are printed only.
"""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

from hubbub.consent import Consent
from hubbub.metrics.kinds import JointValue, Value
from hubbub.metrics.metric import Metric
from hubbub.sdk.assembly import AllSeams, Collaborators
from hubbub.sdk.configuration import Configuration
from hubbub.sdk.recording.recorder import Recorder
from hubbub.sdk.runtime.error_guard import log, logger
from hubbub.sdk.runtime.process import this_process
from hubbub.sdk.runtime.safe_logging import holds_journal, run_when_unlocked
from hubbub.sdk.storage.state import State
from hubbub.sdk.upload.retry_policy import UploadResponse
from hubbub.sdk.upload.transport import HttpTransport, always
from hubbub.text import format_bits
from hubbub.wire.batch import Batch
from hubbub.wire.urls import check_url, is_loopback

SEND_SECONDS = 5.0
"""Time after which no more uploads are started at `close` and at the end of the program."""

_IGNORED_TEXTS = {
    "consent": "consent is off. Call set_consent, and check DO_NOT_TRACK and HUBBUB_CONSENT",
    "invalid": "the value does not fit the definition, or the client is per_subject; the logger hubbub has the reason",
    "unknown-metric": "no such metric is defined; the logger hubbub lists the defined names",
    "policy": "the Policy has no budget for it; `hubbub metrics check` explains why",
    "expired": "its definition has expired",
    "clock": "the system clock is before 2026 or after 9998; set it",
    "no-state": "the state directory cannot be used; the logger hubbub has the reason",
}


def print_line(text: str) -> None:
    """Print a line to stderr; do nothing if stderr is missing, closed, or used by this thread already."""
    with suppress(OSError, ValueError, AttributeError, RuntimeError):
        sys.stderr.write(f"hubbub debug: {text}\n")
        sys.stderr.flush()


class DebugTransport:
    """Prints each batch. Sends it only if the aggregator has a loopback address; otherwise the batch counts as delivered.

    url, ca_certs : as for HttpTransport
    """

    def __init__(self, url: str, ca_certs: str | None = None) -> None:
        self._url = check_url(url)
        self._ca_certs = ca_certs
        self._is_local = is_loopback(urlsplit(self._url).hostname or "")

    @property
    def destination(self) -> str:
        """What happens to a report, in words."""
        if not self._is_local:
            return "not sent: the aggregator is on another machine, and HUBBUB_DEBUG is set"
        return f"sent to {self._url}"

    def send(self, body: bytes, is_wanted: Callable[[], bool] = always) -> UploadResponse:
        """Send a body to this machine, or accept it; print it and the result."""
        batch = Batch.from_json(body)
        response, result = UploadResponse(202, batch_id=str(batch.batch_id)), self.destination
        if self._is_local:
            response = HttpTransport(self._url, self._ca_certs).send(body, is_wanted)
            result = f"{self.destination}: {response.description}"
        print_line(f"{batch.metric}, {batch.period}: {result}: {body.decode().rstrip()}")
        return response


def debugged(configuration: Configuration, seams: AllSeams) -> tuple[Configuration, AllSeams]:
    """Return a configuration and seams with a temporary state, which is in memory if there is no place for a directory."""
    log(logging.WARNING, "HUBBUB_DEBUG is set: the state is temporary, and no report is sent to another machine")
    transport = DebugTransport(configuration.url, configuration.ca_certs)
    directory = _temporary_directory()
    _show_log()
    print_line(
        f"HUBBUB_DEBUG is set. State and secret are temporary ({directory or 'in memory'}), consent starts as off, "
        f"and reports are printed and {transport.destination}"
    )
    seams = replace(
        seams,
        transport=transport,
        disk=None,
        recorder=DebugRecorder,
        before_stop=_send_all,
        at_exit=_deletion(directory),
    )
    if directory is None:
        return replace(configuration, unresolved="", durability="memory", detached=False), seams
    return replace(configuration, directory=directory, unresolved="", detached=False), seams


def _send_all(parts: Collaborators) -> None:
    """Send the reports of the current periods now."""
    if parts.limit.allowed is not Consent.OFF:
        parts.send_all_now(SEND_SECONDS)


def _deletion(directory: Path | None) -> Callable[[], None]:
    """Return the deletion of a temporary directory, which a forked child leaves to its parent."""
    owner = this_process()

    def delete() -> None:
        if directory is not None and this_process() is owner:
            shutil.rmtree(directory, ignore_errors=True)

    return delete


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Shows the warnings of hubbub."""


def _temporary_directory() -> Path | None:
    try:
        return Path(tempfile.mkdtemp(prefix="hubbub-debug-"))
    except OSError:
        return None


def _show_log() -> None:
    """Show hubbub's warnings on stderr if the program has not configured logging."""
    shown = (
        handler
        for handler in (*logger.handlers, *logging.getLogger().handlers)
        if not isinstance(handler, logging.NullHandler)
    )
    if next(shown, None) is None and sys.stderr is not None:
        handler = _StderrHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("hubbub debug: %(levelname)s: %(message)s"))
        logger.addHandler(handler)


class DebugRecorder(Recorder):
    """Prints each recording: the report of its period so far, or the reason why it was ignored.

    The text quotes defined names only: a name may be a value that was passed in the wrong place.
    """

    def record(
        self, state: State, subject_id: str | None, name: str, value: Value | JointValue, moment: datetime | None = None
    ) -> None:
        """Take one recording, and print it when no lock is held."""
        before = Counter(self.backlog.ignored)
        super().record(state, subject_id, name, value, moment)
        reason = next(iter(self.backlog.ignored - before), None)
        metric = self._definitions.get(name) if isinstance(name, str) else None
        label = "record" if metric is None else metric.name
        text = f"ignored: {_IGNORED_TEXTS[reason]}" if reason else self._draft_text(state, subject_id, metric)
        run_when_unlocked(partial(print_line, f"{label}: {text}"))

    def ignore(self, reason: str, number: int = 1) -> None:
        """Count recordings as ignored; print the reason, unless `record` does."""
        super().ignore(reason, number)
        if not holds_journal():
            print_line(f"record: ignored: {_IGNORED_TEXTS[reason]}")

    def _draft_text(self, state: State, subject_id: str | None, metric: Metric | None) -> str:
        secret = self._encoders.secret(state)
        draft = None
        if metric is not None and secret is not None:
            subject = "" if subject_id is None else self._encoders.subject(state, secret, subject_id)
            draft = state.drafts.get((subject, metric.digest))
        if metric is None or draft is None:
            return "kept in memory until the state directory can be used"
        bits = format_bits(draft.report.bits, metric.num_bits)
        size = f"{bits.count('1')} of {metric.num_bits} bits are 1"
        recording = f"recording {draft.num_recordings} of {draft.period}"
        return f"{recording}. Its report if the period ended now: cohort {draft.report.cohort}, {size}: {bits}"
