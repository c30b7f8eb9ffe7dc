"""Debug mode (`HUBBUB_DEBUG=1`): a temporary state, no connection to another machine, and reports on stderr.

- The state directory of the app is not opened. State and secret are in a temporary directory, which is deleted at exit. Consent starts as
  off, so the app asks for it again.
- Each recording prints the report that would be sent if its period ended now: the randomized bits, never the value.
- `close` and the end of the program send the reports of the current periods at once, if the aggregator's URL is a loopback address.
  Otherwise they are printed only.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

from hubbub.consent import Consent
from hubbub.encoding.bloom import JointValue, Value
from hubbub.metrics.metric import Metric
from hubbub.sdk.recording.recorder import Recorder
from hubbub.sdk.recording.subject_encoders import SubjectEncoders
from hubbub.sdk.runtime.error_guard import logger
from hubbub.sdk.storage.state import State
from hubbub.sdk.upload.retry_policy import UploadResponse
from hubbub.sdk.upload.transport import HttpTransport, always
from hubbub.text import format_bits
from hubbub.wire.batch import Batch
from hubbub.wire.urls import check_url, is_loopback

_IGNORED_TEXTS = {
    "consent": "consent is off. Call set_consent, and check DO_NOT_TRACK and HUBBUB_CONSENT",
    "invalid": "the value does not fit the definition, or the client is per_subject; the logger hubbub has the reason",
    "unknown-metric": "no such metric is defined; the logger hubbub lists the defined names",
    "policy": "the Policy has no budget for it; `hubbub metrics check` explains why",
    "expired": "its definition has expired",
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
        is_local = is_loopback(urlsplit(self._url).hostname or "")
        self._transport = HttpTransport(url, ca_certs) if is_local else None

    @property
    def destination(self) -> str:
        """What happens to a report, in words."""
        if self._transport is None:
            return "not sent: the aggregator is on another machine, and HUBBUB_DEBUG is set"
        return f"sent to {self._url}"

    def send(self, body: bytes, is_wanted: Callable[[], bool] = always) -> UploadResponse:
        """Send a body to this machine, or accept it; print it and the result."""
        batch = Batch.from_json(body)
        response, result = UploadResponse(202, batch_id=str(batch.batch_id)), self.destination
        if self._transport is not None:
            response = self._transport.send(body, is_wanted)
            result = f"{self.destination}: {response.description}"
        print_line(f"{batch.metric}, {batch.period}: {result}: {body.decode().rstrip()}")
        return response


class DebugMode:
    """Temporary state and local transport of one client.

    transport : prints reports, and sends them to this machine only
    directory : temporary state directory; None if there is no place for one
    """

    def __init__(self, url: str, ca_certs: str | None) -> None:
        self.transport = DebugTransport(url, ca_certs)
        self.directory = _temporary_directory()
        self._owner = os.getpid()
        _show_log()
        print_line(
            f"HUBBUB_DEBUG is set. State and secret are temporary ({self.directory or 'in memory'}), consent starts as off, "
            f"and reports are printed and {self.transport.destination}"
        )

    def delete_state(self) -> None:
        """Delete the temporary directory, unless this is a forked child."""
        if self.directory is not None and os.getpid() == self._owner:
            shutil.rmtree(self.directory, ignore_errors=True)


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
        each for each in (*logger.handlers, *logging.getLogger().handlers) if not isinstance(each, logging.NullHandler)
    )
    if next(shown, None) is None and sys.stderr is not None:
        handler = _StderrHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("hubbub debug: %(levelname)s: %(message)s"))
        logger.addHandler(handler)


def record_and_describe(
    state: State,
    recorder: Recorder,
    encoders: SubjectEncoders,
    definitions: Mapping[str, Metric],
    subject_id: str | None,
    name: str,
    value: Value | JointValue,
) -> tuple[Consent, str]:
    """Take one recording; return the saved consent, and the report of its period so far or the reason why it was ignored.

    The text quotes defined names only: `name` may be a value that was passed in the wrong place.
    """
    before = Counter(recorder.unsaved_ignored)
    consent = recorder.take(state, subject_id, name, value)
    metric = definitions.get(name) if isinstance(name, str) else None
    label = "record" if metric is None else metric.name
    for reason in recorder.unsaved_ignored - before:
        return consent, f"{label}: ignored: {_IGNORED_TEXTS[reason]}"
    secret = encoders.secret(state)
    if metric is None or secret is None:
        return consent, f"{label}: kept in memory until the state directory can be used"
    subject = "" if subject_id is None else encoders.subject(state, secret, subject_id)
    draft = state.drafts.get((subject, metric.digest))
    if draft is None:
        return consent, f"{label}: kept in memory until the state directory can be used"
    bits = format_bits(draft.report.bits, metric.params.num_bits)
    size = f"{bits.count('1')} of {metric.params.num_bits} bits are 1"
    recording = f"recording {draft.num_recordings} of {draft.period}"
    return (
        consent,
        f"{label}: {recording}. Its report if the period ended now: cohort {draft.report.cohort}, {size}: {bits}",
    )
